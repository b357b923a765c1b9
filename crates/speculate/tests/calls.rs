//! Panics in each call into the embedder's code, at the first call, the second, and so on. On any worker, the panic must
//! end the loop; the loop must not report success unless it is complete; and the next loop of the same speculator must not
//! be affected.
#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, reason = "a test: a failure is told where it happens")]

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use speculate::{Committer, Epoch, Forwarding, LoopError, Options, Seen, Speculator, Store, Written};

/// A call of the embedder's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Body,
    Then,
    Next,
    AfterCommit,
    Escape,
    Undo,
    Peek,
    Confirm,
    Read,
    Write,
    Announce,
    Group,
    Eq,
    Hash,
    CloneKey,
    CloneValue,
    DropItem,
    DropResult,
    DropError,
    DropKey,
    DropValue,
    DropStamp,
    DropPayload,
    DropIterator,
}

const CALLS: [Call; 24] = [
    Call::Body,
    Call::Then,
    Call::Next,
    Call::AfterCommit,
    Call::Escape,
    Call::Undo,
    Call::Peek,
    Call::Confirm,
    Call::Read,
    Call::Write,
    Call::Announce,
    Call::Group,
    Call::Eq,
    Call::Hash,
    Call::CloneKey,
    Call::CloneValue,
    Call::DropItem,
    Call::DropResult,
    Call::DropError,
    Call::DropKey,
    Call::DropValue,
    Call::DropStamp,
    Call::DropPayload,
    Call::DropIterator,
];

/// Panics at a call of one kind, after `left` calls of that kind.
struct PanicTrigger {
    call: Call,
    left: AtomicI64,
    panics: AtomicU64,
}

impl PanicTrigger {
    fn count_call(&self, call: Call) {
        if self.call == call && !std::thread::panicking() && self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.panics.fetch_add(1, Ordering::Relaxed);
            // The destructor of this payload may panic as well.
            resume_unwind(Box::new(Payload(call == Call::DropPayload)));
        }
    }
}

struct Payload(bool);

impl Drop for Payload {
    fn drop(&mut self) {
        if self.0 && !std::thread::panicking() {
            resume_unwind(Box::new(Payload(false)));
        }
    }
}

macro_rules! part {
    ($name:ident, $dropped:expr) => {
        struct $name(u64, Arc<PanicTrigger>);

        impl Drop for $name {
            fn drop(&mut self) {
                self.1.count_call($dropped);
            }
        }
    };
}

part!(Item, Call::DropItem);
part!(Outcome, Call::DropResult);
part!(Refusal, Call::DropError);
part!(Key, Call::DropKey);
part!(Value, Call::DropValue);
part!(Stamp, Call::DropStamp);

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.1.count_call(Call::Eq);
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.1.count_call(Call::Hash);
        self.0.hash(state);
    }
}

impl Clone for Key {
    fn clone(&self) -> Key {
        self.1.count_call(Call::CloneKey);
        Key(self.0, Arc::clone(&self.1))
    }
}

impl Clone for Value {
    fn clone(&self) -> Value {
        self.1.count_call(Call::CloneValue);
        Value(self.0, Arc::clone(&self.1))
    }
}

/// Rows and the number of writes to each.
struct Rows(Mutex<HashMap<u64, (u64, u64)>>, Arc<PanicTrigger>);

impl Rows {
    fn row(&self, key: u64) -> (u64, u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied().unwrap_or_default()
    }
}

impl Store for Rows {
    type Key = Key;
    type Value = Value;
    type Stamp = Stamp;
    type Local = ();
    type Order = ();
    type Error = Refusal;

    fn announce(&self, (): &mut (), _: &[Key]) {
        self.1.count_call(Call::Announce);
    }

    fn group(&self, _: &Key) -> u64 {
        self.1.count_call(Call::Group);
        0
    }

    fn peek(&self, (): &mut (), key: &Key) -> Result<(Option<Value>, Stamp), Refusal> {
        self.1.count_call(Call::Peek);
        let (value, stamp) = self.row(key.0);
        Ok((Some(Value(value, Arc::clone(&self.1))), Stamp(stamp, Arc::clone(&self.1))))
    }

    fn confirm(&self, (): &mut (), seen: Seen<'_, Rows>) -> Result<bool, Refusal> {
        self.1.count_call(Call::Confirm);
        Ok(self.row(seen.key.0).1 == seen.stamp.0)
    }

    fn read(&self, (): &mut (), key: &Key) -> Result<Option<Value>, Refusal> {
        self.1.count_call(Call::Read);
        Ok(Some(Value(self.row(key.0).0, Arc::clone(&self.1))))
    }

    fn write(&self, (): &mut (), write: &Written<'_, Rows>) -> Result<(), Refusal> {
        self.1.count_call(Call::Write);
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let row = rows.entry(write.key.0).or_default();
        *row = (write.value.map_or(0, |value| value.0), row.1 + 1);
        Ok(())
    }
}

/// Items, from an iterator with a destructor that may panic.
struct Items(std::ops::Range<u64>, Arc<PanicTrigger>);

