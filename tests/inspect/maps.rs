//! Maps of chunk grids and previews of planes: cells, pixels, and grids of any number of chunks.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{GROUP, array, failed, printed, run, sample, store};

/// Returns width and pixels of a PNG.
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

/// Writes an array of 3 x 4 chunks of 2 x 2 elements, of which some are stored, one of them too short.
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
fn lengths_are_told_where_they_were_asked_for() {
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
fn pixels_are_chunks() {
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
fn a_picture_that_is_replaced_is_a_whole_one_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    patchy(folder.path());
    let array = folder.path().join("a");
    for (command, file) in [("map", "a.png"), ("map", "a.svg"), ("preview", "b.png")] {
        // One chunk does not decode, which is none of those of a preview.
        let part = if command == "preview" { "@0:2,0:2" } else { "" };
        let array = format!("{}{part}", array.display());
        let file = folder.path().join(file);
        std::fs::write(&file, "old").unwrap();
        let mut opened = File::open(&file).unwrap();
        printed(&[command, &array, "-o", file.to_str().unwrap()]);
        // Whoever has the old picture open reads it to its end.
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
    assert!(fault.contains("no/map.png: No such file"), "{fault}");
}

#[test]
fn a_map_is_text_without_colours() {
    let folder = tempfile::tempdir().unwrap();
    patchy(folder.path());
    let path = folder.path().join("a");
    let text = printed(&["map", path.to_str().unwrap()]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..2],
        ["\u{2580}\u{b7}\u{b7}\u{2584}", "\u{b7}\u{2580}\u{b7}\u{b7}"]
    );
    let text = printed(&["map", "--axes", "1,0", path.to_str().unwrap()]);
    assert_eq!(
        text.lines().next(),
        Some("\u{2580}\u{b7}\u{2584}"),
        "{text}"
    );
    let fault = failed(&["map", "--axes", "0,2", path.to_str().unwrap()]);
    assert!(
        fault.ends_with("has 2 dimensions: 0 and 2 are not two of them"),
        "{fault}"
    );
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
fn grids_of_any_length_are_mapped() {
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
        printed(&["preview", path]);
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
    assert_eq!(text, "values from 10 to 50; elements (2, 3)\n");
    let (width, pixels) = pixels(&png);
    let scale = width / 3;
    let at = |row: usize, column: usize| pixels[row * scale * width + column * scale];
    // The fill value is dark; the least is the first colour of the scale, the largest the last.
    assert_eq!(at(0, 0), MISSING);
    assert_eq!(at(0, 1), [68, 1, 84]);
    assert_eq!(at(1, 0), [33, 144, 141]);
    assert_eq!(at(1, 2), [253, 231, 37]);
    let text = sample("climate.zarr/tas").to_str().unwrap().to_string();
    let fault = failed(&["preview", &format!("{text}@99")]);
    assert!(fault.contains("99 is out of bounds"), "{fault}");
}
