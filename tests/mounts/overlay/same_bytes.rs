//! Another program leaves or rewrites the same bytes of a key: no conflict.
//!
//! Different bytes are a conflict, even if everything else of the object is unchanged.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use zarr_format::error::Result;
use zarrfs_overlay::Overlay;
use zarrfs_overlay::commit::{CommitConfig, Outcome};
use zarrfs_store::backend::local::LocalStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::tree::{OpenMode, RenameMode, Tree as _};
use zarrfs_store::{
    self, ETag, EntryKind, Key, Meta, Reader, Store, StoreConfig, StoreInfo, Version,
};

use crate::overlay::fixture::{MAKER, NAME, folder, key, opened, opened_with};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

/// The keys that are changed on the mount, one for each way to change a key.
const CHANGED: [&str; 6] = ["edited", "emptied", "replaced", "removed", "put", "renamed"];

/// A length in bytes at which a replaced or removed object is not read to record its digest.
const LARGE: usize = (16 << 20) + 1;

fn local(path: &Path) -> Arc<dyn Store> {
    Arc::new(LocalStore::open(path, &StoreConfig::default()).unwrap())
}

/// Creates a store with objects of `length` bytes, and an upper folder with a change of each object. Returns the parent
/// folder of both.
fn changed(length: usize) -> TempDir {
    let folder = folder();
    let path = folder.path().join("store");
    fs::create_dir(&path).unwrap();
    for name in CHANGED {
        fs::write(path.join(name), vec![b'o'; length]).unwrap();
    }
    let overlay = opened(&folder.path().join("upper"), &local(&path), NAME).unwrap();
    let open =
        |name, mode| zarrfs_store::Tree::open(&overlay, &UNLIMITED, &key(name), mode).unwrap();
    let file = open("edited", OpenMode::Write);
    file.write_at(&UNLIMITED, 0, b"own").unwrap();
    file.flush(&UNLIMITED).unwrap();
    let file = open("emptied", OpenMode::Truncate);
    file.write_at(&UNLIMITED, 0, b"own").unwrap();
    file.flush(&UNLIMITED).unwrap();
    let file = overlay.create(&UNLIMITED, &key("new"), &MAKER).unwrap();
    file.write_at(&UNLIMITED, 0, b"own").unwrap();
    file.flush(&UNLIMITED).unwrap();
    drop(file);
    let replaced = overlay.rename(
        &UNLIMITED,
        &key("new"),
        &key("replaced"),
        RenameMode::Replace,
    );
    replaced.unwrap();
    overlay.unlink(&UNLIMITED, &key("removed")).unwrap();
    let body = zarrfs_store::PutBody::Bytes(b"own");
    overlay
        .put(&UNLIMITED, &key("put"), body, &zarrfs_store::Condition::Any)
        .unwrap();
    let renamed = overlay.rename(
        &UNLIMITED,
        &key("renamed"),
        &key("moved"),
        RenameMode::Replace,
    );
    renamed.unwrap();
    folder
}

fn commit(overlay: &Overlay, dry_run: bool) -> Vec<String> {
    let config = CommitConfig {
        dry_run,
        ..CommitConfig::default()
    };
    let outcome = overlay.commit(&UNLIMITED, config, &|_, _| {});
    let outcome = outcome.and_then(Outcome::or_failed).unwrap();
    let conflicts = outcome.conflicts.iter();
    let mut keys: Vec<String> = conflicts.map(|(key, _)| key.to_string()).collect();
    keys.sort();
    keys
}

fn assert_commits(folder: &Path, name: &str) {
    let store = folder.join("store");
    let overlay = opened(&folder.join("upper"), &local(&store), NAME).unwrap();
    for dry_run in [true, false] {
        assert_eq!(commit(&overlay, dry_run), [""; 0], "{name}");
    }
    assert_eq!(fs::read(store.join("edited")).unwrap(), b"own", "{name}");
    assert_eq!(fs::read(store.join("moved")).unwrap(), b"ooo", "{name}");
    for gone in ["removed", "renamed"] {
        assert!(!store.join(gone).exists(), "{name}: {gone}");
    }
}

fn run(program: &str, words: &[&Path]) {
    let done = Command::new(program).args(words).status().unwrap();
    assert!(done.success(), "{program} {words:?}");
}

type Cause = (&'static str, fn(&Path));

/// What other programs may do with a file of the store without a change of its bytes.
const HARMLESS: [Cause; 7] = [
    ("a hard link", |path| {
        fs::hard_link(path, path.with_extension("link")).unwrap();
    }),
    ("chmod", |path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }),
    ("touch -a", |path| run("touch", &[Path::new("-a"), path])),
    ("touch", |path| run("touch", &[path])),
    ("setfattr", |path| {
        let set = rustix::fs::setxattr(path, "user.note", b"x", rustix::fs::XattrFlags::empty());
        set.unwrap();
    }),
    ("a rename away and back", |path| {
        let away = path.with_extension("away");
        fs::rename(path, &away).unwrap();
        fs::rename(&away, path).unwrap();
    }),
    ("the same bytes again", |path| {
        let (new, bytes) = (path.with_extension("new"), fs::read(path).unwrap());
        fs::write(&new, bytes).unwrap();
        fs::rename(&new, path).unwrap();
    }),
];

