//! `zarrfs cp`: an array, or selected elements of it, as a file in any format that the files view has.
//!
//! The file appears under its name when all of it is written, and what was there before stays until then.

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::cat::{open_array, select};
use super::progress::Progress;
use super::{CpArgs, progress};
use crate::error::{Error, Result};
use crate::export::FORMATS;
use crate::inspect::file_ending::FileContent;
use crate::inspect::written_file::write_file;

/// Writes the file.
pub(super) fn cp(args: &CpArgs) -> Result<bool> {
    let (path, selection) = split(&args.path);
    let content = content_of(args)?;
    let located = args.store.open(path)?;
    let array = open_array(&located)?;
    let selection = select((&args.store, path), &located, selection.unwrap_or("..."))?;
    let element = array.array().element_size().unwrap_or(0) as u64;
    let total = selection
        .shape()
        .iter()
        .fold(element, |all, &length| all.saturating_mul(length));
    let partial = PartialFile::create(&args.file)?;
    let bar = Progress::new(progress::BYTES);
    let mut done = 0;
    let node = located.opened.hierarchy.node(&located.path)?;
    let described = node.as_ref().and_then(|node| node.array());
    let described = (&array, described.unwrap_or(array.array()));
    write_file(described, &selection, content, &mut |bytes| {
        partial.write(bytes)?;
        done += bytes.len() as u64;
        bar.show(done.min(total), total);
        Ok(true)
    })?;
    partial.keep()?;
    Ok(true)
}

/// Splits a selection off a path: what follows the last `@`, if it can be one.
pub(super) fn split(path: &str) -> (&str, Option<&str>) {
    let is_selection = |text: &str| {
        let fits = |c: char| c.is_ascii_digit() || "[]:,.- ".contains(c);
        let is_named = text.contains('=') && !text.contains(['/', '?', '&']);
        is_named || text.chars().all(fits)
    };
    match path.rsplit_once('@') {
        Some((path, selection)) if is_selection(selection) => (path, Some(selection)),
        _ => (path, None),
    }
}

/// Returns what was asked for, or what the file's ending asks for.
fn content_of(args: &CpArgs) -> Result<FileContent> {
    let file = args.file.to_string_lossy();
    let (content, shown, why) = match &args.format {
        Some(name) => (
            FileContent::of_name(&format!(".{name}")),
            &**name,
            "not a format",
        ),
        None => (
            FileContent::of_name(&file),
            &*file,
            "has no ending that names a format",
        ),
    };
    content.ok_or_else(|| {
        let names = FORMATS.iter().map(|format| format.extension);
        let names: Vec<&str> = names.chain(["png"]).collect();
        let why = format!("{why}; there are {}, and cf before any", names.join(", "));
        Error::invalid(shown, why)
    })
}

/// A file that has another name until it is whole.
struct PartialFile<'a> {
    path: &'a Path,
    partial: PathBuf,
    file: File,
}

impl PartialFile<'_> {
    fn create(path: &Path) -> Result<PartialFile<'_>> {
        let name = path.file_name().filter(|_| !path.is_dir());
        let name = name.ok_or_else(|| Error::invalid(path.display(), "is a directory"))?;
        let mut partial = OsString::from(".");
        partial.push(name);
        partial.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(partial);
        let file = File::create(&partial).map_err(|error| Error::os(path.display(), error))?;
        Ok(PartialFile {
            path,
            partial,
            file,
        })
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        let failed = |error| Error::os(self.path.display(), error);
        (&self.file).write_all(bytes).map_err(failed)
    }

    fn keep(&self) -> Result<()> {
        let failed = |error| Error::os(self.path.display(), error);
        fs::rename(&self.partial, self.path).map_err(failed)
    }
}

impl Drop for PartialFile<'_> {
    fn drop(&mut self) {
        // A file that was kept has left this name.
        let _ = fs::remove_file(&self.partial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_what_can_be_one() {
        assert_eq!(split("a.zarr/b@0,:,1:-2"), ("a.zarr/b", Some("0,:,1:-2")));
        assert_eq!(split("a@b/c"), ("a@b/c", None));
        assert_eq!(split("s3://u@h/a@[...]"), ("s3://u@h/a", Some("[...]")));
        assert_eq!(split("a@"), ("a", Some("")));
        let named = ("a/b", Some("time=2020-01-01,lat=10:20"));
        assert_eq!(split("a/b@time=2020-01-01,lat=10:20"), named);
        assert_eq!(split("http://u@h/a?b=c"), ("http://u@h/a?b=c", None));
    }
}
