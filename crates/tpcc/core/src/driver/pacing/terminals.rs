//! Paced terminals (5.2). Each terminal is a task: it waits for the keying time, sends a request, waits for the response,
//! then waits for the think time. All terminals share one thread, separate from the workers.
//!
//! The first requests are spread over one mean cycle, so that terminals are not synchronised and the load grows evenly
//! during the warm-up. Kinds of transactions are drawn from one deck of 23 cards per warehouse, which is shared by the ten
//! terminals of the warehouse (5.2.4.2).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

use super::figures::Cycles;
use super::inbox::{Inbox, PacedAnswer};
use super::times::{mean_cycle_s, requirements, think};
use crate::driver::measure::Stats;
use crate::driver::terminal::Terminal;
use crate::driver::{Board, Clock, Control, Phase};
use crate::workload::generate::Random;
use crate::workload::generate::deck::{Deck, Kind};
use crate::workload::generate::input::{Input, InputSpace};
use crate::workload::time::nanos;

/// First number of the random streams for decks and waits. Streams with lower numbers generate the inputs of terminals.
const DECKS: u64 = 1 << 40;
const WAITS: u64 = 1 << 41;

/// Server that executes the requests of terminals.
pub(super) trait TerminalServer: 'static {
    /// Executes a transaction; `None` if the run is over.
    async fn ask(&self, worker: usize, input: Input) -> Option<PacedAnswer>;

    /// Queues a Delivery. `counts` is true during the measurement. Returns false if the run is over.
    async fn queue(&self, worker: usize, input: Input, counts: bool) -> bool;
}

/// Server that passes requests to the inboxes of the workers.
pub(super) struct Workers {
    pub(super) inboxes: Arc<[Inbox]>,
    pub(super) clock: Clock,
}

impl TerminalServer for Workers {
    async fn ask(&self, worker: usize, input: Input) -> Option<PacedAnswer> {
        self.inboxes[worker].ask(input).await.ok()
    }

    async fn queue(&self, worker: usize, input: Input, counts: bool) -> bool {
        let queued_us = || self.clock.unix_us(self.clock.now_ns());
        self.inboxes[worker].queue(input, queued_us, counts).await
    }
}

/// Objects and settings that all terminals of a run share.
pub(super) struct TerminalContext<S> {
    pub(super) server: S,
    pub(super) control: Arc<Control>,
    /// Progress counters of all threads. The last entry is for the thread of the terminals.
    pub(super) boards: Arc<[Board]>,
    pub(super) clock: Clock,
    pub(super) world: InputSpace,
    pub(super) seed: u64,
    /// Speed factor of the terminals: 1 for the times of the specification, larger in tests.
    pub(super) speed: u32,
    /// Thread to wake when a terminal panics.
    pub(super) main: Thread,
}

/// A terminal and the number of the worker that serves it.
pub(super) struct TerminalSlot {
    pub(super) terminal: Terminal,
    pub(super) worker: usize,
}

/// Returns the number of bytes of a terminal's task, including the terminal.
pub(super) fn task_bytes() -> usize {
    fn of<A, B, C, F: Future>(_task: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }
    of(TerminalShared::<Workers>::run_terminal)
}

/// Response times and cycles of all terminals during the measurement.
#[derive(Debug)]
pub(super) struct CountedCycles {
    pub(super) stats: Stats,
    pub(super) cycles: Cycles,
}

struct TerminalShared<S> {
    context: TerminalContext<S>,
    /// Deck and random number generator of each warehouse.
    decks: RefCell<Vec<(Deck, Random)>>,
    counted: RefCell<CountedCycles>,
}

/// Runs the terminals on the calling thread until `stop` is notified.
pub(super) fn run<S: TerminalServer>(
    context: TerminalContext<S>,
    slots: Vec<TerminalSlot>,
    stop: &Notify,
) -> std::io::Result<CountedCycles> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    Ok(runtime.block_on(run_until(context, slots, stop.notified())))
}

