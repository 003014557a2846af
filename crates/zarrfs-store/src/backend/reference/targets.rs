//! Opens the objects outside a repository to which references lead.
//!
//! Repositories and reference files come from anybody, and a reference may lead to any object: a local file, a server
//! that only this machine reaches. An object is therefore read only below a prefix that the user allows
//! (`--virtual-chunks`). The store of a prefix is opened when its first object is read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use percent_encoding::percent_decode_str;

use crate::backend::default_netrc;
use crate::backend::reference::Location;
use crate::location::{local_folder, normalized, redacted};
use crate::request_context::RequestContext;
use crate::sync::single_flight::{JOIN_TIMEOUT, SingleFlight};
use crate::{Key, Login, RemoteConfig, Store};
use zarr_format::error::{Error, Kind, Result};

/// A URL prefix below which references may lead to objects, and the options for its store.
#[derive(Clone, Default)]
pub struct VirtualPrefix {
    /// The prefix: a URL or local path, without a slash at the end.
    prefix: String,
    /// Names and values of storage options; some values are secret.
    options: Vec<(String, String)>,
    /// Whether requests are sent without credentials.
    anonymous: bool,
    /// URL of the server, unless the cloud's default applies.
    endpoint: Option<String>,
    /// Region of the bucket.
    region: Option<String>,
    login: Login,
}

impl VirtualPrefix {
    /// Parses a prefix and its options, separated by commas: `anon`, `netrc`, `endpoint=URL`, `region=NAME`,
    /// `header=LINE`, `bearer_token_file=FILE` or a storage option `NAME=VALUE`. The error is `Invalid` if the prefix
    /// is empty or an option has no value.
    pub fn parse(text: &str) -> Result<VirtualPrefix> {
        let mut parts = text.split(',');
        let prefix = parts.next().unwrap_or_default().trim_end_matches('/');
        let mut parsed = VirtualPrefix {
            prefix: canonical(prefix)?,
            ..VirtualPrefix::default()
        };
        for part in parts {
            match part.split_once('=') {
                None if part == "anon" => parsed.anonymous = true,
                None if part == "netrc" => parsed.login.set_netrc(&default_netrc()?)?,
                Some(("header", line)) => parsed.login.add_headers(line)?,
                Some(("bearer_token_file", file)) => {
                    let path = std::path::absolute(file).map_err(|error| Error::os(file, error))?;
                    parsed.login.set_bearer_token_file(&path)?;
                }
                Some(("endpoint", url)) => parsed.endpoint = Some(url.to_string()),
                Some(("region", name)) => parsed.region = Some(name.to_string()),
                Some((name, value)) if !name.is_empty() => {
                    parsed.options.push((name.to_string(), value.to_string()));
                }
                _ => {
                    // The malformed option may be a secret, so the error does not repeat it.
                    let why = "expected anon, netrc or NAME=VALUE after each comma";
                    return Err(Error::invalid(redacted(&parsed.prefix), why));
                }
            }
        }
        Ok(parsed)
    }

    /// Returns the prefix: a URL or local path.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the options for the prefix's store: the mount's options, but with the prefix's own credentials. The
    /// mount's credentials must not reach other servers.
    pub(crate) fn config(&self, mount: &RemoteConfig) -> RemoteConfig {
        RemoteConfig {
            options: self.options.clone(),
            anonymous: self.anonymous,
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            login: self.login.clone(),
            may_be_empty: false,
            ..mount.clone()
        }
    }

    /// Returns the key of a URL in the prefix's store, or `None` if the URL is not below the prefix.
    fn key_of(&self, url: &str) -> Option<Result<Key>> {
        let rest = url.strip_prefix(&self.prefix)?.strip_prefix('/')?;
        let is_http = url.starts_with("http://") || url.starts_with("https://");
        let bytes = if is_http {
            percent_decode_str(rest).collect()
        } else {
            rest.as_bytes().to_vec()
        };
        Some(Key::new(bytes))
    }
}

impl std::fmt::Debug for VirtualPrefix {
    /// Prints the prefix without its options, whose values may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("VirtualPrefix").field(&self.prefix).finish()
    }
}

/// Normalizes a URL or path, so that references can be compared with prefixes.
fn canonical(url: &str) -> Result<String> {
    if url.is_empty() {
        return Err(Error::invalid("", "the prefix is empty"));
    }
    if let Some(path) = local_folder(url) {
        let absolute = std::path::absolute(&path).map_err(|error| Error::os(&path, error))?;
        return Ok(absolute.to_string_lossy().trim_end_matches('/').to_string());
    }
    let url = normalized(url);
    Ok(match url.split_once("://") {
        // Some programs write `gcs` for the scheme `gs`, or `s3a` for `s3`.
        Some(("gcs", rest)) => format!("gs://{rest}"),
        Some(("s3a" | "s3n", rest)) => format!("s3://{rest}"),
        _ => url,
    })
}

