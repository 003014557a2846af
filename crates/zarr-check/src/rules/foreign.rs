//! Recognizes bytes and folders of other formats by their signatures.

use crate::context::CheckContext;
use crate::finding::Finding;
use zarr_format::model::{Array, CodecSpec};
use zarrfs_array::hierarchy::{NodeEntry, OtherFormat};
use zarrfs_store::request_context::UNLIMITED;

/// Number of bytes at the start of an object from which its format is recognized.
pub(crate) const HEAD: usize = 512;

/// Bytes that are in another format than the chunk or document that should be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// The name of the recognized format, with an article.
    pub(crate) what: String,
    /// How to replace the bytes by the chunk or document.
    pub(crate) remedy: Remedy,
    /// Words in the names of codecs that produce such bytes; empty if no codec does.
    codecs: &'static [&'static str],
    /// Whether the elements of an uncompressed chunk hardly ever begin with the bytes that identify the format.
    is_sure: bool,
}

/// How to replace bytes of another format, or a lost chunk or document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    CopyAgain,
    /// Download the object again, because an error page of a server was stored in its place.
    FetchAgain,
    /// Correct the codec in the metadata, because the bytes were compressed by another one.
    StateCodec,
    LfsPull,
    AnnexGet,
}

use Remedy::{AnnexGet, CopyAgain, FetchAgain, LfsPull, StateCodec};

impl From<Remedy> for String {
    fn from(remedy: Remedy) -> String {
        let text = match remedy {
            CopyAgain => "copy it from another copy of the store, or write it again",
            FetchAgain => "download the store again, with credentials if the server needs them",
            StateCodec => "correct the codec in the metadata, or write the chunk again",
            LfsPull => "run 'git lfs pull'",
            AnnexGet => "run 'git annex get' or 'datalad get'",
        };
        text.to_string()
    }
}

/// The first bytes of a format, its name, the remedy, and words in the names of the codecs that produce the format.
type Signature = (&'static [u8], &'static str, Remedy, &'static [&'static str]);

/// Formats that are recognized by their first bytes.
const SIGNATURES: [Signature; 35] = [
    (
        b"version https://git-lfs.github.com/spec/",
        "a git-lfs pointer",
        LfsPull,
        &[],
    ),
    (b"/annex/objects/", "a git-annex pointer", AnnexGet, &[]),
    (b"\x28\xb5\x2f\xfd", "a zstd stream", StateCodec, &["zstd"]),
    (
        b"\x1f\x8b\x08",
        "a gzip stream",
        StateCodec,
        &["gzip", "zlib"],
    ),
    (b"\x04\x22\x4d\x18", "an LZ4 frame", StateCodec, &["lz4"]),
    (b"BZh", "a bzip2 stream", StateCodec, &["bz2", "bzip2"]),
    (b"\xfd7zXZ\x00", "an xz stream", StateCodec, &["lzma", "xz"]),
    (
        b"\x9e\xa8b2frame\x00",
        "a Blosc2 frame",
        StateCodec,
        &["blosc"],
    ),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", CopyAgain, &[]),
    (b"CDF\x01", "a netCDF file", CopyAgain, &[]),
    (b"CDF\x02", "a netCDF file", CopyAgain, &[]),
    (b"CDF\x05", "a netCDF file", CopyAgain, &[]),
    (b"II*\x00", "a TIFF file", CopyAgain, &["tiff"]),
    (b"MM\x00*", "a TIFF file", CopyAgain, &["tiff"]),
    (b"II+\x00", "a BigTIFF file", CopyAgain, &["tiff"]),
    (b"MM\x00+", "a BigTIFF file", CopyAgain, &["tiff"]),
    (b"\x89PNG\r\n\x1a\n", "a PNG image", CopyAgain, &["png"]),
    (b"\xff\xd8\xff", "a JPEG image", CopyAgain, &["jpeg"]),
    (
        b"\xff\x4f\xff\x51",
        "a JPEG 2000 image",
        CopyAgain,
        &["jpeg2k", "j2k", "htj2k"],
    ),
    (
        b"\x00\x00\x00\x0cjP  ",
        "a JPEG 2000 image",
        CopyAgain,
        &["jpeg2k", "j2k"],
    ),
    (
        b"\x00\x00\x00\x0cJXL ",
        "a JPEG XL image",
        CopyAgain,
        &["jpegxl"],
    ),
    (b"GIF8", "a GIF image", CopyAgain, &["gif"]),
    (b"RIFF", "a RIFF file, such as WebP", CopyAgain, &["webp"]),
    (b"Lerc2 ", "a LERC stream", StateCodec, &["lerc"]),
    (b"PK\x03\x04", "a zip archive", CopyAgain, &[]),
    (b"PK\x05\x06", "an empty zip archive", CopyAgain, &[]),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", CopyAgain, &[]),
    (b"\x93NUMPY", "a .npy file of numpy", CopyAgain, &[]),
    (b"PAR1", "a Parquet file", CopyAgain, &[]),
    (b"ARROW1\x00\x00", "an Arrow file", CopyAgain, &[]),
    (b"SIMPLE  =", "a FITS file", CopyAgain, &[]),
    (b"GRIB", "a GRIB message", CopyAgain, &[]),
    (b"%PDF-", "a PDF file", CopyAgain, &[]),
    (b"SQLite format 3\x00", "an SQLite file", CopyAgain, &[]),
    (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "an Office file",
        CopyAgain,
        &[],
    ),
];

