//! What is happening right now: a bar on a terminal, a line now and then elsewhere.
//!
//! How much there is to do is not known when the work begins. For the bar a second thread counts
//! ahead of the walk; until it is through, the bar shows what is done and no estimate. Where nobody
//! watches a bar, nobody counts.

use std::ffi::CString;
use std::io::{IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{BinaryBytes, HumanCount, ProgressBar, ProgressStyle};
use rustix::fs::{AtFlags, Dir, FileType, Mode};

use crate::report::Count;
use crate::run::Run;
use crate::tree::DIRECTORY;

/// How often the bar moves.
const BAR: Duration = Duration::from_millis(100);
/// How often a line appears.
const LINE: Duration = Duration::from_secs(5);
/// What a file costs, in bytes, for the estimate: creating one takes as long as writing so much.
const FILE: u64 = 32 << 10;

/// The thread that shows it. Dropping this ends it and takes the bar away.
#[derive(Debug)]
pub(crate) struct Progress {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What there is to do, as far as it has been counted.
#[derive(Debug, Default)]
struct Total {
    files: Count,
    bytes: Count,
    counted: AtomicBool,
}

impl Progress {
    /// Shows how `run` gets on. `retried` is asked now and then, `src` is counted if there is a bar.
    pub(crate) fn show(
        run: Arc<Run>,
        src: BorrowedFd<'_>,
        retried: impl Fn() -> u64 + Send + 'static,
    ) -> Self {
        let quiet = run.options.json || run.options.dry_run;
        if quiet {
            return Self { end: None, thread: None };
        }
        let (end, ended) = channel();
        let bar = std::io::stderr().is_terminal();
        let src = if bar { src.try_clone_to_owned().ok() } else { None };
        let thread = std::thread::Builder::new().name("mirror-progress".into()).spawn(move || {
            let wait = |time| !matches!(ended.recv_timeout(time), Err(RecvTimeoutError::Timeout));
            if bar { show_bar(&run, src, &retried, wait) } else { show_lines(&run, &retried, wait) }
        });
        // Without the thread the work goes on just the same, unseen.
        Self { end: Some(end), thread: thread.ok() }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn show_lines(run: &Run, retried: &dyn Fn() -> u64, ended: impl Fn(Duration) -> bool) {
    let mut last = (Instant::now(), 0);
    while !ended(LINE) {
        let (now, moved) = (Instant::now(), run.report.moved.get());
        let rate = (moved - last.1) as f64 / now.duration_since(last.0).as_secs_f64().max(0.001);
        last = (now, moved);
        let _ = writeln!(
            std::io::stderr().lock(),
            "{} files, {}, {}/s, {} retried, {} failed",
            HumanCount(run.report.settled.get()),
            BinaryBytes(moved),
            BinaryBytes(rate as u64),
            HumanCount(retried()),
            HumanCount(run.report.failures()),
        );
    }
}

fn show_bar(
    run: &Run,
    src: Option<OwnedFd>,
    retried: &dyn Fn() -> u64,
    ended: impl Fn(Duration) -> bool,
) {
    let total = Arc::new(Total::default());
    let stop = Arc::new(AtomicBool::new(false));
    let counter = src.and_then(|src| {
        let (total, stop) = (total.clone(), stop.clone());
        std::thread::Builder::new()
            .name("mirror-count".into())
            .spawn(move || count(&src, &total, &stop))
            .ok()
    });
    let style = |template| {
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    };
    let bar = ProgressBar::new_spinner();
    bar.set_style(style("{spinner} {msg}"));
    let mut counted = false;
    while !ended(BAR) {
        let (files, bytes) = (run.report.settled.get(), run.report.moved.get());
        if !counted && total.counted.load(Ordering::Acquire) {
            counted = true;
            bar.set_length(total.bytes.get() + total.files.get() * FILE);
            bar.set_style(style("{bar:25} {percent}% {msg}, ETA {eta}"));
        }
        // Files that were there already moved no bytes: their part of the way is made up at the end.
        bar.set_position(bytes + files * FILE);
        let of =
            if counted { format!("/{}", HumanCount(total.files.get())) } else { String::new() };
        let rate = bytes as f64 / bar.elapsed().as_secs_f64().max(0.001);
        bar.set_message(format!(
            "{}{of} files, {}, {}/s, {} retried, {} failed",
            HumanCount(files),
            BinaryBytes(bytes),
            BinaryBytes(rate as u64),
            HumanCount(retried()),
            HumanCount(run.report.failures()),
        ));
    }
    bar.finish_and_clear();
    // Relaxed: only told to stop; the join does the rest.
    stop.store(true, Ordering::Relaxed);
    if let Some(counter) = counter {
        let _ = counter.join();
    }
}

/// Counts files and bytes below `src`. What cannot be read is left out: the walk reports it.
fn count(src: &OwnedFd, total: &Total, stop: &AtomicBool) {
    let mut levels: Vec<(OwnedFd, Vec<CString>)> = Vec::new();
    let enter = |fd: OwnedFd| -> (OwnedFd, Vec<CString>) {
        let mut below = Vec::new();
        for entry in Dir::read_from(&fd).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") || stop.load(Ordering::Relaxed) {
                continue;
            }
            match entry.file_type() {
                FileType::Directory => below.push(name.to_owned()),
                FileType::RegularFile => {
                    let stat = rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW);
                    total.bytes.add(stat.map_or(0, |stat| stat.st_size as u64));
                    total.files.add(1);
                }
                _ => total.files.add(1),
            }
        }
        (fd, below)
    };
    if let Ok(top) = rustix::fs::openat(src.as_fd(), c".", DIRECTORY, Mode::empty()) {
        levels.push(enter(top));
    }
    while let Some((fd, below)) = levels.last_mut() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        match below.pop() {
            Some(name) => {
                if let Ok(next) = rustix::fs::openat(&*fd, &name, DIRECTORY, Mode::empty()) {
                    levels.push(enter(next));
                }
            }
            None => drop(levels.pop()),
        }
    }
    // Release: who sees this sees the counts; pairs with the Acquire in `show_bar`.
    total.counted.store(true, Ordering::Release);
}
