//! `zarrfs info`: prints all facts about a group, an array, a shard or a file.

use std::ops::Range;

use serde_json::{Value, json};

use crate::cli::source::{NAMED_ONLY, SourceNode};
use crate::cli::terminal::{wrap_width, wrapped};
use crate::cli::{InfoArgs, format, report};
use crate::view::plain;
use zarr_format::error::{Error, Kind, Result, printable};
use zarr_format::grid::join_indices;
use zarr_format::json_text;
use zarrfs_export::inspect::coordinates::names_dimensions;
use zarrfs_export::inspect::file_ending::FileContent;
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_export::inspect::named_file::NamedFile;
use zarrfs_export::inspect::node_info::RefusedFile;
use zarrfs_export::inspect::node_info::{ArrayInfo, ReadCost};
use zarrfs_export::inspect::node_info::{ChildCounts, NodeInfo};
use zarrfs_export::inspect::node_info::{LeftOut, LeftOutOfFiles};
use zarrfs_export::inspect::shard_info::{ShardInfo, ShardPart};
use zarrfs_export::inspect::stored_chunks::ChunkTotals;
use zarrfs_export::inspect::tree::NodeFacts;
use zarrfs_store::request_context::UNLIMITED;

pub(super) fn info(args: &InfoArgs) -> Result<bool> {
    let node = SourceNode::open(&args.store, &args.path)?;
    node.name_errors(info_of(args, &node))
}

fn info_of(args: &InfoArgs, node: &SourceNode<'_>) -> Result<bool> {
    let located = &node.located;
    let above = node.above();
    let info = match NodeInfo::of(&UNLIMITED, located, above.as_ref()) {
        Err(error) if error.kind() == Kind::NotFound => {
            let part = ShardPart::at(&UNLIMITED, &located.opened, &located.path);
            if let Ok(Some(part)) = &part {
                return print_part(args, located, part);
            }
            let above = above_file(args, node);
            let near = above.as_ref().unwrap_or(node);
            let Some(file) = NamedFile::of(&UNLIMITED, &near.located)? else {
                return Err(part.err().unwrap_or(error));
            };
            let file = NamedFile {
                length: near.name_errors(file.length),
                ..file
            };
            print_file(args, located, &file);
            return Ok(file.length.is_ok());
        }
        info => with_plain_limits(info?, located),
    };
    if args.json {
        report::print_json(&to_json(located, &info));
    } else {
        Sheet::default().fill(located, &info).print();
    }
    if !matches!(info.children, Some(Err(_))) {
        node.warn_unread_copies();
    }
    Ok(true)
}

/// Adds to the facts about a node which plain Zarr views omit it or parts of it, and why.
fn with_plain_limits(mut info: NodeInfo, located: &StorePath) -> NodeInfo {
    let opened = &located.opened;
    let entry = opened.hierarchy.node(&UNLIMITED, &located.path);
    for limit in entry
        .ok()
        .flatten()
        .iter()
        .flat_map(|entry| plain::limits_of(&opened.arrays, entry))
    {
        if limit.is_left_out {
            info.refused_files.push((limit.target.name, limit.reason));
        } else {
            info.left_out.0.push(LeftOutOfFiles {
                sentence: limit.reason,
                files: vec![limit.target.name.to_string()],
            });
        }
    }
    info
}

/// If the path names a decoded file of an array that was opened as a store root, opens the file again through the group
/// above the array, whose metadata define labels and headers. Returns `None` if there is no such group.
fn above_file<'a>(args: &InfoArgs, node: &SourceNode<'a>) -> Option<SourceNode<'a>> {
    let located = &node.located;
    let is_top = located.path.parent().is_some_and(|parent| parent.is_root());
    let (array, file) = args.path.rsplit_once('/').filter(|_| is_top)?;
    let content = FileContent::of_name(file);
    let mut above = if names_dimensions(file) {
        args.store.open_in_parent(array)?
    } else if node.is_array_store() && content.is_ok_and(|content| !content.format.is_basic) {
        args.store.open_in_top_group(array)?
    } else {
        return None;
    };
    above.path = above.path.child(file.as_bytes()).ok()?;
    Some(node.at(above))
}

