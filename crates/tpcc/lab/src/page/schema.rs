//! Descriptions and units of the keys of a run's JSON, from its schema.
//!
//! The schema is the published file. A test compares the file with the types, so that the program does not need code to
//! generate the schema.

use serde_json::Value;

/// Schema of a JSON object.
pub(super) struct Schema(Value);

impl Schema {
    /// Returns the schema of a run. If the file could not be parsed, keys would have no descriptions; a test parses it.
    pub(super) fn of_run() -> Schema {
        Schema(serde_json::from_str(include_str!("../../../schema/run.schema.json")).unwrap_or_default())
    }

    /// Returns the description and the unit of the key at the end of a path, if the schema has such a key.
    pub(super) fn about(&self, path: &[&str]) -> (Option<String>, Option<String>) {
        let mut at = &self.0;
        for key in path {
            let Some(next) = self.property(at, key) else { return (None, None) };
            at = next;
        }
        let text = |key: &str| at[key].as_str().map(str::to_owned);
        (text("description"), text("unit"))
    }

    fn property<'a>(&'a self, of: &'a Value, key: &str) -> Option<&'a Value> {
        let of = self.resolved(of);
        let named = of.pointer("/properties").and_then(|all| all.get(key));
        let nullable = of["anyOf"].as_array().into_iter().flatten();
        named
            .or_else(|| {
                Some(&of["items"]).filter(|items| items.is_object()).and_then(|items| self.property(items, key))
            })
            .or_else(|| nullable.filter(|one| one["type"] != "null").find_map(|one| self.property(one, key)))
            .or_else(|| Some(&of["additionalProperties"]).filter(|any| any.is_object()))
    }

    fn resolved<'a>(&'a self, of: &'a Value) -> &'a Value {
        match of["$ref"].as_str().and_then(|name| name.strip_prefix('#')) {
            Some(pointer) => self.0.pointer(pointer).unwrap_or(of),
            None => of,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_behind_references_and_nulls() {
        let schema = Schema::of_run();
        let (sentence, unit) = schema.about(&["log", "flushes"]);
        assert_eq!((sentence.as_deref(), unit.as_deref()), (Some("Times the log was made durable."), Some("flushes")));
        assert!(schema.about(&["steps", "operations", "mean_in"]).0.is_some(), "within a list");
        assert!(schema.about(&["large_pages", "regions", "frames", "given_bytes"]).0.is_some(), "within a map");
        assert_eq!(schema.about(&["log", "no_such"]), (None, None));
    }
}
