//! `tpcc`.
mod check;
mod driver;
mod engine;
mod floor;
mod generate;
mod load;
mod ops;
mod schema;
mod txn;

fn main() {
    use std::time::{Duration, Instant};
    let t = Instant::now();
    let plan = load::Plan::new(1, schema::Scale::FULL, 42, schema::rows::When::at(1));
    let loading = floor::Loading::new();
    let r = load::populate(&plan, &loading, 1, &load::Progress::default());
    println!("{r:?} load {:?}", t.elapsed());
    let loaded = plan.loaded();
    let t = Instant::now();
    let floor = floor::Floor::new(loading, &loaded);
    println!("into {:?}", t.elapsed());
    let length = driver::Length { warmup: Duration::from_secs(1), duration: Some(Duration::from_secs(5)), transactions: None };
    let plan = driver::Plan { warehouses: 1, workers: 1, terminals: 10, mix: generate::deck::Mix::Standard, steps: txn::Steps::HotLast, length, seed: 1 };
    match driver::run(&floor, &loaded, &plan, |t| println!("{}", t.throughput_per_s)) {
        Ok(m) => { println!("{} {}", m.stats.completed() as f64 / m.seconds, m.stats.completed());
        for k in generate::deck::Kind::ALL { let s = &m.stats.kinds[k as usize]; println!("{} {} {:?} {:?}", k.name(), s.count, s.service.mean_us(), s.service.quantile_us(0.99)); }
        println!("{:?}", m.stats.drawn);}
        Err(e) => println!("{e}"),
    }
}
