//! Shared by the tests of the command: validation of JSON objects against their schemas.

#![allow(unreachable_pub, reason = "each test file is a crate of its own")]

use serde_json::Value;

/// Parses the output of `--json` and validates it against its schema in `schema/`. An unknown keyword of a schema is an
/// error, so that no rule is skipped.
pub fn parse(text: &str) -> Value {
    let value: Value = serde_json::from_str(text).unwrap();
    let id = value["schema"].as_str().unwrap_or_else(|| panic!("it does not name its schema: {text}"));
    let name = id.strip_prefix("tpcc-").and_then(|id| id.split_once('/')).unwrap_or_else(|| panic!("{id}")).0;
    let path = format!("{}/schema/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(schema["$id"], id, "{path}");
    if let Err(why) = fits(&schema, &schema, &value, "") {
        panic!("{why}, by {path}: {text}");
    }
    value
}

/// Validates `value` against `schema`; `root` has the definitions.
fn fits(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let object = match schema {
        Value::Bool(true) => return Ok(()),
        schema => schema.as_object().unwrap_or_else(|| panic!("no schema: {schema}")),
    };
    for (keyword, wanted) in object {
        let wrong = || Err(format!("{at}: {value} is not of {keyword} {wanted}"));
        match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" | "unit" | "format" => {}
            "$ref" => {
                let pointer = wanted.as_str().unwrap().strip_prefix('#').unwrap();
                fits(root, root.pointer(pointer).unwrap(), value, at)?;
            }
            "type" => {
                let one = std::slice::from_ref(wanted);
                if !wanted.as_array().map_or(one, Vec::as_slice).iter().any(|name| is_a(name.as_str().unwrap(), value))
                {
                    return wrong();
                }
            }
            "minimum" => {
                if value.as_f64().is_some_and(|n| n < wanted.as_f64().unwrap()) {
                    return wrong();
                }
            }
            "enum" => {
                if !wanted.as_array().unwrap().contains(value) {
                    return wrong();
                }
            }
            "required" => {
                let has = |name: &&Value| value.get(name.as_str().unwrap()).is_none();
                if let Some(missing) = wanted.as_array().unwrap().iter().find(has).filter(|_| value.is_object()) {
                    return Err(format!("{at}: {missing} is missing"));
                }
            }
            "properties" => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    let known = wanted.get(name).or(object.get("additionalProperties"));
                    let Some(known) = known else { return Err(format!("{at}/{name}: the schema does not know it")) };
                    fits(root, known, member, &format!("{at}/{name}"))?;
                }
            }
            "additionalProperties" => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    if object.get("properties").is_none() {
                        fits(root, wanted, member, &format!("{at}/{name}"))?;
                    }
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    fits(root, wanted, item, &format!("{at}/{index}"))?;
                }
            }
            "anyOf" => {
                if !wanted.as_array().unwrap().iter().any(|one| fits(root, one, value, at).is_ok()) {
                    return wrong();
                }
            }
            "oneOf" => {
                if wanted.as_array().unwrap().iter().filter(|one| fits(root, one, value, at).is_ok()).count() != 1 {
                    return wrong();
                }
            }
            "const" => {
                if value != wanted {
                    return wrong();
                }
            }
            other => panic!("{at}: the keyword {other} is not known here"),
        }
    }
    Ok(())
}

fn is_a(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type: {other}"),
    }
}

#[test]
fn what_does_not_fit_is_told() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a"],
        "properties": {
            "a": {"type": "integer", "minimum": 0},
            "b": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "d": {"type": "string", "enum": ["x", "y"]},
            "e": {"oneOf": [{"type": "string", "const": "x"}, {"type": "string", "const": "y"}]},
        },
    });
    let told = |value: Value| fits(&schema, &schema, &value, "").err().unwrap_or_default();
    assert_eq!(told(serde_json::json!({"a": 1, "b": null})), "");
    for (value, why) in [
        (serde_json::json!({}), "\"a\" is missing"),
        (serde_json::json!({"a": -1}), "minimum"),
        (serde_json::json!({"a": "1"}), "type"),
        (serde_json::json!({"a": 1, "b": 2}), "anyOf"),
        (serde_json::json!({"a": 1, "e": "z"}), "oneOf"),
        (serde_json::json!({"a": 1, "c": 2}), "does not know"),
        (serde_json::json!({"a": 1, "d": "z"}), "enum"),
        (serde_json::json!([]), "type"),
    ] {
        assert!(told(value.clone()).contains(why), "{value}");
    }
}