/// Opens the store of an allowed prefix. The key is that of the first object to be read.
pub(crate) type OpenPrefix =
    Box<dyn Fn(&RequestContext, &VirtualPrefix, &Key) -> Result<Arc<dyn Store>> + Send + Sync>;

/// Opens the stores that contain the objects to which references lead.
pub(crate) struct Targets {
    /// The store of the repository's own objects; `None` for a reference file.
    repository: Option<Arc<dyn Store>>,
    allowed: Vec<VirtualPrefix>,
    open: OpenPrefix,
    opened: Mutex<HashMap<usize, Arc<dyn Store>>>,
    opening: SingleFlight<usize, OpenedStore>,
}

/// A store, wrapped so that several callers can wait for its opening.
#[derive(Clone)]
struct OpenedStore(Arc<dyn Store>);

/// An object to which a reference leads.
pub(super) struct Target {
    pub(super) store: Arc<dyn Store>,
    pub(super) key: Key,
    /// The object's key in the repository, or its URL without secrets.
    name: String,
}

impl Target {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_local(&self) -> bool {
        self.store.info().folder.is_some()
    }

    pub(super) fn missing(&self) -> Error {
        Error::corrupt(
            "",
            format!("the bytes are in {}, which is missing", self.name),
        )
    }

    /// Returns the error for an object that is shorter than a reference states.
    pub(super) fn too_short(&self, offset: u64, length: u64) -> Error {
        let name = &self.name;
        let why = format!("the bytes are {length} at {offset} of {name}, which is shorter");
        Error::corrupt("", why)
    }
}

impl Targets {
    /// Allows references to the objects of `repository` and to those below the prefixes `allowed`. `open` opens the
    /// store of a prefix.
    pub(crate) fn new(
        repository: Option<Arc<dyn Store>>,
        allowed: Vec<VirtualPrefix>,
        open: OpenPrefix,
    ) -> Arc<Targets> {
        Arc::new(Targets {
            repository,
            allowed,
            open,
            opened: Mutex::default(),
            opening: SingleFlight::default(),
        })
    }

    /// Returns the object to which a reference leads. The error is `Denied` if the object is below no allowed prefix.
    pub(super) fn resolve(&self, context: &RequestContext, location: &Location) -> Result<Target> {
        let url = match location {
            Location::Repository(key) => return self.in_repository(key),
            Location::Url(url) => canonical(url)?,
        };
        let name = redacted(&url);
        let below =
            |(number, prefix): (usize, &VirtualPrefix)| Some((number, prefix.key_of(&url)?));
        let Some((number, key)) = self.allowed.iter().enumerate().find_map(below) else {
            let folder = name
                .rsplit_once('/')
                .map_or(name.as_str(), |(folder, _)| folder);
            let whole = match self.repository {
                Some(_) => "repository",
                None => "reference file",
            };
            let why = format!(
                "the bytes are in {name}, outside the {whole}; if you trust it, allow it with --virtual-chunks {folder}"
            );
            return Err(Error::new(Kind::Denied, "", why));
        };
        let key = key.map_err(|error| error.about(&name))?;
        let store = self.store(context, number, &key);
        let store = store.map_err(|error| match error.kind() {
            // The reference exists: to a reader, `NotFound` would be a missing chunk, which has the fill value.
            Kind::NotFound => Error::unavailable(&name, error.detail()),
            _ => error.about(&name),
        })?;
        Ok(Target { store, key, name })
    }

    fn in_repository(&self, key: &Key) -> Result<Target> {
        let store = self.repository.clone();
        let store = store.ok_or_else(|| Error::corrupt(key, "the reference leads to no object"))?;
        Ok(Target {
            store,
            key: key.clone(),
            name: key.to_string(),
        })
    }

