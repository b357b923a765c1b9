//! Picture of the engine comparison: for each operation, the time of each other engine divided by the time of `storage`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

use serde::Deserialize;

/// Path of the picture in the repository. Its data file is the output of `cargo xtask peers --json docs/peers.json`.
pub(super) const FILE: &str = "docs/peers.svg";
const MEASURED: &str = "docs/peers.json";

/// Parts of the `cargo xtask peers --json` file that the picture shows.
#[derive(Deserialize)]
struct PeerResults {
    rounds: usize,
    ratios: BTreeMap<String, BTreeMap<String, Ratio>>,
}

#[derive(Deserialize)]
struct Ratio {
    median: f64,
    low: f64,
    high: f64,
}

/// Operations in the order of the picture: identifier in the data file, label in the picture.
const ROWS: [(&str, &str); 12] = [
    ("point-read", "point read, begin to commit"),
    ("point-read-of-1000", "point read, of 1,000"),
    ("update-of-1000", "update, of 1,000"),
    ("insert-of-1000", "insert, of 1,000"),
    ("scan-100", "scan of 100 rows"),
    ("commit-async", "one update, async"),
    ("commit-sync", "one update, sync"),
    ("bulk-load", "bulk load"),
    ("two-writers-async", "two writers, async"),
    ("two-writers-sync", "two writers, sync"),
    ("standard-mix", "standard mix"),
    ("standard-mix-two-workers", "standard mix, two workers"),
];

/// Engines: identifier, colour, and mark. The colours are distinguishable with every kind of colour vision.
const ENGINES: [(&str, &str, Mark); 5] = [
    ("redb", "#0072b2", Mark::Circle),
    ("fjall", "#d55e00", Mark::Square),
    ("lmdb", "#cc79a7", Mark::Triangle),
    ("rocksdb", "#e69f00", Mark::Bar),
    ("sqlite", "#009e73", Mark::Diamond),
];

#[derive(Clone, Copy)]
enum Mark {
    Circle,
    Square,
    Triangle,
    Diamond,
    Bar,
}

/// Left margin, in pixels. The next constants are further sizes of the picture, also in pixels.
const LEFT: f64 = 230.0;
const WIDTH: f64 = 820.0;
const ROW: f64 = 36.0;
const TOP: f64 = 64.0;
const RIGHT: f64 = 30.0;

/// Draws the picture from the data file in the repository.
pub(super) fn draw(root: &Path) -> io::Result<String> {
    let text = std::fs::read_to_string(root.join(MEASURED))
        .map_err(|error| io::Error::new(error.kind(), format!("{MEASURED}: {error}; 'cargo xtask peers' makes it")))?;
    let measured: PeerResults = serde_json::from_str(&text)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{MEASURED}: {error}")))?;
    if let Some(name) = unknown_name(&measured) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{MEASURED}: {name}: the picture has no place for it"),
        ));
    }
    Ok(picture(&measured))
}

/// Returns the name of a measured engine or operation that the picture does not show, if there is one.
fn unknown_name(measured: &PeerResults) -> Option<&str> {
    let engine = measured.ratios.keys().find(|name| ENGINES.iter().all(|(known, ..)| known != name));
    let operations = || measured.ratios.values().flat_map(BTreeMap::keys);
    let operation = || operations().find(|id| ROWS.iter().all(|(known, _)| known != id));
    engine.or_else(operation).map(String::as_str)
}

