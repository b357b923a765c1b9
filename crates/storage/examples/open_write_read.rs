//! Opens a database, writes in a transaction, and reads the rows after reopening.

use storage::{Database, Options, Table, TxnError};

/// Account balances in cents, by account number.
const ACCOUNTS: Table<u64, i64> = Table::new("accounts");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("lockstep-open-{}", std::process::id()));

    // The defaults: durable commits (`sync`), serializable, created if it does not exist.
    let db = Database::open(&directory, Options::new())?;
    db.transact(|tx| {
        tx.put(&ACCOUNTS, &1, &10_000)?;
        tx.put(&ACCOUNTS, &2, &2_500)
    })?;

    // Moves money. A deadlock victim runs again; any other error rolls back.
    let left = db.transact(|tx| {
        let from = tx.get_for_update(&ACCOUNTS, &1)?.unwrap_or(0) - 500;
        let to = tx.get_for_update(&ACCOUNTS, &2)?.unwrap_or(0) + 500;
        tx.put(&ACCOUNTS, &1, &from)?;
        tx.put(&ACCOUNTS, &2, &to)?;
        Ok::<_, TxnError>(from)
    })?;
    println!("account 1 has {left} cents left");

    // Dropping a transaction rolls it back.
    let mut tx = db.begin()?;
    tx.put(&ACCOUNTS, &1, &0)?;
    drop(tx);
    db.close()?;

    let db = Database::open(&directory, Options::new().create(false))?;
    let tx = db.begin()?;
    println!("after reopening: {:?} and {:?}", tx.get(&ACCOUNTS, &1)?, tx.get(&ACCOUNTS, &2)?);
    assert_eq!((tx.get(&ACCOUNTS, &1)?, tx.get(&ACCOUNTS, &2)?), (Some(9_500), Some(3_000)));
    tx.commit()?;
    db.close()?;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
