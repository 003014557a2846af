//! `.wav`: sound, or anything else that is sampled, of arrays that have their rate in an attribute.
//!
//! An array of one dimension is one channel. Of two, the shorter one is that of channels; where it comes first, the
//! elements are put in the order of samples.

use std::sync::Arc;

use crate::export::conversion::BigEndian;
use crate::export::{ElementForm, FileParts, Format, Subject};
use crate::model::{DataType, bytes_of};

/// RIFF WAVE of whole numbers or floats.
pub const FORMAT: Format = Format {
    extension: "wav",
    parts: Some(parts),
    ragged: None,
    is_basic: false,
};

/// Attributes that have the number of samples a second.
const RATES: [&str; 8] = [
    "sample_rate",
    "sampling_rate",
    "samplerate",
    "sampling_frequency",
    "rate",
    "framerate",
    "frame_rate",
    "fs",
];

const MAX_CHANNELS: u64 = 1024;

/// The number of whole samples, and that of floats.
const WHOLE: u16 = 1;
const FLOAT: u16 = 3;

fn parts(subject: &Subject) -> Option<FileParts> {
    let (code, size) = match subject.array.data_type {
        DataType::Int(size @ (1 | 2 | 4)) | DataType::UInt(size @ 1) => (WHOLE, size),
        DataType::Float(size @ (4 | 8)) => (FLOAT, size),
        _ => return None,
    };
    let (frames, channels, order) = match *subject.shape {
        [frames] => (0, 1, None).filter_frames(frames),
        [frames, channels] if channels <= frames => (0, channels, None).filter_frames(frames),
        [channels, frames] => (1, channels, Some(vec![1, 0])).filter_frames(frames),
        _ => None,
    }?;
    let rate = rate_of(subject, frames)?;
    let length = bytes_of(subject.shape, size).ok()?;
    let header = header((code, size), channels, rate, length)?;
    let is_signed_byte = matches!(subject.array.data_type, DataType::Int(1));
    Some(FileParts {
        header,
        elements: Some(ElementForm {
            order,
            // Samples of a byte have no sign.
            conversion: is_signed_byte.then(|| {
                Arc::new(BigEndian {
                    size: 1,
                    word: 1,
                    inverts_top: true,
                }) as _
            }),
        }),
        trailer: vec![0; usize::from(length % 2 == 1)],
        ..FileParts::default()
    })
}

/// The dimension of frames, the number of channels, and the order of dimensions.
type Arrangement = (usize, u64, Option<Vec<usize>>);

trait FilterFrames {
    /// Returns itself if there are frames and not too many channels.
    fn filter_frames(self, frames: u64) -> Option<Arrangement>;
}

impl FilterFrames for Arrangement {
    fn filter_frames(self, frames: u64) -> Option<Arrangement> {
        (frames > 0 && (1..=MAX_CHANNELS).contains(&self.1)).then_some(self)
    }
}

/// Returns the samples a second along a dimension of the file.
fn rate_of(subject: &Subject, frames: usize) -> Option<u32> {
    let attributes = &subject.array.attributes;
    let rates = RATES
        .iter()
        .filter_map(|name| attributes.get(name)?.as_f64());
    let step = subject.taken.and_then(|taken| taken.get(frames));
    let step = step.map_or(1, |taken| taken.step.unsigned_abs());
    let mut rates = rates.map(|rate| rate.round() / step as f64);
    let rate = rates.find(|rate| (1.0..f64::from(u32::MAX)).contains(rate))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it lies in the range of the number"
    )]
    Some(rate.round() as u32)
}

fn header((code, size): (u16, usize), channels: u64, rate: u32, length: u64) -> Option<Vec<u8>> {
    let length = u32::try_from(length).ok()?;
    let channels = u16::try_from(channels).ok()?;
    let size = u16::try_from(size).ok()?;
    let frame = channels.checked_mul(size)?;
    let mut header = b"WAVEfmt ".to_vec();
    header.extend(if code == FLOAT { 18_u32 } else { 16 }.to_le_bytes());
    header.extend(code.to_le_bytes());
    header.extend(channels.to_le_bytes());
    header.extend(rate.to_le_bytes());
    header.extend(rate.checked_mul(u32::from(frame))?.to_le_bytes());
    header.extend(frame.to_le_bytes());
    header.extend((size * 8).to_le_bytes());
    if code == FLOAT {
        // No more parameters; then how many samples a channel has.
        header.extend(0_u16.to_le_bytes());
        header.extend(b"fact");
        header.extend(4_u32.to_le_bytes());
        header.extend((length / u32::from(frame)).to_le_bytes());
    }
    header.extend(b"data");
    header.extend(length.to_le_bytes());
    let around = u32::try_from(header.len()).ok()?;
    let whole = length.checked_add(length % 2)?.checked_add(around)?;
    Some([b"RIFF".as_slice(), &whole.to_le_bytes(), &header].concat())
}
