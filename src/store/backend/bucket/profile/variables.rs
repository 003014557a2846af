//! The variables of the environment that AWS's own programs look at, and the files that they name.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The variables that begin with `AWS_`, and `HOME`; one that is empty is not set.
pub(super) struct AwsVariables(HashMap<String, String>);

impl AwsVariables {
    /// Takes those of this process.
    pub(super) fn of_process() -> AwsVariables {
        let texts = std::env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            Some((name, value))
        });
        AwsVariables::of(texts)
    }

    /// Takes those among `variables`.
    pub(super) fn of(variables: impl Iterator<Item = (String, String)>) -> AwsVariables {
        let is_ours = |(name, value): &(String, String)| {
            (name.starts_with("AWS_") || name == "HOME") && !value.is_empty()
        };
        AwsVariables(variables.filter(is_ours).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns where the file of profiles is.
    pub(super) fn config_file(&self) -> PathBuf {
        self.file("AWS_CONFIG_FILE", "~/.aws/config")
    }

    /// Returns where the file of keys is.
    pub(super) fn credentials_file(&self) -> PathBuf {
        self.file("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    }

    /// Returns the folder of the tokens that `aws sso login` has fetched.
    pub(super) fn token_folder(&self) -> PathBuf {
        self.in_home("~/.aws/sso/cache")
    }

    fn file(&self, name: &str, usual: &str) -> PathBuf {
        self.in_home(self.get(name).unwrap_or(usual))
    }

    /// Returns a path, of which `~/` is the home directory.
    fn in_home(&self, path: &str) -> PathBuf {
        let home = Path::new(self.get("HOME").unwrap_or_default());
        match path.strip_prefix("~/") {
            Some(rest) => home.join(rest),
            None => PathBuf::from(path),
        }
    }
}
