//! Collects the settings and credentials of a bucket from options and the environment.
//!
//! Without credentials, access is anonymous. Options override environment variables. Of these, only the ones that the
//! cloud's own programs use are read. Credentials are requested from the metadata address of a virtual machine only if
//! an option names that address.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey as S3Key};
use object_store::azure::{AzureConfigKey as AzureKey, MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::gcp::{
    GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey as GoogleKey,
};
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use url::Url;

use super::address::{Address, CloudKind};
use super::aws_profile::{AwsProfile, ProfileSettings};
use super::cloud_builder::{CloudBuilder, check_region, is_profile_option, source_of};
use super::connector::{BucketConnector, DEFAULT_REGION, ListingSigner};
use super::credentials::{NamedCredentials, RefreshingCredentials};
use super::writer::AzureContainer;
use crate::backend::remote::connector::Connector;
use crate::backend::remote::http_client;
use crate::{HiddenEntries, RemoteConfig};
use zarr_format::error::{Error, Result};

/// An object_store client for one bucket. `objects`, `pages` and `parts` are one client, as different traits.
pub(super) struct CloudHandles {
    pub(super) objects: Arc<dyn ObjectStore>,
    pub(super) pages: Arc<dyn PaginatedListStore>,
    pub(super) parts: Arc<dyn MultipartStore>,
    /// Removes Azure blobs, if the container's URL is known.
    pub(super) azure: Option<Arc<AzureContainer>>,
    /// The bucket's server if the store's URL does not name it, to distinguish buckets of the same name on two servers.
    pub(super) server: String,
    /// How requests are authorized; `None` only in tests.
    pub(super) access: Option<Access>,
}

/// How requests are authorized. It determines the advice to the user if the server refuses a request.
pub(super) enum Access {
    /// Requests are not signed, because the user gave `--anon`.
    Anonymous,
    /// Requests are not signed, because no credentials were found. The text tells the user how to give some.
    WithoutCredentials(&'static str),
    /// Requests are signed. The text names the credentials, as the subject of a sentence in messages.
    Signed(String),
}

impl Access {
    /// Returns why a request was refused, and what the user can do about it. `code` contains the error code of the
    /// response; `is_change` is true for a put or a removal.
    pub(super) fn hint(&self, code: &str, is_change: bool) -> String {
        match self {
            Access::Anonymous if is_change => {
                "anonymous users cannot change the bucket: remove --anon and give credentials".to_string()
            }
            Access::Anonymous => {
                "the bucket is not public, or the prefix is wrong: remove --anon and give credentials".to_string()
            }
            Access::WithoutCredentials(how) => format!("no credentials found: {how}"),
            Access::Signed(name) if code.contains("Expired") || code.contains("TokenRefresh") => {
                format!("{name} have expired: sign in again or renew the keys")
            }
            Access::Signed(name) if code.contains("Invalid") || code.contains("Signature") => {
                format!("the server does not accept {name}: check the key and the secret")
            }
            Access::Signed(name) if is_change => format!("{name} may not change this object"),
            Access::Signed(name) => format!("{name} may not read this bucket"),
        }
    }
}

impl CloudHandles {
    pub(super) fn of<T: ObjectStore + PaginatedListStore + MultipartStore>(
        store: T,
    ) -> CloudHandles {
        let store = Arc::new(store);
        CloudHandles {
            objects: store.clone(),
            pages: store.clone(),
            parts: store,
            azure: None,
            server: String::new(),
            access: None,
        }
    }
}

/// Returns object_store's retry settings: at most `most` retries, within the time `limit`.
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

/// The address of a bucket, and the settings for clients that access it.
#[derive(Clone)]
pub(super) struct ClientSettings {
    pub(super) address: Address,
    pub(super) config: RemoteConfig,
    pub(super) connector: Connector,
    /// Records the names that listings leave out because they are not valid paths.
    pub(super) not_shown: Arc<HiddenEntries>,
}

impl ClientSettings {
    /// Builds the clients for the bucket. The error is `Invalid` if a storage option is unknown or unusable.
    pub(super) fn connect(&self, retry: RetryConfig) -> Result<CloudHandles> {
        let connector = BucketConnector {
            below: self.connector.clone(),
            not_shown: self.not_shown.clone(),
            signer: Arc::default(),
            missing_is: self.config.missing_is,
            patience: retry.retry_timeout,
        };
        let connected = match self.address.kind {
            CloudKind::S3 => {
                let settings = self.s3()?;
                self.connect_s3(settings, retry, connector)
            }
            CloudKind::Google => self.connect_google(self.google()?.with_retry(retry), connector),
            CloudKind::Azure => self.connect_azure(self.azure()?.with_retry(retry), connector),
        };
        connected.map_err(|fault| unusable(&self.address, &fault))
    }

    fn connect_s3(
        &self,
        settings: S3Settings,
        retry: RetryConfig,
        connector: BucketConnector,
    ) -> object_store::Result<CloudHandles> {
        let S3Settings {
            builder,
            issuer,
            credentials: name,
        } = settings;
        let builder = builder.with_retry(retry);
        let is_signed = !builder.is_on(S3Key::SkipSignature);
        let region = builder.get(&S3Key::Region);
        let server = builder.endpoint().or_else(|| region.clone());
        let signer = connector.signer.clone();
        let store = issued_s3(builder.with_http_connector(connector), issuer)?;
        if is_signed {
            let credentials = store.credentials().clone();
            signer.get_or_init(|| ListingSigner::new(credentials, region));
        }
        Ok(CloudHandles {
            server: server.unwrap_or_else(|| DEFAULT_REGION.to_string()),
            access: Some(self.access(is_signed, name)),
            ..CloudHandles::of(store)
        })
    }

    fn connect_google(
        &self,
        builder: GoogleCloudStorageBuilder,
        connector: BucketConnector,
    ) -> object_store::Result<CloudHandles> {
        let is_signed = !builder.is_on(GoogleKey::SkipSignature);
        let server = builder.endpoint().or_else(|| google_server(&builder));
        let store = rotated_google(builder.with_http_connector(connector))?;
        Ok(CloudHandles {
            server: server.unwrap_or_default(),
            access: Some(self.access(is_signed, "the Google credentials".to_string())),
            ..CloudHandles::of(store)
        })
    }

    /// Builds the Azure client, and a second client for conditional removals.
    fn connect_azure(
        &self,
        builder: MicrosoftAzureBuilder,
        connector: BucketConnector,
    ) -> object_store::Result<CloudHandles> {
        let is_signed = !builder.is_on(AzureKey::SkipSignature);
        let account = builder.get(&AzureKey::AccountName);
        let server = azure_server(&builder);
        let container = container_url(&builder, &self.address.bucket).zip(account);
        let settings = client_settings(&builder);
        let store = issued_azure(builder.with_http_connector(connector))?;
        let azure = container.filter(|_| is_signed).map(|(url, account)| {
            Arc::new(AzureContainer {
                url,
                account,
                credentials: store.credentials().clone(),
                connector: self.connector.clone(),
                settings,
                http: OnceLock::new(),
            })
        });
        Ok(CloudHandles {
            azure,
            server,
            access: Some(self.access(is_signed, "the Azure credentials".to_string())),
            ..CloudHandles::of(store)
        })
    }

    /// Returns how requests are authorized; `name` names the credentials.
    fn access(&self, is_signed: bool, name: String) -> Access {
        if is_signed {
            return Access::Signed(name);
        }
        if self.config.anonymous {
            return Access::Anonymous;
        }
        Access::WithoutCredentials(match self.address.kind {
            CloudKind::S3 => {
                "set AWS_PROFILE (or --profile), or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            }
            CloudKind::Google => {
                "set GOOGLE_APPLICATION_CREDENTIALS, or run 'gcloud auth application-default login'"
            }
            CloudKind::Azure => {
                "set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or use --storage-option use_azure_cli=true"
            }
        })
    }

    /// Returns the settings for S3. Credentials come from options and environment variables, or else from an AWS
    /// profile.
    fn s3(&self) -> Result<S3Settings> {
        let config = &self.config;
        let mut options = config.options.iter().rev();
        let wanted = options.find(|(name, _)| is_profile_option(name));
        let wanted = wanted.map(|(_, value)| value.as_str());
        let profile = AwsProfile::new(wanted, config, &self.connector)?;
        let ProfileSettings {
            region,
            endpoint,
            ignores_endpoints,
        } = profile.settings()?;
        let builder = if ignores_endpoints {
            s3_without_endpoints()
        } else {
            AmazonS3Builder::from_env()
        };
        let builder = builder
            .with_bucket_name(&self.address.bucket)
            // Bulk removal is disabled, because not all servers support it and its responses hide errors.
            .with_disable_bulk_delete(true)
            .configured(CloudKind::S3, config)?
            .or_endpoint(endpoint.filter(|_| !ignores_endpoints))?;
        if config.anonymous {
            return Ok(S3Settings::unsigned(builder));
        }
        let (key, issuer) = (builder.get(&S3Key::AccessKeyId), s3_issuer(&builder));
        if (key.is_some() || issuer.is_some()) && wanted.is_none() {
            let source = match &key {
                Some(key) => source_of(key, AmazonS3Builder::keys().variables, config),
                None => issuer.unwrap_or_default().to_string(),
            };
            let credentials = match source.trim_end_matches('=') {
                "" => "the credentials".to_string(),
                source => format!("the credentials of {source}"),
            };
            return Ok(S3Settings {
                builder,
                issuer: issuer.filter(|_| key.is_none()),
                credentials,
            });
        }
        let configured = builder.get(&S3Key::Region);
        let Some(credentials) = profile.credentials(region.as_deref().or(configured.as_deref()))?
        else {
            return Ok(S3Settings::unsigned(builder));
        };
        let name = profile.display_name();
        let mut builder = builder.with_credentials(NamedCredentials::new(&name, credentials));
        if let Some(region) = region.filter(|_| configured.is_none()) {
            check_region("the region of the AWS profile: ", &region)?;
            builder = builder.with_region(region);
        }
        Ok(S3Settings {
            builder,
            issuer: None,
            credentials: format!("the credentials of {name}"),
        })
    }

    fn google(&self) -> Result<GoogleCloudStorageBuilder> {
        let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(&self.address.bucket);
        let builder = builder.configured(CloudKind::Google, &self.config)?;
        let has_credentials = builder.has_any(&[
            GoogleKey::ServiceAccount,
            GoogleKey::ServiceAccountKey,
            GoogleKey::ApplicationCredentials,
            GoogleKey::BearerToken,
        ]) || gcloud_file().is_some();
        if has_credentials && !self.config.anonymous {
            return Ok(builder);
        }
        // object_store signs changes even when anonymous, and would request credentials from a metadata address for
        // that. The token prevents that request.
        let builder = builder.anonymous();
        Ok(builder.with_config(GoogleKey::BearerToken, "anonymous"))
    }

    fn azure(&self) -> Result<MicrosoftAzureBuilder> {
        let mut builder =
            MicrosoftAzureBuilder::from_env().with_container_name(&self.address.bucket);
        if let Some(account) = &self.address.account {
            builder = builder.with_account(account);
        }
        let builder = builder.configured(CloudKind::Azure, &self.config)?;
        let has_account =
            builder.has_any(&[AzureKey::AccountName]) || builder.is_on(AzureKey::UseEmulator);
        if !has_account {
            let container = format!("{}://{}", self.address.scheme, self.address.bucket);
            let why = "the storage account is missing: use --storage-option account_name=NAME, set \
                 AZURE_STORAGE_ACCOUNT_NAME, or use abfss://CONTAINER@NAME.dfs.core.windows.net/PREFIX";
            return Err(Error::invalid(container, why));
        }
        let has_credentials = builder.has_any(&[
            AzureKey::AccessKey,
            AzureKey::SasKey,
            AzureKey::Token,
            AzureKey::ClientSecret,
            AzureKey::FederatedTokenFile,
            AzureKey::MsiEndpoint,
        ]) || builder.is_on(AzureKey::UseEmulator)
            || builder.is_on(AzureKey::UseAzureCli);
        if has_credentials && !self.config.anonymous {
            return Ok(builder);
        }
        Ok(builder.anonymous())
    }
}

/// An object_store builder for S3, and where its credentials come from.
struct S3Settings {
    builder: AmazonS3Builder,
    /// The server that issues the credentials; `None` if no server issues them.
    issuer: Option<&'static str>,
    /// The credentials, as error messages name them; empty if there are none.
    credentials: String,
}

impl S3Settings {
    fn unsigned(builder: AmazonS3Builder) -> S3Settings {
        S3Settings {
            builder: builder.anonymous(),
            issuer: None,
            credentials: String::new(),
        }
    }
}

/// Returns an S3 builder with the settings of the environment, except for server addresses.
fn s3_without_endpoints() -> AmazonS3Builder {
    let keys = AmazonS3Builder::keys();
    let texts = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        Some((name, value.into_string().ok()?))
    });
    let settings = texts.filter_map(|(name, value)| {
        let is_of_aws = name.starts_with(keys.variables);
        let key: S3Key = is_of_aws.then(|| name.to_ascii_lowercase().parse().ok())??;
        let is_server = keys.endpoints.contains(&key) || key == S3Key::StsEndpoint;
        (!is_server).then_some((key, value))
    });
    settings.fold(AmazonS3Builder::new(), |builder, (key, value)| {
        builder.with_config(key, value)
    })
}

/// Builds the S3 client. If a server issues the credentials, credential errors name it by `issuer`.
fn issued_s3(
    builder: AmazonS3Builder,
    issuer: Option<&'static str>,
) -> object_store::Result<AmazonS3> {
    let Some(name) = issuer.filter(|_| !builder.is_on(S3Key::SkipSignature)) else {
        return builder.build();
    };
    let source = builder.clone().build()?.credentials().clone();
    builder
        .with_credentials(NamedCredentials::new(name, source))
        .build()
}

/// Builds the Azure client. Credential errors name Azure as the issuer.
fn issued_azure(builder: MicrosoftAzureBuilder) -> object_store::Result<MicrosoftAzure> {
    if builder.is_on(AzureKey::SkipSignature) {
        return builder.build();
    }
    let source = builder.clone().build()?.credentials().clone();
    let credentials = NamedCredentials::new("Azure", source);
    builder.with_credentials(credentials).build()
}

/// Builds the Google client, which reads the credential files again when they change.
fn rotated_google(builder: GoogleCloudStorageBuilder) -> object_store::Result<GoogleCloudStorage> {
    let named = [GoogleKey::ServiceAccount, GoogleKey::ApplicationCredentials];
    let named = named.iter().filter_map(|key| builder.get(key));
    let files: Vec<PathBuf> = named.map(PathBuf::from).chain(gcloud_file()).collect();
    if builder.is_on(GoogleKey::SkipSignature) {
        return builder.build();
    }
    if files.is_empty() {
        let source = builder.clone().build()?.credentials().clone();
        let credentials = NamedCredentials::new("Google", source);
        return builder.with_credentials(credentials).build();
    }
    let again = builder.clone();
    let credentials = RefreshingCredentials::new(files, move || {
        Ok(again.clone().build()?.credentials().clone())
    })?;
    let credentials = NamedCredentials::new("Google", Arc::new(credentials));
    builder.with_credentials(credentials).build()
}

/// Returns the server that a Google service account's credentials name, or `None` if they name none.
fn google_server(builder: &GoogleCloudStorageBuilder) -> Option<String> {
    let text = builder.get(&GoogleKey::ServiceAccountKey).or_else(|| {
        let file = builder.get(&GoogleKey::ServiceAccount)?;
        std::fs::read_to_string(file).ok()
    });
    let account: serde_json::Value = serde_json::from_str(&text?).ok()?;
    Some(account.get("gcs_base_url")?.as_str()?.to_string())
}

/// Returns the URL of the server that has the account's Azure containers.
fn azure_server(builder: &MicrosoftAzureBuilder) -> String {
    let emulator = builder.is_on(AzureKey::UseEmulator);
    let emulator = emulator.then(|| {
        let named = std::env::var("AZURITE_BLOB_STORAGE_URL").ok();
        named.unwrap_or_else(|| "http://127.0.0.1:10000".to_string())
    });
    let account = builder.get(&AzureKey::AccountName);
    let fabric = builder.is_on(AzureKey::UseFabricEndpoint);
    format!("{:?} {account:?} {emulator:?} {fabric}", builder.endpoint())
}

/// Returns the URL of an Azure container, or `None` if the account and the endpoint do not determine it.
fn container_url(builder: &MicrosoftAzureBuilder, container: &str) -> Option<Url> {
    if builder.is_on(AzureKey::UseEmulator) || builder.is_on(AzureKey::UseFabricEndpoint) {
        return None;
    }
    let endpoint = builder.get(&AzureKey::Endpoint).or_else(|| {
        let account = builder.get(&AzureKey::AccountName)?;
        Some(format!("https://{account}.blob.core.windows.net"))
    });
    let mut url = Url::parse(&endpoint?).ok()?;
    url.path_segments_mut().ok()?.push(container);
    Some(url)
}

/// Returns the HTTP options that an Azure builder was given.
fn client_settings(builder: &MicrosoftAzureBuilder) -> ClientOptions {
    let names = http_client::CLIENT_OPTIONS.iter().chain(&["timeout"]);
    let keys = names.filter_map(|name| name.parse::<ClientConfigKey>().ok());
    keys.fold(ClientOptions::new(), |options, key| {
        match builder.get(&AzureKey::Client(key)) {
            Some(value) => options.with_config(key, value),
            None => options,
        }
    })
}

/// Returns the name of the server that issues S3 credentials. The first of the listed settings that is set decides.
fn s3_issuer(builder: &AmazonS3Builder) -> Option<&'static str> {
    let issuers = [
        (
            S3Key::WebIdentityTokenFile,
            "the role in AWS_WEB_IDENTITY_TOKEN_FILE",
        ),
        (
            S3Key::ContainerCredentialsRelativeUri,
            "the service of the container",
        ),
        (
            S3Key::ContainerCredentialsFullUri,
            "the service of the container",
        ),
        (
            S3Key::MetadataEndpoint,
            "the metadata service (metadata_endpoint)",
        ),
    ];
    let issuer = issuers.iter().find(|(key, _)| builder.has_any(&[*key]));
    issuer.map(|(_, name)| *name)
}

