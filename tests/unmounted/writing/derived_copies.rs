//! Tests that consolidated metadata agree with the nodes, in a mount and after its commit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_array::hierarchy::{Hierarchy, HierarchyConfig};
use zarrfs_overlay::commit::{CommitConfig, Outcome};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::tree::{AttrChange, OpenMode, RenameMode, TreeFile};
use zarrfs_store::{Condition, ETag, EntryKind, Key, Object, PutBody, Store, Tree};

use crate::dialects::hierarchies::key;
use crate::writing::documents::write;
use crate::writing::fixture::MAKER;
use crate::writing::shared::{Mode, Shared, everywhere, folder};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    V2,
    V3,
}

const FORMS: [Form; 2] = [Form::V2, Form::V3];

impl Form {
    /// Returns the names of a node's metadata documents, of which the last one contains the attributes.
    fn documents(self, is_array: bool) -> &'static [&'static str] {
        match (self, is_array) {
            (Form::V2, true) => &[".zarray", ".zattrs"],
            (Form::V2, false) => &[".zgroup", ".zattrs"],
            (Form::V3, _) => &["zarr.json"],
        }
    }

    /// Returns the name of the document that contains consolidated metadata.
    fn holder(self) -> &'static str {
        match self {
            Form::V2 => ".zmetadata",
            Form::V3 => "zarr.json",
        }
    }

    fn array(self, length: u64, attributes: Value) -> Vec<(&'static str, Value)> {
        match self {
            Form::V2 => vec![
                (
                    ".zarray",
                    json!({"zarr_format": 2, "shape": [length], "chunks": [2], "dtype": "<u2",
                        "compressor": null, "fill_value": 0, "order": "C", "filters": null}),
                ),
                (".zattrs", attributes),
            ],
            Form::V3 => vec![(
                "zarr.json",
                json!({"zarr_format": 3, "node_type": "array", "shape": [length],
                    "data_type": "uint16", "fill_value": 0, "attributes": attributes,
                    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
                    "chunk_key_encoding": {"name": "default"},
                    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}),
            )],
        }
    }

    fn group(self) -> Vec<(&'static str, Value)> {
        match self {
            Form::V2 => vec![
                (".zgroup", json!({"zarr_format": 2})),
                (".zattrs", json!({})),
            ],
            Form::V3 => vec![(
                "zarr.json",
                json!({"zarr_format": 3, "node_type": "group", "attributes": {}}),
            )],
        }
    }

    /// Returns a store with the arrays `g/x` and `y`, and consolidated metadata in the root and in `g`.
    fn store(self) -> MemoryStore {
        let memory = MemoryStore::default();
        let put = |folder: &str, documents: Vec<(&str, Value)>| {
            for (name, document) in documents {
                memory.set(key(&format!("{folder}{name}")), text(&document));
            }
        };
        put("", self.group());
        put("g/", self.group());
        put("g/x/", self.array(4, json!({"n": 0})));
        put("y/", self.array(4, json!({"n": 0})));
        memory.set(key(&self.chunk("y")), vec![1, 0, 1, 0]);
        for folder in ["g", ""] {
            self.consolidate(&memory, folder);
        }
        memory
    }

    fn chunk(self, array: &str) -> String {
        match self {
            Form::V2 => format!("{array}/0"),
            Form::V3 => format!("{array}/c/0"),
        }
    }

    /// Writes the consolidated metadata of a group as zarr-python does.
    fn consolidate(self, memory: &MemoryStore, folder: &str) {
        let copies: serde_json::Map<String, Value> =
            self.expected(memory, folder).into_iter().collect();
        let holder = place(folder, self.holder());
        let document = match self {
            Form::V2 => json!({"metadata": copies, "zarr_consolidated_format": 1}),
            Form::V3 => {
                let mut group = json_of(memory, &holder);
                group["consolidated_metadata"] =
                    json!({"kind": "inline", "must_understand": false, "metadata": copies});
                group
            }
        };
        let pretty = serde_json::to_vec_pretty(&document).unwrap();
        memory.set(key(&holder), pretty);
    }

    /// Returns the copies that the consolidated metadata of a group should contain, from the documents in a store.
    fn expected(self, store: &dyn Store, folder: &str) -> BTreeMap<String, Value> {
        let mut copies = BTreeMap::new();
        let mut folders = vec![key(folder)];
        while let Some(at) = folders.pop() {
            let mut names = store.list(&UNLIMITED, &at).unwrap();
            while let Some(name) = names.next(&UNLIMITED).unwrap() {
                let found = at.child(&name.name).unwrap();
                let rest = found.below(&key(folder)).unwrap().to_string();
                let file = String::from_utf8(name.name.clone()).unwrap();
                let is_copied = match self {
                    Form::V2 => [".zgroup", ".zarray", ".zattrs"].contains(&&*file),
                    Form::V3 => file == "zarr.json" && rest != file,
                };
                if name.kind == EntryKind::Directory {
                    folders.push(found);
                } else if is_copied {
                    let mut document = json_of(store, &found.to_string());
                    if self == Form::V3 && document["node_type"] == "group" {
                        document["consolidated_metadata"] =
                            json!({"kind": "inline", "must_understand": false, "metadata": {}});
                    }
                    let name = rest.strip_suffix("/zarr.json").unwrap_or(&rest);
                    copies.insert(name.to_string(), document);
                }
            }
        }
        copies
    }

    /// Returns the copies that the consolidated metadata of a group contain.
    fn copies(self, store: &dyn Store, folder: &str) -> BTreeMap<String, Value> {
        let document = json_of(store, &place(folder, self.holder()));
        let copies = match self {
            Form::V2 => &document["metadata"],
            Form::V3 => &document["consolidated_metadata"]["metadata"],
        };
        let copies = copies.as_object().unwrap().clone();
        copies.into_iter().collect()
    }

    /// Returns the key of the metadata document that contains the attributes of a node.
    fn attributes(self, node: &str) -> String {
        place(node, self.documents(true).last().unwrap())
    }
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn place(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_string()
    } else {
        format!("{folder}/{name}")
    }
}

