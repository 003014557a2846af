//! `.nii`: NIfTI-1, or NIfTI-2 if a dimension is too long for it.
//!
//! The order of NIfTI is x, y, z, time, channel, with x fastest. If all dimensions of the array are named as these,
//! dimensions and elements are written in this order; otherwise in the order of the array.

use crate::formats::axes::{AxisKind, AxisMeaning, Dimensions, Oblique, dimensions_of};
use crate::formats::units::{self, Quantity, Unit};
use crate::formats::volumes::{HeaderBytes, single};
use crate::formats::{ElementForm, FileParts, Subject};
use zarr_format::model::DataType;

const MAX_RANK: usize = 7;

/// NIfTI's number for a data type, and the number of bits of an element.
#[derive(Clone, Copy)]
struct TypeCode {
    code: i16,
    bits: i16,
}

impl TypeCode {
    fn of(data_type: &DataType) -> Option<TypeCode> {
        let (code, bits) = match data_type {
            DataType::Bool | DataType::UInt(1) => (2, 8),
            DataType::Int(2) => (4, 16),
            DataType::Int(4) => (8, 32),
            DataType::Float(4) => (16, 32),
            DataType::Complex(8) => (32, 64),
            DataType::Float(8) => (64, 64),
            DataType::Int(1) => (256, 8),
            DataType::UInt(2) => (512, 16),
            DataType::UInt(4) => (768, 32),
            DataType::Int(8) => (1024, 64),
            DataType::UInt(8) => (1280, 64),
            DataType::Complex(16) => (1792, 128),
            _ => return None,
        };
        Some(TypeCode { code, bits })
    }
}

/// A dimension of a NIfTI file: a dimension of the array with its index, or an added dimension of length 1.
struct FileAxis<'a> {
    length: u64,
    axis: Option<(usize, &'a AxisMeaning)>,
}

/// Makes a `.nii` file of header and elements; `None` if NIfTI cannot hold the array.
pub(crate) fn parts(subject: &Subject) -> Option<FileParts> {
    let type_code = TypeCode::of(&subject.array.data_type)?;
    if !subject.is_image(MAX_RANK) {
        return None;
    }
    let described = dimensions_of(subject);
    let order = order_of(&described.axes);
    let mut dimensions = dimensions(subject, &described.axes, order.as_deref());
    if described.oblique.as_ref().is_some_and(is_upright) {
        // ITK takes a file of two dimensions for an x-y plane, so any other plane becomes a volume of one plane.
        while dimensions.len() < SPACE.end {
            dimensions.push(FileAxis {
                length: 1,
                axis: None,
            });
        }
    }
    let world = World::of(&described, &dimensions);
    let is_short = |axis: &FileAxis| i16::try_from(axis.length).is_ok();
    let header = if dimensions.iter().all(is_short) {
        first_version(&dimensions, &world, type_code)?
    } else {
        second_version(&dimensions, &world, type_code)?
    };
    let is_own = |order: &Vec<usize>| order.iter().enumerate().all(|(place, &axis)| place == axis);
    Some(FileParts {
        header,
        left_out: left_out(&described, &dimensions),
        elements: Some(ElementForm {
            order: order.filter(|order| !is_own(order)),
            conversion: None,
        }),
        ..FileParts::default()
    })
}

/// Returns messages about metadata that the NIfTI header omits.
fn left_out(described: &Dimensions, dimensions: &[FileAxis]) -> Vec<String> {
    let mut left_out = described.left_out.clone();
    if let Some(oblique) = &described.oblique
        && !fits(oblique, dimensions)
    {
        left_out.extend(described.without_directions());
    }
    let without_unit = dimensions
        .iter()
        .enumerate()
        .filter_map(|(place, dimension)| {
            let (_, axis) = dimension.axis?;
            let unit = Unit::of(axis).map(|unit| unit.quantity);
            let is_supported = match unit {
                Some(Quantity::Length) => SPACE.contains(&place),
                Some(Quantity::Time) => place == TIME,
                _ => false,
            };
            (!is_supported).then_some(axis)
        });
    left_out.extend(units::left_out(
        without_unit,
        "the header has one unit for x, y and z and one for time",
    ));
    let beyond = dimensions.iter().skip(TIME + 1);
    let beyond = beyond.filter_map(|dimension| dimension.axis);
    for (number, (_, axis)) in beyond
        .enumerate()
        .filter(|(_, (_, axis))| axis.origin != 0.0)
    {
        let name = axis.name.clone();
        let name = name.unwrap_or_else(|| format!("dimension {}", TIME + 2 + number));
        left_out.push(format!(
            "position of the first element along {name}: the header supports only four dimensions"
        ));
    }
    if let Some(oblique) = &described.oblique
        && fits(oblique, dimensions)
        && !oblique.is_rectangular()
    {
        left_out.push(oblique.without_shear());
    }
    left_out
}

