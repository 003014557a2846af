//! Converts coordinate transformations of OME-Zarr (RFC-5) to affine maps.

use serde_json::Value;

use crate::formats::ome_zarr::affine::AffineMap;
use crate::formats::subject::StoredNumbers;
use zarr_format::model::MAX_RANK;

/// Maximum number of transformations of a resolution level, including nested ones. Real images have a few; each
/// transformation costs a matrix product.
pub(crate) const MAX_STEPS: usize = 256;

/// The types of transformations that have numbers, either in the JSON member with the name of the type or in an array.
pub(crate) const NUMBERED: [&str; 4] = ["scale", "translation", "affine", "rotation"];

/// Returns the items of a list in a JSON object, or no items if the member is missing or no list.
pub(crate) fn items<'a>(object: &'a Value, member: &str) -> impl Iterator<Item = &'a Value> {
    let list = object.get(member).and_then(Value::as_array);
    list.into_iter().flatten()
}

/// Parses the transformations of a level, at most `MAX_STEPS` of them.
pub(crate) struct TransformationReader<'a> {
    steps: usize,
    stored: &'a [StoredNumbers],
}

/// The affine map of a transformation, or the reason why it cannot be applied: the end of a message that begins with
/// "the transformation".
pub(crate) type Read = Result<AffineMap, String>;

impl TransformationReader<'_> {
    /// Starts to parse transformations whose numbers may be stored in arrays; `stored` has the numbers that were read.
    pub(crate) fn new(stored: &[StoredNumbers]) -> TransformationReader<'_> {
        TransformationReader { steps: 0, stored }
    }

    /// Parses transformations that are applied one after the other, and returns their common map.
    pub(crate) fn sequence<'a>(
        &mut self,
        steps: impl Iterator<Item = &'a Value>,
        rank: usize,
    ) -> Read {
        let mut map = AffineMap::identity(rank);
        for step in steps {
            let next = self.map_of(step, map.outputs())?;
            map = map.then(&next).ok_or_else(|| unfitting(rank))?;
        }
        Ok(map)
    }

    /// Parses a transformation whose input has `rank` coordinates.
    pub(crate) fn map_of(&mut self, step: &Value, rank: usize) -> Read {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(format!("has more than {MAX_STEPS} steps"));
        }
        // Before OME-Zarr 0.4, the type of a transformation could be missing.
        let of_type = step.get("type").and_then(Value::as_str);
        let is_known = |name: &&str| step.get(*name).is_some();
        let member = ["scale", "translation"].into_iter().find(is_known);
        let of_type = of_type.or(member).unwrap_or_default();
        let path = step.get("path").and_then(Value::as_str);
        let stored = self.stored.iter();
        let mut stored = stored.filter(|stored| Some(stored.path.as_str()) == path);
        let own = step.get(of_type);
        let own = own.or_else(|| stored.next().map(|stored| &stored.list));
        if NUMBERED.contains(&of_type) && own.is_none() {
            return Err(format!(
                "of type {of_type:?} has numbers in an array that cannot be read"
            ));
        }
        let found = match of_type {
            "identity" => Some(AffineMap::identity(rank)),
            "scale" => {
                numbers(own, |number| number != 0.0).map(|factors| AffineMap::scale(&factors))
            }
            "translation" => numbers(own, |_| true).map(|offset| AffineMap::translation(&offset)),
            "mapAxis" => permutation(step.get("mapAxis"), rank),
            "projectAxis" => projection(step, rank),
            "affine" => matrix(own, rank, true),
            "rotation" => matrix(own, rank, false),
            "sequence" => return self.sequence(items(step, "transformations"), rank),
            "bijection" => return self.map_of(step.get("forward").unwrap_or(&Value::Null), rank),
            "byDimension" => self.by_dimension(step, rank)?,
            other => return Err(format!("has the unsupported type {other:?}")),
        };
        let found = found.filter(|map| map.inputs() == rank && map.outputs() <= MAX_RANK);
        found.ok_or_else(|| unfitting(rank))
    }

    /// Parses a `byDimension` transformation: a list of transformations, each from some of the inputs to some of the
    /// outputs.
    fn by_dimension(&mut self, step: &Value, rank: usize) -> Result<Option<AffineMap>, String> {
        let mut rows: Vec<Option<(Vec<f64>, f64)>> = Vec::new();
        for part in items(step, "transformations") {
            // Drafts had other names for the lists of input and output axes, and no member `transformation`: the object
            // itself was the transformation.
            let places = |names: [&str; 2]| {
                let mut found = names.into_iter().filter_map(|name| part.get(name));
                indices(found.next())
            };
            let inputs = places(["inputAxes", "input_axes"]);
            let outputs = places(["outputAxes", "output_axes"]);
            let (Some(inputs), Some(outputs)) = (inputs, outputs) else {
                return Ok(None);
            };
            let own = self.map_of(part.get("transformation").unwrap_or(part), inputs.len())?;
            if own.outputs() != outputs.len() || inputs.iter().any(|&input| input >= rank) {
                return Ok(None);
            }
            for (number, &output) in outputs.iter().enumerate() {
                if output >= MAX_RANK {
                    return Ok(None);
                }
                let mut row = vec![0.0; rank];
                for (place, &input) in inputs.iter().enumerate() {
                    row[input] = own.factor(number, place);
                }
                rows.resize(rows.len().max(output + 1), None);
                if rows[output].replace((row, own.offset(number))).is_some() {
                    return Ok(None);
                }
            }
        }
        let rows: Option<Vec<_>> = rows.into_iter().collect();
        Ok(rows.and_then(|rows| {
            let (rows, offset) = rows.into_iter().unzip();
            AffineMap::new(rows, offset, rank)
        }))
    }
}

