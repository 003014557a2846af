//! Stores the references of a kerchunk file, sorted by key.
//!
//! References come in any order. They are sorted in batches, and the batches are merged, so that building the table
//! takes hardly more memory than the table itself. If a key has several references, the last one is used.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::request_context::RequestContext;
use crate::sync::budget::{MemoryBudget, Reservation};
use crate::{EntryKind, HiddenEntries, Key, Listing, Name};
use zarr_format::error::{Error, Result};

use super::pages::{Cursor, Entries, PageWriter, Pages, Place, SEPARATOR};
use super::targets::{Target, TargetNames};
use crate::backend::reference::{Entry, Location, Part, PartIdentity, Reference};

/// The messages for damaged references, indexed by `Damage`.
const REASONS: [&str; 4] = [
    "the reference is neither text nor [URL] nor [URL, OFFSET, LENGTH]",
    "the offset or length of the reference is not a number from 0 on",
    "the text after 'base64:' is not base64",
    "the URL of the reference is not UTF-8",
];

/// What is wrong with a damaged reference.
#[derive(Clone, Copy)]
pub(super) enum Damage {
    NoReference,
    NoNumber,
    NoBase64,
    NoUtf8,
}

/// The references of a kerchunk file, sorted by key.
pub(super) struct Table {
    pages: Pages,
    values: Values,
    targets: Vec<Target>,
    _memory: GrowingMemory,
}

/// Collects references in any order, and sorts them.
pub(super) struct TableBuilder {
    memory: GrowingMemory,
    names: Vec<u8>,
    records: Vec<Record>,
    batch: u64,
    runs: Vec<Pages>,
    runs_held: u64,
    values: Values,
    targets: TargetNames,
    hidden: Arc<HiddenEntries>,
}

/// A reference in the current batch. `start` and `length` locate its key in `names`.
struct Record {
    start: u32,
    length: u32,
    place: Place,
}

impl TableBuilder {
    /// Creates an empty builder. Keys that are not valid paths are left out and recorded in `hidden`.
    pub(super) fn new(memory: &Arc<MemoryBudget>, hidden: &Arc<HiddenEntries>) -> TableBuilder {
        TableBuilder {
            memory: GrowingMemory::new(memory),
            names: Vec::new(),
            records: Vec::new(),
            // A batch (references that are sorted together) takes at most 48 MiB.
            batch: (memory.limit() / 8).min(48 << 20),
            runs: Vec::new(),
            runs_held: 0,
            values: Values::default(),
            targets: TargetNames::default(),
            hidden: hidden.clone(),
        }
    }

    /// Returns the maximum length, in bytes, of a value in a reference file.
    pub(super) fn limit(&self) -> u64 {
        self.memory.budget().limit() / 2
    }

    pub(super) fn clear(&mut self) {
        let (memory, hidden) = (self.memory.budget().clone(), self.hidden.clone());
        *self = TableBuilder::new(&memory, &hidden);
    }

    /// Adds a key whose bytes are in the reference file.
    pub(super) fn add_value(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.memory.hold(self.held() + value.len() as u64)?;
        let place = self.values.add(value);
        let place = place.ok_or_else(|| Error::too_large("", "more than 4 GiB in one value"))?;
        self.add(key, place)
    }

    /// Adds a key whose bytes are a range of another object. Without a length, the range ends with the object.
    pub(super) fn add_part(
        &mut self,
        key: &[u8],
        url: &str,
        offset: u64,
        length: Option<u64>,
    ) -> Result<()> {
        let url = self.targets.number(url);
        let url = url.ok_or_else(|| Error::too_large("", "more than 4 billion URLs"))?;
        let place = Place::Part {
            url,
            offset,
            length,
        };
        self.add(key, place)
    }

    /// Adds a key whose reference is damaged. Reading the key will report `damage`.
    pub(super) fn add_damaged(&mut self, key: &[u8], damage: Damage) -> Result<()> {
        let reason = damage as u32;
        self.add(key, Place::Damaged { reason })
    }

