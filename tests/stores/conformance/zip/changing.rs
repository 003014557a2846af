//! Requests for an archive in the store below it, and archives that change there.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::backend::zip::ZipStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::clock::Clock;
use zarrfs_store::{ByteRange, Key, Meta, Object, Reader, Store, StoreConfig, StoreInfo};

use super::fixture::{content, get, key, names};
use crate::common::zip_writer::{Archive, Entry};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

/// A store that logs its requests, and whose `StoreInfo` a test may change.
#[derive(Clone)]
struct Told {
    memory: MemoryStore,
    info: StoreInfo,
    log: Arc<Mutex<Vec<String>>>,
    /// How long a read takes.
    pause: Duration,
}

impl Told {
    fn new(fresh: Duration, bytes: Vec<u8>) -> Told {
        let memory = MemoryStore::default();
        memory.set(key("a.zip"), bytes);
        Told {
            memory,
            info: StoreInfo::new(fresh),
            log: Arc::default(),
            pause: Duration::ZERO,
        }
    }

    fn zip(&self) -> ZipStore {
        ZipStore::open(
            &UNLIMITED,
            Arc::new(self.clone()),
            &key("a.zip"),
            &Key::root(),
            "told",
        )
        .unwrap()
    }

    fn note(&self, text: String) {
        self.log.lock().unwrap().push(text);
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    /// Returns the number of bytes that were read since the last look at the log.
    fn bytes_read(&self) -> u64 {
        let asked = self.asked();
        let lengths = asked.iter().filter_map(|text| text.strip_suffix(" bytes"));
        lengths.map(|length| length.parse::<u64>().unwrap()).sum()
    }
}

impl Layer for Told {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn get(&self, _context: &RequestContext, key: &Key, _: u64) -> Result<Option<Object>> {
        Err(Error::invalid(key, "an archive is never read as a whole"))
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        context.check_may_wait()?;
        self.note("head".to_string());
        self.memory.head(context, key)
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        self.note("open".to_string());
        Ok(Arc::new(ToldReader {
            reader: self.memory.open(context, key, known)?,
            key: key.clone(),
            told: self.clone(),
        }))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

/// A reader of the object that it was opened on. It fails with `Changed` if the object was replaced.
struct ToldReader {
    reader: Arc<dyn Reader>,
    key: Key,
    told: Told,
}

impl Reader for ToldReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let bytes = self.reader.read_at(context, offset, len)?;
        std::thread::sleep(self.told.pause);
        self.told.note(format!("{} bytes", bytes.len()));
        match self.told.memory.head(context, &self.key)? {
            None => Err(Error::not_found(&self.key)),
            Some(meta) if meta.version != self.reader.meta(context)?.version => {
                Err(Error::new(Kind::Changed, &self.key, "other"))
            }
            Some(_) => Ok(bytes),
        }
    }