/// Returns the array's dimensions in the order from channel to x; `None` if a dimension has another kind or a kind
/// occurs twice.
fn order_of(axes: &[AxisMeaning]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..axes.len()).collect();
    let kind = |&axis: &usize| axes.get(axis).map_or(AxisKind::Other, |axis| axis.kind);
    order.sort_by_key(|axis| std::cmp::Reverse(kind(axis)));
    let is_known = order.iter().all(|axis| kind(axis) != AxisKind::Other);
    let is_unique = order.windows(2).all(|pair| match pair {
        [slower, faster] => kind(slower) != kind(faster),
        _ => true,
    });
    (is_known && is_unique).then_some(order)
}

/// Returns the dimensions of the NIfTI file, x first.
fn dimensions<'a>(
    subject: &Subject,
    axes: &'a [AxisMeaning],
    order: Option<&[usize]>,
) -> Vec<FileAxis<'a>> {
    let of_array = |axis: usize| FileAxis {
        length: subject.shape.get(axis).copied().unwrap_or(1),
        axis: axes.get(axis).map(|meaning| (axis, meaning)),
    };
    let Some(order) = order else {
        return (0..axes.len()).rev().map(of_array).collect();
    };
    let mut dimensions: Vec<FileAxis> = Vec::new();
    for &axis in order.iter().rev() {
        let slot = axes.get(axis).map_or(0, |axis| axis.kind as usize);
        while dimensions.len() < slot {
            dimensions.push(FileAxis {
                length: 1,
                axis: None,
            });
        }
        dimensions.push(of_array(axis));
    }
    dimensions
}

/// A unit that a NIfTI header can state: its code, and its power of ten in metres or seconds.
#[derive(Clone, Copy)]
struct HeaderUnit {
    quantity: Quantity,
    code: u8,
    exponent: i32,
}

/// The units that a NIfTI header can state; of each quantity, the largest comes first.
const UNITS: [HeaderUnit; 6] = [
    HeaderUnit::new(Quantity::Length, 1, 0),
    HeaderUnit::new(Quantity::Length, 2, -3),
    HeaderUnit::new(Quantity::Length, 3, -6),
    HeaderUnit::new(Quantity::Time, 8, 0),
    HeaderUnit::new(Quantity::Time, 16, -3),
    HeaderUnit::new(Quantity::Time, 24, -6),
];

impl HeaderUnit {
    const fn new(quantity: Quantity, code: u8, exponent: i32) -> HeaderUnit {
        HeaderUnit {
            quantity,
            code,
            exponent,
        }
    }

    /// Chooses the header's unit for numbers in `unit`: the largest one that does not exceed `unit`, or else the
    /// smallest one.
    fn for_unit(unit: Unit, quantity: Quantity) -> Option<HeaderUnit> {
        let of_quantity = || UNITS.into_iter().filter(|known| known.quantity == quantity);
        let not_larger = |known: &HeaderUnit| unit.in_power_of_ten(known.exponent) >= 1.0;
        let found = of_quantity().find(not_larger).or(of_quantity().next_back());
        found.filter(|_| unit.quantity == quantity)
    }

    /// Returns the factor from a unit to the header's unit, or 1 if the two measure different quantities.
    fn count(self, unit: Option<&str>) -> f64 {
        let unit = unit.and_then(Unit::named);
        let unit = unit.filter(|unit| unit.quantity == self.quantity);
        unit.map_or(1.0, |unit| unit.in_power_of_ten(self.exponent))
    }
}

/// The indices of the dimensions of space, and of the dimension of time, in a NIfTI file.
const SPACE: std::ops::Range<usize> = 0..3;
const TIME: usize = 3;

