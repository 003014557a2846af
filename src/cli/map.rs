//! `zarrfs map`: the chunk grid of an array, or of a shard, as a picture of which chunks are stored.

use serde_json::{Value, json};

use super::cat::open_array;
use super::named_faults::named;
use super::paint::{Paint, terminal_width};
use super::picture::{Picture, Rgb, scaled_colour};
use super::{MapArgs, Measure, report, shown, units};
use crate::array::ScanDetail;
use crate::error::{Error, Kind, Result, printable};
use crate::inspect::chunk_map::{ChunkMap, MapCell, MapConfig};
use crate::inspect::locate::StorePath;
use crate::inspect::shard_info::ShardPart;
use crate::request_context::UNLIMITED;

/// The most cells along each side of a picture in a file.
const MAX_SIDE: u64 = 1024;

/// The most cells along each side in JSON.
const MAX_JSON_SIDE: u64 = 256;

/// The most lines of a picture on a terminal.
const MAX_LINES: u64 = 32;

const MISSING: Rgb = [48, 48, 48];
const PRESENT: Rgb = [80, 200, 120];
const CORRUPT: Rgb = [230, 50, 50];

/// Prints or writes the map; the answer is no if a chunk does not decode.
pub(super) fn map(args: &MapArgs) -> Result<bool> {
    let located = args.store.open(&args.path)?;
    named(&located, &args.path, map_of(args, &located))
}

fn map_of(args: &MapArgs, located: &StorePath) -> Result<bool> {
    let (rows, columns) = match (&args.output, args.json) {
        (None, false) => (2 * MAX_LINES, terminal_width() as u64),
        (None, true) => (MAX_JSON_SIDE, MAX_JSON_SIDE),
        (Some(_), _) => (MAX_SIDE, MAX_SIDE),
    };
    let config = MapConfig {
        axes: args.axes,
        max_rows: rows,
        max_columns: columns,
        detail: match args.by {
            Measure::Presence => ScanDetail::Presence,
            Measure::Size | Measure::Ratio => ScanDetail::Length,
        },
        decode: args.data,
        threads: located.concurrency,
    };
    let map = match open_array(located) {
        Err(error) if error.kind() == Kind::NotFound => of_shard(args, located, &config, error)?,
        array => ChunkMap::of(&UNLIMITED, &array?, &config)?,
    };
    let shades = Shades::of(&map, args.by);
    if let Some(path) = &args.output {
        shades.picture(&map).write(path)?;
    }
    if args.json {
        report::print_json(&to_json(&map, config.detail));
    } else {
        print(&map, &shades, args);
    }
    Ok(map.corrupt.is_empty())
}

/// Returns the map of the shard that was typed; fails with `no_array` if it is none.
fn of_shard(
    args: &MapArgs,
    located: &StorePath,
    config: &MapConfig,
    no_array: Error,
) -> Result<ChunkMap> {
    match ShardPart::at(&UNLIMITED, &located.opened, &located.path)? {
        Some(_) if args.data => {
            let why =
                "--data decodes the chunks of an array; 'zarrfs cat --decode' decodes a shard";
            Err(Error::invalid(&located.path, why))
        }
        Some(ShardPart::Shard(shard)) => ChunkMap::of_shard(&shard, config),
        Some(ShardPart::Inner(_)) => Err(Error::invalid(&located.path, "is not a shard")),
        None => Err(no_array),
    }
}

/// How cells are coloured.
struct Shades {
    by: Measure,
    /// The least and the largest measure.
    range: Option<(f64, f64)>,
}

impl Shades {
    fn of(map: &ChunkMap, by: Measure) -> Shades {
        let values = map.cells.iter().filter_map(|cell| measure(cell, by));
        let range = values.fold(None, |range: Option<(f64, f64)>, value| {
            let (low, high) = range.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        });
        Shades { by, range }
    }

    fn colour(&self, cell: &MapCell) -> Rgb {
        if cell.corrupt > 0 {
            return CORRUPT;
        }
        match (measure(cell, self.by), self.range, self.by) {
            (None, ..) | (_, None, _) => MISSING,
            (Some(share), _, Measure::Presence) => mix(MISSING, PRESENT, share),
            (Some(_), Some((low, high)), _) if low >= high => scaled_colour(1.0),
            (Some(value), Some((low, high)), _) => scaled_colour((value - low) / (high - low)),
        }
    }

    fn picture(&self, map: &ChunkMap) -> Picture {
        Picture {
            width: usize::try_from(map.columns).unwrap_or(usize::MAX),
            pixels: map.cells.iter().map(|cell| self.colour(cell)).collect(),
        }
    }
}

/// Returns what a cell is coloured by; nothing if no chunk of it is stored.
fn measure(cell: &MapCell, by: Measure) -> Option<f64> {
    let present = (cell.present > 0).then(|| float(cell.present))?;
    match by {
        Measure::Presence => Some((present / float(cell.chunks.max(1))).min(1.0)),
        Measure::Size => Some(float(cell.bytes) / present),
        Measure::Ratio => (cell.bytes > 0).then(|| float(cell.decoded) / float(cell.bytes)),
    }
}

