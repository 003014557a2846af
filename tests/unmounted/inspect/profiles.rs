//! Tests credentials of `~/.aws` profiles: roles, chained profiles, single sign-on, credential processes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::scripted::{Answer, Request, Scripted, answer};
use crate::inspect::program::{GROUP, command};

const ROLE: &[u8] = br#"<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn><AssumedRoleId>AROA:s</AssumedRoleId></AssumedRoleUser>
<Credentials><AccessKeyId>ROLEKEY</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>
<SessionToken>token</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRoleResult></AssumeRoleResponse>"#;

const ACCOUNT: &[u8] =
    br#"{"roleCredentials": {"accessKeyId": "SSOKEY", "secretAccessKey": "secret",
    "sessionToken": "token", "expiration": 4070908800000}}"#;

const RENEWED: &[u8] = br#"{"accessToken": "renewed", "expiresIn": 3600, "refreshToken": "next"}"#;

const NAMES: &[u8] = br#"<ListBucketResult><Name>b</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated>
<Contents><Key>x.zarr/zarr.json</Key><LastModified>2020-01-01T00:00:00Z</LastModified><ETag>"e"</ETag>
<Size>40</Size></Contents></ListBucketResult>"#;

/// Answers requests as a bucket with one group, and as the services that issue credentials (STS, single sign-on).
fn bucket(request: &Request) -> Answer {
    let length = GROUP.len();
    let is_whole = request.header("range").is_empty();
    match request.target.as_str() {
        "/" | "/sts/" => answer(200, ROLE),
        "/oidc/token" => answer(200, RENEWED),
        "/sso/federation/credentials?role_name=R%20%26&account_id=1" => {
            match request.header("x-amz-sso_bearer_token") {
                "good" | "renewed" => answer(200, ACCOUNT),
                _ => answer(401, br#"{"__type": "UnauthorizedException"}"#),
            }
        }
        target if target.ends_with("zarr.json") => Answer {
            headers: vec![
                ("ETag", "\"e\"".to_string()),
                ("Last-Modified", "Wed, 01 Jan 2020 00:00:00 GMT".to_string()),
                ("Content-Range", format!("bytes 0-{}/{length}", length - 1)),
            ],
            ..answer(if is_whole { 200 } else { 206 }, GROUP)
        },
        _ => answer(200, NAMES),
    }
}

/// Runs `zarrfs cat` on the bucket with the profile `lab` of an AWS configuration, and with environment variables.
fn cat(server: &Scripted, config: &str, variables: &[(&str, &str)]) -> Output {
    let home = tempfile::tempdir().unwrap();
    cat_at(home.path(), server, config, variables)
}

/// Runs `zarrfs cat` on the bucket with the profile `lab` in an existing home directory.
fn cat_at(home: &Path, server: &Scripted, config: &str, variables: &[(&str, &str)]) -> Output {
    fs::create_dir_all(home.join(".aws")).unwrap();
    fs::write(home.join(".aws/config"), config).unwrap();
    let url = server.url("");
    let endpoint = url.trim_end_matches('/');
    let command = cat_of_profile(home, &["--endpoint", endpoint]);
    run(command, server, variables)
}

/// Returns the command `zarrfs cat` for the bucket, with the profile `lab` of a home directory.
fn cat_of_profile(home: &Path, arguments: &[&str]) -> Command {
    let words = ["cat", "s3://b/x.zarr/zarr.json", "--profile", "lab"];
    let mut command = command(&words);
    command.args(arguments).env("HOME", home);
    command
}

/// Runs a command for which `server` is both the bucket and the issuer of credentials.
fn run(mut command: Command, server: &Scripted, variables: &[(&str, &str)]) -> Output {
    for name in ["AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE"] {
        command.env_remove(name);
    }
    command
        .env("AWS_ENDPOINT_URL_STS", server.url(""))
        .env("AWS_ENDPOINT_URL_SSO", server.url("sso"))
        .env("AWS_ENDPOINT_URL_SSO_OIDC", server.url("oidc/"))
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// Returns the command's stderr, and the sorted signatures of its requests, each once.
fn tried(output: &Output, server: &Scripted) -> (String, Vec<String>) {
    let requests = server.requests.lock().unwrap();
    let mut signatures: Vec<String> = requests.iter().map(signed).collect();
    signatures.sort();
    signatures.dedup();
    signatures.retain(|signature| !signature.is_empty());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), output.stdout == GROUP, "{said}");
    (said, signatures)
}

