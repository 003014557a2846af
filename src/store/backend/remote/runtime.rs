//! The one asynchronous runtime of the process, and blocking waits for its tasks.
//!
//! No wait exceeds its limit. Each result comes with the status of the last HTTP response, which the clients do not
//! return.

use std::cell::RefCell;
use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::error::{Error, Result};

/// Threads that move bytes between sockets and tasks.
const THREADS: usize = 2;

static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();

/// The last HTTP response to a task.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastResponse {
    /// Status of the response.
    pub(crate) status: Option<u16>,
    /// The region that the bucket is in.
    pub(crate) region: Option<String>,
    /// The host of a request that was not answered.
    pub(crate) host: Option<String>,
}

tokio::task_local! {
    static LAST_RESPONSE: RefCell<LastResponse>;
}

/// Notes the response to a request of the current task.
pub(crate) fn note_response(last: LastResponse) {
    // Tasks outside of a wait, such as renewing credentials, do not record it.
    let _ = LAST_RESPONSE.try_with(|place| place.replace(last));
}

/// Returns the status of the last response to a request of the current task.
pub(crate) fn last_status() -> Option<u16> {
    let status = LAST_RESPONSE.try_with(|place| place.borrow().status);
    status.ok().flatten()
}

/// Runs one of several concurrent futures of a wait; returns the last response to its own requests.
pub(crate) async fn with_last_response<T>(work: impl Future<Output = T>) -> (T, LastResponse) {
    let recorded = async {
        let done = work.await;
        (done, LAST_RESPONSE.with(RefCell::take))
    };
    LAST_RESPONSE.scope(RefCell::default(), recorded).await
}

/// Runs a future for at most `limit` and waits for it; returns its result, if it came in time, and the last
/// response. Must not be called from asynchronous code.
pub(crate) fn wait<T>(
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<(Option<T>, LastResponse)> {
    Ok(runtime()?.block_on(with_limit(limit, work)))
}

/// Like `wait`, for futures of many steps: they run in the runtime's threads, so that the caller is woken once and
/// not for each piece of a response.
pub(crate) fn spawn_and_wait<T: Send + 'static>(
    limit: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<(Option<T>, LastResponse)> {
    let runtime = runtime()?;
    let done = runtime.block_on(runtime.spawn(with_limit(limit, work)));
    done.map_err(|error| Error::unavailable("", format!("a request ended early: {error}")))
}

async fn with_limit<T>(
    limit: Duration,
    work: impl Future<Output = T>,
) -> (Option<T>, LastResponse) {
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
    fn no_spawned_work_outlasts_its_limit() {
        let (done, _) =
            spawn_and_wait(Duration::from_millis(10), std::future::pending::<()>()).unwrap();
        assert!(done.is_none());
    }

    #[test]
    fn a_panic_of_spawned_work_is_an_error() {
        let done = spawn_and_wait(Duration::from_secs(5), async { panic!("on purpose") });
        assert!(
            done.map(|(done, _): (Option<()>, LastResponse)| done)
                .is_err()
        );
    }

    #[test]
    fn the_last_response_is_returned() {
        let work = || async {
            note_response(LastResponse {
                status: Some(503),
                ..LastResponse::default()
            });
        };
        for (done, last) in [
            wait(Duration::from_secs(5), work()).unwrap(),
            spawn_and_wait(Duration::from_secs(5), work()).unwrap(),
        ] {
            assert_eq!((done, last.status), (Some(()), Some(503)));
        }
    }
}
