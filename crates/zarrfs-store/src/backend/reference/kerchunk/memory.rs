//! The memory of a table while it grows, reserved in steps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::budget::{MemoryBudget, Reservation};
use zarr_format::error::{Error, Result};

/// Reserved bytes that grow and shrink.
pub(super) struct GrowingMemory {
    budget: Arc<MemoryBudget>,
    parts: Vec<Reservation>,
    step: u64,
}

impl GrowingMemory {
    /// Reserves nothing yet.
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> GrowingMemory {
        GrowingMemory {
            budget: budget.clone(),
            parts: Vec::new(),
            step: (budget.limit() / 16).clamp(1, 4 << 20),
        }
    }

    /// Returns the budget.
    pub(super) fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    fn reserved(&self) -> u64 {
        self.parts.len() as u64 * self.step
    }

    /// Makes sure that `bytes` are reserved; `TooLarge` if they exceed the memory.
    pub(super) fn hold(&mut self, bytes: u64) -> Result<()> {
        let limit = self.budget.limit();
        let too_large = || {
            let option = self.budget.option();
            let why = format!(
                "the references take {bytes} bytes or more, for which --memory {option} has no room: give more --memory"
            );
            Error::too_large("", why)
        };
        if bytes > limit {
            return Err(too_large());
        }
        let mut more = Vec::new();
        while self.reserved() + more.len() as u64 * self.step < bytes {
            // References cannot be evicted, so that waiting for memory seldom helps.
            let part = self
                .budget
                .reserve(self.step, Instant::now() + Duration::from_secs(5));
            more.push(part.map_err(|_| too_large())?);
        }
        self.parts.extend(more);
        Ok(())
    }

    /// Releases all but `bytes`, rounded up to a step.
    pub(super) fn release_to(&mut self, bytes: u64) {
        let parts = bytes.div_ceil(self.step);
        self.parts
            .truncate(usize::try_from(parts).unwrap_or(usize::MAX));
    }
}
