//! The settings and credentials of a bucket: from options, from the environment, or none, which is anonymous.
//!
//! Options win over the environment, of which only the variables of the store's own programs count. The metadata
//! address of a virtual machine is asked for credentials only if an option names it.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as S3Key};
use object_store::azure::{AzureConfigKey as AzureKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey as GoogleKey};
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};

use super::address::{Address, CloudKind};
use super::{option_names, profile};
use crate::error::{Error, Result};
use crate::store::RemoteConfig;
use crate::store::backend::remote::client_options;
use crate::store::backend::remote::connector::Connector;

/// The faces of a client.
pub(super) struct Clients {
    pub(super) objects: Arc<dyn ObjectStore>,
    /// Names page by page.
    pub(super) pages: Arc<dyn PaginatedListStore>,
    /// Objects in parts.
    pub(super) parts: Arc<dyn MultipartStore>,
}

impl Clients {
    fn of<T: ObjectStore + PaginatedListStore + MultipartStore>(store: T) -> Clients {
        let store = Arc::new(store);
        Clients {
            objects: store.clone(),
            pages: store.clone(),
            parts: store,
        }
    }
}

/// How often and how long a request is repeated.
pub(super) fn retries(most: usize, limit: Duration) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: most,
        retry_timeout: limit,
    }
}

/// Builds the client of a bucket; `Invalid` for an option that is not known or makes no sense.
pub(super) fn client(
    address: &Address,
    config: &RemoteConfig,
    connector: &Connector,
    retry: RetryConfig,
) -> Result<Clients> {
    let build = match address.kind {
        CloudKind::S3 => s3,
        CloudKind::Google => google,
        CloudKind::Azure => azure,
    };
    build(address, config, connector, retry)
}

