//! Maps node paths of a v3 draft to the keys of documents and chunks.
//!
//! A draft of Zarr v3 stores documents and chunks in two separate trees (`meta/...`, `data/...`), so a node's path is
//! not a key. An `EntryPoint` converts paths to keys and back; no other module builds these keys. All keys are inside
//! the folder of the entry point (`zarr.json` of the hierarchy). Nothing here does I/O.

use serde_json::{Map, Value};

use crate::dialect::draft::{ChunkLocation, Draft, DraftLayout, check_extensions, check_version};
use crate::dialect::{Document, DocumentMap, Parsed, attributes};
use crate::error::{Error, Kind, Result};
use crate::key::Key;
use crate::model::{Attributes, Group, Node};

/// Whether a metadata document describes an array or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentRole {
    /// A document such as `NAME.array.json`.
    Array,
    /// A document such as `NAME.group.json`.
    Group,
}

impl DocumentRole {
    fn word(self) -> &'static str {
        match self {
            DocumentRole::Array => "array",
            DocumentRole::Group => "group",
        }
    }
}

/// The entry point of a hierarchy of a v3 draft, which states where documents and chunks are.
#[derive(Clone)]
pub struct EntryPoint {
    draft: &'static Draft,
    top: Key,
    layout: DraftLayout,
}

impl EntryPoint {
    /// Reads the entry point of a v3 draft in folder `top`; without `members`, all settings have the defaults of the
    /// draft.
    ///
    /// Fails with `Unsupported` for another version, another encoding, or an extension that must be understood; the
    /// error names the URI of the extension.
    pub fn new(
        draft: &'static Draft,
        top: &Key,
        members: Option<&Map<String, Value>>,
    ) -> Result<EntryPoint> {
        if let Some(members) = members {
            check_version(members)?;
            check_extensions(members)?;
        }
        Ok(EntryPoint {
            draft,
            top: top.clone(),
            layout: (draft.layout)(members)?,
        })
    }