/// Converts object_store's error about unusable settings. Its full message may contain secrets, so only the last part
/// is reported.
fn unusable(address: &Address, fault: &object_store::Error) -> Error {
    let text = fault.to_string();
    let text = text.rsplit(": ").next().unwrap_or_default().to_string();
    Error::invalid(&address.bucket, text)
}

/// Returns the path of gcloud's default credentials, or `None` if the file does not exist.
fn gcloud_file() -> Option<PathBuf> {
    let file = std::env::home_dir()?.join(".config/gcloud/application_default_credentials.json");
    file.is_file().then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::bucket::BucketStore;
    use crate::stats::Stats;

    fn server(url: &str, options: &[(&str, &str)]) -> String {
        let (scheme, rest) = url.split_once(':').unwrap();
        let address =
            Address::parse(scheme, CloudKind::of_scheme(scheme).unwrap(), rest, url).unwrap();
        let options = options.iter();
        let config = RemoteConfig {
            options: options
                .map(|(name, value)| ((*name).to_string(), (*value).to_string()))
                .collect(),
            ..RemoteConfig::default()
        };
        let limit = Duration::from_secs(1);
        let connector = Connector::new(Arc::new(Stats::default()), limit);
        let store = BucketStore::build(&address, &config, &connector, 0, limit).unwrap();
        store.info.server.unwrap().to_string()
    }

    #[test]
    fn the_server_of_a_bucket_follows_from_its_options() {
        let folder = tempfile::tempdir().unwrap();
        let account = folder.path().join("account.json");
        let text = r#"{"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": true,
            "gcs_base_url": "http://there:4443"}"#;
        std::fs::write(&account, text).unwrap();
        let account = account.to_str().unwrap();
        let endpoint = ("endpoint", "http://minio:9000");
        let key = [("access_key_id", "me"), ("secret_access_key", "hidden")];
        let found = [
            server("s3://b/a", &[endpoint, ("region", "eu-west-1")]),
            server("s3://b/a", &[endpoint, key[0], key[1]]),
            server("s3://b/a", &[("region", "cn-north-1"), key[0], key[1]]),
            server("gs://b/a", &[("base_url", "http://here:4443")]),
            server("gs://b/a", &[("service_account", account)]),
        ];
        let expected = [
            "http://minio:9000",
            "http://minio:9000",
            "cn-north-1",
            "http://here:4443",
            "http://there:4443",
        ];
        assert_eq!(found, expected);
        let azure = |account: &str, more: (&str, &str)| {
            server("az://c/a", &[("account_name", account), more])
        };
        let one = azure("one", ("account_key", "aGlkZGVu"));
        assert_eq!(one, azure("one", ("sas_token", "sig=hidden")));
        assert_ne!(one, azure("other", ("account_key", "aGlkZGVu")));
        assert!(!one.contains("aGlkZGVu"), "{one}");
    }
}
