//! A peer of the benchmark: reads whole arrays in process with the zarrs crate.
//!
//!     zarrs_read STORE ARRAY
//!
//! For each line on standard input it decodes the whole array into one buffer, chunks in parallel on all cores, and
//! prints seconds, bytes and CPU seconds. The buffer is allocated and written before the first line, so that no
//! measurement includes page faults of fresh memory.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a program of tests and measurements: what panics has failed"
)]
#![expect(unsafe_code, reason = "the buffer of zarrs is shared by its threads")]

use std::error::Error;
use std::io::BufRead;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use unsafe_cell_slice::UnsafeCellSlice;
use zarrs::array::{Array, ArrayBytesDecodeIntoTarget, ArrayBytesFixedDisjointView, ArraySubset};
use zarrs::filesystem::FilesystemStore;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, path] = &arguments[..] else {
        return Err("usage: zarrs_read STORE ARRAY".into());
    };
    let array = Array::open(Arc::new(FilesystemStore::new(store)?), path)?;
    let whole = ArraySubset::new_with_shape(array.shape().to_vec());
    let element = array
        .data_type()
        .fixed_size()
        .ok_or("elements vary in length")?;
    let mut buffer = vec![1; whole.num_elements_usize() * element];
    for _ in std::io::stdin().lock().lines() {
        let cpu = cpu_time();
        let start = Instant::now();
        read(&array, &whole, element, &mut buffer)?;
        let seconds = start.elapsed().as_secs_f64();
        let cpu = (cpu_time() - cpu).as_secs_f64();
        println!("{seconds:.6} {} {cpu:.6}", buffer.len());
    }
    Ok(())
}

fn read(
    array: &Array<FilesystemStore>,
    whole: &ArraySubset,
    element: usize,
    buffer: &mut [u8],
) -> Result<(), Box<dyn Error>> {
    let bytes = UnsafeCellSlice::new(buffer);
    // SAFETY: this is the only view of the buffer.
    let mut view =
        unsafe { ArrayBytesFixedDisjointView::new(bytes, element, array.shape(), whole.clone())? };
    array.retrieve_array_subset_into(whole, ArrayBytesDecodeIntoTarget::Fixed(&mut view))?;
    Ok(())
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
