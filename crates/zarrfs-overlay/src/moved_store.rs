//! Checks whether an upper folder belongs to a store that was moved.
//!
//! The journal has the keys that the store had when they were changed, with their versions. A moved or copied store has
//! these keys too; a store that has none of them is another store. Documents at the root count less, because nearly
//! every store has them.

use std::collections::BTreeMap;

use crate::overlay_core::OverlayCore;
use crate::upper::{belongs_to, is_same_place};
use zarr_format::error::{Error, Result};
use zarr_format::model::document;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Key, StoreVersion};

/// A key that the store had before the overlay first changed it.
#[derive(Clone, Copy)]
struct BaseKey {
    /// The version of the key before the change; `None` if it is unknown, because the key was renamed.
    version: Option<StoreVersion>,
    /// Whether nearly every store has a key of this name.
    is_common: bool,
}

/// Fails with `Invalid` if the upper folder was made for a store in another place, and the present store has none of
/// the keys that were changed.
pub(crate) fn check(core: &OverlayCore, context: &RequestContext) -> Result<()> {
    let before = belongs_to(core.upper.path())?;
    if is_same_place(&before, &core.place) {
        return Ok(());
    }
    let keys = base_keys(core);
    let are_all_common = keys.values().all(|key| key.is_common);
    // Look up at most 256 keys, to limit the number of requests.
    let step = keys.len().div_ceil(256).max(1);
    let looked_for = keys.iter().step_by(step);
    let count = looked_for.len();
    for (key, known) in looked_for {
        let Some(meta) = core.store.head(context, key)? else {
            continue;
        };
        let is_same = known
            .version
            .is_some_and(|own| meta.version.may_be(own.into()));
        if is_same || are_all_common || !known.is_common {
            return Ok(());
        }
    }
    if count == 0 {
        return Ok(());
    }
    let why = format!(
        "not the same store as {before}, which {} has changes of: none of {count} keys match",
        core.upper.path().display()
    );
    Err(Error::invalid(&core.place, why))
}

/// Returns the keys that the store had before the overlay changed them.
fn base_keys(core: &OverlayCore) -> BTreeMap<Key, BaseKey> {
    let top = core.top();
    let layers = std::iter::once(&top).chain(&top.frozen);
    let mut keys = BTreeMap::new();
    for layered in layers {
        let state = layered.layer.lock();
        let renamed = state.records.whiteouts(&Key::root()).into_iter();
        let renamed = renamed.filter_map(|whiteout| Some((whiteout.source?, None)));
        let bases = state.records.bases_below(&Key::root()).into_iter();
        let bases = bases.filter(|(_, base)| base.version.is_some());
        let bases = bases.map(|(key, base)| (key, base.version));
        for (key, version) in renamed.chain(bases) {
            let is_common = is_common(&key);
            keys.insert(key, BaseKey { version, is_common });
        }
    }
    keys
}

/// Whether nearly every store has the key, because it is the root or a metadata document of the root.
fn is_common(key: &Key) -> bool {
    let is_at_root = key.parent().is_none_or(|folder| folder.is_root());
    key.is_root() || (is_at_root && document::is_document(key.name()))
}

#[cfg(test)]
mod tests {
    use crate::testing::key;
    use std::path::Path;
    use std::sync::Arc;

    use crate::{Overlay, OverlayConfig};
    use zarr_format::error::Kind;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;
    use zarrfs_store::tree::{OpenMode, RenameMode, Tree};
    use zarrfs_store::{Condition, PutBody, Store as _};

