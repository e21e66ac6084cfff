//! Who keeps the service up: a supervisor over the HTTP server and the monitor.
//!
//! They live on a runtime of their own, so that the one which delivers has deliveries only: it can be
//! drained, and its numbers are theirs.

use std::net::TcpListener;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use tenure::runtime::{BoxError, Event, Runtime, Schedule};
use tenure::supervise::{Actor, Address, ChildSpec, Ctx, Handled, StopToken, Strategy, Supervisor};

use crate::Failure;
use crate::exposition::Exposition;

/// How often what was measured is added up.
const TIDY: Duration = Duration::from_secs(5);

/// How long connections may take to end, once everything else has.
pub(crate) const HANG_UP: Duration = Duration::from_secs(1);

/// The supervisor, for those below it who show it. It is there once everything has started.
pub(crate) type Seen = Arc<OnceLock<Supervisor>>;

/// Says aloud what somebody may have to look at.
struct Monitor;

impl Actor for Monitor {
    type Message = Event;

    fn handle(&mut self, event: Event, _: &mut Ctx<Event>) -> Handled {
        match event {
            Event::WorkerStuck { worker, attempt, .. } => {
                eprintln!(
                    "alarm: courier {worker} hangs in attempt {attempt}, and there is no other"
                );
            }
            Event::ForeignPanic { place } => eprintln!("alarm: a panic in {place}"),
            Event::DriverLate { lag } => {
                eprintln!("warning: the machine stood still for {lag:?}");
            }
            _ => {}
        }
        Ok(())
    }
}

/// The supervisor and the runtime that it lives on.
#[derive(Debug)]
pub(crate) struct Tree {
    top: Supervisor,
    runtime: Runtime,
}

impl Tree {
    /// `router` is what the server serves, each time that it is started.
    pub(crate) fn start(
        listener: TcpListener,
        alarms: &Address<Event>,
        router: Router,
        exposition: Arc<Exposition>,
        seen: &Seen,
    ) -> Result<Self, Failure> {
        let runtime = Runtime::builder().workers(1).thread_name("office").build()?;
        let top = Supervisor::builder("service")
            .strategy(Strategy::OneForOne)
            .intensity(5, Duration::from_secs(10))
            .on_fault(|fault| eprintln!("alarm: {fault}"))
            .child(ChildSpec::actor("monitor", || Monitor).at(alarms))
            .child(ChildSpec::thread("http", move |stop| serve(&listener, router.clone(), stop)))
            .start(&runtime)?;
        runtime
            .repeat(Schedule::every(TIDY), move |_| {
                exposition.tidy();
                Ok::<_, BoxError>(())
            })
            .name("tidy the metrics")
            .start()?;
        let _ = seen.set(top.clone());
        Ok(Self { top, runtime })
    }

    /// The server first, then the monitor.
    pub(crate) fn stop(&self) {
        if self.top.shutdown(HANG_UP * 2).is_none() {
            eprintln!("alarm: the HTTP server does not end");
        }
        let _ = self.runtime.shutdown(HANG_UP);
    }
}

/// Answers until it is told to stop, or cannot go on.
fn serve(listener: &TcpListener, router: Router, stop: &StopToken) -> Result<(), BoxError> {
    let listener = listener.try_clone()?;
    let http = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("http")
        .enable_all()
        .build()?;
    let (hang_up, too_long) = (stop.stopped(), stop.stopped());
    let served = http.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let served = axum::serve(listener, router).with_graceful_shutdown(async {
            let _ = hang_up.await;
        });
        let late = async {
            let _ = too_long.await;
            tokio::time::sleep(HANG_UP).await;
        };
        tokio::select! {
            served = served => served,
            () = late => Ok(()),
        }
    });
    http.shutdown_background();
    Ok(served?)
}
