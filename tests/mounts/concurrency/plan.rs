//! Plans a run from a seed: the kind of store, the actors and the keys.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::concurrency::value::{Tag, Value};

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

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn one_of<'a, T>(&mut self, some: &'a [T]) -> &'a T {
        &some[self.below(some.len())]
    }
}

/// The kind of store of a run, and how programs use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Site {
    /// A local directory without zarrfs, as a reference; there is nothing to commit.
    Plain,
    Memory,
    Folder,
    /// An overlay in this process, over a store that is slow and fails.
    Flaky,
    Local,
    S3,
    /// A mount of a bucket of an S3 server, through a proxy that is slow and fails.
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

    /// Whether other processes can work in the directory of the run.
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

/// How the actors use a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Class {
    /// A key that is replaced by renaming a temporary file, or removed.
    Replaced,
    /// A key that all writers replace or remove.
    Shared,
    /// A key that its writer overwrites in place.
    InPlace,
    /// A key that its writer appends to and truncates.
    Log,
    /// A file that is renamed between two names, each of which is a key.
    Moved,
    /// A file in a folder that is renamed between two names.
    Folder,
    /// A key that is written, and whose changes are discarded.
    Discarded,
    /// An uncompressed chunk, which is written and read in both views.
    Chunk,
    /// A chunk compressed by zstd, which is written and read in both views.
    Packed,
    /// A key that is changed only in the store, by an actor outside of the mount.
    Foreign,
    /// A key that is replaced both on the mount and in the store, so that commits meet conflicts.
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

    pub(crate) fn is_changed_outside(self) -> bool {
        matches!(self, Class::Foreign | Class::Contested)
    }

    pub(crate) fn is_of_all(self) -> bool {
        matches!(self, Class::Shared | Class::Contested)
    }

    /// Whether a descriptor of the file may show newer content than at the time when it was opened.
    pub(crate) fn is_in_place(self) -> bool {
        matches!(self, Class::InPlace | Class::Log)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PlannedKey {
    pub(crate) class: Class,
    pub(crate) path: String,
    /// The number of the only actor that writes the key; 0 if all writers do.
    pub(crate) owner: u8,
    /// The value that the key has in the store at the beginning of the run.
    pub(crate) initial: Value,
}

impl PlannedKey {
    pub(crate) fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    pub(crate) fn chunk(&self) -> u64 {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.parse().unwrap_or_default()
    }

    pub(crate) fn array(&self) -> &'static str {
        array(self.class)
    }
}

fn array(class: Class) -> &'static str {
    if class == Class::Packed { "z" } else { "a" }
}

/// The writer number in the values that the store has at the beginning of a run.
pub(crate) const FIRST_WRITER: u8 = 99;

/// The name of a file that is in each folder, so that no folder becomes empty and disappears.
pub(crate) const STAYS: &str = "stays";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) site: Site,
    pub(crate) operations: u64,
    pub(crate) writers: u8,
    pub(crate) readers: u8,
    /// How many of the writers, and how many of the readers, run in processes of their own.
    pub(crate) processes: u8,
    pub(crate) committers: u8,
    /// The number of actors that use only the store, not the mount.
    pub(crate) outsiders: u8,
    pub(crate) kills: bool,
    pub(crate) write_through: bool,
    pub(crate) classes: Vec<Class>,
    /// The number of keys of each class that each writer has.
    pub(crate) keys: u8,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).unwrap_or_default())
    }
}

impl Plan {
    /// Chooses the parameters of a run at random, from a seed.
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
            // In write-through mode no change is left to be committed or discarded.
            plan.committers = 0;
            let waits = |class: &Class| matches!(class, Class::Discarded | Class::Contested);
            plan.classes.retain(|class| !waits(class));
        }
        plan
    }

    /// Returns all keys of the run; operations refer to a key by its index.
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
            // Owner 0 is right, because no writer on the mount has the number of the actor outside.
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

    /// Returns the other files that the store has at the beginning: metadata documents, and `stays` in each folder.
    pub(crate) fn documents(&self) -> Vec<(String, String)> {
        let group = r#"{"zarr_format": 3, "node_type": "group"}"#;
        let mut documents = vec![("zarr.json".to_string(), group.to_string())];
        // Each folder has a file that no actor touches, so that the folder exists even without a key.
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

/// Makes keys missing at first that are the second name of a file or folder.
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
