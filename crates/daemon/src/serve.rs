//! Assembles the daemon from the store, Slurm, HTTP and the loops. Only this module knows all of them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::access_control::MAX_PROXY_REQUESTS;
use crate::context::{COLLECTIVES_SETTING, DaemonContext, DaemonServices};
use crate::effect_queue::EffectReceivers;
use crate::history_writer::{NODE_TIMES_SETTING, SHARED_SAVES_SETTING, USAGE_SETTING};
use crate::http::ConnectionLimits;
use crate::planner_thread::PlannerThread;
use crate::session_store::SESSIONS_SETTING;
use crate::state::{DaemonState, PendingActions};
use crate::timeline::{HOUR_SECS, USE_HOLDS_SECS, UsageHour, hour_of};
use crate::tls::{self, TlsFiles};
use crate::{
    control_orders, executor, forest_training, http, lead_watch, listen_socket, notices, privacy_watch,
    rounds, status_comments, ticks, topology_watch,
};
use infill_api::RoundView;
use infill_lifecycle::fleet::{WING_NUMBER_BLOCK_SIZE, lowest_wing_number};
use infill_model::{
    EndedJob, JobId, LendingMode, MetricsAccess, NodeName,
    clock::now,
    config::{Config, HttpConfig},
};
use infill_planner::round::{MAX_LEARNED_GAPS, MAX_LEARNED_JOBS};
use infill_slurm::{PlacesSlurm, SlurmApi, identity, rest::RestSlurm};
use infill_store as store;
use infill_store::{LeadStanding, Store};

/// File descriptors that are not for clients' connections: the store, slurmrestd, programs and their pipes.
const RESERVED_FILES: u32 = 256;

/// Runs the daemon until SIGTERM or SIGINT. Running jobs stay as they are. `passed` are systemd's sockets,
/// from [`listen_socket::take_passed_sockets`].
///
/// # Errors
/// When the daemon cannot start, and when another daemon has taken over or may have. In the latter case the
/// daemon stands by when it is started again.
pub async fn run_daemon(config: Config, passed: listen_socket::PassedSockets) -> anyhow::Result<()> {
    let stop = stop_signal();
    let listen = config.daemon.listen.clone();
    let proxy_connections = if config.web.socket.as_os_str().is_empty() { 0 } else { MAX_PROXY_REQUESTS };
    let limits = connection_limits(&config.http, proxy_connections);
    let listener = listen_socket::open_listener(&listen, passed).await?;
    let tls = TlsFiles::from_config(&config.daemon)?;
    config.notify.notice_url()?;
    let database_url = config.store.connection_url()?;
    let standby =
        StandbyServer { listener: &listener, limits, tls: tls.clone(), metrics: config.http.metrics };
    let Some(store) = wait_for_lead(&database_url, standby, stop.clone()).await? else { return Ok(()) };
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (context, queues) = build_context(config, store).await?;
    let context = Arc::new(context);
    tracing::info!(
        %listen,
        mode = ?context.config.daemon.mode,
        version = env!("CARGO_PKG_VERSION"),
        "infill serves"
    );
    let has_topology = topology_watch::load_topology(&context).await;
    let router = http::build_router(context.clone());
    let server = http::serve_with_tls(listener, router, limits, tls.clone(), wait_for_stop(stop.clone()));
    let web = http::proxy::open_socket(&context.config.web).await?;
    let web = http::proxy::serve_proxy(web, context.clone(), wait_for_stop(stop.clone()));
    // Dropping the set aborts its tasks, so a daemon that has lost the lead stops writing at once.
    let mut writers = JoinSet::new();
    writers.spawn(rounds::run(context.clone()));
    writers.spawn(executor::run(context.clone(), queues));
    tokio::select! {
        result = server => result.context("the HTTP server failed")?,
        result = web => result.context("the server on web.socket failed")?,
        Some(ended) = writers.join_next() => ended.context("the daemon crashed")?,
        () = ticks::run(context.clone()) => {}
        () = privacy_watch::watch_privacy(context.clone()) => {}
        () = tls::watch_files(tls) => {}
        () = http::browser_sessions::watch_accounts(context.clone()) => {}
        () = topology_watch::watch_topology(context.clone(), has_topology) => {}
        () = status_comments::write_comments(context.clone()) => {}
        () = forest_training::train_daily(context.clone()) => {}
        () = notices::deliver_notices(&context.notices, &context.config.notify) => {}
        why = lead_watch::watch_lead(&context) => return Err(report_lead_lost(&context, why).await),
        () = wait_for_stop(stop) => {}
    }
    tokio::select! {
        () = finish_writes(&context, &mut writers) => {}
        why = lead_watch::watch_lead(&context) => return Err(report_lead_lost(&context, why).await),
    }
    executor::save_all(&context).await;
    tracing::info!("infill stops; running jobs stay as they are");
    Ok(())
}