/// A number as a float; the last digits of a large one do not show in a colour.
#[expect(clippy::cast_precision_loss, reason = "colours have 8 bits")]
fn float(number: u64) -> f64 {
    number as f64
}

/// Mixes two colours; what is not nothing is visibly more than nothing.
fn mix(from: Rgb, to: Rgb, share: f64) -> Rgb {
    let share = 0.25 + 0.75 * share;
    let mixed = |i: usize| f64::from(from[i]) * (1.0 - share) + f64::from(to[i]) * share;
    std::array::from_fn(|i| byte(mixed(i)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a mixture of bytes is one"
)]
fn byte(value: f64) -> u8 {
    value.round() as u8
}

fn print(map: &ChunkMap, shades: &Shades, args: &MapArgs) {
    let paint = Paint::of_stdout();
    if args.output.is_none() {
        let lines = if paint.is_on() {
            shades.picture(map).to_lines()
        } else {
            plain_lines(map)
        };
        lines.iter().for_each(report::print);
    }
    report::print(legend(map, shades, paint));
    report::print(format_args!(
        "{} of {} stored, grid {}",
        map.present,
        units::count(map.total, "chunk"),
        shown::shape(&map.grid)
    ));
    for chunk in &map.corrupt {
        report::print(format_args!(
            "{}: {}",
            chunk.key,
            printable(&chunk.error.to_string())
        ));
    }
}

/// Returns lines without colours, a letter for two rows: a block where half of the chunks are stored.
fn plain_lines(map: &ChunkMap) -> Vec<String> {
    let width = usize::try_from(map.columns).unwrap_or(usize::MAX).max(1);
    let rows: Vec<&[MapCell]> = map.cells.chunks(width).collect();
    let is_full =
        |cell: &MapCell| cell.present > 0 && cell.present.saturating_mul(2) >= cell.chunks;
    let letter = |upper: &MapCell, lower: Option<&MapCell>| {
        let is_corrupt = |cell: &MapCell| cell.corrupt > 0;
        if is_corrupt(upper) || lower.is_some_and(is_corrupt) {
            return 'X';
        }
        match (is_full(upper), lower.map(is_full)) {
            (true, Some(true)) => '\u{2588}',
            (true, _) => '\u{2580}',
            (false, Some(true)) => '\u{2584}',
            (false, _) if upper.present + lower.map_or(0, |cell| cell.present) > 0 => '\u{2591}',
            (false, _) => '\u{b7}',
        }
    };
    let line = |pair: &[&[MapCell]]| {
        let upper = pair.first().copied().unwrap_or_default().iter().enumerate();
        upper
            .map(|(column, upper)| letter(upper, pair.get(1).and_then(|row| row.get(column))))
            .collect()
    };
    rows.chunks(2).map(line).collect()
}

fn legend(map: &ChunkMap, shades: &Shades, paint: Paint) -> String {
    let axis = |axis: Option<usize>| axis.map_or("none".to_string(), |axis| axis.to_string());
    let axes = format!(
        "rows: dimension {}, columns: dimension {}",
        axis(map.axes.0),
        axis(map.axes.1)
    );
    let scale = match (shades.by, shades.range) {
        (Measure::Presence, _) | (_, None) if paint.is_on() => {
            "dark: missing, green: stored, red: does not decode".to_string()
        }
        (Measure::Presence, _) | (_, None) => {
            "\u{2588} stored, \u{2591} partly, \u{b7} missing, X does not decode".to_string()
        }
        (Measure::Size, Some((low, high))) => {
            format!("bytes of a chunk from {low:.0} to {high:.0}")
        }
        (Measure::Ratio, Some((low, high))) => format!("ratio from {low:.1} to {high:.1}"),
    };
    format!("{axes}; {scale}")
}

/// Returns the map as JSON, with the cells of which something is stored; lengths are null where they were not asked for.
fn to_json(map: &ChunkMap, detail: ScanDetail) -> Value {
    let has_lengths = matches!(detail, ScanDetail::Length);
    let columns = usize::try_from(map.columns).unwrap_or(usize::MAX).max(1);
    let cells = map.cells.iter().enumerate();
    let cells = cells.filter(|(_, cell)| cell.present > 0);
    let cells = cells.map(|(number, cell)| {
        json!({
            "row": number / columns,
            "column": number % columns,
            "chunks": cell.chunks,
            "present": cell.present,
            "bytes": has_lengths.then_some(cell.bytes),
            "corrupt": cell.corrupt,
        })
    });
    let corrupt = map.corrupt.iter();
    let corrupt = corrupt
        .map(|chunk| json!({"key": shown::text(&chunk.key), "error": chunk.error.to_string()}));
    json!({
        "grid": map.grid,
        "row_dimension": map.axes.0,
        "column_dimension": map.axes.1,
        "rows": map.rows,
        "columns": map.columns,
        "chunks": map.total,
        "present": map.present,
        "corrupt": corrupt.collect::<Vec<_>>(),
        "cells": cells.collect::<Vec<_>>(),
    })
}
