//! The plan of a run: store, actors and keys, all derived from a seed.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::concurrency::value::{Tag, Value};

/// Pseudorandom numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Returns true with a probability of `percent` percent.
    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn one_of<'a, T>(&mut self, some: &'a [T]) -> &'a T {
        &some[self.below(some.len())]
    }
}

/// The store of a run, and the way that it is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Site {
    /// A local directory as a reference for mounts; there is nothing to commit.
    Plain,
    /// An overlay in this process, over a store in memory.
    Memory,
    /// An overlay in this process, over a folder.
    Folder,
    /// An overlay in this process, over a store that is slow and fails.
    Flaky,
    /// A mount of a folder.
    Local,
    /// A mount of a bucket.
    S3,
    /// A mount of a bucket that is slow and fails.
    FlakyS3,
}

impl Site {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Site::Plain => "plain",
            Site::Memory => "memory",
            Site::Folder => "folder",
            Site::Flaky => "flaky",
            Site::Local => "local",
            Site::S3 => "s3",
            Site::FlakyS3 => "flaky-s3",
        }
    }

    pub(crate) fn is_mounted(self) -> bool {
        matches!(self, Site::Local | Site::S3 | Site::FlakyS3)
    }

    /// Whether other processes can work in it.
    fn has_directory(self) -> bool {
        self.is_mounted() || self == Site::Plain
    }

    pub(crate) fn is_remote(self) -> bool {
        matches!(self, Site::S3 | Site::FlakyS3)
    }

    pub(crate) fn is_flaky(self) -> bool {
        matches!(self, Site::Flaky | Site::FlakyS3)
    }
}

/// The way that a key is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Class {
    /// Replaced by renaming a temporary file, or removed.
    Replaced,
    /// The same as `Replaced`, but by all writers.
    Shared,
    /// Overwritten in place.
    InPlace,
    /// Appended to and truncated.
    Log,
    /// Renamed to the next key and back.
    Moved,
    /// In a folder that is renamed to another name and back.
    Folder,
    /// Written and discarded.
    Discarded,
    /// A chunk without a codec, written and read in both views.
    Chunk,
    /// A chunk compressed by zstd.
    Packed,
    /// Changed only in the store, by another program.
    Foreign,
    /// Replaced by writers on the mount and by another program in the store, so that commits meet conflicts.
    Contested,
}

const CLASSES: [Class; 11] = [
    Class::Replaced,
    Class::Shared,
    Class::InPlace,
    Class::Log,
    Class::Moved,
    Class::Folder,
    Class::Discarded,
    Class::Chunk,
    Class::Packed,
    Class::Foreign,
    Class::Contested,
];

impl Class {
    pub(crate) fn is_chunk(self) -> bool {
        matches!(self, Class::Chunk | Class::Packed)
    }

    /// Whether another program changes it in the store.
    pub(crate) fn is_changed_outside(self) -> bool {
        matches!(self, Class::Foreign | Class::Contested)
    }

    /// Whether all writers on the mount change it.
    pub(crate) fn is_of_all(self) -> bool {
        matches!(self, Class::Shared | Class::Contested)
    }

    /// Whether an open descriptor may show newer content than the content at its open.
    pub(crate) fn is_in_place(self) -> bool {
        matches!(self, Class::InPlace | Class::Log)
    }
}

/// A key of a run.
#[derive(Clone, Debug)]
pub(crate) struct PlannedKey {
    pub(crate) class: Class,
    pub(crate) path: String,
    /// The number of its only writer; 0 if all of them write it.
    pub(crate) owner: u8,
    /// The value in the store at the beginning.
    pub(crate) initial: Value,
}

impl PlannedKey {
    /// Returns the folder of the key.
    pub(crate) fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// Returns the number of the key's chunk.
    pub(crate) fn chunk(&self) -> u64 {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.parse().unwrap_or_default()
    }

    /// Returns the array of the key's chunk.
    pub(crate) fn array(&self) -> &'static str {
        array(self.class)
    }
}

fn array(class: Class) -> &'static str {
    if class == Class::Packed { "z" } else { "a" }
}

/// The writer of the values that the store holds at the beginning.
pub(crate) const FIRST_WRITER: u8 = 99;

/// A file that keeps its folder in existence.
pub(crate) const STAYS: &str = "stays";

/// The parameters of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) site: Site,
    /// Approximate number of operations.
    pub(crate) operations: u64,
    pub(crate) writers: u8,
    pub(crate) readers: u8,
    /// How many of the writers, and of the readers, have processes of their own.
    pub(crate) processes: u8,
    pub(crate) committers: u8,
    /// Readers of the store itself.
    pub(crate) outsiders: u8,
    pub(crate) kills: bool,
    pub(crate) write_through: bool,
    pub(crate) classes: Vec<Class>,
    /// Number of keys of each class for each writer.
    pub(crate) keys: u8,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).unwrap_or_default())
    }
}

