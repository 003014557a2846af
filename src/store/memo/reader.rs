//! An object kept open that makes the memo forget it when it turns out to be changed.

use std::io::IoSliceMut;
use std::sync::Arc;

use super::shared::Shared;
use crate::error::Kind;
use crate::error::Result;
use crate::store::Key;
use crate::store::Meta;
use crate::store::Reader;

/// A reader over a reader.
pub(super) struct Watched {
    pub(super) inner: Arc<dyn Reader>,
    pub(super) key: Key,
    pub(super) shared: Arc<Shared>,
}

impl Watched {
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
impl Reader for Watched {
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