fn bytes_of(store: &dyn Store, name: &str) -> Vec<u8> {
    store
        .get(&UNLIMITED, &key(name), 1 << 20)
        .unwrap()
        .unwrap()
        .bytes
}

fn json_of(store: &dyn Store, name: &str) -> Value {
    serde_json::from_slice(&bytes_of(store, name)).unwrap()
}

type Change<'a> = &'a dyn Fn(&Case);

/// A mount of a store that has consolidated metadata in some dialect.
struct Case {
    form: Form,
    mount: Shared,
}

impl Case {
    fn new(form: Form, mode: Mode, kind: &str) -> Case {
        let mount = Shared::over(mode, kind, &form.store());
        Case { form, mount }
    }

    /// Returns a mount in copy-on-write mode for each dialect and each kind of store.
    fn all() -> impl Iterator<Item = Case> {
        let kinds = |form| ["memory", "local"].map(|kind| Case::new(form, Mode::Cow, kind));
        FORMS.into_iter().flat_map(kinds)
    }

    fn overlay(&self) -> &zarrfs_overlay::Overlay {
        &self.mount.overlay
    }

    /// Edits the attributes of a node through `attributes.json` in the files view.
    fn edit(&self, node: &str, n: u64) {
        let path = place(node, "attributes.json");
        write(&self.mount.tree, &path, &json!({"n": n}).to_string()).unwrap();
    }

    /// Writes a file in the store view, in the same steps as a program.
    fn write(&self, name: &str, bytes: &[u8]) {
        let (overlay, path) = (self.overlay(), key(name));
        let file: Arc<dyn TreeFile> = match Tree::stat(overlay, &UNLIMITED, &path).unwrap() {
            Some(_) => Tree::open(overlay, &UNLIMITED, &path, OpenMode::Truncate).unwrap(),
            None => overlay.create(&UNLIMITED, &path, &MAKER).unwrap(),
        };
        file.write_at(&UNLIMITED, 0, bytes).unwrap();
        file.flush(&UNLIMITED).unwrap();
    }

    /// Writes a file in the store view and renames it onto another, as zarr-python does.
    fn replace(&self, name: &str, bytes: &[u8]) {
        let temporary = format!("{name}.partial");
        self.write(&temporary, bytes);
        let done = self.overlay().rename(
            &UNLIMITED,
            &key(&temporary),
            &key(name),
            RenameMode::Replace,
        );
        done.unwrap();
    }

    fn make_array(&self, node: &str, length: u64) {
        if Tree::stat(self.overlay(), &UNLIMITED, &key(node))
            .unwrap()
            .is_none()
        {
            self.overlay()
                .make_folder(&UNLIMITED, &key(node), &MAKER)
                .unwrap();
        }
        for (name, document) in self.form.array(length, json!({"n": 0})) {
            self.replace(&place(node, name), &text(&document));
        }
    }

    fn remove(&self, path: &str) {
        let overlay = self.overlay();
        let mut names = Vec::new();
        let mut listing = overlay.list(&UNLIMITED, &key(path)).unwrap();
        while let Some(name) = listing.next(&UNLIMITED).unwrap() {
            names.push((place(path, str::from_utf8(&name.name).unwrap()), name.kind));
        }
        for (name, kind) in names {
            match kind {
                EntryKind::Directory => self.remove(&name),
                _ => overlay.unlink(&UNLIMITED, &key(&name)).unwrap(),
            }
        }
        overlay.remove_folder(&UNLIMITED, &key(path)).unwrap();
    }

    fn discard(&self, path: &str) {
        self.overlay().discard(&UNLIMITED, &key(path)).unwrap();
    }

