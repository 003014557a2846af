//! Reads and writes chunk grids of v3: `regular` and the extension `rectilinear`.
//!
//! A run of equal chunks is never expanded, however many chunks it has. A rectilinear grid that states a single length
//! for each dimension becomes a regular grid, so that it is written as `regular` and programs without the extension can
//! read it.

use serde_json::{Map, Value, json};

use crate::dialect::document::{check_shapes, chunk_lengths};
use crate::error::{Error, Result};
use crate::grid::Axis;
use crate::model::{EdgeRun, Edges};

/// Maximum number of runs (consecutive chunks of equal length) in a grid, all dimensions together.
const MAX_RUNS: usize = 1 << 20;

pub(super) struct ChunkGrid {
    /// Chunk shape; in a rectilinear grid, the longest chunk length along each dimension.
    pub(super) shape: Vec<u64>,
    pub(super) edges: Vec<Edges>,
}

/// Reads the chunk grid of an array of `shape`; fails with `Unsupported` for an unknown name or kind, with `Corrupt`
/// for an invalid grid.
pub(super) fn parse(
    name: &str,
    configuration: Option<&Map<String, Value>>,
    shape: &[u64],
) -> Result<ChunkGrid> {
    match (name, configuration) {
        ("regular", Some(members)) => {
            let chunk = chunk_lengths(members, "chunk_shape", shape)?;
            check_shapes(shape, &chunk)?;
            Ok(ChunkGrid {
                shape: chunk,
                edges: Vec::new(),
            })
        }
        ("rectilinear", Some(members)) => rectilinear(members, shape),
        ("regular" | "rectilinear", None) => Err(Error::corrupt(
            "chunk_grid",
            format!("{name} needs a configuration"),
        )),
        _ => Err(Error::unsupported(
            "chunk_grid",
            format!("unsupported grid {name} (supported: regular, rectilinear)"),
        )),
    }
}

/// Reads the configuration of a rectilinear grid (chunk grid "rectilinear", "Configuration").
fn rectilinear(members: &Map<String, Value>, shape: &[u64]) -> Result<ChunkGrid> {
    match members.get("kind") {
        Some(Value::String(kind)) if kind == "inline" => {}
        found => {
            let found = found.unwrap_or(&Value::Null);
            let why = format!("unsupported kind {found} (supported: inline)");
            return Err(Error::unsupported("chunk_grid", why));
        }
    }
    let wrong = || {
        Error::corrupt(
            "chunk_shapes",
            "expected a list with one entry per dimension",
        )
    };
    let list = members.get("chunk_shapes").and_then(Value::as_array);
    let mut left = MAX_RUNS;
    let edges = list.ok_or_else(wrong)?.iter();
    let edges: Vec<Edges> = edges
        .map(|value| edges_of(value, &mut left))
        .collect::<Result<_>>()?;
    let placeholder = vec![1; edges.len()];
    check_shapes(shape, &placeholder)?;
    let axes = shape.iter().zip(&edges);
    let longest = axes.map(|(&length, edges)| Ok(Axis::new(length, edges)?.longest()));
    Ok(ChunkGrid {
        shape: longest.collect::<Result<_>>()?,
        edges: if edges.iter().all(|edges| matches!(edges, Edges::Every(_))) {
            Vec::new()
        } else {
            edges
        },
    })
}

/// Reads the chunk lengths of one dimension. `left` is the number of runs (chunks of equal length) still accepted.
fn edges_of(value: &Value, left: &mut usize) -> Result<Edges> {
    let Value::Array(list) = value else {
        return Ok(Edges::Every(positive(value)?));
    };
    let mut runs: Vec<EdgeRun> = Vec::new();
    for entry in list {
        let run = run_of(entry)?;
        match runs.last_mut().filter(|last| last.length == run.length) {
            Some(last) => last.count = last.count.saturating_add(run.count),
            None => {
                *left = left.checked_sub(1).ok_or_else(|| {
                    let found = format!("more than {MAX_RUNS} runs of chunk lengths");
                    Error::too_large("chunk_shapes", found)
                })?;
                runs.push(run);
            }
        }
    }
    Ok(Edges::Runs(runs))
}

/// Reads a chunk length, or a pair of a length and a count ("Run-length encoding").
fn run_of(entry: &Value) -> Result<EdgeRun> {
    match entry.as_array().map(Vec::as_slice) {
        None => Ok(EdgeRun {
            length: positive(entry)?,
            count: 1,
        }),
        Some([length, count]) => Ok(EdgeRun {
            length: positive(length)?,
            count: positive(count)?,
        }),
        Some(_) => Err(Error::corrupt(
            "chunk_shapes",
            format!("expected a pair of a length and a count, found {entry}"),
        )),
    }
}

