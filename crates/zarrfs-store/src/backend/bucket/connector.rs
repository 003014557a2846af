//! Makes the HTTP client of buckets, which repairs listings and waits for busy servers.
//!
//! If a server sends another status than 404 for a missing object (`--missing-is`), the client turns it into 404.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Method, StatusCode, Uri};
use object_store::ClientOptions;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};

use super::credentials::execute_with_imdsv1;
use super::listing_page;
use crate::HiddenEntries;
use crate::backend::opaque_debug;
use crate::backend::remote::connector::Connector;
use crate::backend::remote::headers::retry_after;
use crate::backend::remote::runtime::record_arrival;

/// The region in request signatures if the user gives no region.
pub(super) const DEFAULT_REGION: &str = "us-east-1";

/// Signs listing requests that zarrfs has rewritten.
#[derive(Debug)]
pub(super) struct ListingSigner {
    credentials: AwsCredentialProvider,
    region: String,
}

impl ListingSigner {
    pub(super) fn new(credentials: AwsCredentialProvider, region: Option<String>) -> ListingSigner {
        let region = region.unwrap_or_else(|| DEFAULT_REGION.to_string());
        ListingSigner {
            credentials,
            region,
        }
    }

    /// Replaces the signature of a request.
    pub(super) async fn sign(&self, request: &mut HttpRequest) -> Result<(), HttpError> {
        let failed = |error| HttpError::new(HttpErrorKind::Unknown, error);
        let credential = self.credentials.get_credential().await.map_err(failed)?;
        request.headers_mut().remove(AUTHORIZATION);
        let authorizer = AwsAuthorizer::new(&credential, "s3", &self.region);
        authorizer.try_authorize(request, None).map_err(failed)
    }
}

/// Makes HTTP clients that repair listings.
#[derive(Clone)]
pub(super) struct BucketConnector {
    pub(super) below: Connector,
    /// Records the names that listings leave out because they are not valid paths.
    pub(super) not_shown: Arc<HiddenEntries>,
    /// Signs requests that were rewritten to version 1 of S3's listings; empty if requests are not signed.
    pub(super) signer: Arc<OnceLock<ListingSigner>>,
    /// The status, in addition to 404, that means that an object is missing.
    pub(super) missing_is: Option<u16>,
    /// The maximum pause that a busy server may ask for.
    pub(super) patience: Duration,
}

opaque_debug!(BucketConnector);

impl HttpConnector for BucketConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(BucketHttpClient {
            below: self.below.connect(options)?,
            connector: self.clone(),
        }))
    }
}

struct BucketHttpClient {
    below: HttpClient,
    connector: BucketConnector,
}

impl BucketHttpClient {
    /// If a busy server asks for a pause (`Retry-After`), waits that long, so that object_store then retries. If the
    /// server asks for more than `patience`, returns an error that object_store does not retry.
    async fn wait_if_busy(&self, response: &HttpResponse) -> Result<(), HttpError> {
        let Some(pause) = retry_after(response.status(), response.headers()) else {
            return Ok(());
        };
        if pause >= self.connector.patience {
            let text = format!(
                "the server is busy and asks to retry after {} s",
                pause.as_secs()
            );
            return Err(HttpError::new(
                HttpErrorKind::Unknown,
                std::io::Error::other(text),
            ));
        }
        record_arrival();
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

opaque_debug!(BucketHttpClient);

#[async_trait::async_trait]
impl HttpService for BucketHttpClient {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_listing = is_listing(request.uri());
        if let Some(version_1) = listing_page::version_1_uri(request.uri()) {
            *request.uri_mut() = version_1;
            if let Some(signer) = self.connector.signer.get() {
                signer.sign(&mut request).await?;
            }
        }
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        let mut response = execute_with_imdsv1(&self.below, request).await?;
        self.wait_if_busy(&response).await?;
        if is_read && !is_listing && Some(response.status().as_u16()) == self.connector.missing_is {
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        if !is_listing || !response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let page = body.bytes().await?;
        let record = |name: &str| self.connector.not_shown.record(name);
        let body = match str::from_utf8(&page) {
            Ok(page) => {
                let page = listing_page::with_next_token(page);
                let page = listing_page::without_invalid_names(&page, record);
                HttpResponseBody::from(page.into_owned())
            }
            Err(_) => HttpResponseBody::from(page),
        };
        Ok(HttpResponse::from_parts(head, body))
    }
}

/// Whether a request asks for a listing.
fn is_listing(uri: &Uri) -> bool {
    let mut parts = uri.query().unwrap_or_default().split('&');
    parts.any(|part| part == "list-type=2" || part == "comp=list")
}
