//! Builds all, spawns all, stops all. The only place that starts long-lived tasks.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use tokio::net::UnixDatagram;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, Problem};
use crate::events::{Alert, Events};
use crate::frontdoor::{CurrentSnapshot, Reactive, Snapshot};
use crate::gateway::{GatewayOutbox, Health, MailboxGateway, Notices, Told};
use crate::harness::Stop;
use crate::inference::Models;
use crate::run::{EventKind, Outbox};
use crate::store::{Expired, OpenOptions, Store};
use crate::tls;
use crate::tools::Catalog;

/// The same trouble is told to the operator at most once in this time.
const ALERT_WINDOW: Duration = Duration::from_secs(6 * 3600);

/// Alerts that may wait to be written; more are logged only.
const ALERTS: usize = 256;

/// A task's end: none of them ends before it is told to, unless something is wrong.
type Task = anyhow::Result<()>;

/// How long an alert that could not be queued waits.
const ALERT_RETRY: Duration = Duration::from_secs(5);

/// How often what is older than `[retention]` allows is looked for.
const EXPIRY: Duration = Duration::from_secs(24 * 3600);

/// What an [`Alert`] was called with: key, subject, text.
type AlertText = (String, String, String);

/// How the daemon is run.
#[derive(Debug, Default)]
pub struct Options {
    /// Cancelled by whoever wants it to end; SIGTERM and SIGINT do the same.
    pub stop: CancellationToken,
    /// Told once every reachable mailbox is watched.
    pub ready: Option<tokio::sync::oneshot::Sender<()>>,
    /// For crash tests.
    pub store: OpenOptions,
}

/// Where a command finds the daemon of a store to wake it: `dutiful.sock` beside the store.
pub fn socket_path(store: &Path) -> PathBuf {
    store.with_file_name("dutiful.sock")
}

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// When it cannot start, or a part of it failed: the supervisor starts it again.
pub async fn run(config: Config, options: Options) -> anyhow::Result<()> {
    let store = Store::open(&config.settings.store, options.store)?;
    let events = Events::default();
    let wake = bind_socket(&socket_path(&config.settings.store))?;
    let current = CurrentSnapshot::new(Arc::new(snapshot(config, &store, &events)?));
    let mut daemon = Daemon::new(store, events, current);
    daemon.spawn_parts(wake);
    daemon.start_gateway()?;
    let ended = daemon.supervise(options.stop, options.ready).await;
    let stopped = daemon.stop().await;
    ended.and(stopped)
}

/// All running parts.
struct Daemon {
    store: Store,
    events: Events,
    current: CurrentSnapshot,
    stop: Stop,
    tasks: JoinSet<Task>,
    gateway: JoinSet<Task>,
    gateway_stop: CancellationToken,
    health: Vec<Health>,
    alerts: mpsc::Sender<AlertText>,
    unwritten: Option<mpsc::Receiver<AlertText>>,
}

impl Daemon {
    fn new(store: Store, events: Events, current: CurrentSnapshot) -> Daemon {
        let (alerts, unwritten) = mpsc::channel(ALERTS);
        Daemon {
            store,
            events,
            current,
            stop: Stop::default(),
            tasks: JoinSet::new(),
            gateway: JoinSet::new(),
            gateway_stop: CancellationToken::new(),
            health: Vec::new(),
            alerts,
            unwritten: Some(unwritten),
        }
    }

    /// The parts that a reload does not touch.
    fn spawn_parts(&mut self, wake: UnixDatagram) {
        let door = Reactive::new(self.store.clone(), self.events.clone(), self.current.clone(), self.alert());
        let stop = self.stop.clone();
        self.tasks.spawn(async move { door.serve(stop).await.context("the reactive door") });
        self.tasks.spawn(listen(wake, self.store.clone(), self.stop.draining.clone()));
        self.tasks.spawn(expire(self.store.clone(), self.current.clone(), self.stop.draining.clone()));
        if let Some(unwritten) = self.unwritten.take() {
            let (store, events, current) = (self.store.clone(), self.events.clone(), self.current.clone());
            self.tasks.spawn(write_alerts(unwritten, store, events, current, self.stop.draining.clone()));
        }
    }

    /// A receiver and a sender for each mailbox.
    fn start_gateway(&mut self) -> anyhow::Result<()> {
        let snapshot = self.current.load();
        self.gateway_stop = CancellationToken::new();
        self.health.clear();
        for mailbox in snapshot.config.settings.mailboxes.values() {
            let tls =
                Arc::new(tls::client_config(mailbox.ca.as_deref()).with_context(|| format!("ca_file of the mailbox {}", mailbox.name))?);
            let gateway = Arc::new(MailboxGateway {
                mailbox: Arc::new(mailbox.clone()),
                settings: Arc::clone(&snapshot.config.settings),
                agents: snapshot.config.agents.clone(),
                store: self.store.clone(),
                events: self.events.clone(),
                alert: self.alert(),
                tls,
                health: Health::default(),
            });
            self.health.push(gateway.health.clone());
            let (receiving, sending, copying) = (Arc::clone(&gateway), Arc::clone(&gateway), gateway);
            let stop = self.gateway_stop.clone();
            self.gateway.spawn(async move { receiving.receive(stop).await.context("receiving") });
            let stop = self.gateway_stop.clone();
            self.gateway.spawn(async move {
                sending.send(stop).await;
                Ok(())
            });
            let stop = self.gateway_stop.clone();
            self.gateway.spawn(async move { copying.copy(stop).await.context("copying sent letters") });
        }
        Ok(())
    }

