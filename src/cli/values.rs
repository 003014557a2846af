//! Parses the values of options: sizes, durations, modes, paths, users, groups and folders.
//!
//! Names of users and groups are looked up in the local files, and then with getent(1), which also knows directory
//! services.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use zarr_format::error::{Error, Result};
use zarrfs_array::array::SpillConfig;

/// Parses a size: `256M`, `0.5GiB` or a number of bytes. The units are powers of 1024.
pub(super) fn size(text: &str) -> Result<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let shift = match unit
        .to_ascii_lowercase()
        .trim_end_matches('b')
        .trim_end_matches('i')
    {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => {
            return Err(invalid(
                text,
                "not a size: use a number with K, M, G or T, such as 256M",
            ));
        }
    };
    let (whole, part) = match number.split_once('.') {
        // A number of bytes without a unit must be whole: `0.5` is invalid.
        Some((whole, part)) if shift > 0 && !part.is_empty() => (whole, fraction(part, shift)),
        Some(_) => (number, None),
        None => (number, Some(0)),
    };
    let whole = whole.parse::<u64>().ok().zip(part);
    let (whole, part) = whole.ok_or_else(|| {
        invalid(
            text,
            "not a size: use a number with K, M, G or T, such as 256M",
        )
    })?;
    whole
        .checked_mul(1 << shift)
        .and_then(|bytes| bytes.checked_add(part))
        .ok_or_else(|| invalid(text, "the size is too large"))
}

/// Converts the decimal digits after the point of a size to bytes; the unit is 2^`shift` bytes. Returns `None` for more
/// than six digits.
fn fraction(digits: &str, shift: u32) -> Option<u64> {
    let number: u64 = digits.parse().ok().filter(|_| digits.len() <= 6)?;
    let unit = 10u64.pow(u32::try_from(digits.len()).ok()?);
    Some((number << shift) / unit)
}

/// Parses a memory limit of at least 1 MiB.
pub(super) fn memory(text: &str) -> Result<u64> {
    let bytes = size(text)?;
    if bytes < 1 << 20 {
        return Err(invalid(
            text,
            "too little memory: use at least 1M, such as 256M",
        ));
    }
    Ok(bytes)
}

/// Parses a duration, which must not be zero: `5s`, `500ms`, `2m`, `1h` or a number of seconds.
pub(super) fn duration(text: &str) -> Result<Duration> {
    match duration_or_zero(text)? {
        Duration::ZERO => Err(invalid(text, "must be greater than zero")),
        duration => Ok(duration),
    }
}

/// Parses a duration, which may be zero.
pub(super) fn duration_or_zero(text: &str) -> Result<Duration> {
    let (number, unit) = split(text);
    let number: u32 = number.parse().map_err(|_| {
        invalid(
            text,
            "not a duration: use a number with ms, s, m or h, such as 30s",
        )
    })?;
    let unit = match unit {
        "ms" => Duration::from_millis(1),
        "s" | "" => Duration::from_secs(1),
        "m" | "min" => Duration::from_secs(60),
        "h" => Duration::from_secs(3600),
        _ => {
            return Err(invalid(
                text,
                "not a duration: use a number with ms, s, m or h, such as 30s",
            ));
        }
    };
    Ok(unit * number)
}

/// Parses a pair of dimension numbers such as `0,2`.
pub(super) fn pair(text: &str) -> Result<(usize, usize)> {
    let numbers = text.split_once(',').and_then(|(first, second)| {
        Some((first.trim().parse().ok()?, second.trim().parse().ok()?))
    });
    numbers.ok_or_else(|| invalid(text, "use the numbers of two dimensions, such as 0,2"))
}

/// Parses octal permissions such as `022`.
pub(super) fn octal(text: &str) -> Result<u32> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(invalid(
            text,
            "not octal permissions: use a value from 000 to 777",
        )),
    }
}

/// Fails if the path or URL of a store is empty.
pub(super) fn check_store(text: &str) -> Result<()> {
    if text.is_empty() {
        return Err(invalid(text, "the path or URL of a store is missing"));
    }
    Ok(())
}

/// Makes a path absolute, without resolving symbolic links.
pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Err(invalid("", "the path is missing"));
    }
    std::path::absolute(path).map_err(|error| Error::os(path.display(), error))
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    )
}

fn invalid(text: &str, detail: &str) -> Error {
    Error::invalid(format!("'{text}'"), detail)
}

/// Parses a user name or number.
pub(super) fn user(text: &str) -> Result<u32> {
    id_of(text, "passwd").ok_or_else(|| Error::invalid(format!("'{text}'"), "unknown user"))
}

/// Parses a group name or number.
pub(super) fn group(text: &str) -> Result<u32> {
    id_of(text, "group").ok_or_else(|| Error::invalid(format!("'{text}'"), "unknown group"))
}

fn id_of(text: &str, table: &str) -> Option<u32> {
    if let Ok(number) = text.parse() {
        // u32::MAX is refused, because system calls use it for "no user" or "no group".
        return Some(number).filter(|number| *number != u32::MAX);
    }
    let is_name = !text.is_empty() && !text.starts_with(['-', '+']) && !text.contains([':', '\n']);
    if !is_name {
        return None;
    }
    let local = fs::read_to_string(format!("/etc/{table}")).unwrap_or_default();
    id_in(&local, text).or_else(|| id_in(&getent(table, text)?, text))
}

