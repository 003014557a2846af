//! Reads credentials, region and endpoint of AWS profiles through `aws-config`.
//!
//! `aws-config` supports profile files, chains of roles, single sign-on, programs that print credentials, and the
//! metadata services of containers and machines. Its requests use the bucket's HTTP client (`AwsClient`). Credentials
//! are renewed before they expire.

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_config::profile::{ProfileFileCredentialsProvider, ProfileFileRegionProvider};
use aws_config::provider_config::ProviderConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::provider::ProvideCredentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::http::{
    HttpClient as AwsHttpClient, HttpConnector as AwsHttpConnector, HttpConnectorFuture,
    HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_types::service_config::ServiceConfigKey;
use futures_util::TryStreamExt;
use object_store::aws::AwsCredential;
use object_store::client::{HttpClient, HttpConnector, HttpRequest};
use object_store::{ClientConfigKey, ClientOptions, CredentialProvider};
use tokio::sync::Mutex;

use super::connector::DEFAULT_REGION;
use super::credentials::RefreshingCredentials;
use super::credentials::execute_with_imdsv1;
use crate::RemoteConfig;
use crate::backend::opaque_debug;
use crate::backend::remote::connector::Connector;
use crate::backend::remote::errors;
use crate::backend::remote::http_client;
use crate::backend::remote::runtime::wait;
use crate::request_context::UNLIMITED;
use zarr_format::error::{Error, Kind, Result};

/// Time limit for the first credentials of a profile: a program or a server may have to issue them.
const TIMEOUT: Duration = Duration::from_secs(20);

/// An AWS profile, and the HTTP client for its credential requests.
#[derive(Clone)]
pub(super) struct AwsProfile {
    /// The profile's name from an option or from AWS_PROFILE.
    selected: Option<String>,
    /// The HTTP client for credential requests, or `None` if the machine has no AWS profile files.
    client: Option<AwsClient>,
}

/// Region and endpoint of a bucket's server, as an AWS profile gives them.
#[derive(Default)]
pub(super) struct ProfileSettings {
    pub(super) region: Option<String>,
    pub(super) endpoint: Option<String>,
    /// Whether endpoints in AWS profiles and environment variables are ignored.
    pub(super) ignores_endpoints: bool,
}

impl AwsProfile {
    /// Selects the AWS profile `name`, else the one in AWS_PROFILE, else `default`. `config` has the HTTP options for
    /// credential requests.
    pub(super) fn new(
        name: Option<&str>,
        config: &RemoteConfig,
        connector: &Connector,
    ) -> Result<AwsProfile> {
        let variable = std::env::var("AWS_PROFILE").ok();
        let selected = name.map(str::to_string).or(variable);
        let has_files = files().iter().any(|file| file.is_file());
        let client = has_files.then(|| connector.connect(&client_options(config)).map(AwsClient));
        let client = client.transpose();
        Ok(AwsProfile {
            selected: selected.filter(|name| !name.is_empty()),
            client: client
                .map_err(|fault| Error::unavailable("AWS profile", errors::innermost(&fault)))?,
        })
    }

    fn name(&self) -> &str {
        self.selected.as_deref().unwrap_or("default")
    }

    pub(super) fn display_name(&self) -> String {
        format!("AWS profile {}", self.name())
    }

    /// Returns the profile's settings for S3, without any request.
    pub(super) fn settings(&self) -> Result<ProfileSettings> {
        let ignore_variable = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS";
        let Some(client) = &self.client else {
            let ignores = std::env::var(ignore_variable).ok();
            return Ok(ProfileSettings {
                ignores_endpoints: is_true(ignores),
                ..ProfileSettings::default()
            });
        };
        let (read, _) = wait(&UNLIMITED, TIMEOUT, self.read(client))?;
        let read = read.ok_or_else(|| self.timeout_error())?;
        // A setting comes from the first of these that has it: environment variable, services section, AWS profile.
        let setting = |name: &str, variable: &str| {
            let key = ServiceConfigKey::builder().service_id("s3");
            let key = key.profile(name).env(variable).build().ok()?;
            read.service_config()?.load_config(key)
        };
        Ok(ProfileSettings {
            region: read.region().map(|region| region.as_ref().to_string()),
            endpoint: setting("endpoint_url", "AWS_ENDPOINT_URL"),
            ignores_endpoints: is_true(setting("ignore_configured_endpoint_urls", ignore_variable)),
        })
    }

    async fn read(&self, client: &AwsClient) -> SdkConfig {
        let region = ProfileFileRegionProvider::builder().profile_name(self.name());
        aws_config::defaults(BehaviorVersion::latest())
            .http_client(client.clone())
            .profile_name(self.name())
            .region(region.build())
            .no_credentials()
            .load()
            .await
    }

    /// Waits for the first credentials of the profile and returns them, or `None` if there are none and the user named
    /// no profile. `region` should be the profile's region: it is used for the requests, but the credentials are valid
    /// in every region.
    pub(super) fn credentials(
        &self,
        region: Option<&str>,
    ) -> Result<Option<Arc<RefreshingCredentials<AwsCredential>>>> {
        let Some(client) = self.client.clone() else {
            let why = "no profile found: neither ~/.aws/config nor ~/.aws/credentials exists";
            return match &self.selected {
                Some(_) => Err(Error::new(Kind::Denied, self.display_name(), why)),
                None => Ok(None),
            };
        };
        let region = Region::new(region.unwrap_or(DEFAULT_REGION).to_string());
        let profile = self.clone();
        let credentials = RefreshingCredentials::new(files(), move || {
            Ok(Arc::new(ProfileCredentials {
                client: client.clone(),
                profile: profile.clone(),
                region: region.clone(),
                issued: Mutex::default(),
            }))
        });
        let failed =
            |error| Error::new(Kind::Denied, self.display_name(), errors::innermost(&error));
        let credentials = Arc::new(credentials.map_err(failed)?);
        let (first, _) = wait(&UNLIMITED, TIMEOUT, credentials.get_credential())?;
        match first.ok_or_else(|| self.timeout_error())? {
            Ok(_) => Ok(Some(credentials)),
            Err(error) if self.selected.is_some() => Err(failed(error)),
            Err(error) => {
                log::info!("{}", failed(error));
                Ok(None)
            }
        }
    }

    fn timeout_error(&self) -> Error {
        let why = format!("no credentials received within {} s", TIMEOUT.as_secs());
        Error::unavailable(self.display_name(), why)
    }
}

fn is_true(value: Option<String>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// Returns the paths of the two AWS profile files: each from its environment variable, or else in the home directory.
fn files() -> Vec<PathBuf> {
    let file = |variable: &str, usual: &str| match std::env::var_os(variable) {
        Some(path) if !path.is_empty() => Some(PathBuf::from(path)),
        _ => Some(std::env::home_dir()?.join(usual)),
    };
    let config = file("AWS_CONFIG_FILE", ".aws/config");
    let credentials = file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
    config.into_iter().chain(credentials).collect()
}

/// Returns the HTTP options for AWS credential requests. Requests to the bucket have the same options.
fn client_options(config: &RemoteConfig) -> ClientOptions {
    let defaults = http_client::defaults(config).into_iter();
    let chosen = config.options.iter().filter_map(|(name, value)| {
        let key = name.to_ascii_lowercase().parse::<ClientConfigKey>().ok()?;
        Some((key, value.clone()))
    });
    let options = defaults
        .chain(chosen)
        .fold(ClientOptions::new(), |options, (key, value)| {
            options.with_config(key, value)
        });
    // Metadata services of machines and containers have no TLS.
    options.with_config(ClientConfigKey::AllowHttp, "true")
}

/// AWS credentials and, for temporary ones, the time when they expire.
struct IssuedCredential {
    credential: Arc<AwsCredential>,
    expiry: Option<SystemTime>,
}

impl IssuedCredential {
    fn is_valid_at(&self, time: SystemTime) -> bool {
        self.expiry.is_none_or(|expiry| time < expiry)
    }
}

/// Gives object_store the credentials of an AWS profile.
struct ProfileCredentials {
    profile: AwsProfile,
    client: AwsClient,
    region: Region,
    /// The latest credentials. The lock is held during a renewal, so that only one caller renews them.
    issued: Mutex<Option<IssuedCredential>>,
}

opaque_debug!(ProfileCredentials);

impl ProfileCredentials {
    /// Returns the AWS credentials, renewed if they expire soon. If the renewal fails, the old credentials are used
    /// until they expire.
    async fn renewed(&self) -> std::result::Result<Arc<AwsCredential>, String> {
        let mut issued = self.issued.lock().await;
        // Credentials are renewed 5 minutes before they expire.
        let now = SystemTime::now();
        if let Some(issued) = issued
            .as_ref()
            .filter(|issued| issued.is_valid_at(now + Duration::from_secs(300)))
        {
            return Ok(issued.credential.clone());
        }
        match self.issue().await {
            Ok(new) => Ok(issued.insert(new).credential.clone()),
            Err(why) => match issued.as_ref().filter(|issued| issued.is_valid_at(now)) {
                Some(left) => {
                    log::warn!("{}: {why}", self.profile.display_name());
                    Ok(left.credential.clone())
                }
                None => Err(why),
            },
        }
    }

    /// Requests new credentials. The provider is built again each time, since it caches the content of the profile
    /// files.
    async fn issue(&self) -> std::result::Result<IssuedCredential, String> {
        let config = ProviderConfig::without_region()
            .with_region(Some(self.region.clone()))
            .with_http_client(self.client.clone());
        let provider = ProfileFileCredentialsProvider::builder()
            .configure(&config)
            .profile_name(self.profile.name())
            .build();
        let issued = provider.provide_credentials().await;
        let issued = issued.map_err(|error| self.why(&error))?;
        Ok(IssuedCredential {
            credential: Arc::new(AwsCredential {
                key_id: issued.access_key_id().to_string(),
                secret_key: issued.secret_access_key().to_string(),
                token: issued.session_token().map(str::to_string),
            }),
            expiry: issued.expiry(),
        })
    }

    /// Returns the message of an error of the AWS library: its causes, from the outermost to the innermost.
    fn why(&self, error: &CredentialsError) -> String {
        let mut reasons: Vec<String> = Vec::new();
        let mut source = error.source();
        while let Some(reason) = source {
            let text = reason.to_string();
            // Some errors repeat the text of their cause, so a text that was already listed is left out.
            if !reasons.iter().any(|earlier| earlier.contains(&text)) {
                reasons.push(text);
            }
            source = reason.source();
        }
        let name = self.profile.name();
        let why: String = reasons.join(": ").chars().take(400).collect();
        match error {
            CredentialsError::CredentialsNotLoaded(_) => {
                "no credentials in ~/.aws/config or ~/.aws/credentials".to_string()
            }
            // The AWS library has no error type for a failed single sign-on, but the messages contain one of these
            // words.
            _ if ["SSO", "sso", "access token", "UnauthorizedException"]
                .iter()
                .any(|word| why.contains(word)) =>
            {
                format!("{why}; run 'aws sso login --profile {name}' to sign in again")
            }
            _ => why,
        }
    }
}

#[async_trait::async_trait]
impl CredentialProvider for ProfileCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        self.renewed()
            .await
            .map_err(|text| object_store::Error::Unauthenticated {
                path: String::new(),
                source: text.into(),
            })
    }
}

