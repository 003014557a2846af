//! `.npy`: numpy's own format (numpy.lib.format), version 1.0 if the header fits.
//!
//! Elements without a fixed length become fixed-width types of numpy, as wide as the longest element.

use crate::formats::format::ALIGNMENT;
use crate::formats::{FileParts, Format, Ragged, descr};
use zarr_format::error::{Error, Result};
use zarr_format::model::{DataType, MAX_ELEMENT};
use zarrfs_array::array::ragged::{Growing, RaggedElements};

/// Elements in C order behind a header; `numpy.load` can map the file.
pub const FORMAT: Format = Format {
    extension: "npy",
    needs: "elements of a type that numpy has",
    parts: Some(|subject| {
        let descr = descr::of(&subject.array.data_type)?;
        header(&descr, false, subject.shape).map(FileParts::plain)
    }),
    ragged: Some(Ragged::Made(ragged)),
    is_basic: true,
};

/// The same in Fortran order (first dimension fastest).
pub const FORTRAN: Format = Format {
    extension: "f.npy",
    needs: "elements of a fixed length and of a type that numpy has",
    parts: Some(|subject| {
        let descr = descr::of(&subject.array.data_type)?;
        let header = header(&descr, true, subject.shape)?;
        Some(FileParts::fortran(header, subject.shape))
    }),
    ragged: None,
    is_basic: false,
};

/// Builds the header: magic, version, length of the text, the padded text, and a newline.
fn header(descr: &str, is_fortran: bool, shape: &[u64]) -> Option<Vec<u8>> {
    let shape = descr::tuple(shape);
    let order = if is_fortran { "True" } else { "False" };
    let mut text = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}");
    // Version 3.0 allows more than 64 KiB of text, in UTF-8.
    let is_plain = text.is_ascii() && text.len() + ALIGNMENT < usize::from(u16::MAX);
    let before = if is_plain { 10 } else { 12 };
    let length = (before + text.len() + 1).next_multiple_of(ALIGNMENT) - before;
    text.push_str(&" ".repeat(length - 1 - text.len()));
    text.push('\n');
    let mut header = b"\x93NUMPY".to_vec();
    if is_plain {
        header.extend([1, 0]);
        header.extend(u16::try_from(length).ok()?.to_le_bytes());
    } else {
        header.extend([3, 0]);
        header.extend(u32::try_from(length).ok()?.to_le_bytes());
    }
    header.extend_from_slice(text.as_bytes());
    Some(header)
}

/// Builds a file of elements padded to the longest one: `S` for bytes, `U` for text.
fn ragged(records: &RaggedElements, shape: &[u64], out: &mut Growing<'_>) -> Result<()> {
    let is_text = !matches!(records.data_type(), DataType::Bytes | DataType::List(_));
    let longest = records.iter().map(|element| width(element, is_text)).max();
    let longest = longest.unwrap_or(0).max(1);
    let (descr, size) = if is_text {
        (format!("'<U{longest}'"), longest * 4)
    } else {
        (format!("'|S{longest}'"), longest)
    };
    let header = header(&descr, false, shape).filter(|_| size <= MAX_ELEMENT);
    out.push(&header.ok_or_else(|| {
        let count = records.len();
        let found = format!("{count} elements as wide as the longest, {longest}");
        Error::too_large("npy", found)
    })?)?;
    let mut padded = vec![0; size];
    for record in records.iter() {
        put_padded(record, is_text, &mut padded);
        out.push(&padded)?;
    }
    Ok(())
}

/// Returns the width of an element: code points of a text, or else bytes.
fn width(element: &[u8], is_text: bool) -> usize {
    if is_text {
        String::from_utf8_lossy(element).chars().count()
    } else {
        element.len()
    }
}

/// Writes an element padded with zeros; text becomes UTF-32.
fn put_padded(element: &[u8], is_text: bool, padded: &mut [u8]) {
    padded.fill(0);
    if !is_text {
        padded[..element.len()].copy_from_slice(element);
        return;
    }
    let text = String::from_utf8_lossy(element);
    for (code, letter) in padded.chunks_exact_mut(4).zip(text.chars()) {
        code.copy_from_slice(&u32::from(letter).to_le_bytes());
    }
}
