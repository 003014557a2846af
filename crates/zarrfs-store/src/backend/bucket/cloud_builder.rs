//! Configures the builders of object_store from checked options.
//!
//! The trait `CloudBuilder` has the settings that all kinds of buckets share. object_store accepts any text as an
//! address, and panics at the first request if the text makes no valid URL, so addresses and regions are checked here.

use std::env;
use std::fmt::Display;
use std::str::FromStr;

use object_store::ClientConfigKey;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as S3Key};
use object_store::azure::{AzureConfigKey as AzureKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey as GoogleKey};
use url::Url;

use super::address::CloudKind;
use crate::RemoteConfig;
use crate::backend::remote::http_client;
use crate::backend::remote::http_client::{CLIENT_OPTIONS, unknown_option};
use zarr_format::error::{Error, Result};

/// Whether `--storage-option NAME` selects an AWS profile. object_store has no such option.
pub(super) fn is_profile_option(name: &str) -> bool {
    matches!(name, "profile" | "aws_profile")
}

/// The configuration keys of object_store that zarrfs sets or reads for one cloud.
pub(super) struct BuilderKeys<K: 'static> {
    /// The prefix of the cloud's environment variables.
    pub(super) variables: &'static str,
    /// The keys for the server's address. The first key that has a value is used.
    pub(super) endpoints: &'static [K],
    /// The keys for the addresses of servers that issue credentials.
    pub(super) issuers: &'static [K],
    region: Option<K>,
    skip_signature: K,
}

/// An object_store builder for the buckets of one cloud.
pub(super) trait CloudBuilder: Sized {
    type Key: FromStr + Copy + PartialEq + 'static;
    fn keys() -> BuilderKeys<Self::Key>;
    fn client(key: ClientConfigKey) -> Self::Key;
    fn set(self, key: Self::Key, value: &str) -> Self;
    fn get(&self, key: &Self::Key) -> Option<String>;

    fn has_any(&self, keys: &[Self::Key]) -> bool {
        let has = |key| self.get(key).is_some_and(|value| !value.is_empty());
        keys.iter().any(has)
    }

    fn endpoint(&self) -> Option<String> {
        Self::keys().endpoints.iter().find_map(|key| self.get(key))
    }

    fn is_on(&self, key: Self::Key) -> bool {
        self.get(&key).is_some_and(|value| value == "true")
    }

    /// Configures the HTTP client, the user's options and the server address on an object_store builder.
    fn configured(mut self, kind: CloudKind, config: &RemoteConfig) -> Result<Self> {
        for (key, value) in http_client::defaults(config) {
            self = self.set(Self::client(key), &value);
        }
        for (name, value) in &config.options {
            if kind != CloudKind::S3 || !is_profile_option(name) {
                self = self.set_option(parse_option(kind, name)?, value);
            }
        }
        if let Some(endpoint) = &config.endpoint {
            self = self.set_endpoint(endpoint);
        }
        if let (Some(key), Some(region)) = (Self::keys().region, &config.region) {
            self = self.set(key, region);
        }
        self.with_server(config)
    }

    /// Sets a storage option. It overrides every environment variable with the same meaning.
    fn set_option(self, key: Self::Key, value: &str) -> Self {
        if Self::keys().endpoints.contains(&key) {
            self.set_endpoint(value)
        } else {
            self.set(key, value)
        }
    }

    fn set_endpoint(self, value: &str) -> Self {
        let keys = Self::keys().endpoints.iter();
        keys.fold(self, |builder, key| builder.set(*key, value))
    }

