//! Defines the command-line options of remote stores, and converts them to a configuration.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::cli::{format, values};
use zarr_format::error::{Error, Result};
use zarrfs_store::{FOREVER, Login, RemoteConfig, default_netrc};

/// Heading of the options of remote stores in the help.
pub(super) const HEADING: &str = "Remote stores";

/// Options of the connection to a remote store.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = HEADING)]
pub struct RemoteArgs {
    /// Read a public store; ignore all credentials
    ///
    /// --no-sign-request is another name of this option.
    #[arg(long, alias = "no-sign-request")]
    pub anon: bool,
    /// URL of the server, such as http://localhost:9000
    ///
    /// --endpoint-url is another name of this option.
    #[arg(long, alias = "endpoint-url", value_name = "URL")]
    pub endpoint: Option<String>,
    /// Region of the bucket
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Profile of ~/.aws with the credentials to use
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Backend option, such as access_key_id=...; repeatable
    ///
    /// zarrfs-stores(7) lists the options of each kind of store. --option is another name of this option.
    #[arg(long = "storage-option", alias = "option", value_name = "KEY=VALUE", action = ArgAction::Append, value_parser = pair, hide_short_help = true)]
    pub settings: Vec<(String, String)>,
    /// HTTP header 'Name: value' to send, or @FILE; repeatable
    ///
    /// A file has one header on each line. The headers go to the web server of the store, and to no other server that
    /// it redirects to. Other users cannot see values in the list of processes, but a shell keeps them in its history:
    /// prefer a file.
    #[arg(long = "header", value_name = "HEADER|@FILE", action = ArgAction::Append, hide_short_help = true)]
    pub headers: Vec<HeaderText>,
    /// File with the bearer token to send to a web server
    ///
    /// zarrfs reads the file again when it changes, and when the server refuses the token (401).
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub bearer_token_file: Option<PathBuf>,
    /// Take user and password for web servers from ~/.netrc
    ///
    /// The environment variable NETRC names another file.
    #[arg(long, hide_short_help = true)]
    pub netrc: bool,
    /// Keep downloaded data in this directory
    ///
    /// Later mounts use the data again. --cache is another name of this option.
    #[arg(long, alias = "cache", value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Maximum size of --cache-dir
    ///
    /// --max-cache-size is another name of this option.
    #[arg(long, alias = "max-cache-size", value_name = "SIZE", value_parser = values::size, default_value = "10G", hide_short_help = true)]
    pub cache_size: u64,
    /// Time to cache names and metadata; 0 disables, or forever
    ///
    /// With 'forever' zarrfs assumes that the store never changes, and requests nothing twice. --immutable is
    /// another name of '--metadata-ttl forever'.
    #[arg(long, value_name = "DURATION", value_parser = ttl, default_value = "60s", hide_short_help = true)]
    pub metadata_ttl: Duration,
    /// The store never changes: --metadata-ttl forever
    #[arg(long, hide = true)]
    pub immutable: bool,
    /// Maximum number of concurrent requests, 1 to 1024
    #[arg(long, value_name = "N", value_parser = requests, default_value = "32", hide_short_help = true)]
    pub concurrency: u16,
    /// HTTP status of missing keys besides 404, such as 403
    #[arg(long, value_name = "STATUS", value_parser = missing_status, hide_short_help = true)]
    pub missing_is: Option<u16>,
}

/// The text of a `--header` option, which may be secret.
#[derive(Clone)]
pub struct HeaderText(String);

impl From<String> for HeaderText {
    fn from(text: String) -> HeaderText {
        HeaderText(text)
    }
}

impl fmt::Debug for HeaderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeaderText")
    }
}

impl RemoteArgs {
    /// Returns the configuration of the store crate for these options; a request takes at most `timeout`.
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
            login: self.login()?,
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

    /// Returns the first option of remote stores that the user gave, or `None`.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.anon, "--anon"),
            (self.endpoint.is_some(), "--endpoint"),
            (self.region.is_some(), "--region"),
            (self.profile.is_some(), "--profile"),
            (!self.settings.is_empty(), "--storage-option"),
            (!self.headers.is_empty(), "--header"),
            (self.bearer_token_file.is_some(), "--bearer-token-file"),
            (self.netrc, "--netrc"),
            (self.cache_dir.is_some(), "--cache-dir"),
            (self.immutable, "--immutable"),
            (self.missing_is.is_some(), "--missing-is"),
        ];
        let first = given.into_iter().find(|(is_given, _)| *is_given);
        first.map(|(_, name)| name)
    }

    /// Returns a warning if the user gave an option of remote stores for a local store.
    pub(super) fn without_effect(&self, location: &str) -> Option<String> {
        zarrfs_store::local_folder(location)?;
        // --cache-dir is left out, because it has its own warning.
        let option = self
            .first_given()
            .filter(|&option| option != "--cache-dir")?;
        Some(format!("{option} has no effect on a local store"))
    }

    /// Returns the credentials for web servers.
    fn login(&self) -> Result<Login> {
        let mut login = Login::default();
        for header in &self.headers {
            login.add_headers(&header.0)?;
        }
        if let Some(path) = &self.bearer_token_file {
            login.set_bearer_token_file(&values::absolute(path)?)?;
        }
        if self.netrc {
            login.set_netrc(&default_netrc()?)?;
        }
        Ok(login)
    }

    /// Returns the backend options, including the profile of --profile.
    fn options(&self) -> Vec<(String, String)> {
        let profile = self.profile.iter();
        let profile = profile.map(|name| ("profile".to_string(), name.clone()));
        self.settings.iter().cloned().chain(profile).collect()
    }
}

