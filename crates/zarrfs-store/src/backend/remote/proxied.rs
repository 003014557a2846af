//! Wraps the HTTP client so that its errors name a proxy that cannot be reached.
//!
//! reqwest says why a connection failed, but not to which host. The requests that go through a proxy are found here by
//! the same rules as in curl.

use std::fmt;
use std::io;

use hyper_util::client::proxy::matcher::Matcher;
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};

use super::fault;

/// A client and its proxies.
pub(super) struct ProxiedClient {
    below: HttpClient,
    proxies: Matcher,
}

impl ProxiedClient {
    /// Wraps a client whose proxy is `url`, except for the hosts in `excludes`. Without `url`, the proxies of the
    /// environment are used.
    pub(super) fn new(
        below: HttpClient,
        url: Option<&str>,
        excludes: Option<&str>,
    ) -> ProxiedClient {
        let proxies = match url {
            Some(url) => {
                let proxies = Matcher::builder().all(url.to_string());
                let hosts = excludes.unwrap_or_default().to_string();
                proxies.no(hosts).build()
            }
            None => Matcher::from_system(),
        };
        ProxiedClient { below, proxies }
    }
}

impl fmt::Debug for ProxiedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxiedClient")
    }
}

#[async_trait::async_trait]
impl HttpService for ProxiedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let proxy = self.proxies.intercept(request.uri());
        let answer = self.below.execute(request).await;
        answer.map_err(|error| match proxy {
            Some(proxy) if is_of_connection(&error) => {
                let uri = proxy.uri();
                // A password may stand before the host.
                let port = uri.port().map(|port| format!(":{port}"));
                let address = [uri.host().unwrap_or_default(), &port.unwrap_or_default()].concat();
                let text = fault::with_proxy(&address, &fault::innermost(&error));
                HttpError::new(error.kind(), io::Error::other(text))
            }
            _ => error,
        })
    }
}

/// Whether there was no connection. A TLS error through the proxy means that there was one.
fn is_of_connection(error: &HttpError) -> bool {
    let is_of_connection = matches!(
        error.kind(),
        HttpErrorKind::Connect | HttpErrorKind::Timeout
    );
    is_of_connection && !fault::is_of_tls(error)
}
