//! Locks under contention: throughput against tail, one table for all cases and peers.
//!
//! ```text
//! cargo bench --bench contention                        # everything: about ten minutes
//! cargo bench --bench contention -- --case 4x600/0      # cases whose name contains this
//! cargo bench --bench contention -- --svg frontier.svg  # and draw the frontier
//! cargo bench --bench contention -- --case 4x --save f  # a part of it, kept in the file `f`
//! cargo bench --bench contention -- --from f --svg …    # what was kept, part by part, as one
//! ```
//!
//! A case is `threads x section/outside` in nanoseconds of calibrated work. Each round runs every
//! peer for one slice without looking at the clock (throughput, shares, processor time, switches)
//! and for one slice in which each wait is timed; peers take turns within a round, so that what the
//! machine does meanwhile hits all alike. Shown are medians over the rounds.

mod cases;
mod draw;
mod kept;
mod measure;
mod others;
mod peers;

use std::time::Duration;

use cases::{Case, Kind};
use clap::Parser;
use measure::{Slice, Summary, Work};
use peers::Peers;

#[derive(Parser, Debug)]
struct Args {
    /// Only cases whose name contains this, or is this after a `=` (may be given several times).
    #[arg(long)]
    case: Vec<String>,
    /// Only peers whose name contains this, or is this after a `=` (may be given several times).
    #[arg(long)]
    peer: Vec<String>,
    /// Rounds of each case.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of a slice in milliseconds.
    #[arg(long, default_value_t = 60)]
    slice: u64,
    /// Draws throughput against p99.9 into this file.
    #[arg(long)]
    svg: Option<std::path::PathBuf>,
    /// Adds the results to this file, a line for each case and peer.
    #[arg(long)]
    save: Option<std::path::PathBuf>,
    /// Runs nothing: shows what was saved in this file.
    #[arg(long)]
    from: Option<std::path::PathBuf>,
    /// Marks that `--svg` draws beside the locks: lines of name, throughput and p99.9, the last two over
    /// those of parking_lot 0.13, with tabs between.
    #[arg(long)]
    also: Option<std::path::PathBuf>,
    /// A short list of cases instead of all.
    #[arg(long)]
    short: bool,
    /// Cargo passes this.
    #[arg(long, hide = true)]
    bench: bool,
}

