//! Converts PROJJSON, PROJ's JSON form of reference systems, to WKT 2.

use serde_json::Value;

/// Returns the WKT of a reference system. Returns `None` if the system is invalid, or of a kind that maps do not have.
pub(crate) fn wkt_of(system: &Value) -> Option<String> {
    system_text(system, 4)
}

/// Returns the identifier of a reference system, such as `EPSG:4326`.
pub(crate) fn code_of(system: &Value) -> Option<String> {
    let id = system.get("id")?;
    let authority = id.get("authority")?.as_str()?;
    let code = match id.get("code")? {
        Value::String(code) => code.clone(),
        Value::Number(code) => code.to_string(),
        _ => return None,
    };
    Some(format!("{authority}:{code}"))
}

/// Returns the WKT of a reference system, or `None` if systems are nested deeper than `depth`.
fn system_text(system: &Value, depth: usize) -> Option<String> {
    let depth = depth.checked_sub(1)?;
    match kind_of(system)? {
        "GeographicCRS" => Some(format!(
            "GEOGCRS[{},{}{}]",
            name(system),
            datum(system)?,
            axes(system)?
        )),
        "ProjectedCRS" => Some(format!(
            "PROJCRS[{},{},{}{}]",
            name(system),
            base(system.get("base_crs")?, "BASEGEOGCRS")?,
            conversion(system.get("conversion")?, "CONVERSION")?,
            axes(system)?
        )),
        "DerivedGeographicCRS" => Some(format!(
            "GEOGCRS[{},{},{}{}]",
            name(system),
            base(system.get("base_crs")?, "BASEGEOGCRS")?,
            conversion(system.get("conversion")?, "DERIVINGCONVERSION")?,
            axes(system)?
        )),
        // The first component of a compound system is the horizontal system; a map uses only that.
        "CompoundCRS" => system_text(system.get("components")?.get(0)?, depth),
        "BoundCRS" => system_text(system.get("source_crs")?, depth),
        _ => None,
    }
}

fn kind_of(value: &Value) -> Option<&str> {
    value.get("type")?.as_str()
}

/// Returns the name of a PROJJSON object in quotes, as WKT has it.
fn name(value: &Value) -> String {
    let name = value.get("name").and_then(Value::as_str);
    format!("\"{}\"", name.unwrap_or("unknown").replace('"', "\"\""))
}

/// Returns the WKT of the geographic system from which another system is derived or projected.
fn base(system: &Value, keyword: &str) -> Option<String> {
    Some(format!("{keyword}[{},{}]", name(system), datum(system)?))
}

/// Returns the WKT of a system's datum with its ellipsoid and its prime meridian.
fn datum(system: &Value) -> Option<String> {
    let datum = system
        .get("datum")
        .or_else(|| system.get("datum_ensemble"))?;
    let ellipsoid = ellipsoid(datum.get("ellipsoid")?)?;
    let meridian = match datum.get("prime_meridian") {
        Some(meridian) => {
            let longitude = meridian.get("longitude")?;
            let (longitude, unit) = measured(longitude, &Value::from("degree"))?;
            format!(",PRIMEM[{},{longitude},{unit}]", name(meridian))
        }
        None => String::new(),
    };
    // A datum ensemble is written as a plain datum, whose name does not end with " ensemble".
    let named = name(datum).replace(" ensemble\"", "\"");
    Some(format!("DATUM[{named},{ellipsoid}]{meridian}"))
}

fn ellipsoid(ellipsoid: &Value) -> Option<String> {
    let metre = Value::from("metre");
    let length = |member: &str| measured(ellipsoid.get(member)?, &metre);
    let radius = length("radius");
    let (major, unit) = length("semi_major_axis").or_else(|| radius.clone())?;
    let flattening = match (
        ellipsoid.get("inverse_flattening"),
        length("semi_minor_axis"),
    ) {
        (Some(flattening), _) => flattening.as_f64()?,
        (None, Some((minor, _))) if minor < major => major / (major - minor),
        (None, Some(_)) => 0.0,
        (None, None) => radius.map(|_| 0.0)?,
    };
    Some(format!(
        "ELLIPSOID[{},{major},{flattening},{unit}]",
        name(ellipsoid)
    ))
}

/// Returns a number and the WKT of its unit. `missing` is the unit of a number that states none.
fn measured(value: &Value, missing: &Value) -> Option<(f64, String)> {
    match value.as_f64() {
        Some(number) => Some((number, unit_text(missing)?)),
        None => Some((
            value.get("value")?.as_f64()?,
            unit_text(value.get("unit")?)?,
        )),
    }
}

