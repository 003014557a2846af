//! The HTTP client, with object_store's settings but a stricter redirect policy.
//!
//! object_store's own client follows every redirect, and has no setting for that. So the client is built here, from the
//! settings that `--option` accepts (`client_options`) and the defaults of object_store.

use std::fmt::Display;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use object_store::client::{HttpClient, HttpConnector};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Certificate, ClientBuilder, NoProxy, Proxy};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::proxied::ProxiedClient;
use super::{redirect, trust};

/// Makes clients that use the network.
#[derive(Debug, Default)]
pub(super) struct NetworkConnector;

impl HttpConnector for NetworkConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        choose_cryptography();
        let settings = ClientSettings(options);
        let client = settings.builder().and_then(|builder| {
            let client = builder.build();
            client.map_err(|error| refused(&error))
        });
        let [url, excludes] = [ClientConfigKey::ProxyUrl, ClientConfigKey::ProxyExcludes]
            .map(|key| settings.text(key));
        let client = ProxiedClient::new(
            HttpClient::new(client?),
            url.as_deref(),
            excludes.as_deref(),
        );
        Ok(HttpClient::new(client))
    }
}

/// Selects ring for TLS in the whole process. No client can be built without a selection.
fn choose_cryptography() {
    // Fails only if an earlier call has made the same selection.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The settings of a client, as text.
struct ClientSettings<'a>(&'a ClientOptions);

impl ClientSettings<'_> {
    fn builder(&self) -> object_store::Result<ClientBuilder> {
        let mut builder = ClientBuilder::new()
            .redirect(redirect::policy())
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

    /// Sets the trusted certificates and the proxy.
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
            let config = trust::client_config(provider, others, http1_only);
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

    /// Returns the additional certificates by which the proxy is trusted.
    fn certificates_of_proxy(&self) -> object_store::Result<Vec<CertificateDer<'static>>> {
        let text = self
            .text(ClientConfigKey::ProxyCaCertificate)
            .unwrap_or_default();
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        match read {
            Ok(read) if read.is_empty() && !text.is_empty() => {
                Err(refused(&"expected a certificate"))
            }
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

/// Returns the error for settings from which no client can be built. Its text has none of their values.
fn refused(error: &dyn Display) -> object_store::Error {
    object_store::Error::Generic {
        store: "HTTP client",
        source: error.to_string().into(),
    }
}

/// Resolves host names, and rotates the addresses, so that all addresses of a host are used equally.
#[derive(Default)]
struct SpreadResolver {
    asked: AtomicUsize,
}

impl Resolve for SpreadResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let find = move || (name.as_str(), 0).to_socket_addrs();
            let mut found: Vec<SocketAddr> = tokio::task::spawn_blocking(find).await??.collect();
            let first = asked.checked_rem(found.len()).unwrap_or_default();
            found.rotate_left(first);
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(key: ClientConfigKey, value: &str) -> object_store::Result<HttpClient> {
        NetworkConnector.connect(&ClientOptions::new().with_config(key, value))
    }

    #[test]
    fn settings_are_those_of_object_store() {
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
