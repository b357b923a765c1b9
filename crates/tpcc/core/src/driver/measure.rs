//! Transaction counts and times of a worker. Each worker has its own; they are merged when all workers have ended.

use hdrhistogram::Histogram;

use crate::workload::abort::{Abort, AbortCause};
use crate::workload::counters::{Counters, GeneratorCounters, KindCounters, WorkCounters};
use crate::workload::generate::deck::Kind;
use crate::workload::generate::input::{CustomerSelector, Input};
use crate::workload::schema::TableId;

/// Histogram of times of one kind of transaction, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Times {
    histogram: Histogram<u32>,
    sum: u64,
    max: u64,
    count: u64,
}

impl Times {
    pub(super) fn new() -> Times {
        // From 16 ns to 2 minutes with three significant digits: 100 KiB. The library accepts these constant bounds.
        #[allow(clippy::unwrap_used)]
        let histogram = Histogram::new_with_bounds(16, 120_000_000_000, 3).unwrap();
        Times { histogram, sum: 0, max: 0, count: 0 }
    }

    /// Returns the number of heap bytes of the histogram's counts.
    fn heap_bytes(&self) -> usize {
        self.histogram.distinct_values() * size_of::<u32>()
    }

    #[inline]
    pub(super) fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.sum += ns;
        self.max = self.max.max(ns);
        self.count += 1;
    }

    pub(super) fn merge(&mut self, other: &Times) {
        // Adding cannot fail: both histograms have the same bounds.
        let _ = self.histogram.add(&other.histogram);
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        self.count += other.count;
    }

    /// Returns the mean time in microseconds. `None` if nothing was recorded.
    pub fn mean_us(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64 / 1e3)
    }

    /// Returns the time at a quantile from 0 to 1, in microseconds. `None` if nothing was recorded.
    pub fn quantile_us(&self, quantile: f64) -> Option<f64> {
        (self.count > 0).then(|| self.histogram.value_at_quantile(quantile).min(self.max) as f64 / 1e3)
    }

    /// Returns the histogram of all times, in nanoseconds.
    pub fn histogram(&self) -> &Histogram<u32> {
        &self.histogram
    }

    /// Returns the maximum time in microseconds. `None` if nothing was recorded.
    pub fn max_us(&self) -> Option<f64> {
        (self.count > 0).then(|| self.max as f64 / 1e3)
    }
}

/// Counts and times of one kind of transaction.
#[derive(Clone, Debug)]
pub struct KindStats {
    /// Numbers of completed and of rolled-back transactions, and total run time.
    pub counters: KindCounters,
    /// Service times: from the begin of the first attempt to the acknowledgement.
    pub service: Times,
    /// Response times: from the moment when the terminal was ready to the acknowledgement.
    pub response: Times,
}

impl GeneratorCounters {
    #[inline]
    fn count(&mut self, input: &Input) {
        match input {
            Input::NewOrder(order) => {
                self.new_orders += 1;
                self.rollbacks += u64::from(order.rolls_back);
                self.lines += order.lines.len() as u64;
                let home = order.customer.w;
                self.remote_lines += order.lines.iter().filter(|line| line.supply_w != home).count() as u64;
            }
            Input::Payment(payment) => {
                self.payments += 1;
                self.remote_payments += u64::from(payment.is_remote());
                self.customers += 1;
                self.by_name += u64::from(matches!(payment.customer, CustomerSelector::Name(..)));
            }
            Input::OrderStatus(status) => {
                self.customers += 1;
                self.by_name += u64::from(matches!(status.customer, CustomerSelector::Name(..)));
            }
            Input::Delivery(_) | Input::StockLevel(_) => {}
        }
    }
}

/// Number of aborts, indexed by cause and table. The last column counts aborts whose table is not known.
type Aborts = [[u64; TableId::ALL.len() + 1]; AbortCause::ALL.len()];

/// All transaction counts and times of a worker.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Counts and times of each kind of transaction, indexed by [`Kind`].
    pub kinds: [KindStats; 5],
    /// Counts of the values drawn by the input generator.
    pub drawn: GeneratorCounters,
    /// Counts over all kinds of transactions.
    pub counters: WorkCounters,
    aborts: Aborts,
    /// Start and end of the measurement, in nanoseconds of the run's clock.
    span: Option<(u64, u64)>,
}

