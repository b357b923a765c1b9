//! Panics that are not reported: panics of destructors and undo closures of discarded epochs.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls code of the embedder and discards its panic.
pub(crate) fn quietly(call: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
        discard(payload);
    }
}

/// Drops a panic payload without reporting it. The destructor of the payload may panic in turn.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    /// Maximum number of payloads to drop, each from the destructor of the previous payload; the next payload is leaked.
    const MOST: usize = 16;
    let mut payload = payload;
    for _ in 0..MOST {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    std::mem::forget(payload);
}

/// Drops all values of a vector, one by one. Returns the first panic of a destructor as an error.
pub(crate) fn drop_each<T>(values: &mut Vec<T>) -> std::thread::Result<()> {
    let mut first_panic = Ok(());
    for value in values.drain(..) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
            match first_panic {
                Ok(()) => first_panic = Err(payload),
                Err(_) => discard(payload),
            }
        }
    }
    first_panic
}

/// Values of an epoch. If values are left when the vector is dropped, they are discarded, and panics of their destructors
/// are not reported.
pub(crate) struct QuietVec<T>(pub(crate) Vec<T>);

impl<T> QuietVec<T> {
    /// Drops all values without reporting panics of their destructors.
    pub(crate) fn clear(&mut self) {
        if let Err(payload) = drop_each(&mut self.0) {
            discard(payload);
        }
    }
}

impl<T> Drop for QuietVec<T> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Value of an epoch that may be discarded. A panic of its destructor is not reported, unless the value was taken.
pub(crate) struct Quiet<T>(Option<T>);

impl<T> Quiet<T> {
    pub(crate) fn new(value: T) -> Quiet<T> {
        Quiet(Some(value))
    }

    /// Takes the value, because its epoch is not discarded.
    pub(crate) fn take(mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T> Drop for Quiet<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            quietly(|| drop(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics in its destructor with the next bomb.
    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::resume_unwind(Box::new(Bomb(self.0 - 1)));
            }
        }
    }

    #[test]
    fn however_many_payloads_panic_none_is_reported() {
        for depth in [0, 1, 3, 40] {
            quietly(|| drop(Bomb(depth)));
            drop(Quiet::new(Bomb(depth)));
            drop(QuietVec(vec![Bomb(depth), Bomb(0), Bomb(depth)]));
            discard(Box::new(Bomb(depth)));
        }
        let first = drop_each(&mut vec![Bomb(0), Bomb(2), Bomb(1)]).unwrap_err();
        assert_eq!(first.downcast_ref::<Bomb>().map(|bomb| bomb.0), Some(1));
        discard(first);
    }
}
