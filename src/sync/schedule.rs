//! Schedules of threads, for unit tests: one thread runs at a time, and which one comes at each step is chosen.
//!
//! `explore` runs actors in every schedule in which a thread that could go on is stopped so often at most, and in some in
//! which it is stopped more often. Threads take turns at steps alone: uses of locks (`stepped_locks`), and what else
//! calls `step`.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What one actor does.
pub(crate) type ScheduledActor<R> = Box<dyn FnOnce() -> R + Send>;

thread_local! {
    static CURRENT: RefCell<Option<(Arc<Schedule>, usize)>> = const { RefCell::new(None) };
}

/// Whether a thread can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    Ready,
    /// Until some lock is free.
    Blocked,
    /// Until no other actor can go on.
    Paused,
    Ended,
}

/// Which of so many threads came at a step.
type TurnChoice = (usize, usize);

struct ScheduleState {
    threads: Vec<Readiness>,
    running: Option<usize>,
    choices: TurnChoices,
    is_stuck: bool,
}

/// Where the choices come from: first those that are given.
struct TurnChoices {
    given: Vec<usize>,
    taken: Vec<TurnChoice>,
    preemptions: usize,
    /// After those that are given: 0 stops no actor, others stop one at one of so many steps.
    random: Option<(u64, u64)>,
}

/// Threads that run one at a time.
struct Schedule {
    state: Mutex<ScheduleState>,
    turn: Condvar,
}

impl TurnChoices {
    fn choose(&mut self, options: &[usize], is_preemption: bool) -> usize {
        let options = if is_preemption && self.preemptions == 0 {
            &options[..1]
        } else {
            options
        };
        if options.len() == 1 {
            return options[0];
        }
        let chosen = match self.given.get(self.taken.len()) {
            Some(&given) => given.min(options.len() - 1),
            None => self.next_random(options.len()),
        };
        self.taken.push((chosen, options.len()));
        self.preemptions -= usize::from(is_preemption && chosen > 0);
        options[chosen]
    }

    fn next_random(&mut self, options: usize) -> usize {
        let Some((state, one_of)) = &mut self.random else {
            return 0;
        };
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let number = *state >> 33;
        if number % *one_of > 0 {
            return 0;
        }
        (number / *one_of) as usize % options
    }
}

impl ScheduleState {
    /// Chooses the actor that comes next; `own` is the one that is at a step.
    fn choose(&mut self, own: usize) {
        let ready = |state: &ScheduleState, wanted| {
            let threads = state.threads.iter().enumerate();
            let ready = threads.filter(|(_, readiness)| **readiness == wanted);
            ready.map(|(thread, _)| thread).collect::<Vec<usize>>()
        };
        let mut options = ready(self, Readiness::Ready);
        if options.is_empty() {
            options = ready(self, Readiness::Paused);
        }
        let is_own = |thread: &usize| *thread == own;
        let is_preemption = self.threads.get(own) == Some(&Readiness::Ready);
        options.sort_by_key(|thread| !is_own(thread));
        if options.is_empty() {
            self.is_stuck = self.threads.contains(&Readiness::Blocked);
            self.running = None;
            return;
        }
        let next = self.choices.choose(&options, is_preemption);
        self.threads[next] = Readiness::Ready;
        self.running = Some(next);
    }
}

impl Schedule {
    fn lock(&self) -> MutexGuard<'_, ScheduleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread wait for its turn.
    fn wait_for_turn<'a>(&'a self, mut state: MutexGuard<'a, ScheduleState>, own: usize) {
        while state.running != Some(own) && !state.is_stuck {
            state = self
                .turn
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let is_stuck = state.is_stuck;
        drop(state);
        assert!(
            !is_stuck || thread::panicking(),
            "wrong: every thread waits for another one"
        );
    }

    fn give_turn(&self, own: usize, readiness: Readiness) {
        let mut state = self.lock();
        if state.is_stuck {
            drop(state);
            assert!(
                thread::panicking(),
                "wrong: every thread waits for another one"
            );
            return;
        }
        state.threads[own] = readiness;
        state.choose(own);
        self.turn.notify_all();
        if readiness != Readiness::Ended {
            self.wait_for_turn(state, own);
        }
    }
}

fn at_turn(readiness: Readiness) -> bool {
    let current = CURRENT.with_borrow(Option::clone);
    let is_scheduled = current.is_some();
    if let Some((schedule, own)) = current {
        schedule.give_turn(own, readiness);
    }
    is_scheduled
}

/// Whether the thread belongs to a schedule.
pub fn is_scheduled() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// Marks a step: another thread may come first.
pub fn step() {
    at_turn(Readiness::Ready);
}

/// Waits for a while; in a schedule, until the others can do nothing more.
pub fn pause(duration: Duration) {
    if !at_turn(Readiness::Paused) {
        thread::sleep(duration);
    }
}

/// Waits until some lock is free; nothing outside of a schedule.
pub(super) fn wait_for_release() {
    at_turn(Readiness::Blocked);
}

/// Has threads try again that wait for locks.
pub(super) fn note_release() {
    CURRENT.with_borrow(|current| {
        if let Some((schedule, _)) = current {
            let mut state = schedule.lock();
            let blocked = state.threads.iter_mut();
            blocked
                .filter(|thread| **thread == Readiness::Blocked)
                .for_each(|thread| *thread = Readiness::Ready);
        }
    });
}

