//! Published schemas of reports, for tests.

use super::model::schema_of;

/// Compares a schema with the published file. `UPDATE_SCHEMA=1 cargo test -p tpcc-core -p tpcc-lab schema` rewrites the
/// files.
///
/// # Panics
/// If the schemas differ.
pub fn assert_published(name: &str, mut schema: schemars::Schema) {
    schema.insert("$id".to_owned(), schema_of(name).into());
    let path = format!("{}/../schema/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
    let text = serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &text).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(published == text, "{path} is not what the program writes; set UPDATE_SCHEMA=1 and test again");
}
