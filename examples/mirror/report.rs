//! What happened: counted while it happens, told at the end.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::FileType;
use serde::Serialize;

use crate::job::Done;
use crate::names::show;

/// Of a list that could have an entry per file, so many are kept; the rest is only counted.
const KEPT: usize = 10_000;

/// One number that many threads add to.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds `n`.
    pub(crate) fn add(&self, n: u64) {
        // Relaxed, here and below: a number for people, nothing is decided by it.
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// What has been added so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The first entries of a list, and how many there were.
#[derive(Debug)]
struct List<T> {
    kept: Vec<T>,
    all: u64,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), all: 0 }
    }
}

impl<T> List<T> {
    fn push(&mut self, entry: T) {
        self.all += 1;
        if self.kept.len() < KEPT {
            self.kept.push(entry);
        }
    }
}

/// Something that could not be done.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Failed {
    /// Path from SRC (from DST, where SRC has no such thing).
    pub(crate) path: String,
    /// The last error.
    pub(crate) error: String,
    /// How many attempts were made.
    pub(crate) attempts: u64,
    /// What ended it.
    pub(crate) stopped_by: String,
    /// What each attempt ran into, in order.
    pub(crate) history: Vec<String>,
}

impl Failed {
    /// Something that is done once, without attempts: listing or making a directory.
    pub(crate) fn at_once(path: &[u8], error: &impl ToString) -> Self {
        let error = error.to_string();
        let history = vec![error.clone()];
        Self {
            path: show_path(path),
            error,
            attempts: 1,
            stopped_by: "not retried".into(),
            history,
        }
    }
}

/// A path from SRC as text; SRC itself is a dot.
pub(crate) fn show_path(path: &[u8]) -> String {
    if path.is_empty() { ".".into() } else { show(path) }
}

/// What happened so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Entries handed out as jobs.
    pub(crate) found: Count,
    /// Jobs settled, well or not.
    pub(crate) settled: Count,
    /// Jobs that were given up because the run was interrupted.
    pub(crate) unfinished: Count,
    /// Bytes written, also by attempts that came to nothing.
    pub(crate) moved: Count,
    /// Directories that are in place.
    pub(crate) directories: Count,
    /// Files with another name in SRC: each name became a file of its own.
    pub(crate) hard_links: Count,
    copied: Count,
    bytes: Count,
    links: Count,
    updated: Count,
    unchanged: Count,
    vanished: Count,
    removed: Count,
    specials: Mutex<List<Special>>,
    failures: Mutex<List<Failed>>,
    warnings: Mutex<List<String>>,
    /// Whether to say what would be done.
    rehearsal: bool,
}

#[derive(Debug, Clone, Serialize)]
struct Special {
    path: String,
    kind: &'static str,
}

impl Report {
    /// An empty report. `rehearsal`: [`would`](Self::would) speaks.
    pub(crate) fn new(rehearsal: bool) -> Self {
        Self { rehearsal, ..Self::default() }
    }

    /// A job ended well.
    pub(crate) fn done(&self, done: Done, path: impl FnOnce() -> Vec<u8>) {
        match done {
            Done::Copied(bytes) => {
                self.copied.add(1);
                self.bytes.add(bytes);
            }
            Done::Linked => self.links.add(1),
            Done::Updated => self.updated.add(1),
            Done::Unchanged => self.unchanged.add(1),
            Done::Vanished => self.vanished.add(1),
            Done::Special(kind) => self.special(&path(), kind),
            Done::Removed => {} // counted one by one
        }
    }

    /// A fifo, socket or device was passed over.
    pub(crate) fn special(&self, path: &[u8], kind: FileType) {
        let kind = match kind {
            FileType::Fifo => "fifo",
            FileType::Socket => "socket",
            FileType::CharacterDevice => "character device",
            FileType::BlockDevice => "block device",
            _ => "unknown kind",
        };
        lock(&self.specials).push(Special { path: show_path(path), kind });
    }

    /// Something could not be done.
    pub(crate) fn failed(&self, failed: Failed) {
        lock(&self.failures).push(failed);
    }

    /// Something the user should know that is no failure.
    pub(crate) fn warn(&self, warning: String) {
        lock(&self.warnings).push(warning);
    }

    /// An entry of DST was removed.
    pub(crate) fn removed_one(&self) {
        self.removed.add(1);
    }

    /// In a rehearsal: what would be done now.
    pub(crate) fn would(&self, verb: &str, path: &[u8]) {
        if self.rehearsal {
            // If nobody reads it any more, nobody misses it.
            let _ = writeln!(std::io::stdout().lock(), "would {verb} {}", show_path(path));
        }
        if verb == "remove" {
            self.removed_one();
        }
    }

    /// How many entries have failed.
    pub(crate) fn failures(&self) -> u64 {
        lock(&self.failures).all
    }

    /// The end: everything in one piece.
    pub(crate) fn summary(&self, ending: Ending) -> Summary {
        let specials = lock(&self.specials);
        let failures = lock(&self.failures);
        let warnings = lock(&self.warnings);
        Summary {
            copied: self.copied.get(),
            bytes: self.bytes.get(),
            links: self.links.get(),
            directories: self.directories.get(),
            updated: self.updated.get(),
            skipped: self.unchanged.get(),
            special: specials.all,
            vanished: self.vanished.get(),
            deleted: self.removed.get(),
            hard_links: self.hard_links.get(),
            failed: failures.all,
            unfinished: self.unfinished.get(),
            specials: specials.kept.clone(),
            failures: failures.kept.clone(),
            warnings: warnings.kept.clone(),
            ending,
        }
    }
}