impl Plan {
    /// Returns the plan for a seed.
    pub(crate) fn of(seed: u64, site: Site, operations: u64) -> Plan {
        let mut random = Random::new(seed);
        let classes = CLASSES.into_iter().filter(|_| random.percent(60));
        let mut classes: Vec<Class> = classes.collect();
        if classes.is_empty() {
            classes = CLASSES.to_vec();
        }
        let mounted = usize::from(site.is_mounted());
        let write_through = random.percent(20) || site == Site::Plain;
        let mut plan = Plan {
            seed,
            site,
            operations,
            writers: 2 + random.below(3) as u8,
            readers: 2 + random.below(3) as u8,
            processes: random.below(if site.has_directory() { 3 } else { 1 }) as u8,
            committers: 1 + random.below(2) as u8,
            outsiders: 1,
            kills: random.percent(30 * mounted),
            write_through,
            classes,
            keys: 1 + random.below(3) as u8,
        };
        if plan.write_through {
            // Nothing waits for a commit, and nothing can be discarded.
            plan.committers = 0;
            let waits = |class: &Class| matches!(class, Class::Discarded | Class::Contested);
            plan.classes.retain(|class| !waits(class));
        }
        plan
    }

    /// Returns all keys; the number of a key is its index.
    pub(crate) fn all_keys(&self) -> Vec<PlannedKey> {
        let mut keys = Vec::new();
        for class in &self.classes {
            for owner in 1..=self.writers {
                self.add_keys(*class, owner, &mut keys);
            }
        }
        keys
    }

    fn add_keys(&self, class: Class, owner: u8, keys: &mut Vec<PlannedKey>) {
        let is_first = owner == 1;
        let numbers = 0..self.keys;
        let own = |number: u8| format!("{owner}-{number}");
        let chunk = |number: u8| (owner - 1) * self.keys + number;
        let mut add = |owner, path: String| {
            let place = keys.len() as u16;
            let initial = initial(class, place);
            keys.push(PlannedKey {
                class,
                path,
                owner,
                initial,
            });
        };
        match class {
            Class::Shared if is_first => numbers.for_each(|n| add(0, format!("s/k{n}"))),
            // The other program is not a writer on the mount.
            Class::Foreign if is_first => numbers.for_each(|n| add(0, format!("o/k{n}"))),
            Class::Contested if is_first => numbers.for_each(|n| add(0, format!("c/k{n}"))),
            Class::Shared | Class::Foreign | Class::Contested => {}
            Class::Replaced => numbers.for_each(|n| add(owner, format!("r/k{}", own(n)))),
            Class::InPlace => numbers.for_each(|n| add(owner, format!("p/k{}", own(n)))),
            Class::Log => numbers.for_each(|n| add(owner, format!("l/k{}", own(n)))),
            Class::Discarded => numbers.for_each(|n| add(owner, format!("d/k{}", own(n)))),
            Class::Chunk | Class::Packed => {
                numbers.for_each(|n| add(owner, format!("{}/c/{}", array(class), chunk(n))));
            }
            Class::Moved => numbers.for_each(|n| {
                add(owner, format!("m/k{}", own(n)));
                add(owner, format!("m/k{}.away", own(n)));
            }),
            Class::Folder => {
                for folder in ["x", "y"] {
                    numbers
                        .clone()
                        .for_each(|n| add(owner, format!("f{owner}/{folder}/k{n}")));
                }
            }
        }
        if matches!(class, Class::Moved | Class::Folder) {
            clear_other_sides(keys);
        }
    }

    /// Returns the documents that the store holds in addition to the keys.
    pub(crate) fn documents(&self) -> Vec<(String, String)> {
        let group = r#"{"zarr_format": 3, "node_type": "group"}"#;
        let mut documents = vec![("zarr.json".to_string(), group.to_string())];
        // Folders must exist without a key, too.
        let keys = self.all_keys();
        let folders = keys.iter().map(|key| match key.class {
            Class::Folder => format!("f{}", key.owner),
            _ => key.folder().to_string(),
        });
        let folders: BTreeSet<String> = folders.collect();
        let stays = folders
            .into_iter()
            .map(|folder| (format!("{folder}/{STAYS}"), String::new()));
        documents.extend(stays);
        let chunks = u64::from(self.writers) * u64::from(self.keys);
        let bytes = r#"{"name": "bytes", "configuration": {"endian": "little"}}"#;
        let zstd = r#"{"name": "zstd", "configuration": {"level": 1, "checksum": false}}"#;
        for (class, codecs) in [
            (Class::Chunk, bytes.to_string()),
            (Class::Packed, format!("{bytes}, {zstd}")),
        ] {
            if self.classes.contains(&class) {
                let shape = chunks * 512;
                let document = format!(
                    r#"{{"zarr_format": 3, "node_type": "array", "shape": [{shape}],
                    "data_type": "uint64", "fill_value": 0, "codecs": [{codecs}],
                    "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [512]}}}},
                    "chunk_key_encoding": {{"name": "default", "configuration": {{"separator": "/"}}}}}}"#
                );
                documents.push((format!("{}/zarr.json", array(class)), document));
            }
        }
        documents
    }
}

fn initial(class: Class, place: u16) -> Value {
    let tag = Tag {
        key: place,
        writer: FIRST_WRITER,
        number: 1,
    };
    match class {
        Class::Folder | Class::Moved => tag.file(),
        _ if place % 2 == 1 => Value::Missing,
        Class::Chunk | Class::Packed => tag.chunk(),
        _ => tag.file(),
    }
}

/// Keys that are renamed exist on one side only at the beginning.
fn clear_other_sides(keys: &mut [PlannedKey]) {
    for key in keys {
        let is_other = match key.class {
            Class::Moved => key.path.ends_with(".away"),
            Class::Folder => key.path.contains("/y/"),
            _ => false,
        };
        if is_other {
            key.initial = Value::Missing;
        }
    }
}