    /// Returns the name of the v3 draft, as in `--dialect`.
    pub fn name(&self) -> &'static str {
        self.draft.name
    }

    /// Returns the keys that may hold the metadata document of a node, in order of precedence.
    pub fn documents(&self, path: &Key) -> Result<Vec<(DocumentRole, Key)>> {
        let rest = self.rest(path)?;
        let mut documents = Vec::new();
        for role in [DocumentRole::Array, DocumentRole::Group] {
            for stem in self.stems(&rest, role) {
                for suffix in &self.layout.suffixes {
                    match self.key(&[&stem, suffix.as_bytes()]) {
                        Ok(key) => documents.push((role, key)),
                        // A key that is too long for every store cannot exist, so it is skipped.
                        Err(error) if error.kind() == Kind::NameTooLong => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(documents)
    }

    /// Returns the keys of the documents of a node, without the suffix.
    fn stems(&self, rest: &Key, role: DocumentRole) -> Vec<Vec<u8>> {
        let word = role.word().as_bytes();
        if rest.is_root() {
            let stem = |before: &&str| [before.as_bytes(), word].concat();
            return self.layout.root.iter().map(stem).collect();
        }
        let meta = self.layout.meta.as_bytes();
        vec![[meta, b"/", rest.as_bytes(), b".", word].concat()]
    }

    /// Returns the folder that holds the metadata documents of a node's children.
    pub fn folder(&self, path: &Key) -> Result<Key> {
        let rest = self.rest(path)?;
        let meta = self.layout.meta.as_bytes();
        if rest.is_root() {
            return self.key(&[meta]);
        }
        self.key(&[meta, b"/", rest.as_bytes()])
    }

    /// Returns the key of consolidated metadata, which only the draft of 2020 has.
    pub fn consolidated(&self) -> Result<Option<Key>> {
        let key = self
            .layout
            .consolidated
            .map(|key| self.key(&[key.as_bytes()]));
        key.transpose()
    }

    /// Returns the name of the child node that a metadata document describes, or `None` if it is not a document, or if
    /// the rest of its name is not valid for a node.
    pub fn child<'a>(&self, document: &'a [u8]) -> Option<&'a [u8]> {
        let strip = |role: DocumentRole| {
            self.layout.suffixes.iter().find_map(|suffix| {
                let end = [b".", role.word().as_bytes(), suffix.as_bytes()].concat();
                document.strip_suffix(end.as_slice())
            })
        };
        let name = strip(DocumentRole::Array).or_else(|| strip(DocumentRole::Group))?;
        Key::root().child(name).is_ok().then_some(name)
    }

    /// Reads an array or group from the members of its metadata document.
    pub fn parse(
        &self,
        path: &Key,
        role: DocumentRole,
        document: &Document,
        members: &Map<String, Value>,
    ) -> Result<Parsed> {
        let Parsed { node, warning } = match role {
            DocumentRole::Array => {
                let base = self.chunks(path)?;
                let location = ChunkLocation {
                    base,
                    index_prefix: self.layout.index_prefix,
                };
                (self.draft.array)(&location, members)?
            }
            DocumentRole::Group => {
                (self.draft.group)(members)?;
                Node::Group(Group::default()).into()
            }
        };
        Ok(Parsed {
            node: node.with_attributes(attributes::from_member(document)),
            warning,
        })
    }

    /// Returns the changed metadata document of a node that gets the user attributes `new`.
    pub fn edit(&self, document: &Document, new: &Attributes) -> Result<DocumentMap> {
        attributes::edit_attributes(document, new)
    }

    /// Returns the folder of the entry point.
    pub fn top(&self) -> &Key {
        &self.top
    }

    /// Returns the folder of an array's chunks; for a group, the folder with the chunks of all nodes below the group.
    pub fn data(&self, path: &Key) -> Result<Key> {
        let mut chunks = self.chunks(path)?;
        chunks.pop();
        Key::new(chunks)
    }

    /// Returns the path of the node whose chunks would be in `folder`, or `None` if there can be no such node.
    pub(in crate::dialect) fn node_of_data(&self, folder: &Key) -> Option<Key> {
        let rest = folder.below(&self.data(&self.top).ok()?)?;
        self.path_of(&rest)
    }

    /// Returns the path of the array that a metadata document describes, or `None` if no array has a document with this
    /// key.
    pub fn array_of(&self, document: &Key) -> Option<Key> {
        let describes = |path: &Key| {
            let mut keys = self.documents(path).unwrap_or_default().into_iter();
            keys.any(|(role, key)| role == DocumentRole::Array && key == *document)
        };
        if describes(&self.top) {
            return Some(self.top.clone());
        }
        let above = document.parent()?;
        let above = self.path_of(&above.below(&self.folder(&self.top).ok()?)?)?;
        let path = above.child(self.child(document.name())?).ok()?;
        describes(&path).then_some(path)
    }

    fn path_of(&self, rest: &Key) -> Option<Key> {
        let mut names = rest.names();
        let path = names.try_fold(self.top.clone(), |above, name| above.child(name));
        path.ok()
    }

    /// Returns the prefix of an array's chunk keys, its last slash included.
    fn chunks(&self, path: &Key) -> Result<Vec<u8>> {
        let rest = self.rest(path)?;
        let data = self.layout.data.as_bytes();
        let folder = if rest.is_root() {
            self.key(&[data])?
        } else {
            self.key(&[data, b"/", rest.as_bytes()])?
        };
        Ok([folder.as_bytes(), b"/"].concat())
    }

    /// Returns a path relative to the folder of the entry point; fails with `Invalid` if it is outside that folder.
    fn rest(&self, path: &Key) -> Result<Key> {
        let outside = || Error::invalid(path, format!("is not below {}", self.top));
        path.below(&self.top).ok_or_else(outside)
    }

    /// Joins `parts` to a key inside the folder of the entry point.
    fn key(&self, parts: &[&[u8]]) -> Result<Key> {
        let within = parts.concat();
        if self.top.is_root() {
            return Key::new(within);
        }
        Key::new([self.top.as_bytes(), b"/", &within].concat())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::draft::{draft_of, entry_2019};

    pub(in crate::dialect) const URI: &str = "https://purl.org/zarr/spec/protocol/core/3.0";

    pub(in crate::dialect) fn entry(top: &str, members: Value) -> Result<EntryPoint> {
        let members = members.as_object().unwrap();
        let draft = draft_of(members)?.expect("an entry point");
        EntryPoint::new(draft, &Key::new(top).unwrap(), Some(members))
    }

    fn keys(entry: &EntryPoint, path: &str) -> Vec<String> {
        let documents = entry.documents(&Key::new(path).unwrap()).unwrap();
        documents
            .iter()
            .map(|(_, key)| String::from_utf8_lossy(key.as_bytes()).into_owned())
            .collect()
    }

    fn chunks(entry: &EntryPoint, path: &str) -> String {
        let base = entry.chunks(&Key::new(path).unwrap()).unwrap();
        String::from_utf8(base).unwrap() + entry.layout.index_prefix
    }

    #[test]
    fn keys_of_the_october_2020_draft_match_its_tables() {
        let members =
            json!({"zarr_format": URI, "metadata_encoding": URI, "metadata_key_suffix": ".json"});
        let entry = entry("", members).unwrap();
        assert_eq!(
            keys(&entry, "foo/bar"),
            [
                "meta/root/foo/bar.array.json",
                "meta/root/foo/bar.group.json"
            ]
        );
        let root = keys(&entry, "");
        assert_eq!(
            (root[0].as_str(), root[2].as_str()),
            ("meta/root.array.json", "meta/root.group.json")
        );
        assert_eq!(chunks(&entry, "foo/baz"), "data/root/foo/baz/c");
        assert_eq!(chunks(&entry, ""), "data/root/c");
        assert_eq!(
            entry.folder(&Key::new("foo").unwrap()).unwrap(),
            Key::new("meta/root/foo").unwrap()
        );
    }

    #[test]
    fn keys_of_the_may_2022_draft_match_its_tables() {
        let encoding = json!({"type": "json", "metadata_key_suffix": ".json"});
        let uri = "https://purl.org/zarr/spec/core/3.0";
        let members = json!({"zarr_format": uri, "metadata_encoding": encoding, "extensions": []});
        let entry = entry("x", members).unwrap();
        assert_eq!(
            keys(&entry, "x/foo/bar"),
            ["x/meta/foo/bar.array.json", "x/meta/foo/bar.group.json"]
        );
        assert_eq!(
            keys(&entry, "x"),
            ["x/meta/array.json", "x/meta/group.json"]
        );
        assert_eq!(chunks(&entry, "x/foo/baz"), "x/data/foo/baz/c");
        assert_eq!(chunks(&entry, "x"), "x/data/c");
    }

    #[test]
    fn keys_of_the_2019_drafts_have_no_root_folder() {
        let entry = entry_2019(&Key::root()).unwrap();
        assert_eq!(
            keys(&entry, "foo/baz"),
            ["meta/foo/baz.array.json", "meta/foo/baz.group.json"]
        );
        assert_eq!(keys(&entry, ""), ["root.array.json", "root.group.json"]);
        assert_eq!(chunks(&entry, "foo/baz"), "data/foo/baz/");
        assert_eq!(chunks(&entry, ""), "data/");
    }

    #[test]
    fn keys_of_the_july_and_september_2020_drafts_differ() {
        let july = entry(
            "",
            json!({"zarr_format": URI, "metadata_encoding": "application/json"}),
        )
        .unwrap();
        assert!(keys(&july, "foo").contains(&"meta/root/foo.array".to_string()));
        assert!(keys(&july, "").contains(&"meta/root.array".to_string()));
        assert_eq!(chunks(&july, "foo"), "data/foo/");
        assert_eq!(chunks(&july, ""), "data/");
        let september = entry("", json!({"zarr_format": URI, "metadata_encoding": URI})).unwrap();
        assert!(keys(&september, "foo").contains(&"meta/root/foo.array".to_string()));
        assert_eq!(chunks(&september, "foo"), "data/root/foo/c");
    }

    #[test]
    fn document_names_give_the_names_of_child_nodes() {
        let entry = entry(
            "",
            json!({"zarr_format": URI, "metadata_encoding": URI, "metadata_key_suffix": ".json"}),
        )
        .unwrap();
        for (document, child) in [
            ("a.array.json", Some("a")),
            ("a.group.json", Some("a")),
            ("a.array.json.array.json", Some("a.array.json")),
            ("g.group.array.json", Some("g.group")),
            (".zmetadata", None),
            (".group.json", None),
            ("..array.json", None),
            ("...group.json", None),
            ("acquire.json", None),
        ] {
            let found = entry.child(document.as_bytes());
            assert_eq!(found, child.map(str::as_bytes), "{document}");
        }
    }

    #[test]
    fn the_node_of_a_document_or_data_key_is_found() {
        let key = |text: &str| Key::new(text).unwrap();
        let encoding = json!({"type": "json", "metadata_key_suffix": ".json"});
        let october =
            json!({"zarr_format": URI, "metadata_encoding": URI, "metadata_key_suffix": ".json"});
        let september = json!({"zarr_format": URI, "metadata_encoding": URI});
        let july = json!({"zarr_format": URI, "metadata_encoding": "application/json"});
        let may_2022 = json!({"zarr_format": URI, "metadata_encoding": encoding});
        for top in ["", "x/meta/data"] {
            let mut entries: Vec<EntryPoint> = [&october, &september, &july, &may_2022]
                .into_iter()
                .map(|members| entry(top, members.clone()).unwrap())
                .collect();
            entries.push(entry_2019(&key(top)).unwrap());
            for entry in entries {
                for path in [entry.top.clone(), entry.path_of(&key("a/meta")).unwrap()] {
                    for (role, document) in entry.documents(&path).unwrap() {
                        let found = entry.array_of(&document);
                        let is_array = role == DocumentRole::Array;
                        assert_eq!(found, is_array.then(|| path.clone()), "{document}");
                    }
                    let data = entry.data(&path).unwrap();
                    assert_eq!(entry.node_of_data(&data), Some(path));
                }
                assert_eq!(entry.array_of(&key("a.array.json")), None);
                assert_eq!(entry.node_of_data(&key("a")), None);
            }
        }
    }

    #[test]
    fn paths_outside_and_too_long_names_have_no_documents() {
        let entry = entry_2019(&Key::new("a").unwrap()).unwrap();
        assert!(entry.documents(&Key::new("ab").unwrap()).is_err());
        let long = Key::new([b"a/", vec![b'x'; 250].as_slice()].concat()).unwrap();
        assert_eq!(entry.documents(&long).unwrap(), []);
    }
}
