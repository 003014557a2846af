//! Collects all options of a mount, with their defaults, in a plan.
//!
//! The plan has absolute paths, since the daemon changes its working directory. No file is opened here.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process;

use crate::cli::values::SpillChoice;
use crate::cli::{HelperArgs, MountArgs, format, options, remote, values};
use crate::fuse::kernel_mount::Flags;
use crate::mount::open::{ViewKind, ViewsConfig};
use crate::vfs::VfsConfig;
use crate::view::files::ListedFormat;
use zarr_format::error::{Error, Result};
use zarrfs_array::hierarchy::HierarchyConfig;
use zarrfs_overlay::OverlayConfig;
use zarrfs_store::{StoreConfig, VirtualPrefix};

pub(super) const DEFAULT_MAX_CHUNK: u64 = 1 << 30;

pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// All options of a mount.
#[derive(Clone, Debug, Default)]
pub(super) struct MountPlan {
    pub(super) source: String,
    pub(super) dir: PathBuf,
    pub(super) view: ViewKind,
    pub(super) foreground: bool,
    /// Whether the mount ends when standard input is closed.
    pub(super) until_eof: bool,
    /// Whether the mountpoint is removed after the unmount.
    pub(super) rmdir: bool,
    pub(super) fake: bool,
    pub(super) flags: Flags,
    pub(super) allow_other: bool,
    pub(super) nonempty: bool,
    pub(super) fsname: Option<String>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) umask: u32,
    pub(super) memory: u64,
    pub(super) max_chunk: u64,
    pub(super) spill: SpillChoice,
    pub(super) timeout: Duration,
    pub(super) list: Vec<ListedFormat>,
    pub(super) store: StoreConfig,
    pub(super) cow: Option<PathBuf>,
    /// Whether the changes directory is used although it belongs to a store at another path or URL.
    pub(super) rebind: bool,
    pub(super) write_through: bool,
    pub(super) lossy: bool,
    /// Whether the mount is read-only even if it has a changes directory.
    pub(super) read_only: bool,
    pub(super) hierarchy: HierarchyConfig,
    pub(super) log: Option<PathBuf>,
    pub(super) verbose: u8,
    pub(super) readahead: u64,
    /// Whether the kernel reads local stored files directly (FUSE_PASSTHROUGH).
    pub(super) passthrough: bool,
    /// A warning about the options, which is logged once the log is open.
    pub(super) warning: Option<String>,
}

impl MountPlan {
    /// Returns the plan of a mount with the defaults of all options.
    pub(super) fn plain(store: &str, dir: &Path) -> Result<MountPlan> {
        values::check_store(store)?;
        let (place, revision) = zarrfs_store::split_revision(store)?;
        let place = match zarrfs_store::local_folder(&place) {
            // A local path is made absolute, since the daemon changes its working directory.
            Some(folder) => values::absolute(&without_descriptor(Path::new(&folder)))?
                .to_string_lossy()
                .into_owned(),
            None => zarrfs_store::normalized(&place),
        };
        let source = zarrfs_store::at_revision(place, revision);
        Ok(MountPlan {
            source,
            dir: values::absolute(dir)?,
            flags: Flags {
                read_only: true,
                ..Flags::default()
            },
            uid: process::geteuid().as_raw(),
            gid: process::getegid().as_raw(),
            memory: default_memory(),
            max_chunk: DEFAULT_MAX_CHUNK,
            timeout: DEFAULT_TIMEOUT,
            // The kernel reads this much on a page fault in a randomly read mmap, so it is no more than 1 MiB.
            readahead: 1 << 20,
            ..MountPlan::default()
        })
    }

