//! Encodes journal lines: a checksum, then a JSON list of records.
//!
//! A line is read exactly as it was written, or not at all. The JSON names of the records are an on-disk format and
//! must not change. `journal` appends and reads lines; `records` combines the records into the layer's current state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use serde_json::{Map, Value, json};

use crate::attribute_override::AttributeOverride;
use crate::attributes::{spec_of, time_of};
use zarrfs_store::{EncodedBy, Key, StoreVersion};

/// A record of the journal: a change of an upper folder that the folder's files do not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JournalRecord {
    /// A key was changed for the first time. `version` is the store's version before the change; `None` if the store
    /// did not have the key.
    Base {
        key: Key,
        version: Option<StoreVersion>,
        /// Whether the content before the change was in a frozen layer, so that an unfinished commit determines the
        /// store's version.
        is_frozen: bool,
        /// Length and digest of the store's content before the change, if they are known.
        content: Option<ContentDigest>,
    },
    /// The store has the upper folder's content of a key, under this version.
    Committed { key: Key, version: StoreVersion },
    /// A commit is about to put a content with this digest, or to remove the key if the digest is `None`. If the
    /// store's answer does not arrive, the record tells what the store may have done.
    Attempted { key: Key, digest: Option<u128> },
    /// The array metadata that changed chunks at and below a key were encoded with; `None` if a commit need not check
    /// it. The record at the chunk's key or at its nearest parent applies.
    EncodedBy { at: Key, by: Option<EncodedBy> },
    /// A key is unchanged again, so its recorded version in the store is dropped.
    Reverted(Key),
    /// The store's objects at and below a key are hidden. The mount shows the store's objects at and below `source`
    /// instead, if there is a `source`.
    Whiteout { key: Key, source: Option<Key> },
    /// The whiteout of a key was removed.
    WhiteoutRemoved(Key),
    /// A new file was created under a key, and its content is still incomplete.
    Created(Key),
    /// The file that was created under a key is complete.
    Completed(Key),
    /// Attributes were set on a key whose content is only in the store or in a frozen layer.
    Attributes {
        key: Key,
        attributes: Arc<AttributeOverride>,
    },
    /// The attributes that were recorded for a key are dropped.
    AttributesDropped(Key),
    /// A rename begins. `in_upper` tells whether the upper folder has a file or folder at `from`.
    RenameStarted { from: Key, to: Key, in_upper: bool },
    /// The rename that began last is complete.
    RenameFinished,
    /// A key gets a new file; `mark` identifies its content.
    Written { key: Key, mark: Mark },
    /// The file of a key is about to be removed from the upper folder.
    Removed(Key),
    /// The last content of a key, a file with this inode, is on disk.
    Synced { key: Key, inode: u64 },
    /// A sync of the whole layer begins. Each sync has the number of the previous sync plus one.
    SyncStarted(u64),
    /// The sync with this number is complete: everything that was written before it began is on disk.
    SyncFinished(u64),
    /// The file of a key was moved out of the layer, so the records of its contents are dropped.
    Forgotten(Key),
    /// A program wrote consolidated metadata under a key, so its copies are the program's.
    CopiesWritten(Key),
    /// Something at or below `path` was changed after a program wrote the consolidated metadata `holder`, so the copies
    /// of it are stale.
    CopiesStale { holder: Key, path: Key },
    /// The layer is completely synced, and nothing was changed afterwards.
    Closed,
}

impl JournalRecord {
    /// Returns a record of the store's version of a key before its first change. `content` is the length and digest of
    /// that version, if they are known.
    pub(crate) fn base(
        key: &Key,
        version: Option<StoreVersion>,
        content: Option<ContentDigest>,
    ) -> JournalRecord {
        JournalRecord::Base {
            key: key.clone(),
            version,
            is_frozen: false,
            content,
        }
    }
}

