//! Facts on the entries of the files view, as extended attributes: those of the node or the chunk that an entry shows.

use crate::error::Result;
use crate::inspect::entry_facts;
use crate::request_context::RequestContext;
use crate::view::fact_of;
use crate::view::files::FilesView;
use crate::view::files::array_files::{ArrayPart, DecodedTarget};
use crate::view::files::path_target::PathTarget;

impl FilesView {
    /// Returns the value of an extended attribute; nothing if there is none of that name.
    pub(super) fn fact(
        &self,
        context: &RequestContext,
        target: &PathTarget,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let Some(name) = fact_of(name) else {
            return Ok(None);
        };
        let fact = match target {
            PathTarget::Node(found) | PathTarget::Chunks(found) => {
                entry_facts::of_node(found, name)
            }
            PathTarget::Document(..) | PathTarget::AsFound(..) | PathTarget::ErrorText(_) => {
                (name == "kind").then(|| "document".to_string())
            }
            PathTarget::Decoded(DecodedTarget {
                part: ArrayPart::Chunk(indices),
                array,
                ..
            }) => entry_facts::of_chunk(context, array, &**self.hierarchy.store(), indices, name)?,
            PathTarget::Decoded(target) => entry_facts::of_node(&target.found, name),
            PathTarget::GroupFile(target) => entry_facts::of_node(&target.found, name),
        };
        Ok(fact.map(String::into_bytes))
    }
}
