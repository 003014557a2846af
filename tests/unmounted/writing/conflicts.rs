//! Tests conflicts: another program writes a chunk between a mount's read and its write.
//!
//! A change may only be lost if its writer gets an error.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use zarr_format::error::Kind;
use zarrfs_store::{Condition, PutBody, Store};

use crate::common;
use crate::common::sample::{Form, Sample};
use crate::dialects::hierarchies::key;
use crate::writing::fixture::{Full, all};
use crate::writing::shared::{Mode, Shared, everywhere, folder, is_changed};
use zarrfs_store::request_context::UNLIMITED;

/// The offsets in `a.raw` of two elements in the same chunk, which the mount and another program write.
const OURS: u64 = 0;
const THEIRS: u64 = 2;

/// Writes an element through the mount, lets another program change the element at `theirs` in the store, and flushes.
/// Checks that the other program's change is in the store and in later reads.
fn clash(sample: &Sample, name: &str, theirs: u64) {
    for (mode, kind) in everywhere() {
        let mount = Shared::of(mode, kind, sample);
        let file = mount.open("a/a.raw");
        file.write_at(&UNLIMITED, OURS, &[1, 1]).unwrap();
        mount.write_outside(theirs, &[2, 2]);
        let before = mount.stored(name);
        let closed = file.flush(&UNLIMITED);
        mount.is_conflict(closed.clone(), name);
        assert_eq!(mount.stored(name), before, "{mode:?} {kind}");
        let mut expected = sample.whole();
        expected[theirs as usize..][..2].copy_from_slice(&[2, 2]);
        assert_eq!(all(&mount.outside().file("a", "raw")), expected);
        if closed.is_err() {
            // The conflicting change was dropped, so that the next writer is not refused.
            mount.check_key_is_not_kept(name);
            assert_eq!(common::read(&mount.view, "a/a.raw").unwrap(), expected);
            file.write_at(&UNLIMITED, OURS, &[3, 3]).unwrap();
            file.flush(&UNLIMITED).unwrap();
            assert_eq!(mount.conflicts(), [""; 0]);
            expected[..2].copy_from_slice(&[3, 3]);
            assert_eq!(all(&mount.outside().file("a", "raw")), expected);
        }
    }
}

/// Invariant (writing): Chunks, shards and documents are written on condition of the version that was read, and the
/// writer gets the error if that fails.
#[test]
fn a_chunk_that_another_program_changed_is_not_overwritten() {
    for form in [Form::Plain, Form::Packed] {
        clash(&Sample::new(&[4], &[4], form), "a/c/0", THEIRS);
    }
}

#[test]
fn a_chunk_that_another_program_made_is_not_overwritten() {
    let sample = Sample::new(&[8], &[4], Form::Packed).sparse();
    clash(&sample, "a/c/0", THEIRS);
}

/// Invariant of `a_chunk_that_another_program_changed_is_not_overwritten`.
#[test]
fn an_inner_chunk_that_another_program_changed_is_not_overwritten() {
    let sample = Sample::new(&[8], &[8], Form::Sharded(vec![4]));
    clash(&sample, "a/c/0", THEIRS);
}

/// Only the inner chunk that was read must be unchanged: other inner chunks of the shard may change.
#[test]
fn a_change_of_another_inner_chunk_is_kept_without_a_conflict() {
    let sample = Sample::new(&[8], &[8], Form::Sharded(vec![4]));
    for (mode, kind) in everywhere() {
        let mount = Shared::of(mode, kind, &sample);
        let file = mount.open("a/a.raw");
        file.write_at(&UNLIMITED, OURS, &[1, 1]).unwrap();
        mount.write_outside(8, &[2, 2]);
        file.flush(&UNLIMITED).unwrap();
        assert_eq!(mount.conflicts(), [""; 0], "{mode:?} {kind}");
        let mut expected = sample.whole();
        expected[..2].copy_from_slice(&[1, 1]);
        expected[8..10].copy_from_slice(&[2, 2]);
        assert_eq!(all(&mount.outside().file("a", "raw")), expected);
    }
}