/// Length and digest of a file or object. They are equal if and only if the bytes are taken as equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentDigest {
    /// Length of the content in bytes.
    pub length: u64,
    /// Hash of the content's bytes (xxh3, 128 bits).
    pub digest: u128,
}

/// Identifies the content of a layer's file, so that recovery can tell which content is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) inode: u64,
    pub(crate) length: u64,
    /// Hash of the content's bytes (xxh3, 128 bits); `None` for a file that is changed in place, where only the inode
    /// identifies the file.
    pub(crate) digest: Option<u128>,
}

impl Mark {
    /// Returns length and digest of the file's content, or `None` if the digest is not known.
    pub(crate) fn content(&self) -> Option<ContentDigest> {
        let length = self.length;
        let digest = self.digest?;
        Some(ContentDigest { length, digest })
    }

    /// Whether a file with this inode and length has the marked content, if it is known that the content is on disk.
    pub(crate) fn is_file(&self, inode: u64, length: u64) -> bool {
        self.inode == inode && (self.digest.is_none() || self.length == length)
    }
}

/// Encodes records as one line of the journal. After a crash, either all records of the line are found or none.
pub(crate) fn encode_line(records: &[JournalRecord]) -> Vec<u8> {
    let list: Vec<Value> = records.iter().map(to_json).collect();
    let text = Value::Array(list).to_string();
    let sum = crc32c::crc32c(text.as_bytes());
    format!("{sum:08x} {text}\n").into_bytes()
}

/// Decodes the records of a journal line; returns `None` if the line is incomplete or damaged.
pub(crate) fn decode_line(line: &[u8]) -> Option<Vec<JournalRecord>> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    // A line starts with the checksum, which is eight hexadecimal digits, and a space.
    let (sum, text) = line.split_at_checked(9)?;
    let sum = u32::from_str_radix(sum.strip_suffix(' ')?, 16).ok()?;
    if sum != crc32c::crc32c(text.as_bytes()) {
        return None;
    }
    let list: Vec<Value> = serde_json::from_str(text).ok()?;
    list.iter().map(from_json).collect()
}

/// The ASCII characters that must be percent-encoded in the journal's keys.
const UNESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'_')
    .remove(b'-')
    .remove(b' ')
    .remove(b'~')
    .remove(b'=')
    .remove(b'+');

fn encode_key(key: &Key) -> String {
    encode_bytes(key.as_bytes())
}

fn encode_bytes(bytes: &[u8]) -> String {
    percent_encode(bytes, UNESCAPED).to_string()
}

fn decode_key(value: Option<&Value>) -> Option<Key> {
    let bytes: Vec<u8> = percent_decode_str(value?.as_str()?).collect();
    Key::new(bytes).ok()
}

fn decode_version(value: &Value) -> Option<StoreVersion> {
    let digits = u64::from_str_radix(value.as_str()?, 16);
    Some(StoreVersion(digits.ok()?))
}

fn encode_digest(digest: Option<u128>) -> Option<String> {
    digest.map(|digest| format!("{digest:032x}"))
}

/// Reads the member `digest` of a journal record, which may be null.
struct DigestMember(Option<u128>);

impl DigestMember {
    fn of(members: &Map<String, Value>) -> Option<DigestMember> {
        match members.get("digest")? {
            Value::Null => Some(DigestMember(None)),
            digest => {
                let digest = u128::from_str_radix(digest.as_str()?, 16).ok()?;
                Some(DigestMember(Some(digest)))
            }
        }
    }
}

