//! A lane: a thread pool that executes the background work of several databases in turns.
//!
//! Each piece of work has a place in the lane ([`LanePlace`]) and is executed turn by turn. A turn returns the time of the
//! next turn ([`NextTurn`]); [`LanePlace::call`] makes a turn due at once. A free thread takes the turn that has been due
//! for the longest time, so work that always has more to do delays other work by at most a turn. Threads without a turn
//! sleep until the next turn is due.
//!
//! The lane's mutex is held only briefly, never during a turn. So a long turn occupies one thread, and delays other work
//! only if all threads have long turns.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::clock::{Clock, nanos};

/// Time value that stands for "never".
const NEVER: u64 = u64::MAX;

/// Time of the next turn of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextTurn {
    /// The next turn is due at once, because there is more to do.
    Now,
    /// The next turn is due at the next call, but after this duration at the latest.
    Within(Duration),
    /// The next turn is due at the next call.
    WhenCalled,
}

/// Background work that is executed turn by turn.
pub(crate) trait Work: Send + Sync {
    /// Executes a bounded part of the work, and returns the time of the next turn.
    fn turn(&self) -> NextTurn;

    /// Called after a turn has panicked. There will be no more turns.
    fn panicked(&self);
}

/// Thread pool for background work: see the module's documentation.
pub(crate) struct Lane {
    state: Mutex<LaneState>,
    /// Signals that a turn has become due, or that the lane has ended.
    changed: Condvar,
    /// Signals that a turn of work that is leaving the lane has ended.
    left: Condvar,
    clock: Clock,
    next_id: AtomicU64,
}

#[derive(Default)]
struct LaneState {
    tasks: Vec<LaneTask>,
    /// Wake-up time of each sleeping thread, in nanoseconds of the lane's clock.
    sleepers: Vec<u64>,
    ended: bool,
}

/// A piece of work that has joined the lane.
struct LaneTask {
    id: u64,
    work: Arc<dyn Work>,
    /// Maximum number of turns of this work that run at once.
    at_most: usize,
    /// Number of turns of this work that are running.
    under_way: usize,
    due_ns: u64,
    /// Number of turns of this work that are due; each call adds one.
    due: usize,
    /// True if the work is leaving the lane or has panicked, so that no further turn begins.
    is_over: bool,
}

impl LaneTask {
    /// Returns the earliest time at which the next turn may begin; `NEVER` if no turn may begin.
    fn ready_ns(&self) -> u64 {
        if self.is_over || self.under_way >= self.at_most { NEVER } else { self.due_ns }
    }

    fn begin_turn(&mut self) {
        // If only one turn runs at a time, that turn does all the work that is due.
        self.due = if self.at_most == 1 { 0 } else { self.due.saturating_sub(1) };
        if self.due == 0 {
            self.due_ns = NEVER;
        }
        self.under_way += 1;
    }

    fn want_turn(&mut self, at_ns: u64) {
        self.due_ns = self.due_ns.min(at_ns);
        self.due += 1;
    }
}

impl LaneState {
    fn task(&mut self, id: u64) -> Option<&mut LaneTask> {
        self.tasks.iter_mut().find(|task| task.id == id)
    }

    /// Returns the earliest time at which a turn of any task may begin.
    fn next_ns(&self) -> u64 {
        self.tasks.iter().map(LaneTask::ready_ns).min().unwrap_or(NEVER)
    }

    /// Begins the turn that has been due for the longest time, if a turn is due.
    fn begin_turn(&mut self, now_ns: u64) -> Option<(u64, Arc<dyn Work>)> {
        let task = self.tasks.iter_mut().min_by_key(|task| task.ready_ns())?;
        if task.ready_ns() > now_ns {
            return None;
        }
        task.begin_turn();
        Some((task.id, Arc::clone(&task.work)))
    }

    /// Returns true if a turn becomes due before the first sleeping thread wakes up.
    fn is_unwatched(&self) -> bool {
        self.sleepers.iter().min().is_some_and(|until| self.next_ns() < *until)
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("members", &self.state.lock().tasks.len()).finish_non_exhaustive()
    }
}

