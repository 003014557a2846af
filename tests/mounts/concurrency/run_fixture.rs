//! Prepares a run: a store with content, and a mount or overlay over it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use zarrfs_store::backend::local::LocalStore;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::stats::Stats;
use zarrfs_store::{RemoteConfig, Store, StoreConfig};

use crate::concurrency::actors::{Places, first_bytes};
use crate::concurrency::fixture::folder;
use crate::concurrency::flaky::Flaky;
use crate::concurrency::in_process::InProcess;
use crate::concurrency::mounted::{MountPoint, Mounted};
use crate::concurrency::plan::{Plan, Site};
use crate::concurrency::proxy::Proxy;
use crate::concurrency::world::{Outside, OutsideFolder, OutsideStore, World};
use zarrfs_store::request_context::UNLIMITED;

/// The latency of each request to a slow store on a server.
const SLOW: Duration = Duration::from_millis(50);

/// The latency of slow stores in this process, which is short because calls only have to overlap.
const SLOW_HERE: Duration = Duration::from_millis(2);

const BUCKET: &str = "test";
const KEY_ID: &str = "testkey";
const SECRET: &str = "testsecret1234";
const REGION: &str = "us-east-1";

/// The store of one run, and the mount or overlay over it.
pub(crate) struct RunFixture {
    world: Box<dyn World>,
    outside: Box<dyn Outside>,
    /// A flag that, once set, makes the store answer each request.
    is_calm: Arc<AtomicBool>,
    /// The mount, temporary folder and proxy, which have to exist as long as the fixture.
    _kept: Vec<Box<dyn std::any::Any + Send + Sync>>,
    /// The temporary folder with the mountpoint; `None` if processes cannot work in the run.
    pub(crate) folder: Option<std::path::PathBuf>,
}

impl RunFixture {
    pub(crate) fn new(plan: &Plan) -> RunFixture {
        match plan.site {
            Site::Plain => RunFixture::in_directory(plan),
            Site::Memory | Site::Flaky => RunFixture::in_memory(plan),
            Site::Folder => RunFixture::in_folder(plan),
            Site::Local => RunFixture::on_mount(plan),
            Site::S3 | Site::FlakyS3 => RunFixture::on_bucket(plan),
        }
    }

    pub(crate) fn places(&self) -> Places<'_> {
        Places {
            world: &*self.world,
            outside: &*self.outside,
        }
    }

    pub(crate) fn calm(&self) {
        self.is_calm.store(true, Ordering::Relaxed);
    }

    fn in_directory(plan: &Plan) -> RunFixture {
        let folder = folder();
        let point = MountPoint::plain(folder.path());
        let outside = OutsideFolder(point.dir());
        fill(plan, &outside);
        RunFixture {
            world: Box::new(point),
            outside: Box::new(outside),
            is_calm: Arc::default(),
            folder: Some(folder.path().to_path_buf()),
            _kept: vec![Box::new(folder)],
        }
    }

    fn in_memory(plan: &Plan) -> RunFixture {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let is_calm = Arc::<AtomicBool>::default();
        let lower = match plan.site {
            Site::Flaky => {
                let flaky = Flaky::new(store.clone(), SLOW_HERE, plan.seed, is_calm.clone());
                Arc::new(flaky) as Arc<dyn Store>
            }
            _ => store.clone(),
        };
        let outside = OutsideStore(store);
        fill(plan, &outside);
        RunFixture {
            world: Box::new(InProcess::new(lower, plan.write_through)),
            outside: Box::new(outside),
            is_calm,
            _kept: Vec::new(),
            folder: None,
        }
    }

    fn in_folder(plan: &Plan) -> RunFixture {
        let folder = folder();
        let path = folder.path().join("store");
        std::fs::create_dir(&path).unwrap();
        let outside = OutsideFolder(path.clone());
        fill(plan, &outside);
        let lower = Arc::new(LocalStore::open(&path, &StoreConfig::default()).unwrap());
        RunFixture {
            world: Box::new(InProcess::new(lower, plan.write_through)),
            outside: Box::new(outside),
            is_calm: Arc::default(),
            _kept: vec![Box::new(folder)],
            folder: None,
        }
    }

    fn on_mount(plan: &Plan) -> RunFixture {
        let mounted = Mounted::new(|store: &Path| store.to_string_lossy().into_owned());
        let outside = OutsideFolder(mounted.point.store());
        fill(plan, &outside);
        RunFixture::mounted(plan, mounted, Box::new(outside), None)
    }

    fn on_bucket(plan: &Plan) -> RunFixture {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let url = format!("s3://{BUCKET}/concurrency-{}-{count}", std::process::id());
        let server = std::env::var("ZARRFS_TEST_S3").unwrap();
        let outside = OutsideStore(bucket(&url, &server));
        fill(plan, &outside);
        let proxy = (plan.site == Site::FlakyS3).then(|| Proxy::start(&server, SLOW, plan.seed));
        let endpoint = proxy.as_ref().map_or(server, Proxy::url);
        let options = [
            "--endpoint",
            &endpoint,
            "--region",
            REGION,
            "-o",
            "metadata_ttl=1ms",
        ];
        let keys = [
            ("AWS_ACCESS_KEY_ID", KEY_ID),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
        ];
        let mounted = Mounted::new(|_| url.clone()).with(&options, &keys);
        RunFixture::mounted(plan, mounted, Box::new(outside), proxy)
    }

    fn mounted(
        plan: &Plan,
        mounted: Mounted,
        outside: Box<dyn Outside>,
        proxy: Option<Proxy>,
    ) -> RunFixture {
        let through: &[&str] = if plan.write_through {
            &["--write-through"]
        } else {
            &[]
        };
        let mounted = mounted.with(through, &[]);
        mounted.mount();
        let is_calm = proxy.as_ref().map(Proxy::is_calm).unwrap_or_default();
        let folder = mounted.point.folder().to_path_buf();
        RunFixture {
            world: Box::new(mounted.point.clone()),
            outside,
            is_calm,
            _kept: vec![Box::new(mounted), Box::new(proxy)],
            folder: Some(folder),
        }
    }
}

/// Opens a new bucket of the server for the actors outside of the mount, without the proxy.
fn bucket(url: &str, server: &str) -> Arc<dyn Store> {
    let owned = |(name, value): (&str, &str)| (name.to_string(), value.to_string());
    let options = [
        ("access_key_id", KEY_ID),
        ("secret_access_key", SECRET),
        ("region", REGION),
    ];
    let remote = RemoteConfig {
        options: options.map(owned).to_vec(),
        endpoint: Some(server.to_string()),
        metadata_ttl: Duration::ZERO,
        may_be_empty: true,
        ..RemoteConfig::default()
    };
    let config = StoreConfig {
        remote,
        ..StoreConfig::default()
    };
    zarrfs_store::open(&UNLIMITED, url, &config, &Arc::new(Stats::default())).unwrap()
}

fn fill(plan: &Plan, outside: &dyn Outside) {
    for (path, document) in plan.documents() {
        outside.put(&UNLIMITED, &path, document.as_bytes()).unwrap();
    }
    for key in plan.all_keys() {
        if let Some(bytes) = first_bytes(&key) {
            outside.put(&UNLIMITED, &key.path, &bytes).unwrap();
        }
    }
}
