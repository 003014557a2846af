//! Texts of the manual pages that the command line does not define.
//!
//! These are examples, the options of `-o`, and references to other pages.

/// Examples by page: a description, and its command lines.
pub const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "zarrfs",
        &[
            (
                "Mount a store, read its arrays as flat files, and unmount it",
                "zarrfs mount samples/climate.zarr /mnt/climate\n\
                 ls /mnt/climate/.zarrfs/files/tas\n\
                 zarrfs umount /mnt/climate",
            ),
            (
                "The word mount can be left out",
                "zarrfs samples/climate.zarr /mnt/climate",
            ),
        ],
    ),
    (
        "zarrfs-mount",
        &[
            (
                "Show decoded arrays instead of the keys as stored",
                "zarrfs mount data.zarr /mnt/data --view files",
            ),
            (
                "Show a plain store for programs that can read v2 alone",
                "zarrfs mount data.zarr /mnt/data --view v2",
            ),
            (
                "Read a public bucket, and keep what was read on disk",
                "zarrfs mount --anon --cache-dir /var/tmp/zarrfs s3://bucket/data.zarr /mnt/data",
            ),
            (
                "Change a store without touching it",
                "zarrfs mount data.zarr /mnt/data --cow changes",
            ),
            (
                "Let all users read, with options as in fstab(5)",
                "zarrfs mount data.zarr /mnt/data -o allow_other,memory=256M",
            ),
        ],
    ),
    (
        "zarrfs-umount",
        &[("Unmount", "zarrfs umount /mnt/climate")],
    ),
    (
        "zarrfs-list",
        &[
            ("List the mounts", "zarrfs list"),
            ("List them for a script", "zarrfs list --json"),
        ],
    ),
    (
        "zarrfs-status",
        &[
            (
                "Count the changes and the failures of a mount",
                "zarrfs status /mnt/climate",
            ),
            (
                "Count those of an upper folder that is not mounted, for a script",
                "zarrfs status --json changes",
            ),
        ],
    ),
    (
        "zarrfs-diff",
        &[
            ("List the keys that changed", "zarrfs diff /mnt/climate"),
            (
                "List the arrays, attributes and elements that changed",
                "zarrfs diff --arrays /mnt/climate",
            ),
            (
                "Compare the values of two stores",
                "zarrfs diff --values samples/climate.zarr samples/climate.zarr",
            ),
        ],
    ),
    (
        "zarrfs-commit",
        &[
            (
                "Look for conflicts, then write the changes into the store",
                "zarrfs commit --dry-run /mnt/climate\nzarrfs commit /mnt/climate",
            ),
            (
                "Write a new store that has the changes",
                "zarrfs commit /mnt/climate --to s3://bucket/new.zarr",
            ),
        ],
    ),
    (
        "zarrfs-discard",
        &[
            (
                "Throw away what was changed in one array",
                "zarrfs discard /mnt/climate tas",
            ),
            ("Throw away all changes", "zarrfs discard /mnt/climate"),
        ],
    ),
    (
        "zarrfs-check",
        &[
            (
                "Check documents and keys of a store",
                "zarrfs check samples/climate.zarr",
            ),
            (
                "Decode every chunk of an array as well",
                "zarrfs check --data samples/climate.zarr/survey/volume",
            ),
            (
                "Print what is found as JSON, with codes that programs can count",
                "zarrfs check --json samples/relief.zarr",
            ),
            (
                "Make consolidated metadata anew, as changes over the store",
                "zarrfs check --fix consolidated --cow changes data.zarr",
            ),
        ],
    ),
    (
        "zarrfs-completions",
        &[
            (
                "Complete commands and options in this bash",
                "source <(zarrfs completions bash)",
            ),
            (
                "Have each fish that starts complete them",
                "zarrfs completions fish > ~/.config/fish/completions/zarrfs.fish",
            ),
        ],
    ),
    (
        "zarrfs-tree",
        &[
            (
                "Show all that is in a store",
                "zarrfs tree samples/climate.zarr",
            ),
            (
                "Show the first level, for a script",
                "zarrfs tree --depth 1 --json samples/climate.zarr",
            ),
        ],
    ),
    (
        "zarrfs-ls",
        &[(
            "List the arrays of a group with their types and shapes",
            "zarrfs ls -l samples/climate.zarr/survey",
        )],
    ),
    (
        "zarrfs-info",
        &[
            (
                "Show the chunks, codecs and attributes of an array",
                "zarrfs info samples/climate.zarr/tas",
            ),
            (
                "Show the index of a shard",
                "zarrfs info samples/climate.zarr/survey/volume/c/0/0/0",
            ),
            (
                "Show a group for a script",
                "zarrfs info --json samples/climate.zarr",
            ),
        ],
    ),
    (
        "zarrfs-cat",
        &[
            (
                "Print a document as it is stored",
                "zarrfs cat samples/climate.zarr/tas/zarr.json",
            ),
            (
                "Print the elements of a chunk",
                "zarrfs cat --decode samples/climate.zarr/tas/c/0/0/0",
            ),
            (
                "Print an inner chunk of a shard as it is stored",
                "zarrfs cat samples/climate.zarr/survey/volume/c/0/0/0@1",
            ),
            (
                "Print a part of a row",
                "zarrfs cat --select 0,-1,10:20 samples/climate.zarr/tas",
            ),
        ],
    ),
    (
        "zarrfs-cp",
        &[
            (
                "Write an array for numpy",
                "zarrfs cp samples/climate.zarr/tas tas.npy",
            ),
            (
                "Write every second row of one plane without a header",
                "zarrfs cp samples/climate.zarr/tas@0,::2 plane.raw",
            ),
            (
                "Write a copy of the store for programs that can read v2 alone",
                "zarrfs cp --as v2 samples/climate.zarr old.zarr",
            ),
        ],
    ),
    (
        "zarrfs-map",
        &[
            (
                "Show which chunks are stored, and decode them",
                "zarrfs map --data samples/climate.zarr/pr",
            ),
            (
                "Draw how long they are",
                "zarrfs map --by size -o map.png samples/climate.zarr/tas",
            ),
        ],
    ),
    (
        "zarrfs-preview",
        &[
            (
                "Show an array on the terminal",
                "zarrfs preview samples/relief.zarr/height",
            ),
            (
                "Draw one of its planes",
                "zarrfs preview -o june.png samples/climate.zarr/tas@5",
            ),
        ],
    ),
    (
        "zarrfs-stats",
        &[
            (
                "Watch what a mount does",
                "zarrfs stats --watch /mnt/climate",
            ),
            (
                "Give the counters to Prometheus",
                "zarrfs stats --prometheus /mnt/climate",
            ),
        ],
    ),
];

