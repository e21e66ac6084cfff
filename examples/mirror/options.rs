//! The command line: what may be asked for, and within which bounds.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// Attempts per file unless asked otherwise.
const ATTEMPTS: u32 = 5;
/// How long an attempt may go without a heartbeat unless asked otherwise.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// The same with `--chaos`: its hangs are waited for, so they had better be short.
const CHAOS_ATTEMPT_TIMEOUT: Duration = Duration::from_millis(100);
/// With `--chaos`, a third of what it strikes holds up a worker for a while.
const CHAOS_WORKERS: usize = 16;
/// More threads than this help no disk.
const MAX_WORKERS: usize = 1024;
/// More attempts than this help no file.
const MAX_ATTEMPTS: u32 = 1000;

/// Make DST a copy of the directory SRC.
///
/// Every file is a job of its own: leased by its destination, retried when it fails, taken over
/// when it hangs, published by an atomic rename that a late attempt cannot make any more. Files whose
/// size and modification time agree are left alone, so a second run finishes what a first one began.
///
/// Copied: regular files, directories, symbolic links (as links), permissions, modification times,
/// and owners where the system allows it. Skipped and listed: fifos, sockets, devices. Hard links
/// arrive as separate files; holes in sparse files stay holes. Extended attributes are not copied.
///
/// Exit code: 0 when DST is a copy of SRC, 1 when something failed, 2 for bad usage, 130 when
/// interrupted.
#[derive(Debug, Clone, Parser)]
#[command(name = "mirror", version)]
pub(crate) struct Options {
    /// The directory to copy
    pub(crate) src: PathBuf,
    /// What becomes its copy; made if missing
    pub(crate) dst: PathBuf,
    /// Worker threads, 1 to 1024 [default: two per core; with --chaos at least 16]
    #[arg(long, value_name = "N", value_parser = parse_workers)]
    workers: Option<usize>,
    /// Attempts per file, 1 to 1000 [default: 5; with --chaos, so many that none is lost to chance]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ATTEMPTS)))]
    attempts: Option<u32>,
    /// An attempt that shows no progress for so long is taken over [default: 30s; with --chaos 100ms]
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout)]
    attempt_timeout: Option<Duration>,
    /// Compare contents rather than trust size and modification time
    #[arg(long)]
    pub(crate) checksum: bool,
    /// Remove from DST what SRC does not have
    #[arg(long)]
    pub(crate) delete: bool,
    /// Write also into what is mounted below DST; without this it is an error, as a part of SRC may be
    /// what is mounted there
    #[arg(long)]
    pub(crate) into_mounts: bool,
    /// Change nothing, say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the summary as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Let each attempt, with probability P, fail, panic, or hang beyond its timeout
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = parse_probability)]
    pub(crate) chaos: f64,
    /// What decides where chaos strikes [default: random, and printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl Options {
    /// How many worker threads to run.
    pub(crate) fn workers(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let least = if self.chaos > 0.0 { CHAOS_WORKERS } else { 1 };
        self.workers.unwrap_or_else(|| (2 * cores()).clamp(least, MAX_WORKERS))
    }

    /// How often each file is tried.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.unwrap_or_else(|| attempts_against(self.chaos))
    }

    /// How long an attempt may show no progress.
    pub(crate) fn attempt_timeout(&self) -> Duration {
        self.attempt_timeout.unwrap_or(if self.chaos > 0.0 {
            CHAOS_ATTEMPT_TIMEOUT
        } else {
            ATTEMPT_TIMEOUT
        })
    }

    /// The seed of chaos: the one asked for, or a random one that the report names.
    pub(crate) fn seed(&mut self) -> u64 {
        *self.seed.get_or_insert_with(|| fastrand::u64(..))
    }
}

/// Attempts enough that bad luck alone loses a given file less often than once in 10¹².
fn attempts_against(p: f64) -> u32 {
    if p <= 0.0 {
        return ATTEMPTS;
    }
    if p >= 1.0 {
        return ATTEMPTS; // no number of attempts helps
    }
    let needed = (1e-12_f64.ln() / p.ln()).ceil();
    // In range before the cast: `needed` is finite and positive, as 0 < p < 1.
    (needed.min(f64::from(MAX_ATTEMPTS)) as u32).max(ATTEMPTS)
}

fn parse_workers(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if (1..=MAX_WORKERS).contains(&n) => Ok(n),
        Ok(n) => Err(format!("{n} is not in 1..={MAX_WORKERS}")),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("an attempt needs some time".into()),
        Ok(timeout) => Ok(timeout),
        Err(error) => Err(format!("{error} (examples: 500ms, 30s, 2m)")),
    }
}

fn parse_probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        Ok(p) => Err(format!("{p} is not a probability, 0 to 1")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(extra: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from(["mirror", "a", "b"].iter().chain(extra))
    }

    #[test]
    fn nonsense_is_refused() {
        for extra in [
            &["--workers", "0"][..],
            &["--workers", "-1"],
            &["--workers", "5000"],
            &["--attempts", "0"],
            &["--attempt-timeout", "0s"],
            &["--attempt-timeout", "soon"],
            &["--chaos", "1.5"],
            &["--chaos", "-0.1"],
            &["--chaos", "NaN"],
            &["--seed", "x"],
            &["c"],
        ] {
            assert!(parse(extra).is_err(), "{extra:?}");
        }
        assert!(Options::try_parse_from(["mirror", "a"]).is_err());
    }

    #[test]
    fn chaos_raises_the_attempts_and_lowers_the_timeout() {
        let calm = parse(&[]).unwrap();
        assert_eq!((calm.attempts(), calm.attempt_timeout()), (5, Duration::from_secs(30)));
        let wild = parse(&["--chaos", "0.5"]).unwrap();
        assert_eq!((wild.attempts(), wild.attempt_timeout()), (40, Duration::from_millis(100)));
        let hopeless = parse(&["--chaos", "1"]).unwrap();
        assert_eq!(hopeless.attempts(), 5);
        let asked =
            parse(&["--chaos", "0.5", "--attempts", "3", "--attempt-timeout", "2s"]).unwrap();
        assert_eq!((asked.attempts(), asked.attempt_timeout()), (3, Duration::from_secs(2)));
    }

    #[test]
    fn a_seed_once_drawn_stays() {
        let mut options = parse(&[]).unwrap();
        let first = options.seed();
        assert_eq!(options.seed(), first);
    }
}
