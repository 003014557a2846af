//! Options of remote stores: clap definitions, and the configuration made from them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::cli::{format, values};
use zarr_format::error::{Error, Result};
use zarrfs_store::RemoteConfig;

/// How a store on the network is reached.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Stores on the network")]
pub struct RemoteArgs {
    /// An option of the store, such as region=eu-west-1; may be given several times
    #[arg(long = "option", value_name = "KEY=VALUE", action = ArgAction::Append, value_parser = pair)]
    pub settings: Vec<(String, String)>,
    /// Ask without credentials, also if there are some
    #[arg(long)]
    pub anon: bool,
    /// Where the server is, such as http://localhost:9000
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// Region of the bucket
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// How the server answers for keys that it does not have, if not by 404: such as 403
    #[arg(long, value_name = "STATUS", value_parser = missing_status)]
    pub missing_is: Option<u16>,
    /// Profile of ~/.aws with the credentials of an S3 bucket
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// For how long names and metadata are taken for true before the store is asked again; 0 asks each time
    #[arg(long, value_name = "DURATION", value_parser = values::duration_or_zero, default_value = "60s")]
    pub metadata_ttl: Duration,
    /// The store never changes: nothing is asked twice
    #[arg(long)]
    pub immutable: bool,
    /// The most requests to the store at a time, 1 to 1024
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), default_value = "32")]
    pub concurrency: u16,
    /// Keep what was read in this folder, for later mounts and for decoded chunks that memory has no room for
    #[arg(long, value_name = "PATH")]
    pub cache_dir: Option<PathBuf>,
    /// The most that the folder takes
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "10G")]
    pub cache_size: u64,
}

/// TTL of names and metadata of an immutable store.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl RemoteArgs {
    /// Returns the configuration of the store layer; a request takes at most `timeout`.
    pub(super) fn config(&self, timeout: Duration) -> Result<RemoteConfig> {
        Ok(RemoteConfig {
            cache_dir: self
                .cache_dir
                .as_deref()
                .map(values::absolute)
                .transpose()?,
            cache_size: self.cache_size,
            options: self.options(),
            anonymous: self.anon,
            may_be_empty: false,
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            missing_is: self.missing_is,
            timeout,
            concurrency: usize::from(self.concurrency),
            metadata_ttl: if self.immutable {
                FOREVER
            } else {
                self.metadata_ttl
            },
        })
    }

    /// Returns the options of the store, including the profile.
    fn options(&self) -> Vec<(String, String)> {
        let profile = self.profile.iter();
        let profile = profile.map(|name| ("profile".to_string(), name.clone()));
        self.settings.iter().cloned().chain(profile).collect()
    }
}

/// Parses `key=value`.
fn pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_string(), value.to_string())),
        // The text may be a secret, so the error does not repeat it.
        _ => Err("expected KEY=VALUE".to_string()),
    }
}

/// Sets an `-o` option without a value; returns false if the name is not one of them.
pub(super) fn apply_switch(config: &mut RemoteConfig, name: &str) -> bool {
    match name {
        "anon" => config.anonymous = true,
        "immutable" => config.metadata_ttl = FOREVER,
        _ => return false,
    }
    true
}

/// Sets an `-o` option with a value; returns false if the name is not one of them.
pub(super) fn apply_value(config: &mut RemoteConfig, name: &str, value: &str) -> Result<bool> {
    match name {
        "option" => {
            let pair = pair(value).map_err(|text| Error::invalid("", text))?;
            config.options.push(pair);
        }
        "endpoint" => config.endpoint = Some(value.to_string()),
        "region" => config.region = Some(value.to_string()),
        "missing_is" => {
            let status = missing_status(value).map_err(|text| Error::invalid("", text))?;
            config.missing_is = Some(status);
        }
        "profile" => config.options.push((name.to_string(), value.to_string())),
        "metadata_ttl" => config.metadata_ttl = values::duration_or_zero(value)?,
        "concurrency" => config.concurrency = concurrency(value)?,
        "cache_dir" => config.cache_dir = Some(values::absolute(Path::new(value))?),
        "cache_size" => config.cache_size = values::size(value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Parses the status of a missing key. Server errors, and statuses about the form or time of a request, are refused: a
/// chunk that could not be read would seem to be missing.
fn missing_status(text: &str) -> std::result::Result<u16, String> {
    let status = text.parse().ok();
    let status = status.filter(|status| (400..500).contains(status));
    let status = status.filter(|status| ![404, 407, 408, 412, 416, 429].contains(status));
    status.ok_or_else(|| "expected a status such as 400 or 403; 404 always counts".to_string())
}

fn concurrency(value: &str) -> Result<usize> {
    let number = value
        .parse()
        .ok()
        .filter(|number| (1..=1024).contains(number));
    number.ok_or_else(|| Error::invalid(format!("'{value}'"), "expected 1 to 1024"))
}

/// Returns the options in force for `mount.json`, without values that may be secrets.
pub(super) fn options_in_force(config: &RemoteConfig) -> Vec<(&'static str, String)> {
    let names = config.options.iter().map(|(name, _)| name.as_str());
    let endpoint = config.endpoint.as_deref().map(zarrfs_store::redacted);
    let cache_dir = config.cache_dir.as_ref();
    let ttl = match config.metadata_ttl {
        FOREVER => "immutable".to_string(),
        ttl => format::duration(ttl),
    };
    vec![
        ("option", names.collect::<Vec<_>>().join(",")),
        ("anon", config.anonymous.to_string()),
        ("endpoint", endpoint.unwrap_or_default()),
        ("region", config.region.clone().unwrap_or_default()),
        (
            "missing_is",
            config
                .missing_is
                .map_or_else(String::new, |status| status.to_string()),
        ),
        ("metadata_ttl", ttl),
        ("concurrency", config.concurrency.to_string()),
        (
            "cache_dir",
            cache_dir.map_or_else(String::new, |path| path.display().to_string()),
        ),
        ("cache_size", format::size(config.cache_size)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_options_are_not_shown() {
        let mut config = RemoteConfig::default();
        assert!(apply_value(&mut config, "option", "secret_access_key=hush").unwrap());
        assert!(apply_value(&mut config, "endpoint", "http://me:hush@host/?a=hush").unwrap());
        assert!(apply_value(&mut config, "concurrency", "0").is_err());
        assert!(apply_value(&mut config, "missing_is", "500").is_err());
        let text = format!("{:?} {config:?}", options_in_force(&config));
        assert!(
            text.contains("secret_access_key") && !text.contains("hush"),
            "{text}"
        );
    }
}
