//! What a profile says about its credentials: where they come from, and which roles are assumed with them, one by the
//! credentials of the other. Nothing here makes requests.

use super::files::{ProfileFiles, ProfileSettings};

/// Where the first credentials of a chain come from.
#[derive(Debug, PartialEq)]
pub(super) enum CredentialSource {
    Keys {
        key_id: String,
        secret_key: String,
        token: Option<String>,
    },
    /// A command of a shell, which prints them.
    Program(String),
    SingleSignOn(SsoAccount),
    /// A role that is given for a token in a file.
    WebIdentity {
        token_file: String,
        role: String,
        session: Option<String>,
    },
    /// What `credential_source` names: the environment, or a metadata address.
    Named(String),
}

/// A role of an account that a person has signed in to.
#[derive(Debug, PartialEq)]
pub(super) struct SsoAccount {
    /// The session by whose name its token is kept; without one the token is kept by the address.
    pub(super) session: Option<String>,
    pub(super) region: String,
    pub(super) start_url: String,
    pub(super) account: String,
    pub(super) role: String,
}

/// A role that is assumed with the credentials before it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct AssumedRole {
    pub(super) arn: String,
    pub(super) external_id: Option<String>,
    pub(super) session: Option<String>,
    /// How long its credentials are good, in seconds.
    pub(super) duration: Option<String>,
    /// Whether it may want a code that only a person has.
    pub(super) has_mfa: bool,
}

/// How the credentials of a profile are made.
#[derive(Debug, PartialEq)]
pub(super) struct ProfileChain {
    pub(super) source: CredentialSource,
    /// In the order in which they are assumed.
    pub(super) roles: Vec<AssumedRole>,
}

/// Returns how the credentials of the profile `name` are made.
pub(super) fn resolve(files: &ProfileFiles, name: &str) -> Result<ProfileChain, String> {
    let mut roles = Vec::new();
    let mut visited = Vec::new();
    let mut name = name;
    loop {
        let profile = files.profile(name).ok_or_else(|| missing(name, &visited))?;
        if visited.contains(&name) {
            return Err(format!(
                "the profiles {} need one another",
                visited.join(", ")
            ));
        }
        let is_source = !visited.is_empty();
        visited.push(name);
        if let (true, Ok(source)) = (is_source, keys(profile, name)) {
            return Ok(chain(source, roles));
        }
        let Some(role) = assumed(profile) else {
            return Ok(chain(source(files, profile, name)?, roles));
        };
        roles.push(role);
        match next(profile, name)? {
            Some(next) if next != name => name = next,
            _ => return Ok(chain(source(files, profile, name)?, roles)),
        }
    }
}

/// Returns the region of a profile, or of the one that its role is assumed by.
pub(super) fn region<'a>(files: &'a ProfileFiles, name: &'a str) -> Option<&'a str> {
    let mut visited = Vec::new();
    let mut name = name;
    while !visited.contains(&name) {
        visited.push(name);
        let profile = files.profile(name)?;
        if let Some(region) = get(profile, "region") {
            return Some(region);
        }
        name = get(profile, "source_profile")?;
    }
    None
}

fn chain(source: CredentialSource, mut roles: Vec<AssumedRole>) -> ProfileChain {
    roles.reverse();
    ProfileChain { source, roles }
}

fn missing(name: &str, visited: &[&str]) -> String {
    match visited.last() {
        Some(before) => format!("profile {before} needs the profile {name}, which there is not"),
        None => format!("there is no profile {name} in ~/.aws/config or ~/.aws/credentials"),
    }
}

/// Returns a setting that is not empty.
fn get<'a>(profile: &'a ProfileSettings, name: &str) -> Option<&'a str> {
    let value = profile.get(name).map(String::as_str);
    value.filter(|value| !value.is_empty())
}

fn owned(profile: &ProfileSettings, name: &str) -> Option<String> {
    get(profile, name).map(str::to_string)
}

fn needed(profile: &ProfileSettings, name: &str, shown: &str) -> Result<String, String> {
    owned(profile, name).ok_or_else(|| format!("{name} is missing in {shown}"))
}

/// Returns the role that a profile assumes by others.
fn assumed(profile: &ProfileSettings) -> Option<AssumedRole> {
    if get(profile, "web_identity_token_file").is_some() {
        return None;
    }
    Some(AssumedRole {
        arn: owned(profile, "role_arn")?,
        external_id: owned(profile, "external_id"),
        session: owned(profile, "role_session_name"),
        duration: owned(profile, "duration_seconds"),
        has_mfa: get(profile, "mfa_serial").is_some(),
    })
}