/// A missing inner chunk must still be missing when it is written, whether or not its shard exists.
#[test]
fn an_inner_chunk_that_another_program_made_is_not_overwritten() {
    let sample = Sample::new(&[8], &[8], Form::Sharded(vec![4])).sparse();
    clash(&sample, "a/c/0", THEIRS);
    for (mode, kind) in everywhere() {
        let mount = Shared::of(mode, kind, &sample);
        mount.write_outside(8, &[5, 5]);
        let file = mount.open("a/a.raw");
        file.write_at(&UNLIMITED, OURS, &[1, 1]).unwrap();
        mount.write_outside(THEIRS, &[2, 2]);
        let before = mount.stored("a/c/0");
        mount.is_conflict(file.flush(&UNLIMITED), "a/c/0");
        assert_eq!(mount.stored("a/c/0"), before, "{mode:?} {kind}");
    }
}

#[test]
fn a_completely_written_chunk_never_conflicts() {
    for form in [Form::Plain, Form::Sharded(vec![4])] {
        let sample = Sample::new(&[8], &[8], form.clone());
        for (mode, kind) in everywhere() {
            let mount = Shared::of(mode, kind, &sample);
            let file = mount.open("a/a.raw");
            if matches!(form, Form::Plain) {
                file.write_at(&UNLIMITED, 0, &[1, 1]).unwrap();
            }
            file.write_at(&UNLIMITED, 0, &[7; 16]).unwrap();
            mount.write_outside(THEIRS, &[2, 2]);
            file.flush(&UNLIMITED).unwrap();
            assert_eq!(mount.conflicts(), [""; 0], "{mode:?} {kind} {form:?}");
            assert_eq!(all(&mount.outside().file("a", "raw")), [7; 16]);
        }
    }
}

/// A write to a key in the store view conflicts with a write to the decoded file in the same mount.
#[test]
fn a_write_by_the_store_view_is_not_overwritten_by_the_files_view() {
    let sample = Sample::new(&[4], &[4], Form::Plain);
    for (mode, kind) in everywhere() {
        let mount = Shared::of(mode, kind, &sample);
        let file = mount.open("a/a.raw");
        file.write_at(&UNLIMITED, OURS, &[1, 1]).unwrap();
        let body = PutBody::Bytes(&[9; 8]);
        let overlay: &dyn Store = &mount.overlay;
        overlay
            .put(&UNLIMITED, &key("a/c/0"), body, &Condition::Any)
            .unwrap();
        is_changed(&file.flush(&UNLIMITED).unwrap_err(), "a/c/0");
        // The error is reported only once, because the change is dropped.
        file.flush(&UNLIMITED).unwrap();
        mount.check_key_is_not_kept("a/c/0");
        assert_eq!(common::read(&mount.view, "a/a.raw").unwrap(), [9; 8]);
        file.write_at(&UNLIMITED, OURS, &[3, 3]).unwrap();
        file.flush(&UNLIMITED).unwrap();
        assert_eq!(mount.conflicts(), [""; 0]);
        assert_eq!(mount.stored("a/c/0"), [3, 3, 9, 9, 9, 9, 9, 9]);
    }
}

