//! Functions that the unit tests of the overlay share.

use std::path::Path;
use std::sync::Arc;

use crate::{Overlay, OverlayConfig};
use zarrfs_store::Key;
use zarrfs_store::backend::memory::MemoryStore;

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub(crate) fn open(upper: &Path, store: &Arc<MemoryStore>) -> Overlay {
    Overlay::open(upper, store.clone(), "a store", OverlayConfig::default()).unwrap()
}