    /// Returns the store of an allowed prefix, which is opened by the first call.
    fn store(&self, context: &RequestContext, number: usize, key: &Key) -> Result<Arc<dyn Store>> {
        if let Some(store) = self.opened.lock().get(&number) {
            return Ok(store.clone());
        }
        context.check_may_wait()?;
        let prefix = self.allowed.get(number);
        let prefix =
            prefix.ok_or_else(|| Error::corrupt(key, "the reference leads to no object"))?;
        let deadline = Instant::now() + JOIN_TIMEOUT;
        loop {
            let mut is_own = false;
            let opened = self.opening.run(context, &number, deadline, || {
                is_own = true;
                let opened = self.opened.lock().get(&number).cloned();
                let store = opened.map_or_else(|| (self.open)(context, prefix, key), Ok)?;
                self.opened.lock().insert(number, store.clone());
                Ok(OpenedStore(store))
            });
            match opened {
                Ok(OpenedStore(store)) => return Ok(store),
                // The other caller's object is missing; the object `key` may exist.
                Err(error) if error.kind() == Kind::NotFound && !is_own => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::MemoryStore;
    use crate::request_context::UNLIMITED;

    fn targets(allowed: &[&str]) -> Arc<Targets> {
        let allowed = allowed
            .iter()
            .map(|text| VirtualPrefix::parse(text).unwrap());
        let open: OpenPrefix = Box::new(|_, _, _| Ok(Arc::new(MemoryStore::default())));
        Targets::new(None, allowed.collect(), open)
    }

    fn key(targets: &Targets, url: &str) -> Result<String> {
        let target = targets.resolve(&UNLIMITED, &Location::Url(url.into()))?;
        Ok(target.key.to_string())
    }

    #[test]
    fn only_objects_below_an_allowed_prefix_are_read() {
        let targets = targets(&["s3://bucket/a", "gs://other/", "/data/nc", "https://host/x"]);
        for (url, expected) in [
            ("s3://bucket/a/b/c.nc", "b/c.nc"),
            ("S3://bucket/a/b", "b"),
            ("gcs://other/b", "b"),
            ("file:///data/nc/b%20c", "b c"),
            ("/data/nc/b", "b"),
            ("https://host/x/b%20c", "b c"),
        ] {
            assert_eq!(key(&targets, url).unwrap(), expected, "{url}");
        }
        for url in [
            "s3://bucket/ab/c",
            "s3://bucket/b",
            "s3://other/a/b",
            "/data/ncx/b",
            "/data/nc",
            "file:///etc/passwd",
            "http://host/x/b",
            "https://host.evil/x/b",
        ] {
            assert_eq!(
                key(&targets, url).unwrap_err().kind(),
                Kind::Denied,
                "{url}"
            );
        }
    }

    #[test]
    fn a_url_that_leaves_its_prefix_is_refused() {
        let targets = targets(&["s3://bucket/a", "/data/nc", "https://host/x"]);
        for url in [
            "s3://bucket/a/../b",
            "/data/nc/../../etc/passwd",
            "file:///data/nc/%2e%2e/b",
            "https://host/x/%2e%2e/b",
            "https://host/x//b",
        ] {
            assert!(key(&targets, url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_store_that_cannot_be_found_is_no_missing_key() {
        let open: OpenPrefix = Box::new(|_, _, key| Err(Error::not_found(key)));
        let targets = Targets::new(None, vec![VirtualPrefix::parse("/data").unwrap()], open);
        assert_eq!(
            key(&targets, "/data/a").unwrap_err().kind(),
            Kind::Unavailable
        );
    }

    #[test]
    fn a_missing_object_does_not_fail_the_read_of_another_one() {
        let (opens, begun) = std::sync::mpsc::channel();
        let (ends, end) = std::sync::mpsc::channel::<()>();
        let end = Mutex::new(end);
        let open: OpenPrefix = Box::new(move |_, _, key| {
            if key.to_string() != "lost" {
                return Ok(Arc::new(MemoryStore::default()));
            }
            opens.send(()).unwrap();
            end.lock().recv().unwrap();
            Err(Error::not_found(key))
        });
        let targets = Targets::new(None, vec![VirtualPrefix::parse("/data").unwrap()], open);
        std::thread::scope(|scope| {
            let lost = scope.spawn(|| key(&targets, "/data/lost"));
            begun.recv().unwrap();
            let there = scope.spawn(|| key(&targets, "/data/there"));
            while targets.opening.callers(&0) < 2 {
                std::thread::yield_now();
            }
            ends.send(()).unwrap();
            assert_eq!(lost.join().unwrap().unwrap_err().kind(), Kind::Unavailable);
            assert_eq!(there.join().unwrap().unwrap(), "there");
        });
    }

    #[test]
    fn options_after_a_prefix_are_parsed() {
        let parsed =
            VirtualPrefix::parse("s3://b/p/,anon,region=eu,endpoint=http://h:1,k=v=w").unwrap();
        assert_eq!(parsed.prefix(), "s3://b/p");
        assert!(parsed.anonymous && parsed.region.as_deref() == Some("eu"));
        assert_eq!(parsed.endpoint.as_deref(), Some("http://h:1"));
        assert_eq!(parsed.options, [("k".to_string(), "v=w".to_string())]);
        let mount = RemoteConfig::default();
        let with_login =
            VirtualPrefix::parse("https://h/p,header=Authorization: Bearer x").unwrap();
        assert_eq!(
            with_login.config(&mount).login.first_option(),
            Some("--header")
        );
        assert!(VirtualPrefix::parse("").is_err());
        let error = VirtualPrefix::parse("s3://b,word").unwrap_err().to_string();
        assert!(!error.contains("word"), "{error}");
    }
}
