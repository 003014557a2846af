//! `zarrfs mount`: opens the store, mounts it, and serves until the mount ends.
//!
//! The store is opened and the mountpoint is checked before the mount, so that errors appear on the terminal and not as
//! EIO. Without `-f` the program starts itself again in the background, and the new process does all this
//! (`background`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::{fs, io};

use crate::cli::background::{Parent, StartFailure};
use crate::cli::mount_facts::control_dir;
use crate::cli::plan::MountPlan;
use crate::cli::report::ExitPolicy;
use crate::cli::signals::{Hangup, InputWatch};
use crate::cli::{background, log_target, report, signals};
use crate::fuse::kernel_mount;
use crate::fuse::kernel_mount::{Connection, MountRequest, mountpoint};
use crate::fuse::serve::MountServer;
use crate::fuse::session::SessionSettings;
use crate::mount::open::{ViewKind, Views};
use crate::mount::{control_socket, open};
use crate::vfs::Vfs;
use zarr_format::error::{Error, Result, printable};
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::{allocator, idle_memory};

/// Mounts a store. Returns when the mount answers or, in the foreground, when the mount has ended.
pub(super) fn mount(plan: &MountPlan, policy: ExitPolicy) -> ExitCode {
    if let Some(parent) = Parent::find() {
        let Err(error) = serve(plan, Some(parent)) else {
            return ExitCode::SUCCESS;
        };
        background::report_failure(policy.status(&error), &error);
        return ExitCode::from(policy.status(&error));
    }
    let started = if plan.foreground || plan.fake {
        serve(plan, None).map_err(StartFailure::from)
    } else {
        background::start(plan).map(|what| {
            // mount(8) prints nothing on success.
            if policy != ExitPolicy::Helper {
                report::print(what);
            }
        })
    };
    let Err(StartFailure { status, error }) = started else {
        return ExitCode::SUCCESS;
    };
    report::fail(status.unwrap_or(policy.status(&error)), error)
}

fn serve(plan: &MountPlan, parent: Option<Parent>) -> Result<()> {
    let hangup = Hangup::of_process();
    let log = log_target::start(plan.log.as_deref(), parent.is_none(), plan.verbose)?;
    if hangup == Hangup::OpensLog {
        let listening = signals::at_hangup(move || log.reopen());
        listening.map_err(|error| Error::os("cannot listen for signals", error))?;
    }
    let input = if plan.until_eof {
        // With `--until-eof`, standard input may end before the mount is ready: then the mountpoint is removed as after
        // a mount.
        let plan = plan.clone();
        Some(InputWatch::start(move || remove_dir(&plan))?)
    } else {
        None
    };
    let stats = Arc::new(Stats::default());
    check_folders(plan)?;
    check_passthrough(plan)?;
    if let Some(warning) = &plan.warning {
        log::warn!("{}: {warning}", plan.redacted_source());
    }
    let views = open::open_views(&plan.views_config(), &stats)?;
    let dir = prepared_dir(plan)?;
    if plan.fake {
        return Ok(());
    }
    if let Some(overlay) = views.overlay() {
        control_socket::serve(overlay.clone(), views.arrays().clone())?;
    }
    let what = description(plan, &views)?;
    let server = MountServer::new(hangup == Hangup::EndsMount)?;
    if let Some(input) = &input {
        input.hand_over(server.stop_handle());
    }
    let settings = SessionSettings {
        timeout: plan.timeout,
        readahead: plan.readahead,
        passthrough: plan.passthrough,
        is_local: views.is_local(),
    };
    let vfs = Vfs::new(views.view(plan.view), plan.vfs_config(), stats.clone());
    let vfs = Arc::new(vfs);
    let mount = server.serve(connect(plan, dir)?, vfs.clone(), &stats, settings)?;
    idle_memory::start(views.memory())?;
    announce(&what, parent)?;
    mount.wait(|| background::notify("STOPPING=1"));
    // Refuses further writes first, because programs may still have files open.
    views.arrays().refuse_writes();
    vfs.end_all(&UNLIMITED);
    views.arrays().flush_closed_arrays(&UNLIMITED);
    if let Some(overlay) = views.overlay() {
        control_socket::end(overlay);
        if let Err(error) = overlay.close() {
            log::warn!(
                "cannot close the changes directory, so the next mount checks the changes: {error}"
            );
        }
    }
    remove_dir(plan);
    Ok(())
}

/// With `--rmdir`, removes the mountpoint after the unmount; a missing mountpoint is no error.
fn remove_dir(plan: &MountPlan) {
    let dir = &plan.dir;
    if !plan.rmdir || MountPlan::descriptor(dir).is_some() {
        return;
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let dir = printable(&dir.display().to_string());
            log::warn!("{dir}: cannot be removed: {error}");
        }
        _ => {}
    }
}

