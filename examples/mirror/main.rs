//! `mirror SRC DST`: makes DST a copy of a directory tree, one leased, retried, fenced job per file.
//!
//! ```text
//! cargo run --release --example mirror -- SRC DST [--delete] [--checksum] [--dry-run] [--json]
//! ```
//!
//! | module | what it knows |
//! |---|---|
//! | `options`, `places` | the command line; whether SRC and DST are what they have to be |
//! | `mirror` | one run from beginning to end, and what is left to do when it is interrupted |
//! | `walk`, `tree` | going through SRC, making directories, finishing them when all is settled |
//! | `engine`, `turn` | the only places that speak to `tenure::runtime` |
//! | `job`, `compare`, `copy`, `attributes`, `delete` | what one attempt at one entry does |
//! | `fence` | who may still change a destination, and who comes too late |
//! | `run`, `window` | what a run shares; so many jobs in hand, and no more |
//! | `report`, `progress` | what happened, and what is happening |
//! | `chaos` | what goes wrong on purpose |

#[cfg(unix)]
mod attributes;
#[cfg(unix)]
mod chaos;
#[cfg(unix)]
mod compare;
#[cfg(unix)]
mod copy;
#[cfg(unix)]
mod delete;
#[cfg(unix)]
mod engine;
#[cfg(unix)]
mod failure;
#[cfg(unix)]
mod fence;
#[cfg(unix)]
mod job;
#[cfg(unix)]
mod mirror;
#[cfg(unix)]
mod names;
#[cfg(unix)]
mod options;
#[cfg(unix)]
mod places;
#[cfg(unix)]
mod progress;
#[cfg(unix)]
mod report;
#[cfg(unix)]
mod run;
#[cfg(unix)]
mod tree;
#[cfg(unix)]
mod turn;
#[cfg(unix)]
mod walk;
#[cfg(unix)]
mod window;

#[cfg(unix)]
fn main() -> ! {
    use clap::Parser as _;
    use std::io::Write as _;

    let options = options::Options::parse();
    let code = mirror::mirror(options).unwrap_or_else(|refused| {
        let _ = writeln!(std::io::stderr(), "mirror: {refused}");
        refused.exit_code()
    });
    // Not by returning: an attempt that hangs must not keep the process.
    std::process::exit(code);
}

#[cfg(not(unix))]
fn main() {
    eprintln!(
        "mirror: works on Unix systems: it needs their directory handles, links and permissions"
    );
    std::process::exit(2);
}