    /// A test case: its name, the changes, and the keys of the store after the move.
    type Case<'a> = (&'a str, &'a dyn Fn(&Overlay), &'a [&'a str]);

    fn store(keys: &[&str]) -> Arc<MemoryStore> {
        let store = MemoryStore::default();
        for name in keys {
            store.set(key(name), name.as_bytes().to_vec());
        }
        Arc::new(store)
    }

    /// Opens the upper folder over the store at `/old`, and makes changes.
    fn change(upper: &Path, store: &Arc<MemoryStore>, change: impl Fn(&Overlay)) {
        change(&Overlay::open(upper, store.clone(), "/old", OverlayConfig::default()).unwrap());
    }

    fn write(overlay: &Overlay, path: &str) {
        let file = Tree::open(overlay, &UNLIMITED, &key(path), OpenMode::Write).unwrap();
        file.write_at(&UNLIMITED, 0, b"new").unwrap();
        file.flush(&UNLIMITED).unwrap();
    }

    fn is_accepted(upper: &Path, store: &Arc<MemoryStore>) -> bool {
        match Overlay::open_moved(
            &UNLIMITED,
            upper,
            store.clone(),
            "/new",
            OverlayConfig::default(),
        ) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), Kind::Invalid, "{error}");
                assert!(error.to_string().contains("/old"), "{error}");
                false
            }
        }
    }

    /// Invariant of `an_upper_folder_belongs_to_one_store_and_one_process`.
    #[test]
    fn a_moved_store_is_recognized_by_its_keys() {
        let documents = ["zarr.json", "a/zarr.json"];
        let old = store(&["zarr.json", "a/zarr.json", "a/c/0", "b"]);
        let other = store(&["x/zarr.json", "zarr.json"]);
        let cases: [Case; 5] = [
            ("a chunk", &|overlay| write(overlay, "a/c/0"), &["a/c/0"]),
            (
                "a chunk and the root",
                &|overlay| {
                    write(overlay, "a/c/0");
                    write(overlay, "zarr.json");
                },
                &["zarr.json", "a/c/0"],
            ),
            (
                "a removal",
                &|overlay| Tree::unlink(overlay, &UNLIMITED, &key("b")).unwrap(),
                &["b"],
            ),
            (
                "a rename",
                &|overlay| {
                    overlay
                        .rename(&UNLIMITED, &key("a"), &key("d"), RenameMode::Replace)
                        .unwrap()
                },
                &documents,
            ),
            (
                "a document",
                &|overlay| write(overlay, "a/zarr.json"),
                &documents,
            ),
        ];
        for (case, changes, moved) in cases {
            let folder = tempfile::tempdir().unwrap();
            let upper = folder.path().join("upper");
            change(&upper, &old, changes);
            assert!(is_accepted(&upper, &store(moved)), "{case}");
            assert!(!is_accepted(&upper, &other), "{case}");
            assert!(is_accepted(&upper, &old), "{case}");
        }
    }

    /// If only the root's metadata document was changed, it alone decides whether the store is accepted.
    #[test]
    fn a_root_document_decides_if_no_other_key_changed() {
        let old = store(&["zarr.json"]);
        let folder = tempfile::tempdir().unwrap();
        let upper = folder.path().join("upper");
        change(&upper, &old, |overlay| write(overlay, "zarr.json"));
        assert!(is_accepted(&upper, &store(&["zarr.json", "x"])));
        assert!(!is_accepted(&upper, &store(&["x"])));
    }

    fn create(overlay: &Overlay, path: &str) {
        let body = PutBody::Bytes(b"new");
        overlay
            .put(&UNLIMITED, &key(path), body, &Condition::Any)
            .unwrap();
    }

    /// A key that was created in the overlay says nothing about the store, because the old store did not have it.
    #[test]
    fn keys_made_in_the_overlay_do_not_count() {
        let old = store(&["zarr.json"]);
        let folder = tempfile::tempdir().unwrap();
        let upper = folder.path().join("upper");
        change(&upper, &old, |overlay| {
            write(overlay, "zarr.json");
            create(overlay, "made");
        });
        assert!(!is_accepted(&upper, &store(&["made"])));
        // The store is accepted because it has the root's document, even in another version.
        assert!(is_accepted(&upper, &store(&["x", "zarr.json"])));
    }

    #[test]
    fn any_store_is_accepted_if_no_key_of_the_old_one_changed() {
        let old = store(&["zarr.json"]);
        let folder = tempfile::tempdir().unwrap();
        let upper = folder.path().join("upper");
        change(&upper, &old, |overlay| create(overlay, "made"));
        assert!(is_accepted(&upper, &store(&["x"])));
        assert!(is_accepted(&upper, &store(&[])));
    }

    #[test]
    fn a_root_document_of_the_same_version_is_enough() {
        let old = store(&["zarr.json", "b"]);
        let folder = tempfile::tempdir().unwrap();
        let upper = folder.path().join("upper");
        change(&upper, &old, |overlay| {
            write(overlay, "zarr.json");
            write(overlay, "b");
        });
        old.erase(&key("b"));
        assert!(is_accepted(&upper, &old));
        old.set(key("zarr.json"), b"another version".to_vec());
        assert!(!is_accepted(&upper, &old));
    }

    #[test]
    fn only_a_rebind_binds_the_folder_to_another_place() {
        let old = store(&["a"]);
        let folder = tempfile::tempdir().unwrap();
        let upper = folder.path().join("upper");
        change(&upper, &old, |overlay| write(overlay, "a"));
        let open =
            |place: &str| Overlay::open(&upper, old.clone(), place, OverlayConfig::default());
        drop(
            Overlay::open_moved(
                &UNLIMITED,
                &upper,
                old.clone(),
                "/new",
                OverlayConfig::default(),
            )
            .unwrap(),
        );
        assert_eq!(open("/new").err().unwrap().kind(), Kind::Invalid);
        let moved = Overlay::open_moved(
            &UNLIMITED,
            &upper,
            old.clone(),
            "/new",
            OverlayConfig::default(),
        )
        .unwrap();
        moved.rebind().unwrap();
        drop(moved);
        open("/new").unwrap();
        assert_eq!(open("/old").err().unwrap().kind(), Kind::Invalid);
    }
}
