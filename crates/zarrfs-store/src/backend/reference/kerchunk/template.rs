//! Renders the templates of kerchunk reference files: `{{name}}` in URLs, and arithmetic.
//!
//! fsspec renders them with Jinja. Supported are only the expressions that the specification shows: names, calls such
//! as `{{f(c='text')}}`, whole numbers, `+ - * // %` and parentheses.

use std::collections::HashMap;

/// Maximum length of a rendered template, in bytes.
const MAX_TEXT: usize = 64 << 10;

/// Maximum nesting of parentheses and calls in a template.
const MAX_DEPTH: usize = 16;

/// The value of a variable or expression in a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Number(i64),
}

/// The templates of a reference file, by name.
pub(super) type Templates = HashMap<String, String>;

/// The templates and variables that a template may use.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) templates: &'a Templates,
    pub(super) values: &'a [(String, Value)],
}

/// Why a template cannot be rendered.
pub(super) type Reason = String;

impl Names<'_> {
    /// Replaces every `{{...}}` in a text by the value of the expression.
    pub(super) fn render(&self, text: &str) -> Result<String, Reason> {
        self.render_at(text, 0)
    }

    fn render_at(&self, text: &str, depth: usize) -> Result<String, Reason> {
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("{{") {
            let (expression, after) = after
                .split_once("}}")
                .ok_or_else(|| format!("the template '{}' has no }}}}", shortened(text)))?;
            out.push_str(before);
            let value = self.evaluate(expression, depth)?;
            match value {
                Value::Text(text) => out.push_str(&text),
                Value::Number(number) => out.push_str(&number.to_string()),
            }
            if out.len() > MAX_TEXT {
                return Err(format!("a template gives more than {MAX_TEXT} bytes"));
            }
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    /// Evaluates the expression between `{{` and `}}`.
    fn evaluate(&self, expression: &str, depth: usize) -> Result<Value, Reason> {
        let mut parser = Parser {
            names: *self,
            rest: expression.trim(),
            depth,
        };
        let value = parser.sum();
        match value {
            Ok(value) if parser.rest.is_empty() => Ok(value),
            Err(Some(reason)) => Err(reason),
            _ => Err(format!(
                "the template expression '{}' is not one that zarrfs reads: use fsspec to write the references without templates",
                shortened(expression)
            )),
        }
    }

    /// Returns the value of a variable, or else the template of that name, rendered.
    fn value(&self, name: &str, depth: usize) -> Result<Value, Reason> {
        let mut values = self.values.iter();
        if let Some((_, value)) = values.find(|(own, _)| own == name) {
            return Ok(value.clone());
        }
        self.call(name, &[], depth)
    }

    /// Renders the template `name` with `values` as its arguments.
    fn call(&self, name: &str, values: &[(String, Value)], depth: usize) -> Result<Value, Reason> {
        let template = self.templates.get(name);
        let template =
            template.ok_or_else(|| format!("there is no template '{}'", shortened(name)))?;
        if depth >= MAX_DEPTH {
            return Err(format!(
                "the template '{}' contains itself",
                shortened(name)
            ));
        }
        let names = Names {
            templates: self.templates,
            values,
        };
        names.render_at(template, depth + 1).map(Value::Text)
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Parses a template expression and evaluates it at the same time. An error without a reason is a syntax error.
struct Parser<'a> {
    names: Names<'a>,
    rest: &'a str,
    depth: usize,
}

type Evaluated = Result<Value, Option<Reason>>;

impl<'a> Parser<'a> {
    /// Consumes and returns one of the operators, or returns `None` if something else follows.
    fn operator(&mut self, operators: &[&'static str]) -> Option<&'static str> {
        let found = operators
            .iter()
            .find(|operator| self.rest.starts_with(**operator))?;
        self.rest = self.rest.get(found.len()..)?.trim_start();
        Some(found)
    }

    fn sum(&mut self) -> Evaluated {
        let mut value = self.product()?;
        while let Some(operator) = self.operator(&["+", "-"]) {
            let other = self.product()?;
            value = calculated(operator, &value, &other)?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Evaluated {
        let mut value = self.factor()?;
        while let Some(operator) = self.operator(&["*", "//", "%"]) {
            let other = self.factor()?;
            value = calculated(operator, &value, &other)?;
        }
        Ok(value)
    }

    fn factor(&mut self) -> Evaluated {
        if self.operator(&["("]).is_some() {
            return self.nested(|parser| {
                let value = parser.sum()?;
                parser.operator(&[")"]).ok_or(None)?;
                Ok(value)
            });
        }
        if let Some(quote) = self.operator(&["'", "\""]) {
            let (text, rest) = self.rest.split_once(quote).ok_or(None)?;
            self.rest = rest.trim_start();
            return Ok(Value::Text(text.to_string()));
        }
        let word = self.word().ok_or(None)?;
        if let Ok(number) = word.parse::<i64>() {
            return Ok(Value::Number(number));
        }
        if self.operator(&["("]).is_none() {
            return Ok(self.names.value(word, self.depth)?);
        }
        self.nested(|parser| {
            let values = parser.arguments()?;
            Ok(parser.names.call(word, &values, parser.depth)?)
        })
    }

    /// Parses a nested expression, and fails if the nesting is too deep.
    fn nested(&mut self, parse: impl FnOnce(&mut Self) -> Evaluated) -> Evaluated {
        if self.depth >= MAX_DEPTH {
            return Err(None);
        }
        self.depth += 1;
        let value = parse(self);
        self.depth -= 1;
        value
    }

    /// Consumes a name or number, or returns `None` if neither follows.
    fn word(&mut self) -> Option<&'a str> {
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let end = self
            .rest
            .find(|letter| !is_part(letter))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        (!word.is_empty()).then_some(word)
    }

    /// Parses the arguments of a template call: `name=value, name=value)`.
    fn arguments(&mut self) -> Result<Vec<(String, Value)>, Option<Reason>> {
        let mut values = Vec::new();
        while self.operator(&[")"]).is_none() {
            let name = self.word().ok_or(None)?;
            self.operator(&["="]).ok_or(None)?;
            let value = self.sum()?;
            values.push((name.to_string(), value));
            if self.operator(&[","]).is_none() {
                self.operator(&[")"]).ok_or(None)?;
                break;
            }
        }
        Ok(values)
    }
}

/// Applies an arithmetic operator to two numbers.
fn calculated(operator: &str, left: &Value, right: &Value) -> Evaluated {
    let (Value::Number(left), Value::Number(right)) = (left, right) else {
        return Err(Some("a template calculates with text".to_string()));
    };
    let result = match operator {
        "+" => left.checked_add(*right),
        "-" => left.checked_sub(*right),
        "*" => left.checked_mul(*right),
        "//" => left.checked_div_euclid(*right),
        _ => left.checked_rem_euclid(*right),
    };
    let why = || {
        format!("a template calculates {left} {operator} {right}, which is no number of 64 bits")
    };
    Ok(Value::Number(result.ok_or_else(|| Some(why()))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str) -> Result<String, Reason> {
        let templates = [
            ("u", "host/path"),
            ("f", "x_{{c}}"),
            ("loop", "{{loop}}"),
            ("a", "{{b}}{{b}}"),
        ];
        let templates: Templates = templates
            .map(|(name, text)| (name.to_string(), text.to_string()))
            .into_iter()
            .chain([("b".to_string(), "y".repeat(40_000))])
            .collect();
        let values = [
            ("i".to_string(), Value::Number(3)),
            ("s".to_string(), Value::Text("t".into())),
        ];
        let names = Names {
            templates: &templates,
            values: &values,
        };
        names.render(text)
    }

    #[test]
    fn names_calls_and_numbers_are_rendered() {
        for (text, expected) in [
            ("plain", "plain"),
            ("http://{{u}}/{{ s }}.nc", "http://host/path/t.nc"),
            ("{{f(c='text')}}", "x_text"),
            ("{{ f( c = i * 2 ) }}", "x_6"),
            ("{{(i + 1) * 1000}}", "4000"),
            ("{{i - 10 // 4 % 2}}", "3"),
            ("{{ i+1 }}_{{i}}", "4_3"),
        ] {
            assert_eq!(render(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn an_invalid_template_is_an_error() {
        for text in [
            "{{",
            "{{}}",
            "{{none}}",
            "{{loop}}",
            "{{a}}",
            "{{i",
            "{{i +}}",
            "{{i // 0}}",
            "{{s * 2}}",
            "{{f(c)}}",
            "{{f(c='x'}}",
            "{{9223372036854775807 + 1}}",
            "{{99999999999999999999}}",
            "{{i|int}}",
            "{{'%d' % i}}",
        ] {
            assert!(render(text).is_err(), "{text}");
        }
        let deep = format!("{{{{{}i{}}}}}", "(".repeat(10_000), ")".repeat(10_000));
        assert!(render(&deep).is_err());
    }
}
