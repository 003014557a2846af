//! `NAME.cf.EXT`: decodes elements by the CF conventions in the attributes of an array.
//!
//! Applies `scale_factor`, `add_offset`, `_FillValue`, `missing_value`, `_Unsigned`, `units` of time and xarray's
//! `dtype` to each element by itself. The result has xarray's data types. As in xarray, the fill value of v2 replaces a
//! missing `_FillValue`, but the fill value of the final v3 does not. If one of these attributes is invalid, such as a
//! factor that is text, there is no such file, because users would take the stored numbers in it for decoded ones.

pub mod attributes;
pub mod conversions;
pub mod counts;
pub mod numbers;
pub mod times;

use std::sync::Arc;

use serde_json::Value;

use crate::formats::cf::attributes::{
    AttributeNumber, FILL, abbreviated, fill_numbers, packing_number,
};
use crate::formats::cf::conversions::ComplexMask;
use crate::formats::cf::conversions::{CfConversion, Meaning, Truth};
use crate::formats::cf::counts::{CountedDuration, CountedNumbers, CountedTime};
use crate::formats::cf::numbers::{CfPacking, FillNumber, Stored};
use crate::formats::cf::times::Calendar;
use crate::formats::cf::times::{TimeCount, unit_of};
use crate::formats::conversion::{Chained, Conversion};
use zarr_format::dialect::fill;
use zarr_format::model::{Array, Attributes, DataType, TimeUnit};

pub use crate::formats::cf::attributes::NoValues;

/// The CF attributes that limit the valid range; their numbers are packed like the stored elements.
pub const LIMITS: [&str; 3] = ["valid_min", "valid_max", "valid_range"];

/// An array decoded by the CF conventions in its attributes.
pub struct DecodedArray {
    /// The array with the data type and the attributes of the decoded values.
    pub array: Array,
    /// Decodes each element; `None` if the elements stay unchanged.
    pub conversion: Option<Arc<dyn Conversion>>,
}

/// Whether numbers that count times or durations are decoded.
#[derive(Clone, Copy, PartialEq)]
enum Counts {
    /// The numbers become times or durations.
    Decoded,
    /// The numbers stay numbers, with the attributes `units` and `calendar`.
    Kept,
}

/// Returns an array decoded by its CF attributes, or the reason why the attributes are invalid.
pub fn decoded(array: &Array) -> Result<DecodedArray, NoValues> {
    decoded_with(array, Counts::Decoded)
}

/// Decodes an array by its CF attributes, except that times and durations stay numbers with `units` and `calendar`.
/// File formats whose readers decode times need this, because CF times may have calendars and years that no data type
/// here can hold. Integer times also keep `_FillValue`: with NaN they would become floats, which have fewer digits.
pub(crate) fn decoded_but_times(array: &Array) -> Result<DecodedArray, NoValues> {
    decoded_with(array, Counts::Kept)
}

fn decoded_with(array: &Array, counts: Counts) -> Result<DecodedArray, NoValues> {
    let array = &*array.in_files();
    let mut are_others = false;
    let mut kept_fill = KeptFill::None;
    let found: Option<(DataType, Arc<dyn Conversion>)> = match &array.data_type {
        // These data types need no decoding, so a missing conversion is not an error.
        DataType::Bool | DataType::DateTime(_) | DataType::TimeDelta(_) => None,
        DataType::Complex(size) => {
            let mask = ComplexMask::of(array, *size)?;
            mask.map(|mask| (array.data_type.clone(), Arc::new(mask) as _))
        }
        data_type => {
            let stored = Stored::of(data_type).ok_or(NoValues::NotNumbers)?;
            let decoding = CfAttributes::of(array, stored, counts)?.decoding()?;
            kept_fill = decoding.kept_fill.clone();
            let is_changed = !decoding.is_identity();
            are_others = decoding.makes_others();
            is_changed.then(|| (decoding.data_type(), decoding.conversion()))
        }
    };
    let Some((data_type, conversion)) = found else {
        return Ok(DecodedArray {
            array: Array {
                attributes: kept_fill.added_to(array.attributes.clone()),
                ..array.clone()
            },
            conversion: None,
        });
    };
    let mut attributes = kept_fill.added_to(attributes_of(array, &data_type, &kept_fill));
    if are_others {
        attributes = without(&attributes, &LIMITS);
    }
    let mut described = Array {
        attributes,
        data_type,
        ..array.clone()
    };
    let mut fill = vec![0; conversion.written_size()];
    let size = array.data_type.size().unwrap_or(0);
    if let Some(whole) = array.fill_value.bytes.get(..size) {
        conversion.convert(whole, &mut fill);
    }
    described.fill_value.json = fill::render(&described.data_type, &fill);
    described.fill_value.bytes = fill;
    Ok(DecodedArray {
        array: described,
        conversion: Some(conversion),
    })
}

