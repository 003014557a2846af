//! Asks ahead for what `stat` shows of chunk files that are looked up in order, where a store has to be asked about each.
//!
//! `ls -l` and `du` look up one name after the other, and each would wait for a round trip. How many are asked for ahead of
//! a reader is up to `in_order`; those in other folders once it has come from one folder to the next a few times, in as
//! many folders as it has come to, and so with arrays. One that leaves the order is not followed on.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use crate::hierarchy::Hierarchy;
use crate::store::{Hints, Key, in_order};
use crate::view::chunk_order::{ChunkFile, ChunkOrder, FilePlace};

/// How many folders, or arrays, are gone through before files in others are asked for.
const MIN_FOLDERS: usize = 2;

/// How many readers are followed at a time.
const MAX_READERS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// The readers of one view.
pub(super) struct SizesAhead {
    hierarchy: Arc<Hierarchy>,
    hints: Arc<dyn Hints>,
    /// Whether a reader is followed from array to array.
    goes_on: bool,
    /// By the path that each looks up next if it keeps to the order.
    readers: Mutex<LruCache<Key, OrderedLookups>>,
}

/// One reader.
struct OrderedLookups {
    /// How many files it has looked up in order.
    count: usize,
    /// Where it is.
    place: FilePlace,
    /// The files that come next, of which the first so many were asked for.
    next: VecDeque<ChunkFile>,
    asked: usize,
    /// What comes after these; nothing at the end.
    rest: Option<ChunkOrder>,
}

impl SizesAhead {
    /// Follows nothing yet.
    pub(super) fn new(
        hierarchy: Arc<Hierarchy>,
        hints: Arc<dyn Hints>,
        goes_on: bool,
    ) -> SizesAhead {
        SizesAhead {
            hierarchy,
            hints,
            goes_on,
            readers: Mutex::new(LruCache::new(MAX_READERS)),
        }
    }

    /// Notes that a file is looked up, and asks for those that come next.
    pub(super) fn note(&self, path: &Key) {
        let most = self.hints.heads_ahead();
        if most == 0 {
            return;
        }
        let known = self.readers.lock().pop(path);
        let reader = match known {
            Some(mut reader) => {
                reader.advance();
                Some(reader)
            }
            None => {
                ChunkOrder::behind(&self.hierarchy, path, self.goes_on).map(OrderedLookups::new)
            }
        };
        if let Some(mut reader) = reader {
            let wanted = reader.wanted(most);
            self.follow(reader);
            self.hints.prefetch_heads(&wanted);
        }
    }

    /// Notes the same of a file whose answer is known, if that needs no more files to be asked for; returns whether it
    /// does not.
    pub(super) fn note_now(&self, path: &Key) -> bool {
        let mut readers = self.readers.lock();
        let Some(reader) = readers.peek(path) else {
            return true;
        };
        if reader.wants_more(self.hints.heads_ahead()) {
            return false;
        }
        let reader = readers.pop(path);
        drop(readers);
        if let Some(mut reader) = reader {
            reader.advance();
            self.follow(reader);
        }
        true
    }

    /// Expects the next lookup of a reader. Of two that are at one place the longer one counts: the other may be a name that
    /// was looked up again.
    fn follow(&self, reader: OrderedLookups) {
        let Some(next) = reader.next.front() else {
            return;
        };
        let mut readers = self.readers.lock();
        if readers
            .peek(&next.path)
            .is_none_or(|known| known.count < reader.count)
        {
            readers.put(next.path.clone(), reader);
        }
    }
}

impl OrderedLookups {
    /// A reader that has looked up the file before an order.
    fn new(rest: ChunkOrder) -> OrderedLookups {
        OrderedLookups {
            count: 1,
            place: FilePlace::default(),
            next: VecDeque::new(),
            asked: 0,
            rest: Some(rest),
        }
    }

    /// Goes on to the next file.
    fn advance(&mut self) {
        if let Some(file) = self.next.pop_front() {
            self.place = file.place;
            self.count = self.count.saturating_add(1);
            self.asked = self.asked.saturating_sub(1);
        }
    }

    /// Returns how many files may be asked for ahead.
    fn window(&self, most: usize) -> usize {
        in_order::window(self.count, most)
    }

    /// Whether a file may be asked for by the folder and the array that it is in.
    fn is_near(&self, file: &ChunkFile) -> bool {
        let last = |now: usize| {
            if now < MIN_FOLDERS {
                now
            } else {
                now.saturating_mul(2)
            }
        };
        file.place.folder <= last(self.place.folder) && file.place.array <= last(self.place.array)
    }

    /// Returns the paths to be asked for now.
    fn wanted(&mut self, most: usize) -> Vec<Key> {
        let window = self.window(most);
        while self.next.len() < window.max(1)
            && self.next.back().is_none_or(|file| self.is_near(file))
            && let Some(rest) = &mut self.rest
        {
            match rest.next() {
                Some(file) => self.next.push_back(file),
                None => self.rest = None,
            }
        }
        let allowed = self.next.iter().take(window).skip(self.asked);
        let allowed = allowed.take_while(|file| self.is_near(file));
        let wanted: Vec<Key> = allowed.map(|file| file.path.clone()).collect();
        self.asked += wanted.len();
        wanted
    }

    /// Whether more is to be asked for once the next file was looked up: less than half of what may be is on its way.
    fn wants_more(&self, most: usize) -> bool {
        let is_held_up = self.next.back().is_some_and(|file| !self.is_near(file));
        let is_at_end = self.next.len() < 2;
        let is_low = self.asked.saturating_sub(1) < self.window(most).div_ceil(2);
        self.rest.is_some() && (is_at_end || is_low && !is_held_up)
    }
}
