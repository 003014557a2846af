//! Parses the options of mount(8) and fstab: `-o ro,memory=256M`.
//!
//! Options for mount(8) and systemd themselves are ignored; other options change the plan of the mount. The error for
//! an unknown option suggests the most similar name.

use std::path::Path;
use std::time::Duration;

use crate::cli::plan::MountPlan;
use crate::cli::store_args::at_chosen;
use crate::cli::{remote, usage, values};
use crate::view::files::ListedFormat;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::edit_distance::nearest;
use zarrfs_store::{Revision, VirtualPrefix};

/// Options that are accepted and ignored: those for mount(8) and systemd, and those that zarrfs cannot switch.
const IGNORED: [&str; 34] = [
    "async",
    "atime",
    "auto",
    "default_permissions",
    "defaults",
    "dev",
    "diratime",
    "exec",
    "group",
    "lazytime",
    "loud",
    "_netdev",
    "noauto",
    "nodev",
    "nodiratime",
    "nofail",
    "nogroup",
    "nolazytime",
    "noowner",
    "norelatime",
    "nostrictatime",
    "nosuid",
    "nouser",
    "nousers",
    "owner",
    "relatime",
    "rw",
    "silent",
    "strictatime",
    "subtype",
    "suid",
    "user",
    "users",
    "comment",
];

const KNOWN: [&str; 45] = [
    "allow_non_empty",
    "allow_other",
    "anon",
    "bearer_token_file",
    "branch",
    "cache_dir",
    "cache_size",
    "concurrency",
    "consolidated",
    "cow",
    "dialect",
    "dirsync",
    "endpoint",
    "follow_symlinks",
    "fsname",
    "gid",
    "header",
    "immutable",
    "list",
    "log",
    "lossy",
    "max_chunk",
    "memory",
    "metadata_ttl",
    "missing_is",
    "netrc",
    "noatime",
    "noexec",
    "passthrough",
    "profile",
    "readahead",
    "region",
    "ro",
    "snapshot",
    "spill",
    "storage_option",
    "sync",
    "tag",
    "timeout",
    "uid",
    "umask",
    "verbose",
    "view",
    "virtual_chunks",
    "write_through",
];

/// Synonyms of options: names in other tools, and names in earlier versions of zarrfs.
const ALIASES: [(&str, &str); 9] = [
    ("cache", "cache_dir"),
    ("changes", "cow"),
    ("debug", "verbose"),
    ("endpoint_url", "endpoint"),
    ("log_file", "log"),
    ("max_cache_size", "cache_size"),
    ("no_sign_request", "anon"),
    ("nonempty", "allow_non_empty"),
    ("option", "storage_option"),
];

/// Applies the options of all `-o` arguments, in order, to the plan of a mount.
///
/// Fails with `Invalid` if an option is unknown (unless `sloppy`) or its value is invalid.
pub(super) fn apply_all(plan: &mut MountPlan, texts: &[String], sloppy: bool) -> Result<()> {
    for (name, value) in texts.iter().flat_map(|text| split(text)) {
        apply(plan, &name, value.as_deref(), sloppy)?;
    }
    plan.flags.read_only = plan.read_only || plan.cow.is_none();
    Ok(())
}

/// Splits mount options such as `a,b=c` at commas; in a value `\,` is a comma and `\\` a backslash.
fn split(text: &str) -> Vec<(String, Option<String>)> {
    let mut options = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let escaped = (letter == '\\')
            .then(|| letters.next_if(|next| matches!(next, ',' | '\\')))
            .flatten();
        match (escaped, letter, options.last_mut()) {
            (None, ',', _) => options.push(String::new()),
            (escaped, letter, Some(option)) => option.push(escaped.unwrap_or(letter)),
            (_, _, None) => {}
        }
    }
    options.retain(|option| !option.is_empty());
    options
        .iter()
        .map(|option| name_and_value(option))
        .collect()
}

fn name_and_value(option: &str) -> (String, Option<String>) {
    match option.split_once('=') {
        Some((name, value)) => (name.to_string(), Some(value.to_string())),
        None => (option.to_string(), None),
    }
}

fn apply(plan: &mut MountPlan, name: &str, value: Option<&str>, sloppy: bool) -> Result<()> {
    if is_ignored(name) {
        return Ok(());
    }
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let name = alias.map_or(name, |(_, name)| name);
    if !KNOWN.contains(&name) {
        return if sloppy { Ok(()) } else { Err(unknown(name)) };
    }
    match value {
        None => apply_switch(plan, name),
        Some(value) => {
            apply_value(plan, name, value).map_err(|error| error.about(format!("-o {name}")))
        }
    }
}

fn is_ignored(name: &str) -> bool {
    IGNORED.contains(&name) || name.starts_with("x-") || name.starts_with("X-")
}

fn apply_switch(plan: &mut MountPlan, name: &str) -> Result<()> {
    if remote::apply_switch(&mut plan.store.remote, name)? {
        return Ok(());
    }
    match name {
        "ro" => plan.read_only = true,
        "noexec" => plan.flags.noexec = true,
        "noatime" => plan.flags.noatime = true,
        "sync" => plan.flags.sync = true,
        "dirsync" => plan.flags.dirsync = true,
        "allow_other" => plan.allow_other = true,
        "allow_non_empty" => plan.nonempty = true,
        "follow_symlinks" => plan.store.follow_symlinks = true,
        "lossy" => plan.lossy = true,
        "passthrough" => plan.passthrough = true,
        "write_through" => plan.set_write_through()?,
        "consolidated" => plan.hierarchy.consolidated = true,
        "verbose" => plan.verbose += 1,
        _ => {
            return Err(Error::invalid(
                format!("-o {name}"),
                format!("needs a value: {name}=..."),
            ));
        }
    }
    Ok(())
}

