//! `zarrfs stats`: prints a mount's counters as a table, JSON or Prometheus text.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Instant;
use std::{io, thread};

use serde_json::{Map, Value};

use crate::cli::terminal::terminal_height;
use crate::cli::{StatsArgs, format, mount_facts, report};
use crate::view::control::STATS_ATTRIBUTE;
use zarr_format::error::{Error, Result};

/// Counters that can decrease, and are gauges for Prometheus.
const GAUGES: [&str; 5] = [
    "disk_held_bytes",
    "disk_limit_bytes",
    "memory_held_bytes",
    "memory_peak_bytes",
    "memory_budget_bytes",
];

/// Prints the counters of a mount; with --watch repeatedly, until stdout is closed or the mount is gone.
pub(super) fn stats(args: &StatsArgs) -> Result<bool> {
    let (text, mut before) = read(&args.dir)?;
    if args.json {
        report::write_bytes(text.as_bytes())?;
        return Ok(true);
    }
    if args.prometheus {
        report::write_bytes(prometheus(&args.dir, &before).as_bytes())?;
        return Ok(true);
    }
    let mut queried = Instant::now();
    if !args.watch {
        report::write_bytes(table(&before).as_bytes())?;
        return Ok(true);
    }
    let mut has_reader = true;
    while has_reader {
        thread::sleep(args.interval);
        let (_, now) = read(&args.dir)?;
        let earlier = Earlier {
            numbers: &before,
            seconds: queried.elapsed().as_secs_f64(),
        };
        queried = Instant::now();
        // Escape sequence that clears the terminal and moves the cursor to its first line.
        let clear = if io::stdout().is_terminal() {
            "\u{1b}[H\u{1b}[2J"
        } else {
            "\n"
        };
        let rows = terminal_height().saturating_sub(1);
        let text = format!("{clear}{}", watched(&now, &earlier, rows));
        has_reader = report::write_bytes(text.as_bytes())?;
        before = now;
    }
    Ok(true)
}

/// Names and values of counters.
type Numbers = Vec<(String, u64)>;

/// Reads the counters of the mount at `dir`.
fn read(dir: &Path) -> Result<(String, Numbers)> {
    let mount = mount_facts::mountpoint_at(dir)?;
    let mount = mount.ok_or_else(|| Error::invalid(dir.display(), "is not a mount of zarrfs"))?;
    let failed = |error: &dyn std::error::Error| Error::corrupt(dir.display(), error);
    let text = mount_facts::attribute(&mount, STATS_ATTRIBUTE)?;
    let text = String::from_utf8(text).map_err(|error| failed(&error))?;
    let members: Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| failed(&error))?;
    let numbers = members.into_iter();
    let numbers = numbers.filter_map(|(name, value)| Some((name, value.as_u64()?)));
    Ok((text, numbers.collect()))
}

/// Values of the counters at the previous refresh, and how many seconds ago that was.
struct Earlier<'a> {
    numbers: &'a Numbers,
    seconds: f64,
}

/// Formats the counters that are not zero, with their rates per second, in at most `rows` lines. If there are more
/// counters, those that have not changed are left out first.
fn watched(now: &Numbers, earlier: &Earlier<'_>, rows: usize) -> String {
    let mut lines = Vec::new();
    for (place, (name, number)) in now.iter().enumerate() {
        let before = earlier.numbers.get(place).map_or(0, |(_, before)| *before);
        let added = number.saturating_sub(before);
        let rate = if GAUGES.contains(&name.as_str()) || earlier.seconds <= 0.0 {
            String::new()
        } else {
            format!("{}/s", amount(name, format::float(added) / earlier.seconds))
        };
        let total = amount(name, format::float(*number));
        let is_shown = *number > 0;
        lines.extend(is_shown.then(|| (added > 0, format!("{name:24} {total:>12} {rate:>14}\n"))));
    }
    let mut surplus = lines.len().saturating_sub(rows);
    lines.retain(|(is_active, _)| {
        let is_dropped = surplus > 0 && !is_active;
        surplus -= usize::from(is_dropped);
        !is_dropped
    });
    lines.into_iter().take(rows).map(|(_, line)| line).collect()
}

/// Formats the value of a counter in its unit, which the last word of the counter's name states.
fn amount(name: &str, number: f64) -> String {
    if name.ends_with("_nanoseconds") {
        return format!("{:.1} s", number / 1e9);
    }
    if !name.ends_with("_bytes") || number < 1024.0 {
        return format!("{number:.0}");
    }
    let mut number = number / 1024.0;
    let mut units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].iter();
    let mut unit = units.next();
    while number >= 1024.0 && units.len() > 0 {
        number /= 1024.0;
        unit = units.next();
    }
    format!("{number:.1} {}", unit.unwrap_or(&""))
}

/// Formats the counters as a table of names and values.
fn table(now: &Numbers) -> String {
    let width = now.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = now.iter();
    let lines = lines.map(|(name, number)| format!("{name:width$}  {number:>20}\n"));
    lines.collect()
}

/// Formats the counters in the text format of Prometheus, each with its type.
fn prometheus(dir: &Path, now: &Numbers) -> String {
    let label = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    let label = label.to_string_lossy();
    let label = label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    let mut text = String::new();
    for (name, number) in now {
        let (kind, end) = if GAUGES.contains(&name.as_str()) {
            ("gauge", "")
        } else {
            ("counter", "_total")
        };
        let _ = writeln!(
            text,
            "# TYPE zarrfs_{name}{end} {kind}\nzarrfs_{name}{end}{{mount=\"{label}\"}} {number}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarrfs_store::stats::Stats;

    #[test]
    fn every_gauge_names_a_counter() {
        let names: Vec<&str> = Stats::default()
            .snapshot()
            .iter()
            .map(|(name, _)| *name)
            .collect();
        assert!(GAUGES.iter().all(|gauge| names.contains(gauge)));
    }

    #[test]
    fn rates_are_shown_per_second() {
        let before = vec![
            ("read_bytes".to_string(), 10),
            ("memory_held_bytes".to_string(), 7),
        ];
        let now = vec![
            ("read_bytes".to_string(), 40),
            ("memory_held_bytes".to_string(), 5),
        ];
        let earlier = Earlier {
            numbers: &before,
            seconds: 2.0,
        };
        let text = watched(&now, &earlier, 23);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.contains("15/s") && text.matches("/s").count() == 1,
            "{text}"
        );
        // If only one line fits on the terminal, the counter that has not changed is left out.
        let text = watched(&now, &earlier, 1);
        assert!(
            text.starts_with("read_bytes ") && text.lines().count() == 1,
            "{text}"
        );
    }

    #[test]
    fn amounts_have_units() {
        for (name, number, expected) in [
            ("read_bytes", 5.0, "5"),
            ("read_bytes", 1536.0, "1.5 KiB"),
            ("read_bytes", 1e30, "867361737988.4 EiB"),
            ("store_nanoseconds", 25e8, "2.5 s"),
            ("read_requests", 7.4, "7"),
        ] {
            assert_eq!(amount(name, number), expected, "{name}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        let text = prometheus(
            Path::new("/no/such/\"a\\\n"),
            &vec![("read_bytes".to_string(), 1)],
        );
        assert_eq!(
            text,
            "# TYPE zarrfs_read_bytes_total counter\n\
             zarrfs_read_bytes_total{mount=\"/no/such/\\\"a\\\\\\n\"} 1\n"
        );
    }
}