impl Lane {
    /// Creates a lane without work. Work is executed while threads are in [`Lane::serve`].
    pub(crate) fn new() -> Lane {
        Lane {
            state: Mutex::default(),
            changed: Condvar::new(),
            left: Condvar::new(),
            clock: Clock::machine(),
            next_id: AtomicU64::new(0),
        }
    }

    /// Returns a place for work that will [join](LanePlace::join) the lane. Calls before the work joins are ignored.
    pub(crate) fn place(self: &Arc<Self>) -> LanePlace {
        LanePlace { lane: Arc::clone(self), id: self.next_id.fetch_add(1, Ordering::Relaxed) }
    }

    /// Executes the work of all tasks until the lane ends. For threads of the lane.
    pub(crate) fn serve(&self) {
        let mut state = self.state.lock();
        while !state.ended {
            let now = self.clock.now_ns();
            let Some((id, work)) = state.begin_turn(now) else {
                let until = state.next_ns();
                state.sleepers.push(until);
                if until == NEVER {
                    self.changed.wait(&mut state);
                } else {
                    self.changed.wait_for(&mut state, Duration::from_nanos(until.saturating_sub(now)));
                }
                if let Some(at) = state.sleepers.iter().position(|other| *other == until) {
                    state.sleepers.swap_remove(at);
                }
                continue;
            };
            // A call may have woken the only thread that would have woken up in time for the next turn.
            if state.is_unwatched() {
                self.changed.notify_one();
            }
            drop(state);
            let next = catch_unwind(AssertUnwindSafe(|| work.turn()));
            if next.is_err() {
                // The panic has been reported already, and this thread serves other work as well.
                let _ = catch_unwind(AssertUnwindSafe(|| work.panicked()));
            }
            // The work is dropped before it may leave the lane, so that this thread is not its last owner.
            drop(work);
            state = self.state.lock();
            let now = self.clock.now_ns();
            let Some(task) = state.task(id) else { continue };
            task.under_way -= 1;
            match next {
                Ok(NextTurn::Now) => task.want_turn(now),
                Ok(NextTurn::Within(pause)) => {
                    task.due_ns = task.due_ns.min(now.saturating_add(nanos(pause)));
                }
                Ok(NextTurn::WhenCalled) => {}
                Err(_) => task.is_over = true,
            }
            if task.is_over {
                self.left.notify_all();
            }
        }
    }

    /// Ends the lane: its threads return from `Lane::serve`. All work must have left the lane.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }
}

/// Place of one piece of work in a lane.
#[derive(Clone, Debug)]
pub(crate) struct LanePlace {
    lane: Arc<Lane>,
    id: u64,
}

impl LanePlace {
    /// Adds the work to the lane; its first turn is due at once. At most `at_most` turns run at a time.
    pub(crate) fn join(&self, work: Arc<dyn Work>, at_most: usize) {
        let due_ns = self.lane.clock.now_ns();
        let task = LaneTask { id: self.id, work, at_most, under_way: 0, due_ns, due: 1, is_over: false };
        self.lane.state.lock().tasks.push(task);
        self.lane.changed.notify_one();
    }

    /// Makes a turn due now. Returns at once.
    pub(crate) fn call(&self) {
        let now = self.lane.clock.now_ns();
        let mut state = self.lane.state.lock();
        let Some(task) = state.task(self.id) else { return };
        task.want_turn(now);
        let may_begin = task.ready_ns() != NEVER;
        drop(state);
        if may_begin {
            self.lane.changed.notify_one();
        }
    }