    /// Returns the plan for the arguments of `zarrfs mount`; fails with `Invalid` for an invalid option.
    pub(super) fn of_command(args: &MountArgs) -> Result<MountPlan> {
        let mut plan = MountPlan {
            view: args.view,
            foreground: args.foreground,
            until_eof: args.until_eof,
            rmdir: args.rmdir,
            allow_other: args.allow_other,
            nonempty: args.allow_non_empty,
            umask: args.umask,
            max_chunk: args.max_chunk,
            spill: args.spill.clone(),
            passthrough: args.passthrough,
            timeout: args.timeout,
            list: args.list.clone(),
            store: StoreConfig {
                follow_symlinks: args.follow_symlinks,
                remote: args.remote.config(args.timeout)?,
                virtual_chunks: args.repository.outside.virtual_chunks.clone(),
                ..StoreConfig::default()
            },
            hierarchy: HierarchyConfig {
                dialect: args.dialect,
                consolidated: args.consolidated,
            },
            lossy: args.lossy,
            read_only: args.read_only,
            rebind: args.rebind,
            log: args.log.as_deref().map(values::absolute).transpose()?,
            verbose: args.verbose,
            ..MountPlan::plain(&args.repository.location(&args.store)?, &args.dir)?
        };
        if let Some(upper) = &args.cow {
            plan.set_cow(upper)?;
        }
        if args.write_through {
            plan.set_write_through()?;
        }
        plan.uid = args.uid.unwrap_or(plan.uid);
        plan.gid = args.gid.unwrap_or(plan.gid);
        plan.memory = args.memory.unwrap_or(plan.memory);
        options::apply_all(&mut plan, &args.options, false)?;
        plan.warning = args.remote.without_effect(&plan.source);
        if plan.rebind && plan.cow.is_none() {
            let why = "needs the changes directory: add --cow CHANGES";
            return Err(Error::invalid("--rebind", why));
        }
        Ok(plan)
    }

    /// Returns the plan for the arguments of `mount.zarrfs`; fails with `Invalid` for an invalid option.
    pub(super) fn of_helper(args: &HelperArgs) -> Result<MountPlan> {
        let mut plan = MountPlan::plain(&args.store, &args.dir)?;
        plan.verbose = args.verbose;
        plan.fake = args.fake;
        plan.read_only = args.read_only;
        options::apply_all(&mut plan, &args.options, args.sloppy)?;
        Ok(plan)
    }

    /// Returns the path or URL of the store without passwords and tokens.
    pub(super) fn redacted_source(&self) -> String {
        zarrfs_store::redacted(&self.source)
    }

    /// Returns the configuration of the mount's views.
    pub(super) fn views_config(&self) -> ViewsConfig {
        ViewsConfig {
            source: self.source.clone(),
            list: self.list.clone(),
            memory: self.memory,
            max_chunk: self.max_chunk,
            spill: self.spill.config(self.store.remote.cache_dir.as_deref()),
            timeout: self.timeout,
            store: self.store.clone(),
            overlay: self.overlay(),
            rebind: self.rebind,
            lossy: self.lossy,
            hierarchy: self.hierarchy.clone(),
            options: self.options_in_force(),
        }
    }

    /// Returns N if the mountpoint is `/dev/fd/N`: a FUSE device that a privileged program has already mounted.
    pub(super) fn descriptor(dir: &Path) -> Option<i32> {
        dir.strip_prefix("/dev/fd").ok()?.to_str()?.parse().ok()
    }

    /// Returns the owner, group and umask of all files, and whether the mount is writable.
    pub(super) fn vfs_config(&self) -> VfsConfig {
        VfsConfig {
            uid: self.uid,
            gid: self.gid,
            umask: self.umask,
            writable: !self.flags.read_only,
        }
    }

    /// Makes the mount keep changes in the directory `upper`.
    pub(super) fn set_cow(&mut self, upper: &Path) -> Result<()> {
        self.cow = Some(values::absolute(upper)?);
        Ok(())
    }

    /// Makes the mount write a file to the store when it is closed. Changes that the store refuses go to the changes
    /// directory, which has a default.
    pub(super) fn set_write_through(&mut self) -> Result<()> {
        self.write_through = true;
        if self.cow.is_none() {
            self.cow = Some(state_folder(&zarrfs_store::canonical_location(
                &self.source,
            ))?);
        }
        Ok(())
    }

    /// Returns the changes directory and its configuration, or `None` if there is none.
    fn overlay(&self) -> Option<(PathBuf, OverlayConfig)> {
        let config = OverlayConfig {
            uid: self.uid,
            gid: self.gid,
            write_through: self.write_through,
        };
        self.cow.clone().map(|upper| (upper, config))
    }

    /// Returns the path of the changes directory, or `none`.
    fn upper_text(&self) -> String {
        let upper = self.cow.as_ref();
        upper.map_or_else(|| "none".to_string(), |path| path.display().to_string())
    }

