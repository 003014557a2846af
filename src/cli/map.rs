//! `zarrfs map`: shows which chunks of an array or shard are stored.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::cli::picture::{Drawing, GREY, Picture, Rgb, scaled_colour};
use crate::cli::progress::Progress;
use crate::cli::source::{SourceArray, SourceNode};
use crate::cli::terminal::{Paint, is_utf8};
use crate::cli::{MapArgs, Measure, format, report};
use zarr_format::error::{Error, Kind, Result, printable};
use zarrfs_array::array::{OpenArray, ScanDetail};
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_export::inspect::node_info::inner_shapes;
use zarrfs_export::inspect::shard_info::ShardPart;
use zarrfs_export::inspect::stored_chunks::{ChunkMap, Ends, MapCell, MapConfig};
use zarrfs_store::request_context::UNLIMITED;

/// Runs `zarrfs map`: prints the map or writes it to a file; returns false if a chunk cannot be decoded.
pub(super) fn map(args: &MapArgs) -> Result<bool> {
    let node = SourceNode::open(&args.store, &args.path)?.in_group();
    node.name_errors(map_of(args, &node))
}

fn map_of(args: &MapArgs, node: &SourceNode<'_>) -> Result<bool> {
    let located = &node.located;
    let drawing = Drawing::of(args.output.is_some(), args.json);
    let (max_rows, max_columns) = drawing.max_cells(256);
    let config = MapConfig {
        axes: args.axes,
        max_rows,
        max_columns,
        detail: match args.by {
            Measure::Presence => ScanDetail::Presence,
            Measure::Size | Measure::Ratio => ScanDetail::Length,
        },
        decode: args.data,
        threads: located.concurrency,
    };
    let (map, names, inner) = match node.open_array() {
        Err(error) if error.kind() == Kind::NotFound => {
            (of_shard(args, located, &config, error)?, Vec::new(), None)
        }
        array => {
            let array = array?;
            let (map, names) = of_array(args, located, &config, &array)?;
            (map, names, inner_chunks(&array))
        }
    };
    let drawn = DrawnMap {
        shades: Shades::of(&map, args.by),
        map: &map,
        names: &names,
        inner,
        drawing,
    };
    if let Some(path) = &args.output {
        drawn.picture().write(path)?;
    }
    if args.json {
        report::print_json(&drawn.to_json());
    } else {
        drawn.print();
    }
    Ok(map.corrupt.is_empty())
}

/// Returns the chunk map of an array, and the names of the array's dimensions.
fn of_array(
    args: &MapArgs,
    located: &StorePath,
    config: &MapConfig,
    array: &Arc<OpenArray>,
) -> Result<(ChunkMap, Vec<Option<String>>)> {
    if args.by == Measure::Ratio && array.array().data_type.is_variable() {
        let why = "--by ratio does not work for variable-length elements; use --by size";
        return Err(Error::unsupported(array.path(), why));
    }
    let names = SourceArray::dimension_names(located, array)?;
    let bar = Progress::new("looking for chunks");
    let map = ChunkMap::of(&UNLIMITED, array, config, &|count| bar.chunks(count))?;
    Ok((map, names))
}

/// Returns the number of inner chunks of a shard, or `None` if the array has no shards.
fn inner_chunks(array: &OpenArray) -> Option<u64> {
    let array = array.array();
    let shapes = inner_shapes(&array.codecs);
    let lengths = array.chunk_shape.iter().zip(shapes.first()?);
    let counts = lengths.map(|(shard, &inner)| shard.div_ceil(inner.max(1)));
    Some(counts.fold(1, u64::saturating_mul))
}