/// Returns the attributes of the decoded array: those that decoding has applied are removed.
fn attributes_of(array: &Array, data_type: &DataType, kept_fill: &KeptFill) -> Attributes {
    let mut attributes = array.attributes.clone();
    // CF does not scale complex numbers, so `scale_factor` remains an attribute of their array.
    if !matches!(data_type, DataType::Complex(_)) {
        attributes = without(&attributes, &["scale_factor", "add_offset", "_Unsigned"]);
    }
    if *kept_fill == KeptFill::None {
        attributes = without(&attributes, &[FILL, "missing_value"]);
    }
    if matches!(data_type, DataType::DateTime(_) | DataType::TimeDelta(_)) {
        attributes = without(&attributes, &["units", "calendar"]);
    }
    if !matches!(
        data_type,
        DataType::Int(_) | DataType::UInt(_) | DataType::Float(_) | DataType::Complex(_)
    ) {
        attributes = without(&attributes, &["dtype"]);
    }
    attributes
}

fn without(attributes: &Attributes, names: &[&str]) -> Attributes {
    let removed: Vec<_> = names
        .iter()
        .filter(|name| attributes.get(name).is_some())
        .map(|name| ((*name).to_string(), None))
        .collect();
    if removed.is_empty() {
        return attributes.clone();
    }
    attributes.edited(&removed)
}

/// The numbers of an array that count a unit since a date, in any calendar and any year.
pub struct CountedTimes {
    decoding: Decoding,
    counted: CountedTime,
}

impl CountedTimes {
    /// Returns the decoder of an array's times, or `None` if the array's numbers do not count times.
    pub fn of(array: &Array) -> Result<Option<CountedTimes>, NoValues> {
        let array = &*array.in_files();
        let Some(stored) = Stored::of(&array.data_type) else {
            return Ok(None);
        };
        let attributes = CfAttributes::of(array, stored, Counts::Decoded)?;
        let decoding = attributes.decoding()?;
        let Counted::Times(Some(count)) = attributes.counted else {
            return Ok(None);
        };
        let numbers = attributes.numbers();
        Ok(Some(CountedTimes {
            decoding,
            counted: CountedTime { count, numbers },
        }))
    }

    /// Returns the CF calendar of the decoded times.
    pub fn calendar(&self) -> Calendar {
        self.counted.count.calendar
    }

    /// Decodes elements into times, in nanoseconds since 1970; `None` for an element that holds no time.
    pub fn times(&self, elements: &[u8]) -> Vec<Option<i128>> {
        self.counted
            .times(self.decoding.stored, elements, &self.decoding.fills)
    }
}

/// The parsed CF decoding of an array.
struct Decoding {
    /// The number type of the stored elements, after `_Unsigned` was applied.
    stored: Stored,
    meaning: Meaning,
    fills: Vec<FillNumber>,
    is_reread: bool,
    is_truth: bool,
    kept_fill: KeptFill,
}

/// Says which `_FillValue` the decoded array has, if numbers that mark missing values remain in it.
#[derive(Clone, PartialEq)]
enum KeptFill {
    /// No number that marks missing values remains, so the attributes of fill values are removed.
    None,
    /// The attributes of fill values stay unchanged.
    Attributes,
    /// The attributes stay, but this number replaces `_FillValue`.
    Number(Value),
}