impl World {
    fn of(described: &Dimensions, dimensions: &[FileAxis]) -> World {
        let axis = |place: usize| dimensions.get(place).and_then(|dimension| dimension.axis);
        let unit_of = |places: std::ops::Range<usize>, quantity| {
            let named = places
                .filter_map(axis)
                .filter_map(|(_, axis)| Unit::of(axis));
            let mut found = named.filter_map(|unit| HeaderUnit::for_unit(unit, quantity));
            found.next()
        };
        // A NIfTI header has one unit for all dimensions of space, so numbers in other units are converted to it.
        let of_space = unit_of(SPACE, Quantity::Length);
        let of_time = unit_of(TIME..TIME + 1, Quantity::Time);
        let count = |place: usize, unit: Option<&str>| {
            let own = if SPACE.contains(&place) {
                of_space
            } else {
                of_time
            };
            let own = own.filter(|_| place <= TIME);
            own.map_or(1.0, |own| own.count(unit))
        };
        let codes = [of_space, of_time].into_iter().flatten();
        let mut world = World {
            units: codes.map(|unit| unit.code).sum(),
            steps: [1.0; MAX_RANK],
            rows: [[0.0; 4]; 3],
            straight: None,
            time: 0.0,
        };
        for place in SPACE {
            world.rows[place][place] = 1.0;
        }
        for (place, step) in world.steps.iter_mut().enumerate() {
            let Some((_, axis)) = axis(place) else {
                continue;
            };
            let count = count(place, axis.unit.as_deref());
            *step = axis.step().abs() * count;
            if let Some(row) = world.rows.get_mut(place) {
                row[place] = axis.step() * count;
                row[3] = axis.origin * count;
            } else if place == TIME {
                world.time = axis.origin * count;
            }
        }
        let oblique = described.oblique.as_ref();
        if let Some(oblique) = oblique.filter(|oblique| fits(oblique, dimensions)) {
            world.place(oblique, dimensions, count);
        }
        world
    }

    /// Replaces the rows of the affine map by those of an oblique image.
    fn place(
        &mut self,
        oblique: &Oblique,
        dimensions: &[FileAxis],
        count: impl Fn(usize, Option<&str>) -> f64,
    ) {
        let straight = std::mem::take(&mut self.rows);
        let mut is_placed = [false; 3];
        let input = |place: usize| Some(dimensions.get(place)?.axis?.0);
        for (output, axis) in oblique.axes.iter().enumerate() {
            let kind = axis.kind as usize;
            let (Some(row), Some(is_placed)) = (self.rows.get_mut(kind), is_placed.get_mut(kind))
            else {
                continue;
            };
            *is_placed = true;
            let count = count(axis.kind as usize, axis.unit.as_deref());
            // NIfTI has RAS coordinates (right, anterior, superior), while an image with an anatomical orientation has
            // LPS here (left, posterior, superior). So x and y change their sign.
            let is_opposite = oblique.orientation.is_some() && axis.kind != AxisKind::Z;
            let count = if is_opposite { -count } else { count };
            for place in SPACE {
                let factor = input(place).map(|input| oblique.map.factor(output, input));
                // Adding 0 turns -0 into 0, because programs would show the sign of -0.
                row[place] = factor.unwrap_or(0.0) * count + 0.0;
            }
            row[3] = oblique.map.offset(output) * count + 0.0;
        }
        // If no dimension runs along x, y or z, the row of that direction gets a file dimension that no other row uses,
        // because the map must be invertible.
        for row in SPACE.filter(|&row| !is_placed[row]) {
            let mut free = SPACE;
            let free = free.find(|&place| self.rows.iter().all(|row| row[place] == 0.0));
            if let Some(place) = free {
                self.rows[row][place] = 1.0;
            }
        }
        let is_forward = SPACE.into_iter().all(|place| straight[place][place] > 0.0);
        if oblique.is_rectangular() {
            for place in SPACE {
                let column = self.rows.iter().map(|row| row[place] * row[place]);
                self.steps[place] = column.sum::<f64>().sqrt();
            }
        } else if is_forward && oblique.orientation.is_none() {
            self.straight = Some(straight.map(|row| row[3]));
        }
    }
}

/// Scale, origin and unit of the dimensions of a NIfTI file.
struct World {
    units: u8,
    /// The distances between neighbouring elements along each dimension; always positive.
    steps: [f64; MAX_RANK],
    /// The rows of the affine map from indices to x, y and z.
    rows: [[f64; 4]; 3],
    /// The position of the first element in a coordinate system without shear, if the map has shear. Programs that do
    /// not support shear use this position.
    straight: Option<[f64; 3]>,
    /// The time of the first element, in the header's unit.
    time: f64,
}

