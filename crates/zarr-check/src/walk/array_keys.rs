//! Checks whether the keys below an array are chunks of its grid.
//!
//! The sizes of chunks come from listings. Few chunks are read: the indexes of local shards, and the first bytes of at
//! most `MAX_INSPECTED` chunks. A chunk is only decoded if its first bytes are those of another format.

use std::fmt;

use crate::context::CheckContext;
use crate::finding::Finding;
use crate::node_findings::NodeFindings;
use crate::rules::foreign::{Foreign, Remedy, in_place_of_chunk};
use crate::rules::keys::{
    ChunkPart, broken_link, document_is_folder, empty_folder, folder_link, folder_unlisted,
    foreign_chunk, hidden, leftover, orphan,
};
use crate::spec::Spec;
use crate::walk::chunk_data::StoredChunk;
use crate::walk::folder::{StoredEntry, visit_below};
use crate::walk::shards;
use zarr_format::grid::{ChunkIndex, Coordinates, Grid};
use zarr_format::model::document::is_in_node_folder;
use zarr_format::model::{Array, KeyScheme, parse_index};
use zarrfs_array::array::OpenArray;
use zarrfs_store::{Key, Meta};

/// The number and size of the stored chunks of an array.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChunkStats {
    /// The number of stored chunks.
    pub(crate) count: u64,
    /// The number of stored chunks whose size is known.
    pub(crate) measured: u64,
    /// The total bytes of the chunks whose size is known.
    pub(crate) bytes: u64,
    /// The number of chunks whose key has the separator `/` although the metadata state no separator.
    pub(crate) with_other_separator: u64,
}

/// Keys that would be chunk keys of the array if its metadata stated another chunk key encoding.
struct MisnamedKeys {
    count: u64,
    /// The chunk key encoding in which the keys would be chunk keys.
    form: KeyForm,
    first: Key,
}

/// The stored chunks and documents of an array, and the findings about its keys.
pub(crate) struct CheckedKeys {
    pub(crate) stats: ChunkStats,
    pub(crate) findings: NodeFindings,
    /// The keys of the stored metadata documents, with their sizes if the listing had them.
    pub(crate) documents: Vec<(Key, Option<u64>)>,
}

/// The state of a check of one array's keys, to which the visited keys are passed.
pub(crate) struct ArrayKeys<'a> {
    context: &'a CheckContext,
    array: &'a OpenArray,
    places: ChunkPlaces<'a>,
    /// The folder that contains all keys of the array, and no keys of other nodes.
    folder: &'a Key,
    /// The folder of the array's metadata documents, or `None` if they are not in `folder`, as in a Zarr v3 draft.
    documents: Option<&'a Key>,
    /// The keys of the metadata documents in that folder, with their sizes if the listing had them.
    stored_documents: Vec<(Key, Option<u64>)>,
    stats: ChunkStats,
    misnamed: Option<MisnamedKeys>,
    /// The last folder that belongs to no node. The finding about the folder covers all keys below it.
    foreign: Option<Key>,
    /// The number of chunks whose first bytes may still be read to recognize other formats.
    inspections_left: u32,
    findings: NodeFindings,
}

/// Maximum number of chunks of an array whose first bytes are read if not all chunks are decoded. A few suffice,
/// because git-lfs pointers or HTML pages of a server usually replace all chunks of an array.
pub(crate) const MAX_INSPECTED: u32 = 8;

impl<'a> ArrayKeys<'a> {
    /// Checks all keys of the array, which are below `folder`. `documents` is the folder of its metadata documents, or
    /// `None` if that is another one.
    pub(crate) fn check(
        context: &'a CheckContext,
        array: &'a OpenArray,
        folder: &'a Key,
        documents: Option<&'a Key>,
    ) -> CheckedKeys {
        let mut keys = ArrayKeys {
            context,
            array,
            places: ChunkPlaces::new(array.array(), array.stored_grid().ok()),
            folder,
            documents,
            stored_documents: Vec::new(),
            stats: ChunkStats::default(),
            misnamed: None,
            foreign: None,
            inspections_left: MAX_INSPECTED,
            findings: NodeFindings::default(),
        };
        let visited = visit_below(context, folder, &mut |entry| keys.visit(entry));
        if let Err(error) = visited {
            keys.findings.add(folder_unlisted(folder, &error));
        }
        keys.check_separators();
        keys.check_misnamed();
        CheckedKeys {
            stats: keys.stats,
            findings: keys.findings,
            documents: keys.stored_documents,
        }
    }

