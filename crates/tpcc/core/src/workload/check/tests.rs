//! Tests of the checker: the checker accepts the database after a run of the workload, and detects every kind of damage.

use std::ops::ControlFlow;
use std::time::Duration;

use super::rule::Invariant;
use super::*;
use crate::driver;
use crate::driver::runner::threads::ThreadsRunner;
use crate::engines::floor::{Floor, LoadingMaps};
use crate::workload::engine::{OpenTransaction, Session};
use crate::workload::generate::deck::Mix;
use crate::workload::load;
use crate::workload::ops::Ops;
use crate::workload::schema::Scale;
use crate::workload::schema::keys::{CustomerKey, NewOrderKey, OrderKey, OrderLineKey};
use crate::workload::schema::rows::Timestamp;
use crate::workload::schema::tables::{Customer, NewOrder, Order, OrderLine};
use crate::workload::settings::Length;
use crate::workload::txn::StepOrder;

fn loaded(warehouses: u32, seed: u64) -> (Floor, Loaded) {
    let plan = load::Population::new(warehouses, Scale::TINY, seed, Timestamp::at(77));
    let maps = LoadingMaps::default();
    assert_eq!(load::populate(&plan, &maps, 3, &load::RowsDone::default()).unwrap(), load::LoadEnd::Done);
    (Floor::new(maps, &plan.loaded()), plan.loaded())
}

fn run(floor: &Floor, loaded: &Loaded, mix: Mix, steps: StepOrder, transactions: u64, seed: u64) {
    let length = Length { warmup: Duration::ZERO, duration: None, transactions: Some(transactions) };
    let plan = driver::RunPlan {
        warehouses: loaded.warehouses,
        workers: 1,
        terminals: 7,
        mix,
        steps,
        admission: crate::workload::settings::Admission::Fifo,
        placement: itas::Placement::Packed,
        pin: false,
        counters: false,
        clock: crate::workload::settings::ClockKind::Real,
        length,
        seed,
    };
    let measured = driver::run(floor, &ThreadsRunner, loaded, &plan, None, |_| {}).unwrap();
    assert_eq!(measured.stats.completed(), transactions);
}

fn checked(floor: &Floor, loaded: &Loaded) -> Audit {
    check(floor, loaded, 2, &WarehousesDone::default()).unwrap()
}

fn broken(checked: &Audit) -> Vec<Invariant> {
    Invariant::ALL.into_iter().filter(|&rule| checked.findings.of(rule).times > 0).collect()
}

