//! What the tests stand on: clusters, the daemon, jobs, waiting, HTTP.

pub mod cluster;
pub mod daemon;
pub mod http;
pub mod jobs;
pub mod processes;
pub mod site;
pub mod train;
pub mod wait;

pub use daemon::Settings;
pub use site::Site;
pub use train::Train;
