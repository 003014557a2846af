//! Prints the output and the errors of commands, and chooses the exit status.

use std::io;
use std::io::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use zarr_format::error::{Error, Kind, Result, printable};

/// Exit status of a command that succeeds with a negative result, such as conflicts or differences.
pub(super) const NO: u8 = 1;

/// Exit status of a command that fails or has wrong arguments.
pub(super) const FAILED: u8 = 2;

/// The exit statuses of the different forms of the mount command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitPolicy {
    /// `zarrfs mount`: any error is exit status 2.
    Command,
    /// `mount.zarrfs`: the exit statuses of mount(8), and no output on success.
    Helper,
    /// `zarrfs STORE DIR -o OPTIONS`: the exit statuses of mount(8).
    BareForm,
}

impl ExitPolicy {
    /// Returns the exit status for an error of the mount command.
    pub(super) fn status(self, error: &Error) -> u8 {
        match (self, error.kind()) {
            (ExitPolicy::Command, _) => FAILED,
            // mount(8) defines 1 for wrong usage, 2 for a system error and 32 for a failed mount.
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

/// Prints an error to stderr, and returns `status` as exit code.
pub(super) fn fail(status: u8, text: impl std::fmt::Display) -> ExitCode {
    warn(text);
    ExitCode::from(status)
}

/// Prints a warning to stderr, with control characters escaped.
pub(super) fn warn(text: impl std::fmt::Display) {
    // The result is ignored: an error of stderr cannot be reported anywhere.
    let _ = writeln!(io::stderr(), "zarrfs: {}", printable(&text.to_string()));
}

/// Prints a question to stderr, with control characters escaped and without a line break after it.
pub(super) fn prompt(text: impl std::fmt::Display) {
    let mut stderr = io::stderr();
    let _ = write!(stderr, "{}", printable(&text.to_string()));
    let _ = stderr.flush();
}

/// Prints JSON to stdout in indented form, with control characters escaped.
pub(super) fn print_json(value: &Value) {
    print(escaped(&format!("{value:#}")));
}

/// A JSON list that is printed item by item, in the format of `print_json`.
pub(super) struct JsonList {
    before: String,
    after: &'static str,
    indent: &'static str,
    has_items: bool,
}

impl JsonList {
    /// Builds a list that is a whole JSON document.
    pub(super) fn plain() -> JsonList {
        JsonList {
            before: String::new(),
            after: "",
            indent: "  ",
            has_items: false,
        }
    }

    /// Builds the list `name` in a JSON object whose only other member is `first`, before the list.
    pub(super) fn member(first: &str, value: &Value, name: &str) -> JsonList {
        let value = json_line(value);
        JsonList {
            before: format!("{{\n  \"{first}\": {value},\n  \"{name}\": "),
            after: "\n}",
            indent: "    ",
            has_items: false,
        }
    }

    /// Prints the next item; breaks if the reader of stdout has closed it.
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

    /// Prints the end of the JSON list and of its object.
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

/// Escapes control characters in JSON as `\uXXXX`.
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

/// Prints a line to stdout; a stdout that its reader has closed is no error.
pub(super) fn print(text: impl std::fmt::Display) {
    let _ = print_more(text);
}

/// Prints a line to stdout; breaks if the reader of stdout has closed it.
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

/// Writes bytes to stdout; returns false if the reader of stdout has closed it.
pub(super) fn write_bytes(bytes: &[u8]) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Error::os("stdout", error)),
    }
}

/// Whether a write to stdout has failed, other than because its reader closed it.
static HAS_WRITE_FAILURE: AtomicBool = AtomicBool::new(false);

/// Reports the first failed write to stdout; a stdout that its reader has closed is no error.
pub(super) fn record_write_failure(error: io::Error) {
    let is_fault = error.kind() != io::ErrorKind::BrokenPipe;
    if is_fault && !HAS_WRITE_FAILURE.swap(true, Ordering::Relaxed) {
        warn(Error::os("stdout", error));
    }
}

/// Whether a write to stdout has failed, which makes the command fail.
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
