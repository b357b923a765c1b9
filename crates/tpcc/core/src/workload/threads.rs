//! Threads of a command: all that are wanted begin, or those that did end and an error says which limit is short.

use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::workload::error::Error;

/// What to do about threads that are refused.
const MORE: &str = "allow more (ulimit -u; pids.max of a container), or ask for fewer";

/// The system gives fewer threads than a command needs.
#[derive(Debug, thiserror::Error)]
#[error("the system gave {given} of {wanted} threads ({source}); {MORE}")]
pub struct NoThread {
    /// Threads asked for.
    wanted: usize,
    /// Threads that began.
    given: usize,
    /// Why the next one did not.
    source: io::Error,
}

impl NoThread {
    fn of_one(source: io::Error) -> NoThread {
        NoThread { wanted: 1, given: 0, source }
    }
}

impl From<NoThread> for Error {
    fn from(error: NoThread) -> Error {
        let NoThread { wanted, given, source } = error;
        Error::failed(format!("the system gave {given} of {wanted} threads: {source}")).help(MORE)
    }
}

/// Why work on several threads did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum SharedWorkError<E> {
    /// The system gave too few threads; nothing was done.
    #[error(transparent)]
    Threads(NoThread),
    /// The work failed.
    #[error(transparent)]
    Work(E),
}

impl<E> SharedWorkError<E> {
    /// The error of a command; `told` says what the work's own is.
    pub fn told(self, told: impl FnOnce(E) -> Error) -> Error {
        match self {
            SharedWorkError::Threads(error) => error.into(),
            SharedWorkError::Work(error) => told(error),
        }
    }
}

/// A thread that has begun.
pub struct ThreadHandle<'scope, T>(ScopedJoinHandle<'scope, Option<T>>);

impl<T> ThreadHandle<'_, T> {
    /// Waits for its end; what it has panicked with is the error.
    pub fn join(self) -> std::thread::Result<T> {
        // Without a result it was told not to begin, and no caller has its handle.
        self.0.join().and_then(|result| result.ok_or_else(|| Box::new("a thread that did not begin") as _))
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

/// Runs each of these on a thread of its own, whose name is `name` and its number. None begins its work before all threads
/// are there.
///
/// # Errors
/// [`NoThread`]: none has done anything.
pub fn all<'scope, T, F>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    works: impl IntoIterator<Item = F>,
) -> Result<Vec<ThreadHandle<'scope, T>>, NoThread>
where
    T: Send + 'scope,
    F: FnOnce() -> T + Send + 'scope,
{
    let (gate, mut works) = (Arc::new(OnceLock::<bool>::new()), works.into_iter());
    let mut running = Vec::new();
    while let Some(work) = works.next() {
        let theirs = Arc::clone(&gate);
        let begins = move || theirs.wait().then(work);
        match Builder::new().name(format!("{name} {}", running.len())).spawn_scoped(scope, begins) {
            Ok(thread) => running.push(ThreadHandle(thread)),
            Err(source) => {
                let given = running.len();
                let _ = gate.set(false);
                running.into_iter().for_each(|thread| drop(thread.join()));
                return Err(NoThread { wanted: given + 1 + works.count(), given, source });
            }
        }
    }
    let _ = gate.set(true);
    Ok(running)
}

/// Runs `work` on a thread.
///
/// # Errors
/// [`NoThread`]
pub fn one<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ThreadHandle<'scope, T>, NoThread> {
    let thread = Builder::new().name(name.to_owned()).spawn_scoped(scope, || Some(work()));
    thread.map(ThreadHandle).map_err(NoThread::of_one)
}

/// Runs `work` on a thread that no other waits for.
///
/// # Errors
/// [`NoThread`]
pub fn unjoined(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), NoThread> {
    let thread = Builder::new().name(name.to_owned()).spawn(work);
    thread.map(drop).map_err(NoThread::of_one)
}

/// Runs each of these on a thread of its own, and returns their results in the same order.
///
/// # Errors
/// [`NoThread`]: none has done anything.
///
/// # Panics
/// With what a thread has panicked with.
pub fn apart<T: Send, F: FnOnce() -> T + Send>(
    name: &str,
    works: impl IntoIterator<Item = F>,
) -> Result<Vec<T>, NoThread> {
    std::thread::scope(|scope| {
        let threads = all(scope, name, works)?;
        let join = |thread: ThreadHandle<'_, T>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok(threads.into_iter().map(join).collect())
    })
}

/// Runs `work` on the calling thread and on so many others: parts of one task, which each takes as it gets to them.
///
/// # Errors
/// [`NoThread`]: nothing was done.
pub fn together(others: usize, name: &str, work: impl Fn() + Sync) -> Result<(), NoThread> {
    std::thread::scope(|scope| {
        let _others = all(scope, name, std::iter::repeat_n(&work, others))?;
        work();
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn threads_run_what_they_were_given() {
        let sum = std::thread::scope(|scope| {
            let threads = all(scope, "adder", (0..5).map(|i| move || i * i)).unwrap();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(sum, 30);
        let count = AtomicUsize::new(0);
        together(3, "counter", || _ = count.fetch_add(1, Ordering::Relaxed)).unwrap();
        assert_eq!(count.into_inner(), 4);
    }

    #[test]
    fn a_name_that_no_thread_can_have_lets_none_begin() {
        // The only refusal that a test can bring about: Rust refuses zeros in names.
        let refused = std::panic::catch_unwind(|| std::thread::scope(|scope| all(scope, "a\0b", [|| ()]).is_err()));
        assert!(refused.unwrap_or(true));
    }
}
