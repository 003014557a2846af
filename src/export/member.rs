//! An array of which a file is made: what it is called, and which of its elements the file has.

use std::ops::Range;
use std::sync::Arc;

use crate::array::OpenArray;
use crate::array::ragged::RaggedElements;
use crate::error::{Error, Result};
use crate::export::conversion::Conversion;
use crate::grid::Selection;
use crate::model::Array;
use crate::request_context::RequestContext;

/// An array of a group, or of a group below it.
#[derive(Clone)]
pub struct GroupMember {
    /// Its path from the group: its name where it is in the group itself.
    pub path: String,
    /// Its metadata as the file has them: shape and type of the elements that it has, and its attributes.
    pub array: Arc<Array>,
    /// Where its elements come from; `None` for a file of metadata alone.
    pub source: Option<MemberSource>,
}

/// The elements of a member of a group.
#[derive(Clone)]
pub struct MemberSource {
    /// The array in the store.
    pub array: Arc<OpenArray>,
    /// Which of its elements the file has.
    pub selection: Selection,
    /// What becomes of each element before a format writes it; `None` if that is what it is decoded to.
    pub conversion: Option<Arc<dyn Conversion>>,
}

impl MemberSource {
    /// Returns all elements of an array, as they are decoded.
    pub fn whole(array: Arc<OpenArray>) -> MemberSource {
        MemberSource {
            selection: Selection::whole(&array.array().shape),
            array,
            conversion: None,
        }
    }

    /// Reads elements without a fixed length, all or those of some rows.
    fn records(
        &self,
        context: &RequestContext,
        rows: Option<&Range<u64>>,
    ) -> Result<RaggedElements> {
        let MemberSource {
            array, selection, ..
        } = self;
        array.check_decodable()?;
        let mut region = selection.region().ok_or_else(|| {
            let held = &array.array().data_type;
            let why = format!("steps are for elements of a fixed length, not for {held}");
            Error::unsupported(array.path(), why)
        })?;
        if let (Some(rows), Some(&axis)) = (rows, selection.kept().first()) {
            region.start[axis] += rows.start;
            region.shape[axis] = rows.end - rows.start;
        }
        array.records(context, &region)
    }
}

impl GroupMember {
    /// Returns selected elements of an array by itself, as they are decoded.
    pub fn alone(array: &Arc<OpenArray>, selection: &Selection) -> GroupMember {
        GroupMember {
            path: array.path().to_string(),
            array: Arc::new(array.array().clone()),
            source: Some(MemberSource {
                array: array.clone(),
                selection: selection.clone(),
                conversion: None,
            }),
        }
    }

    /// Returns where the elements come from; `Invalid` for a member of metadata alone.
    pub fn source(&self) -> Result<&MemberSource> {
        let source = self.source.as_ref();
        source.ok_or_else(|| Error::invalid(&self.path, "has no elements to be read"))
    }

    /// Reads all elements, which have no fixed length; fails as `OpenArray::records`.
    pub fn records(&self, context: &RequestContext) -> Result<RaggedElements> {
        self.source()?.records(context, None)
    }

    /// Reads those of some rows: along the first dimension that the selection leaves.
    pub fn records_of(
        &self,
        context: &RequestContext,
        rows: &Range<u64>,
    ) -> Result<RaggedElements> {
        self.source()?.records(context, Some(rows))
    }
}
