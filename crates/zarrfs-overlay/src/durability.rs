//! Syncs the upper folder: on request, when many changes are unsynced, and at the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::layered_store::LayeredStore;
use super::{Overlay, OverlayCore};
use zarr_format::error::{Kind, Result};

impl Overlay {
    /// Syncs all changes. The next opening of the upper folder then skips its checks.
    pub fn close(&self) -> Result<()> {
        self.0.close()
    }
}

impl OverlayCore {
    /// Syncs all changes that were made before.
    pub(super) fn sync_all(&self) -> Result<()> {
        let mut begun = Vec::new();
        for layered in self.changed_layers() {
            let number = layered.layer.begin_sync()?;
            begun.push((layered, number));
        }
        self.upper.sync_disk()?;
        for (layered, number) in begun {
            layered.layer.end_sync(&self.upper, number)?;
        }
        Ok(())
    }

    /// Returns the layers that may have unsynced changes.
    fn changed_layers(&self) -> Vec<Arc<LayeredStore>> {
        let top = self.top();
        let layers = top.frozen.clone().into_iter().chain([top]);
        layers
            .filter(|layered| !layered.layer.lock().journal.is_closed())
            .collect()
    }

    /// Starts a thread that syncs everything, if enough changes may be unsynced.
    pub(super) fn sync_if_due(self: &Arc<Self>) {
        if !self.top().layer.is_sync_due() || self.is_syncing.swap(true, Ordering::AcqRel) {
            return;
        }
        let core = self.clone();
        let sync = move || {
            if let Err(error) = core.sync_all() {
                log::warn!("changes are not synced to the disk yet: {error}");
            }
            core.is_syncing.store(false, Ordering::Release);
        };
        let thread = std::thread::Builder::new().name("zarrfs-sync".into());
        if let Err(error) = thread.spawn(sync) {
            log::warn!("changes are not synced to the disk yet: {error}");
            self.is_syncing.store(false, Ordering::Release);
        }
    }

    /// Calls `act`. If it fails because the disk is full, frees retained files with a sync and calls it again.
    pub(super) fn with_room<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        match act() {
            Err(error) if error.kind() == Kind::NoSpace && self.has_made_room() => act(),
            done => done,
        }
    }

    /// Whether a sync may free space on the disk.
    pub(super) fn has_retained(&self) -> bool {
        let top = self.top();
        let mut layers = top.frozen.iter().chain([&top]);
        layers.any(|layered| layered.layer.has_retained())
    }

    /// Frees space with a sync, if possible; returns whether it did.
    pub(super) fn has_made_room(&self) -> bool {
        self.has_retained() && self.sync_all().is_ok()
    }

    /// Syncs everything, and records in the journals that it is synced.
    fn close(&self) -> Result<()> {
        let layers = self.changed_layers();
        if layers.is_empty() {
            return Ok(());
        }
        let mut begun = Vec::new();
        for layered in &layers {
            layered.layer.begin_sync()?;
            begun.push(layered.layer.lock().journal.len());
        }
        self.upper.sync_disk()?;
        for (layered, length) in layers.iter().zip(begun) {
            layered.layer.close(&self.upper, length)?;
        }
        Ok(())
    }
}

impl Drop for OverlayCore {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            log::warn!("the changes are checked at the next mount: {error}");
        }
    }
}
