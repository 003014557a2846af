//! Tests with files of fastparquet and pyarrow. Each has 8 rows: five ranges, a value, nothing, a whole object.

use std::sync::Arc;

use super::super::records::Records;
use super::super::targets::TargetBase;
use crate::backend::reference::{Location, Reference};
use crate::stats::Stats;
use crate::sync::budget::MemoryBudget;
use zarr_format::error::{Kind, Result};

const SAMPLES: [&[u8]; 3] = [
    include_bytes!("samples/fastparquet.parq"),
    include_bytes!("samples/pyarrow.parq"),
    // Pages of version 2 with snappy, in two groups of rows.
    include_bytes!("samples/pages_2.parq"),
];

fn records(file: &[u8], count: u64, memory: u64) -> Result<Records> {
    let budget = MemoryBudget::new(memory, Arc::new(Stats::default()));
    Records::new(file, count, &TargetBase::new("/"), &budget)
}

fn shown(records: &Records, position: u64) -> String {
    match records.get(position) {
        Err(error) => format!("error: {error}"),
        Ok(None) => String::new(),
        Ok(Some(Reference::Inline(bytes))) => format!("{bytes:?}"),
        Ok(Some(Reference::Part(part))) => {
            let Location::Url(url) = &part.location else {
                panic!("in a repository");
            };
            format!("{url} {} {:?}", part.offset, part.length)
        }
    }
}

#[test]
fn rows_are_references() {
    for (number, file) in SAMPLES.iter().enumerate() {
        let records = records(file, 8, 1 << 20).unwrap();
        let shown: Vec<String> = (0..9).map(|position| shown(&records, position)).collect();
        let expected = [
            "s3://b/a.nc 0 Some(10)",
            "s3://b/a.nc 10 Some(10)",
            "s3://b/a.nc 20 Some(10)",
            "s3://b/a.nc 30 Some(10)",
            "s3://b/a.nc 40 Some(10)",
            "b\"inline\"",
            "",
            "s3://b/b.nc 0 None",
            "",
        ];
        assert_eq!(shown, expected, "{number}");
        assert!(records.has(7) && !records.has(6) && !records.has(8));
    }
}

#[test]
fn files_with_too_many_rows_or_bytes_are_errors() {
    for file in SAMPLES {
        assert_eq!(
            records(file, 7, 1 << 20).err().unwrap().kind(),
            Kind::Corrupt
        );
        assert_eq!(
            records(file, 8, 1 << 8).err().unwrap().kind(),
            Kind::TooLarge
        );
    }
}

#[test]
fn no_damage_of_a_file_is_a_panic() {
    for file in SAMPLES {
        for length in 0..file.len() {
            assert!(records(&file[..length], 8, 1 << 20).is_err(), "{length}");
        }
        for position in 0..file.len() {
            for flip in [1, 16, 128] {
                let mut file = file.to_vec();
                file[position] ^= flip;
                if let Ok(records) = records(&file, 8, 1 << 20) {
                    (0..9).for_each(|position| drop(shown(&records, position)));
                }
            }
        }
    }
}