/// Notifies administrators that the lead is lost, and returns the error with which the daemon ends.
async fn report_lead_lost(context: &DaemonContext, why: store::StoreError) -> anyhow::Error {
    notices::notify_lead_lost(&context.config.notify, &why.to_string(), now()).await;
    anyhow::Error::new(why).context("this daemon no longer leads, or cannot be sure of it: it ends")
}

/// Waits for writes that are under way, and stops the loops before they begin another.
async fn finish_writes(context: &DaemonContext, writers: &mut JoinSet<()>) {
    let _jobs_lock = context.save_locks.jobs.lock().await;
    let _learned_lock = context.save_locks.learned.lock().await;
    writers.shutdown().await;
}

/// Builds the context of a daemon that has just taken the lead.
async fn build_context(
    config: Config,
    store: Arc<dyn Store>,
) -> anyhow::Result<(DaemonContext, EffectReceivers)> {
    let slurm = RestSlurm::new(&config.slurm)?;
    let identity = identity::identity_verifier(&config.slurm);
    let config = Arc::new(config);
    let mut state = DaemonState::new(config.clone(), now());
    let actions = restore_state(&mut state, store.as_ref()).await.context("cannot read the store")?;
    let lead_nodes =
        state.fleet.job_lifecycles().filter_map(|job| Some((job.job, job.lead_node()?.clone()))).collect();
    let slurm = wrap_for_lending(slurm, &config, lead_nodes);
    let sessions = store.get_setting(SESSIONS_SETTING).await.context("cannot read the store")?;
    // Until the first check another daemon may be waiting.
    let services = DaemonServices { slurm, store, identity };
    let (context, queues) = DaemonContext::new(services, state, LeadStanding::Watched, now());
    context.notices.announce_lead(now());
    sessions.iter().for_each(|text| context.access.sessions.load(text, Instant::now(), now()));
    context.run_actions(actions);
    Ok((context, queues))
}

/// Wraps Slurm for what the site lends: whole nodes, or places. `lead_nodes`: the known nodes of leads.
fn wrap_for_lending(
    slurm: RestSlurm,
    config: &Config,
    lead_nodes: BTreeMap<JobId, NodeName>,
) -> Arc<dyn SlurmApi> {
    match config.gaps.lend {
        LendingMode::Nodes => Arc::new(slurm),
        LendingMode::Gpus => {
            let slurm = Arc::new(slurm.with_share_records());
            let parts = config.nodes.clone();
            Arc::new(PlacesSlurm::new(slurm, &config.slurm.partition, parts, lead_nodes))
        }
    }
}

/// Restores the state of the last daemon from the store.
pub(crate) async fn restore_state(
    state: &mut DaemonState,
    store: &dyn Store,
) -> Result<PendingActions, store::StoreError> {
    let leads = store.open_leads().await?;
    let gaps = store.recent_gaps(MAX_LEARNED_GAPS).await?;
    let first_wing_number =
        store.next_wing_numbers(WING_NUMBER_BLOCK_SIZE, lowest_wing_number(now())).await?;
    state.control = control_orders::restore_order(store).await?;
    state.round_state.learn_gaps(&gaps, now());
    if let Some(text) = store.get_setting(NODE_TIMES_SETTING).await? {
        state.round_state.node_times_mut().load(&text);
    }
    if let Some(text) = store.get_setting(SHARED_SAVES_SETTING).await? {
        state.round_state.shared_saves_mut().load(&text);
    }
    if let Some(text) = store.get_setting(COLLECTIVES_SETTING).await? {
        load_collectives(state, &text);
    }
    let ended = store.recent_ended_jobs(MAX_LEARNED_JOBS).await?;
    let past_jobs: Vec<_> = ended.iter().map(EndedJob::to_past_job).collect();
    state.round_state.priorities_mut().length_predictor.learn_history(&past_jobs);
    if let Some(text) = store.get_setting(USAGE_SETTING).await? {
        state.round_state.priorities_mut().usage.load(&text);
    }
    resume_hour(state, store).await?;
    let hour = hour_of(now());
    state.usage_recorder.resume_spending(store.sum_node_time(hour, hour + HOUR_SECS).await?);
    state.fleet.wing_numbers.refill(first_wing_number);
    let outcome = state.fleet.restore_jobs(leads, now());
    state.round_state.priorities_mut().restore_promises(state.fleet.promises());
    Ok(state.apply_output(outcome, now()))
}

/// Loads the site's table of collectives as the last daemon stored it.
fn load_collectives(state: &mut DaemonState, text: &str) {
    match serde_json::from_str(text) {
        Ok(site) => state.round_state.job_advisor_mut().set_collectives(site),
        Err(e) => tracing::warn!("cannot read the stored table of collectives: {e}"),
    }
}