/// Returns the key, region and service of a request's signature, or an empty string if it has none.
fn signed(request: &Request) -> String {
    let credential = request.header("authorization").split("Credential=").nth(1);
    let words: Vec<&str> = credential.unwrap_or("").split(['/', ',']).collect();
    match words[..] {
        [key, _, region, service, ..] => format!("{key} {region} {service}"),
        _ => String::new(),
    }
}

#[test]
fn a_role_is_assumed_in_the_region_of_its_profile() {
    let role = "[profile lab]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\n";
    let base = "[profile base]\naws_access_key_id = BASEKEY\naws_secret_access_key = secret\n";
    let south = "region = eu-south-1\n";
    let elsewhere = "region = ap-east-1\n";
    for (config, variable, asked, used) in [
        (
            format!("{role}{south}{base}{elsewhere}"),
            "",
            "eu-south-1",
            "eu-south-1",
        ),
        (
            format!("{role}{base}{south}"),
            "",
            "eu-south-1",
            "eu-south-1",
        ),
        (
            format!("{role}{base}{south}"),
            "us-west-2",
            "eu-south-1",
            "us-west-2",
        ),
        (
            format!("{role}{base}"),
            "us-west-2",
            "us-west-2",
            "us-west-2",
        ),
        (format!("{role}{base}"), "", "us-east-1", "us-east-1"),
    ] {
        let server = Scripted::start(|_, request| bucket(request));
        let region = [("AWS_REGION", variable)];
        let region = if variable.is_empty() {
            &region[..0]
        } else {
            &region
        };
        let output = cat(&server, &config, region);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{config}: {error}");
        assert_eq!(output.stdout, GROUP);
        let requests = server.requests.lock().unwrap();
        let mut signatures: Vec<String> = requests.iter().map(signed).collect();
        signatures.sort();
        signatures.dedup();
        let expected = [format!("BASEKEY {asked} sts"), format!("ROLEKEY {used} s3")];
        assert_eq!(signatures, expected, "{config}");
    }
}

#[test]
fn a_role_is_assumed_with_the_credentials_of_another() {
    let config = "[profile lab]\nrole_arn = arn:2\nsource_profile = middle\n\
                  role_session_name = me&you\nexternal_id = x y\n\
                  [profile middle]\nrole_arn = arn:1\nsource_profile = base\n\
                  [profile base]\naws_access_key_id = BASEKEY\naws_secret_access_key = secret\n";
    let server = Scripted::start(|_, request| bucket(request));
    let (said, signatures) = tried(&cat(&server, config, &[]), &server);
    let expected = [
        "BASEKEY us-east-1 sts",
        "ROLEKEY us-east-1 s3",
        "ROLEKEY us-east-1 sts",
    ];
    assert_eq!(signatures, expected, "{said}");
    let requests = server.requests.lock().unwrap();
    let forms: Vec<String> = requests
        .iter()
        .filter(|request| request.method == "POST")
        .map(|request| String::from_utf8(request.body.clone()).unwrap())
        .collect();
    assert!(forms[0].contains("RoleArn=arn%3A1&"), "{forms:?}");
    for part in [
        "Action=AssumeRole&",
        "RoleArn=arn%3A2&",
        "RoleSessionName=me%26you",
        "ExternalId=x%20y",
    ] {
        assert!(forms[1].contains(part), "{part}: {forms:?}");
    }
}

#[test]
fn a_refused_role_is_named_with_the_error_code() {
    let config = "[profile lab]\nrole_arn = arn:1\nsource_profile = base\n\
                  [profile base]\naws_access_key_id = BASEKEY\naws_secret_access_key = a-secret\n";
    let refused = b"<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>";
    let server = Scripted::start(|_, _| answer(403, refused));
    let (said, _) = tried(&cat(&server, config, &[]), &server);
    assert!(said.starts_with("zarrfs: AWS profile lab: "), "{said}");
    assert!(
        said.contains("AccessDenied") && !said.contains("a-secret"),
        "{said}"
    );
    // A server that answers that it is busy gets the request again.
    let server = Scripted::start(|number, request| match number {
        0 | 1 => answer(503, b""),
        _ => bucket(request),
    });
    let (said, signatures) = tried(&cat(&server, config, &[]), &server);
    assert_eq!(signatures.len(), 2, "{said}");
}

