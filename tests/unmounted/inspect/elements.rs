//! Tests `cat` and `cp` of keys, chunks and regions of arrays.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use zarrfs::mount::open::ViewKind;
use zarrfs_export::formats::{FORMATS, GROUP_FORMATS};

use crate::common;
use crate::inspect::program::{PROGRAM, array, command, failed, printed, run, sample, store};

fn tas() -> String {
    sample("climate.zarr/tas").to_str().unwrap().to_string()
}

fn bytes(args: &[&str]) -> Vec<u8> {
    let output = run(args);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

#[test]
fn a_key_is_printed_as_it_is_stored() {
    let key = format!("{}/c/0/1/0", tas());
    assert_eq!(bytes(&["cat", &key]), fs::read(&key).unwrap());
    assert_eq!(
        failed(&["cat", &format!("{}/c/9", tas())]),
        format!("{}/c/9: no such file or key", tas())
    );
}

#[test]
fn cat_of_an_array_or_directory_names_the_right_command() {
    let said = failed(&["cat", &tas()]);
    let expected =
        "is an array; use --select : to print the elements, or the path of one of the array's keys";
    assert_eq!(said, format!("{}: {expected}", tas()));
    let chunks = format!("{}/c", tas());
    let said = failed(&["cat", &chunks]);
    let expected = "is a directory; use 'zarrfs ls' to list the entries";
    assert_eq!(said, format!("{chunks}: {expected}"));
}

#[test]
fn selections_are_those_of_numpy() {
    // The sample is a float32 array of 12 x 36 x 72 elements, whose values are printed without rounding.
    let all = bytes(&["cat", "--select", "...", "--format", "raw", &tas()]);
    let value = |t: usize, y: usize, x: usize| {
        let start = ((t * 36 + y) * 72 + x) * 4;
        f32::from_le_bytes(all[start..start + 4].try_into().unwrap())
    };
    assert_eq!(all.len(), 12 * 36 * 72 * 4);
    let select = |text: &str| {
        let out = bytes(&["cat", "--format", "raw", "--select", text, &tas()]);
        let (words, _) = out.as_chunks::<4>();
        words
            .iter()
            .map(|word| f32::from_le_bytes(*word))
            .collect::<Vec<f32>>()
    };
    assert_eq!(select("3,4,5"), [value(3, 4, 5)]);
    assert_eq!(select("-1,0,-2:"), [value(11, 0, 70), value(11, 0, 71)]);
    let expected: Vec<f32> = (0..72).rev().step_by(30).map(|x| value(1, 35, x)).collect();
    assert_eq!(select("1,-1,::-30"), expected);
    let mut expected = Vec::new();
    for t in [10, 5] {
        for y in [2, 3, 4] {
            expected.extend((0..72).step_by(25).map(|x| value(t, y, x)));
        }
    }
    assert_eq!(select("10:0:-5,2:5,::25"), expected);
    assert!(select("3:3").is_empty());
}

#[test]
fn text_has_one_line_per_row() {
    let text = printed(&["cat", "--select", "0:2,0:2,0:3", &tas()]);
    let lines: Vec<usize> = text
        .lines()
        .map(|line| line.split_whitespace().count())
        .collect();
    assert_eq!(lines, [3, 3, 0, 3, 3]);
    assert_eq!(printed(&["cat", "--select", "0,0,0", &tas()]), "266.0\n");
}

#[test]
fn a_chunk_is_decoded_by_its_key() {
    let chunk = format!("{}/c/1/1/0", tas());
    let decoded = bytes(&["cat", "--decode", "--format", "npy", &chunk]);
    let selected = bytes(&[
        "cat",
        "--select",
        "6:12,18:36,0:36",
        "--format",
        "npy",
        &tas(),
    ]);
    assert_eq!(decoded, selected);
    let fault = failed(&["cat", "--decode", &format!("{}/zarr.json", tas())]);
    let expected = format!(
        "{}/zarr.json: not the key of a chunk in the grid of an array",
        tas()
    );
    assert_eq!(fault, expected);
}

#[test]
fn cp_writes_the_files_of_the_files_view() {
    let (views, _) = common::open(&sample("climate.zarr")).unwrap();
    let view = views.view(ViewKind::Files);
    let folder = tempfile::tempdir().unwrap();
    for (array, file) in [
        ("psl", "psl.npy"),
        ("survey/volume", "volume.raw"),
        ("lat", "lat.npy"),
        ("psl", "psl.cf.npy"),
        ("time", "time.cf.raw"),
    ] {
        let to = folder.path().join(file);
        let from = sample("climate.zarr").join(array);
        printed(&["cp", from.to_str().unwrap(), to.to_str().unwrap()]);
        let expected = common::read(&view, &format!("{array}/{file}")).unwrap();
        assert!(fs::read(to).unwrap() == expected, "{file}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
}

#[test]
fn cp_writes_every_format_as_the_files_view_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let mapped = folder.path().join("map.zarr");
    let group = br#"{"zarr_format": 3, "node_type": "group",
        "attributes": {"GeoTransform": "10 0.5 0 50 0 -0.5"}}"#;
    let band = array(&[4, 6], &[4, 6]).replacen('{', r#"{"dimension_names": ["y", "x"], "#, 1);
    store(
        &mapped,
        &[("zarr.json", group), ("p/zarr.json", band.as_bytes())],
    );
    let root = folder.path().join("root.zarr");
    store(&root, &[("zarr.json", array(&[4, 6], &[4, 6]).as_bytes())]);
    let mut compared = 0;
    for (source, array, name) in [
        (sample("climate.zarr"), "psl/", "psl"),
        (mapped, "p/", "p"),
        (root, "", "root"),
    ] {
        let (views, _) = common::open(&source).unwrap();
        let view = views.view(ViewKind::Files);
        let from = source.join(array.trim_end_matches('/'));
        for (format, chosen) in FORMATS
            .iter()
            .flat_map(|format| [(format, ""), (format, "@1:,2:")])
        {
            let file = format!("{array}{name}{chosen}.{}", format.extension);
            let to = folder.path().join(format!("file.{}", format.extension));
            let is_detached = ["nhdr", "mhd", "vrt", "hdr"].contains(&format.extension);
            let expected = common::read(&view, &file);
            let from = format!("{}{chosen}", from.display());
            let (from, to) = (from.trim_end_matches('/'), to.to_str().unwrap());
            match expected {
                Ok(expected) if !is_detached => {
                    printed(&["cp", from, to]);
                    assert!(fs::read(to).unwrap() == expected, "{file}");
                    compared += 1;
                }
                _ => drop(failed(&["cp", from, to])),
            }
        }
    }
    assert!(compared > 60, "{compared}");
}

#[test]
fn the_reason_for_a_missing_file_names_the_array_as_typed() {
    let folder = tempfile::tempdir().unwrap();
    let line = folder.path().join("line.zarr");
    store(&line, &[("zarr.json", array(&[5], &[2]).as_bytes())]);
    let line = line.to_str().unwrap();
    let described = run(&["info", &format!("{line}/line.vrt")]);
    let told = String::from_utf8(described.stdout).unwrap();
    let why = format!("cannot be opened  {line}: vrt: ");
    assert!(told.contains(&why), "{told}");
    assert!(!described.status.success());
}

/// Invariant of `a_group_that_a_format_cannot_hold_has_no_file`.
#[test]
fn cp_writes_every_file_of_a_group_as_the_files_view_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("table.zarr");
    let group =
        br#"{"zarr_format": 3, "node_type": "group", "attributes": {"column-order": ["b"]}}"#;
    let column = array(&[5], &[2]);
    let columns = [
        ("zarr.json", &group[..]),
        ("a/zarr.json", column.as_bytes()),
        ("b/zarr.json", column.as_bytes()),
        ("below/c/zarr.json", column.as_bytes()),
    ];
    store(&table, &columns);
    let mut compared = 0;
    for (source, group, name) in [
        (sample("climate.zarr"), "", "climate"),
        (sample("climate.zarr"), "survey/", "survey"),
        (sample("relief.zarr"), "", "relief"),
        (table.clone(), "", "table"),
        (table, "below/", "below"),
    ] {
        let (views, _) = common::open(&source).unwrap();
        let view = views.view(ViewKind::Files);
        let from = source.join(group);
        let from = from.to_str().unwrap().trim_end_matches('/');
        let info = printed(&["info", from]);
        for format in GROUP_FORMATS {
            let file = format!("{name}.{}", format.extension);
            let to = folder.path().join(format!("file.{}", format.extension));
            let to = to.to_str().unwrap();
            let _ = fs::remove_file(to);
            let opens = info.lines().any(|line| {
                line.trim_start().starts_with("decoded files")
                    && line.split_whitespace().any(|word| word == file)
            });
            let described = run(&["info", &format!("{from}/{file}")]);
            assert_eq!(described.status.success(), opens, "{file}: {described:?}");
            match common::read(&view, &format!("{group}{file}")) {
                Ok(expected) => {
                    printed(&["cp", from, to]);
                    assert!(fs::read(to).unwrap() == expected, "{file}");
                    let as_named = folder.path().join("named");
                    let as_named = as_named.to_str().unwrap();
                    printed(&["cp", "--format", format.extension, from, as_named]);
                    assert!(fs::read(as_named).unwrap() == expected, "{file}");
                    assert!(opens, "{file}: {info}");
                    compared += 1;
                }
                Err(_) => {
                    let why = failed(&["cp", from, to]);
                    let reason = why.split(": ").last().unwrap();
                    assert!(!opens && info.contains(reason), "{file}: {why}: {info}");
                    assert!(!std::path::Path::new(to).exists());
                }
            }
        }
    }
    assert!(compared >= 12, "{compared}");
    let (climate, to) = (sample("climate.zarr"), folder.path().join("x.npy"));
    let (climate, to) = (climate.to_str().unwrap(), to.to_str().unwrap());
    let fault = failed(&["cp", climate, to]);
    assert!(
        fault.contains("in a format of groups; choose one of nc, h5, nc4,"),
        "{fault}"
    );
    let image = folder.path().join("x.ome.tif");
    let fault = failed(&["cp", &format!("{climate}@0"), image.to_str().unwrap()]);
    assert_eq!(
        fault,
        "0: a part of a group can be written as nc, h5, nc4, csv, ndjson, not as ome.tif"
    );
}

#[test]
fn a_format_has_one_name_for_cat_and_cp() {
    let folder = tempfile::tempdir().unwrap();
    let (psl, to) = (sample("climate.zarr/psl"), folder.path().join("file"));
    let (psl, to) = (psl.to_str().unwrap(), to.to_str().unwrap());
    for name in ["npy", "cf.npy", "f.npy", "cf.f.npy", "nrrd", "ome.tif"] {
        printed(&["cp", "--format", name, psl, to]);
        let cat = bytes(&["cat", "--select", "...", "--format", name, psl]);
        assert!(fs::read(to).unwrap() == cat, "{name}");
    }
    let wrong = [
        "foo.npy",
        ".npy",
        "x.cf.npy",
        "cf.cf.npy",
        "cf",
        "cf.",
        "NPY",
        "ome",
    ];
    for name in wrong {
        let expected = format!("{name}: unknown format; choose one of npy, raw, ");
        let cp = failed(&["cp", "--format", name, psl, to]);
        assert!(cp.starts_with(&expected), "{cp}");
        assert!(
            cp.ends_with(", or for example cf.npy for CF-decoded values"),
            "{cp}"
        );
        assert_eq!(failed(&["cat", "--select", "0", "--format", name, psl]), cp);
    }
    let folder_name = folder.path().to_str().unwrap();
    assert!(failed(&["cp", psl, folder_name]).contains("is a directory; add the name of a file"));
    let beyond = folder.path().join("none/a.npy");
    assert!(failed(&["cp", psl, beyond.to_str().unwrap()]).contains("there is no directory "));
    // The format is selected by the file extension and cannot express the array, either.
    for name in ["npy", "a.NPY", "a.npy/b"] {
        let to = folder.path().join(name);
        assert!(
            failed(&["cp", psl, to.to_str().unwrap()]).contains("does not end in a format"),
            "{name}"
        );
    }
    printed(&[
        "cp",
        psl,
        folder.path().join("a.b.cf.npy").to_str().unwrap(),
    ]);
    let cf = fs::read(folder.path().join("a.b.cf.npy")).unwrap();
    assert!(cf == bytes(&["cat", "--select", "...", "--format", "cf.npy", psl]));
}

#[test]
fn a_format_that_an_array_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (array, file, why) in [
        ("time", "x.img", ": img: needs bool, int16 to int64, "),
        (
            "tas",
            "x.csv",
            ": csv: needs real numbers, times or strings ",
        ),
    ] {
        let (from, to) = (sample("climate.zarr").join(array), folder.path().join(file));
        let fault = failed(&["cp", from.to_str().unwrap(), to.to_str().unwrap()]);
        assert!(fault.contains(why), "{fault}");
    }
}