fn is_upright(oblique: &Oblique) -> bool {
    oblique.axes.iter().any(|axis| axis.kind == AxisKind::Z)
}

/// Whether a NIfTI header can hold the directions of an oblique image. Its axes of space must be x, y and z, each at
/// most once, and its dimensions of space must be the first dimensions of the file.
fn fits(oblique: &Oblique, dimensions: &[FileAxis]) -> bool {
    let of_space = |output: &usize| oblique.axes[*output].kind.is_space();
    let outputs: Vec<usize> = (0..oblique.axes.len()).filter(of_space).collect();
    let kind = |output: usize| oblique.axes[output].kind;
    let is_unique = outputs.iter().all(|&output| {
        let mut same = outputs.iter().filter(|&&other| kind(other) == kind(output));
        same.next().is_some() && same.next().is_none()
    });
    let others = dimensions.iter().skip(SPACE.end);
    let mut others = others.filter_map(|dimension| dimension.axis);
    is_unique
        && others.all(|(input, _)| {
            let mut factors = outputs
                .iter()
                .map(|&output| oblique.map.factor(output, input));
            factors.all(|factor| factor == 0.0)
        })
}

fn first_version(dimensions: &[FileAxis], world: &World, type_code: TypeCode) -> Option<Vec<u8>> {
    let mut header = HeaderBytes::new(352);
    header.put(0, &348_i32.to_le_bytes());
    header.put(38, b"r");
    header.put(40, &i16::try_from(dimensions.len()).ok()?.to_le_bytes());
    for place in 0..7 {
        let length = dimensions
            .get(place)
            .map_or(1, |dimension| dimension.length);
        header.put(42 + 2 * place, &i16::try_from(length).ok()?.to_le_bytes());
        header.put(80 + 4 * place, &single(world.steps[place]));
    }
    header.put(70, &type_code.code.to_le_bytes());
    header.put(72, &type_code.bits.to_le_bytes());
    // NIfTI calls `pixdim[0]` the handedness (`qfac`), which readers need to compute the affine map from a quaternion.
    header.put(76, &single(1.0));
    header.put(108, &single(352.0));
    header.put(112, &single(1.0));
    header.put(123, &[world.units]);
    header.put(136, &single(world.time));
    if let Some(origin) = world.straight {
        header.put(252, &1_i16.to_le_bytes());
        for (place, number) in origin.into_iter().enumerate() {
            header.put(268 + 4 * place, &single(number));
        }
    }
    header.put(254, &1_i16.to_le_bytes());
    for (place, number) in world.rows.iter().flatten().enumerate() {
        header.put(280 + 4 * place, &single(*number));
    }
    header.put(344, b"n+1\0");
    Some(header.0)
}

fn second_version(dimensions: &[FileAxis], world: &World, type_code: TypeCode) -> Option<Vec<u8>> {
    let mut header = HeaderBytes::new(544);
    header.put(0, &540_i32.to_le_bytes());
    header.put(4, b"n+2\0\r\n\x1a\n");
    header.put(12, &type_code.code.to_le_bytes());
    header.put(14, &type_code.bits.to_le_bytes());
    header.put(16, &i64::try_from(dimensions.len()).ok()?.to_le_bytes());
    for place in 0..7 {
        let length = dimensions
            .get(place)
            .map_or(1, |dimension| dimension.length);
        header.put(24 + 8 * place, &i64::try_from(length).ok()?.to_le_bytes());
        header.put(112 + 8 * place, &world.steps[place].to_le_bytes());
    }
    header.put(104, &1_f64.to_le_bytes());
    header.put(168, &544_i64.to_le_bytes());
    header.put(176, &1_f64.to_le_bytes());
    header.put(216, &world.time.to_le_bytes());
    if let Some(origin) = world.straight {
        header.put(344, &1_i32.to_le_bytes());
        for (place, number) in origin.into_iter().enumerate() {
            header.put(376 + 8 * place, &number.to_le_bytes());
        }
    }
    header.put(348, &1_i32.to_le_bytes());
    for (place, number) in world.rows.iter().flatten().enumerate() {
        header.put(400 + 8 * place, &number.to_le_bytes());
    }
    header.put(500, &i32::from(world.units).to_le_bytes());
    Some(header.0)
}
