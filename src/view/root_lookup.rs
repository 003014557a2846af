//! What `stat` shows of the root of a view whose store may not answer.
//!
//! Each path of a mount leads over its root, that of the control directory too: what is not known of it is asked for in a
//! thread of its own, and nothing waits for that longer than a moment. Whatever the store says or not, a root is a
//! directory. An answer that is given within that moment was asked for after the question for it.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::store::Key;
use crate::view::text_file::directory_attr;
use crate::view::{Attr, View};

/// How long the store may take to answer.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// How long the kernel may keep what the store does not tell.
const FRESH: Duration = Duration::from_secs(1);

/// A view, of whose root something is known at any time.
pub(super) struct RootLookup {
    pub(super) view: Arc<dyn View>,
    state: Arc<RootState>,
    /// What the root shows if the store has never told of it.
    started: SystemTime,
}

#[derive(Default)]
struct RootState {
    question: Mutex<RootQuestion>,
    answered: Condvar,
}

#[derive(Default)]
struct RootQuestion {
    /// When the question was asked that has no answer yet.
    asked: Option<Instant>,
    /// The last answer, and when it was asked for.
    known: Option<(Instant, Option<Attr>)>,
}

impl RootLookup {
    /// Asks nothing yet.
    pub(super) fn new(view: Arc<dyn View>, started: SystemTime) -> RootLookup {
        RootLookup {
            view,
            state: Arc::default(),
            started,
        }
    }

    /// Returns what `stat` shows of the root, in any case within two moments.
    pub(super) fn attr(&self) -> Attr {
        let known = self.view.lookup_now(&Key::root()).found();
        known
            .or_else(|| self.ask())
            .unwrap_or_else(|| directory_attr(self.started, FRESH))
    }

    /// Returns what the store says, or said last if it does not answer; nothing if it has no such directory.
    fn ask(&self) -> Option<Attr> {
        let start = Instant::now();
        let mut question = self.state.question.lock();
        loop {
            match (question.asked, question.known) {
                (None, Some((asked, answer))) if asked >= start => return answer,
                (None, _) => self.begin(&mut question),
                (Some(asked), known) => {
                    let end = asked + MAX_WAIT;
                    self.state.answered.wait_until(&mut question, end);
                    if question.asked == Some(asked) && Instant::now() >= end {
                        return stale(known);
                    }
                }
            }
        }
    }

    /// Asks the store in another thread; without one, the answer is that nothing is known.
    fn begin(&self, question: &mut MutexGuard<'_, RootQuestion>) {
        let asked = Instant::now();
        question.asked = Some(asked);
        let view = self.view.clone();
        let answer = RootAnswer {
            state: self.state.clone(),
            asked,
            attr: None,
        };
        let ask = move || answer.give(&*view);
        MutexGuard::unlocked(question, || {
            let started = thread::Builder::new().name("zarrfs-root".into()).spawn(ask);
            if let Err(error) = started {
                log::error!("no thread to ask for the root: {error}");
            }
        });
    }
}

/// Returns an answer that is asked for again soon.
fn stale(known: Option<(Instant, Option<Attr>)>) -> Option<Attr> {
    let attr = known.and_then(|(_, answer)| answer);
    attr.map(|attr| Attr {
        fresh: FRESH,
        ..attr
    })
}

/// The answer to a question, which is known when this is dropped.
struct RootAnswer {
    state: Arc<RootState>,
    asked: Instant,
    attr: Option<Attr>,
}

impl RootAnswer {
    fn give(mut self, view: &dyn View) {
        self.attr = view.lookup(&Key::root()).ok().flatten();
    }
}

impl Drop for RootAnswer {
    fn drop(&mut self) {
        let mut question = self.state.question.lock();
        question.asked = None;
        question.known = Some((self.asked, self.attr));
        self.state.answered.notify_all();
    }
}
