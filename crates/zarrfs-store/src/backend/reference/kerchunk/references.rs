//! Reads the JSON text of a kerchunk reference file, of version 0 or 1.
//!
//! In version 0 the file is a JSON object of references. In version 1 the field `refs` has the references, `templates`
//! has templates for their URLs, and `gen` has rules that generate more references. The fields come in any order.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value as Json;

use zarr_format::error::{Error, Result};

use super::json::{JsonReader, Pieces, Scalar};
use super::table::{Damage, Table, TableBuilder};
use super::targets::TargetBase;
use super::template::{Names, Templates, Value};

/// Decodes base64 as Python does, with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Maximum length of the JSON text of `templates` and of `gen`, in bytes.
const MAX_RULES: usize = 16 << 20;

/// Reads the JSON text of a kerchunk reference file into a table.
pub(super) struct ReferenceText<P> {
    reader: JsonReader<P>,
    table: TableBuilder,
    /// The current key and its value. The buffers are reused for the next key.
    key: Vec<u8>,
    value: Vec<u8>,
    decoded: Vec<u8>,
    templates: Templates,
    generators: Option<Json>,
}

impl<P: Pieces> ReferenceText<P> {
    pub(super) fn new(pieces: P, table: TableBuilder) -> ReferenceText<P> {
        ReferenceText {
            reader: JsonReader::new(pieces, table.limit()),
            table,
            key: Vec::new(),
            value: Vec::new(),
            decoded: Vec::new(),
            templates: Templates::new(),
            generators: None,
        }
    }

    /// Reads the text and returns the table. Relative URLs are resolved against the folder `base`.
    pub(super) fn table(mut self, base: &TargetBase) -> Result<Table> {
        let (mut is_first, mut has_refs) = (true, false);
        self.reader.expect(b'{')?;
        while self.reader.next_member(&mut is_first, &mut self.key)? {
            let begins = self.reader.begins()?;
            match (self.key.as_slice(), begins) {
                (b"refs", b'{') => {
                    self.table.clear();
                    has_refs = true;
                    self.references()?;
                }
                (b"templates", b'{') => self.read_templates()?,
                (b"gen", b'[') => self.generators = Some(self.rules()?),
                _ if has_refs => self.reader.value(&mut self.value)?,
                (b"version", b'0'..=b'9') => self.reader.value(&mut self.value)?,
                (_, begins) => self.reference(begins)?,
            }
        }
        self.reader.end()?;
        if let Some(generators) = &self.generators {
            add_generated(&mut self.table, generators, &self.templates)?;
        }
        let names = Names {
            templates: &self.templates,
            values: &[],
        };
        let expand = |target: &str| {
            // In a file without templates, braces are part of a URL.
            if self.templates.is_empty() {
                return Ok(base.resolve(target));
            }
            names.render(target).map(|url| base.resolve(&url))
        };
        self.table.finish(expand)
    }

    /// Reads the references in `refs`.
    fn references(&mut self) -> Result<()> {
        let mut is_first = true;
        self.reader.expect(b'{')?;
        while self.reader.next_member(&mut is_first, &mut self.key)? {
            let begins = self.reader.begins()?;
            self.reference(begins)?;
        }
        Ok(())
    }

    /// Reads the reference of the current key. `begins` is the reference's first byte.
    fn reference(&mut self, begins: u8) -> Result<()> {
        match begins {
            b'"' => self.text(),
            b'[' => self.part(),
            b'{' => {
                self.reader.value(&mut self.value)?;
                self.table.add_value(&self.key, &self.value)
            }
            _ => {
                self.reader.value(&mut self.value)?;
                self.table.add_damaged(&self.key, Damage::NoReference)
            }
        }
    }

    /// Reads a reference that contains the key's bytes: text, or `base64:` and base64.
    fn text(&mut self) -> Result<()> {
        self.reader.string(&mut self.value)?;
        let Some(encoded) = self.value.strip_prefix(b"base64:") else {
            return self.table.add_value(&self.key, &self.value);
        };
        self.decoded.clear();
        match BASE64.decode_vec(encoded, &mut self.decoded) {
            Ok(()) => self.table.add_value(&self.key, &self.decoded),
            Err(_) => self.table.add_damaged(&self.key, Damage::NoBase64),
        }
    }

