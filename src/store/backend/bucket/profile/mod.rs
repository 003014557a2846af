//! Credentials and region of AWS profiles: `~/.aws/config`, `~/.aws/credentials`, single sign-on, roles, programs.
//!
//! A profile is read where object_store finds no credentials of its own, and again before its credentials expire. AWS's
//! library for this would be a tenth of the program. What a profile means is `chain`, what its files are `files`; the
//! text of an error has no secrets.

mod chain;
mod files;
mod program;
mod roles;
mod servers;
mod sources;
mod sso;
mod times;
mod variables;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object_store::aws::AwsCredential;
use object_store::{ClientConfigKey, ClientOptions, CredentialProvider};
use tokio::sync::Mutex;

use self::files::ProfileFiles;
use self::servers::ServerClient;
use self::variables::AwsVariables;
use crate::error::{Error, Kind, Result};
use crate::store::RemoteConfig;
use crate::store::backend::remote::client_options;
use crate::store::backend::remote::connector::Connector;
use crate::store::backend::remote::runtime::wait;

/// Time limit of reading a profile: programs and servers are asked for credentials.
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
/// names one and there are no files of profiles. `region` is that of the bucket, where it is known. Servers are asked as
/// `config` says.
pub(super) fn read(
    name: Option<&str>,
    region: Option<String>,
    config: &RemoteConfig,
    connector: &Connector,
) -> Result<Option<Profile>> {
    let variables = AwsVariables::of_process();
    let wanted = name.or_else(|| variables.get("AWS_PROFILE"));
    let wanted = wanted.map(str::to_string);
    let shown = format!("AWS profile {}", wanted.as_deref().unwrap_or("default"));
    let files = [variables.config_file(), variables.credentials_file()];
    if !files.iter().any(|file| file.is_file()) {
        let why = "there is neither ~/.aws/config nor ~/.aws/credentials";
        return wanted.map_or(Ok(None), |_| Err(Error::new(Kind::Denied, shown, why)));
    }
    let reader = ProfileReader {
        variables,
        name: wanted.clone().unwrap_or_else(|| "default".to_string()),
        region: region.unwrap_or_else(|| USUAL_REGION.to_string()),
        connector: connector.clone(),
        options: options(config),
    };
    let (read, _) = wait(TIMEOUT, profile(reader))?;
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

/// Returns the settings of the client that asks servers for credentials: those of the bucket's client.
fn options(config: &RemoteConfig) -> ClientOptions {
    let defaults = client_options::defaults(config).into_iter();
    let given = config.options.iter().filter_map(|(name, value)| {
        let key = name.to_ascii_lowercase().parse::<ClientConfigKey>().ok()?;
        Some((key, value.clone()))
    });
    let options = defaults
        .chain(given)
        .fold(ClientOptions::new(), |options, (key, value)| {
            options.with_config(key, value)
        });
    // Servers without TLS are those that a variable names.
    options.with_config(ClientConfigKey::AllowHttp, "true")
}

/// Reads a profile with its first credentials. A server that gives them for a role is asked in the region of the profile,
/// or of the profile that the role is assumed by; what it gives is good for every region.
async fn profile(mut reader: ProfileReader) -> std::result::Result<Profile, String> {
    let files = ProfileFiles::read(&reader.variables)?;
    let region = chain::region(&files, &reader.name).map(str::to_string);
    if let Some(region) = &region {
        reader.region.clone_from(region);
    }
    let credentials = Arc::new(ProfileCredentials {
        reader,
        cached: Mutex::default(),
    });
    credentials.renewed().await?;
    Ok(Profile {
        credentials,
        region,
    })
}

/// Credentials, and until when they are good, if not for ever.
struct IssuedCredential {
    credential: Arc<AwsCredential>,
    expiry: Option<SystemTime>,
}

impl IssuedCredential {
    fn new(
        key_id: String,
        secret_key: String,
        token: Option<String>,
        expiry: Option<SystemTime>,
    ) -> IssuedCredential {
        IssuedCredential {
            credential: Arc::new(AwsCredential {
                key_id,
                secret_key,
                token,
            }),
            expiry,
        }
    }

    /// Whether it is not about to expire.
    fn is_good(&self) -> bool {
        let margin = SystemTime::now() + RENEWAL_MARGIN;
        self.expiry.is_none_or(|expiry| margin < expiry)
    }
}

/// A profile, and with what its credentials are asked for.
struct ProfileReader {
    variables: AwsVariables,
    name: String,
    /// Where servers are asked.
    region: String,
    connector: Connector,
    options: ClientOptions,
}

impl ProfileReader {
    /// Reads the files anew, and returns the credentials that they lead to.
    async fn credentials(&self) -> std::result::Result<IssuedCredential, String> {
        let files = ProfileFiles::read(&self.variables)?;
        let chain = chain::resolve(&files, &self.name)?;
        let client = ServerClient::new(&self.connector, &self.options)?;
        let mut issued = sources::credentials(chain.source, self, &client).await?;
        for role in &chain.roles {
            let place = (&self.variables, self.region.as_str());
            issued = roles::assume(role, &issued.credential, place, &client).await?;
        }
        Ok(issued)
    }
}

/// The credentials of a profile, for object_store.
pub(super) struct ProfileCredentials {
    reader: ProfileReader,
    cached: Mutex<Option<IssuedCredential>>,
}

impl std::fmt::Debug for ProfileCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProfileCredentials")
    }
}

impl ProfileCredentials {
    /// Returns the credentials, renewed if they are about to expire. Those that cannot be renewed are used to their end.
    async fn renewed(&self) -> std::result::Result<Arc<AwsCredential>, String> {
        let mut cached = self.cached.lock().await;
        if let Some(issued) = cached.as_ref().filter(|issued| issued.is_good()) {
            return Ok(issued.credential.clone());
        }
        match self.reader.credentials().await {
            Ok(issued) => Ok(cached.insert(issued).credential.clone()),
            Err(why) => {
                let now = SystemTime::now();
                let left = cached.as_ref();
                let left = left.filter(|issued| issued.expiry.is_some_and(|expiry| now < expiry));
                let left = left.map(|issued| issued.credential.clone());
                left.inspect(|_| log::warn!("AWS profile {}: {why}", self.reader.name))
                    .ok_or(why)
            }
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
