//! Runs random operations on each kind of store, and judges their histories for consistency.
//!
//! CI runs a fixed number of operations, `scripts/stress` runs for a number of seconds. A run that fails prints its
//! plan, which `ZARRFS_STRESS_PLAN` runs again, and is repeated with smaller plans as long as it still fails.

use std::env;
use std::time::{Duration, Instant};

use crate::concurrency::plan::{Plan, Site};
use crate::concurrency::run::{Done, run};

/// The number of operations on one kind of store in CI: in total, and in one run.
struct Amount {
    operations: u64,
    run: u64,
}

/// The maximum number of smaller plans that are tried after a plan has failed.
const REDUCTIONS: usize = 16;

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    env::var(name).ok()?.parse().ok()
}

/// Runs plans with one seed after the other until there were enough operations, or for the requested time.
fn repeat(site: Site, amount: &Amount) {
    let asked = env::var("ZARRFS_STRESS_STORE").unwrap_or_default();
    if !asked.is_empty() && asked != site.name() {
        return;
    }
    if let Ok(plan) = env::var("ZARRFS_STRESS_PLAN") {
        let plan: Plan = serde_json::from_str(&plan).unwrap();
        if plan.site == site {
            once(&plan);
        }
        return;
    }
    let seconds = variable("ZARRFS_STRESS_SECONDS").map(Duration::from_secs);
    let first: u64 = variable("ZARRFS_STRESS_SEED").unwrap_or(1);
    let begin = Instant::now();
    let mut all = Done::default();
    for seed in first.. {
        let is_enough = match seconds {
            Some(seconds) => begin.elapsed() >= seconds,
            None => all.operations as u64 >= amount.operations,
        };
        if is_enough {
            break;
        }
        match run(&Plan::of(seed, site, amount.run)) {
            Ok(done) => {
                all.operations += done.operations;
                all.commits += done.commits;
                all.kills += done.kills;
            }
            Err(why) => fail(&Plan::of(seed, site, amount.run), &why),
        }
    }
    println!("{}: {all:?} in {:?}", site.name(), begin.elapsed());
}

fn once(plan: &Plan) {
    match run(plan) {
        Ok(done) => println!("{done:?}"),
        Err(why) => panic!("{plan}\n{why}"),
    }
}

/// Makes a failing plan smaller, and panics with the smallest plan that still fails.
fn fail(plan: &Plan, why: &str) -> ! {
    eprintln!("{plan}\n{why}\nIt is run again with less.");
    let (mut least, mut why) = (plan.clone(), why.to_string());
    let mut left = REDUCTIONS;
    let mut tried = 0;
    while left > 0 {
        let Some(smaller) = smaller(&least).into_iter().nth(tried) else {
            break;
        };
        left -= 1;
        match run(&smaller) {
            Ok(_) => tried += 1,
            Err(found) => (least, why, tried) = (smaller, found, 0),
        }
    }
    let again = format!("ZARRFS_STRESS_PLAN='{least}' cargo test --test mounts histories");
    panic!("seed {} on {}: {why}\n{again}", plan.seed, plan.site.name());
}

/// Returns plans with less of one parameter each than `plan`.
fn smaller(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    let mut add = |change: &dyn Fn(&mut Plan)| {
        let mut smaller = plan.clone();
        change(&mut smaller);
        if smaller != *plan {
            plans.push(smaller);
        }
    };
    let half = plan.classes.len().div_ceil(2);
    if half < plan.classes.len() {
        add(&|plan| plan.classes.truncate(half));
        add(&|plan| drop(plan.classes.drain(..half)));
    }
    add(&|plan| plan.kills = false);
    add(&|plan| plan.processes = 0);
    add(&|plan| plan.keys = 1);
    add(&|plan| plan.writers = 1);
    add(&|plan| plan.readers = 1);
    add(&|plan| plan.committers = plan.committers.min(1));
    add(&|plan| plan.outsiders = 0);
    plans
}

/// Checks the judge: the history of a plain directory, without zarrfs, must pass.
#[test]
fn histories_of_a_plain_directory_are_consistent() {
    let (operations, run) = (10_000, 5000);
    repeat(Site::Plain, &Amount { operations, run });
}

#[test]
fn histories_over_memory_are_consistent() {
    let (operations, run) = (30_000, 7500);
    repeat(Site::Memory, &Amount { operations, run });
}

#[test]
fn histories_over_a_folder_are_consistent() {
    let (operations, run) = (30_000, 7500);
    repeat(Site::Folder, &Amount { operations, run });
}

#[test]
fn histories_over_a_flaky_store_are_consistent() {
    let (operations, run) = (5000, 1000);
    repeat(Site::Flaky, &Amount { operations, run });
}

#[test]
fn histories_on_a_mount_of_a_folder_are_consistent() {
    if crate::common::needs::mounts() {
        let (operations, run) = (25_000, 5000);
        repeat(Site::Local, &Amount { operations, run });
    }
}

#[test]
fn histories_on_a_mount_of_a_bucket_are_consistent() {
    if crate::common::needs::mounts() && crate::common::needs::server("ZARRFS_TEST_S3") {
        let (operations, run) = (3000, 1000);
        repeat(Site::S3, &Amount { operations, run });
    }
}

#[test]
fn histories_on_a_mount_of_a_flaky_bucket_are_consistent() {
    if crate::common::needs::mounts() && crate::common::needs::server("ZARRFS_TEST_S3") {
        let (operations, run) = (400, 200);
        repeat(Site::FlakyS3, &Amount { operations, run });
    }
}
