//! Turns in a warehouse: transactions that a server would refuse beside each other wait for each other.
//!
//! A server whose transactions read a snapshot lets the second writer of a row wait for the first, and then refuses it: its
//! snapshot is older than the row. And it refuses one of three that could have no serial order, by what they read, page by
//! page. All that was done is done again. So a transaction waits for its turn before it has a snapshot, at locks of its
//! session; they go out in the message that begins it, and are given back in the one that ends it. The server gives them back
//! as well when it sees the connection end; of a client whose machine is gone it learns within half a minute, by keepalives,
//! which a terminal's connection asks for (`connect.rs`).
//!
//! New-Orders of different districts run beside each other and beside a Payment. Payments of a warehouse write one row, and
//! take turns. Delivery, Order-Status and Stock-Level read what New-Orders and Payments write, and run alone.
//!
//! Turns protect nothing: a transaction that takes none, or comes from another warehouse, is refused or refuses as before.

use tokio_postgres::{Client, Error, Statement};

use super::int;

/// First halves of the locks' numbers: no other program should use these.
pub(in super::super) const OF_WAREHOUSES: i32 = 0x7470_6300;
const OF_WAREHOUSE_ROWS: i32 = 0x7470_6301;
const OF_DISTRICT_ROWS: i32 = 0x7470_6302;

/// Gives back every turn of a session.
pub(super) const GIVE_BACK: &str = "SELECT pg_advisory_unlock_all()";

/// More than a warehouse has districts.
const PER_WAREHOUSE: i32 = 100;

/// What a transaction waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// A New-Order of this warehouse and district.
    NewOrder(u32, u8),
    /// A Payment at this warehouse and district.
    Payment(u32, u8),
    /// That nothing else runs in this warehouse.
    Alone(u32),
}

/// The statements for it, on one connection.
pub(super) struct TurnStatements {
    new_order: Statement,
    payment: Statement,
    alone: Statement,
    give_back: Statement,
}

impl TurnStatements {
    pub(super) async fn prepare(client: &Client) -> Result<TurnStatements, Error> {
        // Warehouse before its row, and that before a district's row: so no two wait for each other.
        let together = format!("pg_advisory_lock_shared({OF_WAREHOUSES}, $1)");
        let warehouse = format!("pg_advisory_lock({OF_WAREHOUSE_ROWS}, $1)");
        let district = format!("pg_advisory_lock({OF_DISTRICT_ROWS}, $2)");
        Ok(TurnStatements {
            new_order: client.prepare(&format!("SELECT {together}, {district}")).await?,
            payment: client.prepare(&format!("SELECT {together}, {warehouse}, {district}")).await?,
            alone: client.prepare(&format!("SELECT pg_advisory_lock({OF_WAREHOUSES}, $1)")).await?,
            give_back: client.prepare(GIVE_BACK).await?,
        })
    }

    /// Waits for the turn.
    pub(super) async fn take(&self, client: &Client, turn: Turn) -> Result<(), Error> {
        let row = |w: u32, d: u8| int(w) * PER_WAREHOUSE + i32::from(d);
        match turn {
            Turn::NewOrder(w, d) => client.execute(&self.new_order, &[&int(w), &row(w, d)]).await,
            Turn::Payment(w, d) => client.execute(&self.payment, &[&int(w), &row(w, d)]).await,
            Turn::Alone(w) => client.execute(&self.alone, &[&int(w)]).await,
        }
        .map(|_| ())
    }

    /// Gives back what was taken.
    pub(super) async fn give_back(&self, client: &Client) -> Result<(), Error> {
        client.execute(&self.give_back, &[]).await.map(|_| ())
    }
}
