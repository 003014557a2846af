//! Redirects from a public server to a private address are not followed or requested.
//!
//! A proxy plays the public server.

use std::time::Duration;

use zarr_format::error::Error;
use zarrfs_store::RemoteConfig;

use super::odd_servers::open;
use crate::common::scripted::{Answer, Scripted, answer};

const PUBLIC: &str = "http://93.184.216.34/";
const OTHER: &str = "http://93.184.216.35/";

/// Opens a store on a public server that answers each request with a redirect. Returns the error and the URLs that were
/// requested.
fn redirected_to(place: String) -> (Error, Vec<String>) {
    let proxy = Scripted::start(move |_, request| {
        if request.target.starts_with(PUBLIC) {
            let headers = vec![("location", place.clone())];
            return Answer {
                headers,
                ..answer(302, b"")
            };
        }
        answer(404, b"")
    });
    let remote = RemoteConfig {
        options: vec![("proxy_url".to_string(), proxy.url(""))],
        ..RemoteConfig::default()
    };
    let opened = open(PUBLIC, Duration::from_secs(1), remote);
    let requests = proxy.requests.lock().unwrap();
    let targets = requests.iter().map(|request| request.target.clone());
    (opened.err().unwrap(), targets.collect())
}

#[test]
fn a_redirect_from_a_public_host_to_a_private_address_is_refused() {
    let inside = Scripted::start(|_, _| answer(200, b"{}"));
    let (error, asked) = redirected_to(inside.url("zarr.json"));
    assert!(error.to_string().contains("a private address"), "{error}");
    assert!(!asked.is_empty());
    assert!(asked.iter().all(|url| url.starts_with(PUBLIC)), "{asked:?}");
    assert_eq!(inside.requests.lock().unwrap().len(), 0);
}

#[test]
fn a_public_host_may_redirect_to_another() {
    let (_, asked) = redirected_to(format!("{OTHER}zarr.json"));
    assert!(asked.iter().any(|url| url.starts_with(OTHER)), "{asked:?}");
}
