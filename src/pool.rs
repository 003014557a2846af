//! A bounded pool of named threads for work that may wait.
//!
//! Threads start when there is work for them and end when they have had none for a while. A panic in a job
//! ends that job alone. Jobs start in the order they came.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(20);

/// Threads that run jobs.
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    most_threads: usize,
    most_waiting: usize,
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    /// Builds a pool of at most `threads` threads; `submit` refuses while `waiting` jobs have not started.
    pub fn new(name: &'static str, threads: usize, waiting: usize) -> Pool {
        Pool {
            shared: Arc::new(Shared {
                name,
                most_threads: threads.max(1),
                most_waiting: waiting,
                queue: Mutex::default(),
                work: Condvar::new(),
            }),
        }
    }

    /// Queues a job; returns whether there was room for it.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let mut queue = self.shared.lock();
        if queue.closed || queue.jobs.len() >= self.shared.most_waiting {
            return false;
        }
        queue.jobs.push_back(Box::new(job));
        if queue.jobs.len() > queue.idle && queue.threads < self.shared.most_threads {
            queue.threads += 1;
            drop(queue);
            self.start_thread();
        } else {
            drop(queue);
            self.shared.work.notify_one();
        }
        true
    }

    fn start_thread(&self) {
        let shared = self.shared.clone();
        let started = thread::Builder::new()
            .name(shared.name.to_string())
            .spawn(move || shared.run());
        if let Err(error) = started {
            log::error!("no thread for {}: {error}", self.shared.name);
            self.shared.lock().threads -= 1;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.closed = true;
        queue.jobs.clear();
        drop(queue);
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some(job) = self.next() {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                log::error!("a job of {} panicked; the pool goes on", self.name);
            }
        }
    }

    /// Returns the next job, or nothing when the thread should end.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                queue.threads -= 1;
                return None;
            }
            queue.idle += 1;
            let (woken, wait) = self
                .work
                .wait_timeout(queue, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if wait.timed_out() && queue.jobs.is_empty() {
                queue.threads -= 1;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_panic_ends_one_job_only() {
        let pool = Pool::new("test", 1, 8);
        let (done, wait) = mpsc::channel();
        assert!(pool.submit(|| panic!("on purpose")));
        assert!(pool.submit(move || done.send(7).unwrap()));
        assert_eq!(wait.recv_timeout(Duration::from_secs(5)), Ok(7));
    }

    #[test]
    fn a_full_queue_refuses() {
        let pool = Pool::new("test", 1, 1);
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
