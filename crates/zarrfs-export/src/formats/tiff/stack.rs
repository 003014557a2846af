//! Divides an array's dimensions into rows, columns, samples and stacked images.

use crate::formats::axes::{AxisKind, AxisMeaning};
use crate::formats::maps::PlaneAxes;
use crate::formats::maps::georeference::map_axes;
use crate::formats::tiff::directory::{Tag, TagValue, TiffPage};
use crate::formats::{ElementForm, Subject};
use zarr_format::model::DataType;

/// Maximum number of images in a TIFF file; each image has a directory in the header.
pub(super) const MAX_PAGES: u64 = 8192;

/// Returns the meaning of each dimension of an image. OME-Zarr before 0.3 does not name the dimensions, which are
/// always t, c, z, y, x.
pub(super) fn image_axes(subject: &Subject) -> Vec<AxisMeaning> {
    let mut axes = map_axes(subject);
    let is_image = subject
        .image()
        .is_some_and(|image| image.attributes.get("multiscales").is_some());
    let is_whole = subject.taken.is_none() && axes.iter().all(|axis| axis.name.is_none());
    let kinds = [
        AxisKind::Time,
        AxisKind::Channel,
        AxisKind::Z,
        AxisKind::Y,
        AxisKind::X,
    ];
    if is_image && is_whole && axes.len() == kinds.len() {
        for (axis, kind) in axes.iter_mut().zip(kinds) {
            axis.kind = kind;
        }
    }
    axes
}

/// The order in which TIFF stores samples (such as colours) of pixels: the planar configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleOrder {
    Chunky,
    Planar,
}

/// The kind of a dimension along which images are stacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StackKind {
    Frames,
    Slices,
    Channels,
}

/// A dimension of an array that is written as a stack of images.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackAxis {
    /// The index of the dimension in the array.
    pub(super) axis: usize,
    pub(super) length: u64,
    /// The kind of the dimension; `None` for rows, columns and samples, and if more than three dimensions are stacked.
    pub(super) kind: Option<StackKind>,
}

/// An array that is written as a stack of images.
pub(super) struct ImageStack {
    /// The dimensions along which images are stacked, outermost first.
    pub(super) others: Vec<StackAxis>,
    pub(super) rows: StackAxis,
    pub(super) columns: StackAxis,
    /// The dimension whose elements are the samples of a pixel, and their order; `None` if a pixel has one sample.
    pub(super) samples: Option<(StackAxis, SampleOrder)>,
    pub(super) is_colour: bool,
    size: u64,
    /// TIFF's number for the format of a sample, such as unsigned integer.
    format: u16,
}

impl ImageStack {
    /// Divides an array into a stack of images. Returns `None` if it has no images, or if TIFF does not have its data
    /// type.
    pub(super) fn of(subject: &Subject, axes: &[AxisMeaning]) -> Option<ImageStack> {
        let (size, format) = sample_type(&subject.array.data_type)?;
        if !subject.is_image(zarr_format::model::MAX_RANK) || subject.shape.len() < 2 {
            return None;
        }
        let samples = colours(subject, axes);
        let samples_at = samples.map(|(axis, _)| axis);
        let rest = (0..axes.len()).filter(|&axis| Some(axis) != samples_at);
        let rest: Vec<usize> = rest.collect();
        let plane = plane_of(axes, &rest)?;
        let is_other = |&axis: &usize| !plane.contains(axis);
        let others = rest.into_iter().filter(is_other);
        let axis = |axis: usize| {
            let length = *subject.shape.get(axis)?;
            let kind = None;
            // TIFF directories store lengths in 32 bits.
            u32::try_from(length).ok()?;
            Some(StackAxis { axis, length, kind })
        };
        let mut others: Vec<StackAxis> = others.map(axis).collect::<Option<_>>()?;
        name_others(&mut others, axes);
        Some(ImageStack {
            others,
            rows: axis(plane.rows)?,
            columns: axis(plane.columns)?,
            is_colour: samples.is_some(),
            samples: match samples {
                Some((place, order)) => Some((axis(place)?, order)),
                None => None,
            },
            size,
            format,
        })
    }

    /// Returns the dimensions of the rows and columns.
    pub(super) fn plane(&self) -> PlaneAxes {
        PlaneAxes {
            rows: self.rows.axis,
            columns: self.columns.axis,
        }
    }