/// Returns the line `name:x:1000:...` of getent(1) for a user or group.
fn getent(table: &str, name: &str) -> Option<String> {
    let mut command = Command::new("getent");
    command.args([table, name]).stdin(Stdio::null());
    let output = command.stderr(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()
}

/// Finds the number of a user or group in lines such as `name:x:1000:...`.
fn id_in(table: &str, name: &str) -> Option<u32> {
    let line = table
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split(':').nth(1)?.parse().ok()
}

/// Where decoded chunks that do not fit into memory are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SpillChoice {
    /// Decoded chunks are stored in the first usual cache or temporary directory in which a file can be created.
    #[default]
    Usual,
    Folder(PathBuf),
    Nowhere,
}

impl SpillChoice {
    /// Returns the configuration of the disk storage for decoded chunks; `cache_dir` is the directory of `--cache-dir`.
    pub(super) fn config(&self, cache_dir: Option<&Path>) -> SpillConfig {
        let folders = match self {
            SpillChoice::Usual => usual_folders(cache_dir),
            SpillChoice::Folder(folder) => vec![folder.clone()],
            SpillChoice::Nowhere => Vec::new(),
        };
        SpillConfig {
            folders,
            // At most 64 GiB of decoded chunks are stored on disk, and at most half of the free space.
            limit: 64 << 30,
        }
    }
}

impl std::fmt::Display for SpillChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SpillChoice::Usual => f.write_str("auto"),
            SpillChoice::Folder(folder) => folder.display().fmt(f),
            SpillChoice::Nowhere => f.write_str("none"),
        }
    }
}

/// Parses the value of --spill: `none`, `auto` or a directory.
pub(super) fn spill(text: &str) -> Result<SpillChoice> {
    match text {
        "none" => Ok(SpillChoice::Nowhere),
        "auto" => Ok(SpillChoice::Usual),
        folder => absolute(Path::new(folder)).map(SpillChoice::Folder),
    }
}

fn usual_folders(cache_dir: Option<&Path>) -> Vec<PathBuf> {
    let named = |name| env::var_os(name).filter(|value| !value.is_empty());
    let cache = named("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| env::home_dir().map(|home| home.join(".cache")));
    // hier(7) names /var/tmp as the directory of large temporary files.
    let temporary = named("TMPDIR").unwrap_or("/var/tmp".into());
    let folders = [
        cache_dir.map(Path::to_path_buf),
        cache,
        Some(temporary.into()),
    ];
    folders.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_units() {
        assert_eq!(size("256M").unwrap(), 256 << 20);
        assert_eq!(size("1GiB").unwrap(), 1 << 30);
        assert_eq!(size("4kb").unwrap(), 4096);
        assert_eq!(size("7").unwrap(), 7);
        assert_eq!(size("0.5G").unwrap(), 512 << 20);
        assert_eq!(size("1.25k").unwrap(), 1280);
        assert_eq!(size("0.999999T").unwrap(), 1_099_510_528_264);
        let long = "0.0000001T";
        for bad in [
            "",
            "M",
            ".5G",
            "1.G",
            "1.5",
            "1.2.3G",
            long,
            "-1",
            "5x",
            "99999999T",
            "\u{bd}G",
        ] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn too_little_memory_is_refused() {
        assert_eq!(memory("0.5G").unwrap(), 512 << 20);
        for few in ["0", "10", "1023K"] {
            let error = memory(few).unwrap_err().to_string();
            let expected = format!("'{few}': too little memory: use at least 1M, such as 256M");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn durations_are_parsed_with_units() {
        assert_eq!(duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(duration("2m").unwrap(), Duration::from_secs(120));
        assert_eq!(duration("9").unwrap(), Duration::from_secs(9));
        assert!(duration("0s").is_err());
        assert_eq!(duration_or_zero("0").unwrap(), Duration::ZERO);
        assert!(duration("5 s").is_err());
    }

    #[test]
    fn octal_modes_are_parsed() {
        assert_eq!(octal("022").unwrap(), 0o022);
        assert!(octal("1000").is_err());
        assert!(octal("9").is_err());
    }

    #[test]
    fn owners_are_parsed_by_name_or_number() {
        assert_eq!((user("7").unwrap(), group("0").unwrap()), (7, 0));
        assert_eq!((user("root").unwrap(), group("root").unwrap()), (0, 0));
        let error = user("no.such.user").unwrap_err().to_string();
        assert_eq!(error, "'no.such.user': unknown user");
        for bad in ["", "-1", "--help", "root:x", "4294967295", "4294967296"] {
            assert!(user(bad).is_err() && group(bad).is_err(), "{bad}");
        }
        let table = "root:x:0:0\nrooty:x:5:5\nbad:x:y\n";
        assert_eq!(id_in(table, "rooty"), Some(5));
        assert_eq!((id_in(table, "bad"), id_in(table, "roo")), (None, None));
    }

    #[test]
    fn the_spill_option_takes_a_folder_or_none() {
        assert_eq!(spill("none").unwrap(), SpillChoice::Nowhere);
        let chosen = spill("/scratch").unwrap();
        assert_eq!(chosen.to_string(), "/scratch");
        let config = chosen.config(Some(Path::new("/cache")));
        assert_eq!(config.folders, [Path::new("/scratch")]);
    }

    #[test]
    fn spilling_tries_the_cache_folder_first() {
        let usual = SpillChoice::Usual.config(Some(Path::new("/cache")));
        assert_eq!(usual.folders[0], Path::new("/cache"));
        assert!(usual.folders.len() > 1);
        let none = SpillChoice::Nowhere.config(None);
        assert_eq!(none.folders, Vec::<PathBuf>::new());
    }
}