/// Prints the facts about a decoded file, or why it cannot be made.
fn print_file(args: &InfoArgs, located: &StorePath, file: &NamedFile) {
    let error = file.length.as_ref().err().map(Error::to_string);
    let length = file.length.as_ref().ok().copied().flatten();
    if args.json {
        report::print_json(&json!({
            "store": located.source,
            "path": format::text(&located.path),
            "name": file.name,
            "kind": "file",
            "format": file.format,
            "data_type": file.elements.as_ref().map(|(data_type, _)| data_type),
            "shape": file.elements.as_ref().map(|(_, shape)| shape),
            "bytes": length,
            "error": error,
        }));
        return;
    }
    let mut sheet = Sheet {
        title: file.name.clone(),
        ..Sheet::default()
    };
    sheet.add("kind", "decoded file");
    if let Some((data_type, shape)) = &file.elements {
        sheet.add("elements", format!("{data_type}, {}", format::shape(shape)));
    }
    match (error, length) {
        (Some(why), _) => sheet.add("cannot be opened", why),
        (None, Some(length)) => sheet.add("length", format::size(length)),
        (None, None) => sheet.add("length", "known when it is read"),
    }
    sheet.print();
}

/// Prints the index of a shard, or the byte range of an inner chunk. Returns false if the index cannot be read, or if
/// the inner chunk is not stored.
fn print_part(args: &InfoArgs, located: &StorePath, part: &ShardPart) -> Result<bool> {
    let (is_sound, members, sheet) = match part {
        ShardPart::Shard(shard) => {
            let info = ShardInfo::of(shard);
            (info.chunks.is_ok(), shard_json(&info), shard_sheet(&info))
        }
        ShardPart::Inner(inner) => {
            let place = inner.range()?;
            let mut sheet = Sheet::default();
            sheet.add("kind", "inner chunk");
            sheet.add(
                "stored",
                place.as_ref().map_or("no".to_string(), range_text),
            );
            let members = json!({
                "kind": "inner chunk",
                "key": format::text(&inner.shard.key),
                "index": inner.shard.indices(inner.number).to_vec(),
                "stored": place.as_ref().map(range_json),
            });
            (place.is_some(), members, sheet)
        }
    };
    if args.json {
        let mut report = json!({"store": located.source, "path": format::text(&located.path)});
        if let (Some(report), Value::Object(members)) = (report.as_object_mut(), members) {
            report.extend(members);
        }
        report::print_json(&report);
    } else {
        let title = String::from_utf8_lossy(located.path.name()).into_owned();
        let path = format!("{} at {}", located.source, format::text(&located.path));
        let mut lines = vec![("store", printable(&path))];
        lines.extend(sheet.lines);
        Sheet { title, lines }.print();
    }
    Ok(is_sound)
}

fn range_text(range: &Range<u64>) -> String {
    format!(
        "{} at {}",
        format::count(range.end - range.start, "byte"),
        range.start
    )
}

fn range_json(range: &Range<u64>) -> Value {
    json!({"offset": range.start, "length": range.end - range.start})
}

/// Returns the facts about a shard as text. Offsets of inner chunks count from the beginning of the shard; the offset
/// of a nested shard counts from the beginning of the object.
fn shard_sheet(info: &ShardInfo) -> Sheet {
    let mut sheet = Sheet::default();
    sheet.add("kind", "shard");
    sheet.add("stored", range_text(&info.bytes));
    let index = info
        .index
        .as_ref()
        .map_or("missing: the shard is too short".to_string(), range_text);
    sheet.add(
        "index",
        format!("{index}, checksum {}", info.checksum.name()),
    );
    let chunks = match &info.chunks {
        Ok(chunks) => chunks,
        Err(error) => {
            sheet.add("error", error.to_string());
            return sheet;
        }
    };
    let grid = format::shape(&info.chunks_per_shard);
    sheet.add(
        "inner chunks",
        format!("{} of {grid} stored", chunks.stored),
    );
    sheet.add("unused", format::count(chunks.unused, "byte"));
    for (place, (indices, range)) in chunks.places.iter().enumerate() {
        let title = if place == 0 { "@" } else { "" };
        let range = range.as_ref().map_or_else(Error::to_string, range_text);
        sheet.add(title, format!("{}: {range}", join_indices(indices)));
    }
    if chunks.not_listed() > 0 {
        sheet.add("", format!("and {} more", chunks.not_listed()));
    }
    sheet
}