async fn run_until<S: TerminalServer>(
    context: TerminalContext<S>,
    slots: Vec<TerminalSlot>,
    stop: impl Future,
) -> CountedCycles {
    let decks = (0..context.world.warehouses)
        .map(|w| (Deck::least(), Random::stream(context.seed, DECKS + u64::from(w))))
        .collect();
    let counted = CountedCycles { stats: Stats::new(), cycles: Cycles::default() };
    let shared = Rc::new(TerminalShared { context, decks: RefCell::new(decks), counted: RefCell::new(counted) });
    let tasks = LocalSet::new();
    for (number, slot) in slots.into_iter().enumerate() {
        let random = Random::stream(shared.context.seed, WAITS + number as u64);
        tasks.spawn_local(Rc::clone(&shared).run_terminal(slot, random));
    }
    tasks.run_until(stop).await;
    // Cancels the tasks that still wait for a response or a timer.
    drop(tasks);
    let none = CountedCycles { stats: Stats::new(), cycles: Cycles::default() };
    shared.counted.replace(none)
}

impl<S: TerminalServer> TerminalShared<S> {
    /// Runs the cycles of a terminal until the end of the run.
    async fn run_terminal(self: Rc<Self>, mut slot: TerminalSlot, mut random: Random) {
        let _guard = PanicGuard { control: Arc::clone(&self.context.control), main: self.context.main.clone() };
        let speed = self.context.speed;
        let first = f64::from(random.in_range(0, u32::MAX)) / f64::from(u32::MAX);
        sleep(Duration::from_secs_f64(mean_cycle_s() * first) / speed).await;
        loop {
            let kind = self.deal(slot.terminal.warehouse());
            let keying = requirements(kind).keying / speed;
            sleep(keying).await;

            let is_measured = self.context.control.phase() == Phase::Measure;
            slot.terminal.deal(kind);
            let input = slot.terminal.next(&self.context.world, &self.context.clock, self.context.clock.now_ns());
            let sent = Instant::now();
            let answer = match kind {
                Kind::Delivery if self.context.server.queue(slot.worker, input.clone(), is_measured).await => None,
                Kind::Delivery => return,
                _ => match self.context.server.ask(slot.worker, input.clone()).await {
                    Some(answer) => Some(answer),
                    None => return,
                },
            };
            let response = sent.elapsed();
            let pause = think(&mut random, requirements(kind).think_mean) / speed;
            // Counts only requests that were sent and answered during the measurement (5.4.2).
            if is_measured && self.context.control.phase() == Phase::Measure {
                self.count(&input, answer, keying, pause, response);
            }
            if let Some(board) = self.context.boards.last() {
                board.times.add(nanos(response));
                Board::add(&board.completed, 1);
            }
            sleep(pause).await;
        }
    }

    /// Draws the next card from the deck of a warehouse.
    fn deal(&self, warehouse: u32) -> Kind {
        let (deck, random) = &mut self.decks.borrow_mut()[warehouse as usize - 1];
        deck.draw(random)
    }

    fn count(&self, input: &Input, answer: Option<PacedAnswer>, keying: Duration, pause: Duration, response: Duration) {
        let CountedCycles { stats, cycles } = &mut *self.counted.borrow_mut();
        let kind = input.kind();
        stats.answered(kind, nanos(response));
        // A queued Delivery is counted by the worker that executes it.
        if let Some(answer) = answer {
            stats.ran(input, answer.rolled_back, 0, answer.run_ns);
            stats.served(kind, answer.service_ns);
        }
        cycles.count(kind, keying, pause, response);
    }
}

/// Ends the run on drop if the terminal's task panicked. The runtime does not report the panic of a task.
struct PanicGuard {
    control: Arc<Control>,
    main: Thread,
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.control.set(Phase::Stop);
            self.main.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::RunPlan;
    use crate::driver::pacing::figures::limit_holds;
    use crate::driver::pacing::times::{MAXIMUM_PER_MIN, deck_maximum_per_min};
    use crate::driver::tests::paced_plan;
    use crate::workload::generate::nurand::Constants;
    use crate::workload::schema::Scale;

    /// Server that responds after a fixed time.
    struct After(Duration);

    impl TerminalServer for After {
        async fn ask(&self, _worker: usize, _input: Input) -> Option<PacedAnswer> {
            sleep(self.0).await;
            Some(PacedAnswer { rolled_back: false, run_ns: 1, service_ns: 1 })
        }

        async fn queue(&self, _worker: usize, _input: Input, _counts: bool) -> bool {
            true
        }
    }

    fn context(warehouses: u32, seed: u64, after: Duration, phase: Phase) -> TerminalContext<After> {
        let constants = Constants::for_run(&mut Random::stream(1, 1), 157);
        TerminalContext {
            server: After(after),
            control: Arc::new(Control::of(phase)),
            boards: [Board::default()].into(),
            clock: Clock::start(),
            world: InputSpace { scale: Scale::FULL, warehouses, constants },
            seed,
            speed: 1,
            main: std::thread::current(),
        }
    }

