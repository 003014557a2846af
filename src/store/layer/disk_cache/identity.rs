//! What tells one store from another in the cache: everything that can change the bytes that it gives.
//!
//! That is its whole URL, with user, password and query, and whatever chooses the server and the credentials: options,
//! the environment and the home directory with its files of credentials. Some of these are secrets, so each counts by
//! its hash. Credentials that are replaced in a file are not seen here: the server decides about access.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use sha2::{Digest, Sha256};

use crate::store::{RemoteConfig, normalized};

/// What the variables of the clouds' own programs begin with.
const CLOUDS: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// Options of the HTTP client that only say how long it waits and how many connections it keeps.
const CONNECTION_OPTIONS: [&str; 4] = [
    "connect_timeout",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "read_timeout",
];

/// Returns the identity of the store at a URL, reached as `remote` says from the environment of this process.
pub fn identity(location: &str, remote: &RemoteConfig) -> String {
    let environment = std::env::vars_os().collect();
    let home = std::env::home_dir().unwrap_or_default();
    in_environment(location, remote, environment, home.as_os_str().as_bytes())
}

/// Returns the identity of a store in an environment: a line for each part.
fn in_environment(
    location: &str,
    remote: &RemoteConfig,
    environment: Vec<(OsString, OsString)>,
    home: &[u8],
) -> String {
    let location = without_last_slash(&normalized(location));
    let anonymous = if remote.anonymous { "true" } else { "false" };
    let mut parts = vec![
        part("url", location.as_bytes()),
        part("anonymous", anonymous.as_bytes()),
        part("home", home),
    ];
    for (name, value) in [("endpoint", &remote.endpoint), ("region", &remote.region)] {
        parts.extend(value.iter().map(|value| part(name, value.as_bytes())));
    }
    let mut options: Vec<(String, &str)> = remote
        .options
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.as_str()))
        .filter(|(name, _)| !CONNECTION_OPTIONS.contains(&name.as_str()))
        .collect();
    // Of options with one name the last counts, so their order stays.
    options.sort_by(|(one, _), (other, _)| one.cmp(other));
    parts.extend(options.iter().map(|(name, value)| {
        let name = format!("option {name}");
        part(&name, value.as_bytes())
    }));
    let mut variables: Vec<String> = environment
        .iter()
        .filter_map(|(name, value)| {
            let name = name.to_str()?;
            let is_of_cloud = CLOUDS.iter().any(|cloud| name.starts_with(cloud));
            is_of_cloud.then(|| part(&format!("variable {name}"), value.as_bytes()))
        })
        .collect();
    variables.sort_unstable();
    parts.extend(variables);
    parts.join("\n")
}

/// Returns a part of the identity: its name, and the hash of both.
fn part(name: &str, value: &[u8]) -> String {
    let digest = Sha256::new().chain_update(name).chain_update([0]);
    format!("{name} {:x}", digest.chain_update(value).finalize())
}

/// Returns a URL without the slashes at the end of its path.
fn without_last_slash(url: &str) -> String {
    let (path, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    format!("{}{query}", path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const URL: &str = "https://host/a.zarr";

    fn of(url: &str, remote: &RemoteConfig, environment: &[(&str, &str)]) -> String {
        let environment = environment.iter();
        let environment = environment.map(|(name, value)| (name.into(), value.into()));
        in_environment(url, remote, environment.collect(), b"/home/me")
    }

    fn with_option(name: &str, value: &str) -> RemoteConfig {
        RemoteConfig {
            options: vec![(name.to_string(), value.to_string())],
            ..RemoteConfig::default()
        }
    }

    #[test]
    fn b04_whatever_changes_the_bytes_is_another_store() {
        let plain = RemoteConfig::default();
        let some = |text: &str| Some(text.to_string());
        let (endpoint, region) = (some("http://other"), some("eu-west-1"));
        let found = [
            of(URL, &plain, &[]),
            of("https://host/a.zarr?v=1", &plain, &[]),
            of("https://host/a.zarr?v=2", &plain, &[]),
            of("https://alice:pw@host/a.zarr", &plain, &[]),
            of("https://bob:pw@host/a.zarr", &plain, &[]),
            of("https://bob:other@host/a.zarr", &plain, &[]),
            of(
                URL,
                &RemoteConfig {
                    endpoint,
                    ..plain.clone()
                },
                &[],
            ),
            of(
                URL,
                &RemoteConfig {
                    region,
                    ..plain.clone()
                },
                &[],
            ),
            of(
                URL,
                &RemoteConfig {
                    anonymous: true,
                    ..plain.clone()
                },
                &[],
            ),
            of(URL, &with_option("profile", "alice"), &[]),
            of(URL, &with_option("profile", "bob"), &[]),
            of(URL, &with_option("account_name", "bob"), &[]),
            of(URL, &with_option("sas_key", "bob"), &[]),
            of(URL, &plain, &[("AWS_PROFILE", "alice")]),
            of(URL, &plain, &[("AWS_PROFILE", "bob")]),
            of(URL, &plain, &[("AWS_ACCESS_KEY_ID", "bob")]),
            of(URL, &plain, &[("GOOGLE_APPLICATION_CREDENTIALS", "/bob")]),
        ];
        assert_eq!(found.iter().collect::<HashSet<_>>().len(), found.len());
    }

    #[test]
    fn b04_the_same_mount_is_the_same_store() {
        let plain = RemoteConfig::default();
        let first = of(
            URL,
            &plain,
            &[("AWS_A", "1"), ("PATH", "/bin"), ("AWS_B", "2")],
        );
        assert_eq!(
            first,
            of(
                "HTTPS://host/a.zarr/",
                &plain,
                &[("AWS_B", "2"), ("AWS_A", "1")]
            )
        );
        let query = of("https://host/a/?v=1", &plain, &[]);
        assert_eq!(
            query,
            of(
                "https://host/a?v=1",
                &with_option("read_timeout", "7s"),
                &[]
            )
        );
        assert_ne!(query, of("https://host/a?v=1/", &plain, &[]));
    }

    #[test]
    fn b04_no_secret_is_in_an_identity() {
        let remote = with_option("secret_access_key", "hidden");
        let found = of(
            "https://me:hidden@host/?sig=hidden",
            &remote,
            &[("AWS_A", "hidden")],
        );
        assert!(!found.contains("hidden"), "{found}");
    }
}
