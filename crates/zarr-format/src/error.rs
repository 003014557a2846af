//! Defines the error type and maps each kind of error to an errno.
//!
//! A kind names the fault, not its location; every error has the key or path that it is about. No other module names an
//! errno. Errors are logged once, at the edge (`fuse`, `main`): a module below returns an error and does not log it.

use std::fmt;

/// The result of every fallible function.
pub type Result<T> = std::result::Result<T, Error>;

/// Kind of an error. The errno table of `docs/reference/errors.md` lists each variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No file or key has the given name.
    NotFound,
    /// A name, format or option that only an earlier version of the program supported.
    Removed,
    /// A decoded file that its array or group cannot have, because of the metadata.
    NoFile,
    /// A file where a directory is needed.
    NotADirectory,
    /// A directory where a file is needed.
    IsADirectory,
    /// A file or directory of that name exists already.
    Exists,
    /// The directory is not empty.
    NotEmpty,
    /// The mount, the view or the codec cannot be written.
    ReadOnly,
    /// The store refused access (401, 403, or permissions of a local file), or the file cannot be written.
    Denied,
    /// An argument that is not valid.
    Invalid,
    /// A name of more than 255 bytes.
    NameTooLong,
    /// A codec, data type or format that is not supported.
    Unsupported,
    /// Metadata that do not parse, or a chunk that does not decode or fails its checksum.
    Corrupt,
    /// The store does not respond, or responds too late.
    Unavailable,
    /// The store no longer exists: its directory or all of its keys were removed.
    Gone,
    /// The object in the store has changed since it was opened.
    Changed,
    /// Data that exceed a limit or the memory budget.
    TooLarge,
    /// No space left for a write.
    NoSpace,
    /// A rename or link from one view of a mount to another, or a rename that the store cannot do.
    CrossDevice,
    /// The calling program was interrupted while it waited.
    Interrupted,
    /// The response is not ready, and the caller must not block. No program sees this error: the request is retried in
    /// another thread.
    WouldWait,
    /// A change to an array while another of its files is open for writing.
    Busy,
    /// An operation that a mount never permits, such as creating a device.
    NotPermitted,
    /// An extended attribute that is not set.
    NoAttribute,
    /// A file that already has the maximum number of hard links.
    TooManyLinks,
    /// The process or the machine has too many open files.
    TooManyFiles,
}

impl Kind {
    /// Every kind of error that programs can see, in the order of the table in `docs/reference/errors.md`.
    pub const ALL: [Kind; 25] = [
        Kind::NotFound,
        Kind::Removed,
        Kind::NoFile,
        Kind::NotADirectory,
        Kind::IsADirectory,
        Kind::Exists,
        Kind::NotEmpty,
        Kind::ReadOnly,
        Kind::Denied,
        Kind::Invalid,
        Kind::NameTooLong,
        Kind::Unsupported,
        Kind::Corrupt,
        Kind::Unavailable,
        Kind::Gone,
        Kind::Changed,
        Kind::TooLarge,
        Kind::NoSpace,
        Kind::CrossDevice,
        Kind::Interrupted,
        Kind::Busy,
        Kind::NotPermitted,
        Kind::NoAttribute,
        Kind::TooManyLinks,
        Kind::TooManyFiles,
    ];

    /// Whether programs see errors of this kind in normal operation, so that they are no sign of a fault.
    pub fn is_ordinary(self) -> bool {
        use Kind::{CrossDevice, Exists, Interrupted, IsADirectory, NameTooLong, NoAttribute};
        use Kind::{NotADirectory, NotEmpty, NotFound, TooManyLinks};
        matches!(
            self,
            NotFound
                | NotADirectory
                | IsADirectory
                | Exists
                | NotEmpty
                | NameTooLong
                | CrossDevice
                | Interrupted
                | NoAttribute
                | TooManyLinks
        )
    }

