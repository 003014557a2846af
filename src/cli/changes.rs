//! `zarrfs status`, `diff`, `commit` and `discard`: what they ask, and how the answer is printed.
//!
//! On a mount the daemon does the work, so that nothing is torn; where none runs, the command opens the upper folder
//! itself. Both answer in the same JSON.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process;
use serde_json::{Value, json};

use super::progress::CommitProgress;
use super::{
    CommitArgs, DiffArgs, DiscardArgs, PlaceArgs, StatusArgs, diff_arrays, report, units,
    upper_socket,
};
use crate::error::{Error, Kind, Result, printable};
use crate::overlay;
use crate::overlay::changes::{ChangedKey, KeyChange};
use crate::overlay::commit::{CommitConfig, Outcome, copy};
use crate::overlay::{Overlay, OverlayConfig};
use crate::stats::Stats;
use crate::store;
use crate::store::{Key, RemoteConfig, Store, StoreConfig};

/// How often, and how far apart, a folder is looked at that is in use.
const LOOKS: usize = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// How long a request to the store may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Says how much was changed.
pub(super) fn status(args: &StatusArgs) -> Result<bool> {
    let answer = ask(&args.place, &json!({"command": "status"}))?;
    match args.json {
        true => report::print(format_args!("{answer:#}")),
        false => print_status(&answer),
    }
    Ok(true)
}

fn print_status(answer: &Value) {
    let number = |name: &str| answer[name].as_u64().unwrap_or(0);
    let (new, put, erased) = (number("new"), number("put"), number("erased"));
    let store = printable(answer["store"].as_str().unwrap_or_default());
    match new + put + erased {
        0 => report::print(format_args!("{store}: nothing to commit")),
        _ => report::print(format_args!(
            "{store}: {new} new, {} changed, {erased} removed, {} to write",
            put - new.min(put),
            units::show_size(number("bytes")),
        )),
    }
    print_kept(answer);
}

/// Lists what stays in the upper folder.
fn print_kept(answer: &Value) {
    let kept = answer["kept"].as_array().map_or(&[][..], Vec::as_slice);
    if !kept.is_empty() {
        report::print(format_args!("{} stay in the upper folder:", kept.len()));
    }
    for pair in kept {
        let word = |place: usize| printable(pair[place].as_str().unwrap_or_default());
        report::print(format_args!("    {}: {}", word(0), word(1)));
    }
}

/// Lists what was changed; returns whether nothing was.
pub(super) fn diff(args: &DiffArgs) -> Result<bool> {
    let command = if args.arrays { "diff-arrays" } else { "diff" };
    let answer = ask(&args.place, &json!({"command": command}))?;
    if args.arrays {
        match args.json {
            true => report::print(format_args!("{answer:#}")),
            false => diff_arrays::print(&answer),
        }
        return Ok(answer["nodes"].as_array().is_none_or(Vec::is_empty));
    }
    let keys = answer["keys"].as_array().cloned().unwrap_or_default();
    match args.json {
        true => report::print(format_args!("{answer:#}")),
        false => keys.iter().for_each(|key| {
            let word = |name: &str| key[name].as_str().unwrap_or_default().to_string();
            report::print(format_args!(
                "{} {}",
                word("change"),
                printable(&word("key"))
            ));
        }),
    }
    Ok(keys.is_empty())
}

/// Brings what was changed into the store; returns whether there were no conflicts.
pub(super) fn commit(args: &CommitArgs) -> Result<bool> {
    let answer = match &args.to {
        Some(to) => copy_to(&args.place, to)?,
        None => {
            let (dry_run, force) = (args.dry_run, args.force);
            let request = json!({"command": "commit", "dry_run": dry_run, "force": force});
            ask(&args.place, &request)?
        }
    };
    let conflicts = answer["conflicts"].as_array().cloned().unwrap_or_default();
    if args.json {
        report::print(format_args!("{answer:#}"));
        return Ok(conflicts.is_empty());
    }
    for pair in &conflicts {
        let word = |place: usize| printable(pair[place].as_str().unwrap_or_default());
        report::print(format_args!("{}: {}", word(0), word(1)));
    }
    if !conflicts.is_empty() {
        report::fail(
            report::NO,
            format_args!(
                "{} conflicts; nothing was overwritten (see --force)",
                conflicts.len()
            ),
        );
        return Ok(false);
    }
    let number = |name: &str| answer[name].as_u64().unwrap_or(0);
    report::print(format_args!(
        "{}{} put ({}), {} removed",
        if args.dry_run { "would do: " } else { "" },
        number("put"),
        units::show_size(number("bytes")),
        number("erased"),
    ));
    print_kept(&answer);
    Ok(true)
}

/// Throws away what was changed.
pub(super) fn discard(args: &DiscardArgs) -> Result<bool> {
    let path = args.path.clone().unwrap_or_default();
    let request = json!({"command": "discard", "path": path.trim_matches('/')});
    let answer = ask(&args.place, &request)?;
    let count = answer["discarded"].as_u64().unwrap_or(0);
    report::print(format_args!("{count} changes discarded"));
    Ok(true)
}

