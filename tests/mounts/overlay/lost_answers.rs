//! Puts and removals that reach the store while their answers are lost.
//!
//! If the key is then changed again, the store's content must count as this mount's own, and not as another program's.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use zarr_format::error::{Error, Kind, Result};
use zarrfs_overlay::commit::{CommitConfig, Outcome};
use zarrfs_overlay::{Overlay, OverlayConfig};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::tree::{OpenMode, RenameMode};
use zarrfs_store::{Condition, Key, PutBody, Store, Tree};

use crate::overlay::fixture::{MAKER, folder, key, shown};
use crate::overlay::hooked::{Hook, Hooked};
use crate::overlay::reference::Shown;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

/// A hook that loses the answer of the next put or removal, or of the next call of any kind.
#[derive(Default)]
struct LostAnswer {
    is_set: AtomicBool,
    is_of_any_call: AtomicBool,
    /// Number of answers that arrive before one is lost.
    skipped: AtomicUsize,
    may_be_lost: AtomicBool,
    puts: AtomicUsize,
}

impl Hook for LostAnswer {
    fn before(&self, _context: &RequestContext, call: &str, _key: &Key) -> Result<()> {
        self.puts.fetch_add(usize::from(call == "put"), SeqCst);
        let is_lost = self.is_of_any_call.load(SeqCst) || matches!(call, "put" | "erase");
        self.may_be_lost.store(is_lost, SeqCst);
        Ok(())
    }

    fn after(&self) -> Result<()> {
        if !self.may_be_lost.load(SeqCst) || !self.is_set.load(SeqCst) {
            return Ok(());
        }
        let is_skipped = self
            .skipped
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        if is_skipped.is_err() && self.is_set.swap(false, SeqCst) {
            Err(Error::unavailable("the store", "no answer came"))
        } else {
            Ok(())
        }
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    store: Arc<MemoryStore>,
    below: Arc<dyn Store>,
    hook: Arc<LostAnswer>,
    overlay: Option<Overlay>,
    write_through: bool,
}

/// Whether the store has an object of the key before the first write.
#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    Object,
}

impl Fixture {
    fn new(objects: &[(&str, &str)]) -> Fixture {
        Fixture::over(objects, true)
    }

    fn over(objects: &[(&str, &str)], write_through: bool) -> Fixture {
        let (store, hook) = (Arc::new(MemoryStore::default()), Arc::default());
        for (name, content) in objects {
            store.set(key(name), content.as_bytes().to_vec());
        }
        let hooked: &Arc<LostAnswer> = &hook;
        let below: Arc<dyn Store> = Arc::new(Hooked::new(store.clone(), hooked.clone()));
        let mut fixture = Fixture {
            folder: folder(),
            store,
            below,
            hook,
            overlay: None,
            write_through,
        };
        fixture.open();
        fixture
    }

    /// Returns an overlay after a write of the key `k` whose answer was lost, although the store has the content.
    fn after_lost_put(before: Before) -> Fixture {
        let fixture = match before {
            Before::Nothing => Fixture::new(&[]),
            Before::Object => Fixture::new(&[("k", "old")]),
        };
        fixture.hook.is_set.store(true, SeqCst);
        let error = fixture.write("k", b"first").unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
        assert_eq!(fixture.stored(), ["k=first"], "the store has it");
        fixture
    }

    fn open(&mut self) {
        self.overlay = None;
        let how = OverlayConfig {
            uid: 0,
            gid: 0,
            write_through: self.write_through,
        };
        let upper = self.folder.path().join("upper");
        self.overlay = Some(Overlay::open(&upper, self.below.clone(), "a store", how).unwrap());
    }

    fn overlay(&self) -> &Overlay {
        self.overlay.as_ref().unwrap()
    }

    /// Writes a whole file and flushes it, as a close does.
    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let (overlay, name) = (self.overlay(), key(name));
        let file = match overlay.stat(&UNLIMITED, &name)? {
            Some(_) => Tree::open(overlay, &UNLIMITED, &name, OpenMode::Write)?,
            None => overlay.create(&UNLIMITED, &name, &MAKER)?,
        };
        file.write_at(&UNLIMITED, 0, content)?;
        file.flush(&UNLIMITED)
    }

    fn commit(&self) -> Result<Outcome> {
        self.overlay()
            .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
            .and_then(Outcome::or_failed)
    }

    fn stored(&self) -> Vec<String> {
        let all = shown(&*self.store, false).into_iter();
        let text = |(name, shown)| match shown {
            Shown::File(bytes) => format!("{name}={}", String::from_utf8_lossy(&bytes)),
            _ => name,
        };
        all.map(text).collect()
    }
}

fn all(check: impl Fn(Fixture)) {
    for before in [Before::Nothing, Before::Object] {
        for is_reopened in [false, true] {
            let mut fixture = Fixture::after_lost_put(before);
            if is_reopened {
                fixture.open();
            }
            check(fixture);
        }
    }
}

#[test]
fn a_write_after_an_unanswered_put_is_stored() {
    all(|fixture| {
        fixture.write("k", b"again").unwrap();
        assert_eq!(fixture.stored(), ["k=again"]);
        assert_eq!(fixture.overlay().changes(&UNLIMITED).unwrap().keys, []);
    });
}

