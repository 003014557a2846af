//! Extended attributes of the files view: facts about nodes and chunks.

use crate::view::fact_of;
use crate::view::files::FilesView;
use crate::view::files::array_files::{ArrayPart, DecodedTarget};
use crate::view::files::path_target::PathTarget;
use zarr_format::error::Result;
use zarrfs_export::inspect::entry_facts;
use zarrfs_store::request_context::RequestContext;

/// The fact that lists the parts of an array that a file omits.
const LEFT_OUT: &str = "left_out";

/// Joins sentences into lines; `None` for an empty slice.
fn lines(sentences: &[impl AsRef<str>]) -> Option<String> {
    let lines = sentences
        .iter()
        .map(|sentence| format!("{}\n", sentence.as_ref()));
    (!sentences.is_empty()).then(|| lines.collect())
}

impl FilesView {
    /// Returns the value of an extended attribute, or `None` if the entry does not have it.
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
            PathTarget::Decoded(target) if name == LEFT_OUT => {
                target.parts().ok().and_then(|parts| lines(&parts.left_out))
            }
            PathTarget::GroupFile(target) if name == LEFT_OUT => {
                let sentences: Vec<_> = target.file.left_out().collect();
                lines(&sentences)
            }
            PathTarget::Decoded(target) => entry_facts::of_node(&target.found, name),
            PathTarget::GroupFile(target) => entry_facts::of_node(&target.found, name),
        };
        Ok(fact.map(String::into_bytes))
    }
}