fn picture(measured: &PeerResults) -> String {
    let rows: Vec<(&str, &str)> =
        ROWS.into_iter().filter(|(id, _)| measured.ratios.values().any(|of| of.contains_key(*id))).collect();
    let all = || measured.ratios.values().flat_map(BTreeMap::values);
    // The axis covers whole decades that contain all intervals and the ratio 1.
    let low = all().map(|ratio| ratio.low).fold(1.0, f64::min).log10().floor();
    let high = all().map(|ratio| ratio.high).fold(10.0, f64::max).log10().ceil();
    let x = |ratio: f64| LEFT + (WIDTH - LEFT - RIGHT) * (ratio.log10() - low) / (high - low);
    let bottom = TOP + ROW * rows.len() as f64;
    let height = bottom + 46.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n<title>Times of other engines over those of \
         storage, by operation</title>\n<style>text{{fill:#1d2733}}.g{{stroke:#d5dbe1}}.one{{stroke:#1d2733}}\n\
         @media (prefers-color-scheme:dark){{text{{fill:#e6edf3}}.g{{stroke:#39434d}}.one{{stroke:#e6edf3}}}}</style>\n"
    );
    let mut at = LEFT;
    for (name, colour, shape) in ENGINES.iter().filter(|(name, ..)| measured.ratios.contains_key(*name)) {
        let _ = writeln!(svg, "{}<text x=\"{}\" y=\"24\">{name}</text>", mark(*shape, colour, at, 20.0), at + 12.0);
        at += 90.0;
    }
    let mut decade = low;
    while decade <= high {
        let (x, line) = (x(10f64.powf(decade)), if decade == 0.0 { "one" } else { "g" });
        let _ = writeln!(
            svg,
            "<line class=\"{line}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{bottom}\"/>\n\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            TOP - 8.0,
            bottom + 17.0,
            10f64.powf(decade)
        );
        decade += 1.0;
    }
    for (row, (id, name)) in rows.iter().enumerate() {
        let y = TOP + ROW * (row as f64 + 0.5);
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>", LEFT - 12.0, y + 4.0);
        let engines: Vec<_> =
            ENGINES.iter().filter_map(|of| Some((of, measured.ratios.get(of.0)?.get(*id)?))).collect();
        let middle = (engines.len() as f64 - 1.0) / 2.0;
        for (number, ((_, colour, shape), ratio)) in engines.into_iter().enumerate() {
            let y = y + 7.0 * (number as f64 - middle);
            let _ = writeln!(
                svg,
                "<line stroke=\"{colour}\" stroke-width=\"2\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>{}",
                x(ratio.low),
                x(ratio.high),
                mark(*shape, colour, x(ratio.median), y)
            );
        }
    }
    let _ = write!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">times as long as storage takes, on the right of 1 storage is faster; median and \
         interval of {} rounds</text>\n</svg>\n",
        WIDTH - RIGHT,
        bottom + 38.0,
        measured.rounds
    );
    svg
}

fn mark(shape: Mark, colour: &str, x: f64, y: f64) -> String {
    match shape {
        Mark::Circle => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{colour}\"/>"),
        Mark::Square => {
            let (x, y) = (x - 4.0, y - 4.0);
            format!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"8\" height=\"8\" fill=\"{colour}\"/>")
        }
        Mark::Triangle => {
            format!("<path d=\"M{x:.1} {:.1}l5 9h-10z\" fill=\"{colour}\"/>", y - 5.0)
        }
        Mark::Diamond => {
            format!("<path d=\"M{x:.1} {:.1}l5 5l-5 5l-5-5z\" fill=\"{colour}\"/>", y - 5.0)
        }
        Mark::Bar => {
            let (x, y) = (x - 2.0, y - 5.0);
            format!("<path d=\"M{x:.1} {y:.1}h4v10h-4z\" fill=\"{colour}\"/>")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ratio_has_a_mark_within_the_picture() {
        let ratio = |median| Ratio { median, low: 0.9 * median, high: 1.1 * median };
        let of = |list: &[(&str, f64)]| list.iter().map(|(id, median)| ((*id).to_owned(), ratio(*median))).collect();
        let ratios = BTreeMap::from([
            ("redb".to_owned(), of(&[("point-read", 3.0), ("scan-100", 0.5)])),
            ("fjall".to_owned(), of(&[("point-read", 250.0)])),
        ]);
        let svg = picture(&PeerResults { rounds: 9, ratios });
        // The legend adds one mark of each kind.
        assert_eq!((svg.matches("<circle").count(), svg.matches("<rect").count()), (3, 2));
        for text in ["point read", "scan of 100 rows", ">0.1<", ">1000<", "9 rounds"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        let places = svg.split(" cx=\"").skip(1).filter_map(|rest| rest.split('"').next()?.parse::<f64>().ok());
        assert!(places.into_iter().all(|x| (0.0..WIDTH).contains(&x)), "{svg}");
    }

    #[test]
    fn what_the_picture_does_not_know_is_told() {
        let of = |engine: &str, id: &str| {
            let ratio = Ratio { median: 1.0, low: 1.0, high: 1.0 };
            let ratios = BTreeMap::from([(engine.to_owned(), BTreeMap::from([(id.to_owned(), ratio)]))]);
            unknown_name(&PeerResults { rounds: 1, ratios }).map(str::to_owned)
        };
        assert_eq!(of("redb", "scan-100"), None);
        assert_eq!(of("leveldb", "scan-100").as_deref(), Some("leveldb"));
        assert_eq!(of("redb", "scan-1000").as_deref(), Some("scan-1000"));
    }
}
