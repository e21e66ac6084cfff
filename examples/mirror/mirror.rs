//! One run, from the open places to the exit code.

use std::io::{ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit};

use crate::attributes::identity;
use crate::chaos::Chaos;
use crate::engine::Engine;
use crate::job::Job;
use crate::names::TempNames;
use crate::options::Options;
use crate::places::{Places, Refused};
use crate::progress::Progress;
use crate::report::Ending;
use crate::run::Run;
use crate::tree::{Copy, Directory};
use crate::walk::Walk;

/// After an interruption, running attempts have so long to come to an end.
const GRACE: Duration = Duration::from_secs(3);
/// At the very end, an attempt that is inside the system has so long to come out of it.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// Jobs in hand: enough that some of them hang or wait for another attempt and the rest goes on.
const ROOM: usize = 512;
/// The exit code of programs that end because of an interrupt.
const INTERRUPTED: i32 = 130;

/// Does what the command line asks for; returns the exit code.
pub(crate) fn mirror(mut options: Options) -> Result<i32, Refused> {
    let start = Instant::now();
    let seed = options.seed();
    let places = Places::open(&options.src, &options.dst, options.dry_run)?;
    // Modes are given as they shall be.
    rustix::process::umask(Mode::empty());
    let room = room(raise_open_files());

    let chaos = Chaos::new(options.chaos, seed, options.attempt_timeout());
    let (dst, exclusive) = match &places.dst {
        Some(dst) => (Some(dst.stat), dst.exclusive),
        None => (None, false),
    };
    let temps = TempNames::new(dst.as_ref().unwrap_or(&places.src_stat));
    let src = identity(&places.src_stat);
    let run = Arc::new(Run::new(options, chaos, temps, src, exclusive, room));
    let copy = match places.dst {
        Some(dst) => {
            Some(Copy::new(dst.fd, dst.existed, !run.options.dry_run).map_err(|failure| {
                Refused::system("cannot use DST", &run.options.dst, std::io::Error::other(failure))
            })?)
        }
        None => None,
    };
    let root = Directory::root(places.src, places.src_stat, copy);

    stop_on_signals(&run)?;
    let engine = Engine::start(&run).map_err(|error| Refused::Engine(error.to_string()))?;
    let progress = Progress::show(run.clone(), root.src.as_fd(), engine.retries());
    Walk::new(&run, dst.as_ref(), &mut |job| submit(&run, &engine, job)).walk(root);
    run.window.wait_empty();

    let interrupted = run.is_stopping();
    let counts = engine.shutdown(if interrupted { GRACE } else { Duration::ZERO });
    let unsettled = run.window.drain(Duration::ZERO);
    run.close_all(unsettled, LAST_PATIENCE);
    drop(progress);

    let summary = run.report.summary(Ending {
        retried: counts.retried,
        taken_over: counts.taken_over,
        fenced: counts.fenced,
        interrupted,
        dry_run: run.options.dry_run,
        seconds: start.elapsed().as_secs_f64(),
        seed: (run.options.chaos > 0.0).then_some(seed),
    });
    let text = if run.options.json { summary.json() + "\n" } else { summary.text() };
    let mut out = std::io::stdout().lock();
    let told = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    let untold = match told {
        // Nobody is there to read it; the exit code still says how it went.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => false,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "mirror: cannot write the summary: {error}");
            true
        }
        Ok(()) => false,
    };
    Ok(match (interrupted, run.report.failures()) {
        (true, _) => INTERRUPTED,
        (false, 0) if !untold => 0,
        (false, _) => 1,
    })
}

/// Hands the job to the engine as soon as there is room for it.
fn submit(run: &Arc<Run>, engine: &Engine, job: Job) {
    let job = Arc::new(job);
    match run.window.admit(&job) {
        Some(ticket) => engine.submit(ticket, job),
        None => run.withdraw(&job),
    }
}

/// The first signal ends the run in order, the second one at once.
fn stop_on_signals(run: &Arc<Run>) -> Result<(), Refused> {
    let run = run.clone();
    let asked = AtomicBool::new(false);
    ctrlc::set_handler(move || {
        // Relaxed: one thread handles all signals.
        if asked.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
        run.stop();
    })
    .map_err(|error| Refused::Engine(format!("cannot handle signals: {error}")))
}

/// Asks for as many open files as we may have; returns how many that are.
fn raise_open_files() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// Each job in hand may keep a directory open on both sides, beside what the workers have open.
fn room(open_files: u64) -> usize {
    usize::try_from(open_files.saturating_sub(64) / 4).unwrap_or(usize::MAX).clamp(8, ROOM)
}