#[test]
fn a_program_gives_credentials() {
    let printed = r#"{"Version": 1, "AccessKeyId": "PROGRAMKEY", "SecretAccessKey": "s"}"#;
    let config = format!("[profile lab]\ncredential_process = echo '{printed}'\n");
    let server = Scripted::start(|_, request| bucket(request));
    let (said, signatures) = tried(&cat(&server, &config, &[]), &server);
    assert_eq!(signatures, ["PROGRAMKEY us-east-1 s3"], "{said}");
    let config = "[profile lab]\ncredential_process = echo 'not yet' >&2; exit 4\n";
    let (said, _) = tried(&cat(&server, config, &[]), &server);
    assert!(said.starts_with("zarrfs: AWS profile lab: "), "{said}");
    assert!(
        said.contains("not yet") && said.contains("exit status: 4"),
        "{said}"
    );
}

#[test]
fn the_environment_is_a_credential_source() {
    let config = "[profile lab]\nrole_arn = arn:1\ncredential_source = Environment\n";
    let server = Scripted::start(|_, request| bucket(request));
    let variables = [
        ("AWS_ACCESS_KEY_ID", "HEREKEY"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
    ];
    let (said, signatures) = tried(&cat(&server, config, &variables), &server);
    let expected = ["HEREKEY us-east-1 sts", "ROLEKEY us-east-1 s3"];
    assert_eq!(signatures, expected, "{said}");
}

#[test]
fn a_container_or_a_machine_is_a_credential_source() {
    let given =
        br#"{"AccessKeyId": "BOXKEY", "SecretAccessKey": "s", "Token": "t", "Code": "Success",
        "Expiration": "2099-01-01T00:00:00Z"}"#;
    let server = Scripted::start(|_, request| match request.target.as_str() {
        "/latest/api/token" => Answer {
            headers: vec![("x-aws-ec2-metadata-token-ttl-seconds", "21600".to_string())],
            ..answer(200, b"metadata")
        },
        "/latest/meta-data/iam/security-credentials/" => answer(200, b"box"),
        "/latest/meta-data/iam/security-credentials/box" | "/box" => answer(200, given),
        _ => bucket(request),
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "pod").unwrap();
    let (address, pod) = (server.url(""), server.url("box"));
    let metadata = [(
        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        address.trim_end_matches('/'),
    )];
    let container = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", pod.as_str()),
        (
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            file.path().to_str().unwrap(),
        ),
    ];
    for (source, variables) in [
        ("Ec2InstanceMetadata", &metadata[..]),
        ("EcsContainer", &container[..]),
    ] {
        let config = format!("[profile lab]\nrole_arn = arn:1\ncredential_source = {source}\n");
        let (said, signatures) = tried(&cat(&server, &config, variables), &server);
        let expected = ["BOXKEY us-east-1 sts", "ROLEKEY us-east-1 s3"];
        assert_eq!(signatures, expected, "{source}: {said}");
    }
    let config = "[profile lab]\nrole_arn = arn:1\ncredential_source = Elsewhere\n";
    let (said, _) = tried(&cat(&server, config, &[]), &server);
    assert!(said.starts_with("zarrfs: AWS profile lab: "), "{said}");
    assert!(said.contains("Elsewhere"), "{said}");
}

const SIGNED_ON: &str = "[profile lab]\nsso_session = work\nsso_account_id = 1\nsso_role_name = R &\n\
                         [sso-session work]\nsso_region = eu-west-1\nsso_start_url = https://start.invalid\n";

/// The file with the token of the session `work`, whose name is the SHA-1 of the session name.
const TOKEN_FILE: &str = ".aws/sso/cache/e274eeff768c6396088ec6eb091f4bf4d47ab1e0.json";

