//! An object kept open that makes the memo forget it when it turns out to be changed.

use std::io::IoSliceMut;
use std::sync::Arc;

use super::shared::MetadataCacheState;
use crate::error::{Kind, Result};
use crate::store::{Key, Meta, Reader};

/// A reader over a reader.
pub(super) struct InvalidatingReader {
    pub(super) inner: Arc<dyn Reader>,
    pub(super) key: Key,
    pub(super) shared: Arc<MetadataCacheState>,
}

impl InvalidatingReader {
    fn watch<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(error) = &answer
            && error.kind() == Kind::Changed
        {
            self.shared.forget(&self.key);
        }
        answer
    }
}

#[deny(clippy::missing_trait_methods)]
impl Reader for InvalidatingReader {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.watch(self.inner.read_at(offset, len))
    }

    fn read_scattered(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<usize> {
        self.watch(self.inner.read_scattered(offset, parts))
    }

    fn meta(&self) -> Result<Meta> {
        self.watch(self.inner.meta())
    }
}
