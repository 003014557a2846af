//! Recognizes folders of formats that are not Zarr.

use zarr_format::error::Result;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{ByteRange, Key, Store};

/// Bytes of a document that are enough to recognize it.
const HEAD: u64 = 4096;

/// A format that is not Zarr.
#[derive(Debug, PartialEq, Eq)]
pub struct OtherFormat {
    /// Names that its root always has.
    names: &'static [&'static str],
    /// A word that the document of the first name always has; empty if the names are enough.
    word: &'static str,
    /// What it is, with its article.
    pub what: &'static str,
    /// The programs that read it.
    pub readers: &'static str,
}

const FORMATS: [OtherFormat; 6] = [
    OtherFormat {
        names: &["manifest.ocdbt"],
        word: "",
        what: "an OCDBT database",
        readers: "tensorstore",
    },
    OtherFormat {
        names: &["__schema", "__fragments"],
        word: "",
        what: "a TileDB array",
        readers: "tiledb",
    },
    OtherFormat {
        names: &["__group"],
        word: "",
        what: "a TileDB group",
        readers: "tiledb",
    },
    OtherFormat {
        names: &["_delta_log"],
        word: "",
        what: "a Delta table",
        readers: "deltalake",
    },
    OtherFormat {
        names: &["info"],
        word: "\"scales\"",
        what: "a Neuroglancer precomputed volume",
        readers: "cloud-volume or tensorstore",
    },
    OtherFormat {
        names: &["_versions", "data"],
        word: "",
        what: "a Lance table",
        readers: "lance",
    },
];

impl OtherFormat {
    /// Returns the format of a store whose root has no metadata, or `None` if it is not known. Errors of the store count
    /// as missing names, since this only adds to a message.
    pub fn of(context: &RequestContext, store: &dyn Store) -> Option<&'static OtherFormat> {
        let mut formats = FORMATS.iter();
        formats.find(|format| format.is_in(context, store).unwrap_or(false))
    }

    fn is_in(&self, context: &RequestContext, store: &dyn Store) -> Result<bool> {
        for name in self.names {
            if store.head(context, &Key::new(*name)?)?.is_none() {
                return Ok(false);
            }
        }
        if self.word.is_empty() {
            return Ok(true);
        }
        let Some(first) = self.names.first() else {
            return Ok(false);
        };
        let head = store.get_range(context, &Key::new(*first)?, ByteRange::Span(0..HEAD))?;
        let text = head.map(|head| String::from_utf8_lossy(&head.bytes).into_owned());
        Ok(text.is_some_and(|text| text.contains(self.word)))
    }

    /// Returns what it is, and how to get at the data.
    pub fn sentence(&self) -> String {
        let OtherFormat { what, readers, .. } = self;
        format!(
            "this is {what}, not a Zarr store; use {readers} to read the data, or to write a Zarr store"
        )
    }
}
