//! Floor 8: start and stop order, readable from the top down.

pub mod account;
mod banner;
pub mod board;
mod ceilings;
mod eye;
pub mod host;
pub mod itself;
mod judging;
mod keeper;
pub mod meetings;
pub mod mesh;
pub mod peers;
pub mod plan;
pub mod probing;
pub mod sampling;
pub mod state;
pub mod supervise;
pub mod targets;
mod working;

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use itself::descs;

use board::Board;
use keeper::Keeper;
use meetings::Meetings;
use plan::Plan;
use probing::Probing;
use sampling::Sampling;
use supervise::{Halt, Lane, Pulse};

use crate::base::clock::{Clock, Moment, SystemClock};
use crate::base::fault::{Fault, FaultKind};
use crate::config::complaint::Complaint;
use crate::config::document::Document;
use crate::config::settings::Settings;
use crate::config::watch::Watched;
use crate::host::roots::Roots;
use crate::iperf::server::Server;
use crate::model::snapshot::HostFacts;
use crate::publish::Published;
use crate::web;
use crate::worker::parent::ProcessRunner;
use crate::worker::{Runner, Stop};

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    pub config: Option<PathBuf>,
    /// Replaces the configuration's addresses where it isn't empty.
    pub listen: Vec<String>,
    pub roots: Roots,
    pub state: PathBuf,
}

/// Why the daemon did not start.
#[derive(Debug)]
pub enum StartFault {
    Config(Box<Complaint>),
    Other(Fault),
}

impl From<Complaint> for StartFault {
    fn from(complaint: Complaint) -> Self {
        StartFault::Config(Box::new(complaint))
    }
}

impl From<Fault> for StartFault {
    fn from(fault: Fault) -> Self {
        StartFault::Other(fault)
    }
}

/// Where the turn's lock may lie, best first.
pub fn turn_places(state: &std::path::Path) -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    crate::schedule::turn::places(runtime.as_deref(), state)
}

/// How often the configuration file is looked at: seldom while it stands still, since each look wakes
/// a thread.
const CONFIG_POLL: Duration = Duration::from_secs(5);
const CONFIG_POLL_CHANGING: Duration = Duration::from_secs(1);
/// A stopping lane gets this long: its worker is told, then killed, then given up.
const LANE_END: Duration = Duration::from_millis(3900);

/// Reads the configuration, or takes the embedded defaults, and makes the plan.
///
/// # Errors
/// A complaint with its place, or the fault of reading the file.
pub fn load(options: &Options) -> Result<(Arc<Plan>, Option<Watched>), StartFault> {
    let Some(path) = &options.config else {
        let document = Document::parse("defaults", "")?;
        return Ok((planned(&document, options)?, None));
    };
    let mut watched = Watched::new(path.clone());
    let text = watched.read()?;
    let document = Document::from_bytes(&path.display().to_string(), &text)?;
    Ok((planned(&document, options)?, Some(watched)))
}

fn planned(document: &Document, options: &Options) -> Result<Arc<Plan>, Complaint> {
    let settings = Settings::read(document, &plan::kind_names())?;
    Ok(Arc::new(Plan::build(settings, document, &options.state)?))
}

/// Runs until it is told to stop. `out` gets the first lines.
///
/// # Errors
/// Only faults of the start; later ones are metrics and states.
pub fn serve(options: Options, out: &mut dyn Write) -> Result<(), StartFault> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let started = clock.now();
    let (plan, watched) = load(&options)?;
    host::roots_are_there(&options.roots)?;
    let addresses = if options.listen.is_empty() {
        plan.settings.listen.clone()
    } else {
        options.listen.clone()
    };
    let listeners = addresses
        .iter()
        .map(|address| web::listen::bind(address, "--listen"))
        .collect::<Result<Vec<_>, Fault>>()?;
    let runner: Arc<dyn Runner> = Arc::new(ProcessRunner::new(Arc::clone(&clock)));
    let host = host::facts(&options.roots);
    let board = Arc::new(Board::default());
    board.lock().plan = Some(Arc::clone(&plan));
    let peers = peers::start(&board, &host, &clock, &options)?;
    let start = banner::Start {
        options: &options,
        plan: &plan,
        host: &host,
        addresses: &addresses,
        runner: runner.as_ref(),
        clock: clock.as_ref(),
    };
    let notes = banner::print(&start, out);
    let daemon =
        Daemon::start(Parts { options, plan, board, peers, clock, runner, host, started, notes })?;
    let ended = daemon.serve_http(listeners);
    let result = ended.and_then(|web| daemon.until_stopped(watched, web));
    daemon.stop();
    Ok(result?)
}

