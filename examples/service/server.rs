//! The service from its start to its stop.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime as Tokio;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::engine::{Engine, LAST_MOMENTS, StopReport};
use crate::options::Serve;
use crate::{Failure, api};

/// How long connections may take to end, once everything else has.
const HANG_UP: Duration = Duration::from_secs(1);

impl Serve {
    /// How long a stop may take.
    pub(crate) fn longest_stop(&self) -> Duration {
        // The runtime allows itself a second if somebody's code holds up its driver.
        let rest = LAST_MOMENTS + HANG_UP + Duration::from_secs(1);
        self.grace.saturating_add(rest)
    }
}

/// A service that runs.
#[derive(Debug)]
pub(crate) struct Server {
    engine: Arc<Engine>,
    address: SocketAddr,
    grace: Duration,
    http: Tokio,
    served: JoinHandle<std::io::Result<()>>,
    hang_up: oneshot::Sender<()>,
}

impl Server {
    pub(crate) fn start(options: &Serve) -> Result<Self, Failure> {
        let listener = TcpListener::bind(options.listen)
            .map_err(|why| format!("cannot listen on {}: {why}", options.listen))?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let engine = Arc::new(Engine::start(options)?);
        let http = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("http")
            .enable_all()
            .build()?;
        let (hang_up, hung_up) = oneshot::channel();
        let router = api::router(Arc::clone(&engine));
        let served = http.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let hung_up = async {
                let _ = hung_up.await;
            };
            axum::serve(listener, router).with_graceful_shutdown(hung_up).await
        });
        Ok(Self { engine, address, grace: options.grace, http, served, hang_up })
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
        let _ = self.hang_up.send(());
        let served = self.served;
        let _ = self.http.block_on(async { tokio::time::timeout(HANG_UP, served).await });
        self.http.shutdown_background();
        report
    }
}