    /// Checks the key of an entry. Returns whether the entries of a folder are to be visited.
    fn visit(&mut self, entry: StoredEntry) -> bool {
        self.context.progress.add_key();
        match entry {
            StoredEntry::Object(key, meta) => self.object(&key, meta.as_ref()),
            StoredEntry::Folder(key) => return self.enters(&key),
            StoredEntry::EmptyFolder(key) => self.findings.add(empty_folder(&key)),
            StoredEntry::FolderLink(key) => self.findings.add(folder_link(&key)),
            StoredEntry::BrokenLink(key, error) => {
                let finding = broken_link(self.context.store(), &key, &error);
                self.findings.add(finding);
            }
            StoredEntry::Hidden(key, what) => self.findings.add(hidden(&key, what)),
            StoredEntry::Unlisted(key, error) => self.findings.add(folder_unlisted(&key, &error)),
        }
        false
    }

    fn object(&mut self, key: &Key, meta: Option<&Meta>) {
        if self.is_own_document(key) {
            let size = meta.map(|meta| meta.size);
            self.stored_documents.push((key.clone(), size));
            return;
        }
        if self.is_in_foreign(key) {
            return;
        }
        if let Some(finding) = leftover(key) {
            self.findings.add(finding);
            return;
        }
        if !self.array.array().keys.is_known() {
            return;
        }
        match self.places.of(key) {
            ChunkPlace::Chunk(indices, is_other) => {
                self.stats.count += 1;
                self.stats.with_other_separator += u64::from(is_other);
                self.chunk(key, &indices, meta);
            }
            ChunkPlace::Outside(indices) => self.outside(key, &indices),
            ChunkPlace::Misnamed(form) => self.misnamed(key, form),
            ChunkPlace::Ancestor | ChunkPlace::Other => self.foreign_key(key),
        }
    }

    /// Whether the entries of a folder are visited. They are not if a finding about the folder already explains them.
    fn enters(&mut self, key: &Key) -> bool {
        if let Some(finding) = leftover(key) {
            self.findings.add(finding);
            return false;
        }
        if self.is_own_document(key) {
            self.findings.add(document_is_folder(key, self.spec()));
            return false;
        }
        if self.array.array().keys.is_known()
            && let ChunkPlace::Chunk(..) = self.places.of(key)
        {
            let message = "a directory has the key of a chunk; readers find no chunk there";
            let finding = Finding::error("chunk-is-folder", key, message);
            self.findings
                .add(finding.with_section(self.spec().chunks()));
            return false;
        }
        true
    }

    fn is_own_document(&self, key: &Key) -> bool {
        let folder = self.documents;
        folder.is_some() && key.parent().as_ref() == folder && is_in_node_folder(key.name())
    }

    fn is_in_foreign(&self, key: &Key) -> bool {
        let foreign = self.foreign.as_ref();
        foreign.is_some_and(|foreign| key.below(foreign).is_some())
    }

    /// Checks that the size of a stored chunk is possible and, if the chunk is a shard, that its index is valid.
    fn chunk(&mut self, key: &Key, indices: &[u64], meta: Option<&Meta>) {
        let Some(size) = self.context.size_of(key, meta) else {
            return;
        };
        self.stats.measured += 1;
        self.stats.bytes = self.stats.bytes.saturating_add(size);
        let grid = self.array.stored_grid();
        let index = grid
            .ok()
            .and_then(|grid| grid.index(indices))
            .unwrap_or(ChunkIndex(0));
        let Ok(pipeline) = self.array.pipeline_of(index) else {
            return;
        };
        let chunk = ChunkPart {
            key,
            part: "",
            array: self.array.array(),
        };
        if let Some(code) = length_fault(size, pipeline.stored_length()) {
            let spec = self.spec();
            let finding = match self.foreign_in(&chunk, size) {
                Some(foreign) => foreign_chunk(code, &chunk, &foreign),
                None => wrong_length(code, &chunk, size, pipeline.stored_length()),
            };
            self.findings.add(finding.with_section(spec.chunks()));
        } else if self.context.is_remote || self.context.data {
            // A remote chunk is not read here. If all chunks are to be decoded, it is read later.
        } else if !pipeline.shards().is_empty() {
            shards::check_index(self.context, &pipeline, &chunk, size, &mut self.findings);
        } else if pipeline.stored_length().is_none() && self.foreign_in(&chunk, size).is_some() {
            let size = Some(size);
            let chunk = StoredChunk {
                array: self.array,
                key,
                indices,
                size,
            };
            chunk.check(self.context, &mut self.findings);
        }
    }

