//! The object of another store that is an archive, and whether it has changed.

use std::sync::Arc;

use crate::backend::current::Source;
use crate::request_context::RequestContext;
use crate::{EntryKind, Key, Store, StoreInfo};
use zarr_format::error::{Error, Kind, Result, printable};

use super::archive;
use super::archive::Archive;
use super::directory::OmittedEntries;

/// The object of another store that is an archive.
pub(super) struct ArchiveObject {
    pub(super) base: Arc<dyn Store>,
    pub(super) key: Key,
    /// The name of the archive in messages.
    pub(super) display_name: String,
}

impl ArchiveObject {
    /// Reads the directory, and logs a warning if entries are left out. Also returns the entries of `folder` among them.
    pub(super) fn read(
        &self,
        context: &RequestContext,
        folder: &Key,
    ) -> Result<(Arc<Archive>, OmittedEntries)> {
        let opened = Archive::open(context, &*self.base, &self.key, folder);
        let (archive, omitted) = opened.map_err(|error| error.about(&self.display_name))?;
        let text = omitted.to_string();
        if !text.is_empty() {
            log::warn!("{}: hidden entries: {text}", printable(&self.display_name));
        }
        Ok((Arc::new(archive), omitted))
    }
}

impl Source for ArchiveObject {
    type Content = Archive;

    fn info(&self) -> &StoreInfo {
        self.base.info()
    }

    /// Returns the old archive if it has not changed, or else reads the new one's directory.
    fn refresh(&self, context: &RequestContext, old: &Arc<Archive>) -> Result<Arc<Archive>> {
        let display_name = &self.display_name;
        let meta = self.base.head(context, &self.key);
        match meta.map_err(|error| archive::failed(error).about(display_name))? {
            Some(meta) if meta.version == old.meta.version => Ok(old.clone()),
            Some(meta) if meta.kind == EntryKind::File => match self.read(context, &Key::root()) {
                Ok((new, _)) if new.has_content_of(old) => Ok(old.clone()),
                Ok((new, _)) => Ok(new),
                // An archive that is still being written does not make its entries corrupt.
                Err(error) => Err(match archive::failed(error) {
                    error if error.kind() == Kind::Corrupt => {
                        Error::unavailable(display_name, error.detail())
                    }
                    error => error,
                }),
            },
            _ => Err(Error::unavailable(display_name, "the zip archive is gone")),
        }
    }
}
