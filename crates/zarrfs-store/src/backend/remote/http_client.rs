//! Builds HTTP clients with object_store's settings, but with other rules for redirects.
//!
//! object_store's own client follows every redirect, and has no setting to prevent that. So the client is built here,
//! from the settings that `--storage-option` accepts and the defaults of object_store. `redirect` follows redirects.

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Certificate, ClientBuilder, NoProxy, Proxy};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::login::origin_login::OriginLogin;
use super::redirect::RedirectingClient;
use super::{errors, tls};
use crate::RemoteConfig;
use crate::backend::opaque_debug;
use crate::edit_distance::nearest;
use zarr_format::error::Error;

/// Makes HTTP clients that use the network.
#[derive(Debug, Default)]
pub(super) struct NetworkConnector {
    /// The user's credentials for a web server, added to each request.
    pub(super) login: Option<Arc<OriginLogin>>,
}

impl HttpConnector for NetworkConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // Selects ring as the TLS provider of the whole process, since no client can be built without a provider. The
        // call fails only if an earlier call has already selected ring.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let settings = ClientSettings(options);
        let client = settings.builder().and_then(|builder| {
            let client = builder.build();
            client.map_err(|error| refused(&error))
        });
        let client = ProxiedClient::new(HttpClient::new(client?), &settings);
        let client = RedirectingClient::new(HttpClient::new(client), self.login.clone());
        Ok(HttpClient::new(client))
    }
}

/// Reads the HTTP settings of object_store, which are stored as text.
struct ClientSettings<'a>(&'a ClientOptions);

impl ClientSettings<'_> {
    fn builder(&self) -> object_store::Result<ClientBuilder> {
        let mut builder = ClientBuilder::new()
            .redirect(Policy::none())
            .https_only(!self.flag(ClientConfigKey::AllowHttp)?)
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate();
        if let Some(agent) = self.text(ClientConfigKey::UserAgent) {
            builder = builder.user_agent(agent);
        }
        if self.flag(ClientConfigKey::Http1Only)? {
            builder = builder.http1_only();
        }
        if self.flag(ClientConfigKey::RandomizeAddresses)? {
            builder = builder.dns_resolver(Arc::new(SpreadResolver::default()));
        }
        self.with_trust(self.with_limits(builder)?)
    }

    fn with_limits(&self, mut builder: ClientBuilder) -> object_store::Result<ClientBuilder> {
        if let Some(time) = self.time(ClientConfigKey::Timeout)? {
            builder = builder.timeout(time);
        }
        if let Some(time) = self.time(ClientConfigKey::ConnectTimeout)? {
            builder = builder.connect_timeout(time);
        }
        if let Some(time) = self.time(ClientConfigKey::ReadTimeout)? {
            builder = builder.read_timeout(time);
        }
        if let Some(time) = self.time(ClientConfigKey::PoolIdleTimeout)? {
            builder = builder.pool_idle_timeout(time);
        }
        if let Some(most) = self.parsed(ClientConfigKey::PoolMaxIdlePerHost)? {
            builder = builder.pool_max_idle_per_host(most);
        }
        Ok(builder)
    }

    /// Configures the trusted certificates and the proxy of a client.
    fn with_trust(&self, mut builder: ClientBuilder) -> object_store::Result<ClientBuilder> {
        let proxy = self.text(ClientConfigKey::ProxyUrl);
        let others = match &proxy {
            Some(_) => self.certificates_of_proxy()?,
            None => Vec::new(),
        };
        if self.flag(ClientConfigKey::AllowInvalidCertificates)? {
            builder = builder.danger_accept_invalid_certs(true);
        } else if self.flag(ClientConfigKey::NoSystemCertificates)? {
            let others = others.iter().map(|other| Certificate::from_der(other));
            let others: Result<Vec<_>, _> = others.collect();
            builder = builder.tls_certs_only(others.map_err(|error| refused(&error))?);
        } else {
            let http1_only = self.flag(ClientConfigKey::Http1Only)?;
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = tls::client_config(provider, others, http1_only);
            builder = builder.tls_backend_preconfigured(config.map_err(|error| refused(&error))?);
        }
        let Some(url) = proxy else {
            return Ok(builder);
        };
        let mut proxy = Proxy::all(url).map_err(|error| refused(&error))?;
        if let Some(hosts) = self.text(ClientConfigKey::ProxyExcludes) {
            proxy = proxy.no_proxy(NoProxy::from_string(&hosts));
        }
        Ok(builder.proxy(proxy))
    }

    /// Returns the certificates that are trusted for the proxy only.
    fn certificates_of_proxy(&self) -> object_store::Result<Vec<CertificateDer<'static>>> {
        let text = self
            .text(ClientConfigKey::ProxyCaCertificate)
            .unwrap_or_default();
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        match read {
            Ok(read) if read.is_empty() && !text.is_empty() => Err(refused(&"not a certificate")),
            read => read.map_err(|error| refused(&error)),
        }
    }

    fn text(&self, key: ClientConfigKey) -> Option<String> {
        self.0.get_config_value(&key)
    }

    fn parsed<T: FromStr>(&self, key: ClientConfigKey) -> object_store::Result<Option<T>>
    where
        T::Err: Display,
    {
        let parsed = self.text(key).map(|text| text.parse());
        parsed.transpose().map_err(|error| refused(&error))
    }

    fn time(&self, key: ClientConfigKey) -> object_store::Result<Option<Duration>> {
        let parsed = self.text(key).map(|text| humantime::parse_duration(&text));
        parsed.transpose().map_err(|error| refused(&error))
    }

    fn flag(&self, key: ClientConfigKey) -> object_store::Result<bool> {
        let text = self.text(key).unwrap_or_default().to_ascii_lowercase();
        match text.as_str() {
            "1" | "true" | "on" | "yes" | "y" => Ok(true),
            "" | "0" | "false" | "off" | "no" | "n" => Ok(false),
            _ => Err(refused(&"expected true or false")),
        }
    }
}