    /// Removes the work from the lane. Returns when none of its turns is running any more; no further turn begins. A turn
    /// must not call this for its own work.
    pub(crate) fn leave(&self) {
        let mut state = self.lane.state.lock();
        loop {
            let Some(at) = state.tasks.iter().position(|task| task.id == self.id) else { return };
            let task = &mut state.tasks[at];
            if task.under_way == 0 {
                let gone = state.tasks.swap_remove(at);
                drop(state);
                // The work is dropped while the mutex is not held, because it may be the last owner of a whole database.
                drop(gone);
                return;
            }
            task.is_over = true;
            self.lane.left.wait(&mut state);
        }
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use super::*;

    /// Work that counts its turns and then calls a closure of the test.
    struct Counted<F> {
        turns: AtomicUsize,
        panicked: AtomicBool,
        turn: F,
    }

    impl<F: Fn(usize) -> NextTurn + Send + Sync> Work for Counted<F> {
        fn turn(&self) -> NextTurn {
            (self.turn)(self.turns.fetch_add(1, Ordering::SeqCst) + 1)
        }

        fn panicked(&self) {
            self.panicked.store(true, Ordering::SeqCst);
        }
    }

    fn counted<F: Fn(usize) -> NextTurn + Send + Sync>(turn: F) -> Arc<Counted<F>> {
        Arc::new(Counted { turns: AtomicUsize::new(0), panicked: AtomicBool::new(false), turn })
    }

    fn wait_until(done: impl Fn() -> bool) {
        let begin = std::time::Instant::now();
        while !done() {
            assert!(begin.elapsed() < Duration::from_secs(20), "it does not happen");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Runs the test with a lane of `threads` threads, which end afterwards.
    fn with_lane(threads: usize, test: impl FnOnce(&Arc<Lane>)) {
        let lane = Arc::new(Lane::new());
        std::thread::scope(|s| {
            for _ in 0..threads {
                s.spawn(|| lane.serve());
            }
            let result = catch_unwind(AssertUnwindSafe(|| test(&lane)));
            lane.end();
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        assert_eq!(Arc::strong_count(&lane), 1);
    }

    #[test]
    fn work_gets_the_turns_that_it_asks_for() {
        for threads in [1, 3] {
            with_lane(threads, |lane| {
                let [busy, timed, called] = [lane.place(), lane.place(), lane.place()];
                let always = counted(|_| NextTurn::Now);
                let sometimes = counted(|_| NextTurn::Within(Duration::from_millis(2)));
                let on_call = counted(|_| NextTurn::WhenCalled);
                busy.join(always.clone(), 1);
                timed.join(sometimes.clone(), 1);
                called.join(on_call.clone(), 1);
                wait_until(|| sometimes.turns.load(Ordering::SeqCst) > 5);
                assert_eq!(on_call.turns.load(Ordering::SeqCst), 1);
                for n in 2..50 {
                    called.call();
                    wait_until(|| on_call.turns.load(Ordering::SeqCst) == n);
                }
                [&busy, &timed, &called].iter().for_each(|place| place.leave());
                let turns = always.turns.load(Ordering::SeqCst);
                called.call();
                busy.call();
                std::thread::sleep(Duration::from_millis(5));
                assert_eq!((always.turns.load(Ordering::SeqCst), on_call.turns.load(Ordering::SeqCst)), (turns, 49));
                assert_eq!(Arc::strong_count(&always), 1, "the lane keeps work that has left");
            });
        }
    }

    /// Case: a thread makes a turn of other work due and then begins a long turn, before another thread has checked for due
    /// turns.
    #[test]
    fn a_long_turn_delays_no_other_work_while_there_is_another_thread() {
        with_lane(2, |lane| {
            let (timed, long) = (lane.place(), lane.place());
            // Each call is followed by another turn a moment later.
            let others = counted(|turn| match turn % 2 {
                0 => NextTurn::WhenCalled,
                _ => NextTurn::Within(Duration::from_millis(2)),
            });
            let slow = counted({
                let others = others.clone();
                move |turn| {
                    wait_until(|| others.turns.load(Ordering::SeqCst) >= 2 * turn);
                    NextTurn::WhenCalled
                }
            });
            timed.join(others.clone(), 1);
            wait_until(|| others.turns.load(Ordering::SeqCst) >= 1);
            long.join(slow.clone(), 1);
            for round in 1..100 {
                wait_until(|| others.turns.load(Ordering::SeqCst) == 2 * round);
                wait_until(|| slow.turns.load(Ordering::SeqCst) == round);
                timed.call();
                wait_until(|| others.turns.load(Ordering::SeqCst) > 2 * round);
                long.call();
            }
            long.leave();
            timed.leave();
        });
    }

    #[test]
    fn a_sleeping_thread_looks_when_the_next_turn_is_due() {
        let lane = Arc::new(Lane::new());
        [lane.place(), lane.place()].iter().for_each(|place| place.join(counted(|_| NextTurn::WhenCalled), 1));
        let mut state = lane.state.lock();
        (state.tasks[0].due_ns, state.tasks[1].due_ns) = (5, 10);
        for (sleepers, before, after) in [(&[][..], false, false), (&[10, 11], true, false), (&[NEVER], true, true)] {
            state.sleepers = sleepers.to_vec();
            assert_eq!(state.is_unwatched(), before);
            // After the begin of the first task's turn, the second task's turn is the next one.
            let begun = state.begin_turn(7);
            assert_eq!(begun.map(|(id, _)| id), Some(0));
            assert_eq!(state.is_unwatched(), after);
            (state.tasks[0].due_ns, state.tasks[0].under_way) = (5, 0);
        }
        assert!(state.begin_turn(4).is_none());
    }

    #[test]
    fn a_call_during_a_turn_is_not_lost() {
        with_lane(2, |lane| {
            let place = lane.place();
            let work = counted({
                let place = place.clone();
                move |turn| {
                    if turn < 1000 {
                        place.call();
                    }
                    NextTurn::WhenCalled
                }
            });
            place.join(work.clone(), 1);
            wait_until(|| work.turns.load(Ordering::SeqCst) == 1000);
            place.leave();
            // The work holds a clone of the place.
            drop(place);
        });
    }

    #[test]
    fn as_many_turns_are_under_way_as_were_called_for() {
        with_lane(4, |lane| {
            let place = lane.place();
            let under_way = Arc::new(AtomicUsize::new(0));
            let work = counted({
                let under_way = under_way.clone();
                move |turn| {
                    if turn > 1 {
                        under_way.fetch_add(1, Ordering::SeqCst);
                        wait_until(|| under_way.load(Ordering::SeqCst) >= 3);
                    }
                    NextTurn::WhenCalled
                }
            });
            place.join(work.clone(), 8);
            wait_until(|| work.turns.load(Ordering::SeqCst) == 1);
            (0..3).for_each(|_| place.call());
            wait_until(|| under_way.load(Ordering::SeqCst) == 3);
            place.leave();
            assert_eq!(work.turns.load(Ordering::SeqCst), 4);
        });
    }

    #[test]
    fn a_panic_ends_its_own_work_alone() {
        with_lane(1, |lane| {
            let (bad, good) = (lane.place(), lane.place());
            let panics = counted(|turn| if turn == 3 { panic!("a fault of a test") } else { NextTurn::Now });
            let works = counted(|_| NextTurn::WhenCalled);
            bad.join(panics.clone(), 1);
            good.join(works.clone(), 1);
            wait_until(|| panics.panicked.load(Ordering::SeqCst));
            bad.call();
            for n in 2..10 {
                good.call();
                wait_until(|| works.turns.load(Ordering::SeqCst) == n);
            }
            assert_eq!(panics.turns.load(Ordering::SeqCst), 3);
            bad.leave();
            good.leave();
        });
    }

    #[test]
    fn leaving_waits_for_the_turn_under_way() {
        with_lane(2, |lane| {
            let place = lane.place();
            let (begun, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let work = counted({
                let (begun, ended) = (begun.clone(), ended.clone());
                move |_| {
                    begun.store(true, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(20));
                    ended.store(true, Ordering::SeqCst);
                    NextTurn::Now
                }
            });
            place.join(work, 1);
            wait_until(|| begun.load(Ordering::SeqCst));
            place.leave();
            assert!(ended.load(Ordering::SeqCst));
        });
    }
}