    fn add(&mut self, key: &[u8], place: Place) -> Result<()> {
        // VirtualiZarr names the only chunk of a scalar array `time/`, without an index; Zarr names it `time/0`.
        let scalar = key.strip_suffix(b"/").filter(|array| !array.is_empty());
        let scalar = scalar.map(|array| [array, b"/0"].concat());
        let key = scalar.as_deref().unwrap_or(key);
        if key.is_empty() || Key::new(key).is_err() {
            self.hidden.record(&String::from_utf8_lossy(key));
            return Ok(());
        }
        let (Ok(start), Ok(length)) = (u32::try_from(self.names.len()), u32::try_from(key.len()))
        else {
            return Err(Error::too_large("", "a key is too long"));
        };
        self.names.extend(key.iter().map(|&byte| name_byte(byte)));
        self.records.push(Record {
            start,
            length,
            place,
        });
        let used = self.names.len() + self.records.len() * size_of::<Record>();
        if used as u64 > self.batch {
            self.close_batch();
        }
        self.memory.hold(self.held())
    }

    /// Returns the number of bytes in use.
    fn held(&self) -> u64 {
        let batch = self.names.capacity() + self.records.capacity() * size_of::<Record>();
        batch as u64 + self.runs_held + self.values.held() + self.targets.held()
    }

    /// Sorts the current batch and compresses it.
    fn close_batch(&mut self) {
        if self.records.is_empty() {
            return;
        }
        let names = &self.names;
        let name = |record: &Record| {
            let start = record.start as usize;
            let name = names.get(start..start + record.length as usize);
            name.unwrap_or_default()
        };
        // The sort is stable, so the last of several references with the same key stays the last.
        self.records.sort_by(|a, b| name(a).cmp(name(b)));
        let mut writer = PageWriter::default();
        let mut records = self.records.iter().peekable();
        while let Some(record) = records.next() {
            let next = records.peek().map(|next| name(next));
            if next != Some(name(record)) {
                writer.push(name(record), record.place);
            }
        }
        let run = writer.finish();
        self.runs_held += run.held();
        self.runs.push(run);
        self.names.clear();
        self.records.clear();
    }

    /// Sorts the references and returns the table. `expand` converts a reference's URL template to a URL, or returns
    /// why that is impossible.
    pub(super) fn finish(
        mut self,
        expand: impl Fn(&str) -> std::result::Result<String, String>,
    ) -> Result<Table> {
        self.close_batch();
        self.names = Vec::new();
        self.records = Vec::new();
        self.values.close();
        let pages = match self.runs.len() {
            0 | 1 => self.runs.pop().unwrap_or_default(),
            _ => self.merge()?,
        };
        let expanded = self.targets.expand(expand);
        let mut memory = self.memory;
        let held = pages.held() + self.values.held() + expanded.held;
        memory.hold(held)?;
        memory.release_to(held);
        Ok(Table {
            pages,
            values: self.values,
            targets: expanded.list,
            _memory: memory,
        })
    }

    /// Merges the sorted batches. If several batches have a key, the reference in the last one is used.
    fn merge(&mut self) -> Result<Pages> {
        let runs = std::mem::take(&mut self.runs);
        let mut runs: Vec<Entries> = runs.into_iter().map(Pages::into_entries).collect();
        runs.iter_mut().for_each(|run| {
            run.advance();
        });
        let mut writer = PageWriter::default();
        loop {
            let name = |run: &Entries| run.cursor.place.map(|_| run.cursor.name.clone());
            let mut least: Option<usize> = None;
            for (number, run) in runs.iter().enumerate() {
                let is_less = |other: &Entries| run.cursor.name <= other.cursor.name;
                let is_first = least.and_then(|least| runs.get(least)).is_none_or(is_less);
                if run.cursor.place.is_some() && is_first {
                    least = Some(number);
                }
            }
            let Some(run) = least.and_then(|least| runs.get(least)) else {
                break;
            };
            let (Some(place), Some(name)) = (run.cursor.place, name(run)) else {
                break;
            };
            writer.push(&name, place);
            for run in &mut runs {
                if run.cursor.place.is_some() && run.cursor.name == name {
                    self.runs_held = self.runs_held.saturating_sub(run.advance());
                }
            }
            self.memory.hold(self.held() + writer.held())?;
        }
        self.runs_held = 0;
        Ok(writer.finish())
    }
}