/// Parses a backend option of the form `key=value`.
fn pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_string(), value.to_string())),
        // The error does not repeat the text of the option, which may be a secret.
        _ => Err("write an option as KEY=VALUE".to_string()),
    }
}

/// Applies an `-o` option of remote stores that has no value; returns false if `name` is no such option.
pub(super) fn apply_switch(config: &mut RemoteConfig, name: &str) -> Result<bool> {
    match name {
        "anon" => config.anonymous = true,
        "immutable" => config.metadata_ttl = FOREVER,
        "netrc" => config.login.set_netrc(&default_netrc()?)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Applies an `-o` option of remote stores that has a value; returns false if `name` is no such option.
pub(super) fn apply_value(config: &mut RemoteConfig, name: &str, value: &str) -> Result<bool> {
    match name {
        "storage_option" => {
            let pair = pair(value).map_err(|text| Error::invalid("", text))?;
            config.options.push(pair);
        }
        "header" => config.login.add_headers(value).map_err(without_option)?,
        "bearer_token_file" => {
            let path = values::absolute(Path::new(value))?;
            let set = config.login.set_bearer_token_file(&path);
            set.map_err(without_option)?;
        }
        "endpoint" => config.endpoint = Some(value.to_string()),
        "region" => config.region = Some(value.to_string()),
        "missing_is" => {
            let status = missing_status(value).map_err(|text| Error::invalid("", text))?;
            config.missing_is = Some(status);
        }
        "profile" => config.options.push((name.to_string(), value.to_string())),
        "metadata_ttl" => config.metadata_ttl = ttl(value)?,
        "concurrency" => config.concurrency = usize::from(requests(value)?),
        "cache_dir" => config.cache_dir = Some(values::absolute(Path::new(value))?),
        "cache_size" => config.cache_size = values::size(value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Removes the option's name from an error, because the option has other names on the command line and in `-o`.
fn without_option(error: Error) -> Error {
    Error::new(error.kind(), "", error.detail())
}

/// Parses an HTTP status that means a missing key. Statuses of server errors and of malformed or late requests are
/// refused, because a chunk that could not be read would seem to be missing.
fn missing_status(text: &str) -> std::result::Result<u16, String> {
    let status = text.parse().ok();
    let status = status.filter(|status| (400..500).contains(status));
    let status = status.filter(|status| ![404, 407, 408, 412, 416, 429].contains(status));
    status.ok_or_else(|| {
        "choose a status such as 400 or 403; 404 always means a missing key".to_string()
    })
}

fn requests(text: &str) -> Result<u16> {
    let number = text.parse().ok().filter(|n| (1..=1024).contains(n));
    number.ok_or_else(|| Error::invalid("", "choose a number from 1 to 1024"))
}

/// Parses how long names and metadata are cached: a duration, 0 or `forever`.
fn ttl(text: &str) -> Result<Duration> {
    match text {
        "forever" => Ok(FOREVER),
        _ => values::duration_or_zero(text),
    }
}

/// Returns the options of remote stores for `mount.json`, without values that may be secrets.
pub(super) fn options_in_force(config: &RemoteConfig) -> Vec<(&'static str, String)> {
    let names = config.options.iter().map(|(name, _)| name.as_str());
    let headers: Vec<&str> = config.login.header_names().collect();
    let path =
        |path: Option<&Path>| path.map_or_else(String::new, |path| path.display().to_string());
    let endpoint = config.endpoint.as_deref().map(zarrfs_store::redacted);
    let ttl = match config.metadata_ttl {
        FOREVER => "forever".to_string(),
        ttl => format::duration(ttl),
    };
    vec![
        ("storage_option", names.collect::<Vec<_>>().join(",")),
        ("header", headers.join(",")),
        ("bearer_token_file", path(config.login.bearer_token_file())),
        ("netrc", path(config.login.netrc())),
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
        ("cache_dir", path(config.cache_dir.as_deref())),
        ("cache_size", format::size(config.cache_size)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_option_values_are_not_shown() {
        let mut config = RemoteConfig::default();
        assert!(apply_value(&mut config, "storage_option", "secret_access_key=hush").unwrap());
        assert!(apply_value(&mut config, "endpoint", "http://me:hush@host/?a=hush").unwrap());
        assert!(apply_value(&mut config, "header", "X-Key: hush").unwrap());
        let error = apply_value(&mut config, "header", "Host: hush").unwrap_err();
        assert!(!error.to_string().contains("hush"), "{error}");
        assert!(apply_value(&mut config, "concurrency", "0").is_err());
        assert!(apply_value(&mut config, "missing_is", "500").is_err());
        let text = format!("{:?} {config:?}", options_in_force(&config));
        assert!(
            text.contains("secret_access_key") && text.contains("x-key") && !text.contains("hush"),
            "{text}"
        );
    }
}