    /// Returns the errno that a program sees for errors of this kind.
    pub fn errno(self) -> i32 {
        match self {
            Kind::NotFound | Kind::Removed | Kind::NoFile => libc::ENOENT,
            Kind::NotADirectory => libc::ENOTDIR,
            Kind::IsADirectory => libc::EISDIR,
            Kind::Exists => libc::EEXIST,
            Kind::NotEmpty => libc::ENOTEMPTY,
            Kind::ReadOnly => libc::EROFS,
            // EACCES, not EPERM, because the store denies access to a single object or file, not to an operation.
            Kind::Denied => libc::EACCES,
            Kind::Invalid => libc::EINVAL,
            Kind::NameTooLong => libc::ENAMETOOLONG,
            // Not ENOSYS, because the kernel would then never send a request of that type again.
            Kind::Unsupported => libc::EOPNOTSUPP,
            Kind::Corrupt => libc::EIO,
            // Not EAGAIN or ETIMEDOUT, because programs retry or misread these errors on files.
            Kind::Unavailable | Kind::Gone | Kind::WouldWait => libc::EIO,
            Kind::Changed => libc::ESTALE,
            Kind::TooLarge => libc::EFBIG,
            Kind::NoSpace => libc::ENOSPC,
            Kind::CrossDevice => libc::EXDEV,
            Kind::Interrupted => libc::EINTR,
            Kind::Busy => libc::EBUSY,
            Kind::NotPermitted => libc::EPERM,
            Kind::NoAttribute => libc::ENODATA,
            Kind::TooManyLinks => libc::EMLINK,
            // Not EMFILE, because the calling program does not have too many open files itself.
            Kind::TooManyFiles => libc::ENFILE,
        }
    }
}

/// An error: its kind, the key or path that it is about (its subject), and details.
#[derive(Clone, Debug)]
pub struct Error {
    kind: Kind,
    subject: String,
    detail: String,
    /// The error before `about` replaced its subject by a wider one.
    inner: Option<Box<Error>>,
}

impl Error {
    /// Builds an error about `subject` (a key, a path, an option).
    pub fn new(kind: Kind, subject: impl fmt::Display, detail: impl fmt::Display) -> Error {
        Error {
            kind,
            subject: subject.to_string(),
            detail: without_os_numbers(detail.to_string()),
            inner: None,
        }
    }

    /// Returns the error for metadata or a chunk that cannot be parsed, decoded or verified.
    pub fn corrupt(subject: impl fmt::Display, detail: impl fmt::Display) -> Error {
        Error::new(Kind::Corrupt, subject, detail)
    }

    /// Returns the error for a codec, data type or feature that is not supported.
    pub fn unsupported(subject: impl fmt::Display, detail: impl fmt::Display) -> Error {
        Error::new(Kind::Unsupported, subject, detail)
    }

    /// Returns the error for an argument that is not valid.
    pub fn invalid(subject: impl fmt::Display, detail: impl fmt::Display) -> Error {
        Error::new(Kind::Invalid, subject, detail)
    }

    /// Returns the error for a name that no file or key has.
    pub fn not_found(subject: impl fmt::Display) -> Error {
        Error::new(Kind::NotFound, subject, "no such file or key")
    }

    /// Returns the error for a store that does not respond, or responds too late.
    pub fn unavailable(subject: impl fmt::Display, detail: impl fmt::Display) -> Error {
        Error::new(Kind::Unavailable, subject, detail)
    }

    /// Returns the error for data that exceed a limit.
    pub fn too_large(subject: impl fmt::Display, detail: impl fmt::Display) -> Error {
        Error::new(Kind::TooLarge, subject, detail)
    }

    /// Returns the error for a change to a read-only mount.
    pub fn read_only(subject: impl fmt::Display) -> Error {
        Error::new(Kind::ReadOnly, subject, "the mount is read-only")
    }

    /// Converts an error of the operating system about `subject`.
    pub fn os(subject: impl fmt::Display, error: impl Into<std::io::Error>) -> Error {
        let error = error.into();
        let kind = match error.raw_os_error() {
            Some(libc::ENOENT) => Kind::NotFound,
            Some(libc::ENOTDIR) => Kind::NotADirectory,
            Some(libc::EISDIR) => Kind::IsADirectory,
            Some(libc::EEXIST) => Kind::Exists,
            Some(libc::ENOTEMPTY) => Kind::NotEmpty,
            Some(libc::EROFS) => Kind::ReadOnly,
            Some(libc::EACCES | libc::EPERM) => Kind::Denied,
            Some(libc::EINVAL) => Kind::Invalid,
            Some(libc::ENAMETOOLONG) => Kind::NameTooLong,
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => Kind::Unsupported,
            Some(libc::ESTALE) => Kind::Changed,
            Some(libc::EFBIG | libc::EOVERFLOW) => Kind::TooLarge,
            Some(libc::ENOSPC | libc::EDQUOT) => Kind::NoSpace,
            Some(libc::EXDEV) => Kind::CrossDevice,
            Some(libc::EINTR) => Kind::Interrupted,
            Some(libc::EBUSY) => Kind::Busy,
            Some(libc::ENODATA) => Kind::NoAttribute,
            Some(libc::EMLINK) => Kind::TooManyLinks,
            Some(libc::EMFILE | libc::ENFILE) => Kind::TooManyFiles,
            _ => Kind::Unavailable,
        };
        if error.raw_os_error() == Some(libc::EFBIG) {
            let why = format!("{error}; see 'ulimit -f' for the limit on the size of files");
            return Error::new(kind, subject, why);
        }
        Error::new(kind, subject, error)
    }