    fn try_commit(&self) -> Outcome {
        let outcome = self
            .overlay()
            .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {});
        outcome.unwrap()
    }

    fn commit(&self) -> Outcome {
        let outcome = self.try_commit().or_failed().unwrap();
        assert_eq!(outcome.conflicts, []);
        outcome
    }

    /// Sets the attributes of an array in the store as another program that does not update consolidated metadata.
    fn edit_outside(&self, node: &str, n: u64) {
        let documents = self.form.array(4, json!({"n": n}));
        let (name, document) = documents.last().unwrap();
        self.mount.put_outside(&place(node, name), &text(document));
    }

    fn stored_holders(&self) -> Vec<Vec<u8>> {
        let holders = ["", "g"].map(|folder| place(folder, self.form.holder()));
        holders
            .iter()
            .map(|name| bytes_of(&*self.mount.lower, name))
            .collect()
    }

    fn is_in_conflict(&self) {
        let outcome = self.try_commit();
        assert!(outcome.failed.is_none());
        assert!(!outcome.conflicts.is_empty());
    }

    fn changed(&self) -> Vec<String> {
        let changes = self.overlay().changes(&UNLIMITED).unwrap().keys;
        changes
            .iter()
            .map(|change| change.key.to_string())
            .collect()
    }

    /// Checks that the consolidated metadata in a store agree with its documents.
    #[track_caller]
    fn agrees(&self, store: &dyn Store) {
        for folder in ["", "g"] {
            let holder = key(&place(folder, self.form.holder()));
            let Some(meta) = store.head(&UNLIMITED, &holder).unwrap() else {
                continue;
            };
            let (copies, expected) = (
                self.form.copies(store, folder),
                self.form.expected(store, folder),
            );
            assert_eq!(copies, expected, "{:?} {folder:?}", self.form);
            // Requests for size, version and bytes of the document all describe the same text.
            let object = store.get(&UNLIMITED, &holder, 1 << 20).unwrap().unwrap();
            assert_eq!((meta.size, meta.version), (object.size, object.version));
            assert_eq!(object.bytes.len() as u64, object.size);
            let reader = store.open(&UNLIMITED, &holder, None).unwrap();
            assert_eq!(
                reader.read_at(&UNLIMITED, 0, 1 << 20).unwrap(),
                object.bytes
            );
            let opened = reader.meta(&UNLIMITED).unwrap();
            assert_eq!((opened.size, opened.version), (meta.size, meta.version));
        }
    }

    #[track_caller]
    fn shows_agreement(&self) {
        self.agrees(self.overlay());
    }

    /// Edits another node, commits, and checks that the consolidated metadata in the store agree with its documents.
    #[track_caller]
    fn commits_agreement(&self) {
        self.edit("y", 77);
        self.commit();
        self.agrees(&*self.mount.lower);
        self.shows_agreement();
        assert_eq!(self.changed(), [""; 0]);
        assert_eq!(
            json_of(&*self.mount.lower, &self.form.attributes("y"))
                .to_string()
                .matches("77")
                .count(),
            1
        );
    }
}

/// Invariant (writing): Consolidated metadata agree with the nodes that the mount shows, and after a commit with those
/// of the store; discarded changes are never in them.
#[test]
fn copies_agree_when_attributes_are_edited_and_discarded() {
    for case in Case::all() {
        let before = bytes_of(case.overlay(), case.form.holder());
        case.edit("g/x", 5);
        case.shows_agreement();
        let copies = case.form.copies(case.overlay(), "");
        assert!(json!(copies).to_string().contains("\"n\":5"));
        assert_eq!(case.changed(), [case.form.attributes("g/x")]);
        case.edit("g/x", 6);
        case.shows_agreement();
        case.discard("g/x");
        case.shows_agreement();
        assert_eq!(bytes_of(case.overlay(), case.form.holder()), before);
        case.commits_agreement();
        let copies = case.form.copies(&*case.mount.lower, "g");
        assert!(json!(copies).to_string().contains("\"n\":0"));
    }
}

/// Invariant of `copies_agree_when_attributes_are_edited_and_discarded`.
#[test]
fn copies_agree_when_arrays_are_made_resized_or_removed_and_discarded() {
    let changes: [(&str, Change); 4] = [
        ("made", &|case| case.make_array("g/new", 7)),
        ("resized", &|case| case.make_array("g/x", 1)),
        ("removed", &|case| case.remove("g/x")),
        ("edited and removed", &|case| {
            case.edit("g/x", 3);
            case.remove("g/x");
        }),
    ];
    for (name, change) in changes {
        for case in Case::all() {
            let before = bytes_of(case.overlay(), case.form.holder());
            change(&case);
            case.shows_agreement();
            assert_ne!(
                bytes_of(case.overlay(), case.form.holder()),
                before,
                "{name}"
            );
            case.discard("g");
            assert_eq!(
                bytes_of(case.overlay(), case.form.holder()),
                before,
                "{name}"
            );
            case.shows_agreement();
            case.commits_agreement();
        }
        for case in Case::all() {
            change(&case);
            case.commits_agreement();
        }
    }
}

/// Invariant of `copies_agree_when_attributes_are_edited_and_discarded`.
#[test]
fn copies_agree_when_groups_are_renamed_or_removed() {
    for case in Case::all() {
        let rename = |from: &str, to: &str| {
            let done = case
                .overlay()
                .rename(&UNLIMITED, &key(from), &key(to), RenameMode::Replace);
            done.unwrap();
            case.shows_agreement();
        };
        rename("g/x", "g/z");
        case.edit("g/z", 4);
        case.shows_agreement();
        rename("y", "g/y");
        rename("g", "h");
        let copies = case.form.copies(case.overlay(), "h");
        assert_eq!(copies, case.form.expected(case.overlay(), "h"));
        case.commit();
        case.shows_agreement();
        case.agrees(&*case.mount.lower);
        let copies = case.form.copies(&*case.mount.lower, "h");
        assert_eq!(copies, case.form.expected(&*case.mount.lower, "h"));
        case.remove("h");
        case.shows_agreement();
        case.commit();
        case.agrees(&*case.mount.lower);
    }
}