fn shard_json(info: &ShardInfo) -> Value {
    let mut members = json!({
        "kind": "shard",
        "key": format::text(&info.key),
        "offset": info.bytes.start,
        "length": info.bytes.end - info.bytes.start,
        "index": {
            "offset": info.index.as_ref().map(|place| place.start),
            "length": info.index.as_ref().map(|place| place.end - place.start),
            "checksum": info.checksum.name(),
        },
        "chunks_per_shard": info.chunks_per_shard,
    });
    let more = match &info.chunks {
        Err(error) => json!({"error": error.to_string()}),
        Ok(chunks) => {
            let places = chunks.places.iter().map(|(indices, range)| {
                let error = |error: &Error| json!({"error": error.detail()});
                let place = range.as_ref().map_or_else(error, range_json);
                (join_indices(indices), place)
            });
            json!({
                "stored_chunks": chunks.stored,
                "unused": chunks.unused,
                "chunks": places.collect::<serde_json::Map<_, _>>(),
                "chunks_not_listed": chunks.not_listed(),
            })
        }
    };
    if let (Some(members), Value::Object(more)) = (members.as_object_mut(), more) {
        members.extend(more);
    }
    members
}

fn kind(info: &NodeInfo) -> &'static str {
    match info.facts {
        NodeFacts::Group => "group",
        NodeFacts::Array(_) => "array",
        NodeFacts::Broken(_) => "broken",
    }
}

fn to_json(located: &StorePath, info: &NodeInfo) -> Value {
    let documents: Vec<String> = info.documents.iter().map(format::text).collect();
    let mut members = json!({
        "store": located.source,
        "path": format::text(&located.path),
        "name": info.name,
        "kind": kind(info),
        "dialect": info.dialect,
        "documents": documents,
        "is_consolidated": info.is_consolidated,
    });
    let mut others = Vec::new();
    if let NodeFacts::Array(array) = &info.facts {
        others.extend(format::array_json(array));
    }
    if let Some(stored) = &info.stored {
        let stored = stored.as_ref().map_or_else(error_json, format::stored_json);
        others.push(("stored".to_string(), stored));
    }
    if let Some(children) = &info.children {
        let children = children.as_ref().map_or_else(error_json, children_json);
        others.push(("children".to_string(), children));
    }
    others.extend(files_json(info));
    others.push((
        "attributes".to_string(),
        Value::Object(info.attributes.to_map()),
    ));
    if !info.renamed_attributes.is_empty() {
        let names = info.renamed_attributes.iter();
        let names = names.map(|(own, renamed)| (own.clone(), json!(renamed)));
        others.push((
            "renamed_attributes".to_string(),
            Value::Object(names.collect()),
        ));
    }
    if let NodeFacts::Broken(error) = &info.facts {
        others.push(("error".to_string(), json!(error.to_string())));
    }
    if let Some(members) = members.as_object_mut() {
        members.extend(others);
    }
    members
}

fn error_json(error: &Error) -> Value {
    json!({"error": error.to_string()})
}

fn children_json(counts: &ChildCounts) -> Value {
    let mut members =
        json!({"groups": counts.groups, "arrays": counts.arrays, "broken": counts.broken});
    if counts.is_partial {
        members["is_partial"] = json!(true);
    }
    members
}

/// Returns as JSON the files of a group and, for any node, the file formats that cannot contain the node, with the
/// reasons.
fn files_json(info: &NodeInfo) -> Vec<(String, Value)> {
    let refused = |refused: &[RefusedFile]| {
        let pairs = refused
            .iter()
            .map(|(format, why)| ((*format).to_string(), json!(why)));
        ("refused_files".to_string(), Value::Object(pairs.collect()))
    };
    let left_out = |left_out: &LeftOut| {
        let sentences = left_out.0.iter();
        let sentences =
            sentences.map(|left| json!({"sentence": left.sentence, "files": left.files}));
        ("left_out".to_string(), sentences.collect())
    };
    match &info.group_files {
        Some(Ok(files)) => vec![
            ("files".to_string(), json!(files.names)),
            refused(&files.refused),
            left_out(&files.left_out),
        ],
        Some(Err(error)) => vec![("files".to_string(), json!({"error": error.to_string()}))],
        None if matches!(info.facts, NodeFacts::Array(_)) => {
            vec![refused(&info.refused_files), left_out(&info.left_out)]
        }
        None => Vec::new(),
    }
}

/// Facts to print: lines that consist of a name and a value.
#[derive(Default)]
struct Sheet {
    title: String,
    lines: Vec<(&'static str, String)>,
}

impl Sheet {
    fn add(&mut self, name: &'static str, value: impl AsRef<str>) {
        self.lines.push((name, printable(value.as_ref())));
    }