#[test]
fn a_removed_format_is_refused_with_what_replaces_it() {
    let folder = tempfile::tempdir().unwrap();
    let (tas, climate) = (sample("climate.zarr/tas"), sample("climate.zarr"));
    let (tas, climate) = (tas.to_str().unwrap(), climate.to_str().unwrap());
    let to = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    for (arguments, instead) in [
        (&["cp", tas, &to("x.wav")][..], "use .raw"),
        (&["cp", tas, &to("x.cf.f.raw")], "use .f.npy"),
        (&["cp", tas, &to("x.png")], "use 'zarrfs preview -o"),
        (&["cp", "--format", "cf.mat", tas, &to("x")], "use .h5"),
        (&["cp", climate, &to("x.cdf5.nc")], "use .nc4"),
        (
            &["cp", "--format", "cdf5.nc", climate, &to("x")],
            "use .nc4",
        ),
        (&["cat", "--select", "0", "--format", "png", tas], "preview"),
        (
            &["mount", "--list", "raw,wav", climate, &to("x")],
            "use .raw",
        ),
    ] {
        let fault = failed(arguments);
        assert!(fault.contains(" files; use "), "{fault}");
        assert!(fault.contains(instead), "{fault}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_failed_copy_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let a = array(&[4], &[2]).replace(
        "bytes\"}",
        "bytes\"}, {\"name\": \"gzip\", \"configuration\": {\"level\": 1}}",
    );
    store(
        folder.path(),
        &[("zarr.json", a.as_bytes()), ("c/0", b"no gzip")],
    );
    let (from, to) = (folder.path().to_str().unwrap(), folder.path().join("x.npy"));
    fs::write(&to, "old").unwrap();
    assert!(failed(&["cp", from, to.to_str().unwrap()]).starts_with(&format!("{from}/c/0: ")));
    assert_eq!(fs::read(&to).unwrap(), b"old");
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 3);
    let wrong = [("x.nosuch", "does not end in"), ("x", "does not end in")];
    for (name, why) in wrong {
        let to = folder.path().join(name);
        assert!(
            failed(&["cp", from, to.to_str().unwrap()]).contains(why),
            "{name}"
        );
    }
}

