//! Clients whose credentials are read again when a server refuses them and their files have changed.
//!
//! object_store and the profiles of `~/.aws` read credentials once. Rotating them replaces a file; the request that is
//! refused then is made once more with what the files say now. What is refused although no file has changed is an
//! answer, so that a server that refuses missing keys costs no more than a look at the files.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use http::HeaderValue;
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, ListResult, MultipartId, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, RetryConfig,
};
use parking_lot::RwLock;
use tokio::sync::Mutex;

use super::azure_removal::BlobRemoval;
use super::settings::{ClientSettings, Clients};
use crate::store::RemoteConfig;
use crate::store::backend::remote::fault;
use crate::store::backend::remote::runtime::last_status;

/// Variables that name files of credentials.
const FILE_VARIABLES: [&str; 7] = [
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
];

/// Files of credentials in the home directory; a folder changes with the names in it.
const HOME_FILES: [&str; 4] = [
    ".aws/config",
    ".aws/credentials",
    ".aws/sso/cache",
    ".config/gcloud/application_default_credentials.json",
];

/// Builds the clients of a bucket, whose credentials are read again if need be.
pub(super) fn client(
    settings: &ClientSettings,
    retry: RetryConfig,
) -> crate::error::Result<Clients> {
    if settings.config.anonymous {
        return settings.clients(retry);
    }
    let settings = settings.clone();
    renewing(credential_files(&settings.config), move || {
        settings.clients(retry.clone())
    })
}

/// Builds clients by `build`, and again when they are refused after one of `files` has changed.
pub(super) fn renewing(
    files: Vec<PathBuf>,
    build: impl Fn() -> crate::error::Result<Clients> + Send + Sync + 'static,
) -> crate::error::Result<Clients> {
    let seen = stamps(&files);
    let first = build()?;
    let is_azure = first.azure.is_some();
    let renewing = Renewing(Arc::new(Renewal {
        files,
        build: Arc::new(build),
        current: RwLock::new(Arc::new(first)),
        seen: Mutex::new(seen),
    }));
    let azure = is_azure.then(|| -> Arc<dyn BlobRemoval> { Arc::new(renewing.clone()) });
    Ok(Clients {
        azure,
        ..Clients::of(renewing)
    })
}

/// Returns the files that credentials may be in.
fn credential_files(config: &RemoteConfig) -> Vec<PathBuf> {
    let named = FILE_VARIABLES.iter().filter_map(std::env::var_os);
    let options = config.options.iter().map(|(_, value)| value);
    let options = options.filter(|value| value.starts_with('/'));
    let home = std::env::home_dir();
    let at_home = home.iter().flat_map(|home| {
        let names = HOME_FILES.iter();
        names.map(|name| home.join(name))
    });
    let given = named.map(PathBuf::from).chain(options.map(PathBuf::from));
    given.chain(at_home).collect()
}

/// What tells one content of a file from another: its number, its size, and when it changed.
type FileStamp = Option<(u64, u64, i64, i64)>;

fn stamps(files: &[PathBuf]) -> Vec<FileStamp> {
    let stamp = |file: &PathBuf| {
        let meta = fs::metadata(file).ok()?;
        Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
    };
    files.iter().map(stamp).collect()
}

type Build = dyn Fn() -> crate::error::Result<Clients> + Send + Sync;

/// The clients now, and how to build others.
struct Renewal {
    files: Vec<PathBuf>,
    build: Arc<Build>,
    current: RwLock<Arc<Clients>>,
    /// The files when they were read last.
    seen: Mutex<Vec<FileStamp>>,
}

impl Renewal {
    fn current(&self) -> Arc<Clients> {
        self.current.read().clone()
    }

    /// Returns clients with other credentials than those that were refused, if there are any.
    async fn after(&self, refused: &Arc<Clients>) -> Option<Arc<Clients>> {
        let mut seen = self.seen.lock().await;
        let current = self.current();
        if !Arc::ptr_eq(&current, refused) {
            return Some(current);
        }
        let now = stamps(&self.files);
        if *seen == now {
            return None;
        }
        let build = self.build.clone();
        // Profiles wait for files and servers.
        let built = tokio::task::spawn_blocking(move || build()).await.ok()?;
        *seen = now;
        match built {
            Ok(clients) => {
                log::info!("credentials were refused, and are read again");
                let clients = Arc::new(clients);
                *self.current.write() = clients.clone();
                Some(clients)
            }
            Err(error) => {
                log::warn!("credentials were refused, and cannot be read again: {error}");
                None
            }
        }
    }