    /// Sets the server's address from the AWS profile, unless an option or variable gives it.
    fn or_endpoint(self, endpoint: Option<String>) -> Result<Self> {
        let is_given = self.has_any(Self::keys().endpoints);
        match endpoint.filter(|_| !is_given) {
            None => Ok(self),
            Some(endpoint) => {
                let url = check_endpoint("endpoint_url of the AWS profile: ", &endpoint)?;
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

    /// Checks the addresses of the bucket's server and of the credential servers. Permits HTTP without TLS if the
    /// bucket's server has an `http` URL.
    fn with_server(self, config: &RemoteConfig) -> Result<Self> {
        let source_of = |value: &str| source_of(value, Self::keys().variables, config);
        for text in Self::keys().issuers.iter().filter_map(|key| self.get(key)) {
            check_endpoint(source_of(&text), &text)?;
        }
        if let Some(region) = Self::keys().region.and_then(|key| self.get(&key)) {
            check_region(source_of(&region), &region)?;
        }
        let Some(text) = self.endpoint() else {
            return Ok(self);
        };
        let url = check_endpoint(source_of(&text), &text)?;
        Ok(self.with_plain_http(&url))
    }

    fn anonymous(self) -> Self {
        self.set(Self::keys().skip_signature, "true")
    }
}

/// Returns where a setting's value comes from, as the text that stands before the value in an error message:
/// `--endpoint `, `--storage-option NAME=`, or the name of an environment variable that begins with `variables`. The
/// text is empty if the source is unknown.
pub(super) fn source_of(value: &str, variables: &str, config: &RemoteConfig) -> String {
    let typed = [
        ("--endpoint ", &config.endpoint),
        ("--region ", &config.region),
    ];
    let typed = typed
        .iter()
        .find(|(_, setting)| setting.as_deref() == Some(value));
    let option = config.options.iter().find(|(_, setting)| setting == value);
    let variable = env::vars_os().find_map(|(name, setting)| {
        let name = name.into_string().ok()?;
        (name.starts_with(variables) && setting == value).then_some(name)
    });
    match (typed, option, variable) {
        (Some((typed, _)), _, _) => (*typed).to_string(),
        (_, Some((name, _)), _) => format!("--storage-option {name}="),
        (_, _, Some(name)) => format!("{name}="),
        _ => String::new(),
    }
}

macro_rules! cloud_builder {
    ($builder:ty, $key:ident, $keys:expr) => {
        impl CloudBuilder for $builder {
            type Key = $key;

            fn keys() -> BuilderKeys<$key> {
                $keys
            }

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
    BuilderKeys {
        variables: "AWS_",
        endpoints: &[S3Key::S3Endpoint, S3Key::Endpoint],
        issuers: &[S3Key::MetadataEndpoint, S3Key::StsEndpoint],
        region: Some(S3Key::Region),
        skip_signature: S3Key::SkipSignature,
    }
);
cloud_builder!(
    GoogleCloudStorageBuilder,
    GoogleKey,
    BuilderKeys {
        variables: "GOOGLE_",
        endpoints: &[GoogleKey::BaseUrl],
        issuers: &[],
        region: None,
        skip_signature: GoogleKey::SkipSignature,
    }
);
cloud_builder!(
    MicrosoftAzureBuilder,
    AzureKey,
    BuilderKeys {
        variables: "AZURE_",
        endpoints: &[AzureKey::Endpoint],
        issuers: &[AzureKey::MsiEndpoint],
        region: None,
        skip_signature: AzureKey::SkipSignature,
    }
);

/// Parses the name of a storage option. The error is `Invalid` and suggests the nearest known name.
fn parse_option<K: FromStr>(kind: CloudKind, name: &str) -> Result<K> {
    let lower = name.to_ascii_lowercase();
    // Option names may have the prefixes that the clouds' environment variables have.
    let prefixes = ["aws_", "google_", "azure_storage_", "azure_"];
    let bare = prefixes
        .iter()
        .find_map(|prefix| lower.strip_prefix(prefix));
    let bare = bare.unwrap_or(&lower);
    let key = lower.parse().ok();
    key.filter(|_| option_names(kind).any(|known| known == bare))
        .ok_or_else(|| unknown_option(name, &option_names(kind).collect::<Vec<_>>()))
}

/// Returns the names of the storage options of one cloud, including those of the HTTP client.
fn option_names(kind: CloudKind) -> impl Iterator<Item = &'static str> {
    let own: &[&str] = match kind {
        CloudKind::S3 => &[
            "access_key_id",
            "bucket",
            "container_credentials_full_uri",
            "container_credentials_relative_uri",
            "endpoint",
            "imdsv1_fallback",
            "metadata_endpoint",
            "profile",
            "region",
            "request_payer",
            "role_arn",
            "role_session_name",
            "s3_express",
            "secret_access_key",
            "session_token",
            "skip_signature",
            "sse_customer_key_base64",
            "virtual_hosted_style_request",
            "web_identity_token_file",
        ],
        CloudKind::Google => &[
            "application_credentials",
            "base_url",
            "bearer_token",
            "service_account",
            "service_account_key",
            "skip_signature",
        ],
        CloudKind::Azure => &[
            "account_key",
            "account_name",
            "authority_host",
            "bearer_token",
            "client_id",
            "client_secret",
            "credential_type",
            "encryption_key",
            "endpoint",
            "federated_token_file",
            "msi_endpoint",
            "msi_resource_id",
            "object_id",
            "sas_token",
            "skip_signature",
            "tenant_id",
            "use_azure_cli",
            "use_emulator",
        ],
    };
    own.iter().chain(&CLIENT_OPTIONS).copied()
}

/// Parses the URL of a server; fails with `Invalid` if the text is not the URL of a web server. The error message
/// begins with `from`, the option or variable that the text comes from.
fn check_endpoint(from: impl Display, text: &str) -> Result<Url> {
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| {
        let server = crate::redacted(text.split('?').next().unwrap_or_default());
        // Even an invalid URL can contain a password, so the error shows it without one.
        let server = server.rsplit('@').next().unwrap_or_default();
        Error::invalid(
            format!("{from}{server}"),
            "expected http://HOST or https://HOST",
        )
    })
}

/// Checks the name of a region, since it becomes part of a host name. The error is `Invalid` if a host name cannot
/// contain it.
pub(super) fn check_region(from: impl Display, text: &str) -> Result<()> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if text.chars().all(is_plain) {
        return Ok(());
    }
    let why = "not the name of a region, such as eu-west-1";
    Err(Error::invalid(format!("{from}{text}"), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_option_suggests_the_nearest_name() {
        assert!(
            parse_option::<S3Key>(CloudKind::S3, "AWS_REGION").is_ok()
                && parse_option::<AzureKey>(CloudKind::Azure, "sas_token").is_ok()
        );
        let error = parse_option::<S3Key>(CloudKind::S3, "acess_key_id")
            .unwrap_err()
            .to_string();
        assert!(error.contains("did you mean 'access_key_id'?"), "{error}");
        let error = parse_option::<GoogleKey>(CloudKind::Google, "colour")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("choose one of application_credentials"),
            "{error}"
        );
    }

    #[test]
    fn every_option_name_is_known_to_object_store() {
        for name in option_names(CloudKind::S3).filter(|name| *name != "profile") {
            assert!(name.parse::<S3Key>().is_ok(), "{name}");
        }
        for name in option_names(CloudKind::Google) {
            assert!(name.parse::<GoogleKey>().is_ok(), "{name}");
        }
        for name in option_names(CloudKind::Azure) {
            assert!(name.parse::<AzureKey>().is_ok(), "{name}");
        }
    }

    #[test]
    fn an_invalid_endpoint_is_refused() {
        for text in [
            "http://localhost:9000",
            "HTTPS://h",
            "https://h/path",
            "http://[::1]:9",
        ] {
            assert!(check_endpoint("", text).is_ok(), "{text}");
        }
        for (text, shown) in [
            ("localhost:9000", "localhost:9000"),
            ("notaurl", "notaurl"),
            ("", ""),
            ("http://", "http://"),
            ("http://a b", "http://a b"),
            ("ftp://h", "ftp://h"),
            ("me:hush@h?key=hush", "h"),
            ("ftp://me:hush@h?key=hush", "ftp://h"),
        ] {
            let error = check_endpoint("--endpoint ", text).unwrap_err().to_string();
            let expected = format!("--endpoint {shown}: expected http://HOST or https://HOST");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn an_invalid_region_is_refused() {
        for text in ["eu-west-1", "auto", "Region_1"] {
            assert!(check_region("", text).is_ok(), "{text}");
        }
        let error = check_region("--region ", "a b").unwrap_err().to_string();
        let expected = "--region a b: not the name of a region, such as eu-west-1";
        assert_eq!(error, expected);
    }
}
