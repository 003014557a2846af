//! Times in answers of programs and servers that give credentials: RFC 3339 in any zone, or with UTC in words.

use std::time::{Duration, SystemTime};

/// Reads a time; nothing if it is none.
pub(super) fn read(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    let (date, offset) = match text.strip_suffix("UTC").or(text.strip_suffix(['Z', 'z'])) {
        Some(date) => (date, 0),
        None => {
            let (date, zone) = text.split_at_checked(text.len().checked_sub(6)?)?;
            (date, offset(zone)?)
        }
    };
    let time = humantime::parse_rfc3339(&format!("{date}Z")).ok()?;
    let away = Duration::from_secs(offset.unsigned_abs());
    if offset < 0 {
        time.checked_add(away)
    } else {
        time.checked_sub(away)
    }
}

/// Writes a time as `read` reads it.
pub(super) fn write(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Returns how many seconds a zone, `+HH:MM`, is before UTC.
fn offset(zone: &str) -> Option<i64> {
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let seconds = hours.parse::<u16>().ok()? * 60 + minutes.parse::<u16>().ok()?;
    let seconds = i64::from(seconds) * 60;
    match zone.get(..1)? {
        "+" => Some(seconds),
        "-" => Some(-seconds),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_zones_are_read() {
        let noon = Duration::from_secs(1_600_000_000);
        for text in [
            "2020-09-13T12:26:40Z",
            "2020-09-13T12:26:40UTC",
            "2020-09-13T12:26:40.000Z",
            "2020-09-13T12:26:40+00:00",
            "2020-09-13T14:26:40+02:00",
            "2020-09-13T08:56:40-03:30",
            " 2020-09-13T12:26:40Z\n",
        ] {
            assert_eq!(read(text), Some(SystemTime::UNIX_EPOCH + noon), "{text}");
        }
        assert_eq!(write(SystemTime::UNIX_EPOCH + noon), "2020-09-13T12:26:40Z");
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "Z",
            "soon",
            "2020-09-13",
            "2020-09-13T12:26:40",
            "2020-09-13T12:26:40+99:99x",
            "2020-09-13T12:26:40\u{e9}00:00",
            "2020-09-13T12:26:40+:0000",
            "2020-99-13T12:26:40Z",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
