//! Picture of the crates: their names, descriptions and dependencies. Dependencies are read from the manifests.

use std::fmt::Write;
use std::path::Path;
/// Path of the picture in the repository.
pub(super) const FILE: &str = "docs/house.svg";

/// Box of a crate in the picture: name, description, and place as column and row.
struct CrateBox {
    name: &'static str,
    what: &'static str,
    place: (u32, u32),
}

/// Boxes of the crates, from top to bottom. A crate is above the crates that it uses.
const BOXES: [CrateBox; 5] = [
    CrateBox { name: "tpcc", what: "the workload and the papers, rerun", place: (1, 0) },
    CrateBox { name: "storage", what: "locks, latches, B+trees, log, recovery", place: (0, 1) },
    CrateBox { name: "speculate", what: "loops on several cores, as if in order", place: (0, 2) },
    CrateBox { name: "itas", what: "sibling fibers on all cores at once", place: (2, 1) },
    CrateBox { name: "sched-steps", what: "fibers, and teams that share code", place: (2, 2) },
];

/// Width of a box, in pixels. The next constants are the height of a box, the gaps between boxes, and the border.
const WIDTH: u32 = 270;
const HEIGHT: u32 = 64;
const GAP_X: u32 = 24;
const GAP_Y: u32 = 46;
const BORDER: u32 = 12;

/// Returns the left and upper edges of a box, in pixels.
fn corner((column, row): (u32, u32)) -> (u32, u32) {
    (BORDER + column * (WIDTH + GAP_X), BORDER + row * (HEIGHT + GAP_Y))
}

/// Draws the picture. Its colours follow the viewer's setting, light or dark.
pub(super) fn draw(root: &Path) -> std::io::Result<String> {
    let (columns, rows) = (3, 3);
    let (width, height) = (corner((columns, 0)).0 - GAP_X + BORDER, corner((0, rows)).1 - GAP_Y + BORDER);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" font-family=\"system-ui, sans-serif\">\n<title>The crates of Lockstep: each stands above those that it \
         uses</title>\n<style>.r{{fill:#eef3f8;stroke:#3b6ea5}}.l{{stroke:#7a8794;fill:none}}text{{fill:#1d2733}}\n\
         @media (prefers-color-scheme:dark){{.r{{fill:#1c2733;stroke:#6ea3d8}}text{{fill:#e6edf3}}}}</style>\n"
    );
    for crate_box in &BOXES {
        let used = uses(root, crate_box.name)?;
        for below in BOXES.iter().filter(|below| used.iter().any(|name| name == below.name)) {
            let ((x, y), (to_x, to_y)) = (corner(crate_box.place), corner(below.place));
            let (x, to_x) = (x + WIDTH / 2, to_x + WIDTH / 2);
            // A line that crosses a row bends around the box in that row, through the gap on its left.
            if below.place.1 - crate_box.place.1 > 1 {
                let (gap, turn) = (corner(below.place).0 - GAP_X / 2, to_y - GAP_Y / 2);
                let _ = writeln!(
                    svg,
                    "<path class=\"l\" d=\"M{x} {} V{} H{gap} V{turn} H{to_x} V{to_y}\"/>",
                    y + HEIGHT,
                    y + HEIGHT + GAP_Y / 2
                );
            } else {
                let _ = writeln!(
                    svg,
                    "<path class=\"l\" d=\"M{x} {} V{} H{to_x} V{to_y}\"/>",
                    y + HEIGHT,
                    y + HEIGHT + GAP_Y / 2
                );
            }
        }
    }
    for CrateBox { name, what, place } in &BOXES {
        let (x, y) = corner(*place);
        let middle = x + WIDTH / 2;
        let _ = writeln!(
            svg,
            "<rect class=\"r\" x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\"/>\n\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" font-size=\"17\" font-weight=\"600\">{name}</text>\n\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" font-size=\"13\">{what}</text>",
            y + 27,
            y + 48
        );
    }
    svg += "</svg>\n";
    Ok(svg)
}

/// Returns the crates that a crate's manifest names as dependencies.
fn uses(root: &Path, name: &str) -> std::io::Result<Vec<String>> {
    let manifest = std::fs::read_to_string(root.join("crates").join(name).join("Cargo.toml"))?;
    let own = manifest.split_once("\n[dependencies]\n").map_or("", |(_, rest)| rest);
    let own = own.split("\n[").next().unwrap_or("");
    Ok(own.lines().filter_map(|line| Some(line.split_once(" = ")?.0.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_is_in_the_picture_above_those_that_it_uses() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let crates = std::fs::read_dir(root.join("crates")).unwrap().count();
        assert_eq!(crates, BOXES.len());
        for crate_box in &BOXES {
            for name in uses(&root, crate_box.name).unwrap() {
                if let Some(below) = BOXES.iter().find(|below| below.name == name) {
                    assert!(below.place.1 > crate_box.place.1, "{} uses {name}", crate_box.name);
                }
            }
        }
        assert_eq!(uses(&root, "itas").unwrap().iter().filter(|name| *name == "sched-steps").count(), 1);
    }
}