fn unfitting(rank: usize) -> String {
    format!("does not fit {rank} dimensions")
}

/// Parses a list of numbers. An item that is not a finite number or that `can_be` rejects becomes NaN. Returns `None`
/// if the list is longer than a row of an affine map.
fn numbers(list: Option<&Value>, can_be: impl Fn(f64) -> bool) -> Option<Vec<f64>> {
    let list = list?.as_array()?;
    if list.len() > MAX_RANK + 1 {
        return None;
    }
    let number = |item: &Value| {
        let number = item.as_f64().unwrap_or(f64::NAN);
        if number.is_finite() && can_be(number) {
            number
        } else {
            f64::NAN
        }
    };
    Some(list.iter().map(number).collect())
}

/// Parses a list of unique indices of dimensions; `None` if an item is invalid.
fn indices(list: Option<&Value>) -> Option<Vec<usize>> {
    let list = list?.as_array()?;
    if list.len() > MAX_RANK {
        return None;
    }
    let mut found = Vec::new();
    for item in list {
        // Some writers store integers as floats such as 1.0, since JSON does not distinguish the two.
        let number = item.as_f64().filter(|number| number.fract() == 0.0)?;
        let index = (0..MAX_RANK).find(|&index| index as f64 == number)?;
        if found.contains(&index) {
            return None;
        }
        found.push(index);
    }
    Some(found)
}

/// Returns the affine map that reorders coordinates: output `i` is the input at index `i` of the list.
fn permutation(list: Option<&Value>, rank: usize) -> Option<AffineMap> {
    let inputs = indices(list)?;
    let is_all = inputs.len() == rank && inputs.iter().all(|&input| input < rank);
    is_all.then(|| picked(inputs.into_iter().map(Some), rank))?
}

/// Returns the affine map in which each output is the given input, or 0 for `None`.
fn picked(inputs: impl Iterator<Item = Option<usize>>, rank: usize) -> Option<AffineMap> {
    let row = |input: Option<usize>| {
        let factor = |place| f64::from(u8::from(Some(place) == input));
        (0..rank).map(factor).collect()
    };
    let rows: Vec<Vec<f64>> = inputs.map(row).collect();
    let offset = vec![0.0; rows.len()];
    AffineMap::new(rows, offset, rank)
}

fn projection(step: &Value, rank: usize) -> Option<AffineMap> {
    let list = |name: &str| match step.get(name) {
        Some(list) => indices(Some(list)),
        None => Some(Vec::new()),
    };
    let (dropped, created) = (list("droppedInputs")?, list("createdOutputs")?);
    if dropped.iter().any(|&input| input >= rank) {
        return None;
    }
    let mut kept = (0..rank).filter(|input| !dropped.contains(input));
    let outputs = rank - dropped.len() + created.len();
    if created.iter().any(|&output| output >= outputs) {
        return None;
    }
    let input = |output: usize| {
        if created.contains(&output) {
            None
        } else {
            kept.next()
        }
    };
    picked((0..outputs).map(input), rank)
}