#[test]
fn links_and_pipes_are_written_and_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let lat = sample("climate.zarr/lat").to_str().unwrap().to_string();
    printed(&["cp", &lat, &path("lat.npy")]);
    let expected = fs::read(path("lat.npy")).unwrap();

    fs::write(path("file.npy"), "old").unwrap();
    fs::set_permissions(path("file.npy"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("file.npy", path("link.npy")).unwrap();
    printed(&["cp", &lat, &path("link.npy")]);
    assert!(fs::symlink_metadata(path("link.npy")).unwrap().is_symlink());
    assert_eq!(fs::read(path("file.npy")).unwrap(), expected);
    let kept = fs::metadata(path("file.npy")).unwrap().permissions();
    assert_eq!(kept.mode() & 0o777, 0o640);

    let made = Command::new("mkfifo").arg(path("pipe.npy")).status();
    assert!(made.unwrap().success());
    let pipe = path("pipe.npy");
    let reader = std::thread::spawn(move || fs::read(pipe).unwrap());
    printed(&["cp", &lat, &path("pipe.npy")]);
    assert_eq!(reader.join().unwrap(), expected);

    // /dev/stdout is not used as the target, because a failing test would replace that link.
    let out = bytes(&["cp", "--format", "npy", &lat, "/proc/self/fd/1"]);
    assert_eq!(out, expected);

    std::os::unix::fs::symlink("nothing", path("dangling.npy")).unwrap();
    let fault = failed(&["cp", &lat, &path("dangling.npy")]);
    assert!(
        fault.ends_with("dangling.npy: a symbolic link to a file that does not exist"),
        "{fault}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
}

#[test]
fn a_file_given_as_a_descriptor_is_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let lat = sample("climate.zarr/lat").to_str().unwrap().to_string();
    printed(&["cp", &lat, &path("lat.npy")]);
    let expected = [b"before ".to_vec(), fs::read(path("lat.npy")).unwrap()].concat();
    std::os::unix::fs::symlink("/proc/self/fd/1", path("link")).unwrap();
    // /dev/stdout is not used as the target, because a failing test would replace that link.
    let links = ["/proc/self/fd/1", "/proc/thread-self/fd/1", &path("link")];
    for name in links {
        let file = path("out");
        fs::write(&file, "before ").unwrap();
        let out = fs::OpenOptions::new().append(true).open(&file).unwrap();
        let mut cp = command(&["cp", "--format", "npy", &lat, name]);
        assert!(cp.stdout(out).status().unwrap().success());
        assert!(fs::read(&file).unwrap() == expected, "{name}");
    }
    // Output that another program writes through the same descriptor must follow the copied bytes.
    let shell = format!(
        "exec 5> out; printf 'before ' >&5; '{PROGRAM}' cp --format npy '{lat}' /proc/self/fd/5; echo >&5"
    );
    let mut shell = Command::new("sh")
        .args(["-c", &shell])
        .current_dir(folder.path())
        .spawn()
        .unwrap();
    assert!(shell.wait().unwrap().success());
    assert!(fs::read(path("out")).unwrap() == [&expected[..], &b"\n"[..]].concat());
    assert!(
        failed(&["cp", "--format", "npy", &lat, "/proc/self/fd/99"])
            .contains("Bad file descriptor")
    );
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["lat.npy", "link", "out"]);
}

