//! Compares the table of formats in `docs/reference/formats.md` with the formats' types and ranks.

use std::sync::Arc;

use serde_json::json;
use zarr_format::model::{Array, DataType, FillValue, MAX_RANK, TimeUnit};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_export::formats::{FORMATS, Format, Subject};
use zarrfs_store::Key;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::request_context::UNLIMITED;

use super::documents::{FORMATS_PAGE, read, section, table_rows};

/// Returns an array whose type and shape the tests replace.
fn any_array() -> Array {
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [2], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [{"name": "bytes"}],
    });
    let store = MemoryStore::default();
    store.set(Key::new("zarr.json").unwrap(), document.to_string().into());
    let node = Hierarchy::new(Arc::new(store)).node(&UNLIMITED, &Key::root());
    node.unwrap().unwrap().array().unwrap().clone()
}

/// Returns the data types that the table of formats names, with those names.
fn types() -> Vec<(String, DataType)> {
    let numbers = |letter: &str, of: fn(usize) -> DataType, sizes: &[usize]| {
        let sizes = sizes
            .iter()
            .map(|&size| (format!("{letter}{size}"), of(size)));
        sizes.collect::<Vec<_>>()
    };
    let unit = TimeUnit {
        name: "s".to_string(),
        scale: 1,
    };
    let others = [
        ("bool", DataType::Bool),
        ("M8", DataType::DateTime(unit)),
        ("S", DataType::FixedBytes(3)),
        ("U", DataType::FixedText(3)),
        ("text", DataType::Text),
    ];
    [
        numbers("i", DataType::Int, &[1, 2, 4, 8]),
        numbers("u", DataType::UInt, &[1, 2, 4, 8]),
        numbers("f", DataType::Float, &[2, 4, 8]),
        numbers("c", DataType::Complex, &[8, 16]),
        others
            .map(|(name, data_type)| (name.to_string(), data_type))
            .into(),
    ]
    .concat()
}

/// Whether a cell of the table of formats, such as `bool i1-i8 f4`, includes a type.
fn names_type(cell: &str, name: &str) -> bool {
    cell.split([' ', ','])
        .any(|word| match word.split_once('-') {
            Some((first, last)) => {
                let size = |word: &str| word[1..].parse::<usize>().unwrap_or(0);
                let is_number = name.len() == 2 && first.starts_with(&name[..1]);
                is_number && (size(first)..=size(last)).contains(&size(name))
            }
            None => word == name,
        })
}

/// Returns the numbers of dimensions that a cell of the table of formats allows.
fn ranks(cell: &str) -> Vec<usize> {
    let words: Vec<&str> = cell.split(' ').collect();
    let number = |word: &str| word.parse::<usize>().unwrap();
    match words[..] {
        ["any"] => (1..=MAX_RANK).collect(),
        [first, "to", last] => (number(first)..=number(last)).collect(),
        [first, "or", "more"] => (number(first)..=MAX_RANK).collect(),
        [first, "or", last] => vec![number(first), number(last)],
        [only, "alone"] => vec![number(only)],
        _ => panic!("{cell}"),
    }
}

/// Returns the numbers of dimensions for which a format supports arrays of a data type.
fn ranks_of(format: &Format, like: &Array, data_type: &DataType) -> Vec<usize> {
    let holds = |rank: &usize| {
        let array = Array {
            shape: vec![1; *rank],
            data_type: data_type.clone(),
            fill_value: FillValue {
                bytes: vec![0; data_type.size().unwrap_or(0)],
                ..like.fill_value.clone()
            },
            ..like.clone()
        };
        format.holds(&Subject {
            name: b"a",
            ..Subject::alone(&array, &array.shape)
        })
    };
    (0..=MAX_RANK).filter(holds).collect()
}

/// Invariant of `the_errno_table_matches_the_program`.
#[test]
fn the_table_of_formats_matches_the_program() {
    let page = read(FORMATS_PAGE);
    let table = table_rows(section(&page, "## Formats of other programs"));
    let (like, mut seen) = (any_array(), Vec::new());
    for row in &table {
        let [names, held, dimensions, _] = &row[..] else {
            panic!("{row:?}")
        };
        seen.extend(names.split(", "));
        let name = names.split(", ").next().unwrap();
        let format = FORMATS
            .iter()
            .find(|format| format.extension == name)
            .unwrap();
        for (of_type, data_type) in types() {
            let found = ranks_of(format, &like, &data_type);
            let is_named =
                names_type(held, &of_type) || (held.starts_with("all but") && of_type != "text");
            let expected = if is_named {
                ranks(dimensions)
            } else {
                Vec::new()
            };
            let found: Vec<usize> = match dimensions.as_str() {
                "any" => found.into_iter().filter(|&rank| rank > 0).collect(),
                _ => found,
            };
            assert_eq!(found, expected, "{name}: {of_type}");
        }
    }
    // Formats that are not in the table, because the text above it describes them.
    let named = ["npy", "raw", "txt", "f.npy"];
    for format in FORMATS {
        let name = format.extension;
        assert!(named.contains(&name) || seen.contains(&name), "{name}");
    }
}
