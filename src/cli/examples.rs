//! The text after the options in each command's help: examples and control files.

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

pub(super) const COMPLETIONS: &str =
    with_files!("  zarrfs completions bash\n  zarrfs completions fish\n");

pub(super) const LIST: &str = with_files!("  zarrfs list\n  zarrfs list --json\n");

pub(super) const STATUS: &str =
    with_files!("  zarrfs status /mnt/data\n  zarrfs status --json changes\n");

pub(super) const DIFF: &str = with_files!(
    "  zarrfs diff /mnt/data\n  \
       zarrfs diff --arrays /mnt/data\n  \
       zarrfs diff --values old.zarr s3://bucket/new.zarr\n"
);

pub(super) const COMMIT: &str = with_files!(
    "  zarrfs commit --dry-run /mnt/data\n  \
       zarrfs commit /mnt/data\n  \
       zarrfs commit --to s3://bucket/new.zarr /mnt/data\n"
);

pub(super) const DISCARD: &str =
    with_files!("  zarrfs discard /mnt/data tas\n  zarrfs discard --all /mnt/data\n");

pub(super) const TREE: &str =
    with_files!("  zarrfs tree data.zarr\n  zarrfs tree --anon s3://bucket/data.zarr\n");

pub(super) const LS: &str = with_files!("  zarrfs ls -l data.zarr\n");

pub(super) const INFO: &str =
    with_files!("  zarrfs info data.zarr/tas\n  zarrfs info --json data.zarr/tas\n");

pub(super) const CAT: &str = with_files!(
    "  zarrfs cat data.zarr/tas/zarr.json\n  \
       zarrfs cat --decode data.zarr/tas/c/0/0/0\n  \
       zarrfs cat --select 0,:,10:20 data.zarr/tas\n"
);

pub(super) const CP: &str = with_files!("  zarrfs cp data.zarr/tas@0 first.npy\n");

pub(super) const PREVIEW: &str =
    with_files!("  zarrfs preview data.zarr/tas@0\n  zarrfs preview -o tas.png data.zarr/tas@0\n");

pub(super) const STATS: &str =
    with_files!("  zarrfs stats --watch /mnt/data\n  zarrfs stats --prometheus /mnt/data\n");

pub(super) const MAP: &str =
    with_files!("  zarrfs map data.zarr/tas\n  zarrfs map --by size -o map.png data.zarr/tas\n");

pub(super) const CHECK: &str = with_files!(
    "  zarrfs check data.zarr\n  \
       zarrfs check --data data.zarr/tas\n  \
       zarrfs check --json --anon s3://bucket/data.zarr\n  \
       zarrfs check --fix consolidated --cow changes data.zarr\n"
);

/// The options of `-o`, after the examples of `zarrfs mount`.
pub(super) const MOUNT_OPTIONS: &str = concat!(
    of_mount!(),
    "

Options of -o: view, cow, memory, max_chunk, spill, timeout, list, dialect, log, uid, \
     gid, umask, option, \
     endpoint, region, missing_is, profile, metadata_ttl, concurrency, cache_dir and cache_size (each with =VALUE), allow_other, \
     write_through, lossy, passthrough, follow_symlinks, consolidated, anon and immutable as above; \
     fsname=NAME, the source that the table of mounts shows; readahead=SIZE, how far the kernel reads ahead (1M; only root can set it); \
     nonempty, mount over what DIR holds; ro, noexec, noatime, sync, dirsync; verbose. Options of fstab that concern \
     others (auto, user, nofail, _netdev, x-...) and rw, suid, dev are accepted and ignored: a mount is ro without cow \
     or write_through, and always nosuid and nodev. A comma in a value is written \\,"
);
