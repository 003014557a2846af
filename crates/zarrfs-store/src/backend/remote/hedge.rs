//! Hedges GET and HEAD: sends a second request if the first one stalls.
//!
//! A connection may be lost without a sign: after a suspend or a change of the IP address, all connections are. A
//! request on a lost connection would stall for the whole time limit, before its response or in the middle of its body.
//! So the second request uses a new connection. If the second request makes progress and the first one does not, the
//! pooled connections are dropped.
//!
//! Only GET and HEAD are hedged, since they change nothing, and the first response is used. The first request goes on
//! meanwhile, so that a slow server still has the whole time limit. No third request is sent here.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::stream::{BoxStream, Stream, StreamExt, unfold};
use http::Method;
use http_body_util::StreamBody;
use hyper::body::Frame;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use parking_lot::Mutex;

use super::headers::opaque_tag;
use super::runtime::record_bytes;
use crate::backend::opaque_debug;

/// An HTTP client that sends a second request if the first one stalls.
pub(super) struct HedgingClient(Arc<Connections>);

struct Connections {
    /// Makes HTTP clients that pool their connections.
    below: Arc<dyn HttpConnector>,
    options: ClientOptions,
    /// The client for first requests, which pools its connections.
    pooled: Mutex<Arc<HttpClient>>,
    /// The client for second requests, which opens a new connection for each.
    unpooled: HttpClient,
    /// How long to wait for a response, or for the next piece of its body, before the second request is sent.
    delay: Duration,
}

opaque_debug!(HedgingClient);

impl HedgingClient {
    /// Creates a client that hedges with the clients that `below` makes; `time` is the time limit of a response.
    pub(super) fn over(
        below: Arc<dyn HttpConnector>,
        options: &ClientOptions,
        time: Duration,
    ) -> object_store::Result<HedgingClient> {
        let unpooled = options
            .clone()
            .with_config(ClientConfigKey::PoolMaxIdlePerHost, "0");
        Ok(HedgingClient(Arc::new(Connections {
            pooled: Mutex::new(Arc::new(below.connect(options)?)),
            unpooled: below.connect(&unpooled)?,
            below,
            options: options.clone(),
            // A fifth of the time limit, at most 5 s, leaves most of the limit for the second request.
            delay: (time / 5).min(Duration::from_secs(5)),
        })))
    }
}

impl Connections {
    /// Replaces the client `lost` to drop its pooled connections, unless another request has replaced it already.
    fn replace_pooled(&self, lost: &Arc<HttpClient>) {
        if !Arc::ptr_eq(&self.pooled.lock(), lost) {
            return;
        }
        // Making a client reads certificates, which takes too long to do under the lock.
        match self.below.connect(&self.options) {
            Ok(new) => {
                let mut pooled = self.pooled.lock();
                if Arc::ptr_eq(&pooled, lost) {
                    *pooled = Arc::new(new);
                }
            }
            Err(error) => log::warn!("cannot replace connections that may be lost: {error}"),
        }
    }

    /// Requests an object again and skips the `received` bytes. Returns the rest of the body once it starts to arrive,
    /// if the object is the same as before. The whole object is requested, since a signature may cover the range
    /// header.
    async fn resume(
        &self,
        again: HttpRequest,
        head: BodyIdentity,
        received: u64,
    ) -> Option<BoxStream<'static, Result<Bytes, HttpError>>> {
        let response = self.unpooled.execute(again).await.ok()?;
        if BodyIdentity::of(&response)? != head {
            return None;
        }
        let mut pieces = response.into_body().bytes_stream();
        let mut skipped = 0;
        loop {
            let mut piece = pieces.next().await?.ok()?;
            let known = (received - skipped).min(piece.len() as u64);
            skipped += known;
            let known = usize::try_from(known).ok()?;
            if known < piece.len() {
                let begin = futures_util::stream::iter([Ok(piece.split_off(known))]);
                return Some(begin.chain(pieces).boxed());
            }
            record_bytes(known);
        }
    }
}

