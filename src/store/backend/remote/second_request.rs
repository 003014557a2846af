//! The HTTP client that makes a second request where the first stays without a response: a connection may be lost
//! without a sign, and its request would take the whole time limit.
//!
//! Only GET and HEAD are made twice, since they change nothing; whichever response comes first is taken. The first request
//! goes on meanwhile, so that a slow server has as long as it had. No request is made a third time here.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::future::select_ok;
use http::Method;
use object_store::client::{HttpClient, HttpError, HttpRequest, HttpResponse, HttpService};

/// The longest time without a response before a second request.
const MAX_PATIENCE: Duration = Duration::from_secs(5);

/// A client over another, of which a response may take four times its patience or more.
#[derive(Debug)]
pub(super) struct SecondRequestClient {
    below: HttpClient,
    patience: Duration,
}

impl SecondRequestClient {
    /// Builds a client over another; `time` is the time limit of a response.
    pub(super) fn over(below: HttpClient, time: Duration) -> SecondRequestClient {
        SecondRequestClient {
            below,
            patience: (time / 4).min(MAX_PATIENCE),
        }
    }
}

#[async_trait::async_trait]
impl HttpService for SecondRequestClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return self.below.execute(request).await;
        }
        let again = request.clone();
        let mut first = pin!(self.below.execute(request));
        if let Ok(response) = tokio::time::timeout(self.patience, first.as_mut()).await {
            return response;
        }
        let second = pin!(self.below.execute(again));
        let both: [Pin<&mut (dyn Future<Output = _> + Send)>; 2] = [first, second];
        select_ok(both).await.map(|(response, _)| response)
    }
}
