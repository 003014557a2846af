//! `zarrfs mount`: opens the store, mounts, serves until the end.
//!
//! The store is opened and the mountpoints are checked before anything is mounted, so what is wrong is said
//! on the terminal and not as EIO. Without `-f` the program starts itself again for all this (`background`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use super::background::Parent;
use super::plan::MountPlan;
use super::report::ExitPolicy;
use super::{background, log_target, notify, report};
use crate::error::{Error, Result};
use crate::fuse::mount;
use crate::fuse::mount::{Connection, MountRequest, mountpoint};
use crate::fuse::serve::MountServer;
use crate::fuse::session::SessionSettings;
use crate::mount::open::{ViewKind, Views};
use crate::mount::{control_socket, open};
use crate::stats::Stats;
use crate::store;
use crate::vfs::Vfs;

/// Mounts as planned; returns when the mount answers, or in the foreground when it has ended.
pub(super) fn mount(plan: &MountPlan, manner: ExitPolicy) -> ExitCode {
    if let Some(parent) = Parent::find() {
        return match serve(plan, Some(&parent)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                parent.failed(manner.status(&error), &error);
                ExitCode::from(manner.status(&error))
            }
        };
    }
    if plan.foreground || plan.fake {
        return match serve(plan, None) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report::fail(manner.status(&error), error),
        };
    }
    match background::start(plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report::fail(
            failure.status.unwrap_or(manner.status(&failure.error)),
            failure.error,
        ),
    }
}

/// One directory to mount, and what it shows.
struct MountTarget {
    face: ViewKind,
    dir: PathBuf,
    descriptor: Option<i32>,
}

fn serve(plan: &MountPlan, parent: Option<&Parent>) -> Result<()> {
    log_target::start(plan.log.as_deref(), parent.is_none(), plan.verbose)?;
    let stats = Arc::new(Stats::default());
    check_folders(plan)?;
    let faces = open::open_views(&plan.faces(), &stats)?;
    let targets = targets(plan)?;
    if plan.fake {
        return Ok(());
    }
    if let Some(overlay) = faces.overlay() {
        control_socket::serve(overlay.clone())?;
    }
    let mut server = MountServer::new()?;
    for target in &targets {
        serve_target(plan, target, &faces, &stats, &mut server)?;
    }
    announce(plan, parent)?;
    server.wait(|| notify::tell("STOPPING=1"));
    Ok(())
}

/// Refuses a cache or an upper folder that a mount would hide, or that would be part of what is mounted.
fn check_folders(plan: &MountPlan) -> Result<()> {
    let place = store::local_place(&plan.source);
    let mounts = [Some(&plan.dir), plan.files.as_ref()];
    let cache = plan.store.remote.cache_dir.as_ref();
    let folders = [("--cache-dir", cache), ("--cow", plan.cow.as_ref())];
    for (option, folder) in folders {
        let Some(folder) = folder else { continue };
        let within = mounts.into_iter().flatten().map(|dir| (dir, "mountpoint"));
        for (dir, what) in within.chain(place.as_ref().map(|place| (place, "store"))) {
            mountpoint::check_outside((option, folder), dir, what)?;
        }
    }
    Ok(())
}

/// Returns what is to be mounted where, all of it checked.
fn targets(plan: &MountPlan) -> Result<Vec<MountTarget>> {
    let place = store::local_place(&plan.source);
    let mut targets = vec![target(plan, plan.view, &plan.dir, place.as_deref())?];
    if let Some(files) = &plan.files {
        let second = target(plan, ViewKind::Files, files, place.as_deref())?;
        for first in &targets {
            mountpoint::check_apart(&first.dir, &second.dir)?;
        }
        targets.push(second);
    }
    Ok(targets)
}

fn target(
    plan: &MountPlan,
    face: ViewKind,
    dir: &Path,
    place: Option<&Path>,
) -> Result<MountTarget> {
    let descriptor = descriptor(dir);
    let dir = match descriptor {
        Some(_) => dir.to_path_buf(),
        None => mountpoint::prepare(dir, place, plan.nonempty)?,
    };
    Ok(MountTarget {
        face,
        dir,
        descriptor,
    })
}

/// Returns N of `/dev/fd/N`: a descriptor that somebody privileged has mounted.
pub(super) fn descriptor(dir: &Path) -> Option<i32> {
    dir.strip_prefix("/dev/fd").ok()?.to_str()?.parse().ok()
}

fn serve_target(
    plan: &MountPlan,
    target: &MountTarget,
    faces: &Views,
    stats: &Arc<Stats>,
    server: &mut MountServer,
) -> Result<()> {
    let vfs = Vfs::new(faces.view(target.face), plan.owner(), stats.clone());
    let connection = connect(plan, target)?;
    let settings = SessionSettings {
        timeout: plan.timeout,
        readahead: plan.readahead,
    };
    server.serve(connection, Arc::new(vfs), stats, settings)
}

fn connect(plan: &MountPlan, target: &MountTarget) -> Result<Connection> {
    if let Some(number) = target.descriptor {
        return mount::take_over(number);
    }
    mount::mount(&MountRequest {
        source: plan.fsname.clone().unwrap_or_else(|| plan.shown_source()),
        path: target.dir.clone(),
        allow_other: plan.allow_other,
        flags: plan.flags,
    })
}

/// Says that the mount is there: to the parent, to systemd, or to the person in front of it.
fn announce(plan: &MountPlan, parent: Option<&Parent>) -> Result<()> {
    match parent {
        Some(parent) => {
            std::env::set_current_dir("/").map_err(|error| Error::os("/", error))?;
            parent.ready()?;
        }
        None => report::print(format_args!(
            "{} is mounted at {}",
            plan.shown_source(),
            plan.dir.display()
        )),
    }
    notify::tell("READY=1");
    Ok(())
}
