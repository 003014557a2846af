//! Removes single Azure blobs, with a condition.
//!
//! object_store removes blobs in batches, whose parts have no conditions, and whose errors are not returned.

use std::sync::OnceLock;

use http::header::IF_MATCH;
use http::{HeaderValue, Method};
use object_store::ClientOptions;
use object_store::azure::{AzureAuthorizer, AzureCredentialProvider};
use object_store::client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody};
use object_store::path::Path;
use url::Url;

use crate::backend::remote::connector::Connector;

/// An Azure container, and how requests to it are sent and authorized.
pub(super) struct AzureContainer {
    pub(super) url: Url,
    pub(super) account: String,
    pub(super) credentials: AzureCredentialProvider,
    pub(super) connector: Connector,
    pub(super) settings: ClientOptions,
    /// The client, built for the first request.
    pub(super) http: OnceLock<HttpClient>,
}

impl AzureContainer {
    /// Removes a blob; with `etag`, only if the blob has that ETag. Errors are `Generic`; the status of the last
    /// response says why the request failed.
    pub(super) async fn delete(
        &self,
        path: &Path,
        etag: Option<HeaderValue>,
    ) -> object_store::Result<()> {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = Method::DELETE;
        *request.uri_mut() = self.blob(path)?;
        if let Some(etag) = etag {
            request.headers_mut().insert(IF_MATCH, etag);
        }
        let credential = self.credentials.get_credential().await?;
        AzureAuthorizer::new(&credential, &self.account).try_authorize(&mut request)?;
        let response = self.http()?.execute(request).await.map_err(failed)?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(failed(format!("status {}", status.as_u16()))),
        }
    }

    fn http(&self) -> object_store::Result<&HttpClient> {
        if let Some(http) = self.http.get() {
            return Ok(http);
        }
        let http = self.connector.connect(&self.settings)?;
        Ok(self.http.get_or_init(|| http))
    }

    /// Returns the URL of a blob.
    fn blob(&self, path: &Path) -> object_store::Result<http::Uri> {
        let mut url = self.url.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => segments.extend(path.parts()),
            Err(()) => return Err(failed("the URL is not the URL of a container")),
        };
        url.as_str().parse().map_err(failed)
    }
}

fn failed(
    source: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>,
) -> object_store::Error {
    object_store::Error::Generic {
        store: "MicrosoftAzure",
        source: source.into(),
    }
}
