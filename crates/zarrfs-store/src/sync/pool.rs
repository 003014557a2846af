//! A bounded thread pool for blocking work, and a parallel map.
//!
//! Threads start on demand and end when they are idle for a while; the last one of the process empties the buffer pool.
//! A panic ends only its own job. Jobs start in the order of submission. A job that declares itself stalled, waiting
//! for something outside such as a server, does not count: the pool starts another thread for the next job.

use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::sync::{allocator, locks};
use zarr_format::buffer;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// The pool to which the current thread belongs.
    static POOL: RefCell<Option<Arc<PoolState>>> = const { RefCell::new(None) };
}

/// The number of threads in all pools of the process.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// A pool of threads that run queued jobs.
pub struct ThreadPool {
    shared: Arc<PoolState>,
}

struct PoolState {
    name: &'static str,
    max_threads: usize,
    max_queued: usize,
    queue: Mutex<TaskQueue>,
    work: Condvar,
}

#[derive(Default)]
struct TaskQueue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// Number of threads whose jobs are stalled: they wait long for something outside, such as a server.
    stalled: usize,
    closed: bool,
}

impl ThreadPool {
    /// Builds a pool of at most `threads` threads. `submit` refuses a job while `max_queued` jobs wait for a thread.
    pub fn new(name: &'static str, threads: usize, max_queued: usize) -> ThreadPool {
        ThreadPool {
            shared: Arc::new(PoolState {
                name,
                max_threads: threads.max(1),
                max_queued,
                queue: Mutex::default(),
                work: Condvar::new(),
            }),
        }
    }

    /// Queues a job. Returns false and drops the job if the queue is full.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let mut queue = self.shared.queue.lock();
        if queue.closed || queue.jobs.len() >= self.shared.max_queued {
            return false;
        }
        queue.jobs.push_back(Box::new(job));
        if self.shared.needs_thread(&queue) {
            queue.threads += 1;
            drop(queue);
            self.shared.start_thread();
        } else {
            drop(queue);
            self.shared.work.notify_one();
        }
        true
    }
}

impl PoolState {
    /// Returns how many threads the pool may have now: stalled threads, at most 512 of them, are replaced by others.
    fn thread_limit(&self, queue: &TaskQueue) -> usize {
        self.max_threads + queue.stalled.min(512)
    }

    fn needs_thread(&self, queue: &TaskQueue) -> bool {
        queue.jobs.len() > queue.idle && queue.threads < self.thread_limit(queue)
    }

    fn start_thread(self: &Arc<PoolState>) {
        let shared = self.clone();
        let started = thread::Builder::new()
            .name(shared.name.to_string())
            .spawn(move || {
                THREADS.fetch_add(1, Ordering::Relaxed);
                POOL.set(Some(shared.clone()));
                shared.run();
                if THREADS.fetch_sub(1, Ordering::Relaxed) == 1 {
                    buffer::empty_pool();
                    allocator::trim();
                }
            });
        if let Err(error) = started {
            log::error!("cannot start a thread for {}: {error}", self.name);
            self.queue.lock().threads -= 1;
        }
    }

    fn run(&self) {
        while let Some(job) = self.next() {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                log::error!("a fault in zarrfs: a job of {} panicked", self.name);
            }
        }
    }

    /// Returns the next job, or `None` if the thread is no longer needed and should end.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if queue.threads > self.thread_limit(&queue) {
                queue.threads -= 1;
                drop(queue);
                // The wake-up that ends this thread may have been meant for a new job, so another thread is woken for
                // the job.
                self.work.notify_one();
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                queue.threads -= 1;
                return None;
            }
            queue.idle += 1;
            // A thread that finds no job for 20 seconds ends.
            let wait = self.work.wait_for(&mut queue, Duration::from_secs(20));
            queue.idle -= 1;
            if wait.timed_out() && queue.jobs.is_empty() {
                queue.threads -= 1;
                return None;
            }
        }
    }
}

/// Marks the thread's job as stalled: it waits long for something outside, such as a server that does not answer. The
/// pool may run one more thread until this struct is dropped, which must happen in the same thread.
#[must_use]
pub(crate) struct StalledJob(Arc<PoolState>);