/// Runs `zarrfs cat` on the bucket with a single sign-on token.
fn cat_signed_on(server: &Scripted, token: &str) -> (Output, String) {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join(TOKEN_FILE);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, token).unwrap();
    let output = cat_at(home.path(), server, SIGNED_ON, &[]);
    (output, fs::read_to_string(&file).unwrap())
}

#[test]
fn single_sign_on_gives_credentials() {
    let server = Scripted::start(|_, request| bucket(request));
    let token = r#"{"accessToken": "good", "expiresAt": "2099-01-01T00:00:00Z", "startUrl": "u"}"#;
    let (output, left) = cat_signed_on(&server, token);
    let (said, signatures) = tried(&output, &server);
    assert_eq!(signatures, ["SSOKEY us-east-1 s3"], "{said}");
    assert_eq!(left, token);
}

#[test]
fn an_expired_sso_token_is_renewed_and_saved() {
    let server = Scripted::start(|_, request| bucket(request));
    let token = r#"{"startUrl": "https://start.invalid", "accessToken": "old", "expiresAt": "2020-01-01T00:00:00Z", "clientId": "c",
        "clientSecret": "s", "refreshToken": "r", "registrationExpiresAt": "2099-01-01T00:00:00Z"}"#;
    let (output, left) = cat_signed_on(&server, token);
    let (said, signatures) = tried(&output, &server);
    assert_eq!(signatures, ["SSOKEY us-east-1 s3"], "{said}");
    let left: serde_json::Value = serde_json::from_str(&left).unwrap();
    assert_eq!(left["accessToken"], "renewed");
    assert_eq!(left["refreshToken"], "next");
    assert_eq!(
        (&left["clientId"], &left["startUrl"]),
        (&"c".into(), &"https://start.invalid".into())
    );
    assert!(left["expiresAt"].as_str().unwrap() > "2026");
    let requests = server.requests.lock().unwrap();
    let asked = requests
        .iter()
        .find(|request| request.target == "/oidc/token");
    let asked: serde_json::Value = serde_json::from_slice(&asked.unwrap().body).unwrap();
    let expected = serde_json::json!({
        "clientId": "c", "clientSecret": "s", "grantType": "refresh_token", "refreshToken": "r",
    });
    assert_eq!(asked, expected);
}

#[test]
fn an_invalid_sso_token_is_an_error_with_the_sign_in_command() {
    let server = Scripted::start(|_, request| bucket(request));
    for token in [
        "{}",
        "[",
        r#"{"accessToken": "old", "expiresAt": "2020-01-01T00:00:00Z"}"#,
        r#"{"accessToken": "bad", "expiresAt": "2099-01-01T00:00:00Z"}"#,
    ] {
        let (output, left) = cat_signed_on(&server, token);
        check_asks_to_sign_in(&tried(&output, &server).0);
        assert_eq!(left, token);
    }
    check_asks_to_sign_in(&tried(&cat(&server, SIGNED_ON, &[]), &server).0);
}

fn check_asks_to_sign_in(said: &str) {
    assert!(said.starts_with("zarrfs: AWS profile lab: "), "{said}");
    let how = "; run 'aws sso login --profile lab' to sign in again\n";
    assert!(said.ends_with(how), "{said}");
}

