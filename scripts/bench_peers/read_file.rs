//! Reads a file and measures the time; one client for mounts, tmpfs and disk.
//!
//!     read_file whole FILE              the file once, in reads of 1 MiB into one buffer
//!     read_file random FILE COUNT SEED  COUNT reads of 4 KiB at different offsets, without kernel readahead
//!     read_file forget FILE             drops the file's pages from the page cache
//!
//! Prints seconds, bytes and the client's CPU seconds. The caller makes caches cold or warm before.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a program of tests and measurements: what panics has failed"
)]

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use rustix::time::{ClockId, clock_gettime};

const BLOCK: usize = 1 << 20;
const PAGE: u64 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["whole", file] => report(|| whole(&File::open(file)?)),
        ["random", file, count, seed] => {
            let file = File::open(file)?;
            let places = places(file.metadata()?.len(), count.parse()?, seed.parse()?);
            fadvise(&file, 0, None, Advice::Random)?;
            report(|| random(&file, &places))
        }
        ["forget", file] => Ok(fadvise(File::open(file)?, 0, None, Advice::DontNeed)?),
        _ => Err("usage: read_file whole|random|forget FILE [COUNT SEED]".into()),
    }
}

/// Runs `work`, which returns the number of bytes that it read, and prints the seconds, bytes and CPU seconds.
fn report(work: impl FnOnce() -> Result<u64, Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    let cpu = cpu_time();
    let start = Instant::now();
    let bytes = work()?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{seconds:.6} {bytes} {:.6}",
        (cpu_time() - cpu).as_secs_f64()
    );
    Ok(())
}

fn whole(file: &File) -> Result<u64, Box<dyn Error>> {
    let mut buffer = vec![1; BLOCK];
    let mut offset = 0;
    loop {
        match file.read_at(&mut buffer, offset)? {
            0 => return Ok(offset),
            read => offset += read as u64,
        }
    }
}

fn random(file: &File, places: &[u64]) -> Result<u64, Box<dyn Error>> {
    let mut page = [1; PAGE as usize];
    for &place in places {
        file.read_exact_at(&mut page, place)?;
    }
    Ok(places.len() as u64 * PAGE)
}

/// Returns `count` distinct page-aligned offsets, in an order that depends on `seed`.
fn places(length: u64, count: usize, seed: u64) -> Vec<u64> {
    let mut pages: Vec<u64> = (0..length / PAGE).collect();
    let count = count.min(pages.len());
    let mut state = seed;
    for place in 0..count {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let rest = pages.len() - place;
        pages.swap(
            place,
            place + ((mixed ^ (mixed >> 31)) % rest as u64) as usize,
        );
    }
    pages.truncate(count);
    pages.iter().map(|page| page * PAGE).collect()
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
