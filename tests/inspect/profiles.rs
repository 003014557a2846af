//! Credentials of a role, which a profile of `~/.aws` assumes by another profile.

use std::fs;
use std::process::Output;

use crate::program::{GROUP, command};
use crate::scripted::{Answer, Request, Scripted, answer};

const ROLE: &[u8] = br#"<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn><AssumedRoleId>AROA:s</AssumedRoleId></AssumedRoleUser>
<Credentials><AccessKeyId>ROLEKEY</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>
<SessionToken>token</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRoleResult></AssumeRoleResponse>"#;

const NAMES: &[u8] = br#"<ListBucketResult><Name>b</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated>
<Contents><Key>x.zarr/zarr.json</Key><LastModified>2020-01-01T00:00:00Z</LastModified><ETag>"e"</ETag>
<Size>40</Size></Contents></ListBucketResult>"#;

/// Answers as a bucket with one group, and as the server that gives credentials for roles.
fn bucket(request: &Request) -> Answer {
    let length = GROUP.len();
    let is_whole = request.header("range").is_empty();
    match request.target.as_str() {
        "/" => answer(200, ROLE),
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

/// Prints the root's document with the profile `lab` of a configuration, and `variables`.
fn cat(server: &Scripted, config: &str, variables: &[(&str, &str)]) -> Output {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".aws")).unwrap();
    fs::write(home.path().join(".aws/config"), config).unwrap();
    let url = server.url("");
    let words = ["cat", "s3://b/x.zarr/zarr.json", "--profile", "lab"];
    let mut command = command(&words);
    command.args(["--endpoint", url.trim_end_matches('/')]);
    for name in ["AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE"] {
        command.env_remove(name);
    }
    command
        .env("HOME", home.path())
        .env("AWS_ENDPOINT_URL_STS", url)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// Returns what has signed a request: the key, the region and the service.
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