impl KeptFill {
    fn added_to(&self, attributes: Attributes) -> Attributes {
        match self {
            KeptFill::Number(fill) => attributes.with(FILL, fill),
            KeptFill::None | KeptFill::Attributes => attributes,
        }
    }
}

/// What the numbers of an array count, according to the attribute `units`.
#[derive(Clone, Copy, PartialEq)]
enum Counted {
    /// Numbers count times; `None` if `units` or `calendar` is unknown.
    Times(Option<TimeCount>),
    /// Numbers count durations in a unit of this many nanoseconds.
    Durations(i64),
    Other,
}

/// The parsed CF attributes that decide how an array's numbers are decoded.
struct CfAttributes {
    /// The number type of the stored elements, after `_Unsigned` was applied.
    stored: Stored,
    is_reread: bool,
    /// Whether `scale_factor` or `add_offset` is present. Even if it is null, xarray computes in floats.
    is_packed: bool,
    scale: Option<AttributeNumber>,
    offset: Option<AttributeNumber>,
    fills: Vec<AttributeNumber>,
    /// Whether the attributes mark missing values, by a number or by NaN.
    has_fill: bool,
    /// Whether the last of `fills` differs from `_FillValue`: it is the fill value of the array, or `_Unsigned` changed
    /// its sign.
    has_other_fill: bool,
    counted: Counted,
    counts: Counts,
    /// The attribute `dtype`: the data type that the values had before xarray encoded them.
    dtype: String,
}

impl Decoding {
    fn is_identity(&self) -> bool {
        self.meaning == Meaning::Same && !self.is_reread && !self.is_truth
    }

    /// Whether decoded values can differ from the stored numbers.
    fn makes_others(&self) -> bool {
        let is_scaled = |packing: CfPacking| packing.factor != 1.0 || packing.summand != 0.0;
        self.is_reread
            || match self.meaning {
                Meaning::Same => false,
                Meaning::Half(packing) | Meaning::Single(packing) | Meaning::Double(packing) => {
                    is_scaled(packing)
                }
                Meaning::Long { factor } => factor != 1,
                Meaning::Time(_) | Meaning::Duration(_) => true,
            }
    }

    fn data_type(&self) -> DataType {
        if self.is_truth {
            DataType::Bool
        } else {
            self.number_type()
        }
    }

    /// Returns the data type of the decoded numbers, before booleans are made of them.
    fn number_type(&self) -> DataType {
        let unit = |name: &str| TimeUnit {
            name: name.to_string(),
            scale: 1,
        };
        match self.meaning {
            Meaning::Same => self.stored.data_type(),
            Meaning::Single(_) => DataType::Float(4),
            Meaning::Half(_) => DataType::Float(2),
            Meaning::Double(_) => DataType::Float(8),
            Meaning::Long { .. } => DataType::Int(8),
            Meaning::Time(_) => DataType::DateTime(unit("ns")),
            Meaning::Duration(counted) => DataType::TimeDelta(unit(counted.name)),
        }
    }

    fn conversion(&self) -> Arc<dyn Conversion> {
        let numbers = CfConversion {
            stored: self.stored,
            meaning: self.meaning,
            fills: self.fills.clone(),
        };
        if !self.is_truth {
            return Arc::new(numbers);
        }
        let second = Truth {
            size: numbers.written_size(),
            is_float: matches!(self.number_type(), DataType::Float(_)),
        };
        Arc::new(Chained {
            first: Arc::new(numbers),
            second: Arc::new(second),
            size: self.stored.size(),
        })
    }
}

