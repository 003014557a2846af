//! Tests settings of a bucket's server address: an invalid one is a clear error everywhere.

use std::fs;
use std::process::Command;

use crate::mounting::fixture::{PROGRAM, stderr};

/// Environment variables that could set the address or region of a server.
const VARIABLES: [&str; 6] = [
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AZURE_STORAGE_ENDPOINT",
];

/// Runs `zarrfs tree`, with `variables` as the only server settings in its environment.
fn tree(words: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".aws")).unwrap();
    let profile = "[profile lab]\nregion = a b\naws_access_key_id = x\naws_secret_access_key = x\n";
    fs::write(home.path().join(".aws/config"), profile).unwrap();
    let mut command = Command::new("timeout");
    command.args(["30", PROGRAM, "tree"]).args(words);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command
        .envs(variables.iter().copied())
        .env("HOME", home.path());
    let output = command.output().unwrap();
    (output.status.code(), stderr(&output))
}

fn check(words: &[&str], variables: &[(&str, &str)], expected: &str) {
    let said = tree(words, variables);
    let expected = format!("zarrfs: {expected}\n");
    assert_eq!(said, (Some(2), expected), "{words:?} {variables:?}");
}

#[test]
fn an_invalid_server_address_is_refused_with_a_hint() {
    let why = "expected http://HOST or https://HOST";
    for address in [
        "localhost:9000",
        "notaurl",
        "http://",
        "http://a b",
        "ftp://h",
    ] {
        for url in [
            "s3://b/x",
            "gs://b/x",
            "abfss://b@account.dfs.core.windows.net/x",
        ] {
            let words = [url, "--anon", "--endpoint", address];
            check(&words, &[], &format!("--endpoint {address}: {why}"));
        }
    }
    let option = |pair: &str, expected: &str| {
        check(&["s3://b/x", "--anon", "--option", pair], &[], expected);
    };
    option(
        "endpoint=h:9",
        &format!("--storage-option endpoint=h:9: {why}"),
    );
    option(
        "aws_endpoint=me:hush@h",
        &format!("--storage-option aws_endpoint=h: {why}"),
    );
    for variable in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"] {
        let expected = format!("{variable}=localhost:9000: {why}");
        check(&["s3://b/x"], &[(variable, "localhost:9000")], &expected);
    }
}

#[test]
fn an_invalid_region_is_refused_with_a_hint() {
    let why = "not the name of a region, such as eu-west-1";
    check(
        &["s3://b/x", "--anon", "--region", "a b"],
        &[],
        &format!("--region a b: {why}"),
    );
    check(
        &["s3://b/x", "--anon", "--option", "region=a/b"],
        &[],
        &format!("--storage-option region=a/b: {why}"),
    );
    for variable in ["AWS_REGION", "AWS_DEFAULT_REGION"] {
        let expected = format!("{variable}=a b: {why}");
        check(&["s3://b/x", "--anon"], &[(variable, "a b")], &expected);
    }
    check(
        &["s3://b/x", "--profile", "lab"],
        &[],
        &format!("the region of the AWS profile: a b: {why}"),
    );
}

#[test]
fn an_endpoint_option_overrides_the_environment() {
    let refused =
        ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"].map(|name| (name, "http://127.0.0.1:1"));
    for words in [
        ["s3://b/x", "--anon", "--endpoint", "http://127.0.0.2:2"],
        ["s3://b/x", "--anon", "--option", "endpoint=notaurl"],
    ] {
        let (_, said) = tree(&words, &refused);
        assert!(!said.contains("127.0.0.1"), "{said}");
    }
    let words = ["s3://b/x", "--anon", "--option", "endpoint=notaurl"];
    let why = "expected http://HOST or https://HOST";
    check(
        &words,
        &refused,
        &format!("--storage-option endpoint=notaurl: {why}"),
    );
}
