//! How schedules are tried, and the tests, a file a room.

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

mod lock;
mod promise;
mod runtime;
mod shared;
mod specimen;

/// Tries a body under random and under PCT schedules; prints one line that tools read.
///
/// PCT finds a fault that needs `depth` ordered steps with a known least probability; uniform choice
/// finds shallow ones sooner.
pub(crate) fn try_schedules(name: &str, schedules: usize, body: fn()) {
    if let Ok(schedule) = std::env::var("TENURE_SHUTTLE_REPLAY") {
        shuttle::replay(body, &schedule);
        return;
    }
    let factor: usize =
        std::env::var("TENURE_STRESS").ok().and_then(|f| f.parse().ok()).unwrap_or(1);
    let schedules = schedules * factor;
    let mut config = Config::new();
    config.silence_warnings = true;
    config.stack_size = 0x10_000;
    let start = std::time::Instant::now();
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(body);
    for depth in [2, 4] {
        Runner::new(PctScheduler::new(depth, schedules / 2), config.clone()).run(body);
    }
    println!("shuttle {name} schedules={} ms={}", schedules * 2, start.elapsed().as_millis());
}

/// Whether random schedules find a fault in a body that has one.
pub(crate) fn finds_fault(schedules: usize, body: fn()) -> bool {
    let mut config = Config::new();
    config.silence_warnings = true;
    config.failure_persistence = shuttle::FailurePersistence::None;
    std::panic::catch_unwind(|| {
        Runner::new(RandomScheduler::new(schedules), config).run(body);
    })
    .is_err()
}