#[async_trait::async_trait]
impl HttpService for HedgingClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let connections = &self.0;
        let pooled = connections.pooled.lock().clone();
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return pooled.execute(request).await;
        }
        let again = request.clone();
        let mut first = pin!(pooled.execute(request));
        if let Ok(response) = tokio::time::timeout(connections.delay, first.as_mut()).await {
            let connections = connections.clone();
            return response
                .map(|response| with_hedged_body(response, again, connections, pooled.clone()));
        }
        let second = pin!(connections.unpooled.execute(again));
        let response = match select(first, second).await {
            Either::Left((Ok(response), _)) => return Ok(response),
            Either::Left((Err(_), second)) => second.await?,
            Either::Right((Ok(response), _)) => response,
            Either::Right((Err(_), first)) => return first.await,
        };
        connections.replace_pooled(&pooled);
        Ok(response)
    }
}

/// Wraps a response so that its body continues with a second request if it stalls.
fn with_hedged_body(
    response: HttpResponse,
    again: HttpRequest,
    connections: Arc<Connections>,
    pooled: Arc<HttpClient>,
) -> HttpResponse {
    let head = match BodyIdentity::of(&response) {
        Some(head) if again.method() == Method::GET => head,
        _ => return response,
    };
    response.map(|body| {
        let body = HedgedBody {
            pieces: body.bytes_stream(),
            received: 0,
            second: Some((again, head)),
            connections,
            pooled,
        };
        let pieces = unfold(body, async |mut body| {
            let piece = body.next().await?;
            Some((piece.map(Frame::data), body))
        });
        HttpResponseBody::new(StreamBody::new(Shared(Mutex::new(pieces.boxed()))))
    })
}

/// Status and headers that show whether two responses have the same body.
#[derive(PartialEq)]
struct BodyIdentity(u16, [Option<String>; 4]);

impl BodyIdentity {
    /// Returns `None` if the response lacks the headers that identify its body.
    fn of(response: &HttpResponse) -> Option<BodyIdentity> {
        let text = |name: &str| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.to_string())
        };
        let status = response.status().as_u16();
        let tag = text("etag").filter(|tag| opaque_tag(tag).is_some());
        let modified = text("last-modified");
        let length = text("content-length");
        let is_known = (tag.is_some() || modified.is_some()) && length.is_some();
        let properties = [tag, modified, length, text("content-range")];
        (is_known && [200, 206].contains(&status)).then_some(BodyIdentity(status, properties))
    }
}

/// A response body that continues with a second request if it stalls.
struct HedgedBody {
    pieces: BoxStream<'static, Result<Bytes, HttpError>>,
    received: u64,
    /// The request to repeat, and the identity that its response's body must have; `None` once it was repeated.
    second: Option<(HttpRequest, BodyIdentity)>,
    connections: Arc<Connections>,
    pooled: Arc<HttpClient>,
}

impl HedgedBody {
    async fn next(&mut self) -> Option<Result<Bytes, HttpError>> {
        let delay = self.connections.delay;
        let piece = match tokio::time::timeout(delay, self.pieces.next()).await {
            Ok(piece) => piece,
            Err(_) => self.next_after_stall().await,
        };
        if let Some(Ok(piece)) = &piece {
            self.received += piece.len() as u64;
        }
        piece
    }

    /// Waits for the next bytes of the body, from the first or the second request.
    async fn next_after_stall(&mut self) -> Option<Result<Bytes, HttpError>> {
        let Some((again, head)) = self.second.take() else {
            return self.pieces.next().await;
        };
        let connections = self.connections.clone();
        let rest = pin!(connections.resume(again, head, self.received));
        let rest = match select(self.pieces.next(), rest).await {
            Either::Left((Some(Err(error)), rest)) => rest.await.ok_or(error),
            Either::Left((piece, _)) => return piece,
            Either::Right((Some(rest), _)) => Ok(rest),
            Either::Right((None, first)) => return first.await,
        };
        match rest {
            Ok(rest) => {
                self.connections.replace_pooled(&self.pooled);
                self.pieces = rest;
                self.pieces.next().await
            }
            Err(error) => Some(Err(error)),
        }
    }
}

