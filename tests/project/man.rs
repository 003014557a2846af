//! The manual pages of section 1 are what the command line says; `BLESS=1` writes them.

use std::env;
use std::fs;
use std::path::Path;

use clap_mangen::Man;
use zarrfs::cli;

/// Returns file names and contents.
fn pages() -> Vec<(String, Vec<u8>)> {
    let mut command = cli::command();
    command.build();
    let subcommands = command.get_subcommands().cloned().collect::<Vec<_>>();
    std::iter::once(command)
        .chain(subcommands)
        .map(page)
        .collect()
}

fn page(command: clap::Command) -> (String, Vec<u8>) {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let name = format!("{name}.1");
    let mut text = Vec::new();
    Man::new(command)
        .date("")
        .manual("zarrfs")
        .render(&mut text)
        .unwrap();
    (name, text)
}

#[test]
fn pages_are_those_of_the_command_line() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("man");
    for (name, text) in pages() {
        let path = folder.join(&name);
        if env::var_os("BLESS").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let committed = fs::read(&path).unwrap_or_default();
        assert!(
            committed == text,
            "man/{name} is not what the program says; run BLESS=1 cargo test --test man"
        );
    }
}
