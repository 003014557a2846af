//! Counts the HTTP requests of all stores and records their responses.
//!
//! Each request on the network is counted, including retries and hedges (second requests for stalled ones). Status and
//! region of the response are recorded for the waiting caller.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
};

use super::hedge::HedgingClient;
use super::http_client::NetworkConnector;
use super::login::origin_login::OriginLogin;
use super::retry::is_transient_status;
use super::runtime::{LastResponse, record_arrival, record_response};
use crate::backend::opaque_debug;
use crate::stats::Stats;

tokio::task_local! {
    static REMOVAL_HEADER: (HeaderName, HeaderValue);
}

/// Adds a condition header to the DELETE requests that `removal` sends, because object_store cannot express conditions
/// of removals. The signature of a request does not cover the header.
pub(crate) async fn with_removal_header<T>(
    header: (HeaderName, HeaderValue),
    removal: impl Future<Output = T>,
) -> T {
    REMOVAL_HEADER.scope(header, removal).await
}

/// Makes HTTP clients that count their requests.
#[derive(Clone)]
pub(crate) struct Connector {
    stats: Arc<Stats>,
    below: Arc<dyn HttpConnector>,
    /// Time limit of a response. It also determines when a stalled request is sent again.
    time: Duration,
}

impl Connector {
    /// Creates a connector to the network, with `time` as the time limit of a response.
    pub(crate) fn new(stats: Arc<Stats>, time: Duration) -> Connector {
        Connector {
            stats,
            below: Arc::new(NetworkConnector::default()),
            time,
        }
    }

    /// Returns a connector whose clients add the credentials to each request.
    pub(crate) fn with_login(self, login: Arc<OriginLogin>) -> Connector {
        let login = Some(login);
        Connector {
            below: Arc::new(NetworkConnector { login }),
            ..self
        }
    }

    #[cfg(test)]
    pub(crate) fn over(
        below: Arc<dyn HttpConnector>,
        stats: Arc<Stats>,
        time: Duration,
    ) -> Connector {
        Connector { stats, below, time }
    }
}

opaque_debug!(Connector);

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let counting = Arc::new(CountingConnector {
            stats: self.stats.clone(),
            below: self.below.clone(),
        });
        let client = HedgingClient::over(counting, options, self.time)?;
        Ok(HttpClient::new(client))
    }
}

/// Makes HTTP clients that count their requests and never send a second one for a stalled request.
struct CountingConnector {
    stats: Arc<Stats>,
    below: Arc<dyn HttpConnector>,
}

opaque_debug!(CountingConnector);

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(CountingClient {
            stats: self.stats.clone(),
            below: self.below.connect(options)?,
        }))
    }
}

struct CountingClient {
    stats: Arc<Stats>,
    below: HttpClient,
}

opaque_debug!(CountingClient);

#[async_trait::async_trait]
impl HttpService for CountingClient {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.stats.http_requests.add(1);
        if request.method() == Method::DELETE
            && let Ok((name, value)) = REMOVAL_HEADER.try_with(Clone::clone)
        {
            request.headers_mut().insert(name, value);
        }
        let host = request.uri().host().map(str::to_string);
        let response = self.below.execute(request).await;
        // A response that will be retried is no progress, so it does not extend the request's time limit.
        let is_answer = |response: &HttpResponse| !is_transient_status(response.status().as_u16());
        if response.as_ref().is_ok_and(is_answer) {
            record_arrival();
        }
        record_response(match &response {
            Ok(response) => LastResponse {
                status: Some(response.status().as_u16()),
                region: response
                    .headers()
                    .get("x-amz-bucket-region")
                    .and_then(|value| value.to_str().ok())
                    .map(str::to_string),
                host: None,
            },
            Err(_) => LastResponse {
                host,
                ..LastResponse::default()
            },
        });
        response
    }
}