    fn slots(plan: &RunPlan) -> Vec<TerminalSlot> {
        let slot = |number| TerminalSlot { terminal: Terminal::new(number, 1, plan, &Scale::FULL), worker: 0 };
        (0..plan.terminals).map(slot).collect()
    }

    /// Creates a runtime with a virtual clock. The clock advances immediately when all tasks wait for a timer.
    fn paused() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
    }

    /// Runs the terminals of `warehouses` for `hours` virtual hours, after one hour of warm-up.
    fn hours(warehouses: u32, hours: u32, after: Duration) -> CountedCycles {
        let plan = paced_plan(warehouses, 1);
        let context = context(warehouses, plan.seed, after, Phase::Warmup);
        let control = Arc::clone(&context.control);
        let hour = Duration::from_secs(3_600);
        paused().block_on(run_until(context, slots(&plan), async move {
            sleep(hour).await;
            control.set(Phase::Measure);
            sleep(hour * hours).await;
            control.set(Phase::Stop);
        }))
    }

    #[test]
    fn terminals_that_are_answered_at_once_reach_what_their_cards_allow() {
        let CountedCycles { stats, cycles } = hours(10, 10, Duration::ZERO);
        let count = |kind: Kind| stats.kinds[kind as usize].counters.count as f64;
        let per_min = count(Kind::NewOrder) / 600.0 / 10.0;
        assert!((per_min / deck_maximum_per_min() - 1.0).abs() < 0.01, "{per_min}");
        assert!(per_min < MAXIMUM_PER_MIN);
        // No kind is below its minimum share (5.2.3).
        let all = stats.completed() as f64;
        for (kind, least) in
            [(Kind::Payment, 0.43), (Kind::OrderStatus, 0.04), (Kind::Delivery, 0.04), (Kind::StockLevel, 0.04)]
        {
            assert!(count(kind) / all > least, "{}: {}", kind.name(), count(kind) / all);
        }
        assert_eq!(cycles.queued as f64, count(Kind::Delivery));
        for kind in Kind::ALL {
            let (n, sum) = cycles.thought[kind as usize];
            let (mean, wanted) = (sum.as_secs_f64() / n as f64, requirements(kind).think_mean.as_secs_f64());
            assert!((mean / wanted - 1.0).abs() < 5.0 / (n as f64).sqrt(), "{}: {mean}", kind.name());
        }
        assert!(cycles.share_of_offered().unwrap() > 0.999);
    }

    #[test]
    fn slow_answers_break_limits_and_cost_throughput() {
        let CountedCycles { stats, cycles } = hours(1, 10, Duration::from_secs(6));
        assert_eq!(limit_holds(&stats, Kind::NewOrder), Some(false));
        assert_eq!(limit_holds(&stats, Kind::StockLevel), Some(true), "it may take 20 s");
        assert_eq!(limit_holds(&stats, Kind::Delivery), Some(true), "it was only queued");
        // The responses make the mean cycle of 20.7 s longer by 6 s, except for Deliveries, whose response is immediate.
        let (share, wanted) = (cycles.share_of_offered().unwrap(), 20.7 / (20.7 + 6.0 * 22.0 / 23.0));
        assert!((share - wanted).abs() < 0.01, "{share} {wanted}");
        let per_min = stats.kinds[Kind::NewOrder as usize].counters.count as f64 / 600.0;
        assert!((per_min / (wanted * deck_maximum_per_min()) - 1.0).abs() < 0.03, "{per_min}");
    }

    /// Terminals start at a random point of a cycle: after a few seconds few terminals have sent a request, after a whole
    /// cycle most have.
    #[test]
    fn starts_are_spread() {
        let asked_within = |seconds: u64| {
            let plan = paced_plan(20, 1);
            let context = context(20, plan.seed, Duration::ZERO, Phase::Measure);
            let slots = slots(&plan);
            let end = async { sleep(Duration::from_secs(seconds)).await };
            let counted = paused().block_on(run_until(context, slots, end));
            counted.stats.completed()
        };
        // A terminal sends a request every 20.7 s on average, and its first request only after the keying time.
        let (early, later, late) = (asked_within(5), asked_within(21), asked_within(42));
        assert!((1..=40).contains(&early) && (60..=160).contains(&later), "{early} {later}");
        assert!((240..=360).contains(&late), "{late}");
    }
}