#[test]
fn an_unanswered_put_of_the_same_content_is_not_repeated() {
    all(|fixture| {
        fixture.write("k", b"first").unwrap();
        assert_eq!(fixture.hook.puts.load(SeqCst), 1);
        assert_eq!(fixture.stored(), ["k=first"]);
        assert_eq!(fixture.overlay().changes(&UNLIMITED).unwrap().keys, []);
    });
}

/// Invariant (overlay): A put or removal whose answer was lost is recognized later.
#[test]
fn a_rename_after_an_unanswered_put_leaves_one_name() {
    all(|fixture| {
        let overlay = fixture.overlay();
        overlay
            .rename(&UNLIMITED, &key("k"), &key("n"), RenameMode::Replace)
            .unwrap();
        assert_eq!(fixture.stored(), ["n=first"]);
        assert_eq!(overlay.stat(&UNLIMITED, &key("k")).unwrap(), None);
    });
}

#[test]
fn a_removal_after_an_unanswered_put_removes_the_key() {
    all(|fixture| {
        fixture.overlay().unlink(&UNLIMITED, &key("k")).unwrap();
        assert_eq!(fixture.stored(), [""; 0]);
    });
}

#[test]
fn a_put_of_another_program_after_an_unanswered_one_is_a_conflict() {
    all(|fixture| {
        let theirs = PutBody::Bytes(b"theirs");
        fixture
            .store
            .put(&UNLIMITED, &key("k"), theirs, &Condition::Any)
            .unwrap();
        assert_eq!(
            fixture.write("k", b"again").unwrap_err().kind(),
            Kind::Changed
        );
        assert_eq!(fixture.stored(), ["k=theirs"]);
    });
}

/// Invariant of `a_rename_after_an_unanswered_put_leaves_one_name`.
///
/// A rename ends with the removal of the old name, whose answer is lost here.
#[test]
fn a_key_can_be_made_again_after_an_unanswered_removal() {
    for is_back in [false, true] {
        let mut fixture = Fixture::new(&[("k", "first")]);
        let (k, n) = (key("k"), key("n"));
        let rename = |from, to| {
            fixture
                .overlay()
                .rename(&UNLIMITED, from, to, RenameMode::Replace)
        };
        fixture.hook.skipped.store(1, SeqCst);
        fixture.hook.is_set.store(true, SeqCst);
        assert_eq!(rename(&k, &n).unwrap_err().kind(), Kind::Unavailable);
        assert_eq!(fixture.stored(), ["n=first"], "the old name is gone");
        if is_back {
            rename(&n, &k).unwrap();
            assert_eq!(fixture.stored(), ["k=first"]);
        } else {
            fixture.write("k", b"again").unwrap();
            assert_eq!(fixture.stored(), ["k=again", "n=first"]);
        }
        fixture.open();
        assert_eq!(fixture.overlay().changes(&UNLIMITED).unwrap().keys, []);
    }
}

#[test]
fn a_file_removed_after_an_unfinished_rename_stays_removed() {
    let mut is_done = false;
    for calls in 0.. {
        let fixture = Fixture::new(&[("x/t", "old"), ("x/u", "other")]);
        let overlay = fixture.overlay();
        fixture.hook.is_of_any_call.store(true, SeqCst);
        fixture.hook.skipped.store(calls, SeqCst);
        fixture.hook.is_set.store(true, SeqCst);
        let renamed = overlay.rename(&UNLIMITED, &key("x"), &key("y"), RenameMode::Replace);
        if !fixture.hook.is_set.swap(false, SeqCst) {
            assert_eq!(renamed.unwrap_err().kind(), Kind::Unavailable);
        } else {
            is_done = true;
        }
        if overlay.stat(&UNLIMITED, &key("y/t")).unwrap().is_some() {
            overlay.unlink(&UNLIMITED, &key("y/t")).unwrap();
            assert_eq!(
                overlay.stat(&UNLIMITED, &key("y/t")).unwrap(),
                None,
                "after {calls}"
            );
            assert_eq!(fixture.commit().unwrap().conflicts, []);
            assert_eq!(fixture.stored(), ["y", "y/u=other"], "after {calls}");
        }
        if is_done {
            break;
        }
    }
}

#[test]
fn a_write_after_an_unanswered_removal_is_no_conflict() {
    for is_reopened in [false, true] {
        let mut fixture = Fixture::over(&[("k", "old")], false);
        let renamed =
            fixture
                .overlay()
                .rename(&UNLIMITED, &key("k"), &key("n"), RenameMode::Replace);
        renamed.unwrap();
        fixture.hook.skipped.store(1, SeqCst);
        fixture.hook.is_set.store(true, SeqCst);
        let error = fixture.commit().unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
        assert_eq!(fixture.stored(), ["n=old"], "the store has removed it");
        fixture.write("k", b"new").unwrap();
        if is_reopened {
            fixture.open();
        }
        assert_eq!(fixture.commit().unwrap().conflicts, []);
        assert_eq!(fixture.stored(), ["k=new", "n=old"]);
    }
}