/// Returns the WKT of a unit, which PROJJSON has as a known name or as an object.
fn unit_text(unit: &Value) -> Option<String> {
    if let Some(known) = unit.as_str() {
        return Some(
            match known {
                "metre" => "LENGTHUNIT[\"metre\",1]",
                "degree" => "ANGLEUNIT[\"degree\",0.0174532925199433]",
                "unity" => "SCALEUNIT[\"unity\",1]",
                _ => return None,
            }
            .to_string(),
        );
    }
    let keyword = match kind_of(unit)? {
        "LinearUnit" => "LENGTHUNIT",
        "AngularUnit" => "ANGLEUNIT",
        "ScaleUnit" => "SCALEUNIT",
        _ => return None,
    };
    let factor = unit.get("conversion_factor")?.as_f64()?;
    Some(format!("{keyword}[{},{factor}]", name(unit)))
}

/// Returns a comma and the WKT of an object's identifier, or an empty text if the object has none.
fn identifier(value: &Value) -> String {
    let Some((authority, code)) = code_of(value).and_then(|code| {
        let (authority, code) = code.split_once(':')?;
        Some((authority.replace('"', ""), code.replace('"', "")))
    }) else {
        return String::new();
    };
    match code.parse::<u32>() {
        Ok(code) => format!(",ID[\"{authority}\",{code}]"),
        Err(_) => format!(",ID[\"{authority}\",\"{code}\"]"),
    }
}

fn conversion(conversion: &Value, keyword: &str) -> Option<String> {
    let method = conversion.get("method")?;
    let mut text = format!(
        "{keyword}[{},METHOD[{}{}]",
        name(conversion),
        name(method),
        identifier(method)
    );
    let parameters = conversion.get("parameters").and_then(Value::as_array);
    for parameter in parameters.into_iter().flatten() {
        let value = parameter.get("value")?.as_f64()?;
        let unit = unit_text(parameter.get("unit")?)?;
        text += &format!(
            ",PARAMETER[{},{value},{unit}{}]",
            name(parameter),
            identifier(parameter)
        );
    }
    Some(text + "]")
}

/// Returns a comma and the WKT of a reference system's axes.
fn axes(system: &Value) -> Option<String> {
    let axes = system.get("coordinate_system")?;
    let kind = match axes.get("subtype")?.as_str()? {
        "Cartesian" => "Cartesian",
        "ellipsoidal" => "ellipsoidal",
        _ => return None,
    };
    let list = axes.get("axis")?.as_array()?;
    let mut text = format!(",CS[{kind},{}]", list.len());
    for (axis, number) in list.iter().zip(1..) {
        let direction = axis.get("direction")?.as_str()?;
        if !direction.bytes().all(|letter| letter.is_ascii_alphabetic()) {
            return None;
        }
        let unit = unit_text(axis.get("unit")?)?;
        text += &format!(",AXIS[{},{direction},ORDER[{number}],{unit}]", name(axis));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn incomplete_projjson_gives_no_wkt() {
        for system in [
            json!(null),
            json!({"type": "VerticalCRS", "name": "h"}),
            json!({"type": "GeographicCRS", "name": "a"}),
            json!({"type": "CompoundCRS", "components": []}),
            json!({"type": "GeographicCRS", "datum": {"ellipsoid": {"semi_major_axis": 1}}}),
        ] {
            assert_eq!(wkt_of(&system), None, "{system}");
        }
        let mut nested = json!({"type": "GeographicCRS"});
        for _ in 0..100 {
            nested = json!({"type": "BoundCRS", "source_crs": nested});
        }
        assert_eq!(wkt_of(&nested), None);
    }

    #[test]
    fn projjson_becomes_wkt_with_its_units() {
        let system = json!({
            "type": "GeographicCRS", "name": "on a \"ball\"",
            "datum": {"name": "d", "ellipsoid": {"name": "ball", "radius": 6371000},
                      "prime_meridian": {"name": "Paris", "longitude": {"value": 2.5969213, "unit": {
                          "type": "AngularUnit", "name": "grad", "conversion_factor": 0.015}}}},
            "coordinate_system": {"subtype": "ellipsoidal", "axis": [
                {"name": "Lat", "direction": "north", "unit": "degree"}]},
            "id": {"authority": "EPSG", "code": 7}});
        let degree = "ANGLEUNIT[\"degree\",0.0174532925199433]";
        let expected = format!(
            "GEOGCRS[\"on a \"\"ball\"\"\",DATUM[\"d\",ELLIPSOID[\"ball\",6371000,0,LENGTHUNIT[\"metre\",1]]],\
             PRIMEM[\"Paris\",2.5969213,ANGLEUNIT[\"grad\",0.015]],CS[ellipsoidal,1],\
             AXIS[\"Lat\",north,ORDER[1],{degree}]]"
        );
        assert_eq!(wkt_of(&system), Some(expected));
        assert_eq!(code_of(&system).as_deref(), Some("EPSG:7"));
    }
}