fn apply_value(plan: &mut MountPlan, name: &str, value: &str) -> Result<()> {
    if remote::apply_value(&mut plan.store.remote, name, value)? {
        return Ok(());
    }
    match name {
        "fsname" => plan.fsname = Some(value.to_string()),
        "cow" => plan.set_cow(Path::new(value))?,
        "log" => plan.log = Some(values::absolute(Path::new(value))?),
        "view" => plan.view = value.parse()?,
        "dialect" => plan.hierarchy.dialect = Some(value.parse()?),
        "uid" => plan.uid = values::user(value)?,
        "gid" => plan.gid = values::group(value)?,
        "umask" => plan.umask = values::octal(value)?,
        "memory" => plan.memory = values::memory(value)?,
        "max_chunk" => plan.max_chunk = values::size(value)?,
        "spill" => plan.spill = values::spill(value)?,
        "readahead" => plan.readahead = values::size(value)?,
        "timeout" => set_timeout(plan, values::duration(value)?),
        "list" => plan.list = forms(value)?,
        "branch" => plan.source = at_chosen(&plan.source, Revision::Branch(value.to_string()))?,
        "tag" => plan.source = at_chosen(&plan.source, Revision::Tag(value.to_string()))?,
        "snapshot" => plan.source = at_chosen(&plan.source, Revision::Snapshot(value.to_string()))?,
        "virtual_chunks" => plan.store.virtual_chunks.push(VirtualPrefix::parse(value)?),
        _ => return Err(Error::invalid("", "takes no value")),
    }
    Ok(())
}

fn forms(value: &str) -> Result<Vec<ListedFormat>> {
    value.split([',', ':', '+']).map(str::parse).collect()
}

fn set_timeout(plan: &mut MountPlan, timeout: Duration) {
    plan.timeout = timeout;
    plan.store.remote.timeout = timeout;
}

fn unknown(name: &str) -> Error {
    if let Some(instead) = usage::replacement_of(name) {
        return Error::new(Kind::Removed, format!("-o {name}"), instead);
    }
    let hint = match nearest(name, KNOWN.iter().chain(&IGNORED).copied()) {
        Some(known) => format!("; did you mean '{known}'?"),
        None => format!("; choose one of {}", KNOWN.join(", ")),
    };
    Error::invalid(format!("-o {name}"), format!("unknown option{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::open::ViewKind;

    fn plan(options: &str) -> Result<MountPlan> {
        let mut plan = MountPlan::plain("a.zarr", Path::new("/mnt"))?;
        apply_all(&mut plan, &[options.to_string()], false)?;
        Ok(plan)
    }

    #[test]
    fn commas_and_backslashes_are_escaped() {
        let some = |text: &str| Some(text.to_string());
        let split = split(r"a,b=c\,d,,e=\\,f\g=h=i,");
        let expected = [
            ("a", None),
            ("b", some("c,d")),
            ("e", some("\\")),
            (r"f\g", some("h=i")),
        ]
        .map(|(n, v)| (n.to_string(), v));
        assert_eq!(split, expected);
    }

    #[test]
    fn an_fstab_line_is_read() {
        let plan = plan(
            "defaults,_netdev,nofail,x-systemd.automount,allow_other,uid=7,umask=027,view=files,noexec",
        );
        let plan = plan.unwrap();
        assert!(plan.allow_other && plan.flags.noexec && plan.flags.read_only);
        assert_eq!((plan.uid, plan.umask), (7, 0o027));
        assert_eq!(plan.view, ViewKind::Files);
    }

    #[test]
    fn list_takes_several_formats_in_one_mount_option() {
        let listed = |options: &str| {
            let words = plan(options).unwrap().list;
            words.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(listed(r"list=chunks\,raw,ro"), ["chunks", "raw"]);
        assert_eq!(listed("list=chunks:raw"), ["chunks", "raw"]);
        assert_eq!(listed("list=all"), ["all"]);
        let error = plan("list=npy:row").unwrap_err().to_string();
        assert!(error.starts_with("-o list: row: unknown format; choose from npy, raw, txt, "));
        assert!(error.ends_with(", chunks and all"));
    }

    #[test]
    fn dialects_are_chosen_by_name() {
        let plan = plan("dialect=draft2020,consolidated").unwrap();
        let name = plan.hierarchy.dialect.map(|dialect| dialect.name());
        assert_eq!(name, Some("draft2020"));
        assert!(plan.hierarchy.consolidated);
    }

    #[test]
    fn errors_of_mount_options_give_a_hint() {
        let error = |options: &str| plan(options).unwrap_err().to_string();
        assert_eq!(
            error("alow_other"),
            "-o alow_other: unknown option; did you mean 'allow_other'?"
        );
        assert!(
            error("qqqqqqq")
                .starts_with("-o qqqqqqq: unknown option; choose one of allow_non_empty, ")
        );
        assert!(error("access_log=a").contains("RUST_LOG"));
        assert!(error("files=/mnt").starts_with("-o files: was removed; DIR/.zarrfs/files "));
        assert!(error("spill_size=1G").contains("--spill"));
        assert_eq!(error("memory"), "-o memory: needs a value: memory=...");
        assert_eq!(error("ro=1"), "-o ro: takes no value");
        assert!(error("umask=9").starts_with("-o umask: '9': "));
        assert!(
            error("dialect=v1").starts_with("-o dialect: v1: unknown dialect; choose one of v2, ")
        );
    }
}
