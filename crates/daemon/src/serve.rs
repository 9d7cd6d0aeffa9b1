//! Puts the daemon together: store, Slurm, HTTP and the loops. The one place that knows them all.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::access_control::MAX_PROXY_REQUESTS;
use crate::context::{COLLECTIVES_SETTING, CONTROL_SETTING, DaemonContext, DaemonServices};
use crate::effect_queue::EffectReceivers;
use crate::history_writer::{NODE_TIMES_SETTING, SHARED_SAVES_SETTING, USAGE_SETTING};
use crate::http::ConnectionLimits;
use crate::planner_thread::PlannerThread;
use crate::session_store::SESSIONS_SETTING;
use crate::state::{DaemonState, PendingActions};
use crate::timeline::{HOUR_SECS, USE_HOLDS_SECS, UsageHour, hour_of};
use crate::tls::{self, TlsFiles};
use crate::{
    executor, forest_training, http, lead_watch, listen_socket, notices, privacy_watch, rounds, ticks,
    topology_watch,
};
use infill_api::RoundView;
use infill_lifecycle::fleet::{ORDER_BLOCK_SIZE, lowest_order_number};
use infill_model::{
    ControlState, EndedJob, JobId, LendingMode, MetricsAccess, NodeName,
    clock::now,
    config::{Config, HttpConfig},
};
use infill_planner::round::{ENDED_TO_LEARN_FROM, GAPS_TO_LEARN_FROM};
use infill_slurm::{PlacesSlurm, SlurmApi, identity, rest::RestSlurm};
use infill_store as store;
use infill_store::{LeadStanding, Store};

/// Descriptors that are not for connections: the store, slurmrestd, programs and their pipes.
const RESERVED_FILES: u32 = 256;