/// One case's results: a summary for each peer.
struct Row {
    name: String,
    peers: Vec<(&'static str, Summary)>,
}

/// This crate's lock among the peers, and the one whose tail is the measure.
const OURS: &str = "tenure";
const BAR: &str = "parking_lot 0.13";

impl Row {
    fn of(&self, name: &str) -> Option<Summary> {
        self.peers.iter().find(|(peer, _)| *peer == name).map(|(_, summary)| *summary)
    }
}

fn main() {
    let args = Args::parse();
    if let Err(error) = shown(&args) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn shown(args: &Args) -> std::io::Result<()> {
    let rows = match &args.from {
        Some(path) => kept::load(path)?,
        None => measured(args)?,
    };
    verdict(&rows);
    if let Some(path) = &args.svg {
        let also = args.also.as_ref().map(std::fs::read_to_string).transpose()?;
        std::fs::write(path, draw::frontier(&rows, also.as_deref().unwrap_or("")))?;
    }
    Ok(())
}

fn measured(args: &Args) -> std::io::Result<Vec<Row>> {
    let length = Duration::from_millis(args.slice);
    let cases: Vec<_> = cases::all(args.short)
        .into_iter()
        .filter(|case| wanted(&args.case, &case.name()))
        .collect();
    let peers: Vec<_> =
        peers::ALL.iter().copied().filter(|peer| wanted(&args.peer, peer.name)).collect();
    let mut rows = Vec::new();
    for case in cases {
        let row = run(case, &peers, args.rounds.max(1), length.max(case.turns(20)));
        print(&row);
        if let Some(path) = &args.save {
            kept::save(path, &row)?;
        }
        rows.push(row);
    }
    if args.case.is_empty() || args.case.iter().any(|case| "timed".contains(case.as_str())) {
        measure::timed(length, args.rounds.max(1));
    }
    for (name, run) in [
        ("condvar", (|_, rounds| others::condvar(rounds)) as fn(Duration, usize)),
        ("rwlock", others::rwlock),
    ] {
        if wanted(&args.case, name) {
            run(length, args.rounds.max(1));
        }
    }
    Ok(rows)
}

fn wanted(filters: &[String], name: &str) -> bool {
    let fits = |filter: &String| match filter.strip_prefix('=') {
        Some(exactly) => name == exactly,
        None => name.contains(filter.as_str()),
    };
    filters.is_empty() || filters.iter().any(fits)
}

/// All rounds of one case: every peer in each, in turns.
fn run(case: Case, peers: &[Peers], rounds: usize, length: Duration) -> Row {
    // One look at how fast the machine is now, for all peers of the case.
    let work = Work::calibrate();
    let hogs = measure::Hogs::start(if case.kind == Kind::Hogs { 2 } else { 0 });
    let mut slices: Vec<(Vec<Slice>, Vec<Slice>)> = vec![Default::default(); peers.len()];
    for round in 0..rounds {
        for turn in 0..peers.len() {
            let at = (round + turn) % peers.len();
            slices[at].0.push((peers[at].run)(&case, &work, length, false));
            slices[at].1.push((peers[at].run)(&case, &work, length, true));
        }
    }
    drop(hogs);
    let peers = peers
        .iter()
        .zip(slices)
        .map(|(peer, (plain, timed))| (peer.name, Summary::of(&plain, &timed)))
        .collect();
    Row { name: case.name(), peers }
}

fn print(row: &Row) {
    let best = row.peers.iter().map(|(_, s)| s.per_second).fold(0.0, f64::max);
    println!(
        "\n{}\n  {:<22}{:>9}{:>8}{:>8}{:>10}{:>10}{:>10}{:>10}{:>8}{:>10}",
        row.name,
        "",
        "k op/s",
        "of best",
        "least",
        "p50 µs",
        "p99",
        "p99.9",
        "longest",
        "cpu",
        "switch/op"
    );
    for (name, s) in &row.peers {
        println!(
            "  {:<22}{:>9.0}{:>8.2}{:>8.2}{:>10.2}{:>10.1}{:>10.1}{:>10.0}{:>8.2}{:>10.4}",
            name,
            s.per_second / 1e3,
            s.per_second / best,
            s.least_share,
            s.p50 / 1e3,
            s.p99 / 1e3,
            s.p999 / 1e3,
            s.longest / 1e3,
            s.processors,
            s.switches
        );
    }
}

/// The measures of the lock, point by point.
fn verdict(rows: &[Row]) {
    const BEST_OF: [&str; 3] = ["std", BAR, "usync"];
    let (mut points, mut met, mut crowded, mut fair) = (0, [0; 4], 0, [0; 2]);
    println!(
        "\n{:<24}{:>10}{:>10}{:>10}{:>12}{:>8}{:>10}",
        "tenure over", "best op/s", "pl op/s", "pl p99.9", "pl longest", "least", "pl least"
    );
    for row in rows {
        let (Some(ours), Some(bar)) = (row.of(OURS), row.of(BAR)) else { continue };
        let best = BEST_OF.iter().filter_map(|name| row.of(name)).map(|s| s.per_second);
        let best = best.fold(0.0, f64::max);
        let ratios = [
            ours.per_second / best,
            ours.per_second / bar.per_second,
            ours.p999 / bar.p999.max(1.0),
            ours.longest / bar.longest.max(1.0),
        ];
        points += 1;
        met[0] += u32::from(ratios[0] >= 1.0);
        met[1] += u32::from(ratios[1] >= 1.0 / 1.1);
        met[2] += u32::from(ratios[2] <= 1.1);
        met[3] += u32::from(ratios[3] <= 2.0);
        if row.name.starts_with("16x") {
            crowded += 1;
            fair[0] += u32::from(ours.least_share >= 0.5);
            fair[1] += u32::from(bar.least_share >= 0.5);
        }
        println!(
            "{:<24}{:>10.2}{:>10.2}{:>10.2}{:>12.2}{:>8.2}{:>10.2}",
            row.name, ratios[0], ratios[1], ratios[2], ratios[3], ours.least_share, bar.least_share
        );
    }
    println!(
        "of {points} points: throughput no less than the best of three at {}, within 1.1 times of {BAR} at {}, p99.9 \
         within 1.1 times at {}, longest wait within twice at {}; of {crowded} with 16 threads, the least-served has \
         half its share at {}, with {BAR} at {}",
        met[0], met[1], met[2], met[3], fair[0], fair[1]
    );
}