/// Invariant of `copies_agree_when_attributes_are_edited_and_discarded`.
#[test]
fn copies_agree_in_the_store_after_each_write_through() {
    for (mode, kind) in everywhere().filter(|(mode, _)| *mode == Mode::WriteThrough) {
        for form in FORMS {
            let case = Case::new(form, mode, kind);
            let both = || {
                case.shows_agreement();
                case.agrees(&*case.mount.lower);
            };
            case.edit("g/x", 5);
            both();
            case.edit("g", 6);
            both();
            case.edit("", 7);
            both();
            case.make_array("g/new", 3);
            both();
            case.remove("g/x");
            both();
            let renamed =
                case.overlay()
                    .rename(&UNLIMITED, &key("g/new"), &key("z"), RenameMode::Replace);
            renamed.unwrap();
            both();
            assert_eq!(case.changed(), [""; 0]);
        }
    }
}

/// Invariant of `copies_agree_when_attributes_are_edited_and_discarded`.
///
/// The attributes of the groups with consolidated metadata are edited, which are in the same document in Zarr v3.
#[test]
fn an_edited_group_has_no_copies_of_discarded_edits() {
    for case in Case::all() {
        case.edit("g/x", 5);
        case.edit("g", 6);
        case.edit("", 7);
        case.edit("g/x", 8);
        case.shows_agreement();
        case.discard("g/x");
        case.shows_agreement();
        let copies = json!(case.form.copies(case.overlay(), "g")).to_string();
        assert!(copies.contains("\"n\":0"), "{copies}");
        case.commits_agreement();
        let copies = json!(case.form.copies(&*case.mount.lower, "")).to_string();
        assert!(copies.contains("\"n\":6"), "{copies}");
        let root = json_of(&*case.mount.lower, &case.form.attributes(""));
        assert!(root.to_string().contains("\"n\":7"), "{root}");
    }
}

/// Invariant (writing): Copies that a program wrote stay as written until one of the copied documents changes.
#[test]
fn copies_that_a_program_wrote_are_kept() {
    for case in Case::all() {
        let name = case.form.holder();
        case.edit("y", 3);
        let shown = String::from_utf8(bytes_of(case.overlay(), name)).unwrap();
        // In the consolidated metadata of the program, one entry has no document, and another one differs from its
        // document.
        let theirs = shown
            .replace("\"n\": 0", "\"n\": 99")
            .replace("\"n\": 3", "\"n\": 98");
        for write in [Case::write, Case::replace] {
            write(&case, name, theirs.as_bytes());
            assert_eq!(bytes_of(case.overlay(), name), theirs.as_bytes());
        }
        // A later edit of a document changes only the copy of that document.
        case.edit("y", 4);
        let expected = theirs.replace("\"n\": 98", "\"n\": 4");
        assert_eq!(bytes_of(case.overlay(), name), expected.as_bytes());
        case.commit();
        assert_eq!(bytes_of(case.overlay(), name), expected.as_bytes());
        assert_eq!(bytes_of(&*case.mount.lower, name), expected.as_bytes());
    }
}

/// Invariant of `copies_that_a_program_wrote_are_kept`.
///
/// A library creates an array and consolidates the metadata. Then the array is discarded.
#[test]
fn a_discarded_array_is_removed_from_copies_of_a_program() {
    for case in Case::all() {
        case.make_array("new", 3);
        let name = case.form.holder();
        let shown = bytes_of(case.overlay(), name);
        case.replace(name, &shown);
        assert_eq!(bytes_of(case.overlay(), name), shown);
        case.edit("g/x", 5);
        case.discard("new");
        case.shows_agreement();
        case.commits_agreement();
        assert!(
            !case
                .form
                .copies(&*case.mount.lower, "")
                .keys()
                .any(|name| name.contains("new"))
        );
    }
}

/// A program that changes a part of the document in place starts from the text with the current copies, which it has
/// read.
#[test]
fn a_change_in_place_starts_from_the_shown_document() {
    for case in Case::all() {
        let name = case.form.holder();
        let read = Tree::open(case.overlay(), &UNLIMITED, &key(name), OpenMode::Read).unwrap();
        let before = read.read_at(&UNLIMITED, 0, 1 << 20).unwrap();
        case.edit("y", 3);
        let shown = bytes_of(case.overlay(), name);
        assert_eq!(
            read.read_at(&UNLIMITED, 0, 1 << 20).unwrap(),
            before,
            "an open file stays as it was"
        );
        let file = Tree::open(case.overlay(), &UNLIMITED, &key(name), OpenMode::Write).unwrap();
        assert_eq!(
            file.stat(&UNLIMITED).unwrap(),
            Tree::stat(case.overlay(), &UNLIMITED, &key(name))
                .unwrap()
                .unwrap()
        );
        assert_eq!(file.read_at(&UNLIMITED, 0, 1 << 20).unwrap(), shown);
        assert!(!case.changed().contains(&name.to_string()));
        file.append(&UNLIMITED, b"\n").unwrap();
        file.flush(&UNLIMITED).unwrap();
        drop(file);
        let expected = [&shown[..], b"\n"].concat();
        assert_eq!(bytes_of(case.overlay(), name), expected);
        case.commits_agreement();
    }
}

