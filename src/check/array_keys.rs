//! The keys below an array: which are chunks of its grid, and which are none of its.
//!
//! No chunk is read: sizes come from listings, and of a shard on this machine the index.

use crate::array::OpenArray;
use crate::check::chunk_place::{ChunkPlace, ChunkPlaces, KeyForm};
use crate::check::context::CheckContext;
use crate::check::finding::{Finding, V2, V3, document_of};
use crate::check::findings::NodeFindings;
use crate::check::key_findings::{
    broken_link, chunk_heading, document_is_folder, empty_folder, folder_link, folder_unlisted,
    hidden, hierarchy_heading, leftover, orphan,
};
use crate::check::leftovers;
use crate::check::shards;
use crate::check::stored_keys::{StoredEntry, visit_below};
use crate::grid::ChunkIndex;
use crate::model::document::is_in_node_folder;
use crate::store::{Key, Meta};

/// What the stored chunks of an array come to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChunkStats {
    /// How many are stored.
    pub(super) count: u64,
    /// How many of them have a size that is known.
    pub(super) measured: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// How many have the separator that the metadata do not state.
    pub(super) with_other_separator: u64,
}

/// The keys of one array, as they are visited.
pub(super) struct ArrayKeys<'a> {
    context: &'a CheckContext,
    array: &'a OpenArray,
    places: ChunkPlaces<'a>,
    /// The folder below which everything is the array's.
    folder: &'a Key,
    /// The folder in which its documents lie; nothing if that is another one.
    documents: Option<&'a Key>,
    /// Which of them are stored there, and how long they are where the listing said so.
    stored_documents: Vec<(Key, Option<u64>)>,
    stats: ChunkStats,
    /// How many keys are those of chunks but for how they are made, which way that is, and the first of them.
    misnamed: Option<(u64, KeyForm, Key)>,
    /// The folder that was last found to belong to no node, so that its keys are no findings of their own.
    foreign: Option<Key>,
    findings: NodeFindings,
}