fn to_json(record: &JournalRecord) -> Value {
    match record {
        JournalRecord::Base {
            key,
            version,
            is_frozen,
            content,
        } => {
            let version = version.map(|version| format!("{:016x}", version.0));
            let mut record = json!({"held": encode_key(key), "version": version});
            if *is_frozen {
                record["frozen"] = json!(true);
            }
            if let Some(content) = content {
                record["length"] = json!(content.length);
                record["digest"] = json!(encode_digest(Some(content.digest)));
            }
            record
        }
        JournalRecord::Committed { key, version } => {
            json!({"sent": encode_key(key), "version": format!("{:016x}", version.0)})
        }
        JournalRecord::Attempted { key, digest } => {
            json!({"try": encode_key(key), "digest": encode_digest(*digest)})
        }
        JournalRecord::EncodedBy { at, by } => match by {
            None => json!({"encoded": encode_key(at), "by": null}),
            Some(by) => {
                let mut record = json!({
                    "encoded": encode_key(at), "by": encode_key(&by.document),
                    "digest": encode_digest(Some(by.digest)),
                });
                if by.folder != by.document.parent().unwrap_or_default() {
                    record["in"] = json!(encode_key(&by.folder));
                }
                record
            }
        },
        JournalRecord::Reverted(key) => json!({"let": encode_key(key)}),
        JournalRecord::Whiteout { key, source } => {
            json!({"white": encode_key(key), "of": source.as_ref().map(encode_key)})
        }
        JournalRecord::WhiteoutRemoved(key) => json!({"show": encode_key(key)}),
        JournalRecord::Created(key) => json!({"born": encode_key(key)}),
        JournalRecord::Completed(key) => json!({"whole": encode_key(key)}),
        JournalRecord::Attributes { key, attributes } => attributes_to_json(key, attributes),
        JournalRecord::AttributesDropped(key) => json!({"plain": encode_key(key)}),
        JournalRecord::RenameStarted { from, to, in_upper } => {
            json!({"move": encode_key(from), "to": encode_key(to), "native": in_upper})
        }
        JournalRecord::RenameFinished => json!({"moved": true}),
        JournalRecord::Written { key, mark } => json!({
            "file": encode_key(key), "inode": mark.inode, "length": mark.length,
            "digest": encode_digest(mark.digest),
        }),
        JournalRecord::Removed(key) => json!({"gone": encode_key(key)}),
        JournalRecord::Synced { key, inode } => json!({"synced": encode_key(key), "inode": inode}),
        JournalRecord::SyncStarted(number) => json!({"sync": number}),
        JournalRecord::SyncFinished(number) => json!({"done": number}),
        JournalRecord::Forgotten(key) => json!({"forget": encode_key(key)}),
        JournalRecord::CopiesWritten(key) => json!({"copies": encode_key(key)}),
        JournalRecord::CopiesStale { holder, path } => {
            json!({"copies": encode_key(holder), "stale": encode_key(path)})
        }
        JournalRecord::Closed => json!({"closed": true}),
    }
}

