//! Credentials and region of AWS profiles: `~/.aws/config`, `~/.aws/credentials`, SSO, credential programs.
//!
//! A profile is read where object_store finds no credentials of its own, and again before its credentials expire.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_config::Region;
use aws_config::meta::region::ProvideRegion;
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

/// The region in which credentials are asked for where nothing names one: the one in which objects are, then.
const USUAL_REGION: &str = "us-east-1";

/// The credentials and the region of a profile.
pub(super) struct Profile {
    pub(super) credentials: Arc<ProfileCredentials>,
    pub(super) region: Option<String>,
}

/// Reads the profile `name`, or that of the environment, or `default`. Nothing if neither `name` nor the environment
/// names one and there are no files of profiles. `region` is that of the bucket, where it is known.
pub(super) fn read(name: Option<&str>, region: Option<String>) -> Result<Option<Profile>> {
    let wanted = name.map(str::to_string).or_else(|| variable("AWS_PROFILE"));
    let shown = format!("AWS profile {}", wanted.as_deref().unwrap_or("default"));
    if !has_files() {
        let why = "there is neither ~/.aws/config nor ~/.aws/credentials";
        return wanted.map_or(Ok(None), |_| Err(Error::new(Kind::Denied, shown, why)));
    }
    let (read, _) = wait(TIMEOUT, credentials(wanted.clone(), region))?;
    match read {
        Some(Ok(profile)) => Ok(Some(profile)),
        Some(Err(error)) if wanted.is_some() => Err(Error::new(Kind::Denied, shown, error)),
        Some(Err(error)) => {
            log::info!("{shown}: {error}");
            Ok(None)
        }
        None => {
            let why = format!("no credentials within {} s", TIMEOUT.as_secs());
            Err(Error::unavailable(shown, why))
        }
    }
}

/// Reads a profile with its first credentials. A server that gives them for a role is asked in the region of the profile,
/// or of the profile that the role is assumed by; what it gives is good for every region.
async fn credentials(
    name: Option<String>,
    given: Option<String>,
) -> std::result::Result<Profile, String> {
    let mut region = ProfileFileRegionProvider::builder();
    let mut credentials = ProfileFileCredentialsProvider::builder();
    if let Some(name) = &name {
        region = region.profile_name(name);
        credentials = credentials.profile_name(name);
    }
    let region = region.build().region().await;
    let asked = region.clone().or_else(|| given.map(Region::new));
    let asked = asked.unwrap_or(Region::from_static(USUAL_REGION));
    let config = provider_config().with_region(Some(asked));
    let provider = Arc::new(ProfileCredentials {
        provider: credentials.configure(&config).build(),
        cached: Mutex::default(),
    });
    provider.renewed().await?;
    Ok(Profile {
        credentials: provider,
        region: region.map(|region| region.to_string()),
    })
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
