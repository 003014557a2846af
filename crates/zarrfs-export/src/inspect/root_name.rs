//! Names the files of the root node in the files view.

/// Returns the name of the root's own files in the files view: the store's name without extensions such as `.zarr`.
pub fn root_name(source: &str) -> String {
    let folder =
        zarrfs_store::local_folder(source).and_then(|folder| std::fs::canonicalize(folder).ok());
    let path = folder.map_or_else(
        || source.to_string(),
        |folder| folder.to_string_lossy().into_owned(),
    );
    let name = path
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    let bare = [".zip", ".zarr", ".n5"]
        .iter()
        .fold(name, |name, end| without_ending(name, end));
    if bare.is_empty() {
        "root".to_string()
    } else {
        bare.to_string()
    }
}

/// Removes an ending, in upper or lower case.
fn without_ending<'a>(name: &'a str, ending: &str) -> &'a str {
    let parts = name
        .len()
        .checked_sub(ending.len())
        .and_then(|length| name.split_at_checked(length));
    match parts {
        Some((bare, end)) if end.eq_ignore_ascii_case(ending) => bare,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_named_after_the_store() {
        assert_eq!(root_name("s3://bucket/a/data.zarr/"), "data");
        assert_eq!(root_name("s3://bucket/data.zarr.zip"), "data");
        assert_eq!(root_name("s3://bucket/data.zarr.ZIP"), "data");
        assert_eq!(root_name("s3://bucket/data.zarr.zip/in/ner"), "ner");
        assert_eq!(root_name("s3://bucket/\u{e4}ip"), "\u{e4}ip");
        assert_eq!(root_name("/no/such/.zarr"), "root");
    }
}
