//! The five transactions as SQL: statements that are prepared once per connection and sent in batches.
//!
//! Statements that do not depend on each other's answers are sent together, including BEGIN and COMMIT, in one round trip.
//! The server runs the statements of a batch in order. After a failed statement, the rest of the batch fails, and its COMMIT
//! is a ROLLBACK. The first error of a batch is its cause.
//!
//! Statements declare the types of their parameters: beside an int4 column, some servers infer int8, and would expect 8
//! bytes.

mod delivery;
mod new_order;
mod order_status;
mod payment;
mod stock_level;
pub(super) mod turns;

use futures_util::future::{OptionFuture, join, join4};
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

use super::connect::{Connection, RemoteConfig};
use super::error::PgError;
use tpcc_core::workload::generate::input::Input;
use tpcc_core::workload::schema::TableId;
use tpcc_core::workload::schema::text::Text;
use tpcc_core::workload::txn::{Failure, Scratch, StepOrder, Verdict};
use turns::{Turn, TurnStatements};

/// The prepared statements of a connection.
pub(super) struct Statements {
    new_order: new_order::NewOrderStatements,
    payment: payment::PaymentStatements,
    order_status: order_status::OrderStatusStatements,
    delivery: delivery::DeliveryStatements,
    stock_level: Statement,
    /// Statements for turns; `None` if transactions do not take turns.
    turns: Option<TurnStatements>,
}

impl Statements {
    /// Prepares all statements on a connection.
    pub(super) async fn prepare(client: &Client, config: &RemoteConfig) -> Result<Statements, Error> {
        Ok(Statements {
            new_order: new_order::NewOrderStatements::prepare(client).await?,
            payment: payment::PaymentStatements::prepare(client).await?,
            order_status: order_status::OrderStatusStatements::prepare(client).await?,
            delivery: delivery::DeliveryStatements::prepare(client, config.delivers_in_turns()).await?,
            stock_level: client.prepare_typed(stock_level::COUNT, &[Type::INT4, Type::INT2, Type::INT2]).await?,
            turns: if config.takes_turns() { Some(TurnStatements::prepare(client).await?) } else { None },
        })
    }

    /// Returns the SQL that begins a transaction of single statements, without a turn. After a failure, the SQL first ends
    /// the previous transaction.
    pub(super) fn begin_single(&self, after_failure: bool) -> String {
        match (after_failure, &self.turns) {
            (false, _) => "BEGIN".to_owned(),
            (true, None) => "ROLLBACK; BEGIN".to_owned(),
            (true, Some(_)) => format!("ROLLBACK; {}; BEGIN", turns::GIVE_BACK),
        }
    }
}

/// Context of a transaction.
pub(super) struct TxnContext<'t> {
    /// Connection of the session.
    pub(super) connection: &'t Connection,
    /// Prepared statements of the connection.
    pub(super) statements: &'t Statements,
    /// True if a failed transaction may still be open. The failed transaction is rolled back first.
    pub(super) after_failure: bool,
    /// Order of the steps of a transaction.
    pub(super) steps: StepOrder,
}

/// Result of a transaction that has already ended on the server.
type TxnOutcome = Result<Verdict, Failure<PgError>>;

/// Runs the transaction of `input`, including its end.
pub(super) fn run(work: &TxnContext<'_>, input: &Input, scratch: &mut Scratch) -> TxnOutcome {
    match input {
        Input::NewOrder(input) => new_order::run(work, input, scratch),
        Input::Payment(input) => payment::run(work, input, scratch),
        Input::OrderStatus(input) => order_status::run(work, input, scratch),
        Input::Delivery(input) => delivery::run(work, input, scratch),
        Input::StockLevel(input) => stock_level::run(work, input, scratch),
    }
}

impl TxnContext<'_> {
    fn client(&self) -> &Client {
        &self.connection.client
    }

    /// Waits for the turn, and begins a transaction that writes.
    async fn begin(&self, turn: Turn) -> Result<(), Error> {
        self.begin_as("BEGIN", turn).await
    }

    /// Waits for the turn, and begins a read-only transaction.
    async fn begin_reading(&self, turn: Turn) -> Result<(), Error> {
        self.begin_as("BEGIN READ ONLY", turn).await
    }

    async fn begin_as(&self, begin: &str, turn: Turn) -> Result<(), Error> {
        let (client, turns) = (self.client(), self.statements.turns.as_ref());
        let rolled_back: OptionFuture<_> = self.after_failure.then(|| client.batch_execute("ROLLBACK")).into();
        let given_back = turns.filter(|_| self.after_failure).map(|turns| turns.give_back(client));
        let taken = turns.map(|turns| turns.take(client, turn));
        let sent =
            join4(rolled_back, OptionFuture::from(given_back), OptionFuture::from(taken), client.batch_execute(begin));
        let (rolled_back, given_back, taken, begun) = sent.await;
        [rolled_back, given_back, taken].into_iter().flatten().collect::<Result<(), _>>().and(begun)
    }

    /// Ends a transaction with `how`, and gives its turn back.
    async fn end(&self, how: &str) -> Result<(), Error> {
        let client = self.client();
        let given_back = self.statements.turns.as_ref().map(|turns| turns.give_back(client));
        let (ended, given_back) = join(client.batch_execute(how), OptionFuture::from(given_back)).await;
        ended.and(given_back.unwrap_or(Ok(())))
    }

    /// Adds the table to the error of a statement.
    fn of<T>(&self, table: TableId, answer: Result<T, Error>) -> Result<T, PgError> {
        answer.map_err(|error| self.connection.error(error, Some(table)))
    }

    /// Converts the error of BEGIN, COMMIT or ROLLBACK.
    fn done(&self, answer: Result<(), Error>) -> Result<(), PgError> {
        answer.map_err(|error| self.connection.error(error, None))
    }

    /// Returns the value of a column.
    fn get<'r, T: FromSql<'r>>(&self, row: &'r Row, at: usize) -> Result<T, PgError> {
        row.try_get(at).map_err(|error| self.connection.error(error, None))
    }

    /// Returns the value of a text column.
    fn text<const N: usize>(&self, row: &Row, at: usize) -> Result<Text<N>, PgError> {
        Ok(Text::new(self.get::<&str>(row, at)?.as_bytes()))
    }

    /// Returns the value of a text column of N characters.
    fn fixed<const N: usize>(&self, row: &Row, at: usize) -> Result<[u8; N], PgError> {
        let text = self.get::<&str>(row, at)?;
        match text.as_bytes().try_into() {
            Ok(bytes) => Ok(bytes),
            Err(_) => Err(self.connection.unexpected(format!("'{text}' has not {N} characters"))),
        }
    }
}

/// Returns the error for a row that must exist.
fn missing(table: TableId, key: &impl std::fmt::Debug) -> Failure<PgError> {
    Failure::Missing { table, key: format!("{key:?}") }
}

/// Converts a number of the workload to int4. All numbers of the workload are small enough.
fn int(number: u32) -> i32 {
    number.cast_signed()
}
