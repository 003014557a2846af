//! Codecs that calculate: one element in, one element out, possibly of another type.
//!
//! A `Kernel` is given little-endian numbers only. Here bytes are swapped where the configuration asks for it,
//! lengths are checked before anything is allocated, and the kind of a codec is chosen by its position: among
//! `array -> array` codecs it changes the data type of the array; after bytes (which only v2 allows) it takes the
//! bytes as elements of the type that it names, as numpy's `view` does.

use std::borrow::Cow;
use std::fmt::Debug;

use crate::buffer;
use crate::error::{Error, Result};
use crate::model::DataType;

use super::config::Configuration;
use super::kind::{ArrayRepr, ArrayToArray, BytesToBytes, ChainPosition, Codec, Data, Length};
use super::order::bytes::swap_words;
use number::Dtype;

pub(super) mod astype;
pub(super) mod bitround;
pub(super) mod cast_value;
pub(super) mod delta;
mod element;
pub(super) mod fixed_scale_offset;
mod number;
pub(super) mod packbits;
pub(super) mod packed_booleans;
pub(super) mod quantize;
mod rounding;
pub(super) mod scale_offset;

/// The calculation of a codec; both buffers hold the same number of elements.
trait Kernel: Debug + Send + Sync {
    /// Undoes the encoding; `Corrupt` for a number that has no decoded one.
    fn decode(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()>;

    /// Encodes; `Invalid` for a number that has no encoded one.
    fn encode(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()>;

    /// Returns whether a decoded chunk may differ from what was encoded.
    fn is_lossy(&self) -> bool;
}

/// A kernel and the types on both of its sides.
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

    /// Returns the codec of the kind that its position asks for.
    fn at(mut self, position: &ChainPosition<'_>) -> Result<Codec> {
        if position.after_bytes {
            return Ok(Codec::BytesToBytes(Box::new(self)));
        }
        // Numbers of an array have no byte order here; the dialect leaves it to codec `bytes`.
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
            let what = format!("{length} bytes are no elements of {size}");
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

/// Reads the type of elements before encoding: that of the configuration, or else that of the array.
fn decoded_dtype(
    config: Configuration<'_>,
    member: &str,
    position: &ChainPosition<'_>,
) -> Result<Dtype> {
    match Dtype::member(config, member)? {
        Some(dtype) => Ok(dtype),
        None => Dtype::of(&position.repr.data_type).ok_or_else(|| {
            let name = position.repr.data_type.to_string();
            Error::unsupported("codecs", format!("{name} is no number to calculate with"))
        }),
    }
}

/// A `bytes -> bytes` codec among `array -> array` codecs, and the array that it leaves.
#[derive(Debug)]
struct BytesAsArray {
    codec: Box<dyn BytesToBytes>,
    /// Decoded bytes of the array.
    decoded: usize,
    repr: ArrayRepr,
}

/// Makes a `bytes -> bytes` codec an `array -> array` codec, which gives elements of `data_type`.
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
    // An array with the same number of elements keeps its shape; any other is flat.
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

/// Returns the encoded fill value; zeros if it does not encode to one element.
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
