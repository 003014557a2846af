//! Recognizes bytes and folders of other formats by their signatures.

use std::collections::BTreeSet;

use crate::context::CheckContext;
use crate::finding::Finding;
use crate::walk::folder::{MAX_CHILDREN, StoredEntry, visit_folder};
use zarr_format::model::{Array, CodecSpec};
use zarrfs_array::hierarchy::NodeEntry;

/// The number of bytes of an object that are enough to recognize it.
pub(crate) const HEAD: u64 = HEAD_LEN as u64;
const HEAD_LEN: usize = 512;

/// Foreign bytes in the place of a chunk or a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// A description, with its article.
    pub(crate) what: String,
    /// The remedy.
    pub(crate) remedy: &'static str,
    /// The name of a codec that makes such bytes contains one of these words; empty if no codec makes them.
    codecs: &'static [&'static str],
    /// Whether uncompressed elements hardly ever begin like this.
    is_sure: bool,
}

/// The remedy for a lost chunk or document.
pub(crate) const COPY_AGAIN: &str =
    "copy it again from another copy of the store, or write it again";

/// The remedy for an error page that was stored in place of the data.
const FETCH_AGAIN: &str = "the server answered with it in place of the data: fetch the store again, with credentials if it asks for some";

/// The remedy for a compressed stream of another codec.
const OTHER_CODEC: &str =
    "state its codec in the metadata if all chunks are such, or write the chunk again";

/// The remedy for a pointer: fetch the content.
const LFS_PULL: &str = "run git lfs pull";
pub(crate) const ANNEX_GET: &str = "run git annex get, or datalad get";

/// The first bytes, the description, the remedy, and the codecs that make such bytes.
type Signature = (
    &'static [u8],
    &'static str,
    &'static str,
    &'static [&'static str],
);

/// Signatures at the first byte.
const SIGNATURES: [Signature; 35] = [
    (
        b"version https://git-lfs.github.com/spec/",
        "a git-lfs pointer",
        LFS_PULL,
        &[],
    ),
    (b"/annex/objects/", "a git-annex pointer", ANNEX_GET, &[]),
    (b"\x28\xb5\x2f\xfd", "a zstd stream", OTHER_CODEC, &["zstd"]),
    (
        b"\x1f\x8b\x08",
        "a gzip stream",
        OTHER_CODEC,
        &["gzip", "zlib"],
    ),
    (b"\x04\x22\x4d\x18", "an LZ4 frame", OTHER_CODEC, &["lz4"]),
    (b"BZh", "a bzip2 stream", OTHER_CODEC, &["bz2", "bzip2"]),
    (
        b"\xfd7zXZ\x00",
        "an xz stream",
        OTHER_CODEC,
        &["lzma", "xz"],
    ),
    (
        b"\x9e\xa8b2frame\x00",
        "a Blosc2 frame",
        OTHER_CODEC,
        &["blosc"],
    ),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", COPY_AGAIN, &[]),
    (b"CDF\x01", "a netCDF file", COPY_AGAIN, &[]),
    (b"CDF\x02", "a netCDF file", COPY_AGAIN, &[]),
    (b"CDF\x05", "a netCDF file", COPY_AGAIN, &[]),
    (b"II*\x00", "a TIFF file", COPY_AGAIN, &["tiff"]),
    (b"MM\x00*", "a TIFF file", COPY_AGAIN, &["tiff"]),
    (b"II+\x00", "a BigTIFF file", COPY_AGAIN, &["tiff"]),
    (b"MM\x00+", "a BigTIFF file", COPY_AGAIN, &["tiff"]),
    (b"\x89PNG\r\n\x1a\n", "a PNG image", COPY_AGAIN, &["png"]),
    (b"\xff\xd8\xff", "a JPEG image", COPY_AGAIN, &["jpeg"]),
    (
        b"\xff\x4f\xff\x51",
        "a JPEG 2000 image",
        COPY_AGAIN,
        &["jpeg2k", "j2k", "htj2k"],
    ),
    (
        b"\x00\x00\x00\x0cjP  ",
        "a JPEG 2000 image",
        COPY_AGAIN,
        &["jpeg2k", "j2k"],
    ),
    (
        b"\x00\x00\x00\x0cJXL ",
        "a JPEG XL image",
        COPY_AGAIN,
        &["jpegxl"],
    ),
    (b"GIF8", "a GIF image", COPY_AGAIN, &["gif"]),
    (b"RIFF", "a RIFF file, such as WebP", COPY_AGAIN, &["webp"]),
    (b"Lerc2 ", "a LERC stream", OTHER_CODEC, &["lerc"]),
    (b"PK\x03\x04", "a zip archive", COPY_AGAIN, &[]),
    (b"PK\x05\x06", "an empty zip archive", COPY_AGAIN, &[]),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", COPY_AGAIN, &[]),
    (b"\x93NUMPY", "a .npy file of numpy", COPY_AGAIN, &[]),
    (b"PAR1", "a Parquet file", COPY_AGAIN, &[]),
    (b"ARROW1\x00\x00", "an Arrow file", COPY_AGAIN, &[]),
    (b"SIMPLE  =", "a FITS file", COPY_AGAIN, &[]),
    (b"GRIB", "a GRIB message", COPY_AGAIN, &[]),
    (b"%PDF-", "a PDF file", COPY_AGAIN, &[]),
    (b"SQLite format 3\x00", "an SQLite file", COPY_AGAIN, &[]),
    (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "an Office file",
        COPY_AGAIN,
        &[],
    ),
];

