//! A commit uses as many concurrent requests as the store allows it.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use zarr_format::error::Result;
use zarrfs_overlay::commit::CommitConfig;
use zarrfs_store::Key;

use crate::overlay::fixture::{Fixture, Lower, folder};
use crate::overlay::hooked::{Hook, Hooked};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

const CONCURRENCY: usize = 40;

/// Number of parallel puts that a commit makes: the store's 40 parallel requests, less one in eight for readers.
const AT_ONCE: usize = 35;

/// A hook that lets calls of one kind wait until `AT_ONCE` of them have arrived.
struct Meeting {
    call: &'static str,
    arrived: Mutex<usize>,
    all: Condvar,
}

impl Hook for Meeting {
    fn before(&self, _context: &RequestContext, call: &str, key: &Key) -> Result<()> {
        if call == self.call && !key.is_root() {
            let mut arrived = self.arrived.lock().unwrap();
            *arrived += 1;
            self.all.notify_all();
            let limit = Duration::from_secs(20);
            let waits = |arrived: &mut usize| *arrived < AT_ONCE;
            drop(self.all.wait_timeout_while(arrived, limit, waits).unwrap());
        }
        Ok(())
    }
}

#[test]
fn a_commit_uses_all_requests_not_reserved_for_readers() {
    for call in ["etag", "put"] {
        let plain = Fixture::new(Lower::Memory, &[]);
        let meeting = Arc::new(Meeting {
            call,
            arrived: Mutex::new(0),
            all: Condvar::new(),
        });
        let lower = Hooked::new(plain.lower.clone(), meeting.clone()).with_concurrency(CONCURRENCY);
        let fixture = Fixture::over(folder(), Arc::new(lower));
        for chunk in 0..CONCURRENCY {
            fixture.write(&format!("a{chunk}"), b"1");
        }
        let before = std::time::Instant::now();
        let overlay = fixture.overlay();
        overlay
            .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
            .and_then(zarrfs_overlay::commit::Outcome::or_failed)
            .unwrap();
        assert!(*meeting.arrived.lock().unwrap() >= AT_ONCE, "{call}");
        let waited = before.elapsed();
        assert!(waited < Duration::from_secs(20), "{call}: {waited:?}");
    }
}
