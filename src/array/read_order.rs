//! The order in which the files of an array were read, from which the next reader's is guessed.
//!
//! A guess decides how far the kernel reads ahead and nothing else: no result depends on it.

use parking_lot::Mutex;

/// Bytes in one go that make a reading in order.
const MIN_READ_ON: u64 = 8 << 20;

/// The jumps that make a reading here and there.
const MIN_JUMPS: u32 = 8;

/// How a file was read, from its opening to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOrder {
    /// Mostly in order.
    InOrder,
    /// Here and there.
    Windows,
}

impl ReadOrder {
    /// Returns the order of a reader that read at most `longest` bytes in one go and began elsewhere `jumps` times;
    /// nothing if that is too little to tell.
    pub fn of(longest: u64, jumps: u32) -> Option<ReadOrder> {
        if longest >= MIN_READ_ON {
            Some(ReadOrder::InOrder)
        } else {
            (jumps >= MIN_JUMPS).then_some(ReadOrder::Windows)
        }
    }
}

/// How the files of an array were read last; nothing if they were not, or too little to tell.
#[derive(Default)]
pub(super) struct LastOrder(Mutex<Option<ReadOrder>>);

impl LastOrder {
    /// Returns the order of the last reader that showed one.
    pub(super) fn get(&self) -> Option<ReadOrder> {
        *self.0.lock()
    }

    /// Notes the order in which one of the files was read.
    pub(super) fn set(&self, order: ReadOrder) {
        *self.0.lock() = Some(order);
    }
}
