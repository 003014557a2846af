//! Tests buckets whose servers fail, are emptied, refuse conditions or rotate their keys.
//!
//! The tests use a bucket in memory behind a simulated network. Faults depend only on the number of the request, so
//! that every run is the same.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream;
use http::Response;
use http::request::Parts;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};

use crate::RemoteConfig;
use crate::backend::bucket::BucketStore;
use crate::backend::bucket::address::{Address, CloudKind};
use crate::backend::remote::connector::Connector;
use crate::stats::Stats;

mod credentials;
mod reads;
mod writes;

/// How a request to the test server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Status(u16),
    Refused,
    /// The connection breaks off in the middle of the response body.
    Cut,
    /// The response body ends in the middle without an error.
    Short,
    /// The server never responds.
    Silence,
    /// The server carries out the request, but the connection breaks off before the response.
    Lost,
    /// The server carries out the request, but responds with this error status.
    Denied(u16),
    /// The server carries out the request, another program replaces the object, and the connection breaks off.
    Overtaken,
}

/// Decides how a request fails, from its number and its HTTP method.
type FaultPlan = Arc<dyn Fn(usize, &str) -> Fault + Send + Sync>;

/// An in-memory object server whose requests fail as a fault plan says.
#[derive(Clone)]
struct FaultyServer {
    state: Arc<Mutex<FaultyObjects>>,
    plan: FaultPlan,
    requests_served: Arc<AtomicUsize>,
}

impl FaultyServer {
    /// Creates a server for `objects` whose requests fail as `plan` says.
    fn new(
        objects: FaultyObjects,
        plan: impl Fn(usize, &str) -> Fault + Send + Sync + 'static,
    ) -> FaultyServer {
        FaultyServer {
            state: Arc::new(Mutex::new(objects)),
            plan: Arc::new(plan),
            requests_served: Arc::default(),
        }
    }
}

impl std::fmt::Debug for FaultyServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

impl HttpConnector for FaultyServer {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

fn failed(kind: HttpErrorKind) -> HttpError {
    HttpError::new(kind, std::io::Error::other("injected"))
}

#[async_trait::async_trait]
impl HttpService for FaultyServer {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let number = self.requests_served.fetch_add(1, Ordering::SeqCst);
        let fault = (self.plan)(number, request.method().as_str());
        match fault {
            Fault::Refused => return Err(failed(HttpErrorKind::Connect)),
            Fault::Silence => std::future::pending().await,
            Fault::Status(status) => return Ok(slow_down(status)),
            _ => {}
        }
        let (head, sent) = request.into_parts();
        let sent = sent.collect().await?.to_bytes();
        let mut state = self.state.lock();
        state.requests.push((head.method.clone(), condition(&head)));
        let response = state.response(&head, &sent, fault);
        match fault {
            Fault::Lost => Err(failed(HttpErrorKind::Interrupted)),
            Fault::Overtaken => {
                let name = name_of(&head).to_string();
                state.keep(&name, b"somebody else's".to_vec());
                Err(failed(HttpErrorKind::Interrupted))
            }
            Fault::Denied(status) => Ok(slow_down(status)),
            _ => Ok(response),
        }
    }
}

fn slow_down(status: u16) -> HttpResponse {
    let text = "<Error><Code>SlowDown</Code></Error>".to_string();
    let response = Response::builder().status(status);
    response.body(HttpResponseBody::from(text)).unwrap()
}

fn bare(status: u16) -> HttpResponse {
    let response = Response::builder().status(status);
    response
        .body(HttpResponseBody::from(String::new()))
        .unwrap()
}

fn name_of(head: &Parts) -> &str {
    head.uri.path().trim_start_matches("/bucket/")
}

/// Returns the header of a conditional removal: its name and value.
fn condition(head: &Parts) -> Option<(&'static str, String)> {
    let names = ["if-match", "x-goog-if-generation-match"];
    let mut found = names
        .iter()
        .filter_map(|&name| Some((name, header(head, name)?.to_string())));
    found.next()
}

fn header<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    Some(head.headers.get(name)?.to_str().unwrap())
}

/// How the test server handles conditional removals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Removals {
    #[default]
    Enforce,
    Ignore,
    /// Responds to conditional requests with this error status.
    Refuse(u16),
}

/// The test server's objects with their version numbers, and its multipart uploads.
#[derive(Default)]
struct FaultyObjects {
    objects: BTreeMap<String, (Vec<u8>, u64)>,
    uploads: BTreeMap<String, BTreeMap<usize, Vec<u8>>>,
    /// Whether the server ignores the conditions of puts.
    is_careless: bool,
    removals: Removals,
    changes: u64,
    /// The requests that the server has carried out.
    requests: Vec<RecordedRequest>,
}

