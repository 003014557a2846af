//! Parses and formats sizes, durations, modes and paths of the command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use zarr_format::error::{Error, Result};

/// Minimum memory of a mount in bytes.
const MIN_MEMORY: u64 = 1 << 20;

/// Parses `256M`, `0.5GiB` or a number of bytes; the units are powers of 1024.
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
                "a size is a number and K, M, G or T, such as 256M",
            ));
        }
    };
    let (whole, part) = match number.split_once('.') {
        // A fraction of a byte is invalid.
        Some((whole, part)) if shift > 0 && !part.is_empty() => (whole, fraction(part, shift)),
        Some(_) => (number, None),
        None => (number, Some(0)),
    };
    let whole = whole.parse::<u64>().ok().zip(part);
    let (whole, part) = whole.ok_or_else(|| invalid(text, "a size is a number, such as 256M"))?;
    whole
        .checked_mul(1 << shift)
        .and_then(|bytes| bytes.checked_add(part))
        .ok_or_else(|| invalid(text, "is more than a machine can hold"))
}

/// Returns the bytes of the decimal digits in a unit; `None` for more than six digits.
fn fraction(digits: &str, shift: u32) -> Option<u64> {
    let number: u64 = digits.parse().ok().filter(|_| digits.len() <= 6)?;
    let unit = 10u64.pow(u32::try_from(digits.len()).ok()?);
    Some((number << shift) / unit)
}

/// Parses a memory budget; refuses a size below `MIN_MEMORY`.
pub(super) fn memory(text: &str) -> Result<u64> {
    let bytes = size(text)?;
    if bytes < MIN_MEMORY {
        let why = format!(
            "is too little memory: at least {}, such as 256M",
            show_size(MIN_MEMORY)
        );
        return Err(invalid(text, &why));
    }
    Ok(bytes)
}

/// Parses `5s`, `500ms`, `2m`, `1h` or a number of seconds; it must not be zero.
pub(super) fn duration(text: &str) -> Result<Duration> {
    match duration_or_zero(text)? {
        Duration::ZERO => Err(invalid(text, "a duration must be more than nothing")),
        duration => Ok(duration),
    }
}

/// Parses a duration that may be zero.
pub(super) fn duration_or_zero(text: &str) -> Result<Duration> {
    let (number, unit) = split(text);
    let number: u32 = number
        .parse()
        .map_err(|_| invalid(text, "a duration is a number, such as 30s"))?;
    let unit = match unit {
        "ms" => Duration::from_millis(1),
        "s" | "" => Duration::from_secs(1),
        "m" | "min" => Duration::from_secs(60),
        "h" => Duration::from_secs(3600),
        _ => {
            return Err(invalid(
                text,
                "a duration is a number and ms, s, m or h, such as 30s",
            ));
        }
    };
    Ok(unit * number)
}

/// Parses two numbers such as `0,2`.
pub(super) fn pair(text: &str) -> Result<(usize, usize)> {
    let numbers = text.split_once(',').and_then(|(first, second)| {
        Some((first.trim().parse().ok()?, second.trim().parse().ok()?))
    });
    numbers.ok_or_else(|| invalid(text, "expected two dimensions, such as 0,2"))
}

/// Parses permissions such as `022`.
pub(super) fn octal(text: &str) -> Result<u32> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(invalid(text, "permissions are octal, from 000 to 777")),
    }
}

/// Checks that the name of a store is not empty.
pub(super) fn check_store(text: &str) -> Result<()> {
    if text.is_empty() {
        return Err(invalid(text, "expected the path or URL of a store"));
    }
    Ok(())
}

/// Returns the absolute path; links are not resolved.
pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Err(invalid("", "expected a path"));
    }
    std::path::absolute(path).map_err(|error| Error::os(path.display(), error))
}

/// Formats a size in the largest unit that is exact.
pub(super) fn show_size(bytes: u64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let fits = |shift: u32| bytes != 0 && bytes.trailing_zeros() >= shift;
    match units.iter().find(|(_, shift)| fits(*shift)) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Formats a count: `1 conflict`, `2 conflicts`.
pub(super) fn count(number: u64, what: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {what}{end}")
}

/// Formats a duration in seconds or milliseconds.
pub(super) fn show_duration(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", duration.as_millis()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
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
        assert_eq!(show_size(256 << 20), "256M");
        assert_eq!(show_size(1500), "1500");
    }

    #[test]
    fn memory_that_holds_nothing_is_refused() {
        assert_eq!(memory("0.5G").unwrap(), 512 << 20);
        for few in ["0", "10", "1023K"] {
            let error = memory(few).unwrap_err().to_string();
            let expected = format!("'{few}': is too little memory: at least 1M, such as 256M");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(duration("2m").unwrap(), Duration::from_secs(120));
        assert_eq!(duration("9").unwrap(), Duration::from_secs(9));
        assert!(duration("0s").is_err());
        assert_eq!(duration_or_zero("0").unwrap(), Duration::ZERO);
        assert!(duration("5 s").is_err());
        assert_eq!(show_duration(Duration::from_millis(1500)), "1500ms");
    }

    #[test]
    fn modes() {
        assert_eq!(octal("022").unwrap(), 0o022);
        assert!(octal("1000").is_err());
        assert!(octal("9").is_err());
    }
}
