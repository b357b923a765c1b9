//! Turns in a warehouse: transactions that the server would refuse if they ran concurrently wait for each other.
//!
//! A server with snapshots lets the second writer of a row wait for the first, and then refuses the second writer, because
//! its snapshot is older than the row. The server also refuses one of three transactions that may have no serial order; it
//! detects their reads by page. All work of a refused transaction is repeated. Therefore a transaction waits for its turn
//! before it takes its snapshot. A turn is a set of advisory locks of the session. The locks are acquired in the message
//! that begins the transaction, and released in the message that ends the transaction. The server also releases the locks
//! when it detects the end of the connection. If the machine of a client fails, the keepalives of a terminal's connection
//! (`connect.rs`) detect the failure within half a minute.
//!
//! New-Orders of different districts run concurrently with each other and with a Payment of another district. Payments of a
//! warehouse update one row, and take turns. Delivery, Order-Status and Stock-Level read what New-Orders and Payments write,
//! and run alone.
//!
//! Correctness does not depend on turns: a transaction without a turn, or from another warehouse, conflicts as before.

use tokio_postgres::{Client, Error, Statement};

use super::int;

/// Upper halves of the numbers of advisory locks. No other program should use these numbers.
pub(in super::super) const OF_WAREHOUSES: i32 = 0x7470_6300;
const OF_WAREHOUSE_ROWS: i32 = 0x7470_6301;
const OF_DISTRICT_ROWS: i32 = 0x7470_6302;

/// SQL that releases all turns of a session.
pub(super) const GIVE_BACK: &str = "SELECT pg_advisory_unlock_all()";

/// Factor of the warehouse in the lock number of a district. It is greater than the number of districts of a warehouse.
const PER_WAREHOUSE: i32 = 100;

/// The turn that a transaction waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// Turn of a New-Order of this warehouse and district.
    NewOrder(u32, u8),
    /// Turn of a Payment at this warehouse and district.
    Payment(u32, u8),
    /// Turn of a transaction that runs alone in this warehouse.
    Alone(u32),
}

/// The prepared statements for turns.
pub(super) struct TurnStatements {
    new_order: Statement,
    payment: Statement,
    alone: Statement,
    give_back: Statement,
}

impl TurnStatements {
    pub(super) async fn prepare(client: &Client) -> Result<TurnStatements, Error> {
        // Locks are acquired in the order warehouse, warehouse row, district row; so there is no deadlock.
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

    /// Waits for the turn of a transaction.
    pub(super) async fn take(&self, client: &Client, turn: Turn) -> Result<(), Error> {
        let row = |w: u32, d: u8| int(w) * PER_WAREHOUSE + i32::from(d);
        match turn {
            Turn::NewOrder(w, d) => client.execute(&self.new_order, &[&int(w), &row(w, d)]).await,
            Turn::Payment(w, d) => client.execute(&self.payment, &[&int(w), &row(w, d)]).await,
            Turn::Alone(w) => client.execute(&self.alone, &[&int(w)]).await,
        }
        .map(|_| ())
    }

    /// Releases the turns of the session.
    pub(super) async fn give_back(&self, client: &Client) -> Result<(), Error> {
        client.execute(&self.give_back, &[]).await.map(|_| ())
    }
}
