//! Isolation tests 1 to 9 of clause 3.4.2, with both orders of a transaction's steps, on threads and on fibers of one
//! thread.
//!
//! A transaction "waits" if the lock table counts a waiter, and the transaction still waits one second later.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sched_steps::fiber;
use storage::Isolation::{self, ReadCommitted, Serializable};
use storage::Options;
use storage::disk::MemDisk;
use tpcc_core::checkers::acid::{Running, TestDatabase};

/// Warehouse, district and customer of the tests.
const C: (u32, u8, u32) = (1, 1, 7);
/// Time for which a transaction is held while another one waits.
const HELD: Duration = Duration::from_secs(1);
/// Maximum time of a wait in a test; the test fails after it.
const PATIENCE: Duration = Duration::from_secs(600);

fn both_orders(test: impl Fn(&Test)) {
    for (hot_last, fibers) in [(false, false), (true, false), (false, true), (true, true)] {
        let options = Options::new().buffer_pool(16 << 20).log_segment(4 << 20);
        let load = if fibers { TestDatabase::load_for_fibers } else { TestDatabase::load };
        test(&Test { test_db: load(Arc::new(MemDisk::new()), options, 1).unwrap(), hot_last, fibers });
    }
}

struct Test {
    test_db: TestDatabase,
    hot_last: bool,
    fibers: bool,
}

impl Test {
    fn begin(&self) -> Running<'_> {
        self.begin_at(Serializable)
    }

    fn begin_at(&self, isolation: Isolation) -> Running<'_> {
        self.test_db.begin(isolation, self.hot_last).unwrap()
    }

    /// Runs a transaction and commits it.
    fn committed<T>(&self, work: impl FnOnce(&mut Running<'_>) -> Result<T, String>) -> T {
        let mut tx = self.begin();
        let answer = work(&mut tx).unwrap();
        tx.commit().unwrap();
        answer
    }

    fn new_order(&self, items: &[u32]) -> u32 {
        self.committed(|tx| tx.new_order(C, items, &mut |_, _| {})).0
    }

    fn waits(&self) -> u64 {
        self.test_db.database().stats().lock_waits
    }

    /// Waits until the number of lock waits differs from `before`, and then for the time `HELD`.
    fn until_somebody_waits(&self, before: u64) {
        let start = Instant::now();
        while self.waits() == before {
            assert!(start.elapsed() < PATIENCE, "nobody waits");
            rest();
        }
        let start = Instant::now();
        while start.elapsed() < HELD {
            rest();
        }
    }

    /// Runs `t2` on a thread or fiber of its own, checks that it waits, runs `release`, and returns the result of `t2`.
    fn waits_until<R: Send>(&self, t2: impl FnOnce() -> R + Send, release: impl FnOnce()) -> R {
        if self.fibers {
            let (before, is_over) = (self.waits(), Cell::new(false));
            let ended = self.test_db.executor().unwrap().scope(|scope| {
                let t2 = scope.spawn(|| {
                    let answer = t2();
                    is_over.set(true);
                    answer
                });
                let first = scope.spawn(|| {
                    self.until_somebody_waits(before);
                    assert!(!is_over.get(), "it does not wait any more");
                    release();
                });
                first.join().unwrap();
                t2.join().unwrap()
            });
            return ended.unwrap();
        }
        std::thread::scope(|scope| {
            let before = self.waits();
            let t2 = scope.spawn(t2);
            self.until_somebody_waits(before);
            assert!(!t2.is_finished(), "it does not wait any more");
            release();
            t2.join().unwrap()
        })
    }
}