/// Returns the profile with whose credentials a role is assumed; nothing where its own source is used.
fn next<'a>(profile: &'a ProfileSettings, name: &str) -> Result<Option<&'a str>, String> {
    let source = get(profile, "source_profile");
    match (source, get(profile, "credential_source")) {
        (Some(_), Some(_)) => Err(format!(
            "profile {name} has both source_profile and credential_source: one of them is expected"
        )),
        (None, None) => Err(format!(
            "profile {name} has a role_arn, and neither source_profile nor credential_source"
        )),
        (source, _) => Ok(source),
    }
}

/// Returns the source that a profile has itself.
fn source(
    files: &ProfileFiles,
    profile: &ProfileSettings,
    name: &str,
) -> Result<CredentialSource, String> {
    if let Some(named) = owned(profile, "credential_source") {
        return Ok(CredentialSource::Named(named));
    }
    if let Some(token_file) = owned(profile, "web_identity_token_file") {
        return Ok(CredentialSource::WebIdentity {
            token_file,
            role: needed(profile, "role_arn", &format!("profile {name}"))?,
            session: owned(profile, "role_session_name"),
        });
    }
    if SSO.iter().any(|setting| get(profile, setting).is_some()) {
        return single_sign_on(files, profile, name).map(CredentialSource::SingleSignOn);
    }
    if get(profile, "login_session").is_some() {
        return Err(format!(
            "profile {name} has credentials of 'aws login', which zarrfs cannot renew: \
             credential_process = aws configure export-credentials --profile {name} in another profile can"
        ));
    }
    match owned(profile, "credential_process") {
        Some(command) => Ok(CredentialSource::Program(command)),
        None => keys(profile, name),
    }
}

/// Returns the keys of a profile.
fn keys(profile: &ProfileSettings, name: &str) -> Result<CredentialSource, String> {
    let shown = format!("profile {name}");
    let key_id = owned(profile, "aws_access_key_id");
    let secret_key = owned(profile, "aws_secret_access_key");
    let token = owned(profile, "aws_session_token");
    if key_id.is_none() && secret_key.is_none() && token.is_none() {
        return Err(format!("{shown} has no credentials"));
    }
    Ok(CredentialSource::Keys {
        key_id: needed(profile, "aws_access_key_id", &shown)?,
        secret_key: needed(profile, "aws_secret_access_key", &shown)?,
        token,
    })
}

/// The settings of single sign-on, any of which makes a profile one of it.
const SSO: [&str; 5] = [
    "sso_account_id",
    "sso_region",
    "sso_role_name",
    "sso_session",
    "sso_start_url",
];

