//! Tests that errors name the proxy that cannot be reached, not the server behind it.

use std::net::TcpListener;

use crate::inspect::program::command;

/// Returns a local address on which no program listens.
fn unused_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Runs `zarrfs cat` for a store that cannot be reached. Returns its stderr.
fn error_of(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = command(&["cat"]);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name);
        command.env_remove(name.to_lowercase());
    }
    let home = tempfile::tempdir().unwrap();
    command.args(arguments).args(["--timeout", "3"]);
    command.env("HOME", home.path());
    command.envs(variables.iter().copied());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const WEB: &[&str] = &["http://server.invalid/x.zarr/zarr.json"];
const SECURE: &[&str] = &["https://server.invalid/x.zarr/zarr.json"];
const BUCKET: &[&str] = &[
    "s3://b/x.zarr/zarr.json",
    "--anon",
    "--endpoint",
    "http://server.invalid:9000",
];

#[test]
fn an_unreachable_proxy_is_named() {
    let address = unused_address();
    let url = format!("http://me:hush@{address}");
    let option = format!("proxy_url={url}");
    for place in [WEB, SECURE, BUCKET] {
        let by_option = [place, &["--option", &option]].concat();
        for (arguments, variables) in [
            (place, &[("ALL_PROXY", url.as_str())][..]),
            (&by_option[..], &[]),
        ] {
            let said = error_of(arguments, variables);
            let expected = format!(": the proxy {address}: Connection refused");
            assert!(said.contains(&expected), "{said}");
            assert!(!said.contains("hush"), "{said}");
            assert!(!said.contains(":9000"), "no word of the server: {said}");
        }
    }
    let elsewhere = [("http_proxy", "http://proxy.invalid:3128")];
    for place in [WEB, BUCKET] {
        let said = error_of(place, &elsewhere);
        assert!(
            said.contains(": the proxy proxy.invalid:3128: failed to lookup"),
            "{said}"
        );
    }
}

#[test]
fn a_server_excluded_from_the_proxy_is_named() {
    let url = format!("http://{}", unused_address());
    let variables = [("ALL_PROXY", url.as_str()), ("NO_PROXY", "server.invalid")];
    let option = format!("proxy_url={url}");
    let excludes = ["--option", &option, "--option", "proxy_excludes=.invalid"];
    for place in [WEB, BUCKET] {
        let by_option = [place, &excludes].concat();
        for said in [error_of(place, &variables), error_of(&by_option, &[])] {
            assert!(
                said.contains(": server.invalid: failed to lookup"),
                "{said}"
            );
            assert!(!said.contains("proxy "), "{said}");
        }
    }
}
