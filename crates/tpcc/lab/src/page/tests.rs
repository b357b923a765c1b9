//! Pages of arbitrary results: every result has a page, and the size of the page is bounded.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::figure::{AxisSpacing, Figure, PlotLine, Point, Source, XPosition};
use super::ink::Canvas;
use super::plot::svg;
use super::run::run_page;
use tpcc_core::report::model::schema_of;

/// Generates numbers of any size. Numbers at the limits of the type are frequent.
pub fn number() -> impl Strategy<Value = f64> {
    let extremes = [0.0, -0.0, 5e-324, -5e-324, 1e-300, 1.0, -1.0, 1e300, 1e308, f64::MAX, f64::MIN];
    let beyond = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    prop_oneof![
        3 => proptest::sample::select(extremes.to_vec()),
        1 => proptest::sample::select(beyond.to_vec()),
        3 => any::<f64>(),
        3 => -1e3..1e3,
    ]
}

/// Generates numbers as in JSON, in which a number that is not finite is null.
fn json_number() -> impl Strategy<Value = Value> {
    prop_oneof![6 => number().prop_map(|number| json!(number)), 1 => any::<u64>().prop_map(|n| json!(n)), 1 => Just(Value::Null)]
}

fn list() -> impl Strategy<Value = Value> {
    proptest::collection::vec(json_number(), 0..40).prop_map(Value::Array)
}

/// Generates any JSON value.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![json_number(), any::<bool>().prop_map(Value::from), ".{0,8}".prop_map(Value::from)];
    leaf.prop_recursive(4, 64, 8, |inner| {
        let names = proptest::sample::select(vec!["name", "value", "count", "a", "b", "t_s", "share", "rules"]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
            proptest::collection::vec((names, inner), 0..8)
                .prop_map(|all| all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Value>()),
        ]
    })
}

/// Generates runs with lists of any length and with any numbers.
fn run() -> impl Strategy<Value = Value> {
    let part = || prop_oneof![4 => list(), 1 => value()];
    let scalars = proptest::collection::vec(json_number(), 12);
    (part(), part(), part(), part(), part(), scalars, value(), value()).prop_map(
        |(times, rates, checkpoints, share, us, of, pool, more)| {
            json!({
                "schema": schema_of("run"), "measured_s": of[0], "throughput_per_s": of[1], "new_orders_per_min": of[2],
                "committed": of[3], "rolled_back": of[4], "aborted": of[5],
                "config": { "workers": of[6], "seed": of[7] }, "machine": { "steal": of[8] },
                "series": { "t_s": times, "throughput_per_s": rates, "checkpoints": checkpoints },
                "transactions": {
                    "payment": {
                        "count": 1, "run_ns": of[9], "p99_us": of[10],
                        "curve": { "share": share, "service_us": us, "response_us": rates },
                    },
                    "new-order": { "count": of[11], "run_ns": of[10], "curve": more },
                },
                "counters": { "software": { "task_clock_ms": of[11] } }, "pool": pool, "check": more,
            })
        },
    )
}

/// Returns true if all coordinates of a drawing are numbers near the figure.
fn is_drawn(svg: &str) -> bool {
    let numbers = svg.split('"').filter(|part| part.bytes().all(|b| b.is_ascii_digit() || b"-., ".contains(&b)));
    let all = numbers.flat_map(|part| part.split([',', ' '])).filter(|part| !part.is_empty());
    !svg.contains("NaN") && all.into_iter().all(|n| n.parse::<f64>().is_ok_and(|n| n.abs() < 1e6))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn any_run_has_a_page(run in run()) {
        // Converts the run to text and back, as if read from a file.
        let run: Value = serde_json::from_str(&run.to_string()).unwrap();
        let page = run_page(&run);
        prop_assert!(page.ends_with("</html>") && page.len() < 4 << 20, "{} bytes", page.len());
    }

    #[test]
    fn any_json_has_a_page(run in value()) {
        prop_assert!(run_page(&run).ends_with("</html>"));
    }

    #[test]
    fn any_figure_is_drawn(
        points in proptest::collection::vec((number(), proptest::option::of(number()), number(), number()), 0..60),
        named in 0..3_usize,
        is_time in any::<bool>(),
    ) {
        let place = |n: usize, x: f64| match named {
            0 => XPosition::Number(x),
            1 => XPosition::Name(format!("{n}")),
            _ => XPosition::Name(format!("name {}", n % 7)),
        };
        let points = points.into_iter().enumerate();
        let points = points.map(|(n, (x, y, low, high))| Point { x: place(n, x), y, interval: Some((low, high)) }).collect();
        let x_spacing = if is_time { AxisSpacing::Linear } else { AxisSpacing::Auto };
        let lines = vec![PlotLine { name: "line".to_owned(), source: Source::Measured, points }];
        let drawn = svg(&Figure { lines, x_spacing, ..Figure::default() }, Canvas::File);
        prop_assert!(drawn.ends_with("</svg>\n") && is_drawn(&drawn), "{}", drawn);
    }
}