/// Gives the AWS library an HTTP client of object_store.
#[derive(Clone, Debug)]
struct AwsClient(HttpClient);

impl AwsClient {
    async fn send(
        self,
        request: orchestrator::HttpRequest,
    ) -> std::result::Result<orchestrator::HttpResponse, ConnectorError> {
        let request = request.try_into_http1x();
        let (head, body) = request
            .map_err(|error| ConnectorError::user(error.into()))?
            .into_parts();
        let body = body.bytes().unwrap_or_default().to_vec();
        let request = HttpRequest::from_parts(head, body.into());
        let response = execute_with_imdsv1(&self.0, request).await;
        let response = response.map_err(|error| ConnectorError::io(error.into()))?;
        let (head, body) = response.into_parts();
        let mut pieces = body.bytes_stream();
        let mut body = Vec::new();
        while let Some(piece) = pieces
            .try_next()
            .await
            .map_err(|error| ConnectorError::io(error.into()))?
        {
            let most = 1 << 20;
            if body.len() + piece.len() > most {
                let why = format!("the response is longer than {most} bytes");
                return Err(ConnectorError::other(why.into(), None));
            }
            body.extend_from_slice(&piece);
        }
        let response = http::Response::from_parts(head, body.into());
        response
            .try_into()
            .map_err(|error: aws_smithy_runtime_api::http::HttpError| {
                ConnectorError::other(error.into(), None)
            })
    }
}

impl AwsHttpConnector for AwsClient {
    fn call(&self, request: orchestrator::HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(self.clone().send(request))
    }
}

impl AwsHttpClient for AwsClient {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}
