//! `tpcc`.
mod check;
mod driver;
mod engine;
mod floor;
mod generate;
mod glue;
mod load;
mod ops;
mod schema;
mod txn;

fn main() {
    use std::time::{Duration, Instant};
    let args: Vec<String> = std::env::args().collect();
    let get = |k: &str, d: &str| args.iter().position(|a| a == k).map_or(d.to_string(), |i| args[i + 1].clone());
    let wh: u32 = get("-w", "1").parse().unwrap();
    let secs: u64 = get("-s", "5").parse().unwrap();
    let workers: usize = get("-t", "1").parse().unwrap();
    let terminals: u32 = get("-T", &(10 * wh).to_string()).parse().unwrap();
    let pool: u64 = get("-p", "6144").parse().unwrap();
    let data = get("-d", "/work/bench-data");
    let sync = args.iter().any(|a| a == "--sync");
    let prefetch = !args.iter().any(|a| a == "--no-prefetch");
    let plain = args.iter().any(|a| a == "--plain");
    let t = Instant::now();
    let durability = if sync { storage::Durability::Sync } else { storage::Durability::Async };
    let fresh = !std::path::Path::new(&data).join("control").exists();
    let db = storage::Options::new().buffer_pool(pool << 20).durability(durability)
        .latches(if plain { storage::LatchKind::Plain } else { storage::LatchKind::Optimistic })
        .open(&data).unwrap();
    println!("open {:?}", t.elapsed());
    let store = glue::storage::Store::new(db, storage::Isolation::Serializable, durability, prefetch).unwrap();
    if fresh {
        let t = Instant::now();
        let plan = load::Plan::new(wh, schema::Scale::FULL, 42, schema::rows::When::at(1));
        let r = load::populate(&plan, &store, 2, &load::Progress::default()).unwrap();
        store.finish_load(&plan.loaded()).unwrap();
        println!("{r:?} load {:?}", t.elapsed());
    }
    use engine::Engine;
    let loaded = schema::meta::Loaded::read(&mut store.reader().unwrap()).unwrap().unwrap();
    let t = Instant::now();
    println!("preload {:?} {:?}", store.database().preload(), t.elapsed());
    let length = driver::Length { warmup: Duration::from_secs(1), duration: Some(Duration::from_secs(secs)), transactions: None };
    let plan = driver::Plan { warehouses: wh, workers, terminals, mix: generate::deck::Mix::Standard, steps: txn::Steps::HotLast, length, seed: 1 };
    match driver::run(&store, &loaded, &plan, |_| ()) {
        Ok(m) => { println!("{:.0} /s {}", m.stats.completed() as f64 / m.seconds, m.stats.completed());
        for k in generate::deck::Kind::ALL { let s = &m.stats.kinds[k as usize]; println!("{} {} {:?} {:?}", k.name(), s.count, s.service.mean_us(), s.service.quantile_us(0.99)); }
        println!("{:?}", store.database().stats());}
        Err(e) => println!("{e}"),
    }
    let t = Instant::now();
    store.close().unwrap();
    println!("close {:?}", t.elapsed());
}