fn text_of(attributes: &Attributes, name: &str) -> Option<String> {
    match attributes.get(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Returns the number type made signed or unsigned, as the attribute `_Unsigned` demands.
fn apply_unsigned(stored: Stored, attributes: &Attributes) -> Result<Stored, NoValues> {
    let value = attributes.get("_Unsigned").unwrap_or_default();
    match value.as_str() {
        _ if stored.is_float() || value.is_null() => Ok(stored),
        Some("true") => Ok(stored.unsigned()),
        Some("false") => Ok(stored.signed()),
        // Any other spelling, such as `"True"` or `true`, is an error, because some readers treat it as unsigned and
        // others do not.
        _ => Err(NoValues::of("_Unsigned", &value, "\"true\" or \"false\"")),
    }
}

fn counted(attributes: &Attributes) -> Result<Counted, NoValues> {
    let Some(units) = text_of(attributes, "units") else {
        return Ok(Counted::Other);
    };
    if units.contains("since") {
        let count = time_count(&units, attributes)?;
        return Ok(Counted::Times(Some(count)));
    }
    // xarray decodes durations only if the unit has its long name. Times may have short names, too.
    let is_whole = units.ends_with("seconds") || ["minutes", "hours", "days"].contains(&&*units);
    let unit = unit_of(&units).filter(|_| is_whole && units == units.to_lowercase());
    Ok(unit.map_or(Counted::Other, Counted::Durations))
}

/// Parses the attributes `units` and `calendar` of an array of times.
fn time_count(units: &str, attributes: &Attributes) -> Result<TimeCount, NoValues> {
    let calendar = match attributes.get("calendar") {
        None | Some(Value::Null) => Value::from("standard"),
        Some(other) => other,
    };
    let name = calendar.as_str().unwrap_or_default();
    TimeCount::parse(units, name).ok_or_else(|| {
        let units = abbreviated(&Value::from(units));
        NoValues::Attribute(format!(
            "the attribute units is {units} in the calendar {} but must be a unit of time, 'since' and a date in a \
             known calendar",
            abbreviated(&calendar)
        ))
    })
}

/// The number type in which CF decoding computes.
#[derive(Clone, Copy, PartialEq)]
enum Computed {
    AsStored,
    Single,
    Double,
    Long { factor: i64 },
}

impl CfAttributes {
    fn of(array: &Array, found: Stored, counts: Counts) -> Result<CfAttributes, NoValues> {
        let attributes = &array.attributes;
        let stored = apply_unsigned(found, attributes)?;
        let mut fills = fill_numbers(array, found, stored)?;
        let has_fill = !fills.is_empty();
        fills.retain(|fill| !fill.is_nan());
        let is_there = |name| attributes.get(name).is_some();
        let is_of_array = array.dialect == "v2" && !array.fill_value.is_none;
        let is_reread = stored != found;
        Ok(CfAttributes {
            stored,
            is_reread,
            is_packed: is_there("scale_factor") || is_there("add_offset"),
            scale: packing_number(attributes, "scale_factor")?,
            offset: packing_number(attributes, "add_offset")?,
            fills,
            has_fill,
            has_other_fill: is_of_array || is_there(FILL) && is_reread,
            counted: match counted(attributes) {
                // The times are not decoded here, so unknown units are no error: the reader of the file may understand
                // them.
                Err(_) if counts == Counts::Kept => Counted::Times(None),
                counted => counted?,
            },
            counts,
            dtype: text_of(attributes, "dtype").unwrap_or_default(),
        })
    }

    fn decoding(&self) -> Result<Decoding, NoValues> {
        let meaning = self.meaning()?;
        let is_count = matches!(meaning, Meaning::Time(_) | Meaning::Duration(_));
        Ok(Decoding {
            stored: self.stored,
            is_reread: self.is_reread,
            is_truth: self.dtype == "bool" && !is_count,
            meaning,
            kept_fill: match self.fills.last().filter(|_| self.keeps_fill()) {
                None => KeptFill::None,
                Some(fill) if self.has_other_fill => fill
                    .whole_value()
                    .map_or(KeptFill::Attributes, KeptFill::Number),
                Some(_) => KeptFill::Attributes,
            },
            fills: self.fills.iter().map(|fill| fill.fill()).collect(),
        })
    }

    /// Whether a number marks missing values, not only NaN.
    fn masks(&self) -> bool {
        !self.fills.is_empty()
    }

    /// Chooses, as xarray does, the type in which numbers are scaled.
    fn computed(&self) -> Computed {
        let is_time = self.counted != Counted::Other;
        if self.is_packed {
            if self.has_fill && !self.masks() && !is_time {
                // If only NaN marks missing values, xarray keeps the type.
                return Computed::AsStored;
            }
            let factor = match (self.scale, self.offset) {
                (None, None) if self.stored.fits_single() => return Computed::Single,
                // An integer factor in JSON is an integer in xarray too, so xarray multiplies as integers. Any other
                // factor is a double.
                (Some(AttributeNumber::Whole(factor)), None) if !self.masks() => factor,
                _ => return Computed::Double,
            };
            let factor = i64::try_from(factor);
            return factor.map_or(Computed::Double, |factor| Computed::Long { factor });
        }
        if !self.masks() || self.stored.is_float() {
            return Computed::AsStored;
        }
        match self.stored.fits_single() {
            _ if self.keeps_fill() => Computed::AsStored,
            _ if is_time => Computed::Long { factor: 1 },
            true => Computed::Single,
            false => Computed::Double,
        }
    }

    /// Whether integers that count times stay unchanged, including the integers that mark missing values.
    fn keeps_fill(&self) -> bool {
        let is_time = self.counted != Counted::Other;
        let stay = self.counts == Counts::Kept && !self.is_packed && !self.stored.is_float();
        is_time && stay && self.masks()
    }

    fn packing(&self) -> CfPacking {
        CfPacking {
            factor: self.scale.map_or(1.0, AttributeNumber::to_float),
            summand: self.offset.map_or(-0.0, AttributeNumber::to_float),
        }
    }

    /// Returns the arithmetic that turns stored numbers into counts of a unit of time.
    fn numbers(&self) -> CountedNumbers {
        match self.computed() {
            Computed::Long { factor } => CountedNumbers::Long { factor },
            Computed::Double => CountedNumbers::Double(self.packing()),
            _ => CountedNumbers::Stored,
        }
    }

    fn meaning(&self) -> Result<Meaning, NoValues> {
        let (computed, packing, numbers) = (self.computed(), self.packing(), self.numbers());
        match self.counted {
            _ if self.counts == Counts::Kept => {}
            Counted::Times(Some(count)) if count.calendar == Calendar::Gregorian => {
                return Ok(Meaning::Time(CountedTime { count, numbers }));
            }
            Counted::Durations(unit) if self.dtype.starts_with("timedelta64") => {
                let (name, step) = duration_unit(&self.dtype, unit)?;
                return Ok(Meaning::Duration(CountedDuration {
                    unit,
                    step,
                    name,
                    numbers,
                }));
            }
            _ => {}
        }
        Ok(match computed {
            Computed::Long { factor } => Meaning::Long { factor },
            Computed::Double => Meaning::Double(packing),
            Computed::Single => Meaning::Single(packing),
            Computed::AsStored => self.own_meaning(packing),
        })
    }

    /// Returns the decoding of numbers in their stored type: floats are masked and unpacked, integers stay unchanged.
    fn own_meaning(&self, packing: CfPacking) -> Meaning {
        match self.stored {
            _ if !self.masks() && packing.is_none() => Meaning::Same,
            Stored::F2 => Meaning::Half(packing),
            Stored::F4 => Meaning::Single(packing),
            Stored::F8 => Meaning::Double(packing),
            _ => Meaning::Same,
        }
    }
}

/// Returns xarray's unit for the decoded durations: its numpy name, and its length in nanoseconds. It is the unit in
/// the attribute `dtype`, or the counted unit (`counted` nanoseconds) if that is finer.
fn duration_unit(dtype: &str, counted: i64) -> Result<(&'static str, i64), NoValues> {
    let steps = [
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    let unit = dtype.strip_prefix("timedelta64[");
    let unit = unit.and_then(|unit| unit.strip_suffix(']'));
    let own = match unit {
        Some("W" | "D" | "h" | "m" | "s") => 0,
        Some("ms") => 1,
        Some("us") => 2,
        Some("ns" | "ps" | "fs" | "as") => 3,
        _ => {
            let wanted = "a duration type of numpy, such as timedelta64[ns]";
            return Err(NoValues::of("dtype", &Value::from(dtype), wanted));
        }
    };
    let needed = steps.iter().position(|(_, step)| *step == counted);
    let step = steps.get(needed.map_or(own, |needed| needed.max(own)));
    Ok(step.copied().unwrap_or(("ns", 1)))
}