fn change(floor: &Floor, f: impl FnOnce(&mut crate::engines::floor::FloorTransaction<'_>)) {
    let mut session = floor.session(0).unwrap();
    let mut transaction = session.begin().unwrap();
    f(&mut transaction);
    transaction.commit().unwrap();
}

#[test]
fn a_fresh_load_keeps_all_rules() {
    for seed in 0..5 {
        let (floor, loaded) = loaded(3, seed);
        let checked = checked(&floor, &loaded);
        assert!(checked.passed(), "seed {seed}: {:?}", checked.findings);
        let rows = |table: TableId| checked.rows[table as usize];
        assert_eq!(rows(TableId::Warehouse), 3);
        assert_eq!(rows(TableId::District), 6);
        assert_eq!(rows(TableId::Customer), 180);
        assert_eq!(rows(TableId::History), 180);
        assert_eq!(rows(TableId::Order), 180);
        assert_eq!(rows(TableId::NewOrder), 54);
        assert!((5 * 180..=15 * 180).contains(&rows(TableId::OrderLine)));
        assert_eq!(rows(TableId::Item), 100);
        assert_eq!(rows(TableId::Stock), 300);
    }
}

#[test]
fn a_run_of_any_mix_keeps_all_rules() {
    let mixes = [
        Mix::Standard,
        Mix::NoDelivery,
        Mix::Payment,
        Mix::NewOrder,
        Mix::Delivery,
        Mix::StockLevel,
        Mix::OrderStatus,
        Mix::Standard,
    ];
    for steps in [StepOrder::HotLast, StepOrder::Spec] {
        let (floor, loaded) = loaded(2, 5);
        for (seed, mix) in mixes.into_iter().enumerate() {
            run(&floor, &loaded, mix, steps, 500, seed as u64);
            let checked = checked(&floor, &loaded);
            assert!(checked.passed(), "{steps:?} {mix:?}: {:?}", checked.findings);
        }
    }
}

/// Function that damages a loaded database.
type Damage = fn(&mut crate::engines::floor::FloorTransaction<'_>);

#[test]
fn each_damage_is_found() {
    let cases: [(&str, &[Invariant], Damage); 12] = [
        ("W_YTD", &[Invariant::C1, Invariant::C8], |t| {
            t.update::<Warehouse, _>(&WarehouseKey { w: 2 }, |hot, _| hot.ytd.set(hot.ytd.get() + 1)).unwrap();
        }),
        ("D_YTD", &[Invariant::C1, Invariant::C9], |t| {
            t.update::<District, _>(&DistrictKey { w: 1, d: 2 }, |hot, _| hot.ytd.set(hot.ytd.get() - 1)).unwrap();
        }),
        ("D_NEXT_O_ID", &[Invariant::C2], |t| {
            t.update::<District, _>(&DistrictKey { w: 1, d: 2 }, |hot, _| hot.next_o_id.set(40)).unwrap();
        }),
        ("a middle new order gone", &[Invariant::C3, Invariant::C5, Invariant::C11], |t| {
            let key = NewOrderKey { w: 1, d: 1, o: 25 };
            t.remove_first::<NewOrder>(&key, &key).unwrap();
        }),
        ("a new order without order", &[Invariant::C2, Invariant::C3, Invariant::C5, Invariant::C11], |t| {
            t.insert::<NewOrder>(
                &NewOrderKey { w: 1, d: 1, o: 99 },
                &crate::workload::schema::Row { hot: (), cold: () },
            )
            .unwrap();
        }),
        ("a line gone", &[Invariant::C4, Invariant::C6], |t| {
            let key = OrderLineKey { w: 1, d: 1, o: 3, number: 2 };
            t.remove_first::<OrderLine>(&key, &key).unwrap();
        }),
        ("a carrier gone", &[Invariant::C5, Invariant::C7, Invariant::C11], |t| {
            t.update::<Order, _>(&OrderKey { w: 1, d: 1, o: 3 }, |hot, _| hot.carrier_id = None).unwrap();
        }),
        ("a date gone", &[Invariant::C7], |t| {
            let key = OrderLineKey { w: 1, d: 1, o: 3, number: 2 };
            t.update::<OrderLine, _>(&key, |hot, _| hot.delivery_d = Timestamp::NULL).unwrap();
        }),
        ("C_BALANCE", &[Invariant::C10, Invariant::C12], |t| {
            t.update::<Customer, _>(&CustomerKey { w: 2, d: 1, c: 30 }, |hot, _| hot.balance.set(0)).unwrap();
        }),
        ("counters", &[Invariant::Payments, Invariant::Deliveries], |t| {
            let key = CustomerKey { w: 2, d: 1, c: 30 };
            t.update::<Customer, _>(&key, |hot, _| {
                hot.payment_cnt.set(9);
                hot.delivery_cnt.set(9);
            })
            .unwrap();
        }),
        ("stock", &[Invariant::StockRange, Invariant::StockSums], |t| {
            t.update::<Stock, _>(&StockKey { w: 2, i: 100 }, |hot, _| {
                hot.quantity.set(9);
                hot.order_cnt.set(1);
            })
            .unwrap();
        }),
        ("a customer renamed behind the index", &[Invariant::NameIndex], |t| {
            let key = CustomerKey { w: 2, d: 1, c: 30 };
            t.rewrite::<Customer, _>(&key, |row| row.cold.last = crate::workload::schema::text::Text::new(b"X"))
                .unwrap();
        }),
    ];
    for (name, rules, damage) in cases {
        let (floor, loaded) = loaded(2, 3);
        change(&floor, damage);
        let checked = checked(&floor, &loaded);
        assert_eq!(broken(&checked), rules, "{name}: {:?}", checked.findings);
        assert!(!checked.passed());
        for &rule in rules {
            let found = checked.findings.of(rule);
            assert!(found.first.len() as u64 == found.times.min(10), "{name} {rule:?}");
        }
    }
}

#[test]
fn only_the_first_ten_are_shown() {
    let (floor, loaded) = loaded(1, 3);
    change(&floor, |t| {
        for i in 1..=40 {
            t.update::<Stock, _>(&StockKey { w: 1, i }, |hot, _| hot.quantity.set(0)).unwrap();
        }
    });
    let checked = checked(&floor, &loaded);
    let found = checked.findings.of(Invariant::StockRange);
    assert_eq!((found.times, found.first.len()), (40, 10));
    assert_eq!(found.first[0], "warehouse 1, item 1: quantity 0");
}

/// Returns the rows of all tables but HISTORY and META, as text.
fn dump(floor: &Floor) -> Vec<String> {
    let mut reader = floor.reader().unwrap();
    let mut rows = Vec::new();
    macro_rules! all {
        ($($table:ty, $from:expr, $to:expr;)*) => {$(
            reader
                .scan::<$table>(&$from, &$to, |key, row| {
                    rows.push(format!("{key:?} {row:?}"));
                    ControlFlow::Continue(())
                })
                .unwrap();
        )*};
    }
    all! {
        Warehouse, WarehouseKey { w: 0 }, WarehouseKey { w: 9 };
        District, DistrictKey { w: 0, d: 0 }, DistrictKey { w: 9, d: 0 };
        Customer, CustomerKey { w: 0, d: 0, c: 0 }, CustomerKey { w: 9, d: 0, c: 0 };
        Order, OrderKey { w: 0, d: 0, o: 0 }, OrderKey { w: 9, d: 0, o: 0 };
        NewOrder, NewOrderKey { w: 0, d: 0, o: 0 }, NewOrderKey { w: 9, d: 0, o: 0 };
        OrderLine, OrderLineKey { w: 0, d: 0, o: 0, number: 0 }, OrderLineKey { w: 9, d: 0, o: 0, number: 0 };
        Item, ItemKey { i: 0 }, ItemKey { i: u32::MAX };
        Stock, StockKey { w: 0, i: 0 }, StockKey { w: 9, i: 0 };
    }
    rows
}

#[test]
fn a_load_depends_on_its_seed_alone() {
    let load = |seed, threads| {
        let plan = load::Population::new(2, Scale::TINY, seed, Timestamp::at(77));
        let maps = LoadingMaps::default();
        let _ = load::populate(&plan, &maps, threads, &load::RowsDone::default()).unwrap();
        dump(&Floor::new(maps, &plan.loaded()))
    };
    assert!(load(1, 1) == load(1, 5));
    assert!(load(1, 1) != load(2, 1));
}

#[test]
fn the_load_says_what_it_is() {
    let (floor, loaded) = loaded(3, 8);
    assert_eq!(Loaded::read(&mut floor.reader().unwrap()).unwrap(), Some(loaded));
    assert_eq!(driver::next_run(&floor).unwrap(), 1);
    assert_eq!(driver::next_run(&floor).unwrap(), 2);
}

mod determinism {
    use super::*;
    use crate::workload::generate::Random;
    use crate::workload::generate::deck::{Deck, Kind};
    use crate::workload::generate::input::{Input, InputSpace};
    use crate::workload::generate::nurand::Constants;
    use crate::workload::schema::keys::HistoryKey;
    use crate::workload::txn::{self, Scratch, Verdict};

    /// Runs the inputs of `seed` with the given order of steps. Returns all outputs and the final state.
    fn history(steps: StepOrder, seed: u64) -> (Vec<String>, Vec<String>) {
        let (floor, loaded) = loaded(2, 4);
        let constants = Constants::for_run(&mut Random::stream(seed, 1), loaded.c_load);
        let world = InputSpace { scale: loaded.scale, warehouses: 2, constants };
        let (mut random, mut deck) = (Random::stream(seed, 2), Deck::new(Mix::Standard));
        let mut scratch = Scratch::default();
        let mut outputs = Vec::new();
        {
            let mut session = floor.session(0).unwrap();
            for n in 1..=2_000 {
                let kind = deck.draw(&mut random);
                let place = HistoryKey { run: 1, terminal: 0, sequence: n };
                let input = world.input(&mut random, kind, (n as u32 % 2 + 1, 1), Timestamp::at(n), place);
                let mut transaction = session.begin().unwrap();
                let verdict = txn::run(&mut transaction, steps, &input, &mut scratch).unwrap();
                match verdict {
                    Verdict::Commit => transaction.commit().unwrap(),
                    Verdict::Rollback => transaction.rollback().unwrap(),
                };
                let out = &scratch.out;
                outputs.push(match (&input, verdict) {
                    (Input::NewOrder(input), Verdict::Rollback) => {
                        assert!(input.rolls_back);
                        let out = &out.new_order;
                        format!("{:?} {:?} {:?} {}", out.customer, out.last, out.credit, out.o_id)
                    }
                    (Input::NewOrder(_), _) => format!("{:?}", out.new_order),
                    (Input::Payment(_), _) => format!("{:?}", out.payment),
                    (Input::OrderStatus(_), _) => format!("{:?}", out.order_status),
                    (Input::Delivery(_), _) => format!("{:?}", out.delivery),
                    (Input::StockLevel(_), _) => format!("{:?}", out.stock_level),
                });
                assert_eq!(verdict == Verdict::Rollback, kind == Kind::NewOrder && out.new_order.invalid);
            }
        }
        let checked = checked(&floor, &loaded);
        assert!(checked.passed(), "{:?}", checked.findings);
        (outputs, dump(&floor))
    }

    #[test]
    fn the_order_of_steps_changes_nothing_that_is_seen() {
        for seed in [7, 8] {
            let (hot_last, spec) = (history(StepOrder::HotLast, seed), history(StepOrder::Spec, seed));
            for (n, (a, b)) in hot_last.0.iter().zip(&spec.0).enumerate() {
                assert_eq!(a, b, "seed {seed}, output {n}");
            }
            assert!(hot_last.1 == spec.1, "seed {seed}: states differ");
        }
        assert!(history(StepOrder::HotLast, 7).0 != history(StepOrder::HotLast, 9).0);
    }
}