    /// Makes a request, and once more if its credentials are refused and there are others.
    async fn ask<T, F: Future<Output = Result<T>>>(
        &self,
        request: impl Fn(Arc<Clients>) -> F,
    ) -> Result<T> {
        let clients = self.current();
        let answer = request(clients.clone()).await;
        match answer {
            Err(error) if fault::is_refusal(&error, last_status()) => {
                match self.after(&clients).await {
                    Some(renewed) => request(renewed).await,
                    None => Err(error),
                }
            }
            answer => answer,
        }
    }
}

/// A client of object_store over the clients that there are now.
#[derive(Clone)]
struct Renewing(Arc<Renewal>);

impl fmt::Debug for Renewing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewing")
    }
}

impl fmt::Display for Renewing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewing")
    }
}

impl Renewing {
    async fn get(&self, location: &Path, options: &GetOptions) -> Result<GetResult> {
        let get = |clients: Arc<Clients>| async move {
            clients.objects.get_opts(location, options.clone()).await
        };
        self.0.ask(get).await
    }
}

#[async_trait::async_trait]
impl BlobRemoval for Renewing {
    async fn delete(&self, path: &Path, etag: Option<HeaderValue>) -> Result<()> {
        let delete = |clients: Arc<Clients>| {
            let etag = etag.clone();
            async move {
                match &clients.azure {
                    Some(azure) => azure.delete(path, etag).await,
                    None => Err(object_store::Error::NotImplemented {
                        operation: "removals".into(),
                        implementer: self.to_string(),
                    }),
                }
            }
        };
        self.0.ask(delete).await
    }
}

#[async_trait::async_trait]
impl ObjectStore for Renewing {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let put = |clients: Arc<Clients>| {
            let (payload, options) = (payload.clone(), options.clone());
            async move { clients.objects.put_opts(location, payload, options).await }
        };
        self.0.ask(put).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let clients = self.0.current();
        clients.objects.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let answer = self.get(location, &options).await;
        match answer {
            // The answer to a HEAD has no body, which would say why.
            Err(error) if options.head && last_status() == Some(400) => {
                let part = GetOptions::new().with_range(Some(GetRange::Bounded(0..1)));
                Err(self.get(location, &part).await.err().unwrap_or(error))
            }
            answer => answer,
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let renewal = self.0.clone();
        let delete = move |location: Path| {
            let renewal = renewal.clone();
            async move {
                let delete = |clients: Arc<Clients>| {
                    let location = &location;
                    async move { clients.objects.delete(location).await }
                };
                renewal.ask(delete).await?;
                Ok(location)
            }
        };
        locations.and_then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.current().objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.current().objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.current().objects.copy_opts(from, to, options).await
    }
}

#[async_trait::async_trait]
impl PaginatedListStore for Renewing {
    async fn list_paginated(
        &self,
        prefix: Option<&str>,
        options: PaginatedListOptions,
    ) -> Result<PaginatedListResult> {
        let list = |clients: Arc<Clients>| {
            let options = options.clone();
            async move { clients.pages.list_paginated(prefix, options).await }
        };
        self.0.ask(list).await
    }
}

#[async_trait::async_trait]
impl MultipartStore for Renewing {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        let create =
            |clients: Arc<Clients>| async move { clients.parts.create_multipart(path).await };
        self.0.ask(create).await
    }

    async fn put_part(
        &self,
        path: &Path,
        id: &MultipartId,
        number: usize,
        payload: PutPayload,
    ) -> Result<PartId> {
        let put = |clients: Arc<Clients>| {
            let payload = payload.clone();
            async move { clients.parts.put_part(path, id, number, payload).await }
        };
        self.0.ask(put).await
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let complete = |clients: Arc<Clients>| {
            let parts = parts.clone();
            async move { clients.parts.complete_multipart(path, id, parts).await }
        };
        self.0.ask(complete).await
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        let abort =
            |clients: Arc<Clients>| async move { clients.parts.abort_multipart(path, id).await };
        self.0.ask(abort).await
    }
}