/// Does what a request asks; `Invalid` for one that nobody knows.
pub(super) fn answer(
    overlay: &Overlay,
    request: &Value,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Value> {
    let is = |name: &str| request[name].as_bool().unwrap_or(false);
    match request["command"].as_str().unwrap_or_default() {
        "status" => status_of(overlay),
        "diff" => diff_of(overlay),
        "diff-arrays" => diff_arrays::answer(overlay),
        "commit" => {
            let config = CommitConfig {
                dry_run: is("dry_run"),
                force: is("force"),
            };
            Ok(outcome_json(&overlay.commit(config, progress)?))
        }
        "discard" => {
            let path = Key::new(request["path"].as_str().unwrap_or_default())?;
            Ok(json!({"discarded": overlay.discard(&path)?}))
        }
        other => Err(Error::invalid(other, "is no command that a mount knows")),
    }
}

fn shown(key: &Key) -> String {
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}

fn pairs(list: &[(Key, &'static str)]) -> Value {
    list.iter()
        .map(|(key, why)| json!([shown(key), why]))
        .collect()
}

fn status_of(overlay: &Overlay) -> Result<Value> {
    let changes = overlay.changes()?;
    let count =
        |is: &dyn Fn(&ChangedKey) -> bool| changes.keys.iter().filter(|key| is(key)).count();
    let bytes: u64 = changes.keys.iter().map(ChangedKey::bytes).sum();
    Ok(json!({
        "store": overlay::belongs_to(overlay.path())?,
        "upper": overlay.path().display().to_string(),
        "put": count(&|change| change.what != KeyChange::Erase),
        "new": count(&|change| change.what != KeyChange::Erase && change.is_new()),
        "erased": count(&|change| change.what == KeyChange::Erase),
        "bytes": bytes,
        "kept": pairs(&changes.kept),
    }))
}

fn diff_of(overlay: &Overlay) -> Result<Value> {
    let changes = overlay.changes()?;
    let keys: Value = changes
        .keys
        .iter()
        .map(|change| {
            let letter = match change.what {
                KeyChange::Erase => "D",
                _ if change.is_new() => "A",
                _ => "M",
            };
            json!({"change": letter, "key": shown(&change.key)})
        })
        .collect();
    Ok(json!({"keys": keys, "kept": pairs(&changes.kept)}))
}

fn outcome_json(outcome: &Outcome) -> Value {
    let conflicts = outcome.conflicts.iter();
    let conflicts: Value = conflicts
        .map(|(key, why)| json!([shown(key), why]))
        .collect();
    json!({
        "put": outcome.put,
        "bytes": outcome.bytes,
        "erased": outcome.erased,
        "conflicts": conflicts,
        "kept": pairs(&outcome.kept),
    })
}

/// Has a request answered: by the mount that has the upper folder open, or here.
fn ask(args: &PlaceArgs, request: &Value) -> Result<Value> {
    let upper = upper_of(&args.place)?;
    let progress = CommitProgress::new();
    let show = |done, total| progress.show(done, total);
    match upper_socket::ask(&upper, request, &show)? {
        Some(answer) => Ok(answer),
        None => answer(&open(args, &upper)?, request, &show),
    }
}

/// Opens an upper folder that no mount has open, over its store.
fn open(args: &PlaceArgs, upper: &Path) -> Result<Overlay> {
    let name = overlay::belongs_to(upper)?;
    let source = args.store.clone().unwrap_or_else(|| name.clone());
    let store = open_store(args, &source, false)?;
    let config = OverlayConfig {
        uid: process::geteuid().as_raw(),
        gid: process::getegid().as_raw(),
        write_through: false,
    };
    let name = store::shown(&source);
    // A mount that was unmounted a moment ago has it for a little longer.
    for _ in 0..LOOKS {
        match Overlay::open(upper, store.clone(), &name, config.clone()) {
            Err(error) if error.kind() == Kind::Exists => thread::sleep(PAUSE),
            opened => return opened,
        }
    }
    Overlay::open(upper, store, &name, config)
}

fn open_store(args: &PlaceArgs, source: &str, is_new: bool) -> Result<Arc<dyn Store>> {
    let config = StoreConfig {
        remote: RemoteConfig {
            may_be_empty: is_new,
            ..args.remote.config(TIMEOUT)?
        },
        ..StoreConfig::default()
    };
    store::open(source, &config, &Arc::new(Stats::default()))
}

/// Writes the store with all changes to another one.
fn copy_to(args: &PlaceArgs, to: &str) -> Result<Value> {
    let upper = upper_of(&args.place)?;
    if let Some(folder) = store::local_folder(to) {
        std::fs::create_dir_all(&folder)
            .map_err(|error| Error::os(Path::new(&folder).display(), error))?;
    }
    let target = open_store(args, to, true)?;
    let progress = CommitProgress::new();
    let show = |done, total| progress.show(done, total);
    let from: Arc<dyn Store> = match mounted_keys(&args.place) {
        Some(keys) => open_store(args, &keys.to_string_lossy(), false)?,
        None => Arc::new(open(args, &upper)?),
    };
    Ok(outcome_json(&copy::copy_all(&*from, &*target, &show)?))
}

/// Returns where a mount shows all keys, if it is one.
fn mounted_keys(place: &Path) -> Option<PathBuf> {
    let keys = place.join(".zarrfs/store");
    keys.is_dir().then_some(keys)
}

/// Returns the upper folder of a mountpoint, or of itself.
fn upper_of(place: &Path) -> Result<PathBuf> {
    let failed = |error| Error::os(place.display(), error);
    match std::fs::read(place.join(".zarrfs/mount.json")) {
        Ok(text) => {
            let value: Value = serde_json::from_slice(&text)
                .map_err(|error| Error::corrupt(place.display(), error))?;
            match value["options"]["cow"].as_str() {
                Some(upper) if upper != "none" => Ok(PathBuf::from(upper)),
                _ => Err(Error::invalid(place.display(), "is mounted without --cow")),
            }
        }
        Err(_) if place.join("zarrfs.json").is_file() => place.canonicalize().map_err(failed),
        Err(_) => {
            let why = "is neither a mount with --cow nor an upper folder";
            Err(Error::invalid(place.display(), why))
        }
    }
}
