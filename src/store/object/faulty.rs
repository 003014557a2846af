//! A bucket in memory behind a network that fails: what comes out is right, or an error in time.
//!
//! The server is a function of the request; faults come by the number of the request, so that a run is the same
//! each time.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use futures_util::stream;
use http::Response;
use http::StatusCode;
use http_body_util::StreamBody;
use hyper::body::Frame;
use object_store::ClientOptions;
use object_store::client::HttpClient;
use object_store::client::HttpConnector;
use object_store::client::HttpError;
use object_store::client::HttpErrorKind;
use object_store::client::HttpRequest;
use object_store::client::HttpResponse;
use object_store::client::HttpResponseBody;
use object_store::client::HttpService;

use super::Remote;
use super::address;
use super::connector::Connector;
use crate::error::Kind;
use crate::stats::Stats;
use crate::store::ByteRange;
use crate::store::Key;
use crate::store::RemoteConfig;
use crate::store::Store;

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Status(u16),
    Refused,
    /// The body breaks off after half of it.
    Cut,
    /// The body ends after half of it, as if that were all.
    Short,
    /// No answer, ever.
    Silence,
}

/// A server of objects that fails by plan.
#[derive(Clone)]
struct Server {
    objects: Arc<BTreeMap<String, Vec<u8>>>,
    plan: fn(usize) -> Fault,
    asked: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

impl HttpConnector for Server {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

fn failed(kind: HttpErrorKind) -> HttpError {
    HttpError::new(kind, std::io::Error::other("injected"))
}

#[async_trait::async_trait]
impl HttpService for Server {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let fault = (self.plan)(self.asked.fetch_add(1, Ordering::SeqCst));
        match fault {
            Fault::Refused => return Err(failed(HttpErrorKind::Connect)),
            Fault::Silence => std::future::pending().await,
            Fault::Status(status) => {
                let text = "<Error><Code>SlowDown</Code></Error>".to_string();
                let answer = Response::builder().status(status);
                return Ok(answer.body(HttpResponseBody::from(text)).unwrap());
            }
            Fault::None | Fault::Cut | Fault::Short => {}
        }
        let query = request.uri().query().unwrap_or_default();
        Ok(match query.contains("list-type=2") {
            true => body(Response::builder(), self.names().into_bytes(), fault),
            false => self.object(&request, fault),
        })
    }
}

impl Server {
    /// Answers a listing of the whole bucket.
    fn names(&self) -> String {
        let mut xml = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_string();
        for (name, bytes) in self.objects.iter() {
            let size = bytes.len();
            write!(
                xml,
                "<Contents><Key>{name}</Key><Size>{size}</Size>\
                 <LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"{name}\"</ETag></Contents>"
            )
            .unwrap();
        }
        xml + "</ListBucketResult>"
    }

