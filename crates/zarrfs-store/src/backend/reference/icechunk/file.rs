//! Reads the header, compression and identifiers of an Icechunk repository's files.

use std::io::Read;

use zarr_format::error::{Error, Result};

/// The first bytes of each Icechunk file: `ICE`, an ice cube in UTF-8, `CHUNK`.
const MAGIC: &[u8] = b"ICE\xf0\x9f\xa7\x8aCHUNK";

/// The length of an Icechunk file's header, in bytes: magic bytes, name of the writer (24), version, kind, compression.
pub(super) const HEADER_LEN: usize = 39;

/// The digits of Crockford's base 32, in which Icechunk writes identifiers.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    Snapshot = 1,
    Manifest = 2,
    Repository = 6,
}

impl FileKind {
    fn name(self) -> &'static str {
        match self {
            FileKind::Snapshot => "snapshot",
            FileKind::Manifest => "manifest",
            FileKind::Repository => "repository file",
        }
    }
}

/// Whether bytes begin like a file of an Icechunk repository.
pub(super) fn is_icechunk(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Returns the FlatBuffers buffer in an Icechunk file, of at most `limit` bytes. The error is `Corrupt` if the file is
/// of another kind or damaged, `Unsupported` for a later version of the specification, `TooLarge` beyond the limit.
pub(super) fn content(file: &[u8], kind: FileKind, limit: u64) -> Result<Vec<u8>> {
    let (Some(header), Some(body)) = (file.get(..HEADER_LEN), file.get(HEADER_LEN..)) else {
        return Err(not_a(kind));
    };
    let &[version, found, compression] = header.last_chunk().ok_or_else(|| not_a(kind))?;
    if !is_icechunk(header) || found != kind as u8 {
        return Err(not_a(kind));
    }
    if !(1..=2).contains(&version) {
        let why = format!(
            "is of version {version} of the Icechunk specification; this zarrfs reads versions 1 and 2"
        );
        return Err(Error::unsupported("", why));
    }
    match compression {
        0 if body.len() as u64 > limit => Err(too_long(limit)),
        0 => Ok(body.to_vec()),
        1 => decompressed(body, limit),
        other => Err(Error::unsupported(
            "",
            format!("is compressed by method {other}, which is not known"),
        )),
    }
}

/// Returns the length of an Icechunk file's decompressed buffer if the file states it. A hostile file may state a wrong
/// length.
pub(super) fn content_len(file: &[u8]) -> Option<u64> {
    let body = file.get(HEADER_LEN..)?;
    match file.get(HEADER_LEN - 1)? {
        0 => Some(body.len() as u64),
        _ => zstd::zstd_safe::get_frame_content_size(body).ok()?,
    }
}

fn decompressed(body: &[u8], limit: u64) -> Result<Vec<u8>> {
    let damaged = |error| Error::corrupt("", format!("cannot be decompressed: {error}"));
    let decoder = zstd::stream::read::Decoder::with_buffer(body).map_err(damaged)?;
    let room = limit.saturating_add(1);
    let mut content = Vec::new();
    // The whole limit is reserved at once, because a buffer that grows by doubling could take more than `limit` bytes.
    let reserved = content.try_reserve_exact(usize::try_from(room).unwrap_or(usize::MAX));
    reserved.map_err(|error| Error::too_large("", error))?;
    decoder
        .take(room)
        .read_to_end(&mut content)
        .map_err(damaged)?;
    if content.len() as u64 > limit {
        return Err(too_long(limit));
    }
    content.shrink_to_fit();
    Ok(content)
}

fn too_long(limit: u64) -> Error {
    let why = format!("has more than {limit} bytes decompressed: give more --memory");
    Error::too_large("", why)
}

fn not_a(kind: FileKind) -> Error {
    Error::corrupt("", format!("is no Icechunk {}", kind.name()))
}

/// The identifier of an Icechunk snapshot, manifest or chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Id(pub(super) [u8; 12]);

impl Id {
    /// Parses an Icechunk identifier as it stands in file names. Returns `None` if the text is not an identifier.
    pub(super) fn parse(text: &str) -> Option<Id> {
        let mut bytes = [0; 12];
        let (mut buffer, mut bits, mut filled) = (0u32, 0, 0);
        if text.len() != 20 {
            return None;
        }
        for letter in text.bytes() {
            let letter = letter.to_ascii_uppercase();
            let digit = DIGITS.iter().position(|&digit| digit == letter)?;
            buffer = (buffer << 5) | u32::try_from(digit).ok()?;
            bits += 5;
            if bits >= 8 {
                bits -= 8;
                *bytes.get_mut(filled)? = u8::try_from((buffer >> bits) & 0xff).ok()?;
                filled += 1;
            }
        }
        Some(Id(bytes))
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mut buffer, mut bits) = (0u32, 0);
        let digit = |f: &mut std::fmt::Formatter<'_>, value: u32| {
            let index = usize::try_from(value & 31).unwrap_or_default();
            let digit = DIGITS.get(index).copied().unwrap_or_default();
            write!(f, "{}", char::from(digit))
        };
        for byte in self.0 {
            buffer = (buffer << 8) | u32::from(byte);
            bits += 8;
            while bits >= 5 {
                bits -= 5;
                digit(f, buffer >> bits)?;
            }
        }
        digit(f, buffer << (5 - bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarr_format::error::Kind;

    fn file(version: u8, kind: u8, compression: u8, body: &[u8]) -> Vec<u8> {
        let end = [version, kind, compression];
        [MAGIC, &[b' '; 24], &end, body].concat()
    }

    #[test]
    fn identifiers_are_in_base_32() {
        let first = Id([
            0x0b, 0x1c, 0xc8, 0xd6, 0x78, 0x75, 0x80, 0xf0, 0xe3, 0x3a, 0x65, 0x34,
        ]);
        assert_eq!(first.to_string(), "1CECHNKREP0F1RSTCMT0");
        assert_eq!(Id::parse("1CECHNKREP0F1RSTCMT0"), Some(first));
        assert_eq!(Id::parse("1cechnkrep0f1rstcmt0"), Some(first));
        for text in ["", "1CECHNKREP0F1RSTCMT", "1CECHNKREP0F1RSTCMTU"] {
            assert_eq!(Id::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_file_is_decoded_as_its_header_says() {
        let body = zstd::encode_all(b"bytes".as_slice(), 1).unwrap();
        for (version, compression, body) in [(1, 0, b"bytes".as_slice()), (2, 1, &body)] {
            let file = file(version, 2, compression, body);
            assert_eq!(content(&file, FileKind::Manifest, 5).unwrap(), b"bytes");
        }
        for (file, expected) in [
            (file(1, 1, 0, b""), Kind::Corrupt),
            (file(3, 2, 0, b""), Kind::Unsupported),
            (file(1, 2, 7, b""), Kind::Unsupported),
            (file(1, 2, 1, b"none"), Kind::Corrupt),
            (file(1, 2, 1, &body), Kind::TooLarge),
            (b"ICE".to_vec(), Kind::Corrupt),
        ] {
            let error = content(&file, FileKind::Manifest, 4).unwrap_err();
            assert_eq!(error.kind(), expected, "{error}");
        }
    }
}