/// Invariant of `a_chunk_that_another_program_changed_is_not_overwritten`.
///
/// Each handle gets an error for the chunk that it wrote, even if another handle flushed that chunk.
#[test]
fn each_writer_gets_an_error_for_its_dropped_chunk() {
    let sample = Sample::new(&[4], &[4], Form::Plain);
    for (mode, kind) in everywhere() {
        let mount = Shared::of(mode, kind, &sample);
        let [first, second, reader] = [(); 3].map(|()| mount.open("a/a.raw"));
        for (file, offset) in [(&first, 0), (&second, 2)] {
            file.write_at(&UNLIMITED, offset, &[1, 1]).unwrap();
        }
        let body = PutBody::Bytes(&[9; 8]);
        let overlay: &dyn Store = &mount.overlay;
        overlay
            .put(&UNLIMITED, &key("a/c/0"), body, &Condition::Any)
            .unwrap();
        // A request to the store view flushes all arrays as well.
        let error = mount.arrays.flush_below(&UNLIMITED, &key("")).unwrap_err();
        is_changed(&error, "a/c/0");
        for file in [&first, &second] {
            is_changed(&file.flush(&UNLIMITED).unwrap_err(), "a/c/0");
            file.flush(&UNLIMITED).unwrap();
        }
        reader.flush(&UNLIMITED).unwrap();
        mount.check_key_is_not_kept("a/c/0");
        let late = mount.open("a/a.raw");
        late.write_at(&UNLIMITED, 0, &[4, 4]).unwrap();
        late.flush(&UNLIMITED).unwrap();
    }
}

/// A chunk that the store refused stays in the copy-on-write layer, and does not count as another program's change.
#[test]
fn a_chunk_that_the_store_refused_is_put_again() {
    for form in [Form::Plain, Form::Sharded(vec![2])] {
        let store = Arc::new(Full::default());
        Sample::new(&[4], &[4], form).put(&store.memory, "a");
        let mount = Shared::new(Mode::WriteThrough, store.clone(), folder());
        let file = mount.open("a/a.raw");
        file.write_at(&UNLIMITED, OURS, &[1, 1]).unwrap();
        store.is_full.store(true, Ordering::SeqCst);
        assert_eq!(file.flush(&UNLIMITED).unwrap_err().kind(), Kind::NoSpace);
        assert_eq!(file.flush(&UNLIMITED).unwrap_err().kind(), Kind::NoSpace);
        store.is_full.store(false, Ordering::SeqCst);
        file.flush(&UNLIMITED).unwrap();
        assert_eq!(all(&mount.outside().file("a", "raw"))[..2], [1, 1]);
    }
}

#[test]
fn a_commit_of_a_chunk_does_not_conflict_with_its_writer() {
    for form in [Form::Packed, Form::Sharded(vec![2])] {
        let sample = Sample::new(&[4], &[4], form);
        for (mode, kind) in everywhere() {
            let mount = Shared::of(mode, kind, &sample);
            let file = mount.open("a/a.raw");
            file.write_at(&UNLIMITED, 0, &[1, 1]).unwrap();
            file.flush(&UNLIMITED).unwrap();
            file.write_at(&UNLIMITED, 2, &[2, 2]).unwrap();
            assert_eq!(mount.conflicts(), [""; 0]);
            file.flush(&UNLIMITED).unwrap();
            assert_eq!(mount.conflicts(), [""; 0], "{mode:?} {kind}");
            let stored = all(&mount.outside().file("a", "raw"));
            assert_eq!(stored[..4], [1, 1, 2, 2], "{mode:?} {kind}");
        }
    }
}

/// Invariant of `a_chunk_that_another_program_changed_is_not_overwritten`.
///
/// A program changes an element through mmap, so the kernel writes back a page that it has read before the other
/// change.
#[test]
fn a_page_that_was_read_before_a_change_of_the_chunk_is_refused() {
    for form in [Form::Packed, Form::Sharded(vec![4])] {
        let sample = Sample::new(&[8], &[8], form);
        for (mode, kind) in everywhere() {
            let mount = Shared::of(mode, kind, &sample);
            let file = mount.open("a/a.raw");
            let mut page = file.read_at(&UNLIMITED, 0, 16).unwrap();
            mount.write_outside(THEIRS, &[2, 2]);
            let outside = || all(&mount.outside().file("a", "raw"));
            let before = outside();
            page[..2].copy_from_slice(&[1, 1]);
            file.write_pages(&UNLIMITED, 0, &page).unwrap();
            let closed = file.flush(&UNLIMITED);
            mount.is_conflict(closed.clone(), "a/c/0");
            file.flush(&UNLIMITED).unwrap();
            assert_eq!(outside(), before, "{mode:?} {kind}");
            if closed.is_ok() {
                continue;
            }
            mount.check_key_is_not_kept("a/c/0");
            // The mount makes the kernel drop its pages, and the page that is read again has the other program's
            // change.
            file.mark_pages_dropped();
            let mut page = file.read_at(&UNLIMITED, 0, 16).unwrap();
            assert_eq!(page[2..4], [2, 2], "{mode:?} {kind}");
            page[..2].copy_from_slice(&[1, 1]);
            file.write_pages(&UNLIMITED, 0, &page).unwrap();
            file.flush(&UNLIMITED).unwrap();
            assert_eq!(mount.conflicts(), [""; 0], "{mode:?} {kind}");
            assert_eq!(outside(), page);
        }
    }
}