/// Fails if the cache directory or the changes directory is in the mountpoint, where the mount would hide it, or in the
/// store.
fn check_folders(plan: &MountPlan) -> Result<()> {
    let store = zarrfs_store::local_path(&plan.source);
    let cache = plan.store.remote.cache_dir.as_ref();
    let folders = [("--cache-dir", cache), ("--cow", plan.cow.as_ref())];
    for (option, folder) in folders {
        let Some(folder) = folder else { continue };
        mountpoint::check_outside(option, folder, &plan.dir, "mountpoint")?;
        if let Some(store) = &store {
            mountpoint::check_outside(option, folder, store, "store")?;
        }
    }
    Ok(())
}

/// Fails with `--passthrough` if the kernel's direct reads could return stale bytes.
fn check_passthrough(plan: &MountPlan) -> Result<()> {
    if !plan.passthrough {
        return Ok(());
    }
    let others = [
        ("--cow", plan.cow.is_some() && !plan.write_through),
        ("--write-through", plan.write_through),
    ];
    if let Some((other, _)) = others.iter().find(|(_, is_given)| *is_given) {
        let why = format!("cannot be used with {other}");
        return Err(Error::invalid("--passthrough", why));
    }
    if zarrfs_store::local_folder(&plan.source).is_none() {
        log::warn!("the store is not on this machine: --passthrough changes nothing");
    } else if !rustix::process::geteuid().is_root() {
        log::warn!("only root has the kernel read files itself: --passthrough changes nothing");
    }
    Ok(())
}

/// Checks the mountpoint and returns its absolute path; a path such as `/dev/fd/N` is returned unchanged.
fn prepared_dir(plan: &MountPlan) -> Result<PathBuf> {
    if MountPlan::descriptor(&plan.dir).is_some() {
        return Ok(plan.dir.clone());
    }
    let store = zarrfs_store::local_path(&plan.source);
    mountpoint::prepare(&plan.dir, store.as_deref(), plan.nonempty)
}

fn connect(plan: &MountPlan, dir: PathBuf) -> Result<Connection> {
    if let Some(number) = MountPlan::descriptor(&dir) {
        return kernel_mount::take_over(number);
    }
    kernel_mount::mount(&MountRequest {
        source: plan
            .fsname
            .clone()
            .unwrap_or_else(|| plan.redacted_source()),
        path: dir,
        allow_other: plan.allow_other,
        flags: plan.flags,
    })
}

/// Returns the text that `zarrfs mount` prints: the mounted store, and the commands to try next.
fn description(plan: &MountPlan, views: &Views) -> Result<String> {
    let source = printable(&plan.redacted_source());
    let found = views.describe(&source)?;
    // The mountpoint of a `/dev/fd/N` mount is unknown.
    let is_known = MountPlan::descriptor(&plan.dir).is_none();
    let dir = if is_known {
        plan.dir.clone()
    } else {
        PathBuf::from("DIR")
    };
    let in_control = |view: ViewKind| {
        if plan.view == view {
            dir.clone()
        } else {
            control_dir(&dir).join(view.name())
        }
    };
    let mode = if plan.flags.read_only {
        "read-only"
    } else {
        "writable"
    };
    let mut lines = vec![format!(
        "Mounted {source} ({}, {mode}) at {}",
        found.summary,
        dir.display()
    )];
    if plan.view == ViewKind::Store && views.hides_control() {
        let why = "the store has a key of this name";
        lines.push(format!(
            "  arrays:  mount with --view files: DIR/.zarrfs is hidden, since {why}"
        ));
    } else {
        let files = in_control(ViewKind::Files);
        let example = found.example.map(|path| files.join(path));
        lines.push(match example {
            Some(path) => format!(
                "  arrays:  {}  (and .raw .nc .tif ...; see zarrfs info)",
                path.display()
            ),
            None if !found.is_zarr => format!("  arrays:  {}", files.display()),
            None => format!(
                "  arrays:  {}  (as .npy .raw .nc .tif ...; see zarrfs info)",
                files.display()
            ),
        });
    }
    lines.extend(where_changes_go(plan, &dir));
    lines.push(format!(
        "  keys:    {}   unmount: zarrfs umount {}",
        in_control(ViewKind::Store).display(),
        dir.display()
    ));
    let lines: Vec<String> = lines.iter().map(|line| printable(line)).collect();
    Ok(lines.join("\n"))
}

/// Returns the line that says where changes are written, or `None` if the mount has no changes directory.
fn where_changes_go(plan: &MountPlan, dir: &Path) -> Option<String> {
    let changes = plan.cow.as_ref()?.display();
    let dir = dir.display();
    Some(if plan.write_through && !plan.flags.read_only {
        format!("  changes: to the store when a file is closed; refused ones stay in {changes}")
    } else {
        format!("  changes: {changes}   review: zarrfs diff {dir}")
    })
}

/// Reports that the mount is ready: to systemd, and to the parent process or on stdout.
fn announce(what: &str, parent: Option<Parent>) -> Result<()> {
    match parent {
        Some(parent) => {
            std::env::set_current_dir("/").map_err(|error| Error::os("/", error))?;
            log_target::leave_terminal();
            parent.ready(what)?;
        }
        None => {
            log_target::leave_terminal();
            report::print(what);
        }
    }
    background::notify("READY=1");
    allocator::release_program();
    Ok(())
}
