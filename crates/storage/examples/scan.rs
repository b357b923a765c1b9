//! Scans of a table and of a secondary index, from both ends.

use storage::{Database, Options, SecondaryIndex, Table, TxnError};

/// Car owners, by car number.
const CARS: Table<u32, String> = Table::new("cars").with_index::<ByOwner>();

/// Secondary index on the owner. The engine maintains it in the same transactions as the table.
struct ByOwner;

impl SecondaryIndex for ByOwner {
    type Key = u32;
    type Row = String;
    type By = String;
    const NAME: &'static str = "by_owner";

    fn by(_number: &u32, owner: &String) -> Option<String> {
        Some(owner.clone())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("lockstep-scan-{}", std::process::id()));
    let db = Database::open(&directory, Options::new())?;
    db.transact(|tx| {
        for (number, owner) in [(17, "ada"), (4, "grace"), (42, "ada"), (23, "edsger")] {
            tx.insert(&CARS, &number, &owner.to_owned())?;
        }
        Ok::<_, TxnError>(())
    })?;

    let tx = db.begin()?;
    let below_forty: Vec<(u32, String)> = tx.range(&CARS, ..40)?.collect::<Result<_, _>>()?;
    println!("below 40: {below_forty:?}");
    let last = tx.range(&CARS, ..)?.next_back().transpose()?;
    println!("last: {last:?}");

    let ada = "ada".to_owned();
    let of_ada: Vec<(u32, String)> = tx.range_by::<ByOwner>(&CARS, ada.clone()..=ada)?.collect::<Result<_, _>>()?;
    println!("of ada: {of_ada:?}");
    assert_eq!(of_ada.len(), 2);
    // Rows and gaps that this transaction has read do not change until it ends.
    tx.commit()?;
    db.close()?;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