/// Invariant (overlay): Only different content is a conflict: a new version with the same bytes is no conflict.
#[test]
fn a_new_version_with_the_same_bytes_is_no_conflict() {
    for (name, cause) in HARMLESS {
        let folder = changed(3);
        // Wait, because file times have a limited resolution and would be unchanged otherwise.
        std::thread::sleep(std::time::Duration::from_millis(10));
        for name in CHANGED {
            cause(&folder.path().join("store").join(name));
        }
        assert_commits(folder.path(), name);
    }
}

/// Invariant of `a_new_version_with_the_same_bytes_is_no_conflict`.
#[test]
fn changes_of_a_copied_upper_folder_are_committed() {
    let from = changed(3);
    let to = tempfile::tempdir().unwrap();
    for name in ["store", "upper"] {
        run("cp", &[Path::new("-a"), &from.path().join(name), to.path()]);
    }
    assert_commits(to.path(), "cp -a");
    assert_commits(from.path(), "the one that was copied");
}

/// Invariant of `a_new_version_with_the_same_bytes_is_no_conflict`.
#[test]
fn other_bytes_of_the_same_length_and_time_are_a_conflict() {
    let folder = changed(3);
    std::thread::sleep(std::time::Duration::from_millis(10));
    for name in CHANGED {
        let path = folder.path().join("store").join(name);
        let before = path.metadata().unwrap();
        fs::write(&path, b"oXo").unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
        let now = path.metadata().unwrap();
        assert_eq!(
            (before.ino(), before.mtime_nsec()),
            (now.ino(), now.mtime_nsec())
        );
    }
    let store = local(&folder.path().join("store"));
    let overlay = opened(&folder.path().join("upper"), &store, NAME).unwrap();
    let mut expected = CHANGED.map(str::to_string);
    expected.sort();
    assert_eq!(commit(&overlay, true), expected);
    assert_eq!(commit(&overlay, false), expected);
}

/// The digest of a large object is not recorded when it is replaced or removed. Any change of its version is then a
/// conflict.
#[test]
fn any_change_of_an_unread_large_key_is_a_conflict() {
    let (_, chmod) = HARMLESS[1];
    let of_removed = &["removed", "renamed"][..];
    let of_all = &["emptied", "put", "removed", "renamed", "replaced"];
    for (length, expected) in [(100_000, of_removed), (LARGE, of_all)] {
        let folder = changed(length);
        std::thread::sleep(std::time::Duration::from_millis(10));
        for name in CHANGED {
            chmod(&folder.path().join("store").join(name));
        }
        let store = local(&folder.path().join("store"));
        let overlay = opened(&folder.path().join("upper"), &store, NAME).unwrap();
        assert_eq!(commit(&overlay, true), expected);
    }
}

/// A renamed object was changed by another program, and a commit with a conflict has copied it. Then the other program
/// restores the old bytes.
#[test]
fn a_renamed_key_that_was_changed_and_restored_is_a_conflict() {
    let folder = folder();
    let path = folder.path().join("store");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("f"), "old").unwrap();
    let overlay = opened(&folder.path().join("upper"), &local(&path), NAME).unwrap();
    let renamed = overlay.rename(&UNLIMITED, &key("f"), &key("g"), RenameMode::Replace);
    renamed.unwrap();
    fs::write(path.join("f"), "other").unwrap();
    assert_eq!(commit(&overlay, false), ["f"]);
    fs::write(path.join("f"), "old").unwrap();
    assert_eq!(commit(&overlay, false), ["f"]);
    assert_eq!(fs::read(path.join("f")).unwrap(), b"old");
    assert!(!path.join("g").exists());
    // The overlay still has the copied content, which the store no longer has.
    let found = overlay.get(&UNLIMITED, &key("g"), 99).unwrap().unwrap();
    assert_eq!(found.bytes, b"other");
}

