//! References that a reference file of version 1 generates: one for each combination of some numbers.

use serde_json::Value as Json;

use zarr_format::error::{Error, Result};

use super::table::TableBuilder;
use super::template::{Names, Templates, Value};

/// The most references that a file may generate.
const MAX_REFERENCES: u64 = 20_000_000;

/// A rule of `gen`.
struct Rule<'a> {
    key: &'a str,
    url: &'a str,
    /// Templates of the offset and length; `None` is the whole object.
    range: Option<RangeTexts>,
    dimensions: Vec<Dimension>,
}

/// Templates of an offset and a length.
struct RangeTexts {
    offset: String,
    length: String,
}

/// A name and the values that it takes.
struct Dimension {
    name: String,
    values: DimensionValues,
}

enum DimensionValues {
    Listed(Vec<Value>),
    Counted { start: i64, step: i64, count: u64 },
}

/// Adds the references of the rules in `generators`.
pub(super) fn add_generated(
    table: &mut TableBuilder,
    generators: &Json,
    templates: &Templates,
) -> Result<()> {
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

    /// Adds the reference of one combination; the last dimension changes fastest.
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
