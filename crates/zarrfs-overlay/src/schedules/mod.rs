//! Tests the overlay under shuttle: three threads in many schedules.
//!
//! Threads may be switched at each use of a lock (`sync/locks.rs`), of a file in the upper folder or of the store. A
//! schedule that fails is printed; `ZARRFS_SCHEDULE=... cargo test -p zarrfs-overlay --lib schedules::NAME` replays it.

mod scenario;

use std::sync::Arc;

use crate::schedules::scenario::{Core, Reads, Scenario, has_committed, put, unused_folder};
use crate::testing::open;

fn commit(core: &Arc<Core>) -> Reads {
    core.commit();
    Reads::new()
}

fn rename(core: &Arc<Core>) -> Reads {
    assert!(core.rename('a', 'b'));
    Reads::new()
}

fn read_both(core: &Arc<Core>) -> Reads {
    vec![core.get('a'), core.get('b')]
}

fn read(core: &Arc<Core>) -> Reads {
    vec![core.get('a')]
}

fn open_and_read(core: &Arc<Core>) -> Reads {
    vec![core.open_file('a').map(|file| file.read())]
}

/// Opens the file `a` and keeps it open while it looks up all open files.
fn hold(core: &Arc<Core>) -> Reads {
    let file = core.open_file('a');
    drop(core.all_registered());
    vec![file.map(|file| file.read())]
}

/// Whether the third thread, which reads the old and then the new name, may see these contents. The file with content 1
/// is renamed over the file with content 2.
fn is_rename([_, _, reads]: &[Reads; 3], stored: &[(char, u8)]) -> bool {
    let is_seen = match reads[..] {
        [Some(1), b] => b == Some(2) || b == Some(1),
        [None, b] => b == Some(1),
        _ => false,
    };
    is_seen && stored == [('b', 1)]
}

/// Writes 3 to the file `a`. The write goes to the file that was opened, even if the name gets another file.
fn write(core: &Arc<Core>) -> Reads {
    let writer = core.open_writer('a').unwrap();
    let is_written = writer.write(3);
    writer.close();
    vec![is_written.then_some(3)]
}