    /// A way to tell the operator something that never blocks and never fails.
    fn alert(&self) -> Alert {
        let alerts = self.alerts.clone();
        Arc::new(move |key, subject, text| {
            tracing::warn!(key, "the operator is told");
            if alerts.try_send((key, subject, text)).is_err() {
                tracing::error!("an alert could not be queued: too many wait");
            }
        })
    }

    /// Watches signals and tasks until the end.
    async fn supervise(&mut self, stop: CancellationToken, ready: Option<tokio::sync::oneshot::Sender<()>>) -> anyhow::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut watchdog = tokio::time::interval(watchdog_period());
        let mut ready = ready;
        let mut announced = false;
        loop {
            let settled = all_settled(self.health.clone());
            tokio::select! {
                // Whatever else ends or is told at the same time: a failed store is the cause, and is what is said.
                biased;
                reason = self.store.failed() => anyhow::bail!("the store failed: {reason}"),
                () = settled, if !announced => {
                    announced = true;
                    notify(&[sd_notify::NotifyState::Ready]);
                    tracing::info!(mailboxes = self.health.len(), epoch = self.store.epoch(), "ready");
                    if let Some(ready) = ready.take() {
                        // Whoever waited may have gone.
                        ready.send(()).unwrap_or(());
                    }
                }
                _ = terminate.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                () = stop.cancelled() => return Ok(()),
                _ = hangup.recv() => self.reload()?,
                Some(ended) = self.tasks.join_next() => return Err(fault(ended)),
                Some(ended) = self.gateway.join_next() => self.left_gateway(ended)?,
                _ = watchdog.tick() => notify(&[sd_notify::NotifyState::Watchdog]),
            }
        }
    }

    /// Takes the files anew. Bad ones change nothing and are told of (DESIGN 2.1). The gateway is told to end, and
    /// begins anew once the letters that it has in hand are through: a server may take minutes over the last one, and
    /// meanwhile signals and the watchdog are served.
    fn reload(&mut self) -> anyhow::Result<()> {
        let old = self.current.load();
        let fresh = Config::load(&old.config.home)
            .map_err(|problems| told(&problems))
            .and_then(|config| snapshot(config, &self.store, &self.events).map_err(|error| format!("{error:#}")));
        let fresh = match fresh {
            Ok(fresh) if fresh.config.settings.store != old.config.settings.store => {
                Err("[store] path cannot change while serving".to_owned())
            }
            other => other,
        };
        match fresh {
            Err(problems) => {
                tracing::error!("the configuration was not reloaded; the old one stays:\n{problems}");
                self.events.emit(None, EventKind::ConfigReloaded, json!({ "ok": false }));
                Ok(())
            }
            Ok(fresh) => {
                self.current.replace(Arc::new(fresh));
                self.store.letters_waiting().notify_one();
                self.gateway_stop.cancel();
                if self.gateway.is_empty() { self.begin_again() } else { Ok(()) }
            }
        }
    }

    /// A part of the gateway ended: as a reload told it to, or because something is wrong.
    fn left_gateway(&mut self, ended: Result<Task, JoinError>) -> anyhow::Result<()> {
        match ended {
            Ok(Ok(())) if self.gateway_stop.is_cancelled() => {}
            ended => return Err(fault(ended)),
        }
        // Never two senders on one outbox: the new parts wait for the last of the old.
        if self.gateway.is_empty() { self.begin_again() } else { Ok(()) }
    }

    fn begin_again(&mut self) -> anyhow::Result<()> {
        self.start_gateway()?;
        self.events.emit(None, EventKind::ConfigReloaded, json!({ "ok": true }));
        tracing::info!("configuration reloaded");
        Ok(())
    }

    /// Stops: intake first, then runs at their next step boundary, then whatever can be aborted, then all
    /// (harness K2). A second signal ends at once: the journal suffices.
    async fn stop(mut self) -> anyhow::Result<()> {
        notify(&[sd_notify::NotifyState::Stopping]);
        tracing::info!("stopping");
        let grace = self.current.load().config.settings.limits.shutdown_grace;
        self.stop.draining.cancel();
        self.gateway_stop.cancel();
        let mut again = Signals::new()?;
        let aborting = self.stop.aborting.clone();
        let ended = async {
            while let Some(ended) = self.tasks.join_next().await {
                log_end(ended);
            }
            while let Some(ended) = self.gateway.join_next().await {
                log_end(ended);
            }
        };
        tokio::select! {
            () = ended => {}
            () = async { tokio::time::sleep(grace / 2).await; aborting.cancel(); tokio::time::sleep(grace / 2).await } => {
                tracing::warn!("some work did not end in time; it goes on after the next start");
            }
            () = again.recv() => tracing::warn!("told twice: ending at once"),
        }
        self.tasks.shutdown().await;
        self.gateway.shutdown().await;
        self.store.close().await;
        Ok(())
    }
}

