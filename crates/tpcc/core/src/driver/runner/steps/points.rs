//! Points at which the fibers of a team switch.

use sched_steps::point::Bitmap;
use sched_steps::team::Operations;
use storage::{PointKind, PointSite, points};

use crate::workload::error::Error;
use crate::workload::settings::SwitchPoints;

/// Selection of live points.
#[derive(Debug)]
pub(super) enum Chosen {
    BuiltIn,
    All,
    None,
    Bitmap(Bitmap),
    /// By point number: bit mask of the operations for which the point is live.
    These(Box<[u64]>),
}

impl Chosen {
    pub(super) fn of(points: &SwitchPoints) -> Result<Chosen, Error> {
        Ok(match points {
            SwitchPoints::None => Chosen::None,
            SwitchPoints::All => Chosen::All,
            SwitchPoints::BuiltIn => Chosen::BuiltIn,
            SwitchPoints::File(path) => {
                let told = |e| {
                    Error::usage(format!("--ctx-points {e}"))
                        .help("'tpcc footprint --place FILE' writes one for this build; or pass all or none")
                };
                Chosen::Bitmap(Bitmap::load(path).map_err(told)?)
            }
        })
    }

    /// Returns true if the point is live for any operation.
    pub(super) fn may_switch_at(&self, site: &'static PointSite) -> bool {
        match self {
            Chosen::None => false,
            Chosen::All => true,
            Chosen::BuiltIn => is_built_in(site),
            Chosen::These(live) => live.get(site.number() as usize).is_some_and(|live| *live != 0),
            Chosen::Bitmap(bitmap) => bitmap.sites.iter().any(|listed| listed.live != 0 && listed.name == site.name()),
        }
    }

    /// Bit mask of the operations for which a point is live, by point number.
    pub(super) fn live(&self, operations: &Operations) -> Box<[u64]> {
        let sites = points().iter();
        match self {
            Chosen::These(live) => live.clone(),
            Chosen::Bitmap(bitmap) => {
                let live = bitmap.live_for(operations);
                let at = |site: &PointSite| bitmap.sites.iter().position(|listed| listed.name == site.name());
                sites.map(|site| at(site).and_then(|at| live.get(at).copied()).unwrap_or(0)).collect()
            }
            Chosen::None | Chosen::All | Chosen::BuiltIn => {
                sites.map(|site| if self.may_switch_at(site) { u64::MAX } else { 0 }).collect()
            }
        }
    }
}

/// Default selection: the points of group descents. A stop there covers the fetch of about a dozen cache lines. A stop in
/// the descent of a single key covers one line, which is in a near cache most of the time, and costs the same.
fn is_built_in(site: &PointSite) -> bool {
    site.kind() == PointKind::Data && site.name().starts_with(GROUPS)
}

/// Name prefix of the points in group descents.
pub(super) const GROUPS: &str = "btree/group-";
