//! The lock protocol of the overlay's core as a model: loom runs all schedules of three actors.
//!
//! `layers`, `core` and `open_file` do under which lock what the files of `src/overlay/` of these names do; a content is
//! a number. What is left out: the journal, bases and conflicts, attributes, folders, write-through. A change of the
//! protocol there is made here too; the scenarios (`schedules`) are run by the overlay itself as well, in fewer schedules.
//! Each protection can be left out, and loom then finds what it is for (`faults`).

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that panics has failed, and its numbers are small"
)]

use std::sync::Arc;

use loom::thread;

use crate::core::Core;
use crate::layers::{File, Key};

mod core;
mod faults;
mod layers;
mod open_file;
mod schedules;

/// What keeps actors from harming each other, and can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Records and files of a rename change together.
    Reshape,
    /// Nobody looks for a key between the move of what is left out and the exchange of the layers.
    ReshapeInFreeze,
    /// `find` looks for the key again after it has asked what lies below.
    RelocateInFind,
    /// `get` of a layer does so too.
    RelocateInGet,
    /// `look` repeats if layers were exchanged.
    LookAgain,
    /// A file that was opened is compared with its key when it is registered.
    IsCurrent,
    /// Both are one step, and names do not change meanwhile.
    RegisterUnderNames,
    /// A file that loses its key at the end of a commit leaves the table of open files.
    UnregisterRevoked,
    /// A file that is dropped leaves the table only where it is the one that is entered.
    UnregisterItself,
}

/// What an actor has seen, read by read.
pub(crate) type Reads = Vec<Option<u8>>;

/// What one actor does.
pub(crate) type Actor = fn(&Arc<Core>) -> Reads;

/// Whether what three actors read, and what the store holds in the end, can have been.
type Judge = fn(&[Reads; 3], &[(Key, u8)]) -> bool;

/// What is there before three actors come, and what they do.
pub(crate) struct Scenario {
    /// Files of the layer on top.
    pub(crate) files: &'static [(Key, u8)],
    /// Whether files are changed in place.
    pub(crate) is_large: bool,
    /// Objects of the store.
    pub(crate) objects: &'static [(Key, u8)],
    /// A rename before they come.
    pub(crate) renamed: Option<(Key, Key)>,
    pub(crate) actors: [Actor; 3],
    /// Whether what each of them has seen can be, and what the store has after a last commit.
    pub(crate) is_right: Judge,
    /// How often a thread is stopped that could go on; `None` for all schedules.
    pub(crate) preemptions: Option<usize>,
}

impl Scenario {
    /// Runs all schedules, without one of the protections.
    pub(crate) fn explore(self, without: Option<Protection>) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = self.preemptions;
        builder.max_branches = 10_000;
        builder.check(move || self.run(without));
    }

    fn run(&self, without: Option<Protection>) {
        let files = self.files.iter();
        let files = files.map(|&(key, content)| (key, File::new(content, self.is_large)));
        let files: Vec<(Key, Arc<File>)> = files.collect();
        let core = Core::new(&files, self.objects, without);
        if let Some((from, to)) = self.renamed {
            assert!(core.rename(from, to));
        }
        let [first, second, third] = self.actors;
        let spawn = |actor: Actor| {
            let core = core.clone();
            thread::spawn(move || actor(&core))
        };
        let (first, second) = (spawn(first), spawn(second));
        let third = third(&core);
        let reads = [first.join().unwrap(), second.join().unwrap(), third];
        let shown = ['a', 'b', 'c'].map(|key| Some((key, core.get(key)?)));
        let shown: Vec<(Key, u8)> = shown.into_iter().flatten().collect();
        core.commit();
        let stored = core.store.all();
        assert_eq!(shown, stored, "wrong: a commit changes what shows");
        assert!(
            (self.is_right)(&reads, &stored),
            "wrong: {reads:?}, then {stored:?}"
        );
    }
}