impl<'a> ArrayKeys<'a> {
    /// Looks at all keys below the folder of an array. Returns as well which documents are stored in `documents`.
    pub(super) fn check(
        context: &'a CheckContext,
        array: &'a OpenArray,
        (folder, documents): (&'a Key, Option<&'a Key>),
    ) -> (ChunkStats, NodeFindings, Vec<(Key, Option<u64>)>) {
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
            findings: NodeFindings::default(),
        };
        let visited = visit_below(context, folder, &mut |entry| keys.visit(entry));
        if let Err(error) = visited {
            keys.findings.add(folder_unlisted(folder, &error));
        }
        keys.check_separators();
        keys.check_misnamed();
        (keys.stats, keys.findings, keys.stored_documents)
    }

    /// Looks at an entry; returns whether a folder is to be entered.
    fn visit(&mut self, entry: StoredEntry) -> bool {
        self.context.progress.add_key();
        match entry {
            StoredEntry::Object(key, meta) => self.object(&key, meta.as_ref()),
            StoredEntry::Folder(key) => return self.enters(&key),
            StoredEntry::EmptyFolder(key) => self.findings.add(empty_folder(&key)),
            StoredEntry::FolderLink(key) => self.findings.add(folder_link(&key)),
            StoredEntry::BrokenLink(key, error) => self.findings.add(broken_link(&key, &error)),
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
        if let Some(origin) = leftovers::origin_of(key.name()) {
            self.findings.add(leftover(key, origin));
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
            ChunkPlace::OnTheWay | ChunkPlace::Other => self.foreign_key(key),
        }
    }

    /// Whether a folder may hold chunks, or is to be looked into since it belongs to no node.
    fn enters(&mut self, key: &Key) -> bool {
        if let Some(origin) = leftovers::origin_of(key.name()) {
            self.findings.add(leftover(key, origin));
            return false;
        }
        if self.is_own_document(key) {
            self.findings.add(document_is_folder(key, self.document()));
            return false;
        }
        if self.array.array().keys.is_known()
            && let ChunkPlace::Chunk(..) = self.places.of(key)
        {
            let finding =
                Finding::error("chunk-is-folder", key, "the object of a chunk", "a folder");
            self.findings
                .add(finding.by(self.document(), chunk_heading(self.document())));
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

    /// A stored chunk: its size has to be possible, and the index of a shard has to fit.
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
        let fault = length_fault(key, size, pipeline.stored_length(), self.document());
        if let Some(fault) = fault {
            self.findings.add(fault);
        } else if !pipeline.shards().is_empty() && !self.context.is_remote && !self.context.data {
            shards::check_index(self.context, &pipeline, (key, size), &mut self.findings);
        }
    }

    fn outside(&mut self, key: &Key, indices: &[u64]) {
        let counts = self.places.grid.map(|grid| grid.counts().to_vec());
        let expected = format!(
            "a chunk of the grid of {:?} chunks",
            counts.unwrap_or_default()
        );
        let found = format!("chunk {indices:?}");
        let document = self.document();
        let heading = if document == V3 {
            "Resizing"
        } else {
            chunk_heading(document)
        };
        self.findings
            .add(Finding::warning("chunk-outside", key, expected, found).by(document, heading));
    }

    /// A key that is none of the array's: of a node below the array, or of no node.
    fn foreign_key(&mut self, key: &Key) {
        let within = key.below(self.folder).unwrap_or_default();
        let mut names = within.names();
        let first = names.next().unwrap_or_default();
        let is_deeper = names.next().is_some();
        let Some(top) = self.folder.child(first).ok().filter(|_| is_deeper) else {
            self.findings.add(orphan(key));
            return;
        };
        if matches!(self.places.of(&top), ChunkPlace::OnTheWay) {
            self.findings.add(orphan(key));
            return;
        }
        self.findings.add(if self.is_own_document(&top) {
            document_is_folder(&top, self.document())
        } else if is_in_node_folder(key.name()) {
            let found = format!("a node in its folder, by {key}");
            let finding = Finding::error("node-in-array", &top, "no node below an array", found);
            finding.by(self.document(), hierarchy_heading(self.document()))
        } else {
            let found = format!("a folder that is no chunk's, with {key}");
            Finding::warning("orphan-folder", &top, "chunks alone below an array", found)
        });
        self.foreign = Some(top);
    }

    /// Chunks whose keys have another separator than the metadata state, or both.
    fn check_separators(&mut self) {
        let (other, all) = (self.stats.with_other_separator, self.stats.count);
        if other == 0 {
            return;
        }
        let path = self.array.path();
        let expected = "\".\" between the indices of chunks, since dimension_separator is missing";
        let found = format!("{other} of {all} chunks with \"/\"");
        let finding =
            Finding::error("separator-not-stated", path, expected, found).by(V2, "Metadata");
        self.findings.add(if other < all {
            finding
        } else {
            finding.habit_of("zarr-python before 2.8 with nested directories")
        });
    }

    /// Notes a key that is that of a chunk but for how it is made.
    fn misnamed(&mut self, key: &Key, form: KeyForm) {
        let (count, ..) = self.misnamed.get_or_insert_with(|| (0, form, key.clone()));
        *count += 1;
    }

    /// Tells all keys together that are not made as the metadata say: no reader takes them for chunks.
    fn check_misnamed(&mut self) {
        let Some((count, form, first)) = self.misnamed.take() else {
            return;
        };
        let (path, stated) = (self.array.path(), self.places.form);
        let (code, expected, how) = if form.has_c == stated.has_c {
            let stated = stated.separator;
            let expected = format!("\"{stated}\" between the indices of chunks");
            let how = format!("with \"{}\"", form.separator);
            ("separator-differs", expected, how)
        } else {
            let expected = format!("keys of chunks in {stated}");
            ("key-encoding-differs", expected, format!("in {form}"))
        };
        let expected = format!("{expected}, as the metadata state");
        let keys = if count == 1 {
            format!("{first}, which looks like a chunk")
        } else {
            format!("{count} keys, such as {first}, that look like chunks")
        };
        let found = format!("{keys} of {path} {how}");
        let finding = Finding::error(code, path, expected, found);
        self.findings
            .add(finding.by(self.document(), chunk_heading(self.document())));
    }

    fn document(&self) -> &'static str {
        document_of(Some(self.array.array().dialect))
    }
}

/// Returns what is wrong with the length of a stored chunk, if that shows without reading it.
fn length_fault(
    key: &Key,
    size: u64,
    expected: Option<u64>,
    document: &'static str,
) -> Option<Finding> {
    let found = format!("{size} bytes");
    let heading = chunk_heading(document);
    match expected {
        Some(expected) if size != expected => {
            let expected = format!("{expected} bytes, since no codec changes the length");
            Some(Finding::error("chunk-length", key, expected, found).by(document, heading))
        }
        _ if size == 0 => {
            let expected = "at least one byte";
            Some(Finding::error("chunk-empty", key, expected, found).by(document, heading))
        }
        _ => None,
    }
}