/// Threads: a commit, a rename of a file in the upper folder over an object of the store, and a reader of both names.
#[test]
fn commit_and_rename_in_the_layer() {
    Scenario {
        files: &[('a', 1)],
        objects: &[('a', 9), ('b', 2)],
        actors: [commit, rename, read_both],
        is_right: is_rename,
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a commit, a rename of an object of the store over a file of the upper folder, and a reader of both names.
#[test]
fn commit_and_rename_in_the_store() {
    Scenario {
        files: &[('b', 2)],
        objects: &[('a', 1)],
        actors: [commit, rename, read_both],
        is_right: is_rename,
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a commit of a renamed object, a reader that opens it, and a reader that gets it without an open.
#[test]
fn commit_of_renamed_key() {
    Scenario {
        objects: &[('b', 1)],
        renamed: Some(('b', 'a')),
        actors: [commit, open_and_read, |core| vec![core.get('a')]],
        is_right: |[_, opened, read], stored| {
            [opened, read].iter().all(|reads| reads[..] == [Some(1)]) && stored == [('a', 1)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a commit, a put that replaces the committed file, and a reader.
#[test]
fn commit_and_publication() {
    Scenario {
        files: &[('a', 1)],
        actors: [
            commit,
            |core| {
                core.publish('a', 2);
                vec![core.get('a')]
            },
            read,
        ],
        is_right: |[_, own, reads], stored| {
            own[..] == [Some(2)] && matches!(reads[..], [Some(1 | 2)]) && stored == [('a', 2)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a commit, a removal of the committed file, and a reader.
#[test]
fn commit_and_removal() {
    Scenario {
        files: &[('a', 1)],
        actors: [
            commit,
            |core| {
                assert!(core.remove('a'));
                vec![core.get('a')]
            },
            read,
        ],
        is_right: |[_, own, reads], stored| {
            own[..] == [None] && matches!(reads[..], [Some(1) | None]) && stored.is_empty()
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a commit, a discard of the committed change, and a reader.
#[test]
fn commit_and_discard() {
    Scenario {
        files: &[('a', 1)],
        objects: &[('a', 9)],
        actors: [commit, |core| vec![core.discard('a').then_some(9)], read],
        is_right: |[_, discarded, read], stored| {
            let is_last = match discarded[..] {
                [Some(_)] => stored == [('a', 9)],
                _ => stored == [('a', 1)],
            };
            is_last && matches!(read[..], [Some(1 | 9)])
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a commit of another key, a rename of an object of the store, and a change of its mode, which must survive
/// the rename.
#[test]
fn commit_attributes_and_rename() {
    Scenario {
        files: &[('c', 2)],
        objects: &[('a', 1)],
        actors: [commit, rename, |core| {
            assert!(core.set_mode('a') || core.set_mode('b'));
            let has_mode = core.has_mode('a').or_else(|| core.has_mode('b'));
            vec![has_mode.map(u8::from)]
        }],
        is_right: |[_, _, has_mode], stored| {
            has_mode[..] == [Some(1)] && stored == [('b', 1), ('c', 2)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a commit, a writer of an object of the store, and a change of the object's mode. The content and the mode
/// must both survive.
#[test]
fn commit_attributes_and_writer() {
    Scenario {
        objects: &[('a', 1)],
        actors: [commit, write, |core| {
            assert!(core.set_mode('a'));
            vec![core.get('a')]
        }],
        is_right: |[_, written, read], stored| {
            written[..] == [Some(3)] && matches!(read[..], [Some(1 | 3)]) && stored == [('a', 3)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a commit, a writer of a file, and a rename of another file over it.
#[test]
fn commit_writer_and_rename_over() {
    Scenario {
        files: &[('a', 1), ('b', 2)],
        actors: [commit, write, |core| {
            assert!(core.rename('b', 'a'));
            vec![core.get('a')]
        }],
        is_right: |[_, written, read], stored| {
            let is_last = matches!(stored, [('a', 2 | 3)]);
            // If the writer's content is visible after the rename, the write came later, so it must also be the last
            // content in the store.
            let is_kept = read[..] != [Some(3)] || stored == [('a', 3)];
            written[..] == [Some(3)] && matches!(read[..], [Some(2 | 3)]) && is_last && is_kept
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a commit, a writer that changes a large file in place, and a reader.
#[test]
fn commit_and_writer_in_place() {
    Scenario {
        files: &[('a', 1)],
        is_large: true,
        actors: [commit, write, open_and_read],
        is_right: |[_, written, read], stored| {
            written[..] == [Some(3)] && matches!(read[..], [Some(1 | 3)]) && stored == [('a', 3)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a commit, and a writer that opens a name while another file is renamed to it.
#[test]
fn commit_and_writer_of_renamed_key() {
    Scenario {
        files: &[('b', 2)],
        actors: [
            commit,
            |core| match core.open_writer('a') {
                None => vec![None],
                Some(writer) => {
                    let is_written = writer.write(3);
                    writer.close();
                    vec![is_written.then_some(3)]
                }
            },
            |core| {
                assert!(core.rename('b', 'a'));
                Reads::new()
            },
        ],
        is_right: |[_, written, _], stored| match written[..] {
            [None] => stored == [('a', 2)],
            _ => stored == [('a', 3)],
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a commit that leaves out a file because a writer has it open, and a reader of that file.
#[test]
fn commit_writer_and_reader() {
    Scenario {
        files: &[('a', 1), ('b', 2)],
        actors: [commit, write, read],
        is_right: |[_, written, read], stored| {
            let is_seen = matches!(read[..], [Some(1 | 3)]);
            is_seen && written[..] == [Some(3)] && stored == [('a', 3), ('b', 2)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a commit of a renamed object and then a writer, a reader that has the file open all the time, and a reader
/// that opens it.
#[test]
fn commit_then_write_of_renamed_key() {
    Scenario {
        objects: &[('b', 1)],
        renamed: Some(('b', 'a')),
        actors: [
            |core| {
                core.commit();
                write(core)
            },
            hold,
            read,
        ],
        is_right: |[written, opened, read], stored| {
            let seen = [opened, read];
            let is_seen = seen.iter().all(|reads| matches!(reads[..], [Some(1 | 3)]));
            is_seen && written[..] == [Some(3)] && stored == [('a', 3)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: two commits and a writer.
#[test]
fn two_commits_and_writer() {
    Scenario {
        files: &[('a', 1), ('b', 2)],
        objects: &[('a', 9)],
        actors: [commit, commit, write],
        is_right: |[_, _, written], stored| {
            written[..] == [Some(3)] && stored == [('a', 3), ('b', 2)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Two mounts commit the same key. No commit may overwrite a change of the other mount that its own change does not
/// know.
#[test]
fn commits_of_two_mounts() {
    Scenario {
        files: &[('a', 1)],
        objects: &[('a', 9)],
        actors: [
            |core| vec![has_committed(&core.overlay).then_some(1)],
            |core| {
                let upper = unused_folder();
                let other = open(&upper, &core.store);
                put(&other, 'a', &[5]);
                let is_committed = has_committed(&other);
                drop(other);
                let _ = std::fs::remove_dir_all(&upper);
                vec![is_committed.then_some(5)]
            },
            read,
        ],
        force: true,
        is_right: |[first, second, read], stored| {
            let is_last = match (&first[..], &second[..]) {
                ([Some(1)], [None]) | ([None], [Some(5)]) => stored == [('a', 1)],
                // A second commit to the store is allowed only if its mount changed the key after the first mount's
                // commit.
                ([Some(1)], [Some(5)]) => stored == [('a', 5)],
                _ => false,
            };
            is_last && matches!(read[..], [Some(1 | 5)])
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: two renames over the same name, and a reader that opens this name.
#[test]
fn two_renames_over_one_name() {
    Scenario {
        files: &[('a', 1), ('b', 2)],
        objects: &[('c', 3)],
        actors: [
            |core| {
                assert!(core.rename('b', 'a'));
                vec![core.open_file('a').map(|file| file.read())]
            },
            |core| {
                assert!(core.rename('c', 'a'));
                Reads::new()
            },
            open_and_read,
        ],
        is_right: |[own, _, reads], stored| {
            let is_seen = matches!(reads[..], [Some(1..=3)]);
            is_seen && matches!(own[..], [Some(2 | 3)]) && matches!(stored, [('a', 2 | 3)])
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// While a renamed object is committed, its new name must exist at all times, and its old name never.
#[test]
fn renamed_key_is_found() {
    Scenario {
        objects: &[('b', 1)],
        renamed: Some(('b', 'a')),
        actors: [
            commit,
            |core| vec![core.is_there('b').then_some(1)],
            |core| vec![core.is_there('a').then_some(1)],
        ],
        is_right: |[_, old_name, new_name], stored| {
            old_name[..] == [None] && new_name[..] == [Some(1)] && stored == [('a', 1)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a commit of a renamed object, and a reader for each of its two names.
#[test]
fn renamed_key_is_read() {
    Scenario {
        objects: &[('b', 1)],
        renamed: Some(('b', 'a')),
        actors: [commit, |core| vec![core.get('b')], read],
        is_right: |[_, old_name, new_name], stored| {
            old_name[..] == [None] && new_name[..] == [Some(1)] && stored == [('a', 1)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a rename over a name, a thread that has the old file open, and a thread that opens the name later.
#[test]
fn rename_over_opened_file() {
    Scenario {
        files: &[('a', 1), ('b', 2)],
        actors: [
            |core| {
                assert!(core.rename('b', 'a'));
                vec![core.open_file('a').map(|file| file.read())]
            },
            hold,
            |_| Reads::new(),
        ],
        is_right: |[own, reads, _], stored| {
            let is_seen = matches!(reads[..], [Some(1 | 2)]);
            is_seen && own[..] == [Some(2)] && stored == [('a', 2)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Threads: a writer that reads its file before it closes it, and a reader that opens the file.
#[test]
fn writer_and_reader_of_one_file() {
    Scenario {
        files: &[('a', 1)],
        actors: [
            |core| {
                let writer = core.open_writer('a').unwrap();
                assert!(writer.write(3));
                let read = core.get('a');
                writer.close();
                vec![read]
            },
            open_and_read,
            |_| Reads::new(),
        ],
        is_right: |[own, reads, _], stored| {
            let is_seen = matches!(reads[..], [Some(1 | 3)]);
            is_seen && own[..] == [Some(3)] && stored == [('a', 3)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}