/// SIGTERM and SIGINT.
struct Signals(Signal, Signal);

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals(signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    }

    async fn recv(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

/// Everything that is built from one configuration.
fn snapshot(config: Config, store: &Store, events: &Events) -> anyhow::Result<Snapshot> {
    let tls = tls::client_config(None)?;
    let models = Models::build(&config.settings, &tls).context("the models")?;
    let catalog = Catalog::build(&config.settings).map_err(|problems| anyhow::anyhow!(told(&problems)))?;
    let outbox: Arc<dyn Outbox> = Arc::new(GatewayOutbox::new(store.clone(), events.clone()));
    Ok(Snapshot { config, models, catalog, outbox })
}

fn told(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Commands write their intent into the store and send one datagram here; whoever waits looks again.
async fn listen(socket: UnixDatagram, store: Store, stop: CancellationToken) -> Task {
    let mut word = [0; 16];
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            received = socket.recv(&mut word) => {
                received.context("the socket for commands")?;
                store.letters_waiting().notify_one();
                store.outgoing_waiting().notify_waiters();
                store.outgoing_waiting().notify_one();
            }
        }
    }
}

/// A socket that an earlier daemon left behind is replaced: the store's lock says that it is gone.
fn bind_socket(path: &Path) -> anyhow::Result<UnixDatagram> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).context("the old socket for commands"),
        _ => {}
    }
    let socket = UnixDatagram::bind(path).with_context(|| format!("the socket for commands, {}", path.display()))?;
    let only_us = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, only_us)?;
    Ok(socket)
}

/// Writes alerts as letters to the operator, each thing once. What cannot be queued, since the disk is full or
/// the operator's mails of this hour are used up, is kept and tried again (security R8, R27).
async fn write_alerts(
    mut alerts: mpsc::Receiver<AlertText>,
    store: Store,
    events: Events,
    current: CurrentSnapshot,
    stop: CancellationToken,
) -> Task {
    let mut waiting: VecDeque<AlertText> = VecDeque::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            alert = alerts.recv() => match alert {
                Some(alert) if waiting.iter().any(|(key, ..)| *key == alert.0) => continue,
                Some(alert) if waiting.len() < ALERTS => waiting.push_back(alert),
                Some((key, ..)) => tracing::error!(key, "an alert is dropped: too many wait"),
                None => return Ok(()),
            },
            () = tokio::time::sleep(ALERT_RETRY), if !waiting.is_empty() => {}
        }
        let settings = Arc::clone(&current.load().config.settings);
        let Some(mailbox) = settings.mailboxes.keys().next().cloned() else { continue };
        let notices = Notices::new(store.clone(), events.clone(), settings, &mailbox);
        while let Some((key, subject, text)) = waiting.front() {
            if notices.tell_once(key, ALERT_WINDOW, subject, text).await == Told::Later {
                break;
            }
            waiting.pop_front();
        }
    }
}

/// Erases what is older than `[retention]` allows, at the start and once a day (email B16, K3). What could not be erased
/// is met again the next day.
async fn expire(store: Store, current: CurrentSnapshot, stop: CancellationToken) -> Task {
    let mut daily = tokio::time::interval(EXPIRY);
    daily.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let due = async {
            daily.tick().await;
            let settings = Arc::clone(&current.load().config.settings);
            store.expire(&settings.retention, crate::clock::now()).await
        };
        let expired = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            expired = due => expired,
        };
        match expired {
            Ok(expired) if expired.is_empty() => tracing::debug!("nothing is older than [retention] allows"),
            Ok(Expired { raw, letters, runs, outgoing, rows }) => {
                tracing::info!(raw, letters, runs, outgoing, rows, "erased what is older than [retention] allows");
            }
            Err(error) => tracing::warn!(%error, "what is older than [retention] allows could not all be erased"),
        }
    }
}

async fn all_settled(health: Vec<Health>) {
    for mailbox in health {
        mailbox.settled().await;
    }
}

fn watchdog_period() -> Duration {
    sd_notify::watchdog_enabled().map_or(Duration::from_secs(3600), |period| (period / 3).max(Duration::from_millis(100)))
}

/// Without systemd there is nobody to tell, which is no error.
fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(error = %error, "systemd was not told");
    }
}

fn fault(ended: Result<Task, JoinError>) -> anyhow::Error {
    match ended {
        Ok(Ok(())) => anyhow::anyhow!("a part of the daemon ended by itself"),
        Ok(Err(error)) => error,
        Err(error) => anyhow::anyhow!("a part of the daemon crashed: {error}"),
    }
}

fn log_end(ended: Result<Task, JoinError>) {
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!("while stopping: {error:#}"),
        Err(error) => tracing::error!("while stopping: {error}"),
    }
}

#[cfg(test)]
#[path = "daemon_tests.rs"]
mod tests;