    /// Reads a reference to another object: `[URL]` or `[URL, OFFSET, LENGTH]`.
    fn part(&mut self) -> Result<()> {
        let (mut is_first, mut count, mut damage) = (true, 0, None);
        let mut range = [None, None];
        let mut url = std::mem::take(&mut self.decoded);
        self.reader.expect(b'[')?;
        while self.reader.next_item(b']', &mut is_first)? {
            let scalar = match count {
                0 => self.reader.scalar(&mut url)?,
                _ => self.reader.scalar(&mut self.value)?,
            };
            match (count, scalar) {
                (0, Scalar::Text) => {}
                (1 | 2, Scalar::Other) => match (number(&self.value), range.get_mut(count - 1)) {
                    (Some(number), Some(place)) => *place = Some(number),
                    _ => damage = Some(Damage::NoNumber),
                },
                _ => damage = damage.or(Some(Damage::NoReference)),
            }
            count += 1;
        }
        let text = std::str::from_utf8(&url);
        let added = match (damage, count, range, text) {
            (Some(damage), ..) => self.table.add_damaged(&self.key, damage),
            (None, _, _, Err(_)) => self.table.add_damaged(&self.key, Damage::NoUtf8),
            (None, 1, _, Ok(url)) => self.table.add_part(&self.key, url, 0, None),
            (None, 3, [Some(offset), Some(length)], Ok(url)) => {
                self.table.add_part(&self.key, url, offset, Some(length))
            }
            _ => self.table.add_damaged(&self.key, Damage::NoReference),
        };
        self.decoded = url;
        added
    }

    /// Reads the value of `templates` or `gen`. The error is `TooLarge` beyond `MAX_RULES` bytes.
    fn rules(&mut self) -> Result<Json> {
        self.reader.value(&mut self.value)?;
        if self.value.len() > MAX_RULES {
            let why = format!("templates or gen has more than {MAX_RULES} bytes");
            return Err(Error::too_large("", why));
        }
        let parsed = serde_json::from_slice(&self.value);
        parsed.map_err(|error| {
            self.reader
                .damaged(&format!("templates or gen is not JSON: {error}"))
        })
    }

    fn read_templates(&mut self) -> Result<()> {
        let rules = self.rules()?;
        let members = rules.as_object().into_iter().flatten();
        self.templates = members
            .filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_string())))
            .collect();
        Ok(())
    }
}

/// Parses an offset or length from 0 to 2^63 - 1. Python may write it as `1000.0`.
fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let whole = text.strip_suffix(".0").unwrap_or(text);
    let number = whole.parse::<u64>().ok()?;
    (number <= i64::MAX.unsigned_abs()).then_some(number)
}

/// Maximum number of references that the rules of a reference file may generate.
const MAX_REFERENCES: u64 = 20_000_000;

/// A rule in `gen`, which generates references from templates.
struct Rule<'a> {
    key: &'a str,
    url: &'a str,
    /// Templates of the range's offset and length; `None` means the whole object.
    range: Option<RangeTexts>,
    dimensions: Vec<Dimension>,
}

struct RangeTexts {
    offset: String,
    length: String,
}

/// A variable in a rule's templates, and the values that it takes.
struct Dimension {
    name: String,
    values: DimensionValues,
}

enum DimensionValues {
    Listed(Vec<Value>),
    Counted { start: i64, step: i64, count: u64 },
}

/// Adds the references that the rules `generators` generate.
fn add_generated(table: &mut TableBuilder, generators: &Json, templates: &Templates) -> Result<()> {
    let rules = generators
        .as_array()
        .ok_or_else(|| damaged("gen is no list"))?;
    let mut budget = MAX_REFERENCES;
    for rule in rules {
        let rule = Rule::parse(rule).ok_or_else(|| damaged("a rule in gen is not as specified"))?;
        let count = rule.dimensions.iter().try_fold(1u64, |count, dimension| {
            count.checked_mul(dimension.values.count())
        });
        let left = count.and_then(|count| budget.checked_sub(count));
        budget = left.ok_or_else(|| {
            let why = format!("gen has more than {MAX_REFERENCES} references");
            Error::too_large("", why)
        })?;
        for number in 0..count.unwrap_or(0) {
            rule.add(table, number, templates)?;
        }
    }
    Ok(())
}