/// Continues the hour of node uses that the last daemon began.
async fn resume_hour(state: &mut DaemonState, store: &dyn Store) -> Result<(), store::StoreError> {
    // The end of the range leaves out hours that a wrong clock has recorded in the future.
    let now = now();
    let reach = (HOUR_SECS + USE_HOLDS_SECS) as f64;
    let Some(packed) = store.hours_between(now.plus_secs(-reach), now, 2).await?.pop() else { return Ok(()) };
    match UsageHour::unpack(&packed) {
        Ok(hour) => state.usage_recorder.resume_hour(hour),
        Err(e) => tracing::warn!("cannot read what nodes were used for in the last hour: {e}"),
    }
    Ok(())
}

/// Opens the store and waits until this daemon leads on it; `None` if the daemon must stop before. Where
/// another daemon leads, this one stands by and answers requests meanwhile, so that agents and the command
/// line go on to the next URL.
///
/// # Errors
/// When the store cannot be opened, or the standby server fails.
async fn wait_for_lead(
    database_url: &str,
    standby: StandbyServer<'_>,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<Option<Arc<dyn Store>>> {
    let (begin_standby, standby_begins) = oneshot::channel();
    let opening = store::open_store(database_url, move || {
        tracing::info!("another daemon leads: this one stands by");
        // If the receiver is gone, the daemon ends.
        let _ = begin_standby.send(());
    });
    tokio::select! {
        store = opening => store.map(Some).context("cannot open the store"),
        failed = standby.serve_after(standby_begins) => match failed? {},
        () = wait_for_stop(stop) => Ok(None),
    }
}

/// Answers requests while another daemon leads.
struct StandbyServer<'a> {
    listener: &'a TcpListener,
    limits: ConnectionLimits,
    tls: Option<Arc<TlsFiles>>,
    metrics: MetricsAccess,
}

impl StandbyServer<'_> {
    /// Answers from the moment at which the daemon begins to stand by.
    async fn serve_after(self, standby_begins: oneshot::Receiver<()>) -> anyhow::Result<Infallible> {
        if standby_begins.await.is_err() {
            return std::future::pending().await;
        }
        let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
        let router = http::standby_router(self.metrics);
        let server =
            http::serve_with_tls(listener, router, self.limits, self.tls.clone(), std::future::pending());
        tokio::select! {
            result = server => result?,
            () = tls::watch_files(self.tls) => {}
        }
        anyhow::bail!("the HTTP server ended")
    }
}

/// The limits on connections: the configured ones, as far as the open-file limit allows.
/// `proxy_connections`: further connections that the site's web server may need.
fn connection_limits(config: &HttpConfig, proxy_connections: usize) -> ConnectionLimits {
    let files = raise_open_files();
    let reserved = RESERVED_FILES + proxy_connections as u32;
    let connections = config.max_connections.min(files.saturating_sub(reserved).max(1));
    if connections < config.max_connections {
        tracing::warn!(
            "only {files} open files are allowed, so there may be {connections} connections at a time instead \
             of {}; raise LimitNOFILE (systemd) or ulimit -n",
            config.max_connections
        );
    }
    ConnectionLimits { connections: connections as usize, per_host: config.max_connections_a_host as usize }
}

/// Raises this process's open-file limit to its hard limit. Returns the limit that is in force then.
fn raise_open_files() -> u32 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read or write the structure that is passed to them, which outlives the calls.
    let soft = unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return u32::MAX;
        }
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
        match libc::setrlimit(libc::RLIMIT_NOFILE, &raised) {
            0 => raised.rlim_cur,
            _ => limit.rlim_cur,
        }
    };
    u32::try_from(soft).unwrap_or(u32::MAX)
}

/// A value that becomes true at SIGTERM or SIGINT. The handlers are installed at once, so that no signal is
/// missed between two waits.
fn stop_signal() -> watch::Receiver<bool> {
    use tokio::signal::unix::{SignalKind, signal};
    let (sender, stop) = watch::channel(false);
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    tokio::spawn(async move {
        let (Ok(mut term), Ok(mut int)) = signals else { return std::future::pending().await };
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        // If no receiver is left, the daemon is ending already.
        let _ = sender.send(true);
    });
    stop
}

async fn wait_for_stop(mut stop: watch::Receiver<bool>) {
    // The sender lives until it has sent `true`.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Plans one round against the live cluster, without a daemon and without acting. `infill plan --local` shows
/// the result.
///
/// # Errors
/// When Slurm does not answer, or no plan passes the checker.
pub async fn plan_once(config: &Config) -> anyhow::Result<RoundView> {
    let slurm = wrap_for_lending(RestSlurm::new(&config.slurm)?, config, BTreeMap::new());
    let snapshot = slurm.read_snapshot().await?;
    let config = Arc::new(config.clone());
    let at = now();
    let mut state = DaemonState::new(config.clone(), at);
    let _ = state.update_fleet(&snapshot, at, at);
    let _ = state.update_rounds(snapshot, at);
    let input = state.round_input(true, at).context("no snapshot")?;
    Ok(rounds::plan_round(&PlannerThread::default(), config, input).await?)
}