#[test]
fn an_overwritten_file_loses_its_setuid_and_setgid_bits() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file.npy");
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6751)).unwrap();
    let lat = sample("climate.zarr/lat").to_str().unwrap().to_string();
    printed(&["cp", &lat, file.to_str().unwrap()]);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o751);
}

#[test]
fn errors_of_selections_are_one_line() {
    let fault = |text: &str| failed(&["cat", "--select", text, &tas()]);
    assert_eq!(
        fault("0,99"),
        "selection '0,99': 99 is out of bounds for dimension 1 of 36 elements"
    );
    assert!(fault("x").contains("neither a number nor a slice"));
    assert!(
        failed(&["cat", "--select", "0", "--format", "xls", &tas()])
            .starts_with("xls: unknown format")
    );
    let group = sample("climate.zarr");
    assert!(failed(&["cat", "--select", "0", group.to_str().unwrap()]).contains("not an array"));
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let folder = tempfile::tempdir().unwrap();
    store(
        folder.path(),
        &[("zarr.json", array(&[1 << 40], &[1 << 20]).as_bytes())],
    );
    let path = folder.path().to_str().unwrap();
    let lines: [&[&str]; 3] = [
        &["cat", "--select", ":", "--format", "raw", path],
        &["cat", "--select", ":", path],
        &["cat", "--select", "::3", "--format", "raw", path],
    ];
    for args in lines {
        let mut child = command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut [0; 100]).unwrap();
        drop(out);
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{args:?}: {output:?}"
        );
    }
}

