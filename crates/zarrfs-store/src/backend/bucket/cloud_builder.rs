//! Defines one trait for the builders of object_store, with their common settings.

use std::env;
use std::str::FromStr;

use object_store::ClientConfigKey;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as S3Key};
use object_store::azure::{AzureConfigKey as AzureKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey as GoogleKey};
use url::Url;

use super::address::CloudKind;
use super::{option_names, server_address};
use crate::RemoteConfig;
use crate::backend::remote::http_client;
use zarr_format::error::Result;

/// Names of the option that selects an AWS profile. object_store has no such option.
pub(super) const PROFILE_OPTIONS: [&str; 2] = ["profile", "aws_profile"];

/// A builder of object_store, one for each kind of bucket.
pub(super) trait CloudBuilder: Sized {
    type Key: FromStr + Copy + PartialEq + 'static;
    /// The prefix of the names of its environment variables.
    const VARIABLES: &'static str;
    /// The keys for the server's address. The first key that has a value is used.
    const ENDPOINTS: &'static [Self::Key];
    /// Servers that issue credentials.
    const OTHER_SERVERS: &'static [Self::Key];
    const REGION: Option<Self::Key>;
    const SKIP_SIGNATURE: Self::Key;
    fn client(key: ClientConfigKey) -> Self::Key;

    fn set(self, key: Self::Key, value: &str) -> Self;
    fn get(&self, key: &Self::Key) -> Option<String>;

    /// Whether any of these settings has a value.
    fn has_any(&self, keys: &[Self::Key]) -> bool {
        let has = |key| self.get(key).is_some_and(|value| !value.is_empty());
        keys.iter().any(has)
    }

    /// Returns the address of the server, or `None` if no setting has it.
    fn endpoint(&self) -> Option<String> {
        Self::ENDPOINTS.iter().find_map(|key| self.get(key))
    }

    /// Whether a setting is `true`.
    fn is_on(&self, key: Self::Key) -> bool {
        self.get(&key).is_some_and(|value| value == "true")
    }

    /// Applies the settings that all kinds have: the HTTP client, the options and the server.
    fn configured(mut self, kind: CloudKind, config: &RemoteConfig) -> Result<Self> {
        for (key, value) in http_client::defaults(config) {
            self = self.set(Self::client(key), &value);
        }
        let is_profile = |name: &str| kind == CloudKind::S3 && PROFILE_OPTIONS.contains(&name);
        for (name, value) in &config.options {
            if !is_profile(name) {
                self = self.set_option(option(kind, name)?, value);
            }
        }
        if let Some(endpoint) = &config.endpoint {
            self = self.set_endpoint(endpoint);
        }
        if let (Some(key), Some(region)) = (Self::REGION, &config.region) {
            self = self.set(key, region);
        }
        self.with_server(config)
    }

    /// Sets an option. It overrides every environment variable with the same meaning.
    fn set_option(self, key: Self::Key, value: &str) -> Self {
        if Self::ENDPOINTS.contains(&key) {
            self.set_endpoint(value)
        } else {
            self.set(key, value)
        }
    }

    /// Sets the address of the server.
    fn set_endpoint(self, value: &str) -> Self {
        let keys = Self::ENDPOINTS.iter();
        keys.fold(self, |builder, key| builder.set(*key, value))
    }

    /// Sets the server's address from the AWS profile, unless an option or variable gives it.
    fn or_endpoint(self, endpoint: Option<String>) -> Result<Self> {
        let is_given = self.has_any(Self::ENDPOINTS);
        match endpoint.filter(|_| !is_given) {
            None => Ok(self),
            Some(endpoint) => {
                let url =
                    server_address::check_endpoint("endpoint_url of the AWS profile: ", &endpoint)?;
                Ok(self.set_endpoint(&endpoint).with_plain_http(&url))
            }
        }
    }

    /// Permits HTTP without TLS if the URL of the server is an `http` URL.
    fn with_plain_http(self, server: &Url) -> Self {
        if server.scheme() == "http" {
            return self.set(Self::client(ClientConfigKey::AllowHttp), "true");
        }
        self
    }

    /// Checks the addresses of the servers, and permits HTTP without TLS if the address is an `http` URL.
    fn with_server(self, config: &RemoteConfig) -> Result<Self> {
        let given_by = |value: &str| given_by(value, Self::VARIABLES, config);
        for text in Self::OTHER_SERVERS.iter().filter_map(|key| self.get(key)) {
            server_address::check_endpoint(given_by(&text), &text)?;
        }
        if let Some(region) = Self::REGION.and_then(|key| self.get(&key)) {
            server_address::check_region(given_by(&region), &region)?;
        }
        let Some(text) = self.endpoint() else {
            return Ok(self);
        };
        let url = server_address::check_endpoint(given_by(&text), &text)?;
        Ok(self.with_plain_http(&url))
    }

    /// Sends requests without credentials.
    fn anonymous(self) -> Self {
        self.set(Self::SKIP_SIGNATURE, "true")
    }
}

/// Returns the source of a setting's value for an error message: an option or one of the environment `variables`, with
/// the text between it and the value. The string is empty if the source is unknown.
fn given_by(value: &str, variables: &str, config: &RemoteConfig) -> String {
    let typed = [
        ("--endpoint ", &config.endpoint),
        ("--region ", &config.region),
    ];
    let typed = typed
        .iter()
        .find(|(_, given)| given.as_deref() == Some(value));
    let option = config.options.iter().find(|(_, given)| given == value);
    let variable = env::vars_os().find_map(|(name, given)| {
        let name = name.into_string().ok()?;
        (name.starts_with(variables) && given == value).then_some(name)
    });
    match (typed, option, variable) {
        (Some((typed, _)), _, _) => (*typed).to_string(),
        (_, Some((name, _)), _) => format!("--option {name}="),
        (_, _, Some(name)) => format!("{name}="),
        _ => String::new(),
    }
}

/// Parses an option's name. The error is `Invalid` and suggests the nearest known name.
fn option<K: FromStr>(kind: CloudKind, name: &str) -> Result<K> {
    option_names::check(kind, name)?;
    name.to_ascii_lowercase()
        .parse()
        .map_err(|_| option_names::unknown(kind, name))
}

macro_rules! cloud_builder {
    ($builder:ty, $key:ident, $variables:literal, $endpoints:expr, $servers:expr, $region:expr) => {
        impl CloudBuilder for $builder {
            type Key = $key;
            const VARIABLES: &'static str = $variables;
            const ENDPOINTS: &'static [$key] = &$endpoints;
            const OTHER_SERVERS: &'static [$key] = &$servers;
            const REGION: Option<$key> = $region;
            const SKIP_SIGNATURE: $key = $key::SkipSignature;

            fn client(key: ClientConfigKey) -> $key {
                $key::Client(key)
            }

            fn set(self, key: $key, value: &str) -> Self {
                self.with_config(key, value)
            }

            fn get(&self, key: &$key) -> Option<String> {
                self.get_config_value(key)
            }
        }
    };
}

cloud_builder!(
    AmazonS3Builder,
    S3Key,
    "AWS_",
    [S3Key::S3Endpoint, S3Key::Endpoint],
    [S3Key::MetadataEndpoint, S3Key::StsEndpoint],
    Some(S3Key::Region)
);
cloud_builder!(
    GoogleCloudStorageBuilder,
    GoogleKey,
    "GOOGLE_",
    [GoogleKey::BaseUrl],
    [],
    None
);
cloud_builder!(
    MicrosoftAzureBuilder,
    AzureKey,
    "AZURE_",
    [AzureKey::Endpoint],
    [AzureKey::MsiEndpoint],
    None
);
