//! Concurrent execution of tasks. Several tasks may share a preparation, which is made once.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Task of a concurrent run.
pub(super) trait Task: Sync {
    /// Returns the name of the preparation that the task requires, if any. The preparation is called for each task that
    /// requires it, and finds the result of the first call.
    fn preparation(&self) -> Option<String>;
}

struct State<'a, T, E> {
    waiting: Vec<&'a T>,
    /// Names of the preparations in progress.
    under_way: HashSet<String>,
    failed: Option<E>,
}

/// Runs all tasks on `lanes` threads, in order. While one lane makes a preparation, other tasks that require it wait, and
/// later tasks without it are started first. `prepare` and `finish` get the number of their lane.
///
/// # Errors
/// Returns the first error of `prepare` or `finish`. No task is started after it; running tasks continue to their end.
pub(super) fn run_all<T: Task, P, E: Send>(
    tasks: &[T],
    lanes: usize,
    prepare: impl Fn(&T, usize) -> Result<P, E> + Sync,
    finish: impl Fn(&T, P, usize) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let state = Mutex::new(State { waiting: tasks.iter().collect(), under_way: HashSet::new(), failed: None });
    let changed = Condvar::new();
    let lane = |number: usize| {
        while let Some(task) = next(&state, &changed) {
            let preparing = PreparationGuard { state: &state, changed: &changed, name: task.preparation() };
            let prepared = prepare(task, number).map_err(|e| failed(&state, &changed, e));
            drop(preparing);
            let Ok(prepared) = prepared else { return };
            if let Err(e) = finish(task, prepared, number) {
                failed(&state, &changed, e);
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 0..lanes.max(1) {
            let lane = &lane;
            scope.spawn(move || lane(number));
        }
    });
    let failed = lock(&state).failed.take();
    failed.map_or(Ok(()), Err)
}

/// Records an error. No task is started afterwards.
fn failed<T, E>(state: &Mutex<State<'_, T, E>>, changed: &Condvar, error: E) {
    lock(state).failed.get_or_insert(error);
    changed.notify_all();
}

/// Guard of a preparation in progress. Its drop wakes the tasks that wait for the preparation. In a panic, it also removes
/// all tasks that are not started.
struct PreparationGuard<'s, 'a, T, E> {
    state: &'s Mutex<State<'a, T, E>>,
    changed: &'s Condvar,
    name: Option<String>,
}

impl<T, E> Drop for PreparationGuard<'_, '_, T, E> {
    fn drop(&mut self) {
        let mut held = lock(self.state);
        if let Some(name) = &self.name {
            held.under_way.remove(name);
        }
        if std::thread::panicking() {
            held.waiting.clear();
        }
        drop(held);
        self.changed.notify_all();
    }
}

/// Waits until the preparation of some task is not in progress, and returns the first such task. Returns `None` if all tasks
/// have been started or one has failed.
fn next<'a, T: Task, E>(state: &Mutex<State<'a, T, E>>, changed: &Condvar) -> Option<&'a T> {
    let mut held = lock(state);
    loop {
        if held.failed.is_some() || held.waiting.is_empty() {
            return None;
        }
        let free = |task: &&T| task.preparation().is_none_or(|name| !held.under_way.contains(&name));
        if let Some(at) = held.waiting.iter().position(free) {
            let task = held.waiting.remove(at);
            held.under_way.extend(task.preparation());
            return Some(task);
        }
        held = changed.wait(held).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Locks a mutex and ignores poisoning: a thread that panics leaves no inconsistent state behind these locks.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    struct NumberedTask(usize, Option<&'static str>);

    impl Task for NumberedTask {
        fn preparation(&self) -> Option<String> {
            self.1.map(str::to_owned)
        }
    }

    #[test]
    fn a_preparation_is_made_by_one_lane_while_others_go_on() {
        let tasks = [(0, Some("a")), (1, Some("a")), (2, None), (3, Some("b")), (4, Some("a")), (5, None)];
        let tasks = tasks.map(|(number, preparation)| NumberedTask(number, preparation));
        let (making, made) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let done = Mutex::new(Vec::new());
        let prepare = |task: &NumberedTask, _| {
            if let Some(name) = task.1 {
                assert!(!lock(&making).contains(&name), "two lanes make {name}");
                lock(&making).push(name);
                if !lock(&made).contains(&name) {
                    std::thread::sleep(Duration::from_millis(20));
                    lock(&made).push(name);
                }
                lock(&making).retain(|other| *other != name);
            }
            Ok::<_, ()>(task.0)
        };
        let finish = |_: &NumberedTask, number, _| {
            lock(&done).push(number);
            Ok(())
        };
        run_all(&tasks, 3, prepare, finish).unwrap();
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, [0, 1, 2, 3, 4, 5]);
        assert_eq!(made.into_inner().unwrap().len(), 2);
    }

    #[test]
    fn a_failed_preparation_is_not_made_again() {
        let tasks = [0, 1, 2].map(|number| NumberedTask(number, Some("a")));
        let begun = Mutex::new(0);
        let prepare = |_: &NumberedTask, _| {
            *lock(&begun) += 1;
            std::thread::sleep(Duration::from_millis(20));
            Err::<(), _>("no")
        };
        assert_eq!(run_all(&tasks, 3, prepare, |_, (), _| Ok(())), Err("no"));
        assert_eq!(begun.into_inner().unwrap(), 1);
    }

    #[test]
    fn a_preparation_that_panics_ends_all_lanes() {
        let tasks = [0, 1, 2].map(|number| NumberedTask(number, Some("a")));
        let prepare = |_: &NumberedTask, _| -> Result<(), ()> { panic!("a preparation panics") };
        let ended =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run_all(&tasks, 3, prepare, |_, (), _| Ok(()))));
        assert!(ended.is_err());
    }

    #[test]
    fn nothing_is_begun_after_a_failure() {
        for failing in ["prepare", "finish"] {
            let tasks = [0, 1, 2, 3].map(|number| NumberedTask(number, Some("a")));
            let begun = Mutex::new(0);
            let prepare = |task: &NumberedTask, _| {
                *lock(&begun) += 1;
                if failing == "prepare" && task.0 == 1 { Err("no") } else { Ok(()) }
            };
            let finish =
                |task: &NumberedTask, (), _| if failing == "finish" && task.0 == 1 { Err("no") } else { Ok(()) };
            assert_eq!(run_all(&tasks, 1, prepare, finish), Err("no"));
            assert_eq!(begun.into_inner().unwrap(), 2, "{failing}");
        }
    }
}