/// Signatures of texts, in lower case, after white space and a byte order mark.
const TEXTS: [(&str, &str, &str); 9] = [
    ("<!doctype html", "an HTML page", FETCH_AGAIN),
    ("<html", "an HTML page", FETCH_AGAIN),
    ("<head", "an HTML page", FETCH_AGAIN),
    ("<body", "an HTML page", FETCH_AGAIN),
    ("<title", "an HTML page", FETCH_AGAIN),
    ("<center", "an HTML page", FETCH_AGAIN),
    ("<h1", "an HTML page", FETCH_AGAIN),
    ("<script", "an HTML page", FETCH_AGAIN),
    ("<error", "an XML error document of a server", FETCH_AGAIN),
];

/// Members of JSON error documents of servers.
const ERROR_MEMBERS: [&str; 5] = [
    "\"error\"",
    "\"errors\"",
    "\"message\"",
    "\"detail\"",
    "\"code\"",
];

/// Minimum numbers of bytes of text, and of zeros, that are recognized.
const MIN_TEXT: usize = 8;
const MIN_ZEROS: usize = 16;

impl Foreign {
    /// Returns the message about foreign bytes in the place of a chunk, or of a part of one.
    pub(crate) fn message(&self, part: &str, array: &Array) -> String {
        let what = &self.what;
        if self.codecs.is_empty() {
            return format!("{part} is {what}, not data");
        }
        let stated: Vec<&str> = array
            .codecs
            .iter()
            .map(|codec| codec.name.as_str())
            .collect();
        let stated = match stated.as_slice() {
            [] => "no codec".to_string(),
            [one] => format!("the codec {one}"),
            several => format!("the codecs {}", several.join(", ")),
        };
        format!("{part} is {what}, and the metadata state {stated}")
    }
}

/// Recognizes foreign bytes in the place of a chunk; `None` if a codec of the array makes such bytes. `size` is the
/// length of the object.
pub(crate) fn in_place_of_chunk(head: &[u8], size: u64, array: &Array) -> Option<Foreign> {
    let found = recognized(head, size)?;
    let is_own = names_of(&array.codecs)
        .iter()
        .any(|name| found.codecs.iter().any(|codec| name.contains(codec)));
    (!is_own).then_some(found)
}

/// Recognizes foreign bytes in the place of a shard. Unsure matches are excluded, as a shard may begin with elements.
pub(crate) fn in_place_of_shard(head: &[u8], size: u64, array: &Array) -> Option<Foreign> {
    in_place_of_chunk(head, size, array).filter(|found| found.is_sure)
}

/// Recognizes foreign bytes in the place of a document; `None` if they may be JSON.
pub(crate) fn in_place_of_document(bytes: &[u8]) -> Option<Foreign> {
    let is_json = matches!(plain(bytes).first(), None | Some(b'{' | b'[' | b'"'));
    let size = bytes.len() as u64;
    recognized(bytes.chunks(HEAD_LEN).next().unwrap_or_default(), size).filter(|_| !is_json)
}