/// A store that counts reads, and in which a put of a document can fail, before or after the object is stored.
struct Failing {
    memory: MemoryStore,
    document: Key,
    /// The number of puts of the document that succeed before one fails.
    left: AtomicI64,
    is_late: AtomicBool,
    gets: AtomicUsize,
    /// Whether all reads of the store fail.
    is_down: AtomicBool,
    /// A function that is called just before the next put of the document, in another thread.
    before_put: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Layer for Failing {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        if self.is_down.load(Ordering::SeqCst) {
            return Err(Error::new(Kind::Unavailable, key, "made to fail"));
        }
        self.memory.get(context, key, limit)
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        let fails = *key == self.document && self.left.fetch_sub(1, Ordering::SeqCst) == 0;
        let failed = || Error::new(Kind::Unavailable, key, "made to fail");
        if fails && !self.is_late.load(Ordering::SeqCst) {
            return Err(failed());
        }
        let before = (*key == self.document).then(|| self.before_put.lock().unwrap().take());
        if let Some(before) = before.flatten() {
            before();
        }
        let put = self.memory.put(context, key, body, condition)?;
        if fails { Err(failed()) } else { Ok(put) }
    }
}

fn failing(form: Form, left: i64, mode: Mode) -> (Arc<Failing>, Case) {
    failing_at(form, form.holder(), left, mode)
}

fn failing_at(form: Form, document: &str, left: i64, mode: Mode) -> (Arc<Failing>, Case) {
    let store = Arc::new(Failing {
        memory: form.store(),
        document: key(document),
        left: AtomicI64::new(left),
        is_late: AtomicBool::new(false),
        gets: AtomicUsize::new(0),
        is_down: AtomicBool::new(false),
        before_put: Mutex::new(None),
    });
    let mount = Shared::new(mode, store.clone(), folder());
    (store, Case { form, mount })
}

/// Invariant (writing): A commit that ended before it updated consolidated metadata is completed by the next one, and
/// copies never conflict.
///
/// A commit fails after it has put the documents but not the consolidated metadata, which the next commit puts.
#[test]
fn a_commit_that_failed_before_the_copies_is_completed() {
    for (form, is_late) in [
        (Form::V2, false),
        (Form::V2, true),
        (Form::V3, false),
        (Form::V3, true),
    ] {
        for edits_root in [false, true] {
            for left in 0..2 {
                let (store, case) = failing(form, left, Mode::Cow);
                store.is_late.store(is_late, Ordering::SeqCst);
                case.edit("g/x", 5);
                case.remove("y");
                if edits_root {
                    case.edit("", 6);
                }
                let outcome = case.try_commit();
                let puts = if edits_root && form == Form::V3 { 2 } else { 1 };
                assert_eq!(outcome.failed.is_some(), left < puts, "{form:?} {left}");
                case.shows_agreement();
                case.commit();
                case.agrees(&*case.mount.lower);
                case.shows_agreement();
                assert_eq!(case.changed(), [""; 0]);
            }
        }
    }
}

/// Invariant of `a_commit_that_failed_before_the_copies_is_completed`.
///
/// After a commit failed before it put the consolidated metadata, the remaining changes are discarded. The store is
/// still consistent.
#[test]
fn copies_agree_when_a_commit_that_failed_before_them_is_discarded() {
    for form in FORMS {
        let (_, case) = failing(form, 0, Mode::Cow);
        case.edit("g/x", 5);
        case.remove("y");
        let outcome = case.try_commit();
        assert!(outcome.failed.is_some());
        case.discard("");
        case.shows_agreement();
        case.agrees(&*case.mount.lower);
        let copies = json!(form.copies(&*case.mount.lower, "g")).to_string();
        assert!(copies.contains("\"n\":5"), "{copies}");
    }
}