/// A program changes two elements of one chunk in different pages, which the kernel writes back one after the other.
#[test]
fn pages_of_a_chunk_are_refused_until_the_kernel_has_dropped_them() {
    let sample = Sample::new(&[8], &[8], Form::Plain);
    for (mode, kind) in everywhere() {
        let mount = Shared::of(mode, kind, &sample);
        let file = mount.open("a/a.raw");
        let page = file.read_at(&UNLIMITED, 0, 16).unwrap();
        let stored = || {
            assert_eq!(mount.conflicts(), [""; 0], "{mode:?} {kind}");
            mount.stored("a/c/0")
        };
        let put = |byte: u8| {
            let (overlay, body): (&dyn Store, _) = (&mount.overlay, [byte; 16]);
            let body = PutBody::Bytes(&body);
            overlay
                .put(&UNLIMITED, &key("a/c/0"), body, &Condition::Any)
                .unwrap();
        };
        put(9);
        file.write_pages(&UNLIMITED, 0, &page[..8]).unwrap();
        file.write_pages(&UNLIMITED, 8, &page[8..]).unwrap();
        is_changed(&file.flush(&UNLIMITED).unwrap_err(), "a/c/0");
        assert_eq!(stored(), [9; 16], "{mode:?} {kind}");
        // A program reads the file before the kernel has dropped the old pages.
        assert_eq!(file.read_at(&UNLIMITED, 0, 8).unwrap(), [9; 8]);
        file.write_pages(&UNLIMITED, 8, &page[8..]).unwrap();
        is_changed(&file.flush(&UNLIMITED).unwrap_err(), "a/c/0");
        file.mark_pages_dropped();
        file.write_pages(&UNLIMITED, 0, &[1, 1, 9, 9, 9, 9, 9, 9])
            .unwrap();
        file.flush(&UNLIMITED).unwrap();
        let mut expected = [9; 16];
        expected[..2].fill(1);
        assert_eq!(stored(), expected, "{mode:?} {kind}");
        put(7);
        file.write_pages(&UNLIMITED, 0, &expected[..8]).unwrap();
        is_changed(&file.flush(&UNLIMITED).unwrap_err(), "a/c/0");
        assert_eq!(stored(), [7; 16], "{mode:?} {kind}");
    }
}

/// A program has written whole pages, so the kernel has cached them without a read.
#[test]
fn a_page_that_was_written_before_a_change_of_the_chunk_is_refused() {
    let sample = Sample::new(&[8], &[8], Form::Plain);
    for (mode, kind) in everywhere() {
        let mount = Shared::of(mode, kind, &sample);
        let file = mount.open("a/a.raw");
        file.write_at(&UNLIMITED, 0, &[1; 16]).unwrap();
        file.flush(&UNLIMITED).unwrap();
        let overlay: &dyn Store = &mount.overlay;
        let body = PutBody::Bytes(&[9; 16]);
        overlay
            .put(&UNLIMITED, &key("a/c/0"), body, &Condition::Any)
            .unwrap();
        file.write_pages(&UNLIMITED, 0, &[2, 2, 1, 1, 1, 1, 1, 1])
            .unwrap();
        is_changed(&file.flush(&UNLIMITED).unwrap_err(), "a/c/0");
        assert_eq!(mount.conflicts(), [""; 0], "{mode:?} {kind}");
        assert_eq!(mount.stored("a/c/0"), [9; 16], "{mode:?} {kind}");
    }
}

