//! Starts the threads of a command. If a requested thread cannot be started, the threads started before it end without work,
//! and an error names the limit that was reached.

use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::workload::error::Error;

/// Remedy if the system refuses to start a thread.
const MORE: &str = "allow more (ulimit -u; pids.max of a container), or ask for fewer";

/// Error: the system provided fewer threads than a command needs.
#[derive(Debug, thiserror::Error)]
#[error("the system gave {given} of {wanted} threads ({source}); {MORE}")]
pub struct SpawnError {
    /// Number of threads that were requested.
    wanted: usize,
    /// Number of threads that started.
    given: usize,
    /// Error of starting the next thread.
    source: io::Error,
}

impl SpawnError {
    fn of_one(source: io::Error) -> SpawnError {
        SpawnError { wanted: 1, given: 0, source }
    }
}

impl From<SpawnError> for Error {
    fn from(error: SpawnError) -> Error {
        let SpawnError { wanted, given, source } = error;
        Error::failed(format!("the system gave {given} of {wanted} threads: {source}")).help(MORE)
    }
}

/// Error of work on several threads.
#[derive(Debug, thiserror::Error)]
pub enum SharedWorkError<E> {
    /// The system provided too few threads. No work was begun.
    #[error(transparent)]
    Threads(SpawnError),
    /// The work failed.
    #[error(transparent)]
    Work(E),
}

impl<E> SharedWorkError<E> {
    /// Converts to the error of a command. `convert` converts an error of the work.
    pub fn into_error(self, convert: impl FnOnce(E) -> Error) -> Error {
        match self {
            SharedWorkError::Threads(error) => error.into(),
            SharedWorkError::Work(error) => convert(error),
        }
    }
}

/// Handle of a thread that has started.
pub struct ThreadHandle<'scope, T>(ScopedJoinHandle<'scope, Option<T>>);

impl<T> ThreadHandle<'_, T> {
    /// Waits for the end of the thread. If the thread has panicked, the error is the payload of the panic.
    pub fn join(self) -> std::thread::Result<T> {
        // A thread has no result only if its work was cancelled, and no caller has the handle of such a thread.
        self.0.join().and_then(|result| result.ok_or_else(|| Box::new("a thread that did not begin") as _))
    }

    /// Returns true if the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

/// Runs each closure of `works` on a thread of its own. A thread's name is `name` and its number. No work begins before all
/// threads exist.
///
/// # Errors
/// [`SpawnError`]: no work was begun.
pub fn spawn_all<'scope, T, F>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    works: impl IntoIterator<Item = F>,
) -> Result<Vec<ThreadHandle<'scope, T>>, SpawnError>
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
                return Err(SpawnError { wanted: given + 1 + works.count(), given, source });
            }
        }
    }
    let _ = gate.set(true);
    Ok(running)
}

/// Runs `work` on a new thread.
///
/// # Errors
/// [`SpawnError`] if the thread cannot be started.
pub fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ThreadHandle<'scope, T>, SpawnError> {
    let thread = Builder::new().name(name.to_owned()).spawn_scoped(scope, || Some(work()));
    thread.map(ThreadHandle).map_err(SpawnError::of_one)
}

/// Runs `work` on a new thread that is never joined.
///
/// # Errors
/// [`SpawnError`] if the thread cannot be started.
pub fn unjoined(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), SpawnError> {
    let thread = Builder::new().name(name.to_owned()).spawn(work);
    thread.map(drop).map_err(SpawnError::of_one)
}

/// Runs each closure of `works` on a thread of its own. Returns their results in the same order.
///
/// # Errors
/// [`SpawnError`]: no work was begun.
///
/// # Panics
/// Panics with the payload of a thread that has panicked.
pub fn run_each<T: Send, F: FnOnce() -> T + Send>(
    name: &str,
    works: impl IntoIterator<Item = F>,
) -> Result<Vec<T>, SpawnError> {
    std::thread::scope(|scope| {
        let threads = spawn_all(scope, name, works)?;
        let join = |thread: ThreadHandle<'_, T>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok(threads.into_iter().map(join).collect())
    })
}

/// Runs `work` on the calling thread and on `others` more threads. Each call of `work` takes parts of a shared task until no
/// part is left.
///
/// # Errors
/// [`SpawnError`]: no work was begun.
pub fn run_shared(others: usize, name: &str, work: impl Fn() + Sync) -> Result<(), SpawnError> {
    std::thread::scope(|scope| {
        let _others = spawn_all(scope, name, std::iter::repeat_n(&work, others))?;
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
            let threads = spawn_all(scope, "adder", (0..5).map(|i| move || i * i)).unwrap();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(sum, 30);
        let count = AtomicUsize::new(0);
        run_shared(3, "counter", || _ = count.fetch_add(1, Ordering::Relaxed)).unwrap();
        assert_eq!(count.into_inner(), 4);
    }

    #[test]
    fn a_name_that_no_thread_can_have_lets_none_begin() {
        // A test can cause a failed start only by a zero byte in the thread's name, which Rust rejects.
        let refused =
            std::panic::catch_unwind(|| std::thread::scope(|scope| spawn_all(scope, "a\0b", [|| ()]).is_err()));
        assert!(refused.unwrap_or(true));
    }
}