/// A request's method, and the name and value of its condition header.
type RecordedRequest = (http::Method, Option<(&'static str, String)>);

impl FaultyObjects {
    fn keep(&mut self, name: &str, bytes: Vec<u8>) {
        self.changes += 1;
        self.objects.insert(name.to_string(), (bytes, self.changes));
    }

    fn response(&mut self, head: &Parts, sent: &[u8], fault: Fault) -> HttpResponse {
        let query = head.uri.query().unwrap_or_default();
        match head.method.as_str() {
            "GET" if query.contains("list-type=2") => {
                body(Response::builder(), self.names().into_bytes(), fault)
            }
            "GET" | "HEAD" => self.object(head, fault),
            _ if query.contains("upload") => self.upload(head, sent),
            "PUT" if self.holds(head) => self.put_response(name_of(head), sent.to_vec()),
            "PUT" => bare(412),
            _ => match (self.removals, condition(head)) {
                (Removals::Refuse(status), Some(_)) => bare(status),
                (Removals::Enforce, Some(_)) if !self.holds(head) => bare(412),
                _ => {
                    self.objects.remove(name_of(head));
                    bare(204)
                }
            },
        }
    }

    /// Whether the condition of a put or removal holds.
    fn holds(&self, head: &Parts) -> bool {
        let number = self.objects.get(name_of(head)).map(|(_, number)| *number);
        let tag = number.map(|number| format!("\"{number}\""));
        let generation = number.unwrap_or_default().to_string();
        self.is_careless
            || header(head, "if-none-match").is_none_or(|_| tag.is_none())
                && header(head, "if-match").is_none_or(|wanted| tag.as_deref() == Some(wanted))
                && header(head, "x-goog-if-generation-match")
                    .is_none_or(|wanted| wanted == generation)
    }

    fn put_response(&mut self, name: &str, bytes: Vec<u8>) -> HttpResponse {
        self.keep(name, bytes);
        let number = self.changes;
        let response = Response::builder()
            .header("etag", format!("\"{number}\""))
            .header("x-goog-generation", number);
        let xml = format!(
            "<CompleteMultipartUploadResult><ETag>&quot;{number}&quot;</ETag></CompleteMultipartUploadResult>"
        );
        response.body(HttpResponseBody::from(xml)).unwrap()
    }

    /// Responds to a request of a multipart upload. Uploads are stored by the name of the object.
    fn upload(&mut self, head: &Parts, sent: &[u8]) -> HttpResponse {
        let (name, query) = (name_of(head).to_string(), head.uri.query().unwrap());
        let part = query
            .split('&')
            .find_map(|part| part.strip_prefix("partNumber="));
        match (head.method.as_str(), part) {
            ("PUT", Some(number)) => {
                let Some(parts) = self.uploads.get_mut(&name) else {
                    return bare(404);
                };
                parts.insert(number.parse().unwrap(), sent.to_vec());
                let response = Response::builder().header("etag", format!("\"part {number}\""));
                response
                    .body(HttpResponseBody::from(String::new()))
                    .unwrap()
            }
            ("POST", _) if query.contains("uploadId") => match self.uploads.remove(&name) {
                Some(parts) => self.put_response(&name, parts.into_values().flatten().collect()),
                None => bare(404),
            },
            ("POST", _) => {
                self.uploads.insert(name, BTreeMap::new());
                let xml = "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>";
                let xml = HttpResponseBody::from(xml.to_string());
                Response::builder().body(xml).unwrap()
            }
            _ => {
                self.uploads.remove(&name);
                bare(204)
            }
        }
    }

    /// Returns a listing of the whole bucket.
    fn names(&self) -> String {
        let mut xml = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_string();
        for (name, (bytes, number)) in self.objects.iter() {
            let size = bytes.len();
            write!(
                xml,
                "<Contents><Key>{name}</Key><Size>{size}</Size>\
                 <LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"{number}\"</ETag></Contents>"
            )
            .unwrap();
        }
        xml + "</ListBucketResult>"
    }

    fn object(&self, head: &Parts, fault: Fault) -> HttpResponse {
        let Some((bytes, number)) = self.objects.get(name_of(head)) else {
            return bare(404);
        };
        let response = Response::builder()
            .header("etag", format!("\"{number}\""))
            .header("x-goog-generation", *number)
            .header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT");
        if head.method == "HEAD" {
            let response = response.header("content-length", bytes.len());
            return response
                .body(HttpResponseBody::from(String::new()))
                .unwrap();
        }
        let range = header(head, "range");
        let Some((start, end)) =
            range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'))
        else {
            return body(response, bytes.clone(), fault);
        };
        let end = end
            .parse()
            .map_or(bytes.len(), |end: usize| (end + 1).min(bytes.len()));
        let start: usize = start.parse().unwrap_or(bytes.len() - end);
        let said = format!("bytes {start}-{}/{}", end - 1, bytes.len());
        let response = response.status(206).header("content-range", said);
        body(response, bytes[start..end].to_vec(), fault)
    }
}

/// Returns a response with a body. `Cut` and `Short` faults end the body in the middle.
fn body(response: http::response::Builder, bytes: Vec<u8>, fault: Fault) -> HttpResponse {
    let response = response.header("content-length", bytes.len());
    let half = bytes[..bytes.len() / 2].to_vec();
    let body = match fault {
        Fault::Cut => {
            let pieces = [
                Ok(Frame::data(half.into())),
                Err(failed(HttpErrorKind::Interrupted)),
            ];
            HttpResponseBody::new(StreamBody::new(stream::iter(pieces)))
        }
        Fault::Short => HttpResponseBody::from(half),
        _ => HttpResponseBody::from(bytes),
    };
    response.body(body).unwrap()
}

/// Opens a bucket on the test server.
fn open(kind: CloudKind, server: &FaultyServer, timeout: Duration) -> (BucketStore, Arc<Stats>) {
    let is_azure = kind == CloudKind::Azure;
    let account = [("account_name", "account"), ("account_key", "c2VjcmV0")];
    let account = account.map(|(name, value)| (name.to_string(), value.to_string()));
    let config = RemoteConfig {
        anonymous: !is_azure,
        options: account.into_iter().filter(|_| is_azure).collect(),
        endpoint: Some("http://server.invalid".to_string()),
        timeout,
        ..RemoteConfig::default()
    };
    let address = Address::parse("s3", kind, "//bucket", "bucket").unwrap();
    let stats = Arc::new(Stats::default());
    let connector = Connector::over(Arc::new(server.clone()), stats.clone(), timeout);
    let remote = BucketStore::build(&address, &config, &connector, 10, timeout).unwrap();
    (remote, stats)
}