fn damaged(why: impl Into<String>) -> Error {
    Error::corrupt("", why.into())
}

impl Rule<'_> {
    fn parse(rule: &Json) -> Option<Rule<'_>> {
        let text = |name: &str| match rule.get(name)? {
            Json::String(text) => Some(text.clone()),
            Json::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let range = match (rule.get("offset"), rule.get("length")) {
            (None, None) => None,
            _ => Some(RangeTexts {
                offset: text("offset")?,
                length: text("length")?,
            }),
        };
        let dimensions = rule.get("dimensions")?.as_object()?;
        Some(Rule {
            key: rule.get("key")?.as_str()?,
            url: rule.get("url")?.as_str()?,
            range,
            dimensions: dimensions
                .iter()
                .map(|(name, values)| {
                    Some(Dimension {
                        name: name.clone(),
                        values: DimensionValues::parse(values)?,
                    })
                })
                .collect::<Option<_>>()?,
        })
    }

    /// Adds one of the rule's references. `number` selects a combination of values; the last variable changes fastest.
    fn add(&self, table: &mut TableBuilder, number: u64, templates: &Templates) -> Result<()> {
        let (mut values, mut rest) = (Vec::new(), number);
        for dimension in self.dimensions.iter().rev() {
            let count = dimension.values.count().max(1);
            let value = dimension.values.get(rest % count);
            let value = value.ok_or_else(|| damaged("gen has numbers beyond 64 bits"))?;
            values.push((dimension.name.clone(), value));
            rest /= count;
        }
        let names = Names {
            templates,
            values: &values,
        };
        let render = |text: &str| names.render(text).map_err(damaged);
        let (key, url) = (render(self.key)?, render(self.url)?);
        let Some(range) = &self.range else {
            return table.add_part(key.as_bytes(), &url, 0, None);
        };
        let number = |text: &str| {
            let number = render(text)?;
            let parsed = number.trim().parse::<u64>();
            parsed.map_err(|_| damaged(format!("gen has '{number}' as an offset or length")))
        };
        let (offset, length) = (number(&range.offset)?, number(&range.length)?);
        table.add_part(key.as_bytes(), &url, offset, Some(length))
    }
}

impl DimensionValues {
    fn parse(values: &Json) -> Option<DimensionValues> {
        if let Some(list) = values.as_array() {
            let value = |value: &Json| match value {
                Json::String(text) => Some(Value::Text(text.clone())),
                other => other.as_i64().map(Value::Number),
            };
            let listed = list.iter().map(value).collect::<Option<_>>()?;
            return Some(DimensionValues::Listed(listed));
        }
        let number =
            |name: &str, default: i64| values.get(name).map_or(Some(default), Json::as_i64);
        let (start, step) = (number("start", 0)?, number("step", 1)?);
        let stop = values.get("stop")?.as_i64()?;
        let length = i128::from(stop) - i128::from(start);
        let count = match step {
            0 => return None,
            step if (length > 0) == (step > 0) => length
                .unsigned_abs()
                .div_ceil(u128::from(step.unsigned_abs())),
            _ => 0,
        };
        Some(DimensionValues::Counted {
            start,
            step,
            count: u64::try_from(count).ok()?,
        })
    }

    fn count(&self) -> u64 {
        match self {
            DimensionValues::Listed(values) => values.len() as u64,
            DimensionValues::Counted { count, .. } => *count,
        }
    }

    fn get(&self, number: u64) -> Option<Value> {
        match self {
            DimensionValues::Listed(values) => values.get(usize::try_from(number).ok()?).cloned(),
            DimensionValues::Counted { start, step, .. } => {
                let steps = i64::try_from(number).ok()?.checked_mul(*step)?;
                start.checked_add(steps).map(Value::Number)
            }
        }
    }
}
