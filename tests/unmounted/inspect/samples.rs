//! Compares the output of commands for the sample stores, as text and as JSON.

use crate::inspect::program::{compare, printed, sample};

/// Runs a command on a sample store. Returns the output, in which the folder is replaced so that it does not depend on
/// the machine.
fn shown(args: &[&str]) -> String {
    let folder = sample("");
    let folder = folder.to_str().unwrap().trim_end_matches('/');
    let line = args.join(" ");
    let args: Vec<String> = args
        .iter()
        .map(|arg| match arg.strip_prefix("samples/") {
            Some(path) => format!("{folder}/{path}"),
            None => arg.to_string(),
        })
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    format!(
        "$ zarrfs {line}\n{}",
        printed(&args).replace(folder, "samples")
    )
}

#[test]
fn text_of_samples() {
    let lines: [&[&str]; 12] = [
        &["tree", "samples/climate.zarr"],
        &["tree", "--depth", "0", "samples/climate.zarr"],
        &["tree", "samples/relief.zarr"],
        &["ls", "samples/climate.zarr"],
        &["ls", "-l", "samples/climate.zarr"],
        &["ls", "-l", "samples/climate.zarr/tas"],
        &["info", "samples/climate.zarr"],
        &["info", "samples/climate.zarr/tas"],
        &["info", "samples/climate.zarr/survey/volume"],
        &["info", "samples/relief.zarr/height"],
        &["map", "samples/climate.zarr/pr", "--data"],
        &["preview", "samples/relief.zarr/height"],
    ];
    let text: Vec<String> = lines.into_iter().map(shown).collect();
    compare("samples.txt", &text.join("\n"));
}

#[test]
fn json_of_samples() {
    let lines: [&[&str]; 6] = [
        &["tree", "--json", "samples/relief.zarr"],
        &["ls", "--json", "samples/climate.zarr/survey"],
        &["info", "--json", "samples/climate.zarr/tas"],
        &["info", "--json", "samples/climate.zarr/survey/volume"],
        &["info", "--json", "samples/climate.zarr"],
        &["map", "--json", "--by", "size", "samples/climate.zarr/tas"],
    ];
    let text: Vec<String> = lines.into_iter().map(shown).collect();
    for text in &text {
        let (_, json) = text.split_once('\n').unwrap();
        serde_json::from_str::<serde_json::Value>(json).unwrap();
    }
    compare("samples.json.txt", &text.join("\n"));
}