    /// Returns the dialect of --dialect, or `auto`.
    fn dialect_text(&self) -> String {
        let chosen = self.hierarchy.dialect;
        chosen.map_or_else(|| "auto".to_string(), |chosen| chosen.to_string())
    }

    /// Returns the URL prefixes of virtual chunks, without their options.
    fn virtual_chunks_text(&self) -> String {
        let prefixes = self.store.virtual_chunks.iter().map(VirtualPrefix::prefix);
        match prefixes.collect::<Vec<_>>().as_slice() {
            [] => "none".to_string(),
            prefixes => prefixes.join(","),
        }
    }

    /// Returns the formats of --list as text, or `none`.
    fn list_text(&self) -> String {
        let words: Vec<String> = self.list.iter().map(ToString::to_string).collect();
        if words.is_empty() {
            "none".to_string()
        } else {
            words.join(",")
        }
    }

    /// Returns the options of the mount and their values for `mount.json`, without secrets.
    fn options_in_force(&self) -> Vec<(String, String)> {
        let options = [
            ("store", self.redacted_source()),
            ("view", self.view.to_string()),
            ("uid", self.uid.to_string()),
            ("gid", self.gid.to_string()),
            ("umask", format!("{:03o}", self.umask)),
            ("allow_other", self.allow_other.to_string()),
            ("read_only", self.flags.read_only.to_string()),
            ("memory", format::size(self.memory)),
            ("max_chunk", format::size(self.max_chunk)),
            ("spill", self.spill.to_string()),
            ("cow", self.upper_text()),
            ("write_through", self.write_through.to_string()),
            ("lossy", self.lossy.to_string()),
            ("timeout", format::duration(self.timeout)),
            ("list", self.list_text()),
            ("follow_symlinks", self.store.follow_symlinks.to_string()),
            ("dialect", self.dialect_text()),
            ("virtual_chunks", self.virtual_chunks_text()),
            ("consolidated", self.hierarchy.consolidated.to_string()),
            ("readahead", format::size(self.readahead)),
            ("until_eof", self.until_eof.to_string()),
            ("rmdir", self.rmdir.to_string()),
        ];
        let remote = match zarrfs_store::local_folder(&self.source) {
            Some(_) => Vec::new(),
            None => remote::options_in_force(&self.store.remote),
        };
        let options = options.into_iter().chain(remote);
        options
            .map(|(name, value)| (name.to_string(), value))
            .collect()
    }
}

/// Resolves a path such as `/dev/fd/8`, since the daemon closes inherited descriptors. Returns any other path
/// unchanged.
fn without_descriptor(path: &Path) -> PathBuf {
    let is_own = ["/dev/fd", "/proc/self/fd"]
        .iter()
        .any(|folder| path.starts_with(folder));
    let resolved = is_own.then(|| path.canonicalize().ok()).flatten();
    resolved.unwrap_or_else(|| path.to_path_buf())
}

/// Returns the default changes directory of `--write-through` for the store at `place`.
fn state_folder(place: &str) -> Result<PathBuf> {
    let state = match std::env::var_os("XDG_STATE_HOME") {
        Some(state) if !state.is_empty() => PathBuf::from(state),
        _ => match std::env::home_dir() {
            Some(home) => home.join(".local/state"),
            None => {
                let why = "no home directory for the changes; add --cow CHANGES";
                return Err(Error::invalid("--write-through", why));
            }
        },
    };
    let name = format!(
        "{:016x}",
        zarrfs_store::Version::of(place.as_bytes()).number()
    );
    Ok(state.join("zarrfs").join(name))
}

/// Returns the default of --memory: a quarter of the memory of the machine or container, at most 4 GiB; 256 MiB if that
/// memory is unknown.
pub(super) fn default_memory() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total_memory(&text));
    let container = fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let total = machine.into_iter().chain(container).min();
    total.map_or(256 << 20, |total: u64| (total / 4).min(4 << 30))
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_memory_is_parsed_from_meminfo() {
        assert_eq!(
            total_memory("MemFree: 1 kB\nMemTotal:       2048 kB\n"),
            Some(2 << 20)
        );
        assert_eq!(total_memory(""), None);
        assert!(default_memory() <= 4 << 30);
    }
}
