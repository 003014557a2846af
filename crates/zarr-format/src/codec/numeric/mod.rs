//! Codecs that convert elements one by one, possibly to another number type.
//!
//! A `Kernel`, the conversion of a codec, gets only little-endian numbers. This module swaps bytes if the configuration
//! requires it, checks lengths before anything is allocated, and derives the kind of a codec from its position: among
//! `array -> array` codecs it changes the data type of the array; after bytes (which only v2 allows) it reads the bytes
//! as elements of its configured type, like numpy's `view`.

use std::borrow::Cow;
use std::fmt::Debug;

use crate::buffer;
use crate::error::{Error, Result};
use crate::model::DataType;

use super::config::Configuration;
use super::order::bytes::swap_words;
use super::traits::{ArrayRepr, ArrayToArray, BytesToBytes, ChainPosition, Codec, Data, Length};
use number::Dtype;

pub(super) mod cast;
pub(super) mod delta;
mod element;
mod number;
pub(super) mod packbits;
pub(super) mod quantize;
pub(super) mod scale_offset;

/// The conversion of numbers by a codec. The decoded and the encoded buffer have the same number of elements.
trait Kernel: Debug + Send + Sync {
    /// Decodes numbers; fails with `Corrupt` for a number without a decoded value.
    fn decode(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()>;

    /// Encodes numbers; fails with `Invalid` for a number without an encoded value.
    fn encode(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()>;

    /// Whether a chunk may differ after encoding and decoding.
    fn is_lossy(&self) -> bool;
}

/// A codec that converts numbers: its decoded and encoded type, and the conversion (`kernel`).
#[derive(Debug)]
struct Numeric<K> {
    name: &'static str,
    decoded: Dtype,
    encoded: Dtype,
    kernel: K,
}

impl<K: Kernel + 'static> Numeric<K> {
    fn new(name: &'static str, decoded: Dtype, encoded: Dtype, kernel: K) -> Numeric<K> {
        Numeric {
            name,
            decoded,
            encoded,
            kernel,
        }
    }

    /// Returns the codec for its position in the chain: `bytes -> bytes` if it follows the `array -> bytes` codec, else
    /// `array -> array`.
    fn at(mut self, position: &ChainPosition<'_>) -> Result<Codec> {
        if position.after_bytes {
            return Ok(Codec::BytesToBytes(Box::new(self)));
        }
        // `array -> array` codecs see little-endian numbers only; the codec `bytes`, which a dialect adds, swaps bytes.
        self.decoded.big = false;
        self.encoded.big = false;
        self.count(position.bytes()?, self.decoded)?;
        let data_type = self.encoded.data_type();
        array_codec(Box::new(self), data_type, position)
    }
}

impl<K: Kernel> Numeric<K> {
    fn count(&self, length: usize, dtype: Dtype) -> Result<usize> {
        let size = dtype.size();
        let whole = length.is_multiple_of(size).then_some(length / size);
        whole.ok_or_else(|| {
            let what = format!("{length} bytes are not a whole number of elements of {size} bytes");
            Error::corrupt(self.name, what)
        })
    }
}

impl<K: Kernel> BytesToBytes for Numeric<K> {
    fn encoded_length(&self, decoded: Length) -> Length {
        decoded.map(|bytes| (bytes / self.decoded.size()).saturating_mul(self.encoded.size()))
    }

    fn decode<'a>(&self, mut encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        let count = self.count(encoded.len(), self.encoded)?;
        let length = count.saturating_mul(self.decoded.size());
        want.check(self.name, length)?;
        swap_if_big(&mut encoded, self.encoded);
        let mut decoded = buffer::of_length(length);
        self.kernel.decode(&encoded, &mut decoded)?;
        let mut decoded = Cow::Owned(decoded);
        swap_if_big(&mut decoded, self.decoded);
        Ok(decoded)
    }

    fn encode<'a>(&self, mut decoded: Data<'a>) -> Result<Data<'a>> {
        let count = self.count(decoded.len(), self.decoded)?;
        swap_if_big(&mut decoded, self.decoded);
        let mut encoded = vec![0; count.saturating_mul(self.encoded.size())];
        self.kernel.encode(&decoded, &mut encoded)?;
        let mut encoded = Cow::Owned(encoded);
        swap_if_big(&mut encoded, self.encoded);
        Ok(encoded)
    }

    fn is_lossy(&self) -> bool {
        self.kernel.is_lossy()
    }
}

fn swap_if_big(data: &mut Data<'_>, dtype: Dtype) {
    if dtype.big && dtype.number.width() > 1 {
        swap_words(data.to_mut(), dtype.number.width());
    }
}

/// Reads the decoded type from the parameter `member`; the default is the data type of the array.
fn decoded_dtype(
    config: Configuration<'_>,
    member: &str,
    position: &ChainPosition<'_>,
) -> Result<Dtype> {
    match Dtype::member(config, member)? {
        Some(dtype) => Ok(dtype),
        None => Dtype::of(&position.repr.data_type).ok_or_else(|| {
            let name = position.repr.data_type.to_string();
            Error::unsupported(
                "codecs",
                format!("unsupported data type {name} (supported: numbers)"),
            )
        }),
    }
}

/// Adapter that runs a `bytes -> bytes` codec as an `array -> array` codec.
#[derive(Debug)]
struct BytesAsArray {
    codec: Box<dyn BytesToBytes>,
    decoded: usize,
    repr: ArrayRepr,
}

/// Turns a `bytes -> bytes` codec into an `array -> array` codec whose encoded elements are of `data_type`.
fn array_codec(
    codec: Box<dyn BytesToBytes>,
    data_type: DataType,
    position: &ChainPosition<'_>,
) -> Result<Codec> {
    let decoded = position.bytes()?;
    let element = data_type.size().unwrap_or(1).max(1);
    let fill = encoded_fill(codec.as_ref(), &position.repr.fill, element);
    let bytes = codec.encoded_length(Length::Exact(decoded)).upper_bound();
    let size = position.repr.element_size()?;
    // The encoded array keeps its shape if the codec does not change the number of elements; otherwise it becomes
    // one-dimensional.
    let shape = if decoded / size.max(1) == bytes / element {
        position.repr.shape.clone()
    } else {
        vec![(bytes / element) as u64]
    };
    let repr = ArrayRepr {
        data_type,
        shape,
        fill,
    };
    Ok(Codec::ArrayToArray(Box::new(BytesAsArray {
        codec,
        decoded,
        repr,
    })))
}

/// Encodes the fill value. Returns zeros if the result does not have the length of an element.
fn encoded_fill(codec: &dyn BytesToBytes, fill: &[u8], element: usize) -> Vec<u8> {
    let encoded = codec.encode(Cow::Borrowed(fill)).ok();
    let fits = encoded.filter(|encoded| encoded.len() == element);
    fits.map_or_else(|| vec![0; element], Cow::into_owned)
}

impl ArrayToArray for BytesAsArray {
    fn encoded_repr(&self) -> &ArrayRepr {
        &self.repr
    }

    fn is_identity(&self) -> bool {
        false
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        self.codec.decode(encoded, Length::Exact(self.decoded))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        self.codec.encode(decoded)
    }

    fn is_lossy(&self) -> bool {
        self.codec.is_lossy()
    }
}