/// After a commit, the next change is compared with the committed content, also if a file stays open.
#[test]
fn the_committed_content_is_the_base_of_the_next_change() {
    let folder = folder();
    let path = folder.path().join("store");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("a"), "old").unwrap();
    let overlay = opened(&folder.path().join("upper"), &local(&path), NAME).unwrap();
    let open = |mode| zarrfs_store::Tree::open(&overlay, &UNLIMITED, &key("a"), mode).unwrap();
    let reader = open(OpenMode::Read);
    let write = |bytes: &[u8]| {
        let file = open(OpenMode::Write);
        file.write_at(&UNLIMITED, 0, bytes).unwrap();
        file.flush(&UNLIMITED).unwrap();
    };
    write(b"one");
    assert_eq!(commit(&overlay, false), [""; 0]);
    write(b"two");
    for (others, conflicts) in [("old", &["a"][..]), ("one", &[])] {
        std::thread::sleep(std::time::Duration::from_millis(10));
        fs::write(path.join("a"), others).unwrap();
        assert_eq!(commit(&overlay, true), conflicts);
    }
    assert_eq!(commit(&overlay, false), [""; 0]);
    assert_eq!(fs::read(path.join("a")).unwrap(), b"two");
    assert_eq!(reader.read_at(&UNLIMITED, 0, 9).unwrap(), b"two");
}

/// With write-through no digest is recorded. So if the store refuses a change, any new version of the object is a
/// conflict.
#[test]
fn a_write_through_computes_no_digest() {
    let folder = folder();
    let path = folder.path().join("store");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("a"), "old").unwrap();
    let upper = folder.path().join("upper");
    let overlay = opened_with(&upper, &local(&path), NAME, true).unwrap();
    overlay.unlink(&UNLIMITED, &key("a")).unwrap();
    drop(overlay);
    let journal = fs::read_to_string(upper.join("journal")).unwrap();
    assert!(
        journal.contains("held") && !journal.contains("length"),
        "{journal}"
    );
}

/// A store whose versions tell only the size of an object, like a server without ETags.
struct WithoutETags(Arc<dyn Store>, StoreInfo, AtomicU64);

impl WithoutETags {
    fn new(inner: Arc<dyn Store>) -> WithoutETags {
        let info = StoreInfo {
            folder: None,
            ..inner.info().clone()
        };
        WithoutETags(inner, info, AtomicU64::new(0))
    }

    /// Returns a new version for each request. Versions of objects with the same size may be the same.
    fn version_of(&self, size: u64) -> Version {
        let moment = self.2.fetch_add(1, Ordering::SeqCst);
        Version::numbered(0xffff << 48 | size << 24 | moment)
    }
}

/// An open object of a store without ETags, with its version at the open.
struct Opened(Arc<dyn Reader>, Meta);

impl Reader for Opened {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.0.read_at(context, offset, len)
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        Ok(self.1)
    }
}

impl Layer for WithoutETags {
    fn below(&self) -> &dyn Store {
        &*self.0
    }

    fn info(&self) -> &StoreInfo {
        &self.1
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        let found = self.0.head(context, key)?;
        Ok(found.map(|meta| match meta.kind {
            EntryKind::File => Meta {
                version: self.version_of(meta.size),
                ..meta
            },
            _ => meta,
        }))
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        Ok(Layer::etag(self, context, key)?.map(|etag| etag.version))
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        let Some(etag) = self.0.etag(context, key)? else {
            return Ok(None);
        };
        let size = self.0.head(context, key)?.map_or(0, |meta| meta.size);
        let version = self.version_of(size);
        Ok(Some(ETag { version, ..etag }))
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let inner = self.0.open(context, key, known)?;
        let meta = inner.meta(context)?;
        let version = self.version_of(meta.size);
        Ok(Arc::new(Opened(inner, Meta { version, ..meta })))
    }
}

#[test]
fn without_etags_length_and_digest_decide_on_conflicts() {
    for (change, conflicts) in [("", 0), ("ooo", 0), ("xxx", 1), ("longer", 1)] {
        let folder = folder();
        let path = folder.path().join("store");
        fs::create_dir(&path).unwrap();
        for name in ["edited", "emptied"] {
            fs::write(path.join(name), b"ooo").unwrap();
        }
        let store: Arc<dyn Store> = Arc::new(WithoutETags::new(local(&path)));
        let overlay = opened(&folder.path().join("upper"), &store, NAME).unwrap();
        for (name, mode) in [("edited", OpenMode::Write), ("emptied", OpenMode::Truncate)] {
            let file = zarrfs_store::Tree::open(&overlay, &UNLIMITED, &key(name), mode).unwrap();
            file.write_at(&UNLIMITED, 0, b"own").unwrap();
            file.flush(&UNLIMITED).unwrap();
        }
        if !change.is_empty() {
            fs::write(path.join("edited"), change).unwrap();
        }
        let config = CommitConfig::default();
        let outcome = overlay.commit(&UNLIMITED, config, &|_, _| {});
        let outcome = outcome.and_then(Outcome::or_failed).unwrap();
        assert_eq!(
            outcome.conflicts.len(),
            conflicts,
            "{change}: {:?}",
            outcome.conflicts
        );
        assert_eq!(outcome.without_etag, 2, "{change}");
        let expected = if conflicts == 0 { "own" } else { change };
        assert_eq!(fs::read(path.join("edited")).unwrap(), expected.as_bytes());
    }
}
