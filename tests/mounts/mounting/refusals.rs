//! Tests refused mounts: other users' mounts, unusable mountpoints, stores and options.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use rustix::process::Signal;

use crate::mounting::fixture::{Fixture, PROGRAM, end_of, signal, soon, stderr};

/// Invariant (mount): Only mounts of zarrfs are unmounted.
#[test]
fn mounts_of_other_file_systems_are_not_unmounted() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let tmpfs = || {
        assert!(
            Command::new("mount")
                .args(["-t", "tmpfs", "tmpfs"])
                .arg(&fixture.dir)
                .status()
                .unwrap()
                .success()
        )
    };
    let kind = || fixture.mounted().unwrap().kind;
    // The mount of zarrfs covers a tmpfs on the same directory.
    tmpfs();
    fixture.mount(&[]);
    assert_eq!(kind(), "fuse.zarrfs");
    assert!(
        Command::new("umount")
            .arg(&fixture.dir)
            .status()
            .unwrap()
            .success()
    );
    assert!(soon(|| fixture.daemons().is_empty()));
    assert_eq!(kind(), "tmpfs");
    let output = fixture.umount(&fixture.dir);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).ends_with("not a zarrfs mount, but a mount of type tmpfs\n"));
    // A tmpfs covers the mount of zarrfs on the same directory.
    let mut child = fixture.foreground(&mut fixture.foreground_command());
    assert!(soon(|| kind() == "fuse.zarrfs"));
    tmpfs();
    signal(&child, Signal::TERM);
    end_of(&mut child);
    assert_eq!(kind(), "tmpfs");
}

#[test]
fn unusable_mountpoints_are_refused_with_the_reason() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let text = |path: &std::path::Path| path.to_str().unwrap().to_string();
    let full = fixture.path("full");
    fs::create_dir_all(full.join("x")).unwrap();
    symlink(fixture.store.join("a"), fixture.path("link")).unwrap();
    let refused = [
        (
            fixture.store.join("a"),
            "the mountpoint must not be inside the store",
        ),
        (
            fixture.path("link"),
            "the mountpoint must not be inside the store",
        ),
        (fixture.path(""), "the mountpoint must not cover the store"),
        (fixture.path("none"), "No such file or directory"),
        (fixture.store.join("zarr.json"), "must be a directory"),
        (full.clone(), "is not empty; use --allow-non-empty"),
    ];
    for (dir, reason) in refused {
        let output = Command::new(PROGRAM)
            .arg("mount")
            .arg(&fixture.store)
            .arg(&dir)
            .output()
            .unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.starts_with("zarrfs: ") && said.contains(reason) && said.lines().count() == 1,
            "{said}"
        );
        assert!(said.contains(text(&dir).trim_end_matches('/')), "{said}");
    }
    fixture.mount(&[]);
    assert!(stderr(&fixture.try_mount(&[])).contains("is already mounted here"));
}

#[test]
fn mount_errors_are_one_line_with_the_right_exit_status() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fs::remove_dir_all(&fixture.store).unwrap();
    for more in [&[][..], &["-f"]] {
        let output = fixture.try_mount(more);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.starts_with("zarrfs: ") && said.contains("s.zarr") && said.lines().count() == 1,
            "{said}"
        );
    }
    let helper = fixture.path("mount.zarrfs");
    symlink(PROGRAM, &helper).unwrap();
    let status = |options: &str| {
        let output = Command::new(&helper)
            .arg(&fixture.store)
            .arg(&fixture.dir)
            .args(["-o", options])
            .output()
            .unwrap();
        (output.status.code(), stderr(&output))
    };
    assert_eq!(status("ro").0, Some(32));
    assert_eq!(
        status("rro"),
        (
            Some(1),
            "zarrfs: -o rro: unknown option; did you mean 'ro'?\n".to_string()
        )
    );
    let output = Command::new(&helper).output().unwrap();
    assert_eq!(
        (output.status.code(), stderr(&output).lines().count()),
        (Some(1), 1)
    );
    let output = Command::new(PROGRAM).args(["umount", "a", "b"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert_eq!(
        stderr(&output),
        "zarrfs: unexpected argument 'b'; see 'zarrfs umount --help'\n"
    );
    assert!(fixture.mounted().is_none());
}

#[test]
fn a_cache_inside_the_mountpoint_or_store_is_refused() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    symlink(&fixture.store, fixture.path("link")).unwrap();
    let refused = [
        (
            fixture.dir.join("cache"),
            "must not be inside the mountpoint",
        ),
        (fixture.dir.clone(), "must not be inside the mountpoint"),
        (
            fixture.store.join("a/cache"),
            "must not be inside the store",
        ),
        (
            fixture.path("link/new/cache"),
            "must not be inside the store",
        ),
    ];
    for (cache, reason) in refused {
        for option in ["--cache-dir", "-o"] {
            let path = cache.to_str().unwrap();
            let value = match option {
                "-o" => format!("cache_size=1M,cache_dir={}", path.replace(',', "\\,")),
                _ => path.to_string(),
            };
            let said = stderr(&fixture.try_mount(&[option, &value]));
            assert!(said.contains(reason), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
    assert!(!fixture.store.join("a/cache").exists() && !fixture.store.join("new").exists());
    let unused = fixture.path("unused");
    fixture.mount(&["--cache-dir", unused.to_str().unwrap()]);
    assert_eq!(fs::read(fixture.dir.join("a/c/0")).unwrap(), [7; 16]);
    assert!(!unused.exists(), "a store of this machine needs none");
}

#[test]
fn without_the_device_the_error_names_the_manual_page() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let script = r#"mount -t tmpfs tmpfs /dev
        "$PROGRAM" mount -f s.zarr second"#;
    let output = fixture.in_namespace(script);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "zarrfs: /dev/fuse: not found; run 'modprobe fuse' as root, or start the container with --device /dev/fuse; for \
         containers, Slurm and WSL see 'man 7 zarrfs'; 'zarrfs cp', 'cat' and 'info' need no mount\n"
    );
}