    fn meta(&self, context: &RequestContext) -> Result<Meta> {
        self.reader.meta(context)
    }
}

#[test]
fn an_entry_takes_one_request_for_its_bytes_alone() {
    let long = content(600_000);
    let entries = (0..20).map(|n| Entry::new(format!("a/{n}"), &long));
    let told = Told::new(Duration::from_secs(3600), Archive::of(entries).bytes());
    let zip = told.zip();
    assert_eq!(told.asked(), ["open", "65557 bytes"]);
    assert_eq!(names(&zip, "a").len(), 20);
    assert!(zip.head(&UNLIMITED, &key("a/7")).unwrap().is_some());
    assert_eq!(told.asked(), [""; 0]);
    assert_eq!(get(&zip, "a/7").unwrap().unwrap(), long);
    assert_eq!(told.asked(), ["600097 bytes"]);
    let opened = zip.open(&UNLIMITED, &key("a/8"), None).unwrap();
    assert_eq!(
        opened.read_at(&UNLIMITED, 1000, 10).unwrap(),
        long[1000..1010]
    );
    assert_eq!(told.asked(), ["33 bytes", "10 bytes"]);
}

#[test]
fn a_replaced_archive_fails_open_readers_and_is_read_anew() {
    let archive = |text: &[u8]| Archive::of([Entry::new("a", text), Entry::deflated("b", text)]);
    for fresh in [Duration::ZERO, Duration::from_secs(3600)] {
        let told = Told::new(fresh, archive(b"old").bytes());
        let zip = told.zip();
        let before = zip.head(&UNLIMITED, &key("a")).unwrap().unwrap();
        let opened = ["a", "b"].map(|path| zip.open(&UNLIMITED, &key(path), None).unwrap());
        told.memory.set(key("a.zip"), archive(b"newer").bytes());
        for reader in &opened {
            assert_eq!(
                reader.read_at(&UNLIMITED, 0, 3).unwrap_err().kind(),
                Kind::Changed
            );
        }
        // A read detects the change, even if the archive's index is still within its TTL.
        assert_eq!(get(&zip, "a").unwrap().unwrap(), b"newer");
        let after = zip.head(&UNLIMITED, &key("a")).unwrap().unwrap();
        assert_eq!((before.size, after.size), (3, 5));
        assert_ne!(before.version, after.version);
        let opened = zip.open(&UNLIMITED, &key("b"), None).unwrap();
        assert_eq!(opened.read_at(&UNLIMITED, 0, 9).unwrap(), b"newer");
    }
}

#[test]
fn a_deleted_archive_is_an_error_and_not_a_missing_entry() {
    let bytes = Archive::of([Entry::new("a", b"bytes")]).bytes();
    for fresh in [Duration::ZERO, Duration::from_secs(3600)] {
        let told = Told::new(fresh, bytes.clone());
        let zip = told.zip();
        let opened = zip.open(&UNLIMITED, &key("a"), None).unwrap();
        told.memory.erase(&key("a.zip"));
        assert_eq!(fault_of(get(&zip, "a")), Kind::Unavailable);
        assert_eq!(
            fault_of(opened.read_at(&UNLIMITED, 0, 1)),
            Kind::Unavailable
        );
        assert_eq!(
            fault_of(zip.open(&UNLIMITED, &key("a"), None)),
            Kind::Unavailable
        );
        told.memory.set(key("a.zip"), bytes.clone());
        assert_eq!(get(&zip, "a").unwrap().unwrap(), b"bytes");
        told.memory.set(key("a.zip"), bytes[..40].to_vec());
        assert_eq!(fault_of(get(&zip, "a")), Kind::Unavailable);
    }
}

/// Returns an archive whose entry has a wrong byte, and the correct archive.
fn wrong_and_right() -> (Vec<u8>, Vec<u8>) {
    let right = Entry::new("a", &content(100_000));
    let mut wrong = right.clone();
    wrong.packed[7] ^= 1;
    (Archive::of([wrong]).bytes(), Archive::of([right]).bytes())
}

#[test]
fn a_corrupt_entry_is_verified_once_a_minute() {
    let (wrong, right) = wrong_and_right();
    let clock = Clock::stopped();
    let mut told = Told::new(Duration::ZERO, wrong);
    told.info.clock = clock.clone();
    let zip = told.zip();
    let range = |range| zip.get_range(&UNLIMITED, &key("a"), range);
    let part = || range(ByteRange::Suffix(3));
    assert_eq!(fault_of(range(ByteRange::Span(0..100_000))), Kind::Corrupt);
    told.bytes_read();
    // The whole entry is read again before the error, because the wrong byte may have been a fault of the network.
    assert_eq!(fault_of(part()), Kind::Corrupt);
    assert!(told.bytes_read() >= 100_000);
    for _ in 0..2 {
        assert_eq!(fault_of(part()), Kind::Corrupt);
        assert_eq!(
            fault_of(zip.open(&UNLIMITED, &key("a"), None)),
            Kind::Corrupt
        );
        assert_eq!(fault_of(get(&zip, "a")), Kind::Corrupt);
    }
    assert_eq!(told.bytes_read(), 0);
    clock.advance(Duration::from_secs(60));
    assert_eq!(fault_of(part()), Kind::Corrupt);
    assert!(told.bytes_read() >= 100_000);
    assert_eq!(fault_of(get(&zip, "a")), Kind::Corrupt);
    assert_eq!(told.bytes_read(), 0);
    told.memory.set(key("a.zip"), right);
    assert_eq!(part().unwrap().unwrap().bytes.len(), 3);
}

#[test]
fn a_corrupt_entry_is_verified_by_one_of_many_readers() {
    let mut told = Told::new(Duration::from_secs(3600), wrong_and_right().0);
    told.pause = Duration::from_millis(20);
    let zip = told.zip();
    assert_eq!(fault_of(get(&zip, "a")), Kind::Corrupt);
    told.bytes_read();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                assert_eq!(
                    fault_of(zip.open(&UNLIMITED, &key("a"), None)),
                    Kind::Corrupt
                )
            });
        }
    });
    let read = told.bytes_read();
    assert!((100_000..110_000).contains(&read), "{read}");
}

fn fault_of<T>(answer: Result<T>) -> Kind {
    answer.err().unwrap().kind()
}

#[test]
fn an_archive_overwritten_in_place_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    let archive = |text: &[u8]| Archive::of([Entry::new("a", text)]).bytes();
    std::fs::write(&path, archive(b"old text")).unwrap();
    let stats = Arc::new(Stats::default());
    let location = path.to_string_lossy().into_owned();
    let zip = zarrfs_store::open(&UNLIMITED, &location, &StoreConfig::default(), &stats).unwrap();
    let opened = zip.open(&UNLIMITED, &key("a"), None).unwrap();
    assert_eq!(opened.read_at(&UNLIMITED, 0, 100).unwrap(), b"old text");
    // The text is longer, so that the change is detected even if the file system's clock is coarse.
    std::fs::write(&path, archive(b"new and longer text")).unwrap();
    assert_eq!(
        opened.read_at(&UNLIMITED, 0, 100).unwrap_err().kind(),
        Kind::Changed
    );
    assert_eq!(get(&*zip, "a").unwrap().unwrap(), b"new and longer text");
}
