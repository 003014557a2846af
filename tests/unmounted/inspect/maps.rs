//! Tests maps of chunk grids and previews of planes: cells, pixels, huge grids.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::inspect::program::{GROUP, array, command, failed, printed, run, sample, store};

fn pixels(path: &Path) -> (usize, Vec<[u8; 3]>) {
    let decoder = png::Decoder::new(BufReader::new(File::open(path).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let (pixels, _) = bytes.as_chunks::<3>();
    (info.width as usize, pixels.to_vec())
}

const MISSING: [u8; 3] = [48, 48, 48];
const PRESENT: [u8; 3] = [80, 200, 120];
const CORRUPT: [u8; 3] = [230, 50, 50];

fn patchy(folder: &Path) {
    let a = array(&[6, 8], &[2, 2]);
    let files: [(&str, &[u8]); 5] = [
        ("a/zarr.json", a.as_bytes()),
        ("a/c/0/0", &[1; 4]),
        ("a/c/1/3", &[2; 4]),
        ("a/c/2/1", &[3; 3]),
        ("a/c/7/7", &[3; 4]),
    ];
    store(folder, &files);
    store(folder, &[("zarr.json", GROUP)]);
}

#[test]
fn lengths_of_chunks_are_shown_on_request() {
    let folder = tempfile::tempdir().unwrap();
    patchy(folder.path());
    let path = folder.path().join("a");
    let bytes = |more: &[&str]| {
        let words = [&["map", "--json", path.to_str().unwrap()], more].concat();
        let map: Value = serde_json::from_str(&printed(&words)).unwrap();
        map["cells"][2]["bytes"].clone()
    };
    assert_eq!(bytes(&[]), Value::Null);
    assert_eq!(bytes(&["--by", "size"]), 3);
}

#[test]
fn each_pixel_of_a_map_is_a_chunk() {
    let folder = tempfile::tempdir().unwrap();
    patchy(folder.path());
    let path = folder.path().join("a");
    let png = folder.path().join("map.png");
    let args = [
        "map",
        path.to_str().unwrap(),
        "--data",
        "-o",
        png.to_str().unwrap(),
    ];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("3 of 12 chunks stored") && text.contains("c/2/1: "),
        "{text}"
    );
    let (width, pixels) = pixels(&png);
    let scale = width / 4;
    assert!(scale >= 32 && pixels.len() == 12 * scale * scale);
    for (number, pixel) in pixels.iter().enumerate() {
        let (row, column) = (number / width / scale, number % width / scale);
        let expected = match (row, column) {
            (0, 0) | (1, 3) => PRESENT,
            (2, 1) => CORRUPT,
            _ => MISSING,
        };
        assert_eq!(*pixel, expected, "chunk {row}, {column}");
    }
}

#[test]
fn a_picture_is_replaced_atomically() {
    let folder = tempfile::tempdir().unwrap();
    patchy(folder.path());
    let array = folder.path().join("a");
    for (command, file) in [("map", "a.png"), ("map", "a.svg"), ("preview", "b.png")] {
        // One chunk cannot be decoded, so the preview is made of a region without that chunk.
        let part = if command == "preview" { "@0:2,0:2" } else { "" };
        let array = format!("{}{part}", array.display());
        let file = folder.path().join(file);
        std::fs::write(&file, "old").unwrap();
        let mut opened = File::open(&file).unwrap();
        printed(&[command, &array, "-o", file.to_str().unwrap()]);
        // A program that has the old picture open can still read all of it.
        let mut old = String::new();
        opened.read_to_string(&mut old).unwrap();
        assert_eq!(old, "old", "{command}");
        assert!(std::fs::metadata(&file).unwrap().len() > 100, "{command}");
    }
    let missing = folder.path().join("no/map.png");
    let fault = failed(&[
        "map",
        array.to_str().unwrap(),
        "-o",
        missing.to_str().unwrap(),
    ]);
    assert!(
        fault.contains("no/map.png: there is no directory "),
        "{fault}"
    );
}

/// Runs a command on a terminal with `columns` columns. Returns the picture and the legend that it prints.
fn drawn(args: &[&str], columns: u16) -> (Vec<String>, String) {
    let output = command(args)
        .env("COLUMNS", columns.to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let legend = text
        .find("rows: ")
        .or_else(|| text.find("columns: "))
        .unwrap();
    let (picture, legend) = text.split_at(legend);
    (
        picture.lines().map(str::to_string).collect(),
        legend.to_string(),
    )
}

#[test]
fn a_map_is_text_without_colours() {
    let folder = tempfile::tempdir().unwrap();
    patchy(folder.path());
    let path = folder.path().join("a");
    let (lines, legend) = drawn(&["map", path.to_str().unwrap()], 80);
    assert_eq!(
        lines,
        [
            "\u{2588}\u{b7}\u{b7}\u{b7}",
            "\u{b7}\u{b7}\u{b7}\u{2588}",
            "\u{b7}\u{2588}\u{b7}\u{b7}"
        ]
    );
    let expected = "rows: dimension 0, 3 chunks\ncolumns: dimension 1, 4 chunks\n\u{2588} stored, \u{b7} missing\n\
                    3 of 12 chunks stored, grid (3, 4)\n";
    assert_eq!(legend, expected);
    let (lines, _) = drawn(&["map", "--axes", "1,0", path.to_str().unwrap()], 80);
    assert_eq!(lines[1], "\u{b7}\u{b7}\u{2588}");
    let fault = failed(&["map", "--axes", "0,2", path.to_str().unwrap()]);
    assert!(
        fault.ends_with("0 and 2 are not two different dimensions of this array, which has 2"),
        "{fault}"
    );
    let output = run(&["map", "--data", path.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\u{b7}X\u{b7}\u{b7}") && text.contains("\nX cannot be decoded\n"));
}

#[test]
fn info_is_no_wider_than_the_terminal() {
    let tas = sample("climate.zarr/tas");
    let mut info = command(&["info", tas.to_str().unwrap()]);
    let whole = String::from_utf8(info.output().unwrap().stdout).unwrap();
    let wrapped = info.env("COLUMNS", "80").output().unwrap();
    let wrapped = String::from_utf8(wrapped.stdout).unwrap();
    let has_place = |line: &&str| line.starts_with("  store ");
    let mut lines = wrapped.lines().filter(|line| !has_place(line));
    assert!(lines.all(|line| line.chars().count() <= 80), "{wrapped}");
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(words(&wrapped), words(&whole));
}

#[test]
fn a_map_is_ascii_in_a_locale_without_utf_8() {
    let folder = tempfile::tempdir().unwrap();
    patchy(folder.path());
    let path = folder.path().join("a");
    let mut map = command(&["map", path.to_str().unwrap()]);
    let output = map.env("LC_ALL", "C").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("#...\n...#\n.#..\n"), "{text}");
    assert!(text.contains("\n# stored, . missing\n"), "{text}");
}

fn forty(folder: &Path) {
    let a = array(&[40], &[1]);
    let files: [(&str, &[u8]); 4] = [
        ("zarr.json", a.as_bytes()),
        ("c/0", &[1; 1]),
        ("c/1", &[1; 9]),
        ("c/2", &[1; 5]),
    ];
    store(folder, &files);
}

#[test]
fn a_cell_of_several_chunks_may_be_partly_stored() {
    let folder = tempfile::tempdir().unwrap();
    forty(folder.path());
    let path = folder.path().to_str().unwrap();
    let (lines, legend) = drawn(&["map", path], 20);
    assert_eq!(lines, [format!("\u{2588}\u{2591}{}", "\u{b7}".repeat(18))]);
    let signs =
        "\u{2588} stored, \u{2591} partly stored, \u{b7} missing\na cell shows up to 2 chunks\n";
    assert!(legend.contains(signs), "{legend}");
    let png = folder.path().join("map.png");
    let picture = printed(&["map", path, "-o", png.to_str().unwrap()]);
    // The printed legend describes the PNG, which has one cell per chunk, and not a picture on the terminal.
    assert!(picture.contains("green stored, grey missing"), "{picture}");
}

#[test]
fn a_map_by_size_shows_chunk_sizes() {
    let folder = tempfile::tempdir().unwrap();
    forty(folder.path());
    let path = folder.path().to_str().unwrap();
    let (lines, legend) = drawn(&["map", "--by", "size", path], 20);
    assert_eq!(lines, [format!("95{}", "\u{b7}".repeat(18))]);
    let signs = "0 to 9: bytes of a chunk from 1 to 9 (largest of each cell), \u{b7} missing";
    assert!(legend.contains(signs), "{legend}");
    let (lines, legend) = drawn(&["map", "--by", "size", path], 80);
    assert_eq!(lines, [format!("095{}", "\u{b7}".repeat(37))]);
    let signs = "0 to 9: bytes of a chunk from 1 to 9, \u{b7} missing";
    assert!(legend.contains(signs), "{legend}");
    // Each chunk has one element of one byte.
    let (_, legend) = drawn(&["map", "--by", "ratio", path], 20);
    assert!(
        legend.contains("0 to 9: ratios from 0.1 to 1.0"),
        "{legend}"
    );
    let map: Value =
        serde_json::from_str(&printed(&["map", "--json", "--by", "size", path])).unwrap();
    assert_eq!(
        (
            &map["cells"][1]["smallest_bytes"],
            &map["cells"][1]["largest_bytes"]
        ),
        (&9.into(), &9.into())
    );
}

#[test]
fn a_map_names_its_dimensions_and_the_chunks_along_the_others() {
    let pr = sample("climate.zarr/pr");
    let (lines, legend) = drawn(&["map", pr.to_str().unwrap()], 80);
    assert_eq!(lines.len(), 1);
    let expected = "columns: time (dimension 0), 2 chunks\n\u{2588} stored";
    assert!(legend.starts_with(expected), "{legend}");
    let tas = sample("climate.zarr/tas");
    let (lines, legend) = drawn(&["map", tas.to_str().unwrap()], 80);
    assert_eq!(lines, ["\u{2588}\u{2588}"; 2]);
    let expected = "rows: lat (dimension 1), 2 chunks\ncolumns: lon (dimension 2), 2 chunks\n\
                    each cell: all 2 chunks along time (dimension 0)\n";
    assert!(legend.starts_with(expected), "{legend}");
}

#[test]
fn an_svg_has_the_same_cells() {
    let folder = tempfile::tempdir().unwrap();
    patchy(folder.path());
    let svg = folder.path().join("map.svg");
    printed(&[
        "map",
        folder.path().join("a").to_str().unwrap(),
        "-o",
        svg.to_str().unwrap(),
    ]);
    let text = std::fs::read_to_string(svg).unwrap();
    assert!(
        text.contains("viewBox=\"0 0 4 3\"") && text.matches("#50c878").count() == 3,
        "{text}"
    );
}

#[test]
fn grids_of_any_size_are_mapped() {
    for shape in [[10_000, 1000], [1 << 25, 1 << 25]] {
        let folder = tempfile::tempdir().unwrap();
        store(
            folder.path(),
            &[
                ("zarr.json", array(&shape, &[1, 1]).as_bytes()),
                ("c/3/5", b"a"),
            ],
        );
        let started = Instant::now();
        let path = folder.path().to_str().unwrap();
        let map: Value = serde_json::from_str(&printed(&["map", "--json", path])).unwrap();
        assert_eq!(
            (&map["present"], map["chunks"].as_u64()),
            (&1.into(), Some(shape[0] * shape[1]))
        );
        let cells = map["cells"].as_array().unwrap();
        assert_eq!(
            (cells.len(), &cells[0]["row"], &cells[0]["present"]),
            (1, &0.into(), &1.into())
        );
        assert!(map["rows"].as_u64() <= Some(256));
        let info: Value = serde_json::from_str(&printed(&["info", "--json", path])).unwrap();
        assert_eq!(info["stored"]["missing"], shape[0] * shape[1] - 1);
        let text = printed(&["preview", path]);
        assert!(text.contains("\nof the drawn elements only: the whole plane has "));
        assert!(started.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn a_preview_has_a_pixel_for_each_element() {
    let folder = tempfile::tempdir().unwrap();
    let a = array(&[2, 3], &[2, 3]);
    store(
        folder.path(),
        &[
            ("zarr.json", a.as_bytes()),
            ("c/0/0", &[0, 10, 20, 30, 40, 50]),
        ],
    );
    let png = folder.path().join("p.png");
    let text = printed(&[
        "preview",
        folder.path().to_str().unwrap(),
        "-o",
        png.to_str().unwrap(),
    ]);
    let expected = "values from 0 to 50, without the fill value from 10 to 50\n2 rows: dimension 0, \
                    3 columns: dimension 1\ndark blue lowest, yellow highest, grey the fill value\n";
    assert_eq!(text, expected);
    let (width, pixels) = pixels(&png);
    let scale = width / 3;
    let at = |row: usize, column: usize| pixels[row * scale * width + column * scale];
    // Missing elements are dark. The smallest value has the first colour of the scale, the largest value the last
    // colour.
    assert_eq!(at(0, 0), MISSING);
    assert_eq!(at(0, 1), [68, 1, 84]);
    assert_eq!(at(1, 0), [33, 144, 141]);
    assert_eq!(at(1, 2), [253, 231, 37]);
    let text = sample("climate.zarr/tas").to_str().unwrap().to_string();
    let fault = failed(&["preview", &format!("{text}@99")]);
    assert!(fault.contains("99 is out of bounds"), "{fault}");
}

#[test]
fn a_preview_has_the_range_and_shape_of_the_whole_plane() {
    let folder = tempfile::tempdir().unwrap();
    // The smallest and the largest of the array's 100 x 400 elements are not among those that a picture samples.
    let mut elements = vec![100; 40_000];
    (elements[3 * 400 + 7], elements[97 * 400 + 391]) = (7, 231);
    let (first, second) = elements.split_at(20_000);
    let a = array(&[100, 400], &[50, 400]);
    let files: [(&str, &[u8]); 3] = [
        ("zarr.json", a.as_bytes()),
        ("c/0/0", first),
        ("c/1/0", second),
    ];
    store(folder.path(), &files);
    let path = folder.path().to_str().unwrap();
    for (columns, size) in [
        (20, (3, 20)),
        (80, (10, 80)),
        (200, (25, 200)),
        (500, (25, 200)),
    ] {
        let output = command(&["preview", path])
            .env("COLUMNS", columns.to_string())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (picture, legend) = text.split_at(text.find("values").unwrap());
        let lines: Vec<&str> = picture.lines().collect();
        assert_eq!((lines.len(), lines[0].len()), size, "{text}");
        assert!(legend.starts_with("values from 7 to 231\n"), "{text}");
        assert!(legend.contains("100 rows: dimension 0, 400 columns: dimension 1\nevery "));
    }
}