/// Whether plain HTTP is meant.
fn is_plain(endpoint: Option<&str>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

/// Reads an option's name; `Invalid` with the nearest one that is known.
fn option<K: FromStr>(kind: CloudKind, name: &str) -> Result<K> {
    option_names::check(kind, name)?;
    name.to_ascii_lowercase()
        .parse()
        .map_err(|_| option_names::unknown(kind, name))
}

/// Returns the error of a client that cannot be built; its text may hold values, so it is not repeated whole.
fn unusable(address: &Address, fault: &object_store::Error) -> Error {
    let text = fault.to_string();
    let text = text.rsplit(": ").next().unwrap_or_default().to_string();
    Error::invalid(&address.bucket, text)
}

fn variable(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn s3(
    address: &Address,
    config: &RemoteConfig,
    connector: &Connector,
    retry: RetryConfig,
) -> Result<Clients> {
    // An object is removed by itself: not all servers do it in bulk, and those that do hide what went wrong.
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&address.bucket)
        .with_disable_bulk_delete(true);
    for (key, value) in client_options::defaults(config) {
        builder = builder.with_config(S3Key::Client(key), value);
    }
    let mut wanted = None;
    for (name, value) in &config.options {
        match name.as_str() {
            "profile" | "aws_profile" => wanted = Some(value.as_str()),
            _ => builder = builder.with_config(option(CloudKind::S3, name)?, value),
        }
    }
    if let Some(endpoint) = &config.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = &config.region {
        builder = builder.with_region(region);
    }
    let endpoint = builder.get_config_value(&S3Key::Endpoint);
    if is_plain(endpoint.as_deref()) {
        builder = builder.with_allow_http(true);
    }
    let has = |key| {
        builder
            .get_config_value(&key)
            .is_some_and(|value| !value.is_empty())
    };
    let known = has(S3Key::AccessKeyId)
        || has(S3Key::WebIdentityTokenFile)
        || has(S3Key::ContainerCredentialsRelativeUri)
        || has(S3Key::ContainerCredentialsFullUri)
        || has(S3Key::MetadataEndpoint);
    if config.anonymous {
        builder = builder.with_skip_signature(true);
    } else if !known || wanted.is_some() {
        builder = match profile::read(wanted)? {
            Some(profile) => {
                let region = builder.get_config_value(&S3Key::Region);
                if let (None, Some(region)) = (region, &profile.region) {
                    builder = builder.with_region(region);
                }
                builder.with_credentials(profile.credentials)
            }
            None => builder.with_skip_signature(true),
        };
    }
    let store = builder
        .with_retry(retry)
        .with_http_connector(connector.clone())
        .build()
        .map_err(|fault| unusable(address, &fault))?;
    Ok(Clients::of(store))
}

fn google(
    address: &Address,
    config: &RemoteConfig,
    connector: &Connector,
    retry: RetryConfig,
) -> Result<Clients> {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(&address.bucket);
    for (key, value) in client_options::defaults(config) {
        builder = builder.with_config(GoogleKey::Client(key), value);
    }
    for (name, value) in &config.options {
        builder = builder.with_config(option(CloudKind::Google, name)?, value);
    }
    if let Some(endpoint) = &config.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    let endpoint = builder.get_config_value(&GoogleKey::BaseUrl);
    if is_plain(endpoint.as_deref()) {
        builder = builder.with_config(GoogleKey::Client(ClientConfigKey::AllowHttp), "true");
    }
    let has = |key| {
        builder
            .get_config_value(&key)
            .is_some_and(|value| !value.is_empty())
    };
    let known = has(GoogleKey::ServiceAccount)
        || has(GoogleKey::ServiceAccountKey)
        || has(GoogleKey::ApplicationCredentials)
        || has(GoogleKey::BearerToken)
        || has_gcloud_file();
    if config.anonymous || !known {
        // object_store signs every change all the same, and would ask a metadata address for what with.
        builder = builder
            .with_skip_signature(true)
            .with_config(GoogleKey::BearerToken, "anonymous");
    }
    let store = builder
        .with_retry(retry)
        .with_http_connector(connector.clone())
        .build()
        .map_err(|fault| unusable(address, &fault))?;
    Ok(Clients::of(store))
}

/// Whether Google's own program has left credentials where its libraries look for them.
fn has_gcloud_file() -> bool {
    let file = ".config/gcloud/application_default_credentials.json";
    std::env::home_dir().is_some_and(|home| home.join(file).is_file())
}

fn azure(
    address: &Address,
    config: &RemoteConfig,
    connector: &Connector,
    retry: RetryConfig,
) -> Result<Clients> {
    let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(&address.bucket);
    for (key, value) in client_options::defaults(config) {
        builder = builder.with_config(AzureKey::Client(key), value);
    }
    if let Some(account) = &address.account {
        builder = builder.with_account(account);
    }
    for (name, value) in &config.options {
        builder = builder.with_config(option(CloudKind::Azure, name)?, value);
    }
    if let Some(endpoint) = &config.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    let endpoint = builder.get_config_value(&AzureKey::Endpoint);
    if is_plain(endpoint.as_deref()) {
        builder = builder.with_allow_http(true);
    }
    let has = |key| {
        builder
            .get_config_value(&key)
            .is_some_and(|value| !value.is_empty())
    };
    let is_on = |key| {
        builder
            .get_config_value(&key)
            .is_some_and(|value| value == "true")
    };
    let known = has(AzureKey::AccessKey)
        || has(AzureKey::SasKey)
        || has(AzureKey::Token)
        || has(AzureKey::ClientSecret)
        || has(AzureKey::FederatedTokenFile)
        || has(AzureKey::MsiEndpoint)
        || variable("AZURE_STORAGE_CONNECTION_STRING")
        || is_on(AzureKey::UseEmulator)
        || is_on(AzureKey::UseAzureCli);
    if config.anonymous || !known {
        builder = builder.with_skip_signature(true);
    }
    let store = builder
        .with_retry(retry)
        .with_http_connector(connector.clone())
        .build()
        .map_err(|fault| unusable(address, &fault))?;
    Ok(Clients::of(store))
}