#[test]
fn a_header_describes_the_selected_dimensions() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("s");
    let spaced = array(&[4, 6], &[4, 6]).replacen(
        '{',
        r#"{"dimension_names": ["y", "x"], "attributes": {"spacing": [2, 0.5], "origin": [10, 1]}, "#,
        1,
    );
    store(&root, &[("zarr.json", spaced.as_bytes())]);
    let header = |selection: &str| {
        let file = folder.path().join("a.nrrd");
        let source = format!("{}{selection}", root.display());
        printed(&["cp", &source, file.to_str().unwrap()]);
        let bytes = std::fs::read(file).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.split("\n\n").next().unwrap().to_string()
    };
    let all = header("");
    assert!(all.contains("sizes: 6 4\n"), "{all}");
    let row = header("@1");
    assert!(
        row.contains("dimension: 1\n") && row.contains("labels: \"x\"\n"),
        "{row}"
    );
    let part = header("@1:,2::2");
    let numbers = |text: &str, name: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default();
        line.to_string()
    };
    assert_eq!(
        numbers(&part, "space directions"),
        "space directions: (1,0) (0,2)",
        "{part}"
    );
    assert_eq!(
        numbers(&part, "space origin"),
        "space origin: (2,12)",
        "{part}"
    );
}

#[test]
fn a_copy_ended_by_a_signal_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("s"), folder.path().join("to"));
    store(
        &from,
        &[("zarr.json", array(&[1 << 32], &[1 << 20]).as_bytes())],
    );
    fs::create_dir(&to).unwrap();
    let names = || fs::read_dir(&to).unwrap().map(Result::unwrap);
    let has_begun = || names().any(|name| name.metadata().is_ok_and(|found| found.len() > 0));
    let file = to.join("x.raw");
    let words = ["cp", from.to_str().unwrap(), file.to_str().unwrap()];
    let mut child = command(&words).spawn().unwrap();
    while !has_begun() {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
    }
    // SIGTERM is used, because shells start background programs with SIGINT ignored.
    let signal = Signal::TERM;
    kill_process(Pid::from_child(&child), signal).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
    assert_eq!(names().count(), 0);
}

#[test]
fn a_copy_larger_than_the_free_space_is_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("s"), folder.path().join("to"));
    store(
        &from,
        &[("zarr.json", array(&[1 << 60], &[1 << 20]).as_bytes())],
    );
    fs::create_dir(&to).unwrap();
    let file = to.join("x.raw");
    let why = failed(&["cp", from.to_str().unwrap(), file.to_str().unwrap()]);
    let said = format!(
        "{}: the file needs {} bytes, but only ",
        file.display(),
        1_u64 << 60
    );
    assert!(
        why.starts_with(&said) && why.ends_with(" are free: free space, or copy a selection"),
        "{why}"
    );
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
}
