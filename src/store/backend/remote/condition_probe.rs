//! Whether a server enforces the conditions of a put, found out once per store by puts on a key of its own.

use std::hash::{DefaultHasher, Hash, Hasher};

use parking_lot::Mutex;

use crate::error::{Error, Kind, Result};
use crate::store::Key;

/// The result of the probe, once it has succeeded.
#[derive(Default)]
pub(crate) struct ConditionProbe {
    enforced: Mutex<Option<bool>>,
}

impl ConditionProbe {
    /// Returns whether the server enforces conditions. The first call runs `probe`, concurrent calls wait for its
    /// result; a probe that fails is run again by the next call.
    pub(crate) fn get_or_run(&self, probe: impl FnOnce() -> Result<bool>) -> Result<bool> {
        let mut known = self.enforced.lock();
        if let Some(enforced) = *known {
            return Ok(enforced);
        }
        let enforced = probe()?;
        *known = Some(enforced);
        Ok(enforced)
    }
}

/// Whether an error says that the server has refused a put because of its condition.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), Kind::Changed | Kind::Exists | Kind::NotFound)
}

/// Returns the key that the probe puts to. It is different for each machine and user, so that two probes do not
/// disturb each other, and stays the same, so that the next probe removes what a killed one has left.
pub(crate) fn probe_key() -> Result<Key> {
    let mut hasher = DefaultHasher::new();
    // Machines without a name share a key; a disturbed probe only finds conditions not enforced.
    let machine = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    machine.hash(&mut hasher);
    rustix::process::geteuid().as_raw().hash(&mut hasher);
    Key::new(format!(".zarrfs-trial-{:016x}", hasher.finish()))
}
