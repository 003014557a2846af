//! Where asynchronous work runs: one runtime for the whole process, and the wait for its answers.
//!
//! Callers block; no wait outlasts its limit. What the servers said last on the way to an answer is told beside
//! it, since the clients keep it to themselves.

use std::cell::RefCell;
use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::error::{Error, Result};

/// Threads that move bytes between sockets and tasks.
const THREADS: usize = 2;

static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();

/// What the server said last.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastResponse {
    /// Status of the answer.
    pub(crate) status: Option<u16>,
    /// The region that the bucket is in.
    pub(crate) region: Option<String>,
}

tokio::task_local! {
    static LAST_RESPONSE: RefCell<LastResponse>;
}

/// Notes what a server said to the task that asked.
pub(crate) fn note_response(said: LastResponse) {
    // Work outside of a wait, such as renewing credentials, has nobody to tell.
    let _ = LAST_RESPONSE.try_with(|place| place.replace(said));
}

/// Does work beside other work of the same wait; returns what was said on the way to its own answer.
pub(crate) async fn with_last_response<T>(work: impl Future<Output = T>) -> (T, LastResponse) {
    let told = async {
        let done = work.await;
        (done, LAST_RESPONSE.with(RefCell::take))
    };
    LAST_RESPONSE.scope(RefCell::default(), told).await
}

/// Runs work and waits for it, at most `limit`; returns its result, if there was one in time, and what was said
/// last. Must not be called from asynchronous code.
pub(crate) fn wait<T>(
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<(Option<T>, LastResponse)> {
    Ok(runtime()?.block_on(timed(limit, work)))
}

/// Like `wait`, for work of many steps: it runs in the runtime's own threads, and who waits is woken once, not
/// for each piece of an answer.
pub(crate) fn spawn_and_wait<T: Send + 'static>(
    limit: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<(Option<T>, LastResponse)> {
    let runtime = runtime()?;
    let done = runtime.block_on(runtime.spawn(timed(limit, work)));
    done.map_err(|error| Error::unavailable("", format!("a request ended early: {error}")))
}

async fn timed<T>(limit: Duration, work: impl Future<Output = T>) -> (Option<T>, LastResponse) {
    let timed = async {
        let done = tokio::time::timeout(limit, work).await.ok();
        (done, LAST_RESPONSE.with(RefCell::take))
    };
    LAST_RESPONSE.scope(RefCell::default(), timed).await
}

fn runtime() -> Result<&'static Runtime> {
    let runtime = RUNTIME.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(THREADS).thread_name("network");
        builder.enable_all().build()
    });
    runtime
        .as_ref()
        .map_err(|error| Error::unavailable("", format!("no threads for the network: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wait_outlasts_its_limit() {
        let (done, _) = wait(Duration::from_millis(10), std::future::pending::<()>()).unwrap();
        assert!(done.is_none());
    }

    #[test]
    fn no_work_beside_outlasts_its_limit() {
        let (done, _) =
            spawn_and_wait(Duration::from_millis(10), std::future::pending::<()>()).unwrap();
        assert!(done.is_none());
    }

    #[test]
    fn a_panic_beside_is_an_error() {
        let done = spawn_and_wait(Duration::from_secs(5), async { panic!("on purpose") });
        assert!(
            done.map(|(done, _): (Option<()>, LastResponse)| done)
                .is_err()
        );
    }

    #[test]
    fn what_was_said_is_told() {
        let work = || async {
            note_response(LastResponse {
                status: Some(503),
                region: None,
            });
        };
        for (done, said) in [
            wait(Duration::from_secs(5), work()).unwrap(),
            spawn_and_wait(Duration::from_secs(5), work()).unwrap(),
        ] {
            assert_eq!((done, said.status), (Some(()), Some(503)));
        }
    }
}