/// Makes a stream `Sync`, which object_store requires of bodies. Only one thread uses the stream at a time.
struct Shared<S>(Mutex<S>);

impl<S: Stream + Unpin> Stream for Shared<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.0.get_mut().poll_next_unpin(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::stream;

    use super::*;
    use crate::backend::remote::runtime::wait;
    use crate::request_context::UNLIMITED;

    const BODY: &[u8] = b"0123456789";

    /// What the connections of a test client deliver.
    #[derive(Clone, Copy, Debug)]
    enum Bring {
        All,
        /// The first bytes of the body, this many, and then nothing more.
        Begin(usize),
        Nothing,
    }

    /// Makes test clients as `plan` says, repeating its last entry. The second client pools no connections.
    #[derive(Clone, Debug)]
    struct Planned {
        plan: &'static [(Bring, &'static str)],
        made: Arc<AtomicUsize>,
    }

    #[derive(Debug)]
    struct PlannedClient(Bring, &'static str);

    impl HttpConnector for Planned {
        fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            let (bring, tag) = self.plan[number.min(self.plan.len() - 1)];
            Ok(HttpClient::new(PlannedClient(bring, tag)))
        }
    }

    #[async_trait::async_trait]
    impl HttpService for PlannedClient {
        async fn call(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
            let sent = match self.0 {
                Bring::All => BODY,
                Bring::Begin(count) => &BODY[..count],
                Bring::Nothing => std::future::pending().await,
            };
            let pieces = sent.chunks(4).map(|piece| Ok(Frame::data(piece.into())));
            let pieces = stream::iter(pieces.collect::<Vec<_>>());
            let body: BoxStream<'static, _> = match self.0 {
                Bring::Begin(_) => pieces.chain(stream::pending()).boxed(),
                _ => pieces.boxed(),
            };
            let response = http::Response::builder()
                .header("etag", self.1)
                .header("content-length", BODY.len());
            let body = HttpResponseBody::new(StreamBody::new(Shared(Mutex::new(body))));
            Ok(response.body(body).unwrap())
        }
    }

    /// Reads a body `tries` times with test clients. Returns each body that arrives, and how many clients were made.
    fn read(plan: &'static [(Bring, &'static str)], tries: usize) -> (Vec<Option<Bytes>>, usize) {
        let planned = Planned {
            plan,
            made: Arc::default(),
        };
        let options = ClientOptions::new();
        let time = Duration::from_millis(500);
        let below = Arc::new(planned.clone());
        let client = HedgingClient::over(below, &options, time).unwrap();
        let bodies = (0..tries).map(|_| {
            let request = http::Request::get("http://server.invalid/");
            let request = request.body(object_store::client::HttpRequestBody::empty());
            let body = async {
                let response = client.call(request.unwrap()).await.unwrap();
                response.into_body().bytes().await.unwrap()
            };
            wait(&UNLIMITED, time, body).unwrap().0
        });
        (bodies.collect(), planned.made.load(Ordering::Relaxed))
    }

    #[test]
    fn a_body_continues_over_a_new_connection() {
        let whole = || Some(Bytes::from_static(BODY));
        let plans: [&[_]; 4] = [
            &[(Bring::Nothing, "a"), (Bring::All, "a")],
            &[(Bring::Begin(0), "a"), (Bring::All, "a")],
            &[(Bring::Begin(4), "a"), (Bring::All, "a")],
            &[(Bring::Begin(7), "a"), (Bring::All, "a")],
        ];
        for plan in plans {
            // Two clients are made at first. The third one replaces the client whose pooled connections are dropped.
            assert_eq!(
                read(plan, 3),
                (vec![whole(), whole(), whole()], 3),
                "{plan:?}"
            );
        }
    }

    #[test]
    fn a_body_continues_only_with_the_same_etag() {
        let plan = &[(Bring::Begin(4), "a"), (Bring::All, "b")];
        assert_eq!(read(plan, 1), (vec![None], 2));
        let plan = &[(Bring::Begin(4), "\"\""), (Bring::All, "\"\"")];
        assert_eq!(read(plan, 1), (vec![None], 2));
    }
}