fn from_json(value: &Value) -> Option<JournalRecord> {
    let members = value.as_object()?;
    let (name, first) = members.iter().next()?;
    let key = || decode_key(Some(first));
    Some(match name.as_str() {
        "held" => return base_of(key()?, members),
        "sent" => JournalRecord::Committed {
            key: key()?,
            version: decode_version(members.get("version")?)?,
        },
        "try" => JournalRecord::Attempted {
            key: key()?,
            digest: DigestMember::of(members)?.0,
        },
        "encoded" => JournalRecord::EncodedBy {
            at: key()?,
            by: match members.get("by")? {
                Value::Null => None,
                document => {
                    let document = decode_key(Some(document))?;
                    Some(EncodedBy {
                        folder: match members.get("in") {
                            None => document.parent().unwrap_or_default(),
                            folder => decode_key(folder)?,
                        },
                        document,
                        digest: DigestMember::of(members)?.0?,
                    })
                }
            },
        },
        "let" => JournalRecord::Reverted(key()?),
        "white" => JournalRecord::Whiteout {
            key: key()?,
            source: match members.get("of")? {
                Value::Null => None,
                source => Some(decode_key(Some(source))?),
            },
        },
        "show" => JournalRecord::WhiteoutRemoved(key()?),
        "born" => JournalRecord::Created(key()?),
        "whole" => JournalRecord::Completed(key()?),
        "attributes" => JournalRecord::Attributes {
            key: key()?,
            attributes: Arc::new(attributes_of(members)?),
        },
        "plain" => JournalRecord::AttributesDropped(key()?),
        "move" => JournalRecord::RenameStarted {
            from: key()?,
            to: decode_key(members.get("to"))?,
            in_upper: members.get("native")?.as_bool()?,
        },
        "moved" => JournalRecord::RenameFinished,
        "file" => JournalRecord::Written {
            key: key()?,
            mark: Mark {
                inode: members.get("inode")?.as_u64()?,
                length: members.get("length")?.as_u64()?,
                digest: DigestMember::of(members)?.0,
            },
        },
        "gone" => JournalRecord::Removed(key()?),
        "synced" => JournalRecord::Synced {
            key: key()?,
            inode: members.get("inode")?.as_u64()?,
        },
        "sync" => JournalRecord::SyncStarted(first.as_u64()?),
        "done" => JournalRecord::SyncFinished(first.as_u64()?),
        "forget" => JournalRecord::Forgotten(key()?),
        "copies" => match members.get("stale") {
            None => JournalRecord::CopiesWritten(key()?),
            path => JournalRecord::CopiesStale {
                holder: key()?,
                path: decode_key(path)?,
            },
        },
        "closed" => JournalRecord::Closed,
        _ => return None,
    })
}

fn base_of(key: Key, members: &Map<String, Value>) -> Option<JournalRecord> {
    Some(JournalRecord::Base {
        key,
        version: match members.get("version")? {
            Value::Null => None,
            version => Some(decode_version(version)?),
        },
        is_frozen: members.get("frozen").is_some(),
        content: match members.get("length") {
            None => None,
            Some(length) => Some(ContentDigest {
                length: length.as_u64()?,
                digest: DigestMember::of(members)?.0?,
            }),
        },
    })
}

fn attributes_to_json(key: &Key, overrides: &AttributeOverride) -> Value {
    let time = |time| {
        let spec = spec_of(time);
        json!([spec.tv_sec, spec.tv_nsec])
    };
    let version = overrides
        .version
        .map(|version| format!("{:016x}", version.0));
    let xattrs = overrides.xattrs.iter();
    let xattrs = xattrs.map(|(name, value)| (encode_bytes(name), encode_bytes(value).into()));
    let mut record = json!({
        "attributes": encode_key(key), "mode": overrides.mode, "uid": overrides.uid, "gid": overrides.gid,
        "accessed": time(overrides.accessed), "modified": time(overrides.modified), "changed": time(overrides.changed),
        "version": version, "xattrs": Value::Object(xattrs.collect()),
    });
    if overrides.is_of_copy {
        record["copy"] = json!(true);
    }
    record
}

fn attributes_of(members: &Map<String, Value>) -> Option<AttributeOverride> {
    let number = |name| u32::try_from(members.get(name)?.as_u64()?).ok();
    let time = |name| -> Option<SystemTime> {
        let spec = members.get(name)?.as_array()?;
        Some(time_of(spec.first()?.as_i64()?, spec.get(1)?.as_u64()?))
    };
    let decode = |text: &str| -> Vec<u8> { percent_decode_str(text).collect() };
    let xattrs = members.get("xattrs")?.as_object()?.iter();
    let xattrs = xattrs.map(|(name, value)| Some((decode(name), decode(value.as_str()?))));
    Some(AttributeOverride {
        mode: number("mode")?,
        uid: number("uid")?,
        gid: number("gid")?,
        accessed: time("accessed")?,
        modified: time("modified")?,
        changed: time("changed")?,
        version: match members.get("version")? {
            Value::Null => None,
            version => Some(decode_version(version)?),
        },
        xattrs: xattrs.collect::<Option<BTreeMap<_, _>>>()?,
        is_of_copy: members.get("copy").is_some(),
    })
}
