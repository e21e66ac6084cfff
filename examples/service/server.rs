//! The service from its start to its stop.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tenure::supervise::Address;

use crate::engine::{Engine, LAST_MOMENTS, StopReport};
use crate::options::Serve;
use crate::tree::{HANG_UP, Seen, Tree};
use crate::{Failure, api};

impl Serve {
    /// How long a stop may take.
    pub(crate) fn longest_stop(&self) -> Duration {
        // Each runtime allows itself a second if somebody's code holds up its driver.
        let rest = LAST_MOMENTS + HANG_UP * 3 + Duration::from_secs(2);
        self.grace.saturating_add(rest)
    }
}

/// A service that runs.
#[derive(Debug)]
pub(crate) struct Server {
    engine: Arc<Engine>,
    address: SocketAddr,
    grace: Duration,
    tree: Tree,
}

impl Server {
    pub(crate) fn start(options: &Serve) -> Result<Self, Failure> {
        let listener = TcpListener::bind(options.listen)
            .map_err(|why| format!("cannot listen on {}: {why}", options.listen))?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let alarms = Address::new();
        let engine = Arc::new(Engine::start(options, &alarms)?);
        let seen = Seen::default();
        let router = api::router(Arc::clone(&engine), Arc::clone(&seen));
        let exposition = Arc::clone(engine.exposition());
        let tree = Tree::start(listener, &alarms, router, exposition, &seen)?;
        Ok(Self { engine, address, grace: options.grace, tree })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Refuses what comes from now on, delivers what it can within the grace, and gives up the rest.
    /// Until then it answers; `/health` says that it is stopping.
    pub(crate) fn stop(self) -> StopReport {
        let report = self.engine.stop(self.grace);
        self.tree.stop();
        report
    }
}