/// Runs the daemon until SIGTERM or SIGINT. Running jobs stay as they are. `passed` are systemd's sockets,
/// from [`listening::take_passed_sockets`].
///
/// # Errors
/// When it cannot start, and when another daemon has taken over or may have: started again, it stands by.
pub async fn run_daemon(config: Config, passed: listen_socket::PassedSockets) -> anyhow::Result<()> {
    let stop = stop_signal();
    let listen = config.daemon.listen.clone();
    let room = connection_limits(
        &config.http,
        if config.web.socket.as_os_str().is_empty() { 0 } else { MAX_PROXY_REQUESTS },
    );
    let listener = listen_socket::open_listener(&listen, passed).await?;
    let tls = TlsFiles::from_config(&config.daemon)?;
    config.notify.notice_url()?;
    let database_url = config.store.connection_url()?;
    let opens =
        wait_for_lead(&database_url, &listener, (room, tls.clone()), config.http.metrics, stop.clone());
    let Some(store) = opens.await? else { return Ok(()) };
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (context, queues) = build_context(config, store).await?;
    let context = Arc::new(context);
    tracing::info!(
        %listen,
        mode = ?context.config.daemon.mode,
        version = env!("CARGO_PKG_VERSION"),
        "infill serves"
    );
    let told = topology_watch::load_topology(&context).await;
    let router = http::build_router(context.clone());
    let server = http::serve_with_tls(listener, router, (room, tls.clone()), wait_for_stop(stop.clone()));
    let web = http::proxy::open_socket(&context.config.web).await?;
    let web = http::proxy::serve_proxy(web, context.clone(), wait_for_stop(stop.clone()));
    // Whoever leads no more stops at once: they end with this set.
    let mut writers = JoinSet::new();
    writers.spawn(rounds::run(context.clone()));
    writers.spawn(executor::run(context.clone(), queues));
    tokio::select! {
        result = server => result.context("the HTTP server failed")?,
        result = web => result.context("the server on web.socket failed")?,
        Some(ended) = writers.join_next() => ended.context("the daemon broke")?,
        () = ticks::run(context.clone()) => {}
        () = privacy_watch::watch_privacy(context.clone()) => {}
        () = tls::watch_files(tls) => {}
        () = http::browser_sessions::watch_accounts(context.clone()) => {}
        () = topology_watch::watch_topology(context.clone(), told) => {}
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

/// The error with which a daemon ends that has lost the lead. Administrators are told.
async fn report_lead_lost(context: &DaemonContext, why: store::StoreError) -> anyhow::Error {
    notices::notify_lead_lost(&context.config.notify, &why.to_string(), now()).await;
    anyhow::Error::new(why).context("this daemon leads no more, or cannot be sure of it: it ends")
}

/// Lets what is being stored be stored, and has nothing else begin.
async fn finish_writes(context: &DaemonContext, writers: &mut JoinSet<()>) {
    let _nobody_stores = context.saving.jobs.lock().await;
    let _nobody_learns = context.saving.learned.lock().await;
    writers.shutdown().await;
}

/// What a daemon is made of that has just been given the lead.
async fn build_context(
    config: Config,
    store: Arc<dyn Store>,
) -> anyhow::Result<(DaemonContext, EffectReceivers)> {
    let slurm = RestSlurm::new(&config.slurm)?;
    let identity = identity::identity_verifier(&config.slurm);
    let config = Arc::new(config);
    let mut state = DaemonState::new(config.clone(), now());
    let errands = restore_state(&mut state, store.as_ref()).await.context("cannot read the store")?;
    let leads = state.fleet.job_lifecycles().filter_map(|m| Some((m.job, m.lead_node()?.clone()))).collect();
    let slurm = wrap_for_lending(slurm, &config, leads);
    let sessions = store.get_setting(SESSIONS_SETTING).await.context("cannot read the store")?;
    // Until the first look somebody may wait.
    let services = DaemonServices { slurm, store, identity };
    let (context, queues) = DaemonContext::new(services, state, LeadStanding::Watched, now());
    context.notices.announce_lead(now());
    sessions.iter().for_each(|text| context.doors.sessions.load(text, Instant::now(), now()));
    context.run_actions(errands);
    Ok((context, queues))
}

/// Slurm as infill sees it on a site that lends this. `leads`: where each is, as far as that is known.
fn wrap_for_lending(
    slurm: RestSlurm,
    config: &Config,
    leads: BTreeMap<JobId, NodeName>,
) -> Arc<dyn SlurmApi> {
    match config.gaps.lend {
        LendingMode::Nodes => Arc::new(slurm),
        LendingMode::Gpus => {
            let slurm = Arc::new(slurm.with_share_records());
            let parts = config.nodes.clone();
            Arc::new(PlacesSlurm::new(slurm, &config.slurm.partition, parts, leads))
        }
    }
}

/// Reads what the last daemon knew.
pub(crate) async fn restore_state(
    state: &mut DaemonState,
    store: &dyn Store,
) -> Result<PendingActions, store::StoreError> {
    let leads = store.open_leads().await?;
    let gaps = store.recent_gaps(GAPS_TO_LEARN_FROM).await?;
    let first_order = store.next_orders(ORDER_BLOCK_SIZE, lowest_order_number(now())).await?;
    let control = store.get_setting(CONTROL_SETTING).await?;
    state.control = control.and_then(|word| word.parse::<ControlState>().ok()).unwrap_or_default();
    state.scene.learn_gaps(&gaps, now());
    let times = store.get_setting(NODE_TIMES_SETTING).await?;
    times.iter().for_each(|text| state.scene.node_times_mut().load(text));
    let saves = store.get_setting(SHARED_SAVES_SETTING).await?;
    saves.iter().for_each(|text| state.scene.shared_saves_mut().load(text));
    let collectives = store.get_setting(COLLECTIVES_SETTING).await?;
    collectives.iter().for_each(|text| load_collectives(state, text));
    let ended = store.recent_ended_jobs(ENDED_TO_LEARN_FROM).await?;
    state
        .scene
        .priorities_mut()
        .outlook
        .learn_history(&ended.iter().map(EndedJob::to_past_job).collect::<Vec<_>>());
    let usage = store.get_setting(USAGE_SETTING).await?;
    usage.iter().for_each(|text| state.scene.priorities_mut().usage.load(text));
    resume_hour(state, store).await?;
    let hour = hour_of(now());
    state.chronicle.resume_spending(store.sum_node_time(hour, hour + HOUR_SECS).await?);
    state.fleet.orders.refill(first_order);
    let out = state.fleet.restore_jobs(leads, now());
    state.scene.priorities_mut().restore_promises(state.fleet.promises());
    Ok(state.apply_output(out, now()))
}

/// Takes in the site's table of collectives as the last daemon stored it.
fn load_collectives(state: &mut DaemonState, text: &str) {
    match serde_json::from_str(text) {
        Ok(site) => state.scene.job_advisor_mut().set_collectives(site),
        Err(e) => tracing::warn!("the stored table of collectives cannot be read: {e}"),
    }
}

/// Goes on with the hour in which the last daemon noted what nodes were used for.
async fn resume_hour(state: &mut DaemonState, store: &dyn Store) -> Result<(), store::StoreError> {
    // Not what a clock that was wrong has noted for later.
    let now = now();
    let reach = (HOUR_SECS + USE_HOLDS_SECS) as f64;
    let Some(packed) = store.hours_between(now.plus_secs(-reach), now, 2).await?.pop() else { return Ok(()) };
    match UsageHour::unpack(&packed) {
        Ok(hour) => state.chronicle.resume_hour(hour),
        Err(e) => tracing::warn!("what nodes were used for in the last hour cannot be read: {e}"),
    }
    Ok(())
}

/// Opens the store and waits until this daemon leads on it; `None` if it was told to stop before. Where
/// another leads, requests are answered meanwhile: this one stands by, so that agents and command line go on
/// to the next.
///
/// # Errors
/// When the store cannot be opened.
async fn wait_for_lead(
    database_url: &str,
    listener: &TcpListener,
    door: (ConnectionLimits, Option<Arc<TlsFiles>>),
    metrics: MetricsAccess,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<Option<Arc<dyn Store>>> {
    let (tell, told) = oneshot::channel();
    let stand_by = move || {
        tracing::info!("another daemon leads: this one stands by");
        // If nobody listens any more, the daemon ends.
        let _ = tell.send(());
    };
    tokio::select! {
        store = store::open_store(database_url, stand_by) => store.map(Some).context("cannot open the store"),
        failed = serve_standby(told, listener, door, metrics) => match failed? {},
        () = wait_for_stop(stop) => Ok(None),
    }
}

/// Answers from the moment in which the daemon begins to stand by.
async fn serve_standby(
    told: oneshot::Receiver<()>,
    listener: &TcpListener,
    (room, tls): (ConnectionLimits, Option<Arc<TlsFiles>>),
    metrics: MetricsAccess,
) -> anyhow::Result<Infallible> {
    if told.await.is_err() {
        return std::future::pending().await;
    }
    let listener = tokio::net::TcpListener::from_std(listener.try_clone()?)?;
    let server = http::serve_with_tls(
        listener,
        http::standby_router(metrics),
        (room, tls.clone()),
        std::future::pending(),
    );
    tokio::select! {
        result = server => result?,
        () = tls::watch_files(tls) => {}
    }
    anyhow::bail!("the HTTP server ended")
}

/// How many connections there may be, beside those of the site's web server: as many as the configuration
/// says, and descriptors allow.
fn connection_limits(config: &HttpConfig, vouched: usize) -> ConnectionLimits {
    let files = raise_open_files();
    let kept = RESERVED_FILES + vouched as u32;
    let connections = config.max_connections.min(files.saturating_sub(kept).max(1));
    if connections < config.max_connections {
        tracing::warn!(
            "{files} open files are allowed: {connections} connections at a time instead of {} \
             (LimitNOFILE, or ulimit -n)",
            config.max_connections
        );
    }
    ConnectionLimits { connections: connections as usize, a_host: config.max_connections_a_host as usize }
}

/// Lets this process open as many files as it may; says how many that are.
fn raise_open_files() -> u32 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read or write the structure that they are given, which lives long enough.
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

/// Becomes true once SIGTERM or SIGINT has come, from now on: none is missed between two waits.
fn stop_signal() -> watch::Receiver<bool> {
    use tokio::signal::unix::{SignalKind, signal};
    let (tell, told) = watch::channel(false);
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    tokio::spawn(async move {
        let (Ok(mut term), Ok(mut int)) = signals else { return std::future::pending().await };
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        // If nobody listens any more, the daemon ends already.
        let _ = tell.send(true);
    });
    told
}

async fn wait_for_stop(mut told: watch::Receiver<bool>) {
    // The sender lives until it has told.
    let _ = told.wait_for(|told| *told).await;
}

/// One round against the live cluster, without a daemon and without acting: what `infill plan --local` shows.
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
    let question = state.round_input(true, at);
    let question = question.context("no snapshot")?;
    Ok(rounds::plan_round(&PlannerThread::default(), config, question).await?)
}
