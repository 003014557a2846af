//! Credentials and region of AWS profiles: `~/.aws/config`, `~/.aws/credentials`, SSO, credential programs.
//!
//! A profile is read where object_store finds no credentials of its own, and again before its credentials expire.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_config::profile::{ProfileFileCredentialsProvider, ProfileFileRegionProvider};
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::provider::ProvideCredentials;
use aws_smithy_http_client::tls;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use tokio::sync::Mutex;

use crate::error::{Error, Kind, Result};
use crate::store::backend::remote::fault;
use crate::store::backend::remote::runtime::wait;

/// Time limit of reading a profile: SSO requests credentials from a server.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How long before they expire credentials are renewed.
const RENEWAL_MARGIN: Duration = Duration::from_secs(300);

/// The credentials and the region of a profile.
pub(super) struct Profile {
    pub(super) credentials: Arc<ProfileCredentials>,
    pub(super) region: Option<String>,
}

/// Reads the profile `name`, or that of the environment, or `default`. Nothing if neither `name` nor the environment
/// names one and there are no files of profiles.
pub(super) fn read(name: Option<&str>) -> Result<Option<Profile>> {
    let wanted = name.map(str::to_string).or_else(|| variable("AWS_PROFILE"));
    if !has_files() {
        let why = "there is neither ~/.aws/config nor ~/.aws/credentials";
        let missing = |name| Error::new(Kind::Denied, format!("AWS profile {name}"), why);
        return wanted.map_or(Ok(None), |name| Err(missing(name)));
    }
    let mut credentials = ProfileFileCredentialsProvider::builder().configure(&provider_config());
    let mut region = ProfileFileRegionProvider::builder();
    if let Some(name) = &wanted {
        credentials = credentials.profile_name(name);
        region = region.profile_name(name);
    }
    let provider = Arc::new(ProfileCredentials {
        provider: credentials.build(),
        cached: Mutex::default(),
    });
    let shown = wanted.as_deref().unwrap_or("default");
    let (read, _) = wait(TIMEOUT, async {
        use aws_config::meta::region::ProvideRegion;
        (provider.renewed().await, region.build().region().await)
    })?;
    match read {
        Some((Ok(_), region)) => Ok(Some(Profile {
            credentials: provider,
            region: region.map(|region| region.to_string()),
        })),
        Some((Err(error), _)) if wanted.is_some() => Err(Error::new(
            Kind::Denied,
            format!("AWS profile {shown}"),
            error,
        )),
        Some((Err(error), _)) => {
            log::info!("AWS profile {shown}: {error}");
            Ok(None)
        }
        None => Err(Error::unavailable(
            format!("AWS profile {shown}"),
            format!("no credentials within {} s", TIMEOUT.as_secs()),
        )),
    }
}

/// Returns how servers are asked for credentials, with the cryptography of all other clients.
fn provider_config() -> ProviderConfig {
    let client = aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(CryptoMode::Ring))
        .build_https();
    ProviderConfig::without_region().with_http_client(client)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether there is a file of profiles where AWS's own programs look for it.
fn has_files() -> bool {
    let home = variable("HOME").map(PathBuf::from).unwrap_or_default();
    [
        ("AWS_CONFIG_FILE", ".aws/config"),
        ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
    ]
    .iter()
    .any(|(name, usual)| {
        let path = variable(name).map_or_else(|| home.join(usual), PathBuf::from);
        path.is_file()
    })
}

/// The credentials of a profile, for object_store.
pub(super) struct ProfileCredentials {
    provider: ProfileFileCredentialsProvider,
    cached: Mutex<Option<(Arc<AwsCredential>, Option<SystemTime>)>>,
}

impl std::fmt::Debug for ProfileCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProfileCredentials")
    }
}

impl ProfileCredentials {
    /// Returns the credentials, renewed if they are about to expire; the text of an error has no secrets.
    async fn renewed(&self) -> std::result::Result<Arc<AwsCredential>, String> {
        let mut cached = self.cached.lock().await;
        if let Some((credential, expiry)) = &*cached
            && expiry.is_none_or(|expiry| SystemTime::now() + RENEWAL_MARGIN < expiry)
        {
            return Ok(credential.clone());
        }
        let found = self.provider.provide_credentials().await;
        let found = found.map_err(|error| fault::root_cause(&error).to_string())?;
        let credential = Arc::new(AwsCredential {
            key_id: found.access_key_id().to_string(),
            secret_key: found.secret_access_key().to_string(),
            token: found.session_token().map(str::to_string),
        });
        *cached = Some((credential.clone(), found.expiry()));
        Ok(credential)
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
