//! The project itself: what its sources import, and what its documents and manual pages say.

mod comments;
mod documents;
mod formats;
mod layers;
mod man;
mod man_texts;
mod sources;
mod walks;
