//! Opens a bucket: checks that it exists and whether names can be listed.

use std::sync::Arc;
use std::time::Duration;

use super::address::Address;
use super::client::Client;
use super::listing::BucketListing;
use super::refusal::BucketAbsence;
use super::settings::ClientSettings;
use super::writer::WriteClients;
use super::{BucketStore, address, cloud_urls, settings};
use crate::backend::remote::connector::Connector;
use crate::backend::remote::errors;
use crate::backend::remote::limits::RequestLimits;
use crate::backend::remote::retry::once_ready;
use crate::backend::remote::{OPEN_RETRIES, OPEN_TIME_LIMIT, RETRIES};
use crate::request_context::UNLIMITED;
use crate::stats::Stats;
use crate::{Key, RemoteConfig, StoreInfo};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document;

impl BucketStore {
    /// Opens `scheme:rest`, called `shown` in messages. Fails within seconds with `Denied`, `NotFound`, `Invalid` or
    /// `Unavailable` if the store is missing or cannot be read.
    pub fn open(
        scheme: &str,
        rest: &str,
        shown: &str,
        config: &RemoteConfig,
        stats: &Arc<Stats>,
    ) -> Result<BucketStore> {
        let kind = address::kind(scheme)
            .ok_or_else(|| Error::unsupported(shown, format!("no stores of kind {scheme}:")))?;
        let address = address::read(scheme, kind, rest, shown)?;
        BucketStore::open_address(&address, shown, config, stats)
    }

    /// Opens the bucket of a plain HTTPS URL of its cloud, or returns `None` if the URL is not one or the bucket cannot
    /// be read.
    pub(in crate::backend) fn open_cloud_url(
        url: &str,
        shown: &str,
        config: &RemoteConfig,
        stats: &Arc<Stats>,
    ) -> Option<BucketStore> {
        let (address, region) = cloud_urls::bucket(url)?;
        let config = RemoteConfig {
            region: region.or_else(|| config.region.clone()),
            ..config.clone()
        };
        BucketStore::open_address(&address, shown, &config, stats).ok()
    }

    fn open_address(
        address: &Address,
        shown: &str,
        config: &RemoteConfig,
        stats: &Arc<Stats>,
    ) -> Result<BucketStore> {
        let connector = Connector::new(stats.clone(), config.timeout);
        let limit = config.timeout.min(OPEN_TIME_LIMIT);
        let first = BucketStore::build(address, config, &connector, OPEN_RETRIES, limit)?;
        let probed = once_ready(limit, || first.probe(shown));
        let lists = probed.map_err(|error| match &config.endpoint {
            Some(endpoint)
                if error.kind() == Kind::Unavailable && !errors::names_server(error.detail()) =>
            {
                let server = crate::redacted(endpoint);
                Error::unavailable(shown, format!("{server}: {}", error.detail()))
            }
            _ => error,
        })?;
        let mut store = BucketStore::build(address, config, &connector, RETRIES, config.timeout)?;
        store.info.lists = lists;
        if !lists {
            let absence = BucketAbsence::new(store.client.clone(), store.prefix.clone());
            store.absence = Some(Arc::new(absence));
        }
        Ok(store)
    }

    pub(super) fn build(
        address: &Address,
        config: &RemoteConfig,
        connector: &Connector,
        retries: usize,
        limit: Duration,
    ) -> Result<BucketStore> {
        let info = StoreInfo {
            concurrency: config.concurrency,
            ..StoreInfo::new(config.metadata_ttl)
        };
        let settings = ClientSettings {
            address: address.clone(),
            config: config.clone(),
            connector: connector.clone(),
            not_shown: info.hidden_entries.clone(),
        };
        let clients = settings.clients(settings::retries(retries, limit))?;
        let info = StoreInfo {
            server: Some(clients.server.into()),
            ..info
        };
        Ok(BucketStore {
            client: Arc::new(Client {
                objects: clients.objects,
                pages: clients.pages,
                parts: clients.parts,
                limits: RequestLimits::new(limit, config.concurrency),
                region: config.region.clone(),
                hint: clients.hint,
                suffixes: address.kind != address::CloudKind::Azure,
            }),
            prefix: address.prefix.clone(),
            writer: WriteClients::new(settings),
            absence: None,
            may_be_empty: config.may_be_empty,
            is_ordered: !address.bucket.ends_with("--x-s3"),
            info,
        })
    }

    /// Checks that the store exists. Returns whether names can be listed.
    fn probe(&self, shown: &str) -> Result<bool> {
        let root = Key::root();
        let prefix = self.prefix_below(&root);
        let mut listing = BucketListing::new(self.client.clone(), prefix, root);
        let refused = match listing.has_names(&UNLIMITED) {
            Ok(true) => return Ok(true),
            Ok(false) if self.may_be_empty => return Ok(true),
            Ok(false) => return Err(Error::not_found(shown)),
            Err(error) if error.kind() == Kind::Denied => error,
            Err(error) => return Err(Error::new(error.kind(), shown, error.detail())),
        };
        // Many public buckets permit reading but not listing.
        for name in document::at_root() {
            if let Ok(Some(_)) = self.object(&UNLIMITED, &Key::new(name)?) {
                return Ok(false);
            }
        }
        Err(Error::new(Kind::Denied, shown, refused.detail()))
    }
}
