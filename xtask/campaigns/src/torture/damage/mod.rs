//! Shared by the campaigns that damage files: a database to damage, disks that are cheap to copy, the judge of an
//! engine's answers afterwards, and the watch over engines that never answer.

pub(crate) mod disk;
pub(crate) mod forge;
pub(crate) mod judge;
pub(crate) mod memory;
pub(crate) mod subject;
pub(crate) mod watch;
