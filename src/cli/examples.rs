//! What follows the options in the help of each command: examples, and where the files of a mount are.

/// The last lines of every help.
macro_rules! with_files {
    ($examples:expr) => {
        concat!(
            "Examples:\n",
            $examples,
            "\nDIR/.zarrfs/files has the decoded arrays of a mount, DIR/.zarrfs/errors what failed last. '.zarrfs' opens by \
             name; no listing shows it."
        )
    };
}

pub(super) const PROGRAM: &str = concat!(
    with_files!(
        "  zarrfs mount data.zarr /mnt/data   # or: zarrfs data.zarr /mnt/data\n  \
           ls /mnt/data/.zarrfs/files\n  \
           zarrfs umount /mnt/data\n"
    ),
    "\n'zarrfs help COMMAND' tells all of a command; zarrfs(7) is the manual."
);

macro_rules! of_mount {
    () => {
        with_files!(
            "  zarrfs mount data.zarr /mnt/data\n  \
               zarrfs mount --view files data.zarr.zip /mnt/arrays\n  \
               zarrfs mount --anon s3://bucket/data.zarr /mnt/data\n  \
               zarrfs mount --cow changes data.zarr /mnt/data\n"
        )
    };
}

pub(super) const MOUNT: &str = of_mount!();

pub(super) const HELPER: &str =
    with_files!("  mount -t zarrfs -o ro,list=raw:chunks /data/data.zarr /mnt/data\n");

pub(super) const UMOUNT: &str = with_files!("  zarrfs umount /mnt/data\n");

pub(super) const LIST: &str = with_files!("  zarrfs list\n  zarrfs list --json\n");

pub(super) const STATUS: &str =
    with_files!("  zarrfs status /mnt/data\n  zarrfs status --json changes\n");

pub(super) const DIFF: &str =
    with_files!("  zarrfs diff /mnt/data\n  zarrfs diff --arrays /mnt/data\n");

pub(super) const COMMIT: &str = with_files!(
    "  zarrfs commit --dry-run /mnt/data\n  \
       zarrfs commit /mnt/data\n  \
       zarrfs commit --to s3://bucket/new.zarr /mnt/data\n"
);

pub(super) const DISCARD: &str =
    with_files!("  zarrfs discard /mnt/data tas\n  zarrfs discard /mnt/data\n");

/// The options of `-o`, after the examples of `zarrfs mount`.
pub(super) const MOUNT_OPTIONS: &str = concat!(
    of_mount!(),
    "\n\nOptions of -o: view, files, cow, memory, max_chunk, timeout, list, dialect, log, uid, gid, umask, option, \
     endpoint, region, profile, metadata_ttl, concurrency, cache_dir and cache_size (each with =VALUE), allow_other, \
     write_through, lossy, follow_symlinks, consolidated, no_fallback, anon and immutable as above; fsname=NAME, the \
     source that the table of mounts shows; readahead=SIZE, how far the kernel reads ahead (1M; only root can set it); \
     nonempty, mount over what DIR holds; ro, noexec, noatime, sync, dirsync; verbose. Options of fstab that concern \
     others (auto, user, nofail, _netdev, x-...) and rw, suid, dev are accepted and ignored: a mount is ro without cow \
     or write_through, and always nosuid and nodev. A comma in a value is written \\,"
);