/// Runs actors in one schedule; returns what each of them yields, and the choices.
fn run<R: Send>(
    actors: Vec<ScheduledActor<R>>,
    choices: TurnChoices,
) -> (Vec<thread::Result<R>>, Vec<TurnChoice>) {
    let schedule = Arc::new(Schedule {
        state: Mutex::new(ScheduleState {
            threads: vec![Readiness::Ready; actors.len()],
            running: None,
            choices,
            is_stuck: false,
        }),
        turn: Condvar::new(),
    });
    let done = thread::scope(|scope| {
        let start = |(own, actor): (usize, ScheduledActor<R>)| {
            let schedule = schedule.clone();
            scope.spawn(move || {
                schedule.wait_for_turn(schedule.lock(), own);
                CURRENT.set(Some((schedule.clone(), own)));
                let done = catch_unwind(AssertUnwindSafe(actor));
                CURRENT.set(None);
                schedule.give_turn_at_end(own);
                done
            })
        };
        let threads: Vec<_> = actors.into_iter().enumerate().map(start).collect();
        let mut state = schedule.lock();
        state.choose(usize::MAX);
        drop(state);
        schedule.turn.notify_all();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(Err));
        ended.collect()
    });
    let taken = std::mem::take(&mut schedule.lock().choices.taken);
    (done, taken)
}

impl Schedule {
    /// Ends a thread, also one of a schedule that is stuck.
    fn give_turn_at_end(&self, own: usize) {
        let mut state = self.lock();
        state.threads[own] = Readiness::Ended;
        if !state.is_stuck {
            state.choose(own);
        }
        drop(state);
        self.turn.notify_all();
    }
}

/// How much `explore` does.
#[derive(Clone, Copy)]
pub(crate) struct Exploration {
    /// Every schedule in which so many threads are stopped that could go on.
    pub(crate) preemptions: usize,
    /// So many schedules in which more are.
    pub(crate) random: u64,
}

/// Runs actors in many schedules: `actors` makes those of one run, and `judge` looks at what they yield; returns how
/// many schedules there were. Fails with the choices of a schedule in which an actor or the judge does.
pub(crate) fn explore<C, R: Send>(
    exploration: Exploration,
    actors: impl Fn() -> (C, Vec<ScheduledActor<R>>),
    judge: impl Fn(C, Vec<R>),
) -> usize {
    let mut schedules = 0;
    let mut run_once = |choices: TurnChoices| {
        let (context, actors) = actors();
        let (done, taken) = run(actors, choices);
        schedules += 1;
        let judged = catch_unwind(AssertUnwindSafe(|| {
            let done = done
                .into_iter()
                .map(|done| done.unwrap_or_else(|why| std::panic::resume_unwind(why)));
            judge(context, done.collect());
        }));
        if let Err(why) = judged {
            let chosen: Vec<usize> = taken.iter().map(|choice| choice.0).collect();
            eprintln!("in schedule {schedules}, with the choices {chosen:?}:");
            std::panic::resume_unwind(why);
        }
        taken
    };
    let mut given = Some(Vec::new());
    while let Some(choices) = given {
        let taken = run_once(TurnChoices {
            given: choices,
            taken: Vec::new(),
            preemptions: exploration.preemptions,
            random: None,
        });
        given = next(taken);
    }
    for seed in 0..exploration.random {
        run_once(TurnChoices {
            given: Vec::new(),
            taken: Vec::new(),
            preemptions: usize::MAX,
            random: Some((seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 4 << (seed % 5))),
        });
    }
    schedules
}

/// Returns the choices of the next schedule after one; nothing after the last.
fn next(mut taken: Vec<TurnChoice>) -> Option<Vec<usize>> {
    while let Some((chosen, options)) = taken.pop() {
        if chosen + 1 < options {
            let mut given: Vec<usize> = taken.iter().map(|choice| choice.0).collect();
            given.push(chosen + 1);
            return Some(given);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::locks::Mutex;
    use super::*;

    /// Two threads add one; under one lock, or under two.
    fn count_up(locks_once: bool, preemptions: usize) -> Vec<u32> {
        let seen = std::sync::Mutex::new(Vec::new());
        let exploration = Exploration {
            preemptions,
            random: 0,
        };
        let actors = || {
            let number = Arc::new(Mutex::new(0));
            let actor = || -> ScheduledActor<()> {
                let number = number.clone();
                Box::new(move || {
                    if locks_once {
                        *number.lock() += 1;
                    } else {
                        let before = *number.lock();
                        *number.lock() = before + 1;
                    }
                })
            };
            let both = vec![actor(), actor()];
            (number, both)
        };
        explore(exploration, actors, |number, _| {
            seen.lock().unwrap().push(*number.lock());
        });
        seen.into_inner().unwrap()
    }

    #[test]
    fn every_schedule_is_tried() {
        assert!(count_up(true, 3).iter().all(|&number| number == 2));
        assert!(count_up(false, 0).iter().all(|&number| number == 2));
        assert!(
            count_up(false, 1).contains(&1),
            "one thread is stopped in between"
        );
    }

    #[test]
    #[should_panic(expected = "wrong: every thread waits for another one")]
    fn locks_in_two_orders_are_found() {
        let exploration = Exploration {
            preemptions: 1,
            random: 0,
        };
        let actors = || {
            let locks = Arc::new([Mutex::new(()), Mutex::new(())]);
            let actor = |first: usize| -> ScheduledActor<()> {
                let locks = locks.clone();
                Box::new(move || {
                    let _first = locks[first].lock();
                    let _second = locks[1 - first].lock();
                })
            };
            ((), vec![actor(0), actor(1)])
        };
        explore(exploration, actors, |(), _| ());
    }
}
