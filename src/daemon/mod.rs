//! The daemon: thin loops around the pure core.
//!
//! `rounds` reads Slurm, plans and sets targets; `executor` carries effects out, each guarded; `ticks` lets
//! time pass for the machines. All share one [`world::World`] behind a lock that is never held over an await.

mod advice;
pub mod books;
pub mod breaker;
pub mod demand;
pub mod executor;
pub mod leadership;
pub mod look;
pub mod metrics;
pub mod rounds;
pub mod standby;
pub mod views;
pub mod world;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::api::{Control, RoundView};
use crate::config::Config;
use crate::model::UnixTime;
use crate::slurm::SlurmApi;
use crate::slurm::munge::Identity;
use crate::store::{Standing, Store};

use leadership::Leadership;
use metrics::Metrics;
use world::{Shared, World};

/// Setting of the store that keeps the administrator's last order.
pub const CONTROL_SETTING: &str = "control";

/// Seconds between two looks at the machines' deadlines.
const TICK: Duration = Duration::from_secs(1);

/// What every part of the daemon needs.
pub struct Context {
    /// The configuration.
    pub config: Config,
    /// Slurm.
    pub slurm: Arc<dyn SlurmApi>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// Who speaks?
    pub identity: Arc<dyn Identity>,
    /// All state.
    pub world: Shared,
    /// Whether anything may be done.
    pub leadership: Leadership,
    /// Wakes the round loop before its interval is over.
    pub wake: Notify,
    /// Held while changes are being stored; since when the store fails.
    pub saving: tokio::sync::Mutex<Option<Instant>>,
    /// Held while a plan is computed for somebody who asks: each takes a processor.
    pub planning: tokio::sync::Mutex<()>,
    /// Prometheus.
    pub metrics: Metrics,
}

/// The present moment, in Slurm's whole seconds.
pub fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixTime(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Runs the daemon until SIGTERM or SIGINT. Running jobs stay as they are.
///
/// # Errors
/// When it cannot start, and when another daemon has taken over or may have: started again, it stands by.
pub async fn serve(config: Config) -> anyhow::Result<()> {
    let listen = config.daemon.listen.clone();
    let listener =
        TcpListener::bind(&listen).await.with_context(|| format!("cannot listen on {listen}"))?.into_std()?;
    let Some(store) = standby::wait_for_lead(&config.store.database_url, &listener).await? else {
        return Ok(());
    };
    let listener = TcpListener::from_std(listener)?;
    let (effects, queue) = executor::channel();
    let slurm = Arc::new(crate::slurm::rest::RestSlurm::new(&config.slurm)?);
    let identity = crate::slurm::munge::identity(&config.slurm);
    let mut world = World::new(&config, effects, now());
    restore(&mut world, store.as_ref()).await.context("cannot read the store")?;
    let context = Arc::new(Context {
        config,
        slurm,
        store,
        identity,
        world: Shared::new(world),
        // Until the first look somebody may wait.
        leadership: Leadership::new(Standing::Watched),
        wake: Notify::new(),
        saving: tokio::sync::Mutex::default(),
        planning: tokio::sync::Mutex::default(),
        metrics: Metrics::default(),
    });
    tracing::info!(%listen, mode = ?context.config.daemon.mode, version = env!("CARGO_PKG_VERSION"), "infill serves");
    let server = axum::serve(listener, crate::http::router(context.clone()));
    tokio::select! {
        result = server.with_graceful_shutdown(stop_signal()) => result.context("the HTTP server failed")?,
        () = rounds::run(context.clone()) => {}
        () = executor::run(context.clone(), queue) => {}
        () = ticks(context.clone()) => {}
        why = leadership::keep(&context) => return Err(why),
        () = stop_signal() => {}
    }
    executor::save_all(&context).await;
    tracing::info!("infill stops; running jobs stay as they are");
    Ok(())
}

/// Reads what the last daemon knew.
async fn restore(world: &mut World, store: &dyn Store) -> anyhow::Result<()> {
    let leads = store.open_leads().await?;
    let gaps = store.gaps(rounds::GAPS_TO_LEARN_FROM).await?;
    let first_order = store.next_orders(world::ORDERS_AT_ONCE).await?;
    let control = store.setting(CONTROL_SETTING).await?;
    let control = control.and_then(|word| word.parse::<Control>().ok()).unwrap_or_default();
    world.restore(leads, &gaps, first_order, control, now());
    Ok(())
}

async fn ticks(context: Arc<Context>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        interval.tick().await;
        context.world.lock().tick(now());
    }
}

async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

/// One round against the live cluster, without a daemon and without acting: what `infill plan --local` shows.
pub async fn plan_once(config: &Config) -> anyhow::Result<RoundView> {
    let slurm = crate::slurm::rest::RestSlurm::new(&config.slurm)?;
    let snapshot = slurm.snapshot().await?;
    let (effects, _queue) = executor::channel();
    let mut world = World::new(config, effects, now());
    let at = now();
    world.look(&snapshot, at, at);
    let question = world.question(&snapshot, at);
    rounds::answer(config.clone(), question).await
}