/// Returns the map of the inner chunks of the shard at the path; fails with the given error if no shard has that path.
fn of_shard(
    args: &MapArgs,
    located: &StorePath,
    config: &MapConfig,
    no_array: Error,
) -> Result<ChunkMap> {
    match ShardPart::at(&UNLIMITED, &located.opened, &located.path)? {
        Some(_) if args.data => {
            let why = "--data needs an array; use 'zarrfs cat --decode' to decode a shard";
            Err(Error::invalid(&located.path, why))
        }
        Some(ShardPart::Shard(shard)) => ChunkMap::of_shard(&shard, config),
        Some(ShardPart::Inner(_)) => Err(Error::invalid(
            &located.path,
            "an inner chunk, not a shard; use the key of a shard",
        )),
        None => Err(no_array),
    }
}

/// Colours and letters of a map's cells.
struct Shades {
    by: Measure,
    /// The smallest and the largest size or ratio of all chunks in the map.
    range: Ends<f64>,
    letters: Letters,
}

impl Shades {
    fn of(map: &ChunkMap, by: Measure) -> Shades {
        let ends = map.cells.iter().filter_map(|cell| measures(cell, by));
        Shades {
            by,
            range: ends.reduce(|all, cell| (all.0.min(cell.0), all.1.max(cell.1))),
            letters: Letters::of_locale(),
        }
    }

    /// Returns where a cell's largest chunk is between the smallest (0) and the largest (1) chunk of the map.
    fn share(&self, cell: &MapCell) -> Option<f64> {
        let (_, largest) = measures(cell, self.by)?;
        match self.range? {
            (low, high) if low < high => Some((largest - low) / (high - low)),
            _ => Some(1.0),
        }
    }

    fn colour(&self, cell: &MapCell) -> Rgb {
        let state = CellState::of(cell);
        match (state, self.by) {
            (CellState::Corrupt | CellState::Missing, _)
            | (CellState::Stored, Measure::Presence) => state.colour(),
            (CellState::Partly, Measure::Presence) => mix(
                GREY,
                state.colour(),
                format::float(cell.present) / format::float(cell.chunks),
            ),
            // A cell whose chunks have no compression ratio is grey.
            _ => self.share(cell).map_or(GREY, scaled_colour),
        }
    }

    fn letter(&self, cell: &MapCell) -> char {
        let state = CellState::of(cell);
        match (state, self.by) {
            (CellState::Corrupt, _) => self.letters.corrupt,
            (CellState::Missing, _) => self.letters.missing,
            (CellState::Stored, Measure::Presence) => self.letters.stored,
            (CellState::Partly, Measure::Presence) => self.letters.partly,
            _ => self.share(cell).map_or(self.letters.missing, digit),
        }
    }
}

/// Letters of cells that are shown by state, not by size or ratio.
struct Letters {
    stored: char,
    partly: char,
    missing: char,
    corrupt: char,
}

impl Letters {
    fn of_locale() -> Letters {
        let (stored, partly, missing) = if is_utf8() {
            ('\u{2588}', '\u{2591}', '\u{b7}')
        } else {
            ('#', '+', '.')
        };
        Letters {
            stored,
            partly,
            missing,
            corrupt: 'X',
        }
    }
}

/// State of the chunks in one cell of the map.
#[derive(Clone, Copy, PartialEq)]
enum CellState {
    Missing,
    Partly,
    Stored,
    /// At least one chunk in the cell cannot be decoded.
    Corrupt,
}

impl CellState {
    fn of(cell: &MapCell) -> CellState {
        if cell.corrupt > 0 {
            CellState::Corrupt
        } else if cell.present == 0 {
            CellState::Missing
        } else if cell.present < cell.chunks {
            CellState::Partly
        } else {
            CellState::Stored
        }
    }

    /// Returns the colour of cells whose chunks have this state, such as missing.
    fn colour(self) -> Rgb {
        match self {
            CellState::Missing => GREY,
            CellState::Partly => [235, 215, 70],
            CellState::Stored => [80, 200, 120],
            CellState::Corrupt => [230, 50, 50],
        }
    }
}

