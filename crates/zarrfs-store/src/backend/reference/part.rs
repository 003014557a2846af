//! A range of an object that holds the bytes of a key.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::backend::reference::blocks::Blocks;
use crate::backend::reference::targets::{Target, Targets};
use crate::backend::remote::headers::opaque_tag;
use crate::request_context::RequestContext;
use crate::{ByteRange, EntryKind, Key, Meta, Object, Reader, Version};
use zarr_format::error::{Error, Kind, Result};

/// A range of an object.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) location: Location,
    /// Where the range begins, in bytes.
    pub(crate) offset: u64,
    /// The length of the range in bytes; `None` is up to the end of the object.
    pub(crate) length: Option<u64>,
    pub(crate) identity: PartIdentity,
}

/// The object that a range is of.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    /// An object of the repository itself.
    Repository(Key),
    /// An object anywhere else.
    Url(Arc<str>),
}

/// How a reference identifies the bytes.
#[derive(Clone, Debug)]
pub(crate) enum PartIdentity {
    /// The object never changes.
    Immutable,
    /// The object has this ETag.
    ETag(Arc<str>),
    /// The object was not modified after this time, in seconds since 1970.
    NotModifiedAfter(u32),
    /// The reference does not say; the version is that of the object.
    Unknown,
}

impl Part {
    /// Returns the number of bytes; asks the store if the range has no end.
    pub(super) fn length(&self, context: &RequestContext, targets: &Targets) -> Result<u64> {
        match self.length {
            Some(length) => Ok(length),
            None => Ok(self.meta(context, targets)?.size),
        }
    }

    /// Returns the metadata of the bytes.
    pub(super) fn meta(&self, context: &RequestContext, targets: &Targets) -> Result<Meta> {
        if let (Some(version), Some(size)) = (self.own_version(), self.length) {
            return Ok(Meta {
                kind: EntryKind::File,
                size,
                stored: size,
                modified: UNIX_EPOCH,
                version,
            });
        }
        let target = targets.resolve(context, &self.location)?;
        let meta = target.store.head(context, &target.key)?;
        let meta = meta.filter(|meta| meta.kind == EntryKind::File);
        let meta = meta.ok_or_else(|| target.missing())?;
        let rest = meta.size.saturating_sub(self.offset);
        let size = self.length.unwrap_or(rest);
        Ok(Meta {
            size,
            stored: size,
            version: self.version(meta.version),
            ..meta
        })
    }

    /// Returns the version that the reference alone gives; `None` if it does not identify the bytes.
    fn own_version(&self) -> Option<Version> {
        let identity = match &self.identity {
            PartIdentity::Immutable => "immutable",
            PartIdentity::ETag(etag) => etag,
            PartIdentity::NotModifiedAfter(seconds) => &seconds.to_string(),
            PartIdentity::Unknown => return None,
        };
        Some(Version::of(self.name(identity).as_bytes()))
    }

    /// Returns the version of the bytes if the object has this version.
    pub(super) fn version(&self, object: Version) -> Version {
        let of_object = || object.of_part(self.name("").as_bytes());
        self.own_version().unwrap_or_else(of_object)
    }

    /// Returns a text that names this range of the object that `identity` identifies.
    fn name(&self, identity: &str) -> String {
        let (location, offset) = (&self.location, self.offset);
        let length = self.length.unwrap_or(u64::MAX);
        format!("{offset} {length} {identity} {}", location.name())
    }

    /// Reads the bytes, or the part of them within `span`. `Corrupt` if the object is missing, ends before the range,
    /// or is not the one that the reference was made for.
    pub(super) fn read(
        &self,
        context: &RequestContext,
        targets: &Targets,
        span: Option<&ByteRange>,
    ) -> Result<Object> {
        let target = targets.resolve(context, &self.location)?;
        let size = self.length(context, targets)?;
        let span = span.map_or(0..size, |span| span.within(size));
        let start = self.offset.checked_add(span.start);
        let end = self.offset.checked_add(span.end);
        let (Some(start), Some(end)) = (start, end) else {
            return Err(target.too_short(self.offset, size));
        };
        let range = ByteRange::Span(start..end);
        let object = target.store.get_range(context, &target.key, range)?;
        let object = object.ok_or_else(|| target.missing())?;
        self.check_identity(&target, &object)?;
        if object.bytes.len() as u64 != end - start {
            return Err(target.too_short(self.offset, size));
        }
        Ok(Object {
            bytes: object.bytes,
            size,
            version: self.version(object.version),
            modified: object.modified,
        })
    }

    /// Reads like `read`, from a block if there are `blocks`.
    pub(super) fn read_from(
        &self,
        context: &RequestContext,
        blocks: Option<&Blocks>,
        targets: &Targets,
        span: Option<&ByteRange>,
    ) -> Result<Object> {
        if let Some(blocks) = blocks
            && let Some(object) = blocks.read(context, targets, self, span)?
        {
            return Ok(object);
        }
        self.read(context, targets, span)
    }

    /// Returns `Corrupt` if the object is not the one that the reference was made for.
    fn check_identity(&self, target: &Target, object: &Object) -> Result<()> {
        let is_same = match &self.identity {
            PartIdentity::Immutable | PartIdentity::Unknown => true,
            PartIdentity::ETag(etag) => {
                let expected = opaque_tag(etag).map(|tag| Version::of(tag.as_bytes()));
                // Local files, and servers that send no ETag, cannot show a change.
                let has_etag = !target.is_local() && object.version.is_lasting();
                !has_etag || expected.is_none_or(|expected| object.version == expected)
            }
            PartIdentity::NotModifiedAfter(seconds) => {
                let limit = UNIX_EPOCH + Duration::from_secs(u64::from(*seconds) + 1);
                object.modified.is_none_or(|modified| modified < limit)
            }
        };
        if is_same {
            return Ok(());
        }
        let why = format!(
            "{} was changed after the reference to it was made",
            target.name()
        );
        Err(Error::corrupt("", why))
    }
}

impl Location {
    /// Returns the key or URL.
    fn name(&self) -> String {
        match self {
            Location::Repository(key) => key.to_string(),
            Location::Url(url) => url.to_string(),
        }
    }
}

/// Reads a range of an object.
pub(super) struct PartReader {
    pub(super) part: Part,
    /// The blocks to read from; `None` if the part is read alone.
    pub(super) blocks: Option<Arc<Blocks>>,
    pub(super) targets: Arc<Targets>,
    pub(super) key: Key,
    /// The metadata when the key was opened.
    pub(super) meta: Meta,
}

impl Reader for PartReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len as u64).min(self.meta.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let span = ByteRange::Span(offset..end);
        let blocks = self.blocks.as_deref();
        let object = self
            .part
            .read_from(context, blocks, &self.targets, Some(&span));
        let object = object.map_err(|error| error.about(&self.key))?;
        if !object.version.may_be(self.meta.version) {
            let why = "was changed while it was open";
            return Err(Error::new(Kind::Changed, &self.key, why));
        }
        Ok(object.bytes)
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        Ok(self.meta)
    }
}