    fn fill(mut self, located: &StorePath, info: &NodeInfo) -> Sheet {
        self.title = info.name.clone();
        let path = if located.path.is_root() {
            located.source.clone()
        } else {
            format!("{} at {}", located.source, format::text(&located.path))
        };
        self.add("store", path);
        let dialect = info.dialect.map(|dialect| format!(", {dialect}"));
        self.add(
            "kind",
            format!("{}{}", kind(info), dialect.unwrap_or_default()),
        );
        let documents: Vec<String> = info.documents.iter().map(format::text).collect();
        self.add(
            "metadata",
            match documents.as_slice() {
                [] if info.is_consolidated => "consolidated metadata".to_string(),
                [] => "none".to_string(),
                some => some.join(", "),
            },
        );
        match &info.facts {
            NodeFacts::Group => self.add_group(info),
            NodeFacts::Array(array) => {
                let path = located.path.to_string();
                self.add_array(array, info.stored.as_ref(), &path);
                self.add_refused(&info.refused_files);
                self.add_left_out(&info.left_out);
            }
            NodeFacts::Broken(error) => self.add("error", error.to_string()),
        }
        self.add_attributes(info);
        self
    }

    fn add_group(&mut self, info: &NodeInfo) {
        if info.is_consolidated {
            self.add("children from", "consolidated metadata");
        }
        match &info.children {
            Some(Ok(counts)) => {
                let mut text = format!(
                    "{}, {}",
                    format::count(counts.groups as u64, "group"),
                    format::count(counts.arrays as u64, "array")
                );
                if counts.broken > 0 {
                    text += &format!(", {}", format::count(counts.broken as u64, "broken node"));
                }
                if counts.is_partial {
                    text += &format!(", {NAMED_ONLY}");
                }
                self.add("children", text);
            }
            Some(Err(error)) => self.add("children", format!("unknown: {error}")),
            None => {}
        }
        match &info.group_files {
            Some(Ok(files)) => {
                if !files.names.is_empty() {
                    self.add("decoded files", files.names.join(" "));
                }
                self.add_refused(&files.refused);
                self.add_left_out(&files.left_out);
            }
            Some(Err(error)) => self.add("decoded files", format!("unknown: {error}")),
            None => {}
        }
    }

    /// Adds lines about data that decoded files omit, with the formats that omit it.
    fn add_left_out(&mut self, left_out: &LeftOut) {
        for (place, left) in left_out.0.iter().enumerate() {
            let title = if place == 0 { "left out" } else { "" };
            self.add(
                title,
                format!("{} ({})", left.sentence, left.files.join(", ")),
            );
        }
    }

    fn add_refused(&mut self, refused: &[RefusedFile]) {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (format, why) in refused {
            match reasons.iter_mut().find(|(known, _)| known == why) {
                Some((_, formats)) => formats.push(format),
                None => reasons.push((why, vec![format])),
            }
        }
        for (place, (why, formats)) in reasons.into_iter().enumerate() {
            let title = if place == 0 { "unavailable" } else { "" };
            self.add(title, format!("{}: {why}", formats.join(", ")));
        }
    }

    fn add_array(&mut self, array: &ArrayInfo, stored: Option<&Result<ChunkTotals>>, path: &str) {
        self.add("data type", data_type(array));
        self.add("shape", format::shape(&array.shape));
        if !array.dimension_names.is_empty() {
            let names = array.dimension_names.iter();
            let names: Vec<&str> = names.map(|name| name.as_deref().unwrap_or("-")).collect();
            self.add("dimensions", names.join(", "));
        }
        let (chunk, rest) = match array.inner_chunk_shapes.split_last() {
            None => (&array.chunk_shape, None),
            Some((inner, outer)) => (inner, Some(outer)),
        };
        self.add("chunks", format::shape(chunk));
        if let Some(outer) = rest {
            let shards = std::iter::once(&array.chunk_shape).chain(outer);
            let shards: Vec<String> = shards.map(|lengths| format::shape(lengths)).collect();
            self.add("shards", shards.join(" of "));
        }
        match &array.grid {
            Ok(counts) => self.add("grid", format::shape(counts)),
            Err(error) => self.add("grid", format!("unknown: {error}")),
        }
        for (place, codec) in array.codecs.iter().enumerate() {
            let name = if place == 0 { "codecs" } else { "" };
            let configuration = if codec.configuration.is_empty() {
                String::new()
            } else {
                format!(" {}", json!(codec.configuration))
            };
            self.add(name, format!("{}{configuration}", codec.name));
        }
        self.add("fill value", array.members["fill_value"].to_string());
        self.add_stored(array, stored);
        self.add_reads(array, path);
    }