/// Returns the error for unusable HTTP settings. Its text has no values, since they may be secret.
fn refused(error: &dyn Display) -> object_store::Error {
    object_store::Error::Generic {
        store: "HTTP client",
        source: error.to_string().into(),
    }
}

/// Resolves host names, and rotates the addresses of a host so that all its servers are used equally.
#[derive(Default)]
struct SpreadResolver {
    lookups: AtomicUsize,
}

impl Resolve for SpreadResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let number = self.lookups.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let find = move || (name.as_str(), 0).to_socket_addrs();
            let mut addresses: Vec<SocketAddr> =
                tokio::task::spawn_blocking(find).await??.collect();
            let first = number.checked_rem(addresses.len()).unwrap_or_default();
            addresses.rotate_left(first);
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// An HTTP client whose errors name the proxy that cannot be reached.
///
/// reqwest says why a connection failed, but not to which host. Whether a request goes through a proxy is decided here
/// by the same rules as in curl.
struct ProxiedClient {
    below: HttpClient,
    proxies: Matcher,
}

impl ProxiedClient {
    /// Wraps a client that has `settings`. If they name no proxy, the proxy in the environment is used.
    fn new(below: HttpClient, settings: &ClientSettings<'_>) -> ProxiedClient {
        let proxies = match settings.text(ClientConfigKey::ProxyUrl) {
            Some(url) => {
                let hosts = settings.text(ClientConfigKey::ProxyExcludes);
                let proxies = Matcher::builder().all(url);
                proxies.no(hosts.unwrap_or_default()).build()
            }
            None => Matcher::from_system(),
        };
        ProxiedClient { below, proxies }
    }
}

opaque_debug!(ProxiedClient);

