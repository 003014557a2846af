//! Reads a Parquet file of references: those of consecutive chunks of one array.

use std::sync::Arc;

use super::pages::Place;
use super::parquet::{CellValue, ParquetFile};
use super::table::{Damage, GrowingMemory, Values, damaged_reference, part};
use super::targets::{Target, TargetBase, TargetNames};
use crate::backend::reference::Reference;
use crate::sync::budget::MemoryBudget;
use zarr_format::error::{Error, Result};

/// The chunk references of a Parquet file, by row.
pub(super) struct Records {
    places: Vec<Option<Place>>,
    values: Values,
    targets: Vec<Target>,
    _memory: GrowingMemory,
}

/// A row of a Parquet file of chunk references.
#[derive(Clone, Copy, Default)]
struct Row {
    url: Option<u32>,
    offset: i64,
    length: i64,
    raw: Option<Place>,
    is_damaged: bool,
}

impl Records {
    /// Reads a Parquet file with at most `count` chunk references.
    pub(super) fn new(
        file: &[u8],
        count: u64,
        base: &TargetBase,
        budget: &Arc<MemoryBudget>,
    ) -> Result<Records> {
        // The memory budget must also suffice for the file itself and a dictionary, so a decompressed column gets a
        // small part.
        let limit = usize::try_from(budget.limit() / 16).unwrap_or(usize::MAX);
        let mut memory = GrowingMemory::new(budget);
        memory.hold(file.len() as u64)?;
        let parquet = ParquetFile::new(file)?;
        let (mut values, mut targets) = (Values::default(), TargetNames::default());
        let mut rows = Rows {
            rows: Vec::new(),
            count,
            next: 0,
        };
        parquet.read_column("path", limit, |cell| {
            let row = rows.next()?;
            if let Some(CellValue::Bytes(url)) = cell {
                match std::str::from_utf8(url) {
                    Ok(url) => row.url = targets.number(url),
                    Err(_) => row.is_damaged = true,
                }
            }
            let held = file.len() as u64 + targets.held() + rows.held();
            memory.hold(held)
        })?;
        for name in ["offset", "size"] {
            rows.next = 0;
            parquet.read_column(name, limit, |cell| {
                let row = rows.next()?;
                if let Some(CellValue::Number(number)) = cell {
                    let place = if name == "size" {
                        &mut row.length
                    } else {
                        &mut row.offset
                    };
                    *place = number;
                }
                memory.hold(file.len() as u64 + targets.held() + rows.held())
            })?;
        }
        rows.next = 0;
        parquet.read_column("raw", limit, |cell| {
            let row = rows.next()?;
            if let Some(CellValue::Bytes(value)) = cell {
                row.raw = values.add(value);
            }
            memory.hold(file.len() as u64 + targets.held() + rows.held() + values.held())
        })?;
        values.close();
        let places: Vec<Option<Place>> = rows.rows.iter().map(Row::place).collect();
        let expanded = targets.expand(|target| Ok(base.resolve(target)));
        let held = places.len() * size_of::<Option<Place>>();
        let held = held as u64 + values.held() + expanded.held;
        memory.hold(held)?;
        memory.release_to(held);
        Ok(Records {
            places,
            values,
            targets: expanded.list,
            _memory: memory,
        })
    }

    /// Returns no references, as for a missing Parquet file.
    pub(super) fn none(budget: &Arc<MemoryBudget>) -> Records {
        Records {
            places: Vec::new(),
            values: Values::default(),
            targets: Vec::new(),
            _memory: GrowingMemory::new(budget),
        }
    }

    pub(super) fn has(&self, position: u64) -> bool {
        self.place(position).is_some()
    }

    fn place(&self, position: u64) -> Option<Place> {
        *self.places.get(usize::try_from(position).ok()?)?
    }

    /// Returns the chunk reference in a row, or `None` if the row has none.
    pub(super) fn get(&self, position: u64) -> Result<Option<Reference>> {
        Ok(Some(match self.place(position) {
            None => return Ok(None),
            Some(Place::Inline {
                block,
                start,
                length,
            }) => {
                let value = self.values.get(block, start, length);
                Reference::Inline(value.ok_or_else(|| damaged_reference(Damage::NoReference))?)
            }
            Some(Place::Damaged { .. }) => return Err(damaged_reference(Damage::NoNumber)),
            Some(Place::Part {
                url,
                offset,
                length,
            }) => part(&self.targets, url, offset, length)?,
        }))
    }
}

impl Row {
    /// Returns where the chunk's bytes are, or `None` if the row has no reference.
    fn place(&self) -> Option<Place> {
        if self.raw.is_some() {
            return self.raw;
        }
        let damaged = Place::Damaged {
            reason: Damage::NoNumber as u32,
        };
        if self.is_damaged {
            return Some(damaged);
        }
        let url = self.url?;
        let (Ok(offset), Ok(length)) = (u64::try_from(self.offset), u64::try_from(self.length))
        else {
            return Some(damaged);
        };
        Some(Place::Part {
            url,
            offset,
            // In a reference to a whole object, offset and length are 0.
            length: (offset > 0 || length > 0).then_some(length),
        })
    }
}

/// The rows of a Parquet file while it is read. Each column fills its own field in all rows.
struct Rows {
    rows: Vec<Row>,
    /// Maximum number of rows.
    count: u64,
    next: usize,
}

impl Rows {
    /// Returns the next row for the current column, or fails if the file has too many rows.
    fn next(&mut self) -> Result<&mut Row> {
        if self.next as u64 >= self.count {
            let why = format!(
                "the file has more than {} references, its record_size",
                self.count
            );
            return Err(Error::corrupt("", why));
        }
        self.next += 1;
        if self.rows.len() < self.next {
            self.rows.push(Row::default());
        }
        let row = self.rows.get_mut(self.next - 1);
        row.ok_or_else(|| Error::corrupt("", "a row is missing"))
    }

    fn held(&self) -> u64 {
        (self.rows.capacity() * size_of::<Row>()) as u64
    }
}

/// Tests files of fastparquet and pyarrow with 8 rows each: five ranges, inline bytes, no reference, a whole object.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::reference::Location;
    use crate::stats::Stats;
    use zarr_format::error::Kind;

    const SAMPLES: [&[u8]; 3] = [
        include_bytes!("parquet/samples/fastparquet.parq"),
        include_bytes!("parquet/samples/pyarrow.parq"),
        // This file has pages of version 2 with snappy, in two row groups.
        include_bytes!("parquet/samples/pages_2.parq"),
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
    fn rows_are_read_as_references() {
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
    fn a_damaged_file_causes_no_panic() {
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
}
