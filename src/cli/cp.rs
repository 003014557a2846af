//! `zarrfs cp`: an array, or selected elements of it, as a file in any format that the files view has.
//!
//! How the file comes to be is left to `output_file`.

use super::cat::{open_array, select};
use super::output_file::OutputFile;
use super::progress::Progress;
use super::source_array::{SourceArray, in_group};
use super::{CpArgs, progress};
use crate::error::Result;
use crate::inspect::file_ending::{FileContent, not_a_format};
use crate::inspect::written_file::write_file;

/// Writes the file.
pub(super) fn cp(args: &CpArgs) -> Result<bool> {
    let (path, selection) = split(&args.path);
    let content = content_of(args)?;
    let located = args.store.open(path)?;
    let located = in_group(&args.store, path, located);
    let array = open_array(&located)?;
    let selection = select((&args.store, path), &located, selection.unwrap_or("..."))?;
    let element = array.array().element_size().unwrap_or(0) as u64;
    let total = selection
        .shape()
        .iter()
        .fold(element, |all, &length| all.saturating_mul(length));
    let file = OutputFile::create(&args.file)?;
    let bar = Progress::new(progress::BYTES);
    let mut done = 0;
    let source = SourceArray::of(&located, array)?;
    write_file(&source.described(), &selection, content, &mut |bytes| {
        file.write(bytes)?;
        done += bytes.len() as u64;
        bar.show(done.min(total), total);
        Ok(true)
    })?;
    file.keep()?;
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
    if let Some(name) = &args.format {
        return FileContent::of_format(name);
    }
    let file = args.file.to_string_lossy();
    let why = "has no ending that names a format";
    FileContent::of_name(&file).ok_or_else(|| not_a_format(&file, why))
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
