//! What the tests stand on: clusters, the daemon, jobs, waiting, HTTP.

pub mod browser;
pub mod cluster;
pub mod daemon;
pub mod http;
pub mod jobs;
pub mod pool;
pub mod postgres;
pub mod processes;
pub mod record;
pub mod site;
pub mod slurm;
pub mod train;
pub mod versions;
pub mod wait;

pub use browser::{Browser, Screen};
pub use daemon::{Daemon, Settings};
pub use postgres::Postgres;
pub use site::Site;
pub use slurm::Slurm;
pub use train::{Diary, Train};
