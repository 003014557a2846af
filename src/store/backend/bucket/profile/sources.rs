//! The first credentials of a chain, from wherever its profile says.
//!
//! Tokens of web identities and metadata addresses are object_store's own business: a client of it is made for them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object_store::RetryConfig;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as S3Key, AwsCredential};

use super::chain::CredentialSource;
use super::servers::{CredentialServer, ServerClient};
use super::variables::AwsVariables;
use super::{IssuedCredential, ProfileReader, RENEWAL_MARGIN, program, roles, sso};
use crate::store::backend::remote::fault;

/// How long credentials of object_store are used before it is asked for them again: it does not say when they expire.
const UNKNOWN_LIFE: Duration = Duration::from_secs(60);

/// How often one source is asked again, and how long.
const RETRIES: usize = 2;
const RETRY_LIMIT: Duration = Duration::from_secs(10);

/// Returns the credentials of a source.
pub(super) async fn credentials(
    source: CredentialSource,
    reader: &ProfileReader,
    client: &ServerClient,
) -> Result<IssuedCredential, String> {
    match source {
        CredentialSource::Keys {
            key_id,
            secret_key,
            token,
        } => Ok(IssuedCredential::new(key_id, secret_key, token, None)),
        CredentialSource::Program(command) => {
            let run = tokio::task::spawn_blocking(move || program::credentials(&command));
            run.await
                .map_err(|error| format!("credential_process: {error}"))?
        }
        CredentialSource::SingleSignOn(account) => {
            sso::credentials(&account, &reader.variables, client).await
        }
        CredentialSource::WebIdentity {
            token_file,
            role,
            session,
        } => {
            let server = CredentialServer::SecurityTokens.url(&reader.variables, &reader.region);
            let settings = [
                (S3Key::WebIdentityTokenFile, token_file),
                (S3Key::RoleArn, role),
                (
                    S3Key::RoleSessionName,
                    session.unwrap_or_else(roles::usual_session),
                ),
                (S3Key::StsEndpoint, server),
            ];
            given(reader, &settings).await
        }
        CredentialSource::Named(name) => named(&name, reader).await,
    }
}

/// Returns the credentials that `credential_source = NAME` means.
async fn named(name: &str, reader: &ProfileReader) -> Result<IssuedCredential, String> {
    match name.to_ascii_lowercase().as_str() {
        "environment" => of_environment(&reader.variables),
        "ecscontainer" => given(reader, &container(&reader.variables)?).await,
        "ec2instancemetadata" => {
            let address = reader.variables.get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
            let settings = address.map(|address| (S3Key::MetadataEndpoint, address.to_string()));
            given(reader, settings.as_slice()).await
        }
        _ => Err(format!(
            "credential_source '{name}': expected Environment, Ec2InstanceMetadata or EcsContainer"
        )),
    }
}

fn of_environment(variables: &AwsVariables) -> Result<IssuedCredential, String> {
    let variable = |name: &str| variables.get(name).map(str::to_string);
    let keys = variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY"));
    let (key_id, secret_key) = keys.ok_or(
        "credential_source is Environment, which lacks AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY",
    )?;
    let token = variable("AWS_SESSION_TOKEN");
    Ok(IssuedCredential::new(key_id, secret_key, token, None))
}

/// Variables by which a container says where its credentials are.
const CONTAINER: [(S3Key, &str); 3] = [
    (
        S3Key::ContainerCredentialsRelativeUri,
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    ),
    (
        S3Key::ContainerCredentialsFullUri,
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ),
    (
        S3Key::ContainerAuthorizationTokenFile,
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    ),
];

fn container(variables: &AwsVariables) -> Result<Vec<(S3Key, String)>, String> {
    let settings = CONTAINER
        .iter()
        .filter_map(|(key, name)| Some((*key, variables.get(name)?.to_string())));
    let settings: Vec<(S3Key, String)> = settings.collect();
    if settings.is_empty() {
        let why = "credential_source is EcsContainer, and no container says where to ask";
        return Err(why.to_string());
    }
    Ok(settings)
}

/// Returns the credentials that object_store has by `settings`.
async fn given(
    reader: &ProfileReader,
    settings: &[(S3Key, String)],
) -> Result<IssuedCredential, String> {
    let retry = RetryConfig {
        max_retries: RETRIES,
        retry_timeout: RETRY_LIMIT,
        ..RetryConfig::default()
    };
    let builder = AmazonS3Builder::new()
        .with_bucket_name("credentials")
        .with_region(&reader.region)
        .with_retry(retry)
        .with_http_connector(reader.connector.clone());
    let builder = settings.iter().fold(builder, |builder, (key, value)| {
        builder.with_config(*key, value)
    });
    let failed = |error: object_store::Error| fault::innermost(&error);
    let provider = builder.build().map_err(failed)?;
    let credential: Arc<AwsCredential> = provider
        .credentials()
        .get_credential()
        .await
        .map_err(failed)?;
    Ok(IssuedCredential {
        credential,
        expiry: Some(SystemTime::now() + RENEWAL_MARGIN + UNKNOWN_LIFE),
    })
}