/// Returns the account of a profile: region and address are those of its session, or its own where it names none.
fn single_sign_on(
    files: &ProfileFiles,
    profile: &ProfileSettings,
    name: &str,
) -> Result<SsoAccount, String> {
    let shown = format!("profile {name}");
    let session = owned(profile, "sso_session");
    let (place, place_shown) = match &session {
        None => (profile, shown.clone()),
        Some(session) => {
            for setting in ["sso_region", "sso_start_url"] {
                if get(profile, setting).is_some() {
                    let what = format!("{shown}: {setting} is that of its sso_session, {session}");
                    return Err(format!("{what}, and cannot be in the profile too"));
                }
            }
            let place = files.session(session);
            let place = place.ok_or_else(|| {
                format!("{shown} names the sso_session {session}, which there is not")
            })?;
            (place, format!("[sso-session {session}]"))
        }
    };
    Ok(SsoAccount {
        region: needed(place, "sso_region", &place_shown)?,
        start_url: needed(place, "sso_start_url", &place_shown)?,
        account: needed(profile, "sso_account_id", &shown)?,
        role: needed(profile, "sso_role_name", &shown)?,
        session,
    })
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::parsed;
    use super::*;

    const KEYS: &str = "aws_access_key_id = K\naws_secret_access_key = S\n";

    fn resolved(config: &str) -> Result<ProfileChain, String> {
        resolve(&parsed(config, "").unwrap(), "a")
    }

    fn key_source() -> CredentialSource {
        CredentialSource::Keys {
            key_id: "K".to_string(),
            secret_key: "S".to_string(),
            token: None,
        }
    }

    fn role(arn: &str) -> AssumedRole {
        AssumedRole {
            arn: arn.to_string(),
            ..AssumedRole::default()
        }
    }

    #[test]
    fn sources_are_told_apart() {
        let program = CredentialSource::Program("p --x".to_string());
        let session = SsoAccount {
            session: Some("s".to_string()),
            region: "r".to_string(),
            start_url: "u".to_string(),
            account: "1".to_string(),
            role: "R".to_string(),
        };
        let alone = SsoAccount {
            session: None,
            region: "r".to_string(),
            start_url: "u".to_string(),
            account: "1".to_string(),
            role: "R".to_string(),
        };
        let identity = CredentialSource::WebIdentity {
            token_file: "/t".to_string(),
            role: "R".to_string(),
            session: Some("n".to_string()),
        };
        let account = "sso_account_id = 1\nsso_role_name = R";
        let place = "sso_region = r\nsso_start_url = u";
        for (config, expected) in [
            (KEYS.to_string(), key_source()),
            ("credential_process = p --x".to_string(), program),
            (
                format!("sso_session = s\n{account}\n[sso-session s]\n{place}"),
                CredentialSource::SingleSignOn(session),
            ),
            (
                format!("{account}\n{place}"),
                CredentialSource::SingleSignOn(alone),
            ),
            (
                "web_identity_token_file = /t\nrole_arn = R\nrole_session_name = n".to_string(),
                identity,
            ),
        ] {
            let found = resolved(&format!("[profile a]\n{config}")).unwrap();
            assert_eq!(found.source, expected, "{config}");
            assert_eq!(found.roles, [], "{config}");
        }
    }

    #[test]
    fn roles_are_assumed_from_the_last_profile_on() {
        let found = resolved(&format!(
            "[profile a]\nrole_arn = A\nsource_profile = b\nexternal_id = x\nduration_seconds = 900\n\
             [profile b]\nrole_arn = B\nsource_profile = c\nmfa_serial = m\n[profile c]\n{KEYS}"
        ));
        let found = found.unwrap();
        assert_eq!(found.source, key_source());
        let first = AssumedRole {
            has_mfa: true,
            ..role("B")
        };
        let second = AssumedRole {
            external_id: Some("x".to_string()),
            duration: Some("900".to_string()),
            ..role("A")
        };
        assert_eq!(found.roles, [first, second]);
        // A profile with keys of its own is the source, whatever else it has.
        let found = resolved(&format!(
            "[profile a]\nrole_arn = A\nsource_profile = b\n[profile b]\nrole_arn = B\n{KEYS}"
        ));
        assert_eq!(found.unwrap().roles, [role("A")]);
        // A profile can be its own source.
        let found = resolved(&format!(
            "[profile a]\nrole_arn = A\nsource_profile = a\n{KEYS}"
        ));
        let found = found.unwrap();
        assert_eq!((found.source, found.roles), (key_source(), vec![role("A")]));
        let named = resolved("[profile a]\nrole_arn = A\ncredential_source = Environment");
        let named = named.unwrap();
        let environment = CredentialSource::Named("Environment".to_string());
        assert_eq!((named.source, named.roles), (environment, vec![role("A")]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (config, expected) in [
            ("[profile b]", "there is no profile a"),
            ("[profile a]", "profile a has no credentials"),
            (
                "[profile a]\naws_access_key_id = K",
                "aws_secret_access_key is missing in profile a",
            ),
            (
                "[profile a]\nrole_arn = A",
                "neither source_profile nor credential_source",
            ),
            (
                "[profile a]\nrole_arn = A\nsource_profile = b\ncredential_source = Environment",
                "both source_profile and credential_source",
            ),
            (
                "[profile a]\nrole_arn = A\nsource_profile = b",
                "needs the profile b, which there is not",
            ),
            (
                "[profile a]\nrole_arn = A\nsource_profile = b\n[profile b]\nrole_arn = B\nsource_profile = a",
                "the profiles a, b need one another",
            ),
            (
                "[profile a]\nweb_identity_token_file = /t",
                "role_arn is missing in profile a",
            ),
            (
                "[profile a]\nsso_session = s",
                "names the sso_session s, which there is not",
            ),
            (
                "[profile a]\nsso_session = s\nsso_region = r\n[sso-session s]",
                "sso_region is that of its sso_session, s",
            ),
            (
                "[profile a]\nsso_session = s\n[sso-session s]\nsso_region = r",
                "sso_start_url is missing in [sso-session s]",
            ),
            (
                "[profile a]\nsso_account_id = 1",
                "sso_region is missing in profile a",
            ),
            ("[profile a]\nlogin_session = arn", "'aws login'"),
        ] {
            let error = resolved(config).unwrap_err();
            assert!(error.contains(expected), "{config}: {error}");
        }
    }

    #[test]
    fn the_region_is_that_of_the_profile_or_of_its_source() {
        let files = parsed(
            "[profile a]\nregion = r\n[profile b]\nsource_profile = a\n[profile c]\nsource_profile = c",
            "",
        );
        let files = files.unwrap();
        let regions = ["a", "b", "c", "d"].map(|name| region(&files, name));
        assert_eq!(regions, [Some("r"), Some("r"), None, None]);
    }
}