/// Returns the smallest and the largest measure (size or ratio) of a cell's chunks; `None` if no chunk has one.
fn measures(cell: &MapCell, by: Measure) -> Ends<f64> {
    match by {
        Measure::Presence => None,
        Measure::Size => cell
            .lengths
            .map(|(least, largest)| (format::float(least), format::float(largest))),
        Measure::Ratio => cell.ratios,
    }
}

/// Mixes two colours; the share of the second is at least 0.4, so that it is always visible.
fn mix(from: Rgb, to: Rgb, share: f64) -> Rgb {
    let share = 0.4 + 0.6 * share;
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

/// Returns the digit, 0 to 9, that stands for a share from 0 to 1.
fn digit(share: f64) -> char {
    let tenth = byte((share * 10.0).floor()).min(9);
    char::from(b'0' + tenth)
}

/// A chunk map, with its colours and the way to draw it.
struct DrawnMap<'a> {
    map: &'a ChunkMap,
    shades: Shades,
    names: &'a [Option<String>],
    /// Number of inner chunks in a shard; `None` if the array has no shards.
    inner: Option<u64>,
    drawing: Drawing,
}

impl DrawnMap<'_> {
    fn print(&self) {
        match self.drawing {
            Drawing::Colours => self.picture().to_lines().iter().for_each(report::print),
            Drawing::Letters => self.letters().iter().for_each(report::print),
            Drawing::File | Drawing::Facts => {}
        }
        self.dimensions().iter().for_each(report::print);
        self.legend().iter().for_each(report::print);
        report::print(format_args!(
            "{} of {} stored, grid {}",
            self.map.present,
            format::count(self.map.total, "chunk"),
            format::shape(&self.map.grid)
        ));
        if let Some(inner) = self.inner.filter(|_| self.map.present > 0) {
            let inner = format::count(inner, "inner chunk");
            report::print(format_args!(
                "each chunk is a shard of {inner}; to see them, map the key of a shard"
            ));
        }
        for chunk in &self.map.corrupt {
            report::print(format_args!(
                "{}: {}",
                chunk.key,
                printable(&chunk.error.to_string())
            ));
        }
    }

    fn width(&self) -> usize {
        usize::try_from(self.map.columns).unwrap_or(usize::MAX)
    }

    fn picture(&self) -> Picture {
        let cells = self.map.cells.iter();
        Picture {
            width: self.width(),
            pixels: cells.map(|cell| self.shades.colour(cell)).collect(),
        }
    }

    /// Returns the map as text: one line for each row of cells, one letter for each cell.
    fn letters(&self) -> Vec<String> {
        let rows = self.map.cells.chunks(self.width().max(1));
        rows.map(|row| row.iter().map(|cell| self.shades.letter(cell)).collect())
            .collect()
    }

    /// Returns text that says which dimensions are the rows and columns of the map, and how many chunks of the other
    /// dimensions each cell stands for.
    fn dimensions(&self) -> Vec<String> {
        let (rows, columns) = self.map.axes;
        let mut parts = Vec::new();
        for (what, axis) in [("rows", rows), ("columns", columns)] {
            let count = axis.and_then(|axis| self.map.grid.get(axis));
            if let Some((axis, &count)) = axis.zip(count) {
                let name = format::dimension(self.names, axis);
                parts.push(format!("{what}: {name}, {}", format::count(count, "chunk")));
            }
        }
        let grid = self.map.grid.iter().enumerate();
        let others = grid.filter(|(axis, _)| Some(*axis) != rows && Some(*axis) != columns);
        let others = others.filter(|(_, count)| **count > 1);
        parts.extend(others.map(|(axis, count)| {
            let name = format::dimension(self.names, axis);
            format!("each cell: all {count} chunks along {name}")
        }));
        if parts.is_empty() {
            parts.push("no dimensions".to_string());
        }
        parts
    }

    /// Returns the legend of the letters or colours in the map.
    fn legend(&self) -> Vec<String> {
        let per_cell = self.map.cells.iter().map(|cell| cell.chunks).max();
        let per_cell = per_cell.unwrap_or_default();
        let mut signs = match self.shades.by {
            Measure::Presence => self.signs_of_presence(per_cell),
            Measure::Size | Measure::Ratio => self.signs_of_measure(per_cell),
        };
        let missing = self.shades.letters.missing;
        signs.push(self.sign(missing, "grey", CellState::Missing.colour(), "missing"));
        let mut lines = vec![signs.join(", ")];
        if !self.map.corrupt.is_empty() {
            let what = if per_cell > 1 {
                "at least one cannot be decoded"
            } else {
                "cannot be decoded"
            };
            let letter = self.shades.letters.corrupt;
            lines.push(self.sign(letter, "red", CellState::Corrupt.colour(), what));
        }
        if per_cell > 1 {
            let up_to = format::count(per_cell, "chunk");
            lines.push(format!("a cell shows up to {up_to}"));
        }
        lines
    }

    fn signs_of_presence(&self, per_cell: u64) -> Vec<String> {
        let letters = &self.shades.letters;
        let colour = CellState::Stored.colour();
        let mut signs = vec![self.sign(letters.stored, "green", colour, "stored")];
        if per_cell > 1 {
            let colour = CellState::Partly.colour();
            signs.push(self.sign(letters.partly, "yellow", colour, "partly stored"));
        }
        signs
    }

    fn signs_of_measure(&self, per_cell: u64) -> Vec<String> {
        let Some((low, high)) = self.shades.range else {
            return Vec::new();
        };
        let (what, low_text, high_text) = match self.shades.by {
            Measure::Ratio => ("ratios", format!("{low:.1}"), format!("{high:.1}")),
            _ => (
                "bytes of a chunk",
                format!("{low:.0}"),
                format!("{high:.0}"),
            ),
        };
        let yellow = self.mark('9', "yellow", scaled_colour(1.0));
        let mut sign = if low < high {
            let blue = self.mark('0', "dark blue", scaled_colour(0.0));
            format!("{blue} to {yellow}: {what} from {low_text} to {high_text}")
        } else {
            format!("{yellow} {what}: {low_text}")
        };
        if per_cell > 1 {
            sign += " (largest of each cell)";
        }
        vec![sign]
    }

    fn sign(&self, letter: char, name: &str, colour: Rgb, what: &str) -> String {
        format!("{} {what}", self.mark(letter, name, colour))
    }

    /// Returns how the legend shows a colour: as a letter, a block or a name.
    fn mark(&self, letter: char, name: &str, colour: Rgb) -> String {
        match self.drawing {
            Drawing::Letters => letter.to_string(),
            Drawing::Colours => Paint::of_stdout().rgb(colour, "\u{2588}"),
            Drawing::File | Drawing::Facts => name.to_string(),
        }
    }

    /// Returns the map as JSON with all cells that have stored chunks. Their sizes are null if they were not measured.
    fn to_json(&self) -> Value {
        let map = self.map;
        let columns = self.width().max(1);
        let cells = map.cells.iter().enumerate();
        let cells = cells.filter(|(_, cell)| cell.present > 0);
        let cells = cells.map(|(number, cell)| {
            json!({
                "row": number / columns,
                "column": number % columns,
                "chunks": cell.chunks,
                "present": cell.present,
                "bytes": cell.lengths.map(|_| cell.bytes),
                "smallest_bytes": cell.lengths.map(|(least, _)| least),
                "largest_bytes": cell.lengths.map(|(_, largest)| largest),
                "corrupt": cell.corrupt,
            })
        });
        let corrupt = map.corrupt.iter();
        let corrupt = corrupt.map(
            |chunk| json!({"key": format::text(&chunk.key), "error": chunk.error.to_string()}),
        );
        json!({
            "grid": map.grid,
            "dimension_names": self.names,
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
}