/// What a daemon is put together from.
struct Parts {
    options: Options,
    plan: Arc<Plan>,
    board: Arc<Board>,
    peers: Option<Server>,
    clock: Arc<dyn Clock>,
    runner: Arc<dyn Runner>,
    host: HostFacts,
    started: Moment,
    notes: Vec<String>,
}

struct Daemon {
    options: Options,
    board: Arc<Board>,
    published: Arc<Published>,
    clock: Arc<dyn Clock>,
    halt: Halt,
    stop: Stop,
    pulses: Arc<Mutex<Vec<Arc<Pulse>>>>,
    lanes: Mutex<Vec<Lane>>,
    /// Until the daemon has stopped: a test under way is told.
    peers: Option<Server>,
}

impl Daemon {
    fn start(parts: Parts) -> Result<Self, Fault> {
        let Parts { options, plan, board, peers, clock, runner, host, started, notes } = parts;
        {
            let mut shared = board.lock();
            shared.notes = notes;
            shared.reload_ok = true;
            shared.reload_at = Some(started);
        }
        let published = Arc::new(Published::new(plan.settings.sample.every));
        let (halt, stop) = (Halt::default(), Stop::default());
        let pulses = Arc::new(Mutex::new(Vec::new()));
        let probing = Probing {
            roots: options.roots.clone(),
            board: Arc::clone(&board),
            clock: Arc::clone(&clock),
            halt: halt.clone(),
            stop: stop.clone(),
            keeper: Keeper {
                runner: Arc::clone(&runner),
                directory: options.state.clone(),
                machine: host.machine_id.clone(),
            },
            runner: Arc::clone(&runner),
            turn_places: turn_places(&options.state),
            host_name: host.name.clone(),
            host_seed: u64::from(crc32fast::hash(host.name.as_bytes())),
        };
        let meetings = Meetings {
            roots: options.roots.clone(),
            board: Arc::clone(&board),
            clock: Arc::clone(&clock),
            halt: halt.clone(),
            stop: stop.clone(),
            runner,
            turn_places: turn_places(&options.state),
            host_name: host.name.clone(),
            boot_id: host.boot_id.clone(),
        };
        let sampling = Sampling {
            roots: options.roots.clone(),
            host: Arc::new(host),
            board: Arc::clone(&board),
            published: Arc::clone(&published),
            clock: Arc::clone(&clock),
            halt: halt.clone(),
            started,
            pulses: Arc::clone(&pulses),
        };
        let no_thread = |error| Fault::os("no thread for a lane", &error);
        let spawn = |name, body: Box<dyn Fn(&Pulse) + Send>| {
            supervise::lane(name, halt.clone(), Arc::clone(&clock), body).map_err(no_thread)
        };
        let lanes = vec![
            spawn("sampling", Box::new(move |pulse| sampling.run(pulse)))?,
            spawn("probing", Box::new(move |pulse| probing.run(pulse)))?,
            spawn("peers", Box::new(move |pulse| meetings.run(pulse)))?,
        ];
        if let Ok(mut all) = pulses.lock() {
            all.extend(lanes.iter().map(|lane| Arc::clone(&lane.pulse)));
        }
        let lanes = lanes.into();
        Ok(Self { options, board, published, clock, halt, stop, pulses, lanes, peers })
    }

    /// HTTP on a thread of its own with a runtime of its own; ends when the daemon halts.
    fn serve_http(&self, listeners: Vec<std::net::TcpListener>) -> Result<Web, Fault> {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let router = web::routes::router(Arc::clone(&self.published), Arc::clone(&self.clock));
        let thread = std::thread::Builder::new()
            .name("web".into())
            .spawn(move || {
                let stopped = async move {
                    let _ = stopped.await;
                };
                web::listen::serve(listeners, router, web::listen::Limits::default(), stopped)
            })
            .map_err(|error| Fault::os("no thread for HTTP", &error))?;
        Ok(Web { stop, thread })
    }