impl Iterator for Items {
    type Item = Item;
    fn next(&mut self) -> Option<Item> {
        self.1.count_call(Call::Next);
        self.0.next().map(|number| Item(number, Arc::clone(&self.1)))
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        self.1.count_call(Call::DropIterator);
    }
}

/// Increments one row of a few, so that epochs depend on each other, and writes a row of its own.
fn body(epoch: &mut Epoch<'_, Rows>, item: &Item, trigger: &Arc<PanicTrigger>, fails: u64) -> Result<Outcome, Refusal> {
    let own = |number| Key(number, Arc::clone(trigger));
    trigger.count_call(Call::Body);
    epoch.announce(&[own(item.0 % 3)]);
    let undone = Arc::clone(trigger);
    let call = Arc::clone(trigger);
    epoch.escape(move || call.count_call(Call::Escape), move |()| undone.count_call(Call::Undo));
    let before = epoch.view(&own(item.0 % 3), |value| value.map_or(0, |value| value.0))?;
    epoch.put(own(item.0 % 3), Value(before + 1, Arc::clone(trigger)));
    let again = epoch.get(&own(item.0 % 3))?.map_or(0, |value| value.0);
    epoch.put(own(1000 + item.0), Value(again, Arc::clone(trigger)));
    trigger.count_call(Call::DropPayload);
    if item.0 == fails {
        return Err(Refusal(item.0, Arc::clone(trigger)));
    }
    let after = Arc::clone(trigger);
    epoch.after_commit(move || after.count_call(Call::AfterCommit));
    Ok(Outcome(item.0, Arc::clone(trigger)))
}

/// Outcome of a loop; the outer error is a panic.
type LoopOutcome = std::thread::Result<Result<(), LoopError<Refusal, Refusal>>>;

/// Runs a loop; returns its outcome and the results that `then` received.
fn run(
    speculator: &mut Speculator<Rows>,
    rows: &Rows,
    items: std::ops::Range<u64>,
    trigger: &Arc<PanicTrigger>,
    fails: u64,
) -> (LoopOutcome, Vec<u64>) {
    let mut got = Vec::new();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        speculator.run(
            rows,
            &mut (),
            Items(items, Arc::clone(trigger)),
            |epoch, item| body(epoch, item, trigger, fails),
            |(), outcome: Outcome| {
                trigger.count_call(Call::Then);
                got.push(outcome.0);
                Ok(())
            },
        )
    }));
    (ended, got)
}

#[test]
fn a_panic_in_any_call_ends_the_loop_and_nothing_else() {
    for committer in [Committer::Owner, Committer::Caller] {
        for forwarding in [Forwarding::Always, Forwarding::Never] {
            for call in CALLS {
                let mut panics = 0;
                for after in (0..24).chain([31, 47, 63, 95, 143]) {
                    let trigger =
                        Arc::new(PanicTrigger { call, left: AtomicI64::new(after), panics: AtomicU64::new(0) });
                    let cell = format!("{call:?} after {after} calls, {committer:?}, {forwarding:?}");
                    let grain = 1 + after as usize % 3;
                    let traces = usize::from(call == Call::Group);
                    let options = Options::new().workers(3).grain(grain).committer(committer).forwarding(forwarding);
                    let options = options.inject_violations(0.2, after as u64).trace(traces);
                    let mut speculator = Speculator::<Rows>::new(options).unwrap();
                    let rows = Rows(Mutex::default(), Arc::clone(&trigger));
                    // Errors of violated epochs, and one error of a committed iteration.
                    let fails = if call == Call::DropError { 17 } else { u64::MAX };
                    let (ended, got) = run(&mut speculator, &rows, 0..24, &trigger, fails);
                    let is_well = matches!(ended, Ok(Ok(())));
                    assert!(got.iter().copied().eq(0..got.len() as u64), "{cell}: {got:?}");
                    assert!(!is_well || got.len() == 24, "{cell}: it says that all is well, of {}", got.len());
                    // Values dropped here belong to the caller.
                    let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
                    panics += trigger.panics.load(Ordering::Relaxed);
                    trigger.left.store(-1, Ordering::Relaxed);
                    let (next, got) = run(&mut speculator, &rows, 100..110, &trigger, u64::MAX);
                    let told = next.as_ref().map(|ended| {
                        ended.as_ref().map_err(|error| match error {
                            LoopError::Body(error) | LoopError::Store(error) => error.0.to_string(),
                            LoopError::NotDeterministic { operation, site } => format!("{operation} at {site}"),
                            _ => "another".to_owned(),
                        })
                    });
                    let told = told.map_err(|payload| payload.downcast_ref::<String>());
                    assert!(matches!(next, Ok(Ok(()))), "{cell}: the loop after it: {told:?}");
                    assert_eq!(got, (100..110).collect::<Vec<_>>(), "{cell}: the loop after it");
                    assert_eq!((100..110).filter(|n| rows.row(1000 + n).1 == 1).count(), 10, "{cell}: its rows");
                }
                let never = matches!(call, Call::Read | Call::Undo);
                assert!(panics > 0 || never, "{call:?}, {committer:?}, {forwarding:?}: no call has panicked");
            }
        }
    }
}
