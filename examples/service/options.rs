//! The command line.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// Delivers webhooks, each one a leased, retried, fenced job.
///
/// Without a command: `chaos` with 300 deliveries, which takes a few seconds.
#[derive(Debug, Parser)]
#[command(name = "service", disable_help_subcommand = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Accept deliveries over HTTP, and deliver them.
    Serve(Serve),
    /// A receiver to try it with: it fails, hangs and goes down.
    Receiver(Receive),
    /// Both in one process, and a storm; exit code 1 if a claim does not hold.
    Chaos(Chaos),
}

impl Command {
    /// What is run without a command.
    pub(crate) fn short_chaos() -> Self {
        #[derive(Parser)]
        struct Alone {
            #[command(flatten)]
            chaos: Chaos,
        }
        let words =
            ["service", "--deliveries", "300", "--subscribers", "20", "--down-for", "500ms"];
        Self::Chaos(Alone::parse_from(words).chaos)
    }
}

fn localhost(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Serve {
    /// Where to listen; port 0 chooses a free one.
    #[arg(long, default_value_t = localhost(8080))]
    pub(crate) listen: SocketAddr,
    /// How many deliveries are under way at a time.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: u16,
    /// How many deliveries are in hand at a time; further ones are answered with 503.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) capacity: u32,
    /// How many of them may be one subscriber's; further ones are answered with 429.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) per_subscriber: u32,
    /// How often a delivery is tried before it becomes a dead letter.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub(crate) attempts: u32,
    /// How long an attempt may take. One that takes longer is given up, and its token is stale.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub(crate) attempt_timeout: Duration,
    /// The first pause between two attempts; the next ones grow, and are drawn at random below that.
    #[arg(long, default_value = "100ms", value_parser = duration)]
    pub(crate) backoff: Duration,
    /// The longest pause between two attempts.
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub(crate) max_backoff: Duration,
    /// How many retries each delivery that arrives pays for, all hosts together.
    #[arg(long, default_value_t = 1.0, value_parser = ratio)]
    pub(crate) retry_ratio: f64,
    /// How many retries can be made before anything has arrived.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) retry_burst: u32,
    /// When a delivery's time is up that does not say so itself (`within_ms`): no attempt begins after that.
    #[arg(long, default_value = "1day", value_parser = duration)]
    pub(crate) deadline: Duration,
    /// How long a host that fails too often is left alone.
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub(crate) breaker_open: Duration,
    /// How many deliveries that have ended can still be asked for.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) keep: u32,
    /// How many dead letters are kept; the oldest go first.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) dead_letters: u32,
    /// How long a stop waits for deliveries that are in hand.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub(crate) grace: Duration,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Receive {
    /// Where to listen; port 0 chooses a free one.
    #[arg(long, default_value_t = localhost(9090))]
    pub(crate) listen: SocketAddr,
    /// Which part of all requests fails. (A tenth of these after the delivery was taken.)
    #[arg(long, default_value_t = 0.3, value_parser = probability)]
    pub(crate) fail: f64,
    /// Which part of all requests hangs, and takes the delivery after that.
    #[arg(long, default_value_t = 0.02, value_parser = probability)]
    pub(crate) hang: f64,
    /// How long they hang.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub(crate) hang_for: Duration,
    /// After how many requests it goes down, once. Never if not given.
    #[arg(long)]
    pub(crate) down_after: Option<u64>,
    /// For how long.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub(crate) down_for: Duration,
    /// What goes wrong depends on this, the delivery and the attempt.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Chaos {
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) deliveries: u32,
    /// How many subscribers they are for. Each gets its own in order.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) subscribers: u32,
    /// One in so many deliveries is one that the receiver refuses until it is mended.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) poison_every: u32,
    /// Which part of all requests fails.
    #[arg(long, default_value_t = 0.3, value_parser = probability)]
    pub(crate) fail: f64,
    /// Which part of all requests hangs.
    #[arg(long, default_value_t = 0.02, value_parser = probability)]
    pub(crate) hang: f64,
    /// For how long the receiver is down, after a third of the deliveries.
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub(crate) down_for: Duration,
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: u16,
    #[arg(long, default_value = "400ms", value_parser = duration)]
    pub(crate) attempt_timeout: Duration,
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// When to call it failed if the deliveries have not ended.
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub(crate) limit: Duration,
}

fn duration(text: &str) -> Result<Duration, humantime::DurationError> {
    humantime::parse_duration(text)
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if (0.0..=1000.0).contains(&ratio) => Ok(ratio),
        _ => Err("must be a number from 0 to 1000".into()),
    }
}

fn probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err("must be a number from 0 to 1".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
        let Command::Chaos(chaos) = Command::short_chaos() else { panic!("not a chaos run") };
        assert_eq!(chaos.deliveries, 300);
    }

    #[test]
    fn nonsense_is_refused() {
        for words in [
            &["service", "receiver", "--fail", "1.5"][..],
            &["service", "receiver", "--hang", "NaN"],
            &["service", "serve", "--workers", "0"],
            &["service", "serve", "--retry-ratio", "-1"],
            &["service", "serve", "--retry-ratio", "NaN"],
            &["service", "serve", "--retry-burst", "0"],
            &["service", "serve", "--grace", "soon"],
            &["service", "fly"],
        ] {
            assert!(Options::try_parse_from(words).is_err(), "{words:?}");
        }
    }
}
