//! Three actors at a time, with all protections: nothing that is read, kept or left is wrong.
//!
//! The model runs them in all schedules, and the overlay itself in some (`src/overlay/model_scenarios.rs`).

use super::{Actor, Reads, Scenario};

pub(crate) const COMMIT: Actor = |core| {
    core.commit();
    Reads::new()
};

pub(crate) const RENAME: Actor = |core| {
    assert!(core.rename('a', 'b'));
    Reads::new()
};

pub(crate) const READ_BOTH: Actor = |core| vec![core.get('a'), core.get('b')];

pub(crate) const READ: Actor = |core| vec![core.get('a')];

pub(crate) const OPEN: Actor = |core| vec![core.open_file('a').map(|file| file.read())];

/// Opens, and holds the file while others look for it. That a file is held is no access that loom knows of: it tries what
/// others do meanwhile where this thread looks at the table of open files once more.
pub(crate) const HOLD: Actor = |core| {
    let file = core.open_file('a');
    drop(core.all_registered());
    vec![file.map(|file| file.read())]
};

/// What a reader of both names may see of a rename of 1 over 2.
fn is_rename([_, _, reads]: &[Reads; 3], stored: &[(char, u8)]) -> bool {
    let is_seen = match reads[..] {
        [Some(1), b] => b == Some(2) || b == Some(1),
        [None, b] => b == Some(1),
        _ => false,
    };
    is_seen && stored == [('b', 1)]
}

/// A commit, a rename of what the layer has over an object, and a reader of both names.
pub(crate) const RENAME_IN_LAYER: Scenario = Scenario {
    files: &[('a', 1)],
    is_large: false,
    objects: &[('a', 9), ('b', 2)],
    renamed: None,
    actors: [COMMIT, RENAME, READ_BOTH],
    is_right: is_rename,
    preemptions: Some(3),
};

/// The same of what the store has, over a file of the layer.
pub(crate) const RENAME_IN_STORE: Scenario = Scenario {
    files: &[('b', 2)],
    objects: &[('a', 1)],
    ..RENAME_IN_LAYER
};

/// A commit of what was renamed, a reader that opens it, and one that does not.
pub(crate) const RENAMED_BEFORE: Scenario = Scenario {
    files: &[],
    is_large: false,
    objects: &[('b', 1)],
    renamed: Some(('b', 'a')),
    actors: [COMMIT, OPEN, |core| vec![core.get('a')]],
    is_right: |[_, opened, read], stored| {
        [opened, read].iter().all(|reads| reads[..] == [Some(1)]) && stored == [('a', 1)]
    },
    preemptions: Some(3),
};

/// A commit, a publication and a reader.
pub(crate) const PUBLISH: Scenario = Scenario {
    files: &[('a', 1)],
    is_large: false,
    objects: &[],
    renamed: None,
    actors: [
        COMMIT,
        |core| {
            core.publish('a', 2);
            vec![core.get('a')]
        },
        READ,
    ],
    is_right: |[_, own, reads], stored| {
        own[..] == [Some(2)] && matches!(reads[..], [Some(1 | 2)]) && stored == [('a', 2)]
    },
    preemptions: Some(3),
};

/// A commit, a removal and a reader.
pub(crate) const REMOVE: Scenario = Scenario {
    actors: [
        COMMIT,
        |core| {
            assert!(core.remove('a'));
            vec![core.get('a')]
        },
        READ,
    ],
    is_right: |[_, own, reads], stored| {
        own[..] == [None] && matches!(reads[..], [Some(1) | None]) && stored.is_empty()
    },
    ..PUBLISH
};

/// Opens, writes and closes; what is written goes to the file that was opened.
pub(crate) const WRITE: Actor = |core| {
    let writer = core.open_writer('a').unwrap();
    let is_written = writer.write(3);
    writer.close();
    vec![is_written.then_some(3)]
};

/// A commit, a writer, and a rename over the file that it opens.
pub(crate) const WRITE_AND_RENAME: Scenario = Scenario {
    files: &[('a', 1), ('b', 2)],
    is_large: false,
    objects: &[],
    renamed: None,
    actors: [COMMIT, WRITE, |core| {
        assert!(core.rename('b', 'a'));
        vec![core.get('a')]
    }],
    is_right: |[_, written, read], stored| {
        let is_last = matches!(stored, [('a', 2 | 3)]);
        // What shows after the rename is lost to a later write alone.
        let is_kept = read[..] != [Some(3)] || stored == [('a', 3)];
        written[..] == [Some(3)] && matches!(read[..], [Some(2 | 3)]) && is_last && is_kept
    },
    preemptions: Some(3),
};

/// A commit, a writer in place, and a reader.
pub(crate) const WRITE_IN_PLACE: Scenario = Scenario {
    files: &[('a', 1)],
    is_large: true,
    actors: [COMMIT, WRITE, OPEN],
    is_right: |[_, written, read], stored| {
        written[..] == [Some(3)] && matches!(read[..], [Some(1 | 3)]) && stored == [('a', 3)]
    },
    ..WRITE_AND_RENAME
};

