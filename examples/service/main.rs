//! `service`: delivers webhooks over HTTP, each one a leased, retried, fenced job.
//!
//! ```text
//! cargo run --release --example service -- serve       # the service
//! cargo run --release --example service -- receiver    # somewhere to deliver to, which is flaky
//! cargo run --release --example service -- chaos       # both, and a storm; checks what came of it
//! ```
//!
//! | module | what it knows |
//! |---|---|
//! | `options` | the command line |
//! | `api`, `answer` | HTTP: what is asked for, and how it is answered |
//! | `delivery` | one delivery, and what became of its attempts |
//! | `desk` | which deliveries there are; bounded |
//! | `courier` | one attempt: the request, with its token, and what the answer means |
//! | `hosts` | a circuit breaker for each host |
//! | `engine` | the only place that hands jobs to `tenure::runtime` |
//! | `exposition` | what Prometheus reads |
//! | `server` | the service from its start to its stop |
//! | `tree` | the supervisor that keeps the HTTP server and the monitor up |
//! | `receiver`, `inbox` | a receiver that fails, hangs and goes down, and keeps late attempts out |
//! | `chaos`, `verdict` | the storm; what is claimed of it, and whether it holds |

mod answer;
mod api;
mod chaos;
mod courier;
mod delivery;
mod desk;
mod engine;
mod exposition;
mod hosts;
mod inbox;
mod options;
mod receiver;
mod server;
#[cfg(test)]
mod tests;
mod tree;
mod verdict;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::mpsc;

use clap::Parser as _;

use crate::options::{Command, Options};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let command = Options::parse().command.unwrap_or_else(Command::short_chaos);
    let result = match command {
        Command::Serve(options) => serve(&options),
        Command::Receiver(options) => receive(&options),
        Command::Chaos(options) => chaos::run(&options),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "service: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs until somebody asks it to stop; a second time, and it stops at once.
fn serve(options: &options::Serve) -> Result<ExitCode, Failure> {
    let stop = stop_requests()?;
    let service = server::Server::start(options)?;
    println!("delivering; listening on http://{}", service.address());
    let _ = stop.recv();
    println!("stopping: at most {:?}", options.longest_stop());
    std::thread::spawn(move || {
        let _ = stop.recv();
        std::process::exit(130);
    });
    let report = service.stop();
    println!("{report}");
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn receive(options: &options::Receive) -> Result<ExitCode, Failure> {
    let stop = stop_requests()?;
    let receiver = receiver::Receiver::start(options)?;
    println!("receiving; POST anything to http://{}", receiver.address());
    receiver.go_down_once(options, &stop)?;
    println!("{}", receiver.report());
    Ok(ExitCode::SUCCESS)
}

/// One message for each SIGINT or SIGTERM.
fn stop_requests() -> Result<mpsc::Receiver<()>, Failure> {
    let (ask, asked) = mpsc::channel();
    ctrlc::set_handler(move || {
        let _ = ask.send(());
    })?;
    Ok(asked)
}