fn positive(value: &Value) -> Result<u64> {
    value.as_u64().filter(|&number| number > 0).ok_or_else(|| {
        let found = format!("expected an integer above 0, found {value}");
        Error::corrupt("chunk_shapes", found)
    })
}

pub(super) fn render(shape: &[u64], edges: &[Edges]) -> Value {
    if edges.is_empty() {
        return json!({ "name": "regular", "configuration": { "chunk_shape": shape } });
    }
    let shapes: Vec<Value> = edges.iter().map(render_edges).collect();
    json!({ "name": "rectilinear", "configuration": { "kind": "inline", "chunk_shapes": shapes } })
}

fn render_edges(edges: &Edges) -> Value {
    match edges {
        Edges::Every(length) => json!(length),
        Edges::Runs(runs) => runs
            .iter()
            .map(|run| match run.count {
                1 => json!(run.length),
                count => json!([run.length, count]),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn read(shape: &[u64], shapes: Value) -> Result<ChunkGrid> {
        let members = json!({ "kind": "inline", "chunk_shapes": shapes });
        parse("rectilinear", members.as_object(), shape)
    }

    #[test]
    fn the_example_of_the_specification_is_read() {
        let shapes = json!([4, [1, 2, 3], [[4, 2]], [[1, 3], 3], [4, 4, 4]]);
        let grid = read(&[6; 5], shapes).unwrap();
        assert_eq!(grid.shape, [4, 3, 4, 3, 4]);
        assert_eq!(
            render(&grid.shape, &grid.edges)["configuration"]["chunk_shapes"],
            json!([4, [1, 2, 3], [[4, 2]], [[1, 3], 3], [[4, 3]]])
        );
    }

    #[test]
    fn equal_chunks_make_a_regular_grid() {
        let grid = read(&[6, 9], json!([4, 2])).unwrap();
        let rendered = render(&grid.shape, &grid.edges);
        assert_eq!(
            rendered,
            json!({ "name": "regular", "configuration": { "chunk_shape": [4, 2] } })
        );
        assert!(read(&[], json!([])).unwrap().edges.is_empty());
    }

    #[test]
    fn invalid_chunk_shapes_are_refused_naming_the_member() {
        for (shapes, kind) in [
            (json!([[5, 0]]), Kind::Corrupt),
            (json!([[[5, 0]]]), Kind::Corrupt),
            (json!([[[0, 5], 6]]), Kind::Corrupt),
            (json!([[5, -1]]), Kind::Corrupt),
            (json!([[5, 1.5]]), Kind::Corrupt),
            (json!([[[2, 3, 4]]]), Kind::Corrupt),
            (json!([[[[2, 3], 4]]]), Kind::Corrupt),
            (json!([[3, 2]]), Kind::Corrupt),
            (json!([[]]), Kind::Corrupt),
            (json!(["6"]), Kind::Corrupt),
            (json!(6), Kind::Corrupt),
            (json!([6, 6]), Kind::Corrupt),
            (json!(vec![6; 65]), Kind::Corrupt),
        ] {
            let error = read(&[6], shapes.clone()).err().unwrap();
            assert_eq!(error.kind(), kind, "{shapes}");
            let named = ["chunk_shapes", "shape"].iter();
            assert!(
                named.clone().any(|name| error.to_string().contains(name)),
                "{error}"
            );
        }
        let members = json!({ "kind": "referenced", "chunk_shapes": [6] });
        let error = parse("rectilinear", members.as_object(), &[6])
            .err()
            .unwrap();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.to_string().contains("(supported: inline)"), "{error}");
    }

    #[test]
    fn too_many_runs_are_refused_and_equal_lengths_are_one_run() {
        let zigzag: Vec<u64> = (0..=MAX_RUNS as u64).map(|n| 1 + n % 2).collect();
        let error = read(&[1], json!([zigzag])).err().unwrap();
        assert_eq!(error.kind(), Kind::TooLarge);
        let alike = vec![1; MAX_RUNS + 1];
        let grid = read(&[1], json!([alike])).unwrap();
        let count = MAX_RUNS as u64 + 1;
        assert_eq!(
            grid.edges,
            [Edges::Runs(vec![EdgeRun { length: 1, count }])]
        );
    }
}
