//! The HTTP client of all stores: counts requests and records responses.
//!
//! Each request on the network is counted, including retries and hedges. The client can also add a header to
//! removals. Status and region of the response are recorded for the waiting caller (`runtime`).

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

/// Adds a header to the DELETE requests that `removal` sends, for conditions that object_store cannot express. The
/// signature of a request does not cover the header.
pub(crate) async fn with_removal_header<T>(
    header: (HeaderName, HeaderValue),
    removal: impl Future<Output = T>,
) -> T {
    REMOVAL_HEADER.scope(header, removal).await
}

/// Makes clients that count requests.
#[derive(Clone)]
pub(crate) struct Connector {
    stats: Arc<Stats>,
    below: Arc<dyn HttpConnector>,
    /// Time limit of a response.
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

    /// Returns the connector with credentials that are added to each request.
    pub(crate) fn with_login(self, login: Arc<OriginLogin>) -> Connector {
        let login = Some(login);
        Connector {
            below: Arc::new(NetworkConnector { login }),
            ..self
        }
    }

    /// Wraps another connector.
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

/// Makes clients that count requests but do not hedge.
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
        // A response that is going to be retried does not count as an arrival.
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