#[test]
fn faults_of_a_profile_are_named() {
    let server = Scripted::start(|_, request| bucket(request));
    for (config, expected) in [
        ("[profile lob]\n", "lab"),
        ("[profile lab\n", "could not parse profile file"),
        ("[profile lab]\nrole_arn = A\n", "source_profile"),
        (
            "[profile lab]\nrole_arn = A\nsource_profile = b\n[profile b]\nrole_arn = B\nsource_profile = lab\n",
            "loop",
        ),
        (
            "[profile lab]\nregion = r\n",
            "no credentials in ~/.aws/config or ~/.aws/credentials",
        ),
    ] {
        let (said, _) = tried(&cat(&server, config, &[]), &server);
        assert!(said.starts_with("zarrfs: AWS profile lab: "), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

/// Runs `zarrfs cat` on the server that the AWS configuration names as the endpoint.
fn cat_elsewhere(config: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join(".aws")).unwrap();
    fs::write(home.path().join(".aws/config"), config).unwrap();
    let mut command = cat_of_profile(home.path(), arguments);
    for name in [
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_CONFIG_FILE",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    ] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn a_profile_can_set_the_endpoint() {
    let keys = "aws_access_key_id = KEY\naws_secret_access_key = secret\n";
    let server = Scripted::start(|_, request| bucket(request));
    let url = server.url("");
    let url = url.trim_end_matches('/');
    let nowhere = "http://127.0.0.1:9";
    let own = format!("[profile lab]\n{keys}endpoint_url = {url}\n");
    let of_service = format!(
        "[profile lab]\n{keys}services = here\nendpoint_url = {nowhere}\n[services here]\ns3 =\n  endpoint_url = {url}\n"
    );
    let other = format!("[profile lab]\n{keys}endpoint_url = {nowhere}\n");
    for (config, arguments, variables) in [
        (&own, &[][..], &[][..]),
        (&own, &["--anon"], &[]),
        (&of_service, &[], &[]),
        (&other, &["--endpoint", url], &[]),
        (&other, &[], &[("AWS_ENDPOINT_URL", url)]),
        (
            &other,
            &[],
            &[("AWS_ENDPOINT_URL_S3", url), ("AWS_ENDPOINT_URL", nowhere)],
        ),
    ] {
        let output = cat_elsewhere(config, arguments, variables);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.stdout, GROUP,
            "{config} {arguments:?} {variables:?}: {said}"
        );
    }
    let config = format!("[profile lab]\n{keys}endpoint_url = ftp://h\n");
    let said = cat_elsewhere(&config, &[], &[]).stderr;
    let expected =
        "zarrfs: endpoint_url of the AWS profile: ftp://h: expected http://HOST or https://HOST\n";
    assert_eq!(String::from_utf8_lossy(&said), expected);
}

/// Without the configured endpoint, the request goes to AWS, which cannot be reached: the region leads to a host name
/// that does not exist.
#[test]
fn configured_endpoints_are_ignored_on_request() {
    const IGNORE: (&str, &str) = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true");
    let server = Scripted::start(|_, request| bucket(request));
    let url = server.url("");
    let url = url.trim_end_matches('/');
    let region = "region = here.invalid\n";
    let plain =
        format!("[profile lab]\naws_access_key_id = KEY\naws_secret_access_key = secret\n{region}");
    let named = format!("{plain}endpoint_url = {url}\n");
    let ignoring = format!("{named}ignore_configured_endpoint_urls = true\n");
    let variable = ("AWS_ENDPOINT_URL", url);
    for (config, variables) in [
        (&named, &[IGNORE][..]),
        (&plain, &[IGNORE, variable]),
        (&plain, &[IGNORE, ("AWS_ENDPOINT_URL_S3", url)]),
        (&ignoring, &[]),
        (&ignoring, &[variable]),
    ] {
        let output = cat_elsewhere(config, &["--timeout", "2"], variables);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("here.invalid"), "{variables:?}: {said}");
        assert!(server.requests.lock().unwrap().is_empty(), "{said}");
        let output = cat_elsewhere(config, &["--endpoint", url], variables);
        assert_eq!(output.stdout, GROUP, "an option counts");
        server.requests.lock().unwrap().clear();
    }
    let kept = [("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "false")];
    let output = cat_elsewhere(&ignoring, &[], &kept);
    assert_eq!(output.stdout, GROUP, "the variable wins over the file");
}

/// How the metadata service of an EC2 instance answers a request for a token.
#[derive(Clone, Copy)]
enum Tokens {
    /// The service answers with an HTTP error status.
    Refused(u16),
    /// The service answers with a token.
    Given,
}

/// Answers requests as the metadata service of an EC2 instance, and as a bucket.
fn machine(tokens: Tokens, request: &Request) -> Answer {
    const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
    let given =
        br#"{"AccessKeyId": "BOXKEY", "SecretAccessKey": "s", "Token": "t", "Code": "Success",
        "Expiration": "2099-01-01T00:00:00Z"}"#;
    let token = request.header("x-aws-ec2-metadata-token");
    let is_welcome = match tokens {
        Tokens::Refused(_) => token.is_empty(),
        Tokens::Given => token == "metadata",
    };
    match (request.target.as_str(), tokens) {
        ("/latest/api/token", Tokens::Refused(status)) => answer(status, b""),
        ("/latest/api/token", Tokens::Given) => Answer {
            headers: vec![("x-aws-ec2-metadata-token-ttl-seconds", "21600".to_string())],
            ..answer(200, b"metadata")
        },
        (target, _) if target.starts_with(ROLES) && !is_welcome => answer(401, b""),
        (ROLES, _) => answer(200, b"box"),
        (target, _) if target.starts_with(ROLES) => answer(200, given),
        _ => bucket(request),
    }
}

#[test]
fn machine_credentials_do_not_need_metadata_tokens() {
    let role = "[profile lab]\nrole_arn = arn:1\ncredential_source = Ec2InstanceMetadata\n";
    for tokens in [
        Tokens::Given,
        Tokens::Refused(403),
        Tokens::Refused(404),
        Tokens::Refused(405),
    ] {
        let server = Scripted::start(move |_, request| machine(tokens, request));
        let address = server.url("");
        let address = address.trim_end_matches('/');
        let variables = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", address)];
        let (said, signatures) = tried(&cat(&server, role, &variables), &server);
        let expected = ["BOXKEY us-east-1 sts", "ROLEKEY us-east-1 s3"];
        assert_eq!(signatures, expected, "{said}");
        server.requests.lock().unwrap().clear();
        let (said, signatures) = tried(&of_machine(&server, &[]), &server);
        assert_eq!(signatures, ["BOXKEY us-east-1 s3"], "{said}");
        if matches!(tokens, Tokens::Refused(_)) {
            let disabled = [("AWS_EC2_METADATA_V1_DISABLED", "true")];
            let (said, _) = tried(&of_machine(&server, &disabled), &server);
            assert!(said.contains("no credentials from the metadata"), "{said}");
        }
    }
}

#[test]
fn a_service_that_gives_no_credentials_is_named() {
    let server = Scripted::start(|_, request| match request.target.as_str() {
        target if target.starts_with("/latest/") => answer(404, b""),
        _ => bucket(request),
    });
    let (said, signatures) = tried(&of_machine(&server, &[]), &server);
    let expected = "no credentials from the metadata service (metadata_endpoint): status 404";
    assert!(said.contains(expected), "{said}");
    assert!(signatures.is_empty(), "{signatures:?}");
}

/// Runs `zarrfs cat` on a bucket with the credentials of an EC2 instance.
fn of_machine(server: &Scripted, variables: &[(&str, &str)]) -> Output {
    let home = tempfile::tempdir().unwrap();
    let url = server.url("");
    let url = url.trim_end_matches('/');
    let mut command = command(&["cat", "s3://b/x.zarr/zarr.json", "--endpoint", url]);
    for name in ["AWS_PROFILE", "AWS_ACCESS_KEY_ID"] {
        command.env_remove(name);
    }
    command
        .args(["--option", &format!("metadata_endpoint={url}")])
        .args(["--timeout", "5"])
        .env("HOME", home.path());
    run(command, server, variables)
}

#[test]
fn missing_credentials_are_an_error_with_advice() {
    let server = Scripted::start(|_, _| answer(403, b"<Error><Code>AccessDenied</Code></Error>"));
    let home = tempfile::tempdir().unwrap();
    let cat = |arguments: &[&str]| {
        let url = server.url("");
        let mut command = command(&[
            "cat",
            "s3://b/x.zarr/zarr.json",
            "--endpoint",
            url.trim_end_matches('/'),
        ]);
        for name in ["AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_CONFIG_FILE"] {
            command.env_remove(name);
        }
        let output = command
            .args(arguments)
            .env("HOME", home.path())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = cat(&[]);
    assert!(said.contains("403 AccessDenied"), "{said}");
    assert!(
        said.contains("no credentials found: set AWS_PROFILE (or --profile)"),
        "{said}"
    );
    let said = cat(&["--anon"]);
    assert!(
        said.contains("remove --anon and give credentials"),
        "{said}"
    );
    let said = cat(&[
        "--option",
        "access_key_id=KEY",
        "--option",
        "secret_access_key=secret",
    ]);
    let name = "the credentials of --storage-option access_key_id may not read this bucket";
    assert!(said.contains(name), "{said}");
}
