//! Shared code of the campaigns that damage files: databases to damage, disks that are cheap to copy, the judge of the
//! engine's answers, and a watchdog for cases that do not end.

pub(crate) mod disk;
pub(crate) mod forge;
pub(crate) mod judge;
pub(crate) mod memory;
pub(crate) mod subject;
pub(crate) mod watchdog;