/// Formats that are recognized by a text in lower case, after white space or a byte order mark.
const TEXTS: [(&str, &str, Remedy); 9] = [
    ("<!doctype html", "an HTML page", FetchAgain),
    ("<html", "an HTML page", FetchAgain),
    ("<head", "an HTML page", FetchAgain),
    ("<body", "an HTML page", FetchAgain),
    ("<title", "an HTML page", FetchAgain),
    ("<center", "an HTML page", FetchAgain),
    ("<h1", "an HTML page", FetchAgain),
    ("<script", "an HTML page", FetchAgain),
    ("<error", "an XML error message of a server", FetchAgain),
];

impl Foreign {
    /// Returns the message that a chunk, or a part of a chunk, has bytes of another format.
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
        format!("{part} is {what}, but the metadata name {stated}")
    }
}

pub(crate) struct ObjectHead {
    pub(crate) bytes: Vec<u8>,
    /// The length of the whole object, or of the part whose first bytes these are.
    pub(crate) size: u64,
}

/// Returns the other format that the bytes of a chunk have, or `None` if they may be a chunk, for example because a
/// codec of the array produces the format.
pub(crate) fn in_place_of_chunk(head: &ObjectHead, array: &Array) -> Option<Foreign> {
    let foreign = recognized(&head.bytes, head.size)?;
    let is_own = names_of(&array.codecs)
        .iter()
        .any(|name| foreign.codecs.iter().any(|codec| name.contains(codec)));
    (!is_own).then_some(foreign)
}

/// Returns the other format that the bytes of a shard have. A shard may begin with elements, so formats that elements
/// may resemble are not recognized.
pub(crate) fn in_place_of_shard(head: &ObjectHead, array: &Array) -> Option<Foreign> {
    in_place_of_chunk(head, array).filter(|foreign| foreign.is_sure)
}

/// Returns the other format that the bytes of a metadata document have, or `None` if they may be JSON.
pub(crate) fn in_place_of_document(bytes: &[u8]) -> Option<Foreign> {
    let is_json = matches!(plain(bytes).first(), None | Some(b'{' | b'[' | b'"'));
    let size = bytes.len() as u64;
    recognized(bytes.chunks(HEAD).next().unwrap_or_default(), size).filter(|_| !is_json)
}

/// Returns the format of an object of `size` bytes whose first bytes are `head`, or `None` if it is not recognized.
fn recognized(head: &[u8], size: u64) -> Option<Foreign> {
    let sure = |what: &str, remedy, codecs| Foreign {
        what: what.to_string(),
        remedy,
        codecs,
        is_sure: true,
    };
    let begins = |(start, ..): &&Signature| head.starts_with(start);
    if let Some((_, what, remedy, codecs)) = SIGNATURES.iter().find(begins) {
        return Some(sure(what, *remedy, codecs));
    }
    if is_blosc(head, size) {
        return Some(sure("a Blosc chunk", StateCodec, &["blosc"]));
    }
    if is_zlib(head) {
        return Some(sure(
            "a zlib stream",
            StateCodec,
            &["zlib", "gzip", "deflate"],
        ));
    }
    if head.len() >= 16 && head.iter().all(|&byte| byte == 0) {
        let what = format!(
            "zeros in its first {} bytes, as after an interrupted copy",
            head.len()
        );
        let is_sure = false;
        return Some(Foreign {
            is_sure,
            ..sure(&what, CopyAgain, &[])
        });
    }
    text(head)
}

