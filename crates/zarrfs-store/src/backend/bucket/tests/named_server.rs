//! A bucket's server, by which the disk cache distinguishes buckets of the same name.

use std::sync::Arc;
use std::time::Duration;

use crate::RemoteConfig;
use crate::backend::bucket::{BucketStore, address};
use crate::backend::remote::connector::Connector;
use crate::stats::Stats;

/// Returns the server of the bucket in a URL, with these options.
fn server(url: &str, options: &[(&str, &str)]) -> String {
    let (scheme, rest) = url.split_once(':').unwrap();
    let address = address::read(scheme, address::kind(scheme).unwrap(), rest, url).unwrap();
    let options = options.iter();
    let config = RemoteConfig {
        options: options
            .map(|(name, value)| ((*name).to_string(), (*value).to_string()))
            .collect(),
        ..RemoteConfig::default()
    };
    let limit = Duration::from_secs(1);
    let connector = Connector::new(Arc::new(Stats::default()), limit);
    let store = BucketStore::build(&address, &config, &connector, 0, limit).unwrap();
    store.info.server.unwrap().to_string()
}

#[test]
fn what_names_the_server_of_a_bucket_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let account = folder.path().join("account.json");
    let text = r#"{"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": true,
        "gcs_base_url": "http://there:4443"}"#;
    std::fs::write(&account, text).unwrap();
    let account = account.to_str().unwrap();
    let endpoint = ("endpoint", "http://minio:9000");
    let key = [("access_key_id", "me"), ("secret_access_key", "hidden")];
    let found = [
        server("s3://b/a", &[endpoint, ("region", "eu-west-1")]),
        server("s3://b/a", &[endpoint, key[0], key[1]]),
        server("s3://b/a", &[("region", "cn-north-1"), key[0], key[1]]),
        server("gs://b/a", &[("base_url", "http://here:4443")]),
        server("gs://b/a", &[("service_account", account)]),
    ];
    let expected = [
        "http://minio:9000",
        "http://minio:9000",
        "cn-north-1",
        "http://here:4443",
        "http://there:4443",
    ];
    assert_eq!(found, expected);
    let azure =
        |account: &str, more: (&str, &str)| server("az://c/a", &[("account_name", account), more]);
    let one = azure("one", ("account_key", "aGlkZGVu"));
    assert_eq!(one, azure("one", ("sas_token", "sig=hidden")));
    assert_ne!(one, azure("other", ("account_key", "aGlkZGVu")));
    assert!(!one.contains("aGlkZGVu"), "{one}");
}
