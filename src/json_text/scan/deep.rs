//! Values that nest deeper than a call for each level may: read in a loop, of which a byte is held for each level.

use crate::error::Result;
use crate::json_text::scan::{Scanner, too_deep};

impl Scanner<'_> {
    /// Reads an object or a list and all in it without a call for each level.
    pub(super) fn deep_value(&mut self) -> Result<()> {
        if self.is_shallow {
            return Err(too_deep(self.place()));
        }
        // What closes each bracket that is open.
        let mut closing = Vec::new();
        loop {
            let close = match self.peek() {
                Some(b'{') => b'}',
                Some(b'[') => b']',
                _ => {
                    self.value()?;
                    if self.leave(&mut closing)? {
                        return Ok(());
                    }
                    continue;
                }
            };
            self.at += 1;
            self.skip_space();
            closing.push(close);
            if self.peek() != Some(close) {
                self.begin_item(close)?;
            } else if self.leave(&mut closing)? {
                return Ok(());
            }
        }
    }

    /// Reads what comes after a value, up to the next one; returns whether all brackets are closed.
    fn leave(&mut self, closing: &mut Vec<u8>) -> Result<bool> {
        while let Some(&close) = closing.last() {
            self.skip_space();
            if self.take(close) {
                closing.pop();
                continue;
            }
            if !self.take(b',') {
                let what = if close == b'}' { ", or }" } else { ", or ]" };
                return Err(self.expected(what));
            }
            self.skip_space();
            self.begin_item(close)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Reads what stands before a value in the brackets that `close` closes.
    fn begin_item(&mut self, close: u8) -> Result<()> {
        if close == b'}' {
            self.name()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::json_text::scan::{object, repeated, shallow};

    fn names(text: &str) -> Vec<String> {
        let found = object(text).unwrap().members.into_iter();
        found.map(|member| member.name).collect()
    }

    /// Returns an object with a value in so many lists or objects.
    fn nested(levels: usize, open: &str, value: &str, close: &str) -> String {
        format!(
            "{{\"a\": {}{value}{}, \"b\": 1}}",
            open.repeat(levels),
            close.repeat(levels)
        )
    }

    #[test]
    fn any_depth_is_taken_where_no_values_are_made() {
        for (open, close) in [("[", "]"), ("{\"x\": ", "}"), ("[{\"x\": [1, ", ", {}]} ]")] {
            for levels in [100, 126, 127, 128, 100_000] {
                let text = nested(levels, open, "[ ]", close);
                assert_eq!(names(&text), ["a", "b"], "{open} {levels}");
                assert_eq!(repeated(&text).unwrap(), None);
                for (value, close) in [("1 1", close), ("01", close), ("[,]", close), ("{}", "]}")]
                {
                    assert!(
                        object(&nested(levels, open, value, close)).is_err(),
                        "{open} {value}"
                    );
                }
            }
            assert!(shallow(&nested(41, open, "1", close)).is_ok());
            let told = shallow(&nested(100_000, open, "1", close))
                .unwrap_err()
                .to_string();
            assert!(told.contains("nest deeper than the 127 levels"), "{told}");
        }
        assert!(shallow(&nested(126, "[", "1", "]")).is_ok());
        assert!(shallow(&nested(127, "[", "1", "]")).is_err());
        assert!(object(&format!("{{\"a\": {}", "[".repeat(200_000))).is_err());
    }
}