/// Invariant of `a_commit_that_failed_before_the_copies_is_completed`.
///
/// In write-through mode, the store accepts a document but not its copy in consolidated metadata, which the next commit
/// puts.
#[test]
fn copies_that_the_store_refused_are_put_by_the_next_commit() {
    for form in FORMS {
        for remounts in [false, true] {
            let (store, case) = failing(form, 0, Mode::WriteThrough);
            let path = place("g/x", "attributes.json");
            let written = write(&case.mount.tree, &path, r#"{"n": 5}"#);
            assert_eq!(written.unwrap_err().kind(), Kind::Unavailable);
            let mount = if remounts {
                case.mount.again(store)
            } else {
                case.mount
            };
            let case = Case { form, mount };
            case.shows_agreement();
            case.commit();
            case.agrees(&*case.mount.lower);
            case.shows_agreement();
            assert_eq!(case.changed(), [""; 0]);
        }
    }
}

/// A change that only sets the mode of a document's file must not prevent the update of its copies.
#[test]
fn copies_are_updated_after_a_change_of_mode() {
    for case in Case::all() {
        let name = key(case.form.holder());
        let mode = AttrChange {
            mode: Some(0o600),
            ..AttrChange::default()
        };
        Tree::change(case.overlay(), &UNLIMITED, &name, &mode).unwrap();
        case.edit("g/x", 5);
        case.shows_agreement();
        let stat = Tree::stat(case.overlay(), &UNLIMITED, &name)
            .unwrap()
            .unwrap();
        assert_eq!(stat.posix.unwrap().mode & 0o777, 0o600);
        case.commit();
        case.agrees(&*case.mount.lower);
        case.shows_agreement();
        case.edit("g/x", 6);
        case.shows_agreement();
        case.discard("g/x");
        case.shows_agreement();
    }
}

/// Nodes that are read from consolidated metadata have the attributes that were edited in the mount.
#[test]
fn nodes_read_from_copies_have_the_edited_attributes() {
    for form in FORMS {
        let case = Case::new(form, Mode::Cow, "memory");
        let config = HierarchyConfig {
            consolidated: true,
            ..HierarchyConfig::default()
        };
        let store: Arc<dyn Store> = Arc::new(case.overlay().clone());
        let hierarchy = Hierarchy::configured(store, config).of_tree();
        let attributes = || {
            let node = hierarchy.node(&UNLIMITED, &key("g/x")).unwrap().unwrap();
            node.array().unwrap().attributes.to_map()
        };
        for n in [5, 6, 7] {
            case.edit("g/x", n);
            assert_eq!(Value::Object(attributes()), json!({"n": n}), "{form:?}");
        }
        case.discard("g/x");
        assert_eq!(Value::Object(attributes()), json!({"n": 0}), "{form:?}");
    }
}

/// Invariant of `a_commit_that_failed_before_the_copies_is_completed`.
///
/// A group is edited after a failed commit, and the next commit puts both the group's document and its consolidated
/// metadata.
#[test]
fn a_commit_of_copies_does_not_conflict_with_itself() {
    for form in FORMS {
        let (_, case) = failing(form, 0, Mode::Cow);
        case.edit("g/x", 5);
        let outcome = case.try_commit();
        assert!(outcome.failed.is_some());
        case.edit("", 6);
        case.edit("g", 7);
        let name = form.holder();
        case.shows_agreement();
        case.commit();
        case.shows_agreement();
        case.agrees(&*case.mount.lower);
        // The document with the consolidated metadata is written in the store view.
        let (_, case) = failing(form, 0, Mode::Cow);
        case.edit("g/x", 5);
        let outcome = case.try_commit();
        assert!(outcome.failed.is_some());
        let shown = bytes_of(case.overlay(), name);
        case.write(name, &[&shown[..], b"\n"].concat());
        case.commit();
        case.agrees(&*case.mount.lower);
    }
}

/// As long as no document has changed, a read of consolidated metadata makes no additional requests to the store.
#[test]
fn reading_copies_without_changed_documents_costs_no_request() {
    for form in FORMS {
        let (store, case) = failing(form, -1, Mode::Cow);
        case.write(&form.chunk("y"), b"1234");
        let chunk = key(&form.chunk("g/x"));
        let put = |bytes: &[u8]| {
            let body = PutBody::Bytes(bytes);
            case.overlay()
                .put(&UNLIMITED, &chunk, body, &Condition::Any)
                .unwrap();
        };
        put(b"1234");
        case.overlay()
            .unlink(&UNLIMITED, &key(&form.chunk("y")))
            .unwrap();
        let count = || store.gets.swap(0, Ordering::SeqCst);
        count();
        for folder in ["", "g"] {
            let name = place(folder, form.holder());
            bytes_of(case.overlay(), &name);
            assert_eq!(count(), 1, "{name}");
            case.overlay().head(&UNLIMITED, &key(&name)).unwrap();
            assert_eq!(count(), 0, "{name}");
        }
        // After an edit, the text of the consolidated metadata is only generated once.
        case.edit("g/x", 5);
        bytes_of(case.overlay(), form.holder());
        count();
        bytes_of(case.overlay(), form.holder());
        put(b"5678");
        bytes_of(case.overlay(), form.holder());
        assert_eq!(count(), 0);
    }
}

/// A conflict keeps an edit of the mount out of the store, another program consolidates the metadata, and the edit is
/// discarded.
#[test]
fn an_edit_discarded_after_a_conflict_is_not_in_the_copies() {
    for case in Case::all() {
        let name = case.form.holder();
        case.edit("g/x", 5);
        case.edit("y", 6);
        case.edit_outside("y", 7);
        case.is_in_conflict();
        let shown = bytes_of(case.overlay(), name);
        case.write(name, &shown);
        assert_eq!(bytes_of(case.overlay(), name), shown);
        case.discard("g/x");
        let copies = json!(case.form.copies(case.overlay(), "")).to_string();
        assert!(!copies.contains("\"n\":5"), "{copies}");
        case.discard("y");
        case.commit();
        let copies = case.form.copies(&*case.mount.lower, "");
        assert_eq!(copies, case.form.expected(&*case.mount.lower, ""));
    }
}

/// A conflict keeps a rename out of the store, another program consolidates, and the rename is discarded.
#[test]
fn a_rename_discarded_after_a_conflict_is_not_in_the_copies() {
    for case in Case::all() {
        let name = case.form.holder();
        let (from, to) = (key("g/x"), key("z"));
        case.overlay()
            .rename(&UNLIMITED, &from, &to, RenameMode::Replace)
            .unwrap();
        case.edit("y", 6);
        case.edit_outside("y", 7);
        case.is_in_conflict();
        let shown = bytes_of(case.overlay(), name);
        case.write(name, &shown);
        case.discard("z");
        case.discard("y");
        case.commit();
        let copies = case.form.copies(&*case.mount.lower, "");
        assert_eq!(copies, case.form.expected(&*case.mount.lower, ""));
    }
}

/// A reader has the document open while a commit stores other consolidated metadata than those in the copy-on-write
/// layer.
#[test]
fn a_reader_keeps_its_document_over_a_commit_of_other_copies() {
    for edits in [false, true] {
        for case in Case::all() {
            let name = case.form.holder();
            if edits {
                case.edit("", 6);
            } else {
                case.write(name, &bytes_of(case.overlay(), name));
            }
            let reader =
                Tree::open(case.overlay(), &UNLIMITED, &key(name), OpenMode::Read).unwrap();
            let before = reader.read_at(&UNLIMITED, 0, 1 << 20).unwrap();
            case.edit("g/x", 55555);
            case.commit();
            case.agrees(&*case.mount.lower);
            case.shows_agreement();
            assert_eq!(reader.read_at(&UNLIMITED, 0, 1 << 20).unwrap(), before);
            let stored = bytes_of(&*case.mount.lower, name);
            let again = Tree::open(case.overlay(), &UNLIMITED, &key(name), OpenMode::Read).unwrap();
            assert_eq!(again.read_at(&UNLIMITED, 0, 1 << 20).unwrap(), stored);
            let writer =
                Tree::open(case.overlay(), &UNLIMITED, &key(name), OpenMode::Write).unwrap();
            writer.append(&UNLIMITED, b"\n").unwrap();
            writer.flush(&UNLIMITED).unwrap();
            drop((writer, again));
            case.commit();
            let expected = [&stored[..], b"\n"].concat();
            assert_eq!(bytes_of(&*case.mount.lower, name), expected);
            case.agrees(&*case.mount.lower);
            drop(reader);
        }
    }
}

/// Another program puts the text that is in the copy-on-write layer, although the commit has stored a different text.
#[test]
fn an_older_document_put_by_another_program_is_a_conflict() {
    for form in FORMS {
        let (store, case) = failing(form, -1, Mode::Cow);
        let (case, name) = (Arc::new(case), form.holder());
        let written = bytes_of(case.overlay(), name);
        case.write(name, &written);
        case.edit("g/x", 5);
        let theirs = case.clone();
        let write = move || {
            let shown = bytes_of(theirs.overlay(), name);
            theirs.write(name, &[&shown[..], b"\n"].concat());
        };
        *store.before_put.lock().unwrap() = Some(Box::new(write));
        case.commit();
        assert_ne!(case.mount.stored(name), written);
        case.mount.put_outside(name, &written);
        case.is_in_conflict();
        assert_eq!(case.mount.stored(name), written);
    }
}

/// A document that is renamed onto one with consolidated metadata has its own consolidated metadata afterwards.
#[test]
fn a_document_that_is_renamed_keeps_its_copies() {
    for kind in ["memory", "local"] {
        let memory = Form::V3.store();
        let text = String::from_utf8(bytes_of(&memory, "zarr.json")).unwrap();
        let backup = text.replacen("\"n\": 0", "\"n\": 3", 1);
        memory.set(key("zarr.json.bak"), backup.into_bytes());
        let mount = Shared::over(Mode::Cow, kind, &memory);
        let case = Case {
            form: Form::V3,
            mount,
        };
        let (from, to) = (key("zarr.json.bak"), key("zarr.json"));
        case.overlay()
            .rename(&UNLIMITED, &from, &to, RenameMode::Replace)
            .unwrap();
        let shown = bytes_of(case.overlay(), "zarr.json");
        case.commit();
        let stored = bytes_of(&*case.mount.lower, "zarr.json");
        assert_eq!(String::from_utf8(stored), String::from_utf8(shown));
    }
}

/// A group replaces another one, and only one of them has consolidated metadata.
#[test]
fn groups_that_are_exchanged_keep_their_copies() {
    for kind in ["memory", "local"] {
        for is_new_without in [false, true] {
            let memory = Form::V3.store();
            for (name, document) in Form::V3.array(4, json!({"n": 0})) {
                memory.set(key(&place("g_new/x", name)), text(&document));
            }
            for (name, document) in Form::V3.group() {
                memory.set(key(&place("g_new", name)), text(&document));
            }
            Form::V3.consolidate(&memory, "g_new");
            let without = if is_new_without { "g_new" } else { "g" };
            let without = place(without, "zarr.json");
            let mut document = json_of(&memory, &without);
            document["consolidated_metadata"] = Value::Null;
            memory.set(key(&without), text(&document));
            Form::V3.consolidate(&memory, "");
            let mount = Shared::over(Mode::Cow, kind, &memory);
            let case = Case {
                form: Form::V3,
                mount,
            };
            for (from, to) in [("g", "old"), ("g_new", "g")] {
                let done =
                    case.overlay()
                        .rename(&UNLIMITED, &key(from), &key(to), RenameMode::Replace);
                done.unwrap();
            }
            let shown = ["g/zarr.json", "old/zarr.json"].map(|name| {
                let bytes = bytes_of(case.overlay(), name);
                (name, String::from_utf8(bytes).unwrap())
            });
            case.commit();
            for (name, shown) in shown {
                let stored = bytes_of(&*case.mount.lower, name);
                assert_eq!(String::from_utf8(stored).unwrap(), shown, "{name}");
            }
        }
    }
}

/// If a change that was never committed is discarded, the consolidated metadata in the store do not change.
#[test]
fn a_discard_after_a_conflict_does_not_change_the_store() {
    for form in FORMS {
        let (store, case) = failing(form, -1, Mode::Cow);
        case.edit("g/x", 5);
        case.edit_outside("g/x", 3);
        case.is_in_conflict();
        let before = case.stored_holders();
        store.gets.store(0, Ordering::SeqCst);
        case.discard("g/x");
        assert_eq!(store.gets.load(Ordering::SeqCst), 0, "{form:?}");
        assert_eq!(case.stored_holders(), before);
    }
    // The discarded change is the removal of an array, and the rename of an array.
    let changes: [(&str, Change); 2] = [
        ("g/x", &|case| case.remove("g/x")),
        ("z", &|case| {
            let done =
                case.overlay()
                    .rename(&UNLIMITED, &key("g/x"), &key("z"), RenameMode::Replace);
            done.unwrap();
        }),
    ];
    for (path, change) in changes {
        for case in Case::all() {
            change(&case);
            case.edit_outside("g/x", 3);
            case.edit("y", 5);
            case.edit_outside("y", 6);
            case.is_in_conflict();
            let before = case.stored_holders();
            case.discard(path);
            assert_eq!(case.stored_holders(), before);
        }
    }
}

/// The store has stored a document, but its answer to the put was lost, and then the change is discarded.
#[test]
fn copies_agree_when_a_put_with_a_lost_answer_is_discarded() {
    for form in FORMS {
        let (store, case) = failing_at(form, &form.attributes("g/x"), 0, Mode::Cow);
        store.is_late.store(true, Ordering::SeqCst);
        case.edit("g/x", 5);
        assert!(case.try_commit().failed.is_some());
        case.discard("g/x");
        case.shows_agreement();
        case.agrees(&*case.mount.lower);
        let copies = json!(form.copies(&*case.mount.lower, "g")).to_string();
        assert!(copies.contains("\"n\":5"), "{copies}");
    }
}

/// A program writes a document just before a commit puts the consolidated metadata with its copy.
#[test]
fn a_document_that_is_written_while_its_copies_are_put_is_committed() {
    for form in FORMS {
        for edits in [true, false] {
            let (store, case) = failing(form, -1, Mode::Cow);
            let case = Arc::new(case);
            case.edit("g/x", 5);
            let theirs = case.clone();
            let write = move || {
                if edits {
                    return theirs.edit("", 6);
                }
                let name = theirs.form.holder();
                let shown = bytes_of(theirs.overlay(), name);
                theirs.write(name, &[&shown[..], b"\n"].concat());
            };
            *store.before_put.lock().unwrap() = Some(Box::new(write));
            case.commit();
            assert!(store.before_put.lock().unwrap().is_none());
            assert_eq!(case.changed().len(), 1);
            case.shows_agreement();
            case.commit();
            case.agrees(&*case.mount.lower);
            assert_eq!(case.changed(), [""; 0]);
        }
    }
}

/// A read of a document that is only in the copy-on-write layer makes no request to the store, which may be down.
#[test]
fn a_document_only_in_the_upper_folder_costs_no_request() {
    let (store, case) = failing(Form::V3, -1, Mode::Cow);
    case.make_array("new", 3);
    store.is_down.store(true, Ordering::SeqCst);
    store.gets.store(0, Ordering::SeqCst);
    let name = "new/zarr.json";
    let stat = Tree::stat(case.overlay(), &UNLIMITED, &key(name))
        .unwrap()
        .unwrap();
    let file = Tree::open(case.overlay(), &UNLIMITED, &key(name), OpenMode::Read).unwrap();
    assert_eq!(
        file.read_at(&UNLIMITED, 0, 1 << 20).unwrap().len() as u64,
        stat.meta.size
    );
    bytes_of(case.overlay(), name);
    assert_eq!(store.gets.load(Ordering::SeqCst), 0);
}
