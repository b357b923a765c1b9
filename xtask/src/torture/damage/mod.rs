//! What the campaigns that damage files share: a database to damage, disks that are cheap to copy, the judge of what an
//! engine may answer afterwards, and the watch over engines that never answer.

pub(crate) mod disk;
pub(crate) mod forge;
pub(crate) mod judge;
pub(crate) mod memory;
pub(crate) mod subject;
pub(crate) mod watch;
