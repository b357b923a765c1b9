//! The thread that gives modes their windows, and tells the chooser what came of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use parking_lot::Mutex;

use super::watchdog::Watched;
use crate::auto::{AutoSettings, Chooser, GroupWork, Mode, ModeWord, Switching};
use crate::placement::PlacementWord;

/// Groups whose work decides.
const GROUPS: usize = 1024;

/// An automatic choice, kept from run to run.
#[derive(Debug)]
pub(crate) struct Automatic {
    pub(super) chooser: Chooser,
    mode: Arc<ModeWord>,
    window: Duration,
}

impl Automatic {
    pub(super) fn new(settings: AutoSettings) -> Automatic {
        Automatic {
            chooser: Chooser::new(&Mode::ALL, settings.windows_between_trials),
            mode: Arc::new(ModeWord::new(Mode::Fair)),
            window: settings.window,
        }
    }

    /// The policy of each core.
    pub(super) fn policy(&self) -> Switching {
        Switching(Arc::clone(&self.mode))
    }

    /// Until the run is over: windows, each after a quarter of one in which work moves and caches fill.
    pub(super) fn control(
        &mut self,
        cores: &Mutex<Vec<Option<Watched>>>,
        placement: &PlacementWord,
        over: &Receiver<()>,
    ) {
        let mut before = None;
        loop {
            let mode = self.chooser.mode();
            self.mode.set(mode);
            placement.set(mode.placement());
            let settles = if before.replace(mode) == Some(mode) { Duration::ZERO } else { self.window / 4 };
            if !waits(over, settles) {
                return;
            }
            let (began, done) = (Instant::now(), work_of(cores));
            if !waits(over, self.window) {
                return;
            }
            let work: Vec<GroupWork> = work_of(cores)
                .iter()
                .zip(&done)
                .map(|(now, before)| GroupWork {
                    operations: now.operations.saturating_sub(before.operations),
                    run_ns: now.run_ns.saturating_sub(before.run_ns),
                })
                .collect();
            self.chooser.window(began.elapsed().as_nanos() as u64, &work);
        }
    }
}

/// False if the run is over before `time` has passed.
fn waits(over: &Receiver<()>, time: Duration) -> bool {
    time.is_zero() || matches!(over.recv_timeout(time), Err(RecvTimeoutError::Timeout))
}

/// What the groups did so far, on all cores.
fn work_of(cores: &Mutex<Vec<Option<Watched>>>) -> Vec<GroupWork> {
    let mut sum = vec![GroupWork::default(); GROUPS];
    cores.lock().iter().flatten().for_each(|core| core.shown.add_work(&mut sum));
    sum
}