/// Recognizes formats that begin with a known text, such as an HTML page.
fn text(head: &[u8]) -> Option<Foreign> {
    let foreign = |what: String, remedy| {
        Some(Foreign {
            what,
            remedy,
            codecs: &[],
            is_sure: remedy == FetchAgain,
        })
    };
    let start = str::from_utf8(plain(head)).or_else(|error| {
        // The first bytes of a text may end in the middle of a character.
        let end = error.valid_up_to();
        let is_cut = error.error_len().is_none();
        str::from_utf8(plain(head).get(..end).filter(|_| is_cut).unwrap_or(b"\0"))
    });
    let start = start.unwrap_or("\0");
    let is_text = start.chars().all(|c| !c.is_control() || c.is_whitespace());
    if !is_text || start.len() < 8 {
        return None;
    }
    let lower = start.to_ascii_lowercase();
    if let Some((_, what, remedy)) = TEXTS.iter().find(|(begin, ..)| lower.starts_with(begin)) {
        return foreign((*what).to_string(), *remedy);
    }
    if lower.starts_with("<?xml") {
        let is_in = |word: &str| lower.contains(word);
        return match () {
            () if is_in("<error") => {
                foreign("an XML error message of a server".to_string(), FetchAgain)
            }
            () if is_in("<html") || is_in("<!doctype html") => {
                foreign("an HTML page".to_string(), FetchAgain)
            }
            () => foreign("an XML file".to_string(), CopyAgain),
        };
    }
    if lower.starts_with('{') {
        let mut members = ["error", "errors", "message", "detail", "code"].into_iter();
        let is_error = members.any(|member| lower.contains(&format!("\"{member}\"")));
        let is_node = lower.contains("zarr_format");
        return if is_error && !is_node {
            foreign("a JSON error message of a server".to_string(), FetchAgain)
        } else {
            foreign("a JSON file".to_string(), CopyAgain)
        };
    }
    let start: String = start.chars().take(40).collect();
    foreign(format!("text that begins with {start:?}"), CopyAgain)
}

/// Returns the bytes of a text without its byte order mark and leading white space.
fn plain(bytes: &[u8]) -> &[u8] {
    bytes
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(bytes)
        .trim_ascii_start()
}

/// Whether an object of `size` bytes is a Blosc 1 or 2 chunk, whose header contains its length.
fn is_blosc(head: &[u8], size: u64) -> bool {
    let Some(header) = head.first_chunk::<16>() else {
        return false;
    };
    let length = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
    (1..=5).contains(&header[0]) && header[1] <= 2 && u64::from(length) == size
}

/// Whether an object begins with the header that zlib writes.
fn is_zlib(head: &[u8]) -> bool {
    matches!(head, [0x78, 0x01 | 0x5e | 0x9c | 0xda, _, _, ..])
}

/// Returns the names of an array's codecs in lower case. For sharding, also returns the lists of inner codecs as JSON.
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

/// Returns a finding if the folder of the node belongs to another format, which is then not checked for Zarr nodes.
pub(crate) fn other_format(context: &CheckContext, top: &NodeEntry) -> Option<Finding> {
    if top.version != 0 || top.node.is_err() || !context.store().info().lists {
        return None;
    }
    let OtherFormat { what, readers, .. } = OtherFormat::of(&UNLIMITED, context.store())?;
    let message = format!("this is {what}, not a Zarr or N5 store");
    let remedy = format!("read it with {readers}, which can write it as Zarr");
    Some(Finding::error("no-store", &top.path, message).with_remedy(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_data_are_recognized_by_their_first_bytes() {
        let named =
            |bytes: &[u8]| recognized(bytes, bytes.len() as u64).map(|foreign| foreign.what);
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
                "an XML error message of a server",
            ),
            (
                b"<Error><Code>NoSuchKey</Code>",
                "an XML error message of a server",
            ),
            (b"<?xml version=\"1.0\"?><!DOCTYPE html ", "an HTML page"),
            (b"<?xml version=\"1.0\"?><kml>", "an XML file"),
            (
                b"{\"error\": {\"code\": 403}}",
                "a JSON error message of a server",
            ),
            (
                b"{\"zarr_format\": 3, \"node_type\": \"group\"}",
                "a JSON file",
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
        // The first bytes of the text end in the middle of a character.
        assert!(named("gr\u{f6}\u{df}er \u{f6}".as_bytes().split_last().unwrap().1).is_some());
    }

    #[test]
    fn text_that_may_be_json_is_not_a_foreign_file() {
        assert_eq!(in_place_of_document(b"{\"error\": "), None);
        assert_eq!(in_place_of_document(b" [1, 2, 3, 4]"), None);
        let page = in_place_of_document(b"<html><body>404</body></html>");
        assert!(page.is_some_and(|page| page.what == "an HTML page"));
    }
}
