//! Prefetches file sizes that index pages lack, for sequential lookups.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::waiting;
use serde_json::{Value, json};
use zarrfs::mount::open::ViewKind;
use zarrfs::view::View;

use super::consolidated::{Objects, key, page_or_object, views_at};
use crate::common::scripted::{Answer, Request, Scripted, answer};
use zarrfs_store::request_context::UNLIMITED;

/// The default number of parallel requests of a store.
const CONCURRENCY: usize = 32;

/// The longest time that a test waits for a request that must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time without requests after which a test assumes that no more come.
const SETTLED: Duration = Duration::from_millis(300);

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// Returns a v2 store with consolidated metadata, with `arrays` arrays in two groups. Each array has `chunks` chunks,
/// of which every fifth is missing.
fn store(arrays: usize, chunks: usize, separator: &str) -> Objects {
    let array = json!({
        "zarr_format": 2, "shape": [chunks * 2, 2], "chunks": [2, 2], "dtype": "|u1", "compressor": null,
        "fill_value": 0, "order": "C", "filters": null, "dimension_separator": separator,
    });
    let group = json!({"zarr_format": 2});
    let mut documents = serde_json::Map::new();
    let mut objects = Objects::new();
    for path in ["", "g0/", "g1/"] {
        documents.insert(format!("{path}.zgroup"), group.clone());
    }
    for number in 0..arrays {
        let path = path_of(number, arrays);
        documents.insert(format!("{path}/.zarray"), array.clone());
        for chunk in (0..chunks).filter(|chunk| chunk % 5 != 4) {
            objects.insert(format!("{path}/{chunk}{separator}0"), vec![7; 4]);
        }
    }
    let copies = json!({"zarr_consolidated_format": 1, "metadata": documents});
    objects.insert(".zmetadata".to_string(), text(&copies));
    objects
}

fn path_of(number: usize, arrays: usize) -> String {
    format!("g{}/v{number:02}", number * 2 / arrays)
}

/// The requests that a server got: their keys, and how many came at the same time.
#[derive(Default)]
struct Asked {
    keys: Mutex<Vec<String>>,
    came: Condvar,
    at_a_time: AtomicUsize,
    most: AtomicUsize,
}

impl Asked {
    /// Waits until a key is requested; returns `false` after a timeout.
    fn wait_for(&self, awaited: &str) -> bool {
        let has_come = |keys: &mut Vec<String>| !keys.iter().any(|key| key == awaited);
        let keys = self.keys.lock().unwrap();
        let (_keys, timeout) = self
            .came
            .wait_timeout_while(keys, PATIENCE, has_come)
            .unwrap();
        !timeout.timed_out()
    }

    fn note(&self, key: &str) {
        let now = self.at_a_time.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.keys.lock().unwrap().push(key.to_string());
        self.came.notify_all();
    }

    /// Waits until no more requests come; returns the keys that were requested since it was last called.
    fn take(&self) -> Vec<String> {
        thread::sleep(SETTLED);
        std::mem::take(&mut *self.keys.lock().unwrap())
    }
}

/// Opens the view of a store on a server with index pages. The answer for the key `held` waits until `awaited` is
/// requested.
fn mounted(objects: Objects, held: &str, awaited: &str) -> (Arc<dyn View>, Arc<Asked>) {
    let asked = Arc::new(Asked::default());
    let (seen, held, awaited) = (asked.clone(), held.to_string(), awaited.to_string());
    let server = Scripted::start(move |_, request: &Request| -> Answer {
        if request.method != "HEAD" {
            return page_or_object(&objects, true, request);
        }
        let key = request.target.trim_start_matches('/');
        seen.note(key);
        let is_late = key == held && !seen.wait_for(&awaited);
        seen.at_a_time.fetch_sub(1, Ordering::SeqCst);
        if is_late {
            answer(500, b"")
        } else {
            page_or_object(&objects, true, request)
        }
    });
    let views = views_at(&server.url(""), Duration::from_secs(1 << 30), false);
    let view = views.view(ViewKind::Store);
    // The first lookup reads the consolidated metadata, so that later lookups request only sizes.
    assert!(view.lookup(&UNLIMITED, &key("g0")).unwrap().is_some());
    (view, asked)
}

/// Looks up paths one after the other, as the kernel does, and checks the sizes.
fn look_up(view: &Arc<dyn View>, paths: &[String]) {
    for path in paths {
        let found = waiting::ask(|context| view.lookup(context, &key(path))).unwrap();
        let chunk = path.split('/').nth(2).unwrap().split('.').next().unwrap();
        let is_stored = chunk.parse::<usize>().unwrap() % 5 != 4;
        assert_eq!(
            found.map(|attr| attr.size),
            is_stored.then_some(4),
            "{path}"
        );
    }
}

#[test]
fn sizes_missing_in_an_index_page_are_prefetched_in_order() {
    // In a listing, which is sorted by bytes, the key `70.0` comes soon after `60.0`.
    let (held, awaited) = ("g0/v00/60.0", "g0/v00/70.0");
    for count in [200, 3, 40] {
        let (view, asked) = mounted(store(2, 200, "."), held, awaited);
        let folder = key("g0/v00");
        let mut listing = view.list(&UNLIMITED, &folder).unwrap();
        let mut names = Vec::new();
        while let Some(name) = listing.next(&UNLIMITED).unwrap() {
            names.push(format!("g0/v00/{}", String::from_utf8(name.name).unwrap()));
        }
        let chunks: Vec<_> = names
            .into_iter()
            .filter(|name| name.ends_with(".0"))
            .collect();
        assert_eq!(chunks.len(), 160, "those that are stored, by their names");
        asked.take();
        let looked_up = &chunks[..count.min(160)];
        look_up(&view, looked_up);
        let keys = asked.take();
        let once: BTreeSet<_> = keys.iter().collect();
        assert_eq!(once.len(), keys.len(), "{keys:?}");
        assert!(looked_up.iter().all(|path| once.contains(path)));
        let most = (count + count.min(CONCURRENCY)).min(160);
        assert!(keys.len() <= most, "{} for {count}", keys.len());
    }
}