impl StalledJob {
    /// Marks the job of this thread as stalled. Returns `None` if the thread belongs to no pool.
    pub(crate) fn begin() -> Option<StalledJob> {
        let pool = POOL.with_borrow(Option::clone)?;
        let mut queue = pool.queue.lock();
        queue.stalled += 1;
        let is_needed = pool.needs_thread(&queue);
        queue.threads += usize::from(is_needed);
        drop(queue);
        if is_needed {
            pool.start_thread();
        }
        Some(StalledJob(pool))
    }
}

impl Drop for StalledJob {
    fn drop(&mut self) {
        self.0.queue.lock().stalled -= 1;
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.closed = true;
        queue.jobs.clear();
        drop(queue);
        self.shared.work.notify_all();
    }
}

/// Applies `work` to each item, in this thread and at most `threads - 1` others. Returns the results in the order of
/// the items.
pub fn parallel_map<T: Send, R: Send>(
    threads: usize,
    items: Vec<T>,
    work: &(dyn Fn(T) -> R + Sync),
) -> Vec<R> {
    // In a shuttle run, threads that start here would not be scheduled, so this thread does all the work.
    let threads = if locks::is_scheduled() { 1 } else { threads };
    let count = items.len();
    let queue = Mutex::new(items.into_iter().enumerate());
    let done = Mutex::new(Vec::with_capacity(count));
    let run = || {
        loop {
            let next = queue.lock().next();
            let Some((index, item)) = next else { return };
            let result = work(item);
            done.lock().push((index, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            let thread = thread::Builder::new().name("zarrfs-map".to_string());
            if thread.spawn_scoped(scope, run).is_err() {
                // If the system starts no more threads, those that run do all the work.
                break;
            }
        }
        run();
    });
    let mut done = done.into_inner();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_panic_ends_one_job_only() {
        let pool = ThreadPool::new("test", 1, 8);
        let (done, wait) = mpsc::channel();
        assert!(pool.submit(|| panic!("on purpose")));
        assert!(pool.submit(move || done.send(7).unwrap()));
        assert_eq!(wait.recv_timeout(Duration::from_secs(5)), Ok(7));
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for threads in [0, 1, 4] {
            let squares = parallel_map(threads, (0..100).collect(), &|number: u64| number * number);
            assert!(
                squares
                    .iter()
                    .copied()
                    .eq((0..100).map(|number| number * number))
            );
        }
    }

    #[test]
    fn stalled_jobs_do_not_delay_others() {
        let pool = ThreadPool::new("test", 2, 64);
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let (stall, stalled) = mpsc::channel();
        for _ in 0..10 {
            let (gate, stall) = (gate.clone(), stall.clone());
            pool.submit(move || {
                let _stalled = StalledJob::begin();
                stall.send(()).unwrap();
                let _ = gate.lock().recv();
            });
        }
        for _ in 0..10 {
            stalled.recv_timeout(Duration::from_secs(5)).unwrap();
        }
        let (done, wait) = mpsc::channel();
        pool.submit(move || done.send(7).unwrap());
        assert_eq!(wait.recv_timeout(Duration::from_secs(5)), Ok(7));
        drop(release);
        let end = std::time::Instant::now() + Duration::from_secs(5);
        while pool.shared.queue.lock().threads > 2 {
            assert!(
                std::time::Instant::now() < end,
                "the threads are not given back"
            );
            thread::yield_now();
        }
        assert_eq!(pool.shared.queue.lock().stalled, 0);
        assert!(StalledJob::begin().is_none(), "this thread is of no pool");
    }

    #[test]
    fn a_full_queue_refuses_jobs() {
        let pool = ThreadPool::new("test", 1, 1);
        let (release, gate) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        pool.submit(move || {
            started.send(()).unwrap();
            let _ = gate.recv();
        });
        running.recv_timeout(Duration::from_secs(5)).unwrap();
        assert!(pool.submit(|| ()));
        assert!(!pool.submit(|| ()));
        drop(release);
    }
}
