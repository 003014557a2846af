//! Checks that fixed-length text contains only valid code points.
//!
//! Decoding does not depend on it, so that the bytes can be read as they are; but readers that convert them to text
//! fail.

use zarr_format::error::{Error, Result};
use zarr_format::model::{DataType, Field};

/// The last code point of Unicode. Surrogates are allowed, as numpy accepts them as text.
const LAST: u32 = 0x10_ffff;

/// Fails with `Corrupt` if decoded text elements contain a word that is not a code point.
pub(super) fn check_text(data_type: &DataType, elements: &[u8]) -> Result<()> {
    match data_type {
        DataType::FixedText(_) => check_words(elements),
        DataType::Struct(fields) if fields.iter().any(has_text) => {
            let size = data_type.size().unwrap_or_default().max(1);
            elements
                .chunks_exact(size)
                .try_for_each(|element| check_fields(fields, element))
        }
        _ => Ok(()),
    }
}

fn has_text(field: &Field) -> bool {
    match &field.data_type {
        DataType::FixedText(_) => true,
        DataType::Struct(fields) => fields.iter().any(has_text),
        _ => false,
    }
}

fn check_fields(fields: &[Field], element: &[u8]) -> Result<()> {
    let mut rest = element;
    for field in fields {
        let size = field.data_type.size().zip(field.count());
        let length = size.map_or(0, |(size, count)| size.saturating_mul(count));
        let (value, after) = rest.split_at_checked(length).unwrap_or((rest, &[]));
        check_text(&field.data_type, value)?;
        rest = after;
    }
    Ok(())
}

fn check_words(elements: &[u8]) -> Result<()> {
    let words = elements.as_chunks::<4>().0.iter();
    let mut words = words.map(|word| u32::from_le_bytes(*word));
    match words.find(|word| *word > LAST) {
        None => Ok(()),
        Some(word) => {
            let what = format!("an element has {word:#x}, which is no code point");
            Err(Error::corrupt("", what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_text_are_code_points() {
        let text = DataType::FixedText(1);
        let field = |data_type: &DataType, count| Field {
            name: "a".to_string(),
            data_type: data_type.clone(),
            shape: vec![count],
        };
        let record = DataType::Struct(vec![field(&DataType::UInt(1), 3), field(&text, 2)]);
        let good = [0x61_u32, LAST].map(u32::to_le_bytes).concat();
        let wrong = [0x61, LAST + 1].map(u32::to_le_bytes).concat();
        let number = vec![0xff; 3];
        assert!(check_text(&text, &good).is_ok());
        assert!(check_text(&text, &wrong).is_err());
        assert!(check_text(&DataType::UInt(4), &wrong).is_ok());
        let element = |text: &[u8]| [number.as_slice(), text].concat();
        assert!(check_text(&record, &element(&good)).is_ok());
        let two = [element(&good), element(&wrong)].concat();
        let error = check_text(&record, &two).unwrap_err();
        assert_eq!(
            error.to_string(),
            "an element has 0x110000, which is no code point"
        );
    }
}
