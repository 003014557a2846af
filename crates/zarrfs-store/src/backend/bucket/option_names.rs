//! Checks the names of `--option`, and suggests the nearest known name.

use super::address::CloudKind;
use crate::backend::remote::http_client::{CLIENT_OPTIONS, unknown_option};
use zarr_format::error::{Error, Result};

const S3: [&str; 19] = [
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
];

const GOOGLE: [&str; 6] = [
    "application_credentials",
    "base_url",
    "bearer_token",
    "service_account",
    "service_account_key",
    "skip_signature",
];

const AZURE: [&str; 18] = [
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
];

/// Optional prefixes of the names, taken from the environment variables.
const PREFIXES: [&str; 4] = ["aws_", "google_", "azure_storage_", "azure_"];

/// Returns an error if a kind of bucket has no option of this name.
pub(super) fn check(kind: CloudKind, name: &str) -> Result<()> {
    let lower = name.to_ascii_lowercase();
    let bare = PREFIXES
        .iter()
        .find_map(|prefix| lower.strip_prefix(prefix));
    let bare = bare.unwrap_or(&lower);
    if of(kind).any(|known| known == bare) {
        return Ok(());
    }
    Err(unknown(kind, name))
}

/// Returns the error for an unknown option.
pub(super) fn unknown(kind: CloudKind, name: &str) -> Error {
    unknown_option(name, &of(kind).collect::<Vec<_>>())
}

fn of(kind: CloudKind) -> impl Iterator<Item = &'static str> {
    let own: &[&str] = match kind {
        CloudKind::S3 => &S3,
        CloudKind::Google => &GOOGLE,
        CloudKind::Azure => &AZURE,
    };
    own.iter().chain(&CLIENT_OPTIONS).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_told() {
        assert!(
            check(CloudKind::S3, "AWS_REGION").is_ok()
                && check(CloudKind::Azure, "sas_token").is_ok()
        );
        let error = check(CloudKind::S3, "acess_key_id")
            .unwrap_err()
            .to_string();
        assert!(error.contains("did you mean 'access_key_id'?"), "{error}");
        let error = check(CloudKind::Google, "colour").unwrap_err().to_string();
        assert!(
            error.contains("known are application_credentials"),
            "{error}"
        );
    }

    #[test]
    fn every_name_is_one_of_the_clients() {
        use object_store::aws::AmazonS3ConfigKey;
        use object_store::azure::AzureConfigKey;
        use object_store::gcp::GoogleConfigKey;
        for name in of(CloudKind::S3).filter(|name| *name != "profile") {
            assert!(name.parse::<AmazonS3ConfigKey>().is_ok(), "{name}");
        }
        for name in of(CloudKind::Google) {
            assert!(name.parse::<GoogleConfigKey>().is_ok(), "{name}");
        }
        for name in of(CloudKind::Azure) {
            assert!(name.parse::<AzureConfigKey>().is_ok(), "{name}");
        }
    }
}
