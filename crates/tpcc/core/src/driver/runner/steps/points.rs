//! Where the fibers of a team switch.

use sched_steps::point::Bitmap;
use sched_steps::team::Operations;
use storage::{PointKind, PointSite, points};

use crate::workload::error::Error;
use crate::workload::settings::CtxPoints;

/// Which points are to be live.
#[derive(Debug)]
pub(super) enum Chosen {
    BuiltIn,
    All,
    None,
    Bitmap(Bitmap),
    /// By number of the point: for which operations it is live, a bit each.
    These(Box<[u64]>),
}

impl Chosen {
    pub(super) fn of(points: &CtxPoints) -> Result<Chosen, Error> {
        Ok(match points {
            CtxPoints::None => Chosen::None,
            CtxPoints::All => Chosen::All,
            CtxPoints::BuiltIn => Chosen::BuiltIn,
            CtxPoints::File(path) => {
                let told = |e| {
                    Error::usage(format!("--ctx-points {e}"))
                        .help("'tpcc footprint --place FILE' writes one for this build; or pass all or none")
                };
                Chosen::Bitmap(Bitmap::load(path).map_err(told)?)
            }
        })
    }

    /// Whether a point is live for some operation.
    pub(super) fn may_stop_at(&self, site: &'static PointSite) -> bool {
        match self {
            Chosen::None => false,
            Chosen::All => true,
            Chosen::BuiltIn => is_built_in(site),
            Chosen::These(live) => live.get(site.number() as usize).is_some_and(|live| *live != 0),
            Chosen::Bitmap(bitmap) => bitmap.sites.iter().any(|listed| listed.live != 0 && listed.name == site.name()),
        }
    }

    /// By number of the point: for which operations it is live, a bit each.
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
                sites.map(|site| if self.may_stop_at(site) { u64::MAX } else { 0 }).collect()
            }
        }
    }
}

/// Whether a point is live unless something else is asked for: those of group descents. There a stop waits for a dozen
/// lines; in the descent of a single key it waits for one, which is near most of the time, and costs as much.
fn is_built_in(site: &PointSite) -> bool {
    site.kind() == PointKind::Data && site.name().starts_with(GROUPS)
}

/// How the names of the points in group descents begin.
pub(super) const GROUPS: &str = "btree/group-";