/// A writer that opens after a rename, which is under way, and a commit.
pub(crate) const WRITE_RENAMED: Scenario = Scenario {
    files: &[('b', 2)],
    is_large: false,
    objects: &[],
    renamed: None,
    actors: [
        COMMIT,
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
    preemptions: Some(3),
};

/// Two renames over one name, and a reader that opens it.
pub(crate) const TWO_RENAMES: Scenario = Scenario {
    files: &[('a', 1), ('b', 2)],
    is_large: false,
    objects: &[('c', 3)],
    renamed: None,
    actors: [
        |core| {
            assert!(core.rename('b', 'a'));
            vec![core.open_file('a').map(|file| file.read())]
        },
        |core| {
            assert!(core.rename('c', 'a'));
            Reads::new()
        },
        OPEN,
    ],
    is_right: |[own, _, reads], stored| {
        let is_seen = matches!(reads[..], [Some(1..=3)]);
        is_seen && matches!(own[..], [Some(2 | 3)]) && matches!(stored, [('a', 2 | 3)])
    },
    preemptions: Some(3),
};

/// A rename over a name that another one opens, and an opening after it.
pub(crate) const REPLACED_AND_OPENED: Scenario = Scenario {
    objects: &[],
    actors: [
        |core| {
            assert!(core.rename('b', 'a'));
            vec![core.open_file('a').map(|file| file.read())]
        },
        HOLD,
        |_| Reads::new(),
    ],
    is_right: |[own, reads, _], stored| {
        let is_seen = matches!(reads[..], [Some(1 | 2)]);
        is_seen && own[..] == [Some(2)] && stored == [('a', 2)]
    },
    ..TWO_RENAMES
};

/// A writer that reads what it has not closed yet, and one who opens the same file.
pub(crate) const WRITE_AND_OPEN: Scenario = Scenario {
    files: &[('a', 1)],
    actors: [
        |core| {
            let writer = core.open_writer('a').unwrap();
            assert!(writer.write(3));
            let read = core.get('a');
            writer.close();
            vec![read]
        },
        OPEN,
        |_| Reads::new(),
    ],
    is_right: |[own, reads, _], stored| {
        let is_seen = matches!(reads[..], [Some(1 | 3)]);
        is_seen && own[..] == [Some(3)] && stored == [('a', 3)]
    },
    ..REPLACED_AND_OPENED
};

/// A commit that leaves out what a writer has open, and a reader of that.
pub(crate) const WRITE_AND_READ: Scenario = Scenario {
    files: &[('a', 1), ('b', 2)],
    is_large: false,
    actors: [COMMIT, WRITE, READ],
    is_right: |[_, written, read], stored| {
        let is_seen = matches!(read[..], [Some(1 | 3)]);
        is_seen && written[..] == [Some(3)] && stored == [('a', 3), ('b', 2)]
    },
    ..WRITE_AND_RENAME
};

/// A commit of what was renamed, and whether it is there meanwhile.
pub(crate) const RENAMED_THERE: Scenario = Scenario {
    actors: [
        COMMIT,
        |_| vec![Some(1)],
        |core| vec![core.is_there('a').then_some(1)],
    ],
    preemptions: Some(3),
    ..RENAMED_BEFORE
};

/// The same for one who reads.
pub(crate) const RENAMED_READ: Scenario = Scenario {
    actors: [COMMIT, |_| vec![Some(1)], READ],
    preemptions: Some(3),
    ..RENAMED_BEFORE
};

/// A commit of what was renamed and a writer after it, with a reader that has it open all the time.
pub(crate) const RENAMED_WRITTEN: Scenario = Scenario {
    actors: [
        |core| {
            core.commit();
            WRITE(core)
        },
        HOLD,
        |_| vec![Some(1)],
    ],
    is_right: |[written, opened, read], stored| {
        let seen = [opened, read];
        let is_seen = seen.iter().all(|reads| matches!(reads[..], [Some(1 | 3)]));
        is_seen && written[..] == [Some(3)] && stored == [('a', 3)]
    },
    ..RENAMED_BEFORE
};

macro_rules! all_schedules {
    ($($name:ident: $scenario:ident,)*) => {
        $(#[test]
        fn $name() {
            $scenario.explore(None);
        })*
    };
}

all_schedules! {
    commit_and_rename_in_the_layer: RENAME_IN_LAYER,
    commit_and_rename_in_the_store: RENAME_IN_STORE,
    commit_of_what_was_renamed: RENAMED_BEFORE,
    commit_and_publication: PUBLISH,
    commit_and_removal: REMOVE,
    commit_writer_and_rename_over: WRITE_AND_RENAME,
    commit_and_writer_in_place: WRITE_IN_PLACE,
    commit_and_writer_of_what_is_renamed: WRITE_RENAMED,
    two_renames_over_one_name: TWO_RENAMES,
    commit_writer_and_reader: WRITE_AND_READ,
    what_is_renamed_is_there: RENAMED_THERE,
    what_is_renamed_is_read: RENAMED_READ,
    commit_and_write_of_what_was_renamed: RENAMED_WRITTEN,
    rename_over_what_is_opened: REPLACED_AND_OPENED,
    writer_and_reader_of_one_file: WRITE_AND_OPEN,
}