    fn object(&self, request: &HttpRequest, fault: Fault) -> HttpResponse {
        let name = request.uri().path().trim_start_matches("/bucket/");
        let Some(bytes) = self.objects.get(name) else {
            let answer = Response::builder().status(StatusCode::NOT_FOUND);
            return answer.body(HttpResponseBody::from(String::new())).unwrap();
        };
        let answer = Response::builder()
            .header("etag", format!("\"{name}\""))
            .header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT");
        if request.method() == "HEAD" {
            let answer = answer.header("content-length", bytes.len());
            return answer.body(HttpResponseBody::from(String::new())).unwrap();
        }
        let range = request
            .headers()
            .get("range")
            .map(|range| range.to_str().unwrap());
        let Some((start, end)) =
            range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'))
        else {
            return body(answer, bytes.clone(), fault);
        };
        let end = end
            .parse()
            .map_or(bytes.len(), |end: usize| (end + 1).min(bytes.len()));
        let start: usize = start.parse().unwrap_or(bytes.len() - end);
        let said = format!("bytes {start}-{}/{}", end - 1, bytes.len());
        let answer = answer.status(206).header("content-range", said);
        body(answer, bytes[start..end].to_vec(), fault)
    }
}

/// Makes an answer whose body is as good as the fault lets it be.
fn body(answer: http::response::Builder, bytes: Vec<u8>, fault: Fault) -> HttpResponse {
    let answer = answer.header("content-length", bytes.len());
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
    answer.body(body).unwrap()
}

fn content(number: usize) -> Vec<u8> {
    (0..5000 + number * 700)
        .map(|place| (place * 7 + number) as u8)
        .collect()
}

const COUNT: usize = 40;

/// Opens a bucket whose requests fail by plan.
fn bucket(plan: fn(usize) -> Fault, timeout: Duration) -> (Remote, Arc<Stats>) {
    let objects = (0..COUNT).map(|number| (format!("o{number:02}"), content(number)));
    let server = Server {
        objects: Arc::new(objects.collect()),
        plan,
        asked: Arc::default(),
    };
    let config = RemoteConfig {
        anonymous: true,
        endpoint: Some("http://server.invalid".to_string()),
        timeout,
        ..RemoteConfig::default()
    };
    let address = address::read(address::Kind::S3, "//bucket", "s3://bucket").unwrap();
    let stats = Arc::new(Stats::default());
    let connector = Connector::over(Arc::new(server), stats.clone());
    let remote = Remote::build(&address, &config, &connector, (10, timeout)).unwrap();
    (remote, stats)
}

fn key(number: usize) -> Key {
    Key::new(format!("o{number:02}")).unwrap()
}

#[test]
fn every_byte_is_right_though_a_third_of_the_requests_fail() {
    let plan = |number: usize| match number % 9 {
        1 => Fault::Status(503),
        4 => Fault::Refused,
        7 => Fault::Cut,
        _ => Fault::None,
    };
    let (store, stats) = bucket(plan, Duration::from_secs(60));
    for number in 0..COUNT {
        let (key, whole) = (key(number), content(number));
        let object = store.get(&key, 1 << 20).unwrap().unwrap();
        assert!(object.bytes == whole, "{key}");
        let part = store
            .get_range(&key, ByteRange::Span(100..900))
            .unwrap()
            .unwrap();
        assert_eq!(
            (part.bytes.as_slice(), part.size),
            (&whole[100..900], whole.len() as u64)
        );
        let reader = store.open(&key).unwrap();
        assert_eq!(reader.read_at(4000, 100_000).unwrap(), whole[4000..]);
    }
    let mut listing = store.list(&Key::root()).unwrap();
    let mut names = 0;
    while listing.next().unwrap().is_some() {
        names += 1;
    }
    assert_eq!(names, COUNT);
    assert!(
        stats.http_requests.get() > 4 * COUNT as u64,
        "failed requests count too"
    );
}

#[test]
fn too_many_requests_are_repeated() {
    let plan = |number: usize| match number {
        0..3 => Fault::Status(429),
        _ => Fault::None,
    };
    let (store, stats) = bucket(plan, Duration::from_secs(60));
    assert_eq!(
        store.head(&key(3)).unwrap().unwrap().size,
        content(3).len() as u64
    );
    assert!(stats.http_requests.get() >= 4);
}

#[test]
fn a_body_that_ends_early_is_an_error() {
    let (store, _) = bucket(|_| Fault::Short, Duration::from_secs(2));
    let error = store.get(&key(5), 1 << 20).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(store.open(&key(5)).unwrap().read_at(0, 5000).is_err());
}

#[test]
fn a_listing_that_breaks_off_is_an_error() {
    for fault in [|_| Fault::Cut, |_| Fault::Short] {
        let (store, _) = bucket(fault, Duration::from_secs(2));
        assert!(store.list(&Key::root()).is_err());
    }
}

#[test]
fn silence_is_an_error_in_time() {
    let (store, _) = bucket(|_| Fault::Silence, Duration::from_millis(300));
    let start = Instant::now();
    for error in [
        store.get(&key(1), 1 << 20).unwrap_err(),
        store.version(&key(1)).unwrap_err(),
        store.list(&Key::root()).err().unwrap(),
    ] {
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    }
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn refused_access_is_told() {
    let (store, _) = bucket(|_| Fault::Status(403), Duration::from_secs(2));
    assert_eq!(
        store.get(&key(1), 1 << 20).unwrap_err().kind(),
        Kind::Denied
    );
    assert_eq!(store.list(&Key::root()).err().unwrap().kind(), Kind::Denied);
}