/// References to other sections and programs, by page.
pub const OTHERS: [(&str, &[&str]); 3] = [
    ("zarrfs-mount", &["fstab(5)", "fuse(4)", "mount(8)"]),
    ("zarrfs-umount", &["fusermount3(1)", "umount(8)"]),
    ("zarrfs-list", &["findmnt(8)"]),
];

/// Pages of section 7 that each page refers to.
pub const PAGES_OF_SECTION_7: [&str; 5] = [
    "zarrfs(7)",
    "zarrfs-admin(7)",
    "zarrfs-files(7)",
    "zarrfs-stores(7)",
    "zarrfs-writing(7)",
];

/// The options of `-o`: a name with its value, and a description.
pub const MOUNT_OPTIONS: [(&str, &str); 30] = [
    ("view=NAME", "store, files, v3 or v2"),
    (
        "list=LIST",
        "forms in which arrays are listed beside the usual one, joined by : or +",
    ),
    (
        "memory=SIZE",
        "most memory for what is held of the store, see zarrfs-stores(7)",
    ),
    ("max_chunk=SIZE", "longest decoded chunk"),
    (
        "spill=DIR",
        "where decoded chunks go that memory has no room for, or none",
    ),
    (
        "readahead=SIZE",
        "how far the kernel reads ahead, 1M unless given; only root can set it",
    ),
    (
        "passthrough",
        "have the kernel read stored files of this machine itself, see zarrfs-stores(7)",
    ),
    ("timeout=TIME", "how long a request may wait"),
    (
        "cow=UPPER, write_through, lossy",
        "make the mount writable, see zarrfs-writing(7)",
    ),
    (
        "option=KEY=VALUE",
        "an option of the store; may be given several times",
    ),
    ("anon", "ask a store on the network without credentials"),
    ("endpoint=URL, region=NAME", "where a bucket is"),
    (
        "missing_is=STATUS",
        "how the server answers for keys that it does not have, if not by 404, see zarrfs-stores(7)",
    ),
    (
        "profile=NAME",
        "the profile of ~/.aws with the credentials of an S3 bucket",
    ),
    (
        "metadata_ttl=TIME, immutable",
        "for how long the answers of a store on the network are used",
    ),
    (
        "concurrency=N",
        "the most requests to a store on the network at a time, 32 unless given",
    ),
    (
        "cache_dir=PATH",
        "keep what was read of a store on the network in this folder",
    ),
    (
        "cache_size=SIZE",
        "the most that the folder takes, 10G unless given",
    ),
    ("follow_symlinks", "follow links that leave the store"),
    (
        "dialect=NAME",
        "read the store as v2, v3, draft2019, draft2020, draft2022 or n5, whatever its documents look like",
    ),
    (
        "consolidated",
        "take groups and arrays from consolidated metadata, although the store can list them; a document that was \
         read counts more, and a node that only the store knows still opens by name",
    ),
    (
        "uid=USER, gid=GROUP",
        "owner and group shown, by name or number",
    ),
    ("umask=OCTAL", "permissions taken away"),
    ("allow_other", "let other users look in"),
    ("nonempty", "mount over what the directory holds"),
    ("fsname=NAME", "the source that the table of mounts shows"),
    (
        "log=FILE",
        "where to log, instead of syslog or the journal of systemd",
    ),
    ("verbose", "log more; may be repeated"),
    (
        "ro",
        "take no changes, also with cow or write_through; without these a mount is always read-only",
    ),
    ("noexec, noatime, sync, dirsync", "as in mount(8)"),
];

/// Files of a mount that each page names, with descriptions.
pub const FILES: [(&str, &str); 3] = [
    (
        "DIR/.zarrfs/files",
        "the decoded arrays of a mount, see zarrfs-files(7)",
    ),
    ("DIR/.zarrfs/errors", "what failed last, a line each"),
    (
        "DIR/.zarrfs/stats.json, DIR/.zarrfs/mount.json",
        "counters, and the options in force; .zarrfs opens by its name and no listing shows it",
    ),
];

/// The text before the options of `-o`, and the text after them.
pub const MOUNT_OPTIONS_FRAME: [&str; 2] = [
    "Names of -o and of fstab(5). Sizes are numbers of bytes, or with K, M, G or T, times numbers of seconds, or with ms, s, m or h. A comma in a \
     value is written \\,",
    "A mount is always nosuid and nodev. Accepted without effect, since they concern other programs or are always or \
     never in force: async, atime, auto, comment, default_permissions, defaults, dev, diratime, exec, group, lazytime, \
     loud, _netdev, noauto, nodev, nodiratime, nofail, nogroup, nolazytime, noowner, norelatime, nostrictatime, nosuid, \
     nouser, nousers, owner, relatime, rw, silent, strictatime, subtype, suid, user, users, and all that begin with x- \
     or X-.",
];
