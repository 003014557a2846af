//! Prints the results of commands: output, errors and the exit status.

use std::io;
use std::io::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use zarr_format::error::{Error, Kind, Result, printable};

/// Exit status for a negative result: there are changes or conflicts.
pub(super) const NO: u8 = 1;

/// Exit status for wrong usage or a failure.
pub(super) const FAILED: u8 = 2;

/// The exit statuses of a form of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitPolicy {
    /// `zarrfs mount`: 2 for any error.
    Command,
    /// `mount.zarrfs`: the statuses of mount(8), which prints nothing on success.
    Helper,
    /// `zarrfs STORE DIR -o OPTIONS`: the statuses of mount(8).
    BareForm,
}

impl ExitPolicy {
    /// Returns the exit status of an error while mounting.
    pub(super) fn status(self, error: &Error) -> u8 {
        match (self, error.kind()) {
            (ExitPolicy::Command, _) => FAILED,
            // The statuses of mount(8): wrong usage, a system error, a failed mount.
            (_, Kind::Invalid | Kind::Denied) => 1,
            (_, Kind::NoSpace | Kind::Interrupted) => 2,
            _ => 32,
        }
    }

    /// Returns the exit status for arguments that cannot be parsed.
    pub(super) fn usage(self) -> u8 {
        match self {
            ExitPolicy::Command => FAILED,
            ExitPolicy::Helper | ExitPolicy::BareForm => 1,
        }
    }
}

/// Prints an error; returns the exit status.
pub(super) fn fail(status: u8, text: impl std::fmt::Display) -> ExitCode {
    warn(text);
    ExitCode::from(status)
}

/// Prints a message about a command that continues, escaped for a terminal.
pub(super) fn warn(text: impl std::fmt::Display) {
    // A closed stderr cannot be reported.
    let _ = writeln!(io::stderr(), "zarrfs: {}", printable(&text.to_string()));
}

/// Prints a question, escaped for a terminal; the answer follows on the same line.
pub(super) fn prompt(text: impl std::fmt::Display) {
    let mut stderr = io::stderr();
    let _ = write!(stderr, "{}", printable(&text.to_string()));
    let _ = stderr.flush();
}

/// Prints JSON as the result, with control characters escaped; a closed stdout is no error.
pub(super) fn print_json(value: &Value) {
    print(escaped(&format!("{value:#}")));
}

/// A JSON list that is printed item by item, in the format of `print_json`.
pub(super) struct JsonList {
    /// The text before the list.
    before: String,
    /// The text after the list.
    after: &'static str,
    /// The indentation of the items.
    indent: &'static str,
    has_items: bool,
}

impl JsonList {
    /// Builds a list that is the whole result.
    pub(super) fn plain() -> JsonList {
        JsonList {
            before: String::new(),
            after: "",
            indent: "  ",
            has_items: false,
        }
    }

    /// Builds the list `name` in an object, after the object's only other member `first`.
    pub(super) fn member(first: &str, value: &Value, name: &str) -> JsonList {
        let value = json_line(value);
        JsonList {
            before: format!("{{\n  \"{first}\": {value},\n  \"{name}\": "),
            after: "\n}",
            indent: "    ",
            has_items: false,
        }
    }

    /// Prints the next item; breaks if the reader has gone.
    pub(super) fn item(&mut self, item: &Value) -> ControlFlow<()> {
        let text = escaped(&format!("{item:#}")).replace('\n', &format!("\n{}", self.indent));
        let before = if self.has_items {
            ",\n".to_string()
        } else {
            format!("{}[\n", self.before)
        };
        self.has_items = true;
        write(format_args!("{before}{}{text}", self.indent))
    }

    /// Prints the end of the list.
    pub(super) fn end(self) {
        let JsonList { before, after, .. } = &self;
        let end = match (self.has_items, self.indent.get(2..)) {
            (true, Some(indent)) => format!("\n{indent}]"),
            _ => format!("{before}[]"),
        };
        print(format_args!("{end}{after}"));
    }
}

/// Returns JSON on one line, with control characters escaped.
pub(super) fn json_line(value: &Value) -> String {
    escaped(&value.to_string())
}

/// Escapes the characters in JSON strings that `printable` escapes in other text.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        let mut units = [0; 2];
        if letter == '\n' || printable(letter.encode_utf8(&mut [0; 4])).starts_with(letter) {
            out.push(letter);
        } else {
            let units = letter.encode_utf16(&mut units).iter();
            out.extend(units.map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out
}

/// Prints a line of the result; a closed stdout is no error.
pub(super) fn print(text: impl std::fmt::Display) {
    let _ = print_more(text);
}

/// Prints a line of the result; breaks if the reader has gone.
pub(super) fn print_more(text: impl std::fmt::Display) -> ControlFlow<()> {
    write(format_args!("{text}\n"))
}

fn write(text: std::fmt::Arguments<'_>) -> ControlFlow<()> {
    let mut out = io::stdout();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            record_write_failure(error);
            ControlFlow::Break(())
        }
    }
}

/// Writes bytes to stdout; returns false if the reader has gone.
pub(super) fn write_bytes(bytes: &[u8]) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Error::os("stdout", error)),
    }
}

/// Whether a write of the result has failed for a reason other than a reader that has gone.
static HAS_WRITE_FAILURE: AtomicBool = AtomicBool::new(false);

/// Reports once that the result could not be written; a reader that has gone is no error.
pub(super) fn record_write_failure(error: io::Error) {
    let is_fault = error.kind() != io::ErrorKind::BrokenPipe;
    if is_fault && !HAS_WRITE_FAILURE.swap(true, Ordering::Relaxed) {
        warn(Error::os("stdout", error));
    }
}

/// Whether a write of the result has failed; `record_write_failure` has reported it.
pub(super) fn has_write_failure() -> bool {
    HAS_WRITE_FAILURE.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_json_are_escaped() {
        let value = serde_json::json!({"a\u{202e}": "\u{9b}\n\u{1b}\u{e4}\\"});
        let text = escaped(&format!("{value:#}"));
        assert_eq!(
            text,
            "{\n  \"a\\u202e\": \"\\u009b\\n\\u001b\u{e4}\\\\\"\n}"
        );
        let read: Value = serde_json::from_str(&text).unwrap_or_default();
        assert_eq!(read, value);
        assert_eq!(
            json_line(&value),
            "{\"a\\u202e\":\"\\u009b\\n\\u001b\u{e4}\\\\\"}"
        );
    }
}