impl Stats {
    /// Creates empty counts.
    pub(crate) fn new() -> Stats {
        Stats {
            kinds: std::array::from_fn(|_| KindStats {
                counters: KindCounters::default(),
                service: Times::new(),
                response: Times::new(),
            }),
            drawn: GeneratorCounters::default(),
            counters: WorkCounters::default(),
            aborts: Aborts::default(),
            span: None,
        }
    }

    /// Returns the number of bytes of a worker's counts, including the heap.
    pub(super) fn bytes() -> usize {
        let times = Times::new();
        let kinds = Kind::ALL.len();
        size_of::<Stats>() + 2 * kinds * times.heap_bytes()
    }

    /// Records the end of a transaction's execution.
    #[inline]
    pub(super) fn ran(&mut self, input: &Input, rolled_back: bool, skipped: usize, run_ns: u64) {
        self.drawn.count(input);
        self.kinds[input.kind() as usize].counters.rolled_back += u64::from(rolled_back);
        self.deferred(input.kind(), skipped, run_ns);
    }

    /// Records the end of the execution of a deferred transaction, whose terminal already has its response.
    #[inline]
    pub(super) fn deferred(&mut self, kind: Kind, skipped: usize, run_ns: u64) {
        self.kinds[kind as usize].counters.run_ns += run_ns;
        self.counters.skipped_deliveries += skipped as u64;
    }

    /// Subtracts a transaction from the rollback count if it was rolled back. Called if the run ended before its response
    /// was sent.
    pub(super) fn unanswered(&mut self, kind: Kind, rolled_back: bool) {
        self.kinds[kind as usize].counters.rolled_back -= u64::from(rolled_back);
    }

    /// Records that the response to a transaction has reached the terminal.
    #[inline]
    pub fn acknowledged(&mut self, kind: Kind, service_ns: u64, response_ns: u64) {
        self.answered(kind, response_ns);
        self.served(kind, service_ns);
    }

    /// Records the time of a response to a terminal. Parts of the transaction may still be executed later.
    #[inline]
    pub(super) fn answered(&mut self, kind: Kind, response_ns: u64) {
        let stats = &mut self.kinds[kind as usize];
        stats.counters.count += 1;
        stats.response.record(response_ns);
    }

    /// Records the service time of a finished transaction, independent of its response.
    #[inline]
    pub(super) fn served(&mut self, kind: Kind, service_ns: u64) {
        self.kinds[kind as usize].service.record(service_ns);
    }

    pub(super) fn aborted(&mut self, abort: Abort) {
        let table = abort.table.map_or(TableId::ALL.len(), |table| table as usize);
        self.aborts[abort.cause as usize][table] += 1;
    }

    /// Sets start and end of the measurement, in nanoseconds of the run's clock.
    pub fn measured(&mut self, from_ns: u64, to_ns: u64) {
        self.span = Some((from_ns, to_ns));
    }

    /// Adds the counts of another worker.
    pub fn merge(&mut self, other: &Stats) {
        for (to, from) in self.kinds.iter_mut().zip(&other.kinds) {
            to.counters.add(&from.counters);
            to.service.merge(&from.service);
            to.response.merge(&from.response);
        }
        self.drawn.add(&other.drawn);
        self.counters.add(&other.counters);
        for (to, from) in self.aborts.as_flattened_mut().iter_mut().zip(other.aborts.as_flattened()) {
            *to += from;
        }
        self.span = match (self.span, other.span) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }

    /// Returns the seconds from the earliest start to the latest end over all workers.
    pub fn seconds(&self) -> f64 {
        self.span.map_or(0.0, |(from, to)| (to - from) as f64 / 1e9)
    }

    /// Returns the number of completed transactions, including rolled-back ones.
    pub fn completed(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.counters.count).sum()
    }

    /// Returns the number of transactions completed by a rollback.
    pub fn rolled_back(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.counters.rolled_back).sum()
    }

    /// Returns the total number of aborts. Each aborted transaction was retried.
    pub fn aborts_in_all(&self) -> u64 {
        self.aborts.as_flattened().iter().sum()
    }

    /// Returns the nonzero numbers of aborts with their cause and table. The table is `None` if it is not known.
    pub fn aborts(&self) -> impl Iterator<Item = (AbortCause, Option<TableId>, u64)> + '_ {
        AbortCause::ALL.into_iter().flat_map(move |cause| {
            let row = &self.aborts[cause as usize];
            row.iter()
                .enumerate()
                .filter(|&(_, &n)| n > 0)
                .map(move |(table, &n)| (cause, TableId::ALL.get(table).copied(), n))
        })
    }
}