impl Table {
    /// Returns what the table contains about a key.
    pub(super) fn find(&self, key: &Key) -> Result<Entry> {
        if key.is_root() {
            return Ok(Entry {
                reference: None,
                is_prefix: true,
            });
        }
        let name = name_of(key);
        let mut cursor = self.pages.first_from(&name);
        let mut entry = Entry::default();
        if let Some(place) = cursor.place
            && cursor.name == name
        {
            let reference = self.reference(place);
            entry.reference = Some(reference.map_err(|error| error.about(key))?);
            self.pages.advance(&mut cursor);
        }
        entry.is_prefix = cursor.place.is_some() && is_below(&cursor.name, &name);
        Ok(entry)
    }

    /// Returns the reference for a stored place of bytes. The error is `Corrupt` if the reference is damaged.
    fn reference(&self, place: Place) -> Result<Reference> {
        match place {
            Place::Inline {
                block,
                start,
                length,
            } => {
                let value = self.values.get(block, start, length);
                let value = value.ok_or_else(|| damaged_reference(Damage::NoReference))?;
                Ok(Reference::Inline(value))
            }
            Place::Damaged { reason } => {
                let reason = REASONS.get(reason as usize).copied().unwrap_or_default();
                Err(Error::corrupt("", reason))
            }
            Place::Part {
                url,
                offset,
                length,
            } => part(&self.targets, url, offset, length),
        }
    }

    /// Lists the direct children of a prefix.
    pub(super) fn list(self: Arc<Self>, prefix: &Key) -> TableListing {
        let mut name = name_of(prefix);
        if !prefix.is_root() {
            name.push(SEPARATOR);
        }
        let first = self.pages.first_from(&name);
        TableListing {
            table: self,
            prefix: name,
            start: first.position(),
            next: first,
        }
    }
}

pub(super) fn damaged_reference(damage: Damage) -> Error {
    let reason = REASONS.get(damage as usize).copied().unwrap_or_default();
    Error::corrupt("", reason)
}

/// Returns a reference to a range of another object. The error is `Corrupt` if no URL can be made for the object.
pub(super) fn part(
    targets: &[Target],
    url: u32,
    offset: u64,
    length: Option<u64>,
) -> Result<Reference> {
    let location = match targets.get(url as usize) {
        Some(Target::Url(url)) => Location::Url(url.clone()),
        Some(Target::Damaged(why)) => return Err(Error::corrupt("", why)),
        None => return Err(damaged_reference(Damage::NoReference)),
    };
    Ok(Reference::Part(Part {
        location,
        offset,
        length,
        identity: PartIdentity::Unknown,
    }))
}

/// Returns a key as the table stores it, with a NUL for each slash.
fn name_of(key: &Key) -> Vec<u8> {
    key.as_bytes().iter().map(|&byte| name_byte(byte)).collect()
}

fn name_byte(byte: u8) -> u8 {
    if byte == b'/' { SEPARATOR } else { byte }
}

fn is_below(name: &[u8], folder: &[u8]) -> bool {
    name.strip_prefix(folder)
        .is_some_and(|rest| rest.first() == Some(&SEPARATOR))
}

/// Lists the children of a prefix in the table. The cursor (the position that a caller may seek to) of a name is the
/// position of the entry after it, counted from 1.
pub(super) struct TableListing {
    table: Arc<Table>,
    /// The listed prefix, with a separator at the end.
    prefix: Vec<u8>,
    start: u64,
    next: Cursor,
}

impl TableListing {
    /// Returns the next child, and moves to the entry after all keys below the child.
    fn next_child(&mut self) -> Option<(Vec<u8>, EntryKind)> {
        self.next.place?;
        let pages = &self.table.pages;
        let rest = self.next.name.strip_prefix(self.prefix.as_slice())?;
        let length = rest.iter().position(|&byte| byte == SEPARATOR);
        let name = rest.get(..length.unwrap_or(rest.len()))?.to_vec();
        let full = [self.prefix.as_slice(), &name].concat();
        if length.is_none() {
            pages.advance(&mut self.next);
        }
        let is_folder = self.next.place.is_some() && is_below(&self.next.name, &full);
        if !is_folder {
            return Some((name, EntryKind::File));
        }
        let after = [full.as_slice(), &[SEPARATOR + 1]].concat();
        self.next = pages.first_from(&after);
        Some((name, EntryKind::Directory))
    }
}

