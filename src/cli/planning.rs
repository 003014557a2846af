//! Makes a mount's plan from arguments; `-o` options are applied last, in order.

use super::plan::MountPlan;
use super::{HelperArgs, MountArgs, options, units};
use zarr_format::error::{Error, Result};
use zarrfs_array::hierarchy::HierarchyConfig;
use zarrfs_store::StoreConfig;

impl MountPlan {
    /// Returns the plan of `zarrfs mount`; `Invalid` for an invalid option.
    pub(super) fn of_command(args: &MountArgs) -> Result<MountPlan> {
        let mut plan = MountPlan {
            view: args.view,
            foreground: args.foreground,
            until_eof: args.until_eof,
            rmdir: args.rmdir,
            allow_other: args.allow_other,
            umask: args.umask,
            max_chunk: args.max_chunk,
            spill: args.spill.clone(),
            passthrough: args.passthrough,
            timeout: args.timeout,
            list: args.list.clone(),
            store: store_config(args)?,
            hierarchy: hierarchy_config(args),
            lossy: args.lossy,
            read_only: args.read_only,
            rebind: args.rebind,
            log: args.log.as_deref().map(units::absolute).transpose()?,
            verbose: args.verbose,
            ..MountPlan::plain(&args.store, &args.dir)?
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
        if plan.rebind && plan.cow.is_none() {
            let why = "needs the folder that holds changes of the store: --cow UPPER";
            return Err(Error::invalid("--rebind", why));
        }
        Ok(plan)
    }

    /// Returns the plan of `mount.zarrfs`; `Invalid` for an invalid option.
    pub(super) fn of_helper(args: &HelperArgs) -> Result<MountPlan> {
        let mut plan = MountPlan::plain(&args.store, &args.dir)?;
        plan.verbose = args.verbose;
        plan.fake = args.fake;
        plan.read_only = args.read_only;
        options::apply_all(&mut plan, &args.options, args.sloppy)?;
        Ok(plan)
    }
}

/// Returns the configuration of the store.
fn store_config(args: &MountArgs) -> Result<StoreConfig> {
    Ok(StoreConfig {
        follow_symlinks: args.follow_symlinks,
        remote: args.remote.config(args.timeout)?,
        ..StoreConfig::default()
    })
}

/// Returns the configuration for finding nodes.
fn hierarchy_config(args: &MountArgs) -> HierarchyConfig {
    HierarchyConfig {
        dialect: args.dialect,
        consolidated: args.consolidated,
    }
}