    fn add_stored(&mut self, array: &ArrayInfo, stored: Option<&Result<ChunkTotals>>) {
        if let Some(bytes) = array.bytes {
            self.add("decoded", exact_bytes(bytes));
        }
        let stored = match stored {
            None => return,
            Some(Err(error)) => return self.add("stored", format!("unknown: {error}")),
            Some(Ok(stored)) => stored,
        };
        let decoded = array
            .element
            .map(|element| stored.elements.saturating_mul(element as u128));
        let ratio = decoded.filter(|_| stored.present > 0);
        let ratio = ratio.and_then(|decoded| format::ratio(decoded, stored.bytes));
        let ratio = ratio.map_or(String::new(), |ratio| format!(", ratio {ratio}"));
        self.add("stored", format!("{}{ratio}", exact_bytes(stored.bytes)));
        let missing = stored.total.saturating_sub(stored.present);
        let text = format!(
            "{} of {} stored, {missing} missing",
            stored.present, stored.total
        );
        self.add(
            if array.inner_chunk_shapes.is_empty() {
                "stored chunks"
            } else {
                "stored shards"
            },
            text,
        );
        for (name, chunk) in [("smallest", &stored.smallest), ("largest", &stored.largest)] {
            if let Some(chunk) = chunk {
                self.add(
                    name,
                    format!("{}, {}", exact_bytes(chunk.bytes), format::text(&chunk.key)),
                );
            }
        }
    }

    fn add_reads(&mut self, array: &ArrayInfo, path: &str) {
        let cost = |cost: ReadCost, most: &str| {
            let memory = cost.memory.map_or("unknown".to_string(), format::bytes);
            let requests = format::count(cost.requests, "request");
            format!("{memory} of memory, {most}{requests}")
        };
        if let Some(costs) = &array.costs {
            // Says "at most", because adjacent inner chunks of a shard are read in one request.
            let is_sharded = !array.inner_chunk_shapes.is_empty();
            let most = if is_sharded { "at most " } else { "" };
            self.add("reading a point", cost(costs.point, ""));
            self.add("reading all", cost(costs.sequential, most));
        }
        if let Some(error) = &array.undecodable {
            let error = error.within(path);
            let is_own = error.subject() == path;
            let why = if is_own {
                error.detail().to_string()
            } else {
                error.to_string()
            };
            self.add("cannot be decoded", why);
        }
        if !array.files.is_empty() {
            self.add("decoded files", array.files.join(" "));
        }
    }

    fn add_attributes(&mut self, info: &NodeInfo) {
        if let Some(fault) = info.attributes.fault() {
            self.add("attributes", format!("cannot be read: {fault}"));
            return;
        }
        for (place, (name, value)) in info.attributes.members().into_iter().enumerate() {
            let title = if place == 0 { "attributes" } else { "" };
            self.add(title, format!("{name}: {}", json_text::compact(value)));
        }
        for (place, (own, renamed)) in info.renamed_attributes.iter().enumerate() {
            let title = if place == 0 { "in netCDF" } else { "" };
            self.add(title, format!("{own} is {renamed}"));
        }
    }

    fn print(&self) {
        report::print(printable(&self.title));
        let width = self
            .lines
            .iter()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or(0);
        let wrap_width = wrap_width();
        for (name, value) in &self.lines {
            let pieces = match wrap_width {
                Some(all) => wrapped(value, all.saturating_sub(width + 4)),
                None => vec![value.clone()],
            };
            for (place, piece) in pieces.iter().enumerate() {
                let name = if place == 0 { name } else { "" };
                report::print(format_args!("  {name:width$}  {piece}"));
            }
        }
    }
}

/// Formats a number of bytes in a large unit and, if that is rounded, also exactly.
fn exact_bytes(bytes: u64) -> String {
    let short = format::bytes(bytes);
    if bytes < 1024 {
        return short;
    }
    format!("{short} ({bytes} bytes)")
}

/// Returns a data type in its Zarr v3 form: a name, or a JSON object if the type has parameters.
fn data_type(array: &ArrayInfo) -> String {
    match &array.members["data_type"] {
        Value::String(name) => name.clone(),
        Value::Null => array.data_type.clone(),
        other => other.to_string(),
    }
}
