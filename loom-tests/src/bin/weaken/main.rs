//! Weakens one memory ordering at a time, or drops one transition, and expects a model to fail.
//!
//! ```text
//! cargo run --release -p tenure-loom-tests --bin weaken -- [--room lock] [--site src/lock/raw.rs:120]
//! ```
//!
//! An ordering that no model misses is either unneeded, or a race that no model explores. See
//! `loom-tests/README.md` for how to read the report.
//!
//! | file        | what it does                                                                |
//! |-------------|-----------------------------------------------------------------------------|
//! | `main`      | arguments; without `--cfg tenure_loom`, runs the binary that has it          |
//! | `change`    | which changes an operation can have                                         |
//! | `scan`      | finds the door's operations in the source                                   |
//! | `child`     | runs one model in this process: recording, or with one change in force       |
//! | `hunt`      | runs children, looks for a kill for each change                             |
//! | `survivors` | the explained ones                                                          |
//! | `report`    | what is printed                                                             |
//! | `readme`    | the table in the README                                                     |

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

#[cfg(tenure_loom)]
mod change;
#[cfg(tenure_loom)]
mod child;
#[cfg(tenure_loom)]
mod hunt;
#[cfg(tenure_loom)]
mod readme;
#[cfg(tenure_loom)]
mod report;
#[cfg(tenure_loom)]
mod scan;
#[cfg(tenure_loom)]
mod survivors;

/// Weakens one memory ordering at a time and expects a loom model to fail.
///
/// Exits with 0 when each change is killed or explained, with 1 when one is not or when an
/// explanation is out of date, with 2 when the models do not pass as they are.
#[derive(Parser, Debug, Clone)]
#[command(name = "weaken")]
#[cfg_attr(not(tenure_loom), allow(dead_code, reason = "the armed binary reads them"))]
pub(crate) struct Args {
    /// Only the operations in this room's files (repeatable), tried by this room's models.
    #[arg(long)]
    room: Vec<String>,
    /// Only the operations at this place: `src/lock/raw.rs:120`, or the end of such a path.
    #[arg(long)]
    site: Option<String>,
    /// Try the models of all rooms, also with `--room`.
    #[arg(long)]
    all_models: bool,
    /// Only models whose passes take less than this, in milliseconds: a quick look. What only slower
    /// models kill is then reported as survived, and explanations are not checked for age.
    #[arg(long)]
    cheap: Option<u64>,
    /// Leave out dropped transitions: orderings only.
    #[arg(long)]
    orderings_only: bool,
    /// Print one JSON document instead of the report.
    #[arg(long)]
    json: bool,
    /// Also print each killed change with its killer.
    #[arg(long, short)]
    verbose: bool,
    /// Models at once. Defaults to the number of processors.
    #[arg(long, short)]
    jobs: Option<usize>,
    /// The most seconds for one model with one change.
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// The explained survivors. Defaults to `loom-tests/survivors.toml`.
    #[arg(long)]
    survivors: Option<PathBuf>,
    /// Write the rows of the rooms that were run into the table of `loom-tests/README.md`.
    #[arg(long, conflicts_with_all = ["site", "cheap", "orderings_only", "list"])]
    readme: bool,
    /// Fail, too, when the README's row of a room that was run has other models, scores or explanations
    /// than this run: CI's guard against a score that falls.
    #[arg(long, conflicts_with_all = ["site", "cheap", "orderings_only", "list", "readme"])]
    check: bool,
    /// Only list rooms, models and sites as the models reach them; change nothing.
    #[arg(long)]
    list: bool,
    /// (internal) What a child is to do.
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true)]
    child: Vec<String>,
}

/// The workspace's root.
fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

#[cfg(not(tenure_loom))]
fn main() -> ExitCode {
    use std::process::Command;
    let _ = Args::parse();
    let root = root();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(&root)
        // These would take the place of the flag below.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .args(["--config", "build.rustflags=['--cfg=tenure_loom']", "run", "--quiet"])
        .args(["--profile", "model", "-p", "tenure-loom-tests", "--bin", "weaken"])
        .arg("--target-dir")
        .arg(root.join("target/loom"))
        .arg("--")
        .args(std::env::args_os().skip(1))
        .status();
    match status {
        Ok(status) => ExitCode::from(u8::try_from(status.code().unwrap_or(2)).unwrap_or(2)),
        Err(error) => {
            eprintln!("weaken: cannot run cargo: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(tenure_loom)]
fn main() -> ExitCode {
    let args = Args::parse();
    if !args.child.is_empty() {
        return child::main(&args.child);
    }
    match hunt::hunt(&args, &root()) {
        Ok(report) => {
            report.print(&args);
            if args.readme
                && let Err(message) = readme::write(&report, &root())
            {
                eprintln!("weaken: {message}");
                return ExitCode::from(2);
            }
            let mut ok = report.clean();
            if args.check {
                match readme::differences(&report, &root()) {
                    Ok(differences) => {
                        for difference in &differences {
                            eprintln!("TABLE      {difference}");
                        }
                        ok &= differences.is_empty();
                    }
                    Err(message) => {
                        eprintln!("weaken: {message}");
                        return ExitCode::from(2);
                    }
                }
            }
            ExitCode::from(u8::from(!ok))
        }
        Err(message) => {
            eprintln!("weaken: {message}");
            ExitCode::from(2)
        }
    }
}
