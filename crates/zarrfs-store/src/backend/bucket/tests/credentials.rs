//! Tests credentials that are replaced while a bucket is open.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AwsCredential};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientOptions, StaticCredentialProvider};

use super::{Fault, FaultyObjects, FaultyServer};
use crate::backend::bucket::address::{Address, CloudKind};
use crate::backend::bucket::credentials::RefreshingCredentials;
use crate::backend::bucket::settings::CloudHandles;
use crate::backend::bucket::{BucketStore, settings};
use crate::backend::remote::connector::Connector;
use crate::request_context::UNLIMITED;
use crate::stats::Stats;
use crate::{Key, RemoteConfig, Store};
use zarr_format::error::{Kind, Result};

/// A test server that accepts one access key, and refuses others with an HTTP status and an error code.
#[derive(Clone, Debug)]
struct Guarded {
    inner: FaultyServer,
    key_id: &'static str,
    refusal: (u16, &'static str),
}

impl HttpConnector for Guarded {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl HttpService for Guarded {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let signature = request.headers().get("authorization");
        let signature = signature.and_then(|value| value.to_str().ok());
        let taken = format!("Credential={}/", self.key_id);
        if signature.is_some_and(|value| value.contains(&taken)) {
            return self.inner.call(request).await;
        }
        let (status, code) = self.refusal;
        let text = match request.method().as_str() {
            "HEAD" => String::new(),
            _ => format!("<Error><Code>{code}</Code></Error>"),
        };
        let response = http::Response::builder()
            .status(status)
            .header("x-amz-bucket-region", "us-east-1");
        Ok(response.body(HttpResponseBody::from(text)).unwrap())
    }
}

/// Opens a bucket on the test server. The access key is the content of `file`.
fn open(file: &std::path::Path, server: &Guarded) -> BucketStore {
    let address = Address::parse("s3", CloudKind::S3, "//bucket", "bucket").unwrap();
    let timeout = Duration::from_secs(5);
    let stats = Arc::new(Stats::default());
    let connector = Connector::over(Arc::new(server.clone()), stats, timeout);
    let path = file.to_path_buf();
    let credentials = RefreshingCredentials::new(vec![path.clone()], move || {
        let credential = AwsCredential {
            key_id: fs::read_to_string(&path).unwrap(),
            secret_key: "x".to_string(),
            token: None,
        };
        Ok(Arc::new(StaticCredentialProvider::new(credential)))
    });
    let client = AmazonS3Builder::new()
        .with_bucket_name("bucket")
        .with_region("us-east-1")
        .with_endpoint("http://server.invalid")
        .with_allow_http(true)
        .with_credentials(Arc::new(credentials.unwrap()))
        .with_retry(settings::retries(0, timeout))
        .with_http_connector(connector.clone());
    let anonymous = RemoteConfig {
        anonymous: true,
        endpoint: Some("http://server.invalid".to_string()),
        region: Some("us-east-1".to_string()),
        timeout,
        ..RemoteConfig::default()
    };
    let mut store = BucketStore::build(&address, &anonymous, &connector, 0, timeout).unwrap();
    let guarded = CloudHandles::of(client.build().unwrap());
    Arc::get_mut(&mut store.client).unwrap().cloud = guarded;
    store
}

fn server(refusal: (u16, &'static str)) -> Guarded {
    let mut state = FaultyObjects::default();
    state.keep("a", b"bytes".to_vec());
    Guarded {
        inner: FaultyServer::new(state, |_, _| Fault::None),
        key_id: "new",
        refusal,
    }
}

/// Replaces a file by a rename, as programs that rotate keys do.
fn replace(file: &std::path::Path, content: &str) {
    let next = file.with_extension("next");
    fs::write(&next, content).unwrap();
    fs::rename(next, file).unwrap();
}

/// Sends one request to the bucket: a read, a lookup or a listing, by the number `question`.
fn send_request(store: &BucketStore, question: usize) -> Result<()> {
    let key = Key::new("a").unwrap();
    match question {
        0 => store.get(&UNLIMITED, &key, 100).map(|_| ()),
        1 => store.version(&UNLIMITED, &key).map(|_| ()),
        _ => store.list(&UNLIMITED, &Key::root()).map(|_| ()),
    }
}

fn send_requests(store: &BucketStore) -> [Result<()>; 3] {
    [0, 1, 2].map(|question| send_request(store, question))
}

const REFUSALS: [(u16, &str); 4] = [
    (400, "ExpiredToken"),
    (400, "InvalidToken"),
    (401, "Unauthorized"),
    (403, "InvalidAccessKeyId"),
];

#[test]
fn rotated_credentials_are_read_again() {
    for refusal in REFUSALS {
        for question in 0..3 {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), "old").unwrap();
            let store = open(file.path(), &server(refusal));
            assert!(
                send_requests(&store).iter().all(Result::is_err),
                "{refusal:?}"
            );
            replace(file.path(), "new+");
            assert!(
                send_requests(&store).iter().all(Result::is_err),
                "still refused"
            );
            replace(file.path(), "new");
            // Each kind of request must use the new key, even if it is the first request after the rotation.
            send_request(&store, question).unwrap();
            assert!(send_requests(&store).iter().all(Result::is_ok));
        }
    }
}

#[test]
fn refused_credentials_are_denied_and_the_code_is_named() {
    for refusal in REFUSALS {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "old").unwrap();
        let store = open(file.path(), &server(refusal));
        for (question, answer) in send_requests(&store).into_iter().enumerate() {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), Kind::Denied, "{error}");
            let (status, code) = refusal;
            // The response to a HEAD request has no body, so the error cannot name the error code.
            if status == 400 || question != 1 {
                assert!(error.detail().contains(code), "{error}");
            }
            assert!(error.detail().contains(&status.to_string()), "{error}");
            assert!(!error.detail().contains("--region"), "{error}");
        }
    }
}