    /// Returns the other format that the bytes of a chunk have, or `None` if they may be a chunk. Only the first chunks
    /// of an array are read, since all usually have the same format.
    fn foreign_in(&mut self, chunk: &ChunkPart<'_>, size: u64) -> Option<Foreign> {
        self.inspections_left = self.inspections_left.checked_sub(1)?;
        let head = self.context.read_head(chunk.key, size)?;
        in_place_of_chunk(&head, chunk.array)
    }

    fn outside(&mut self, key: &Key, indices: &[u64]) {
        let counts = self.places.grid.map(|grid| grid.counts().to_vec());
        let message = format!(
            "chunk {indices:?} is outside the grid of {:?} chunks; no reader reads it",
            counts.unwrap_or_default()
        );
        let remedy = "remove it, or correct the shape in the metadata";
        let spec = self.spec();
        let section = if spec == Spec::V3 {
            spec.section("Resizing")
        } else {
            spec.chunks()
        };
        let finding = Finding::warning("chunk-outside", key, message).with_remedy(remedy);
        self.findings.add(finding.with_section(section));
    }

    /// Reports a key that is not a chunk of the array. The key may belong to a node below the array, or to no node.
    fn foreign_key(&mut self, key: &Key) {
        let within = key.below(self.folder).unwrap_or_default();
        let mut names = within.names();
        let first = names.next().unwrap_or_default();
        let is_deeper = names.next().is_some();
        let Some(top) = self.folder.child(first).ok().filter(|_| is_deeper) else {
            self.findings.add(orphan(key));
            return;
        };
        if matches!(self.places.of(&top), ChunkPlace::Ancestor) {
            self.findings.add(orphan(key));
            return;
        }
        self.findings.add(if self.is_own_document(&top) {
            document_is_folder(&top, self.spec())
        } else if is_in_node_folder(key.name()) {
            let message = format!("{key} makes it a node, but an array cannot contain nodes");
            let finding = Finding::error("node-in-array", &top, message);
            finding.with_section(self.spec().hierarchy())
        } else if self.is_miscased(first) {
            let message = "the name differs from c only in case; readers find no chunks";
            let finding =
                Finding::error("orphan-folder", &top, message).with_remedy("rename it to c");
            finding.with_section(self.spec().chunks())
        } else {
            let message = format!("stray directory: {key} in it is not a chunk of the array");
            Finding::warning("orphan-folder", &top, message)
        });
        self.foreign = Some(top);
    }

    /// Whether a folder has the name `C`, while the chunk keys of the array begin with `c`.
    fn is_miscased(&self, name: &[u8]) -> bool {
        let form = &self.places.form;
        form.has_c && form.separator == '/' && name == b"C" && self.stats.count == 0
    }

    /// Reports chunk keys with the separator `/` if `.zarray` states no separator.
    fn check_separators(&mut self) {
        let (other, all) = (self.stats.with_other_separator, self.stats.count);
        if other == 0 {
            return;
        }
        let path = self.array.path();
        let message = format!(
            "{other} of {all} chunk keys use \"/\", but .zarray has no dimension_separator"
        );
        let finding = Finding::error("separator-not-stated", path, message)
            .with_section(Spec::V2.section("Metadata"));
        let finding = finding.with_remedy("add \"dimension_separator\": \"/\" to .zarray");
        self.findings.add(if other < all {
            finding
        } else {
            finding.with_habit("zarr-python before 2.8 with nested directories")
        });
    }

    /// Counts a key that would be a chunk key in another chunk key encoding.
    fn misnamed(&mut self, key: &Key, form: KeyForm) {
        let misnamed = self.misnamed.get_or_insert_with(|| MisnamedKeys {
            count: 0,
            form,
            first: key.clone(),
        });
        misnamed.count += 1;
    }

