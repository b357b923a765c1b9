//! Selection of the points at which the fibers of a team switch.

use sched_steps::point::Bitmap;
use sched_steps::team::Operations;
use storage::{PointKind, PointSite, points};

use crate::workload::error::Error;
use crate::workload::settings::SwitchPoints;

/// Selection of live points, at which fibers switch.
#[derive(Debug)]
pub(super) enum PointSelection {
    BuiltIn,
    All,
    None,
    Bitmap(Bitmap),
    /// Bit mask of the operations for which a point is live, indexed by point number.
    Masks(Box<[u64]>),
}

impl PointSelection {
    pub(super) fn of(points: &SwitchPoints) -> Result<PointSelection, Error> {
        Ok(match points {
            SwitchPoints::None => PointSelection::None,
            SwitchPoints::All => PointSelection::All,
            SwitchPoints::BuiltIn => PointSelection::BuiltIn,
            SwitchPoints::File(path) => {
                let usage_error = |e| {
                    Error::usage(format!("--ctx-points {e}"))
                        .help("'tpcc footprint --place FILE' writes one for this build; or pass all or none")
                };
                PointSelection::Bitmap(Bitmap::load(path).map_err(usage_error)?)
            }
        })
    }

    /// Returns true if the point is live for any operation.
    pub(super) fn may_switch_at(&self, site: &'static PointSite) -> bool {
        match self {
            PointSelection::None => false,
            PointSelection::All => true,
            PointSelection::BuiltIn => is_built_in(site),
            PointSelection::Masks(live) => live.get(site.number() as usize).is_some_and(|live| *live != 0),
            PointSelection::Bitmap(bitmap) => {
                bitmap.sites.iter().any(|listed| listed.live != 0 && listed.name == site.name())
            }
        }
    }

    /// Returns the bit mask of the operations for which a point is live, indexed by point number.
    pub(super) fn live(&self, operations: &Operations) -> Box<[u64]> {
        let sites = points().iter();
        match self {
            PointSelection::Masks(live) => live.clone(),
            PointSelection::Bitmap(bitmap) => {
                let live = bitmap.live_for(operations);
                let at = |site: &PointSite| bitmap.sites.iter().position(|listed| listed.name == site.name());
                sites.map(|site| at(site).and_then(|at| live.get(at).copied()).unwrap_or(0)).collect()
            }
            PointSelection::None | PointSelection::All | PointSelection::BuiltIn => {
                sites.map(|site| if self.may_switch_at(site) { u64::MAX } else { 0 }).collect()
            }
        }
    }
}

/// Returns true for the points of the default selection, which are the points of group descents (descents for several keys
/// at once). A switch there hides the fetch of about a dozen cache lines. A switch in the descent for a single key costs the
/// same but hides the fetch of one line, which is in a near cache most of the time.
fn is_built_in(site: &PointSite) -> bool {
    site.kind() == PointKind::Data && site.name().starts_with(GROUPS)
}

/// Name prefix of the points in group descents.
pub(super) const GROUPS: &str = "btree/group-";