/// Recognizes bytes by their first ones.
fn recognized(head: &[u8], size: u64) -> Option<Foreign> {
    let told = |what: &str, remedy, codecs| Foreign {
        what: what.to_string(),
        remedy,
        codecs,
        is_sure: true,
    };
    let begins = |(start, ..): &&Signature| head.starts_with(start);
    if let Some((_, what, remedy, codecs)) = SIGNATURES.iter().find(begins) {
        return Some(told(what, remedy, codecs));
    }
    if is_blosc(head, size) {
        return Some(told("a Blosc chunk", OTHER_CODEC, &["blosc"]));
    }
    if is_zlib(head) {
        return Some(told(
            "a zlib stream",
            OTHER_CODEC,
            &["zlib", "gzip", "deflate"],
        ));
    }
    if head.len() >= MIN_ZEROS && head.iter().all(|&byte| byte == 0) {
        let what = format!(
            "zeros in its first {} bytes, as a copy that was cut leaves them",
            head.len()
        );
        let is_sure = false;
        return Some(Foreign {
            is_sure,
            ..told(&what, COPY_AGAIN, &[])
        });
    }
    text(head)
}

/// Recognizes a text.
fn text(head: &[u8]) -> Option<Foreign> {
    let told = |what: String, remedy| {
        let (codecs, is_sure): (&[&str], bool) = (&[], remedy == FETCH_AGAIN);
        Some(Foreign {
            what,
            remedy,
            codecs,
            is_sure,
        })
    };
    let start = str::from_utf8(plain(head)).or_else(|error| {
        // The head may end within a character.
        let end = error.valid_up_to();
        let is_cut = error.error_len().is_none();
        str::from_utf8(plain(head).get(..end).filter(|_| is_cut).unwrap_or(b"\0"))
    });
    let start = start.unwrap_or("\0");
    let is_text = start.chars().all(|c| !c.is_control() || c.is_whitespace());
    if !is_text || start.len() < MIN_TEXT {
        return None;
    }
    let lower = start.to_ascii_lowercase();
    if let Some((_, what, remedy)) = TEXTS.iter().find(|(begin, ..)| lower.starts_with(begin)) {
        return told((*what).to_string(), remedy);
    }
    if lower.starts_with("<?xml") {
        let is_in = |word: &str| lower.contains(word);
        return match () {
            () if is_in("<error") => {
                told("an XML error document of a server".to_string(), FETCH_AGAIN)
            }
            () if is_in("<html") || is_in("<!doctype html") => {
                told("an HTML page".to_string(), FETCH_AGAIN)
            }
            () => told("an XML document".to_string(), COPY_AGAIN),
        };
    }
    if lower.starts_with('{') {
        let is_error = ERROR_MEMBERS.iter().any(|member| lower.contains(member));
        let is_node = lower.contains("zarr_format");
        return if is_error && !is_node {
            told("a JSON error document of a server".to_string(), FETCH_AGAIN)
        } else {
            told("a JSON document".to_string(), COPY_AGAIN)
        };
    }
    let shown: String = start.chars().take(40).collect();
    told(format!("text that begins with {shown:?}"), COPY_AGAIN)
}

/// Returns the bytes after a byte order mark and white space.
fn plain(bytes: &[u8]) -> &[u8] {
    bytes
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(bytes)
        .trim_ascii_start()
}

/// Whether bytes begin with the header of a Blosc 1 or 2 chunk, which states the total length.
fn is_blosc(head: &[u8], size: u64) -> bool {
    let Some(header) = head.first_chunk::<16>() else {
        return false;
    };
    let length = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
    (1..=5).contains(&header[0]) && header[1] <= 2 && u64::from(length) == size
}

/// Whether bytes begin with the header that zlib writes.
fn is_zlib(head: &[u8]) -> bool {
    matches!(head, [0x78, 0x01 | 0x5e | 0x9c | 0xda, _, _, ..])
}

/// Returns the names of codecs in lower case, and the text of codec lists inside shards.
fn names_of(codecs: &[CodecSpec]) -> Vec<String> {
    let mut names = Vec::new();
    for codec in codecs {
        names.push(codec.name.to_ascii_lowercase());
        for list in ["codecs", "index_codecs"] {
            let inner = codec.configuration.get(list);
            names.extend(inner.map(|inner| inner.to_string().to_ascii_lowercase()));
        }
    }
    names
}

/// A format: top-level names that it always has, a description, and the program that reads it.
type Format = (&'static [&'static str], &'static str, &'static str);