#[async_trait::async_trait]
impl HttpService for ProxiedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let proxy = self.proxies.intercept(request.uri());
        let answer = self.below.execute(request).await;
        answer.map_err(|error| match proxy {
            Some(proxy) if is_of_connection(&error) => {
                let uri = proxy.uri();
                // The error names only the proxy's host and port, since its URL may contain a password.
                let port = uri.port().map(|port| format!(":{port}"));
                let address = [uri.host().unwrap_or_default(), &port.unwrap_or_default()].concat();
                let text = errors::with_proxy(&address, &errors::innermost(&error));
                HttpError::new(error.kind(), io::Error::other(text))
            }
            _ => error,
        })
    }
}

/// Whether a request failed because the proxy could not be reached. A TLS error comes through the proxy, so it does not
/// count.
fn is_of_connection(error: &HttpError) -> bool {
    let is_of_connection = matches!(
        error.kind(),
        HttpErrorKind::Connect | HttpErrorKind::Timeout
    );
    is_of_connection && !errors::is_of_tls(error)
}

/// Names of `--storage-option` that every kind of store accepts.
pub(crate) const CLIENT_OPTIONS: [&str; 12] = [
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "disable_system_certificates",
    "http1_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "read_timeout",
    "user_agent",
];

/// Returns the error `Invalid` if an option is not an option of the HTTP client. A store on a web server accepts no
/// other options.
pub(crate) fn check_option(name: &str) -> zarr_format::error::Result<()> {
    if CLIENT_OPTIONS.contains(&name.to_ascii_lowercase().as_str()) {
        return Ok(());
    }
    Err(unknown_option(name, &CLIENT_OPTIONS))
}

/// Returns the error for an unknown storage option, which suggests the nearest name in `known`.
pub(crate) fn unknown_option(name: &str, known: &[&'static str]) -> Error {
    if name == "profile" {
        return Error::invalid("--profile", "only s3:// URLs have profiles");
    }
    let hint = match nearest(name, known.iter().copied()) {
        Some(known) => format!("did you mean '{known}'?"),
        None => format!("choose one of {}", known.join(", ")),
    };
    Error::invalid(
        format!("--storage-option {name}"),
        format!("no such option; {hint}"),
    )
}

/// Returns the default settings of HTTP clients. The client's own time limits are disabled (1 day), because they would
/// include bodies, whose time depends on their length. zarrfs limits requests itself.
pub(crate) fn defaults(config: &RemoteConfig) -> [(ClientConfigKey, String); 4] {
    let milliseconds = |duration: Duration| format!("{}ms", duration.as_millis().max(1));
    [
        (ClientConfigKey::Timeout, "1day".to_string()),
        (ClientConfigKey::ReadTimeout, "1day".to_string()),
        (
            ClientConfigKey::ConnectTimeout,
            milliseconds(config.timeout.min(Duration::from_secs(5))),
        ),
        (
            ClientConfigKey::UserAgent,
            concat!("zarrfs/", env!("CARGO_PKG_VERSION")).to_string(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(key: ClientConfigKey, value: &str) -> object_store::Result<HttpClient> {
        NetworkConnector::default().connect(&ClientOptions::new().with_config(key, value))
    }

    #[test]
    fn client_options_of_object_store_are_parsed() {
        for (key, value) in [
            (ClientConfigKey::AllowHttp, "yes"),
            (ClientConfigKey::ConnectTimeout, "1500ms"),
            (ClientConfigKey::PoolIdleTimeout, "1day"),
            (ClientConfigKey::PoolMaxIdlePerHost, "7"),
            (ClientConfigKey::ProxyUrl, "http://127.0.0.1:1"),
            (ClientConfigKey::NoSystemCertificates, "true"),
        ] {
            connect(key, value).unwrap();
        }
        for (key, value) in [
            (ClientConfigKey::AllowHttp, "perhaps"),
            (ClientConfigKey::ReadTimeout, "soon"),
            (ClientConfigKey::PoolMaxIdlePerHost, "-1"),
            (ClientConfigKey::ProxyUrl, "http://"),
        ] {
            assert!(connect(key, value).is_err(), "{value}");
        }
    }
}