impl Listing for TableListing {
    fn next(&mut self, _context: &RequestContext) -> Result<Option<Name>> {
        Ok(self.next_child().map(|(name, kind)| Name {
            name,
            kind,
            cursor: self.next.position() + 1,
            meta: None,
        }))
    }

    fn seek(&mut self, _context: &RequestContext, cursor: u64) -> Result<()> {
        let position = cursor.saturating_sub(1).max(self.start);
        self.next = self.table.pages.at(position);
        Ok(())
    }

    fn may_wait(&self) -> bool {
        false
    }
}

/// Reserves the memory of a growing table, in steps.
pub(super) struct GrowingMemory {
    budget: Arc<MemoryBudget>,
    parts: Vec<Reservation>,
    step: u64,
}

impl GrowingMemory {
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> GrowingMemory {
        GrowingMemory {
            budget: budget.clone(),
            parts: Vec::new(),
            step: (budget.limit() / 16).clamp(1, 4 << 20),
        }
    }

    pub(super) fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    fn reserved(&self) -> u64 {
        self.parts.len() as u64 * self.step
    }

    /// Ensures that `bytes` bytes are reserved. The error is `TooLarge` if the memory budget has no more.
    pub(super) fn hold(&mut self, bytes: u64) -> Result<()> {
        let limit = self.budget.limit();
        let too_large = || {
            let option = self.budget.option();
            let why = format!(
                "the references take {bytes} bytes or more, for which --memory {option} has no room: give more --memory"
            );
            Error::too_large("", why)
        };
        if bytes > limit {
            return Err(too_large());
        }
        let mut more = Vec::new();
        while self.reserved() + more.len() as u64 * self.step < bytes {
            // Waiting longer seldom helps, since references cannot be evicted to free memory.
            let part = self
                .budget
                .reserve(self.step, Instant::now() + Duration::from_secs(5));
            more.push(part.map_err(|_| too_large())?);
        }
        self.parts.extend(more);
        Ok(())
    }

    /// Releases the reservation beyond `bytes` bytes, rounded up to a step.
    pub(super) fn release_to(&mut self, bytes: u64) {
        let parts = bytes.div_ceil(self.step);
        self.parts
            .truncate(usize::try_from(parts).unwrap_or(usize::MAX));
    }
}

/// The bytes that a reference file itself contains for some keys. They are in blocks that readers share without a copy.
#[derive(Default)]
pub(super) struct Values {
    blocks: Vec<Bytes>,
    length: u64,
    /// The last block, to which bytes are still added.
    last: Vec<u8>,
}

impl Values {
    /// Adds a key's bytes to a block of 1 MiB, or to a block of their own if they are longer. Returns `None` beyond 4
    /// GiB.
    pub(super) fn add(&mut self, value: &[u8]) -> Option<Place> {
        if !self.last.is_empty() && self.last.len().saturating_add(value.len()) > 1 << 20 {
            self.close();
        }
        let place = Place::Inline {
            block: u32::try_from(self.blocks.len()).ok()?,
            start: u32::try_from(self.last.len()).ok()?,
            length: u32::try_from(value.len()).ok()?,
        };
        self.last.extend_from_slice(value);
        Some(place)
    }

    /// Completes the last block, so that readers can share it.
    pub(super) fn close(&mut self) {
        let block = std::mem::take(&mut self.last).into_boxed_slice();
        self.length += block.len() as u64 + 64;
        self.blocks.push(Bytes::from(block));
    }

    /// Returns the number of bytes in use.
    pub(super) fn held(&self) -> u64 {
        self.length + self.last.capacity() as u64
    }

    /// Returns bytes in a completed block, or `None` if the block does not contain them.
    pub(super) fn get(&self, block: u32, start: u32, length: u32) -> Option<Bytes> {
        let block = self.blocks.get(usize::try_from(block).ok()?)?;
        let start = usize::try_from(start).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        (end <= block.len()).then(|| block.slice(start..end))
    }
}
