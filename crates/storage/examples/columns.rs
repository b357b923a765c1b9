//! Statements on some columns of a row: the other columns are neither read nor logged.
//!
//! `cargo run -p lockstep-storage --example columns`

use std::error::Error;

use storage::{Database, Options, Table, columns, record};

record! {
    /// An article in a warehouse. Columns of fixed size come first: they have the same position in every row.
    pub struct Article: Row("article", 1) {
        /// Number of pieces on the shelf.
        pub pieces: u32,
        /// Number of ordered pieces.
        pub ordered: u32,
        /// Price of a piece in cents.
        pub cents: i64,
        /// Text for customers.
        pub description: String,
    }
}
columns! {
    /// The columns that a sale reads or changes.
    pub struct Shelf of Article {
        /// Number of pieces on the shelf.
        pub pieces: u32,
        /// Price of a piece in cents.
        pub cents: i64,
    }
}

const ARTICLES: Table<u64, Article> = Table::new("articles");

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("lockstep-example-columns-{}", std::process::id()));
    let db = Database::open(&directory, Options::new())?;
    db.transact(|tx| {
        let description = "A box of a hundred nails. ".repeat(20);
        tx.put(&ARTICLES, &1, &Article { pieces: 12, ordered: 50, cents: 399, description })
    })?;

    let before = db.stats().log_bytes;
    let cents = db.transact(|tx| {
        tx.update_columns(&ARTICLES, &1, |shelf: &mut Shelf| {
            shelf.pieces -= 2;
            2 * shelf.cents
        })
    })?;
    println!("sold for {cents:?} cents, with {} bytes of log", db.stats().log_bytes - before);

    let left: Option<Shelf> = db.begin()?.get_columns(&ARTICLES, &1)?;
    println!("left: {:?}", left.map(|shelf| shelf.pieces));
    db.close()?;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