    /// Reports, as one finding, the keys that are chunk keys in another encoding than the metadata state. Readers do
    /// not find chunks with such keys.
    fn check_misnamed(&mut self) {
        let Some(MisnamedKeys { count, form, first }) = self.misnamed.take() else {
            return;
        };
        let (path, stated) = (self.array.path(), self.places.form);
        let (code, own, metadata) = if form.has_c == stated.has_c {
            let separators = [form, stated].map(|form| format!("\"{}\"", form.separator));
            let [own, metadata] = separators;
            ("separator-differs", own, metadata)
        } else {
            ("key-encoding-differs", form.to_string(), stated.to_string())
        };
        let keys = match count {
            1 => format!("the chunk key {first} uses"),
            _ => format!("{count} chunk keys, such as {first}, use"),
        };
        let message =
            format!("{keys} {own}, but the metadata say {metadata}; no reader finds these chunks");
        let finding = Finding::error(code, path, message)
            .with_remedy("correct the metadata, or rename the chunks");
        self.findings
            .add(finding.with_section(self.spec().chunks()));
    }

    fn spec(&self) -> Spec {
        Spec::of(Some(self.array.array().dialect))
    }
}

/// Returns the fault code for a chunk whose size is impossible, or `None`. `needed` is the stored length of all chunks,
/// if it is fixed.
fn length_fault(size: u64, needed: Option<u64>) -> Option<&'static str> {
    match needed {
        Some(needed) if size != needed => Some("chunk-length"),
        _ => (size == 0).then_some("chunk-empty"),
    }
}

/// Reports a chunk whose stored length is impossible.
fn wrong_length(
    code: &'static str,
    chunk: &ChunkPart<'_>,
    size: u64,
    needed: Option<u64>,
) -> Finding {
    let message = match needed {
        Some(needed) => format!("the chunk has {size} bytes, but must have {needed}"),
        None => "the chunk is empty".to_string(),
    };
    Finding::error(code, chunk.key, message).with_remedy(Remedy::CopyAgain)
}

/// A chunk key encoding of Zarr v3. `default` has the prefix `c` before the indices, `v2` has no prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyForm {
    pub(crate) has_c: bool,
    pub(crate) separator: char,
}

impl fmt::Display for KeyForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.has_c { "default" } else { "v2" };
        write!(f, "the encoding {name} with \"{}\"", self.separator)
    }
}

/// How a key is related to the chunks of an array.
pub(crate) enum ChunkPlace {
    /// The key of a chunk in the grid. The flag is true if the key has a separator that the metadata do not state.
    Chunk(Coordinates, bool),
    /// A chunk key whose indices are outside the array's grid.
    Outside(Coordinates),
    /// A key that would be a chunk key if the array had this chunk key encoding. The metadata state another encoding.
    Misnamed(KeyForm),
    /// The folder that contains the array's chunks, or a folder above it.
    Ancestor,
    Other,
}

/// The chunk keys that an array may have, by which other keys are recognized.
pub(crate) struct ChunkPlaces<'a> {
    pub(crate) keys: &'a KeyScheme,
    /// The chunk grid, or `None` if it has too many chunks to number them.
    pub(crate) grid: Option<&'a Grid>,
    /// The chunk key encoding in the array's metadata.
    pub(crate) form: KeyForm,
    /// The prefix that chunk keys have in both encodings of Zarr v3, or `None` in dialects other than v2 and v3.
    base: Option<Vec<u8>>,
    rank: usize,
}

