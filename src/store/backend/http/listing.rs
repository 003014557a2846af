//! The names in a folder on the web, from WebDAV or an index page; all of them, or an error.

use std::sync::atomic::Ordering;

use futures_util::future::join_all;

use super::endpoint::{RequestSpec, refused};
use super::probe::LONGEST_LIST;
use super::response::{ResponseHead, ResponseOrigin, refusal, version};
use super::urls::Relation;
use super::webdav::Resource;
use super::{HttpStore, ProbeResult, index_page, propfind, webdav};
use crate::error::{Error, Result};
use crate::model::document::IN_NODE_FOLDER;
use crate::store::listing::NameList;
use crate::store::{EntryKind, Key, Meta};

/// A name, what it is and what is known of it.
type ListedName = (Vec<u8>, EntryKind, Option<Meta>);

/// Returns what `head` would say of an object, if WebDAV tells it exactly: the content's version is known by its
/// ETag only, which some servers leave out here although they send it with the object.
pub(super) fn meta_of(one: &Resource) -> Option<Meta> {
    let (size, tag) = (one.size?, one.tag.as_deref()?);
    Some(Meta {
        kind: EntryKind::File,
        size,
        stored: size,
        modified: one.modified?,
        version: version(Some(tag), one.modified, size),
    })
}

impl HttpStore {
    /// Lists a folder by PROPFIND; nothing if it is none.
    pub(super) fn dav_names(&self, prefix: &Key) -> Result<Option<NameList>> {
        let question = propfind(prefix, true, '1');
        let (answer, bytes) = self
            .site
            .wait(prefix, self.site.document(&question, LONGEST_LIST))?;
        match answer.status {
            207 => {}
            404 | 405 | 409 | 410 => return Ok(None),
            _ => return Err(refused(prefix, &answer)),
        }
        let found = webdav::resources(&bytes).map_err(|error| error.about(prefix))?;
        let (mut entries, mut is_folder) = (Vec::new(), false);
        for one in found {
            match self.site.place.relation(prefix, &one.href) {
                Relation::Same => is_folder = one.is_folder && one.status.is_none(),
                Relation::Child(name, _) => entries.extend(entry(prefix, name, &one)?),
                Relation::Elsewhere => {
                    let text = "the server's WebDAV answer is about another folder";
                    return Err(Error::corrupt(prefix, text));
                }
            }
        }
        Ok(is_folder.then(|| ordered(entries)))
    }

    /// Lists a folder by its index page; nothing if it has none.
    pub(super) fn page_names(&self, prefix: &Key) -> Result<Option<NameList>> {
        let listed = self.site.wait(prefix, async {
            let (answer, names) = self.index(prefix).await?;
            let Some(names) = names else {
                return match answer.status {
                    200..=299 | 404 | 405 | 410 => Ok(None),
                    _ => Err(refused(prefix, &answer)),
                };
            };
            let mut entries: Vec<ListedName> = names
                .into_iter()
                .map(|(name, kind)| (name, kind, None))
                .collect();
            let shows_hidden = |(name, ..): &ListedName| name.starts_with(b".");
            if entries.iter().any(shows_hidden) {
                self.shows_hidden.store(true, Ordering::Relaxed);
            } else if !self.shows_hidden.load(Ordering::Relaxed) {
                entries.extend(self.hidden(prefix).await?);
            }
            Ok(Some(entries))
        })?;
        Ok(listed.map(ordered))
    }

    /// Returns the answer for a folder, and the names in it if that is an index page.
    pub(super) async fn index(
        &self,
        folder: &Key,
    ) -> Result<(ResponseHead, Option<index_page::LinkedNames>)> {
        let question = RequestSpec {
            as_folder: true,
            header: Some(("accept", index_page::ACCEPTED.to_string())),
            ..RequestSpec::get(folder)
        };
        let (answer, bytes) = self.site.document(&question, LONGEST_LIST).await?;
        // A server may send from a slash that is too much to the object itself.
        let names = match (answer.status, answer.origin) {
            (200, ResponseOrigin::Folder) => {
                index_page::names(&self.site.place, folder, answer.content_type(), &bytes)
                    .map_err(|error| error.about(folder))?
            }
            _ => None,
        };
        Ok((answer, names))
    }

    /// Returns the documents whose names begin with a dot, which the index pages of nginx and Apache leave out.
    async fn hidden(&self, folder: &Key) -> Result<Vec<ListedName>> {
        let names = IN_NODE_FOLDER.iter().filter(|name| name.starts_with('.'));
        let keys: Result<Vec<Key>> = names.map(|name| folder.child(name.as_bytes())).collect();
        let keys = keys?;
        let answers = join_all(keys.iter().map(|key| self.described(key))).await;
        let mut entries = Vec::new();
        for (key, answer) in keys.iter().zip(answers) {
            if let ProbeResult::Object(meta) = answer? {
                entries.push((key.name().to_vec(), EntryKind::File, Some(meta)));
            }
        }
        Ok(entries)
    }
}

/// Returns the entry of a name; nothing for one that is gone, an error for one that could not be looked at.
fn entry(prefix: &Key, name: Vec<u8>, one: &Resource) -> Result<Option<ListedName>> {
    let Ok(key) = prefix.child(&name) else {
        return Ok(None);
    };
    match one.status {
        None => {}
        Some(404 | 410) => return Ok(None),
        Some(status) => return Err(refusal(&key, status)),
    }
    Ok(Some(match one.is_folder {
        true => (name, EntryKind::Directory, None),
        false => (name, EntryKind::File, meta_of(one)),
    }))
}

/// Puts names in an order that stays, each once; of two equal ones the folder counts.
fn ordered(mut entries: Vec<ListedName>) -> NameList {
    entries.sort_by(|one, other| {
        (&one.0, one.1 == EntryKind::File).cmp(&(&other.0, other.1 == EntryKind::File))
    });
    entries.dedup_by(|later, earlier| later.0 == earlier.0);
    NameList::described(entries)
}