    /// Whether every dimension along which images are stacked is known to be frames, slices or channels.
    pub(super) fn is_known(&self) -> bool {
        self.others.iter().all(|axis| axis.kind.is_some())
    }

    /// Returns the number of images in the stack, or `None` if it overflows.
    pub(super) fn pages(&self) -> Option<u64> {
        let lengths = self.others.iter().map(|axis| axis.length);
        lengths.into_iter().try_fold(1_u64, u64::checked_mul)
    }

    /// Whether two stacks have the same number and type of samples per pixel, in the same order.
    pub(super) fn has_samples_of(&self, other: &ImageStack) -> bool {
        let samples = |stack: &ImageStack| {
            let order = stack.samples.map(|(axis, order)| (axis.length, order));
            (order, stack.size, stack.format)
        };
        samples(self) == samples(other)
    }

    pub(super) fn sample_count(&self) -> u64 {
        self.samples.map_or(1, |(axis, _)| axis.length)
    }

    /// Returns the size in bytes of an image of the stack, with all of its samples; `None` if it overflows.
    pub(super) fn page_size(&self) -> Option<u64> {
        let pixels = self.rows.length.checked_mul(self.columns.length)?;
        pixels
            .checked_mul(self.sample_count())?
            .checked_mul(self.size)
    }

    /// Returns the number of frames, slices or channels in the stack; 1 if it has no such dimension.
    pub(super) fn length(&self, kind: StackKind) -> u64 {
        let found = self.others.iter().find(|axis| axis.kind == Some(kind));
        found.map_or(1, |axis| axis.length)
    }

    /// Returns the order in which the array's elements are written to the TIFF file.
    pub(super) fn elements(&self) -> ElementForm {
        let mut order: Vec<usize> = self.others.iter().map(|axis| axis.axis).collect();
        if let Some((axis, SampleOrder::Planar)) = self.samples {
            order.push(axis.axis);
        }
        order.extend([self.rows.axis, self.columns.axis]);
        if let Some((axis, SampleOrder::Chunky)) = self.samples {
            order.push(axis.axis);
        }
        let is_own = order.iter().enumerate().all(|(place, &axis)| place == axis);
        ElementForm {
            order: (!is_own).then_some(order),
            conversion: None,
        }
    }

    /// Returns the TIFF directory of an image. `offset` is the distance in bytes from the first pixel of the file to
    /// the first pixel of the image.
    pub(super) fn page(&self, offset: u64) -> Option<TiffPage> {
        let count = usize::try_from(self.sample_count()).ok()?;
        let colours = if self.is_colour { 3 } else { 1 };
        let planar = matches!(self.samples, Some((_, SampleOrder::Planar)));
        let long = |axis: StackAxis| Some(TagValue::Long(u32::try_from(axis.length).ok()?));
        let short = |number: u16| TagValue::Short(vec![number]);
        let strips = self.strips(offset, planar)?;
        let bits = u16::try_from(self.size * 8).ok()?;
        let mut tags = vec![
            (Tag::Width, long(self.columns)?),
            (Tag::Height, long(self.rows)?),
            (Tag::Bits, TagValue::Short(vec![bits; count])),
            (Tag::Compression, short(1)),
            (Tag::Photometric, short(if self.is_colour { 2 } else { 1 })),
            (Tag::Offsets, TagValue::Places(strips.places)),
            (Tag::Samples, short(u16::try_from(count).ok()?)),
            (
                Tag::RowsPerStrip,
                TagValue::Long(u32::try_from(strips.rows).ok()?),
            ),
            (Tag::ByteCounts, TagValue::Sizes(strips.sizes)),
            (Tag::Planar, short(if planar { 2 } else { 1 })),
            (Tag::SampleFormat, TagValue::Short(vec![self.format; count])),
        ];
        if count > colours {
            let extra = vec![0; count - colours];
            tags.push((Tag::ExtraSamples, TagValue::Short(extra)));
        }
        Some(TiffPage {
            tags,
            smaller: Vec::new(),
        })
    }