impl<'a> ChunkPlaces<'a> {
    pub(crate) fn new(array: &'a Array, grid: Option<&'a Grid>) -> ChunkPlaces<'a> {
        let keys = &array.keys;
        let form = KeyForm {
            has_c: keys.v3.get("name").is_some_and(|name| name == "default"),
            separator: keys.separator,
        };
        let within_base = if form.has_c { 2 } else { 0 };
        let base = keys.prefix.len().checked_sub(within_base);
        let base = base.and_then(|length| keys.prefix.get(..length));
        ChunkPlaces {
            keys,
            grid,
            form,
            base: base
                .filter(|_| ["v2", "v3"].contains(&array.dialect))
                .map(<[u8]>::to_vec),
            rank: array.shape.len(),
        }
    }

    /// Returns how a key is related to the chunks of the array.
    pub(crate) fn of(&self, key: &Key) -> ChunkPlace {
        let path = key.as_bytes();
        if self.rank == 0 {
            let is_chunk = self.keys.scalar_keys.iter().any(|scalar| scalar == path);
            return if is_chunk {
                ChunkPlace::Chunk(Coordinates::new(), false)
            } else {
                self.misnamed_or_other(path)
            };
        }
        let other = self.keys.other_separator.filter(|_| self.rank > 1);
        let separators = [(Some(self.keys.separator), false), (other, true)];
        for (separator, is_other) in separators {
            let indices = separator.and_then(|separator| self.keys.indices_of(path, separator));
            let Some(indices) = indices else { continue };
            match indices.len() {
                length if length == self.rank => return self.place_in_grid(&indices, is_other),
                length if length < self.rank && separator == Some('/') => {
                    return ChunkPlace::Ancestor;
                }
                _ => {}
            }
        }
        self.misnamed_or_other(path)
    }

    /// Returns how a key is related to the array if it is no chunk key in the encoding of the metadata.
    fn misnamed_or_other(&self, path: &[u8]) -> ChunkPlace {
        let with_separator = |separator| KeyForm {
            separator,
            ..self.form
        };
        let other = self.other_separator_of(path).map(with_separator);
        match other.or_else(|| self.other_encoding_of(path)) {
            Some(form) => ChunkPlace::Misnamed(form),
            None => self.ancestor_or_other(path),
        }
    }

    /// Returns the other chunk key encoding of Zarr v3 (with or without the prefix `c`) if the key is a chunk key in
    /// it.
    fn other_encoding_of(&self, path: &[u8]) -> Option<KeyForm> {
        let has_c = !self.form.has_c;
        let within = str::from_utf8(path.strip_prefix(self.base.as_ref()?.as_slice())?).ok()?;
        if self.rank == 0 {
            let separator = self.form.separator;
            let scalar = if has_c { "c" } else { "0" };
            return (within == scalar).then_some(KeyForm { has_c, separator });
        }
        let form = |separator: char| {
            let indices = if has_c {
                within.strip_prefix('c')?.strip_prefix(separator)?
            } else {
                within
            };
            self.are_indices(indices, separator)
                .then_some(KeyForm { has_c, separator })
        };
        ['/', '.'].into_iter().find_map(form)
    }

    /// Whether a text consists of chunk indices with the given separator. The chunk may be outside the grid.
    fn are_indices(&self, text: &str, separator: char) -> bool {
        let numbers: Option<Vec<u64>> = text.split(separator).map(parse_index).collect();
        numbers.is_some_and(|numbers| numbers.len() == self.rank)
    }

    /// Returns the separator that the metadata do not state if the key is a chunk key with it.
    fn other_separator_of(&self, path: &[u8]) -> Option<char> {
        let stated = self.keys.separator;
        let other = if stated == '/' { '.' } else { '/' };
        // In the encoding `default` of Zarr v3, the separator also stands before the first index.
        let swapped = self.keys.prefix.strip_suffix(stated.to_string().as_bytes());
        let swapped = swapped.map(|start| [start, other.to_string().as_bytes()].concat());
        let prefixes = [Some(self.keys.prefix.clone()), swapped];
        let mut indices = prefixes
            .iter()
            .flatten()
            .filter_map(|prefix| str::from_utf8(path.strip_prefix(prefix.as_slice())?).ok());
        let is_chunk = indices.any(|indices| self.are_indices(indices, other));
        (is_chunk && self.rank > 0).then_some(other)
    }

    fn place_in_grid(&self, indices: &[u64], is_other: bool) -> ChunkPlace {
        match self.grid {
            Some(grid) if grid.index(indices).is_none() => ChunkPlace::Outside(indices.into()),
            _ => ChunkPlace::Chunk(indices.into(), is_other),
        }
    }

    /// Returns `Ancestor` for the folder of the array's chunks and the folders above it, or else `Other`.
    fn ancestor_or_other(&self, path: &[u8]) -> ChunkPlace {
        let scalars = self.keys.scalar_keys.iter().map(Vec::as_slice);
        let leads = |to: &[u8]| {
            to == path
                || to
                    .strip_prefix(path)
                    .is_some_and(|rest| rest.starts_with(b"/"))
        };
        let mut ways = scalars
            .filter(|_| self.rank == 0)
            .chain([self.keys.folder()]);
        if ways.any(leads) {
            ChunkPlace::Ancestor
        } else {
            ChunkPlace::Other
        }
    }
}