/// The kernel writes a page back through any handle of the file, although another program may have changed it through
/// mmap. So every handle gets the error.
#[test]
fn every_handle_of_a_file_gets_an_error_for_a_dropped_page() {
    let sample = Sample::new(&[8], &[8], Form::Plain);
    for (mode, kind) in everywhere() {
        let mount = Shared::of(mode, kind, &sample);
        let [first, second] = [(); 2].map(|()| mount.open("a/a.raw"));
        let page = first.read_at(&UNLIMITED, 0, 16).unwrap();
        let overlay: &dyn Store = &mount.overlay;
        let body = PutBody::Bytes(&[9; 16]);
        overlay
            .put(&UNLIMITED, &key("a/c/0"), body, &Condition::Any)
            .unwrap();
        second.write_pages(&UNLIMITED, 0, &page).unwrap();
        for file in [&first, &second] {
            is_changed(&file.flush(&UNLIMITED).unwrap_err(), "a/c/0");
            file.flush(&UNLIMITED).unwrap();
        }
    }
}

/// Invariant of `one_file_of_an_array_is_open_for_writing_at_a_time`.
///
/// The kernel still has the page from before the other program's change, though a later write was based on the changed
/// chunk.
#[test]
fn an_old_page_is_refused_although_a_later_write_saw_the_change() {
    let sample = Sample::new(&[8], &[8], Form::Plain);
    let places = everywhere().flat_map(|place| [true, false].map(|is_stored| (place, is_stored)));
    for ((mode, kind), is_stored) in places {
        let mount = Shared::of(mode, kind, &sample);
        let file = mount.open("a/a.raw");
        let mut page = file.read_at(&UNLIMITED, 0, 16).unwrap();
        let overlay: &dyn Store = &mount.overlay;
        let body = PutBody::Bytes(&[9; 16]);
        overlay
            .put(&UNLIMITED, &key("a/c/0"), body, &Condition::Any)
            .unwrap();
        file.write_at(&UNLIMITED, 4, &[3, 3]).unwrap();
        if is_stored {
            file.flush(&UNLIMITED).unwrap();
        }
        page[..2].copy_from_slice(&[1, 1]);
        file.write_pages(&UNLIMITED, 0, &page).unwrap();
        is_changed(&file.flush(&UNLIMITED).unwrap_err(), "a/c/0");
        assert_eq!(mount.conflicts(), [""; 0], "{mode:?} {kind}");
        let mut expected = [9; 16];
        expected[4..6].fill(3);
        assert_eq!(mount.stored("a/c/0"), expected, "{mode:?} {kind}");
    }
}

/// Mapped pages stay valid after they were written back and committed, so that they can be written back again.
#[test]
fn pages_are_written_back_repeatedly() {
    for form in [Form::Packed, Form::Sharded(vec![4])] {
        let sample = Sample::new(&[8], &[8], form);
        for (mode, kind) in everywhere() {
            let mount = Shared::of(mode, kind, &sample);
            let file = mount.open("a/a.raw");
            let mut page = file.read_at(&UNLIMITED, 0, 16).unwrap();
            for round in 1..4 {
                page[..2].copy_from_slice(&[round, round]);
                file.write_pages(&UNLIMITED, 0, &page).unwrap();
                file.flush(&UNLIMITED).unwrap();
                assert_eq!(mount.conflicts(), [""; 0], "{mode:?} {kind}");
                assert_eq!(all(&mount.outside().file("a", "raw")), page);
            }
        }
    }
}