    /// Converts an error of the operating system about a file that the daemon uses itself. `TooLarge` becomes
    /// `NoSpace`: it means that the file cannot grow, not that the request was too large.
    pub fn os_own_file(subject: impl fmt::Display, error: impl Into<std::io::Error>) -> Error {
        let mut error = Error::os(subject, error);
        if error.kind == Kind::TooLarge {
            error.kind = Kind::NoSpace;
        }
        error
    }

    /// Makes `subject`, such as the path of an array, the subject of the error; the former subject, such as a chunk,
    /// goes to the details.
    pub fn about(mut self, subject: impl fmt::Display) -> Error {
        if self.subject.is_empty() {
            self.subject = subject.to_string();
            return self;
        }
        Error {
            kind: self.kind,
            subject: subject.to_string(),
            detail: format!("{}: {}", self.subject, self.detail),
            inner: Some(Box::new(self)),
        }
    }

    /// Returns the error before `about` made `subject` its subject, or the error itself if `about` did not.
    pub fn within(&self, subject: &str) -> &Error {
        match &self.inner {
            Some(inner) if self.subject == subject => inner.within(subject),
            _ => self,
        }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the errno that a program on the mount sees for the error.
    pub fn errno(&self) -> i32 {
        self.kind.errno()
    }

    /// Returns the key or path that the error is about, or an empty string.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the details of the error, without its subject.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.subject.is_empty() {
            return f.write_str(&printable(&self.detail));
        }
        write!(
            f,
            "{}: {}",
            printable(&self.subject),
            printable(&self.detail)
        )
    }
}

impl std::error::Error for Error {}

/// Removes the numbers that Rust appends to errors of the operating system, as in ` (os error 2)`.
pub fn without_os_numbers(mut text: String) -> String {
    let mark = " (os error ";
    while let Some(start) = text.find(mark) {
        let digits = start + mark.len();
        match text[digits..].find(')') {
            Some(length) => text.replace_range(start..=digits + length, ""),
            None => break,
        }
    }
    text
}

/// Whether a terminal hides a character or interprets it as a command.
fn is_hidden(c: char) -> bool {
    // Characters beyond ASCII of the Unicode general categories Cc, Cf, Zl and Zp.
    c.is_ascii_control()
        || matches!(c, '\u{0080}'..='\u{009f}' | '\u{00ad}' | '\u{0600}'..='\u{0605}' | '\u{061c}' | '\u{06dd}' | '\u{070f}' | '\u{0890}'..='\u{0891}' | '\u{08e2}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}' | '\u{e0020}'..='\u{e007f}')
}

/// Returns `text` with control, bidirectional and zero-width characters escaped, safe for a terminal or a log.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_and_the_subject_precede_the_message() {
        let error = Error::corrupt("", "unexpected end")
            .about("a/c/0")
            .about("a");
        assert_eq!(error.to_string(), "a: a/c/0: unexpected end");
        assert_eq!(error.within("a").to_string(), "a/c/0: unexpected end");
        assert_eq!(error.within("b").to_string(), error.to_string());
    }

    #[test]
    fn only_hidden_characters_are_escaped() {
        let hidden = [
            0x7f, 0x85, 0xad, 0x61c, 0x180e, 0x200b, 0x2028, 0x2029, 0x202e, 0x2060, 0x206a,
            0x206f, 0xfeff, 0xfff9, 0xfffb, 0xe0001, 0xe0020, 0xe007f,
        ];
        for number in hidden {
            let letter = char::from_u32(number).unwrap();
            let expected = format!("a\\u{{{number:x}}}");
            assert_eq!(printable(&format!("a{letter}")), expected);
        }
        let plain = "a~ \u{a0}\u{e9}\u{623}\u{e000}\u{fffd}\u{1f600}";
        assert_eq!(printable(plain), plain);
    }

    #[test]
    fn operating_system_errors_are_printed_without_numbers() {
        let missing = std::io::Error::from_raw_os_error(libc::ENOENT);
        let text = Error::os("a", missing).to_string();
        assert_eq!(text, "a: No such file or directory");
        let twice = "x (os error 2): y (os error 13)".to_string();
        assert_eq!(without_os_numbers(twice), "x: y");
        let open = "x (os error 2".to_string();
        assert_eq!(without_os_numbers(open.clone()), open);
    }

    #[test]
    fn terminal_escapes_are_not_printed() {
        let error = Error::not_found("\u{1b}[2J\u{202e}x");
        assert_eq!(
            error.to_string(),
            "\\u{1b}[2J\\u{202e}x: no such file or key"
        );
    }
}