const FORMATS: [Format; 6] = [
    (&["refs", "snapshots"], "an Icechunk repository", "icechunk"),
    (&["repo", "snapshots"], "an Icechunk repository", "icechunk"),
    (&["manifest.ocdbt"], "an OCDBT database", "tensorstore"),
    (&["__schema", "__fragments"], "a TileDB array", "tiledb"),
    (&["_delta_log"], "a Delta table", "deltalake"),
    (
        &["info", "provenance"],
        "a precomputed volume of Neuroglancer",
        "cloud-volume or tensorstore",
    ),
];

/// Returns a finding if the folder has another format; it is not checked for Zarr nodes then.
pub(crate) fn other_format(context: &CheckContext, top: &NodeEntry) -> Option<Finding> {
    if top.version != 0 || top.node.is_err() || !context.store().info().lists {
        return None;
    }
    let mut names = BTreeSet::new();
    let visited = visit_folder(context.store(), &top.path, &mut |entry| {
        if let StoredEntry::Object(key, _) | StoredEntry::Folder(key) = entry
            && names.len() < MAX_CHILDREN
        {
            names.insert(key.name().to_vec());
        }
    });
    visited.ok()?;
    let is_it = |(needed, ..): &&Format| needed.iter().all(|name| names.contains(name.as_bytes()));
    let (_, what, program) = FORMATS.iter().find(is_it)?;
    let message = format!("the folder is {what} and no store of Zarr or N5");
    let remedy = format!("read it with {program}, which can write it as Zarr");
    Some(Finding::error("no-store", &top.path, message).mended_by(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_named_by_how_they_begin() {
        let named = |bytes: &[u8]| recognized(bytes, bytes.len() as u64).map(|found| found.what);
        for (bytes, what) in [
            (
                b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7\nsize 9\n".as_slice(),
                "a git-lfs pointer",
            ),
            (b"/annex/objects/SHA256E-s9--4d7a\n", "a git-annex pointer"),
            (b"\n<!DOCTYPE HTML PUBLIC \"-//IETF\">", "an HTML page"),
            (b"\xef\xbb\xbf<html lang=en>", "an HTML page"),
            (
                b"<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied",
                "an XML error document of a server",
            ),
            (
                b"<Error><Code>NoSuchKey</Code>",
                "an XML error document of a server",
            ),
            (b"<?xml version=\"1.0\"?><!DOCTYPE html ", "an HTML page"),
            (b"<?xml version=\"1.0\"?><kml>", "an XML document"),
            (
                b"{\"error\": {\"code\": 403}}",
                "a JSON error document of a server",
            ),
            (
                b"{\"zarr_format\": 3, \"node_type\": \"group\"}",
                "a JSON document",
            ),
            (
                b"404 page not found\n",
                "text that begins with \"404 page not found\\n\"",
            ),
            (b"\x89HDF\r\n\x1a\n\0\0", "an HDF5 file"),
            (b"BZh91AY&SY", "a bzip2 stream"),
            (
                b"\x02\x01\x11\x02\x10\0\0\0\x10\0\0\0\x10\0\0\0",
                "a Blosc chunk",
            ),
            (b"\x78\x9c\x4b\x4c", "a zlib stream"),
        ] {
            assert_eq!(named(bytes).as_deref(), Some(what), "{bytes:?}");
        }
        assert!(named(&[0; 40]).is_some_and(|what| what.contains("first 40 bytes")));
        for bytes in [
            b"".as_slice(),
            b"\0\0",
            b"abc",
            b"\x02\x01\x11\x02\x10\0\0\0\x10\0\0\0\x11\0\0\0",
            b"ab\0\x01cdefghi",
        ] {
            assert_eq!(named(bytes), None, "{bytes:?}");
        }
        // The head ends within a character.
        assert!(named("gr\u{f6}\u{df}er \u{f6}".as_bytes().split_last().unwrap().1).is_some());
    }

    #[test]
    fn what_may_be_json_is_no_other_document() {
        assert_eq!(in_place_of_document(b"{\"error\": "), None);
        assert_eq!(in_place_of_document(b" [1, 2, 3, 4]"), None);
        let page = in_place_of_document(b"<html><body>404</body></html>");
        assert!(page.is_some_and(|page| page.what == "an HTML page"));
    }
}