fn lock<T>(list: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How the run itself went.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Ending {
    /// Attempts made again after one that failed.
    pub(crate) retried: u64,
    /// Attempts that hung and were taken over.
    pub(crate) taken_over: u64,
    /// Attempts that came back too late, and were refused.
    pub(crate) fenced: u64,
    /// The run was interrupted.
    pub(crate) interrupted: bool,
    pub(crate) dry_run: bool,
    pub(crate) seconds: f64,
    /// The seed of chaos, if there was any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<u64>,
}

/// All that is told at the end, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    copied: u64,
    bytes: u64,
    links: u64,
    directories: u64,
    updated: u64,
    skipped: u64,
    special: u64,
    vanished: u64,
    deleted: u64,
    hard_links: u64,
    failed: u64,
    unfinished: u64,
    #[serde(flatten)]
    ending: Ending,
    warnings: Vec<String>,
    specials: Vec<Special>,
    failures: Vec<Failed>,
}

impl Summary {
    /// As one line of JSON.
    pub(crate) fn json(&self) -> String {
        // Numbers, strings and lists: nothing in it can fail to be written.
        serde_json::to_string(self).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
    }

    /// As text: what failed first, as it matters most and the rest is short.
    pub(crate) fn text(&self) -> String {
        let mut out = Vec::new();
        // Writing to a vector does not fail.
        let _ = self.write(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn write(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        for special in &self.specials {
            writeln!(out, "skipped {}: {}", special.kind, special.path)?;
        }
        more(out, self.special, self.specials.len(), "skipped")?;
        for warning in &self.warnings {
            writeln!(out, "warning: {warning}")?;
        }
        for failed in &self.failures {
            let plural = if failed.attempts == 1 { "" } else { "s" };
            writeln!(
                out,
                "failed after {} attempt{plural}: {}: {}",
                failed.attempts, failed.path, failed.error
            )?;
            if failed.attempts > 1 {
                for (n, error) in failed.history.iter().enumerate() {
                    writeln!(out, "    {}. {error}", n + 1)?;
                }
                writeln!(out, "    stopped by: {}", failed.stopped_by)?;
            }
        }
        more(out, self.failed, self.failures.len(), "failed")?;
        let ending = &self.ending;
        let what = match (ending.interrupted, ending.dry_run) {
            (true, _) => "interrupted",
            (false, true) => "dry run, nothing was changed",
            (false, false) => "done",
        };
        let seconds = Duration::from_secs_f64(ending.seconds.max(0.0));
        write!(out, "{what} in {:.2?}: ", seconds)?;
        write!(out, "copied {} ({}), ", self.copied, indicatif::BinaryBytes(self.bytes))?;
        write!(out, "skipped {}, retried {}, ", self.skipped + self.special, ending.retried)?;
        writeln!(out, "fenced {}, failed {}", ending.fenced, self.failed)?;
        let rest = [
            (self.directories, "directories"),
            (self.links, "links made"),
            (self.updated, "updated"),
            (self.deleted, "deleted"),
            (self.special, "fifos, sockets and devices skipped"),
            (self.vanished, "vanished"),
            (self.hard_links, "names of hard-linked files, copied as files of their own"),
            (ending.taken_over, "attempts hung and were taken over"),
            (self.unfinished, "in hand and not finished; run it again"),
        ];
        for (n, what) in rest.into_iter().filter(|(n, _)| *n > 0) {
            writeln!(out, "  {n} {what}")?;
        }
        if let Some(seed) = ending.seed {
            writeln!(out, "  chaos with --seed {seed}")?;
        }
        Ok(())
    }
}

fn more(out: &mut Vec<u8>, all: u64, shown: usize, what: &str) -> std::io::Result<()> {
    match all.saturating_sub(shown as u64) {
        0 => Ok(()),
        hidden => writeln!(out, "… and {hidden} more {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(path: &[u8]) -> Failed {
        Failed::at_once(path, &"no luck")
    }

    #[test]
    fn a_million_failures_do_not_fill_the_memory() {
        let report = Report::new(false);
        for _ in 0..KEPT + 5 {
            report.failed(failed(b"x"));
        }
        let summary = report.summary(Ending::default());
        assert_eq!((summary.failed, summary.failures.len()), (KEPT as u64 + 5, KEPT));
        assert!(summary.text().contains("… and 5 more failed"));
    }

    #[test]
    fn json_says_what_the_text_says() {
        let report = Report::new(false);
        report.done(Done::Copied(10), Vec::new);
        report.done(Done::Unchanged, Vec::new);
        report.done(Done::Special(FileType::Fifo), || b"pipe\xff".to_vec());
        report.failed(failed(b""));
        let summary = report.summary(Ending { retried: 3, fenced: 2, ..Ending::default() });
        let json: serde_json::Value = serde_json::from_str(&summary.json()).unwrap();
        for (name, value) in [
            ("copied", 1),
            ("bytes", 10),
            ("skipped", 1),
            ("special", 1),
            ("retried", 3),
            ("fenced", 2),
            ("failed", 1),
        ] {
            assert_eq!(json[name], value, "{name}");
        }
        assert_eq!(json["specials"][0]["path"], "\"pipe\\xff\"");
        assert_eq!(json["failures"][0]["path"], ".");
        let text = summary.text();
        assert!(
            text.contains("copied 1 (10 B), skipped 2, retried 3, fenced 2, failed 1"),
            "{text}"
        );
    }
}