    /// Divides an image into TIFF strips: a single one, which readers split themselves. If each sample has its own
    /// plane, a strip has the size that readers process at once, about 64 KiB, or more if the image would have more
    /// than 32,768 strips.
    fn strips(&self, offset: u64, is_planar: bool) -> Option<Strips> {
        let samples = if is_planar { self.sample_count() } else { 1 };
        let image = self.page_size()? / samples.max(1);
        let row = image / self.rows.length.max(1);
        let rows = if is_planar {
            let fewest = (self.rows.length * samples).div_ceil(1 << 15);
            ((1 << 16) / row.max(1))
                .max(fewest)
                .clamp(1, self.rows.length)
        } else {
            self.rows.length
        };
        let (mut places, mut sizes) = (Vec::new(), Vec::new());
        for sample in 0..samples {
            let (mut start, begin) = (0, offset.checked_add(sample.checked_mul(image)?)?);
            while start < image {
                let length = row.checked_mul(rows)?.min(image - start);
                places.push(begin + start);
                sizes.push(length);
                start += length;
            }
        }
        Some(Strips {
            rows,
            places,
            sizes,
        })
    }
}

struct Strips {
    rows: u64,
    places: Vec<u64>,
    sizes: Vec<u64>,
}

/// Finds the rows and columns among the dimensions whose indices are in `places`.
fn plane_of(axes: &[AxisMeaning], places: &[usize]) -> Option<PlaneAxes> {
    let picked = places.iter().filter_map(|&axis| axes.get(axis).cloned());
    let plane = PlaneAxes::of(&picked.collect::<Vec<_>>())?;
    Some(PlaneAxes {
        rows: *places.get(plane.rows)?,
        columns: *places.get(plane.columns)?,
    })
}

/// Returns the size of a sample in bytes, and TIFF's number for its format.
fn sample_type(data_type: &DataType) -> Option<(u64, u16)> {
    Some(match data_type {
        DataType::Bool => (1, 1),
        DataType::UInt(width) => (*width as u64, 1),
        DataType::Int(width) => (*width as u64, 2),
        DataType::Float(width) => (*width as u64, 3),
        DataType::Complex(width) => (*width as u64, 6),
        _ => return None,
    })
}

/// Finds the dimension of a pixel's colours, whose length is 3 or 4. It is the last dimension, or in a
/// three-dimensional array of bytes maybe the first.
fn colours(subject: &Subject, axes: &[AxisMeaning]) -> Option<(usize, SampleOrder)> {
    let is_colours = |axis: usize| {
        let named = axes.get(axis).is_some_and(|axis| {
            let name = axis
                .name
                .as_deref()
                .unwrap_or_default()
                .to_ascii_lowercase();
            axis.kind == AxisKind::Channel || ["rgb", "rgba"].contains(&name.as_str())
        });
        named && matches!(subject.shape.get(axis), Some(3 | 4))
    };
    let last = axes.len().checked_sub(1)?;
    match subject.array.data_type {
        DataType::UInt(1 | 2) if axes.len() >= 3 && is_colours(last) => {
            Some((last, SampleOrder::Chunky))
        }
        DataType::UInt(1) if axes.len() == 3 && is_colours(0) => Some((0, SampleOrder::Planar)),
        _ => None,
    }
}

/// Decides which dimensions of a stack are frames, slices or channels, first by their names. Other dimensions get the
/// kinds that are left; the last one becomes slices if no dimension is slices yet.
fn name_others(others: &mut [StackAxis], axes: &[AxisMeaning]) {
    let mut free = vec![StackKind::Channels, StackKind::Frames, StackKind::Slices];
    for other in others.iter_mut() {
        let kind = match axes.get(other.axis).map(|axis| axis.kind) {
            Some(AxisKind::Time) => StackKind::Frames,
            Some(AxisKind::Z) => StackKind::Slices,
            Some(AxisKind::Channel) => StackKind::Channels,
            _ => continue,
        };
        if let Some(place) = free.iter().position(|&other| other == kind) {
            other.kind = Some(free.remove(place));
        }
    }
    // If none of three dimensions has a name, they are in ImageJ's order: frames, slices, channels.
    if others.len() == 3 && free.len() == 3 {
        free = vec![StackKind::Frames, StackKind::Slices, StackKind::Channels];
    }
    for other in others.iter_mut().rev().filter(|axis| axis.kind.is_none()) {
        other.kind = free.pop();
    }
}