/// Returns the affine map of a matrix; if `is_affine`, the last column of the matrix is the offset.
fn matrix(rows: Option<&Value>, rank: usize, is_affine: bool) -> Option<AffineMap> {
    let rows = rows?.as_array()?;
    if rows.len() > MAX_RANK {
        return None;
    }
    let row = |row: &Value| {
        let row = numbers(Some(row), |_| true)?;
        row.iter().all(|number| number.is_finite()).then_some(row)
    };
    let mut rows: Vec<Vec<f64>> = rows.iter().map(row).collect::<Option<_>>()?;
    let mut offset = vec![0.0; rows.len()];
    if is_affine {
        // Some programs also write the constant last row of an affine matrix: zeros and a 1.
        let is_last = |row: &Vec<f64>| {
            let (last, others) = row.split_last().unwrap_or((&0.0, &[]));
            *last == 1.0 && others.iter().all(|&number| number == 0.0)
        };
        if rows.len() > rank && rows.last().is_some_and(is_last) {
            rows.pop();
            offset.pop();
        }
        for (row, offset) in rows.iter_mut().zip(&mut offset) {
            *offset = row.pop()?;
        }
    }
    AffineMap::new(rows, offset, rank)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(step: &Value, rank: usize) -> Read {
        TransformationReader::new(&[]).map_of(step, rank)
    }

    #[test]
    fn unusable_transformations_are_refused() {
        let many = vec![1; 100_000];
        let steps = vec![json!({"type": "identity"}); MAX_STEPS + 1];
        let mut nested = json!({"type": "scale", "scale": [1, 2]});
        for _ in 0..100 {
            nested = json!({"type": "sequence", "transformations": [nested]});
        }
        assert_eq!(read(&nested, 2), Ok(AffineMap::scale(&[1.0, 2.0])));
        let refused = [
            json!(null),
            json!({"type": "sequence", "transformations": steps}),
            json!({"type": "scale", "scale": many}),
            json!({"type": "scale", "scale": [1]}),
            json!({"type": "scale", "path": "elsewhere"}),
            json!({"type": "translation", "translation": {}}),
            json!({"type": "mapAxis", "mapAxis": [0, 0]}),
            json!({"type": "mapAxis", "mapAxis": [0, 2]}),
            json!({"type": "mapAxis", "mapAxis": [-1, 1e300]}),
            json!({"type": "mapAxis", "mapAxis": many}),
            json!({"type": "projectAxis", "droppedInputs": [2]}),
            json!({"type": "projectAxis", "createdOutputs": [4]}),
            json!({"type": "affine", "affine": [[1, 0, 0], [0, 1]]}),
            json!({"type": "affine", "affine": [[1, 0, 0], [0, 1, "x"]]}),
            json!({"type": "affine", "affine": vec![many.clone(); 2]}),
            json!({"type": "rotation", "rotation": [[1, 0], [0, 1], [0, 0, 0]]}),
            json!({"type": "byDimension", "transformations": [
                {"transformation": {"type": "scale", "scale": [2]}, "inputAxes": [0], "outputAxes": [63]}]}),
            json!({"type": "byDimension", "transformations": [
                {"transformation": {"type": "scale", "scale": [2]}, "inputAxes": [2], "outputAxes": [0]}]}),
            json!({"type": "byDimension", "transformations": [{"inputAxes": [0]}]}),
            json!({"type": "bijection"}),
            json!({"type": "coordinates", "path": "field"}),
        ];
        for step in &refused {
            let found = read(step, 2);
            assert!(found.is_err(), "{step}: {found:?}");
        }
    }

    /// A matrix may have any number of rows, because the callers check the number of outputs.
    #[test]
    fn a_matrix_has_as_many_outputs_as_rows() {
        for (rows, outputs) in [
            (json!([]), 0),
            (json!([[1, 0, 0]]), 1),
            (json!([[1, 0, 0], [0, 1, 0], [1, 1, 0]]), 3),
        ] {
            let map = read(&json!({"type": "affine", "affine": rows}), 2).unwrap();
            assert_eq!((map.inputs(), map.outputs()), (2, outputs), "{rows}");
        }
    }

    #[test]
    fn an_invalid_scale_does_not_affect_the_other_axes() {
        let map = read(&json!({"type": "scale", "scale": [0, 2, null]}), 3).unwrap();
        assert_eq!(map.permutation(), Some(vec![0, 1, 2]));
        assert!(map.factor(0, 0).is_nan() && map.factor(2, 2).is_nan());
        let moved = read(&json!({"type": "translation", "translation": [1, 2, 3]}), 3).unwrap();
        let both = map.then(&moved).unwrap();
        assert_eq!((both.factor(1, 1), both.offset(0)), (2.0, 1.0));
        let steps = json!([{"type": "scale", "scale": [0, 2, 1]}, {"type": "translation", "translation": [1, 2, 3]}]);
        let whole = read(&json!({"type": "sequence", "transformations": steps}), 3).unwrap();
        assert_eq!(whole.permutation(), Some(vec![0, 1, 2]));
        assert!(whole.factor(0, 0).is_nan());
        assert_eq!((whole.factor(1, 1), whole.factor(2, 2)), (2.0, 1.0));
        assert_eq!([0, 1, 2].map(|axis| whole.offset(axis)), [1.0, 2.0, 3.0]);
    }
}
