//! Many rows in one statement: an order is booked against the stock of its articles.

use storage::{Database, Options, Table, TxnError};

/// Number of pieces in stock, by article.
const STOCK: Table<u64, i64> = Table::new("stock");

const ARTICLES: u64 = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("lockstep-batch-{}", std::process::id()));
    let db = Database::open(&directory, Options::new())?;
    let all: Vec<(u64, i64)> = (0..ARTICLES).map(|article| (article, 50)).collect();
    for part in all.chunks(1_000) {
        db.transact(|tx| tx.put_many(&STOCK, part))?;
    }

    // The rows of an order lie far apart, so each single read would wait for memory. One statement for all rows waits
    // for memory once.
    let order: Vec<u64> = (0..15).map(|line| line * 7_919 % ARTICLES).collect();
    // The table is looked up by name once, instead of in each statement.
    let stock = db.table(&STOCK)?;
    let left = db.transact(|tx| {
        let pieces = tx.get_many(&stock, &order)?;
        let booked: Vec<(u64, i64)> =
            order.iter().zip(pieces).filter_map(|(article, pieces)| Some((*article, pieces? - 1))).collect();
        tx.put_many(&stock, &booked)?;
        Ok::<_, TxnError>(booked.iter().map(|(_, pieces)| pieces).sum::<i64>())
    })?;
    println!("{} articles booked, {left} pieces left of them", order.len());
    assert_eq!(left, 15 * 49);
    db.close()?;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