    /// Signals, reloads and the watchdog, until it is time to stop or HTTP has died.
    fn until_stopped(&self, watched: Option<Watched>, web: Web) -> Result<(), Fault> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Fault::os("no runtime for signals", &error))?;
        let web_died = runtime.block_on(self.watch(watched, &web))?;
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        let _ = web.stop.send(());
        if web_died {
            let error = web.thread.join();
            return Err(Fault::new(FaultKind::Internal, format!("HTTP ended: {error:?}")));
        }
        Ok(())
    }

    /// True when HTTP ended by itself.
    async fn watch(&self, mut watched: Option<Watched>, web: &Web) -> Result<bool, Fault> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).map_err(|error| Fault::os("no signal handler", &error));
        let mut terminate = listen(SignalKind::terminate())?;
        let mut interrupt = listen(SignalKind::interrupt())?;
        let mut hangup = listen(SignalKind::hangup())?;
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        loop {
            let changing = watched.as_ref().is_some_and(Watched::is_changing);
            let pause = if changing { CONFIG_POLL_CHANGING } else { CONFIG_POLL };
            tokio::select! {
                _ = terminate.recv() => return Ok(false),
                _ = interrupt.recv() => return Ok(false),
                _ = hangup.recv() => self.reload(watched.as_mut(), true),
                () = tokio::time::sleep(pause) => {
                    self.reload(watched.as_mut(), false);
                    self.pat_watchdog();
                    self.count_served();
                    if web.thread.is_finished() {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// A new plan is built whole and swapped whole, or refused with the old one kept.
    fn reload(&self, watched: Option<&mut Watched>, forced: bool) {
        let Some(watched) = watched else {
            if forced {
                tracing::info!("nothing to reload: loadline runs on its defaults");
            }
            return;
        };
        let text = if forced { watched.read().map(Some) } else { watched.poll() };
        let text = match text {
            Ok(None) => return,
            Ok(Some(text)) => Ok(text),
            Err(fault) => Err(StartFault::Other(fault)),
        };
        let name = self.options.config.as_ref().map_or(String::new(), |p| p.display().to_string());
        let plan = text.and_then(|text| {
            let document = Document::from_bytes(&name, &text)?;
            Ok(planned(&document, &self.options)?)
        });
        let now = self.clock.now();
        let mut shared = self.board.lock();
        match plan {
            Ok(plan) => {
                let listen = |settings: &Settings| {
                    settings.peers.as_ref().and_then(|peers| peers.listen.clone())
                };
                let restart = shared.plan.as_ref().is_some_and(|old| {
                    let (old, new) = (&old.settings, &plan.settings);
                    (self.options.listen.is_empty() && old.listen != new.listen)
                        || listen(old) != listen(new)
                });
                if restart {
                    tracing::warn!("`listen` or `peers.listen` changed: that needs a restart");
                }
                self.published.set_period(plan.settings.sample.every);
                shared.plan = Some(plan);
                shared.reload_ok = true;
                shared.reload_at = Some(now);
                tracing::info!("configuration loaded");
            }
            Err(fault) => {
                shared.reload_ok = false;
                drop(shared);
                tracing::error!("configuration refused, the old one stays\n{fault}");
            }
        }
    }

    fn count_served(&self) {
        if let Some(server) = &self.peers {
            self.board.lock().mesh_view.served = Some(peers::served(server));
        }
    }

    /// The watchdog is fed only while every lane makes progress.
    fn pat_watchdog(&self) {
        let now = self.clock.now();
        let pulses = self.pulses.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match pulses.iter().find(|pulse| pulse.is_late(now)) {
            None => {
                let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
            }
            Some(late) => tracing::error!(lane = late.name, "no progress; the watchdog is not fed"),
        }
    }

    /// No new probe, the running one cancelled, state saved; what doesn't end in time is left behind.
    fn stop(&self) {
        self.halt.set();
        self.stop.set();
        let lanes = std::mem::take(
            &mut *self.lanes.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
        );
        let begun = self.clock.now();
        for lane in lanes {
            let name = lane.pulse.name;
            let left = LANE_END.saturating_sub(self.clock.now().since(begun).duration());
            if !lane.end_within(left, self.clock.as_ref()) {
                tracing::warn!(lane = name, "did not end in time and is left behind");
            }
        }
    }
}

struct Web {
    stop: tokio::sync::oneshot::Sender<()>,
    thread: std::thread::JoinHandle<std::io::Result<()>>,
}

impl std::fmt::Display for StartFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartFault::Config(complaint) => write!(f, "{complaint}"),
            StartFault::Other(fault) => write!(f, "{fault}"),
        }
    }
}
