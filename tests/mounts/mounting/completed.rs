//! Tests the completions of zarrfs in each shell that is installed.

use std::fs;
use std::process::Command;

use crate::mounting::fixture::{Fixture, PROGRAM};

/// Runs a shell script in the fixture's folder, where `$1` is the file with the completions. Returns the script's
/// output, or `None` if the shell is not installed.
fn run(fixture: &Fixture, shell: &str, script: &str) -> Option<String> {
    let output = Command::new(PROGRAM).args(["completions", shell]).output();
    let file = fixture.path("completions");
    fs::write(&file, output.unwrap().stdout).unwrap();
    let mut command = Command::new("timeout");
    command.args(["30", shell]);
    if shell != "fish" {
        command.args(if shell == "zsh" {
            &["-f"][..]
        } else {
            &["--norc"]
        });
    }
    command.args(["-c", script, shell]).arg(file);
    command
        .env("HOME", fixture.path(""))
        .current_dir(fixture.path(""));
    let output = command.output().unwrap();
    if output.status.code() == Some(127) {
        eprintln!("skipped: no {shell}");
        return None;
    }
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8(output.stdout).unwrap())
}

fn mounted() -> Option<Fixture> {
    let fixture = Fixture::new()?;
    let mut command = Command::new(PROGRAM);
    command
        .arg("mount")
        .arg(&fixture.store)
        .arg(&fixture.second);
    assert!(command.output().unwrap().status.success());
    Some(fixture)
}

#[test]
fn bash_completes_the_control_directory() {
    let Some(fixture) = mounted() else {
        return;
    };
    let script = r#"
        source "$1"
        offer() {
            COMP_WORDS=(zarrfs "$@")
            COMP_CWORD=$#
            COMPREPLY=()
            _zarrfs_with_control zarrfs "${@: -1}" "${COMP_WORDS[$#-1]}"
            printf '%s|' "${COMPREPLY[@]}"
            echo
        }
        complete -p zarrfs
        offer tree second/.z
        offer tree ./second/.zarrfs
        offer tree second/x
        offer tree s.zarr/.z
        offer tree --jso
        offer help discar
        offer he
    "#;
    let Some(said) = run(&fixture, "bash", script) else {
        return;
    };
    let expected = "complete -o bashdefault -o default -F _zarrfs_with_control zarrfs\n\
                    second/.zarrfs|\n./second/.zarrfs|\n|\n|\n\
                    --json|\ndiscard|\nhelp|\n";
    assert_eq!(said, expected);
}

#[test]
fn bash_offers_the_control_directory_beside_the_files() {
    let Some(fixture) = mounted() else {
        return;
    };
    let script = r#"
        source "$1"
        ln -s second 'a b'
        COMP_WORDS=(zarrfs tree 'a\ b/') COMP_CWORD=2 COMPREPLY=()
        _zarrfs_with_control zarrfs 'a\ b/' tree
        printf '%s\n' "${COMPREPLY[@]}" | sort
    "#;
    if let Some(said) = run(&fixture, "bash", script) {
        assert_eq!(said, "a b/.zarrfs\na b/a\na b/zarr.json\n");
    }
}

#[test]
fn fish_completes_the_control_directory() {
    let Some(fixture) = mounted() else {
        return;
    };
    let script = r#"
        source $argv[-1]
        for line in 'tree second/' 'tree second/.z' 'tree second/x' 'he'
            complete -C "zarrfs $line" | string replace -r '\t.*' ''
            echo end
        end
    "#;
    if let Some(said) = run(&fixture, "fish", script) {
        assert_eq!(
            said,
            "second/.zarrfs/\nsecond/a/\nsecond/zarr.json\nend\nsecond/.zarrfs/\nend\nend\nhelp\nend\n"
        );
    }
}

#[test]
fn zsh_completes_the_control_directory() {
    let Some(fixture) = mounted() else {
        return;
    };
    // The script runs a zsh on its own terminal, in which the command zarrfs prints its arguments.
    let script = r#"
        zmodload zsh/zpty
        zpty shell zsh -f -i
        zpty -w shell "PS1=; unsetopt zle_bracketed_paste; autoload -U compinit; compinit -u -D; source ${(q)1}"
        zpty -w shell 'zarrfs() { print -r -- "<$*>" }'
        for line in 'tree second/.z' 'tree second/x' 'tree second/.zarrfs/sta' 'completions po' 'hel'; do
            zpty -w -n shell "zarrfs $line"$'\t\n'
            zpty -r shell answer $'*<[^$]*>\r\n*'
            print -r -- ${${answer##*<}%%>*}
        done
        zpty -d shell
    "#;
    if let Some(said) = run(&fixture, "zsh", script) {
        let expected = "tree second/.zarrfs/\ntree second/x\ntree second/.zarrfs/stats.json\n\
                        completions powershell\nhelp\n";
        assert_eq!(said, expected);
    }
}