/// Lets other fibers run, or sleeps for a millisecond.
fn rest() {
    if fiber::is_fiber() {
        fiber::yield_now();
    } else {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn nothing(_: &'static str, _: bool) {}

#[test]
fn test_1_order_status_waits_for_a_new_order_that_commits() {
    both_orders(|test| {
        let mut t1 = test.begin();
        let (o, lines) = t1.new_order(C, &[3, 9, 27], &mut nothing).unwrap();
        let status =
            test.waits_until(|| test.committed(|tx| tx.order_status(C, &mut nothing)), || t1.commit().unwrap());
        assert_eq!(status.o, o);
        assert_eq!(status.carrier, None);
        assert_eq!(status.lines, lines.iter().map(|(item, price)| (*item, 1, *price)).collect::<Vec<_>>());
        assert_eq!(test.test_db.broken().unwrap(), [] as [String; 0]);
    });
}

#[test]
fn test_2_order_status_waits_for_a_new_order_that_rolls_back() {
    both_orders(|test| {
        let t0 = test.committed(|tx| tx.order_status(C, &mut nothing));
        let mut t1 = test.begin();
        let unused = t1.unused_item();
        t1.new_order(C, &[3, 9, unused], &mut nothing).unwrap();
        let t2 = test.waits_until(|| test.committed(|tx| tx.order_status(C, &mut nothing)), || t1.rollback().unwrap());
        assert_eq!(t2, t0);
        assert_eq!(test.test_db.broken().unwrap(), [] as [String; 0]);
    });
}

#[test]
fn test_3_new_order_waits_for_a_new_order_that_commits() {
    both_orders(|test| {
        let mut t1 = test.begin();
        let first = t1.new_order(C, &[1, 2], &mut nothing).unwrap().0;
        let second = test.waits_until(|| test.new_order(&[4, 5]), || t1.commit().unwrap());
        assert_eq!(second, first + 1);
        assert_eq!(test.committed(|tx| tx.next_order(C.0, C.1)), second + 1);
        assert_eq!(test.test_db.broken().unwrap(), [] as [String; 0]);
    });
}

#[test]
fn test_4_new_order_waits_for_a_new_order_that_rolls_back() {
    both_orders(|test| {
        let next = test.committed(|tx| tx.next_order(C.0, C.1));
        let mut t1 = test.begin();
        let unused = t1.unused_item();
        assert_eq!(t1.new_order(C, &[1, 2, unused], &mut nothing).unwrap().0, next);
        let second = test.waits_until(|| test.new_order(&[4, 5]), || t1.rollback().unwrap());
        assert_eq!(second, next);
        assert_eq!(test.committed(|tx| tx.next_order(C.0, C.1)), next + 1);
        assert_eq!(test.test_db.broken().unwrap(), [] as [String; 0]);
    });
}

/// Tests 5 and 6: a Payment by a customer whose order a Delivery delivers.
fn payment_against_delivery(commits: bool) {
    both_orders(|test| {
        let (w, d) = (C.0, C.1);
        let mut look = test.begin();
        let o = look.take_new_order(w, d).unwrap().unwrap();
        look.rollback().unwrap();
        let (c, sum, _, _) = test.committed(|tx| tx.order(w, d, o)).unwrap();
        let customer = (w, d, c);
        let before = test.committed(|tx| tx.figures(customer)).balance;
        let mut t1 = test.begin();
        assert_eq!(t1.delivery(w, &mut nothing).unwrap()[0], Some(o));
        test.waits_until(
            || test.committed(|tx| tx.payment(customer, 12_345)),
            || if commits { t1.commit().unwrap() } else { t1.rollback().unwrap() },
        );
        let after = test.committed(|tx| tx.figures(customer)).balance;
        assert_eq!(after, before - 12_345 + if commits { sum } else { 0 });
        let (.., is_new) = test.committed(|tx| tx.order(w, d, o)).unwrap();
        assert_eq!(is_new, !commits);
        assert_eq!(test.test_db.broken().unwrap(), [] as [String; 0]);
    });
}

#[test]
fn test_5_payment_waits_for_a_delivery_that_commits() {
    payment_against_delivery(true);
}

#[test]
fn test_6_payment_waits_for_a_delivery_that_rolls_back() {
    payment_against_delivery(false);
}

/// Case A: the price change waits for the order.
#[test]
fn test_7_prices_stay_during_a_new_order() {
    both_orders(|test| {
        let (x, y) = (11, 12);
        let prices = |tx: &mut Running<'_>| Ok((tx.price(x)?, tx.price(y)?));
        let (old_x, old_y) = test.committed(prices);
        std::thread::scope(|scope| {
            let mut t3 = None;
            let mut t2 = test.begin();
            let mut hold = |table: &'static str, _: bool| {
                if table == "item" && t3.is_none() {
                    let before = test.waits();
                    t3 = Some(scope.spawn(|| {
                        test.committed(|tx| {
                            tx.raise_price(x)?;
                            tx.raise_price(y)
                        });
                    }));
                    test.until_somebody_waits(before);
                }
            };
            let (_, lines) = t2.new_order(C, &[x, y, x], &mut hold).unwrap();
            assert_eq!(lines, [(x, old_x), (y, old_y), (x, old_x)]);
            let t3 = t3.unwrap();
            assert!(!t3.is_finished(), "it does not wait");
            t2.commit().unwrap();
            t3.join().unwrap();
        });
        assert_eq!(test.committed(prices), (old_x * 11 / 10, old_y * 11 / 10));
    });
}

/// Test 8 with a Delivery at the level `isolation`; returns the result of its second search for an order.
fn delivery_against_new_order(test: &Test, isolation: Isolation, waits: bool) -> Option<u32> {
    let (w, d) = (C.0, C.1);
    while test.committed(|tx| tx.take_new_order(w, d)).is_some() {}
    std::thread::scope(|scope| {
        let mut t2 = None;
        let mut t1 = test.begin_at(isolation);
        let mut hold = |table: &'static str, found: bool| {
            if table == "new_order" && !found && t2.is_none() {
                let before = test.waits();
                let order = scope.spawn(|| test.new_order(&[5, 6]));
                if waits {
                    test.until_somebody_waits(before);
                    assert!(!order.is_finished(), "it does not wait");
                } else {
                    let start = Instant::now();
                    while !order.is_finished() {
                        assert!(start.elapsed() < PATIENCE, "it waits");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                t2 = Some(order);
            }
        };
        assert_eq!(t1.delivery(w, &mut hold).unwrap()[0], None);
        let again = t1.take_new_order(w, d).unwrap();
        t1.commit().unwrap();
        t2.unwrap().join().unwrap();
        again
    })
}

/// Case A: the order waits for the delivery.
#[test]
fn test_8_a_district_without_orders_stays_so_during_a_delivery() {
    both_orders(|test| assert_eq!(delivery_against_new_order(test, Serializable, true), None));
}

/// Negative control: test 8 fails at a weaker level.
#[test]
fn test_8_shows_a_phantom_under_read_committed() {
    both_orders(|test| {
        let next = test.committed(|tx| tx.next_order(C.0, C.1));
        assert_eq!(delivery_against_new_order(test, ReadCommitted, false), Some(next));
    });
}

/// Case A: the order waits for the Order-Status.
#[test]
fn test_9_the_newest_order_stays_so_during_an_order_status() {
    both_orders(|test| {
        std::thread::scope(|scope| {
            let mut t2 = None;
            let mut t1 = test.begin();
            let mut hold = |table: &'static str, _: bool| {
                if table == "order" && t2.is_none() {
                    let before = test.waits();
                    t2 = Some(scope.spawn(|| test.new_order(&[5, 6])));
                    test.until_somebody_waits(before);
                }
            };
            let first = t1.order_status(C, &mut hold).unwrap();
            let again = t1.order_status(C, &mut nothing).unwrap();
            assert_eq!(again, first);
            let t2 = t2.unwrap();
            assert!(!t2.is_finished(), "it does not wait");
            t1.commit().unwrap();
            let o = t2.join().unwrap();
            assert_ne!(o, first.o);
            assert_eq!(test.committed(|tx| tx.order_status(C, &mut nothing)).o, o);
        });
        assert_eq!(test.test_db.broken().unwrap(), [] as [String; 0]);
    });
}
