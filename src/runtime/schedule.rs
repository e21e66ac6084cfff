//! When a job that comes again is due.

use core::fmt;
use core::time::Duration;
#[cfg(feature = "cron")]
use std::sync::Arc;
#[cfg(feature = "cron")]
use std::time::SystemTime;

use crate::clock::Timestamp;

/// When the ticks of a [`Series`](super::Series) are.
#[derive(Clone)]
pub struct Schedule(Kind);

#[derive(Clone)]
enum Kind {
    Every {
        period: Duration,
    },
    #[cfg(feature = "cron")]
    Cron(Arc<Line>),
}

/// What becomes of ticks whose time passes while the one before is still running, or waits for a
/// retry, or for a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Missed {
    /// They are left out (and counted); the next one is the next on the grid.
    #[default]
    Skip,
    /// They are made up for, one after another, at once; the grid stays as it is.
    Burst,
    /// They are left out, and the grid moves: the next one is a whole period after now. (The grid of a
    /// cron line does not move: there it is as [`Skip`](Self::Skip).)
    Delay,
}

/// A tick that is planned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    /// By the runtime's clock.
    pub(crate) at: Timestamp,
    /// Nanoseconds since the Unix epoch, if the schedule is one of wall clock time.
    #[cfg_attr(not(feature = "cron"), expect(dead_code, reason = "for cron lines"))]
    pub(crate) wall: Option<i64>,
    /// Ticks left out before it, as far as they can be counted.
    pub(crate) skipped: u64,
}

impl Schedule {
    /// A tick every `period` (at least a nanosecond), the first one a period from the start.
    #[must_use]
    pub fn every(period: Duration) -> Self {
        Self(Kind::Every { period: period.max(Duration::from_nanos(1)) })
    }

    /// The ticks of a cron line, in UTC: five fields (minute, hour, day of month, month, day of week), or
    /// six with seconds first; names, ranges, steps, `L`, `#`, `W` and `@hourly` and its like are
    /// understood.
    ///
    /// The wall clock is asked once a tick, when the tick before is over, for how long to wait; the
    /// waiting is by the runtime's clock. If the wall clock is set back, what has run is not run again;
    /// if it is set forward while a tick is waited for, that tick comes late by as much.
    ///
    /// # Errors
    /// [`CronError`] if it is not a cron line.
    #[cfg(feature = "cron")]
    pub fn cron(line: &str) -> Result<Self, CronError> {
        Self::cron_by(line, SystemTime::now)
    }

    /// The same by another wall clock: for tests, beside a
    /// [`ManualClock`](crate::clock::ManualClock).
    ///
    /// # Errors
    /// [`CronError`] if it is not a cron line.
    #[cfg(feature = "cron")]
    pub fn cron_by(
        line: &str,
        wall: impl Fn() -> SystemTime + Send + Sync + 'static,
    ) -> Result<Self, CronError> {
        let parser = croner::parser::CronParser::builder()
            .seconds(croner::parser::Seconds::Optional)
            .build();
        let cron = parser.parse(line).map_err(|error| CronError(error.to_string().into()))?;
        Ok(Self(Kind::Cron(Arc::new(Line { cron, wall: Box::new(wall) }))))
    }

    /// The tick after `last`; `None` if there is none any more.
    pub(crate) fn next(&self, last: Option<Tick>, now: Timestamp, missed: Missed) -> Option<Tick> {
        match &self.0 {
            Kind::Every { period } => Some(Self::on_grid(*period, last, now, missed)),
            #[cfg(feature = "cron")]
            Kind::Cron(line) => line.next(last, now, missed),
        }
    }

    fn on_grid(period: Duration, last: Option<Tick>, now: Timestamp, missed: Missed) -> Tick {
        let Some(last) = last else {
            return Tick { at: now.saturating_add(period), wall: None, skipped: 0 };
        };
        let next = last.at.saturating_add(period);
        let late = now.saturating_since(next);
        // Due now, or still to come.
        if next >= now {
            return Tick { at: next, wall: None, skipped: 0 };
        }
        match missed {
            Missed::Burst => Tick { at: next, wall: None, skipped: 0 },
            Missed::Delay => Tick {
                at: now.saturating_add(period),
                wall: None,
                skipped: whole(late, period).saturating_add(1),
            },
            Missed::Skip => {
                // The first one of the grid that is not past.
                let over = late.as_nanos() % period.as_nanos();
                let ahead = if over == 0 { 0 } else { period.as_nanos() - over };
                let ahead = Duration::from_nanos(u64::try_from(ahead).unwrap_or(u64::MAX));
                let skipped = whole(late, period).saturating_add(u64::from(over != 0));
                Tick { at: now.saturating_add(ahead), wall: None, skipped }
            }
        }
    }
}

/// How often `period` fits into `time`.
fn whole(time: Duration, period: Duration) -> u64 {
    u64::try_from(time.as_nanos() / period.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Every { period } => f.debug_tuple("Every").field(period).finish(),
            #[cfg(feature = "cron")]
            Kind::Cron(line) => f.debug_tuple("Cron").field(&line.cron.as_str()).finish(),
        }
    }
}

/// What was given is not a cron line.
#[cfg(feature = "cron")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cron line: {0}")]
pub struct CronError(Box<str>);

#[cfg(feature = "cron")]
struct Line {
    cron: croner::Cron,
    wall: Box<dyn Fn() -> SystemTime + Send + Sync>,
}

#[cfg(feature = "cron")]
impl Line {
    fn next(&self, last: Option<Tick>, now: Timestamp, missed: Missed) -> Option<Tick> {
        let wall = unix_nanos((self.wall)());
        // Strictly after what has run, whatever the wall clock says now.
        let ran = last.and_then(|tick| tick.wall);
        let after = match (ran, missed) {
            (Some(ran), Missed::Burst) => ran,
            (Some(ran), Missed::Skip | Missed::Delay) => ran.max(wall),
            (None, _) => wall,
        };
        let next = self.after(after)?;
        let skipped = match ran {
            Some(ran) if missed != Missed::Burst => {
                // Those in between, counted up to a limit: a line may have one a second.
                let mut at = ran;
                let mut skipped = 0;
                while skipped < 1000
                    && let Some(then) = self.after(at)
                    && then < next
                {
                    at = then;
                    skipped += 1;
                }
                skipped
            }
            _ => 0,
        };
        let wait = Duration::from_nanos(u64::try_from(next.saturating_sub(wall)).unwrap_or(0));
        Some(Tick { at: now.saturating_add(wait), wall: Some(next), skipped })
    }

    /// The first moment of the line after this one, in nanoseconds since the Unix epoch.
    fn after(&self, wall: i64) -> Option<i64> {
        let from = chrono::DateTime::from_timestamp_nanos(wall);
        self.cron.find_next_occurrence(&from, false).ok()?.timestamp_nanos_opt()
    }
}

#[cfg(feature = "cron")]
fn unix_nanos(at: SystemTime) -> i64 {
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |n| -n),
    }
}

#[cfg(all(test, not(tenure_loom)))]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ORIGIN.saturating_add(Duration::from_secs(seconds))
    }

    fn tick(seconds: u64) -> Option<Tick> {
        Some(Tick { at: at(seconds), wall: None, skipped: 0 })
    }

    #[test]
    fn ticks_are_on_a_grid() {
        let five = Schedule::every(5 * SECOND);
        let next = |last, now, missed| {
            let tick = five.next(last, at(now), missed).expect("for ever");
            (tick.at.saturating_since(Timestamp::ORIGIN).as_secs(), tick.skipped)
        };
        assert_eq!(next(None, 3, Missed::Skip), (8, 0));
        for missed in [Missed::Skip, Missed::Burst, Missed::Delay] {
            assert_eq!(next(tick(8), 8, missed), (13, 0));
            assert_eq!(next(tick(8), 12, missed), (13, 0));
            assert_eq!(next(tick(8), 13, missed), (13, 0), "due now is not missed");
        }
        assert_eq!(next(tick(8), 14, Missed::Skip), (18, 1));
        assert_eq!(next(tick(8), 18, Missed::Skip), (18, 1));
        assert_eq!(next(tick(8), 30, Missed::Skip), (33, 4));
        assert_eq!(next(tick(8), 30, Missed::Burst), (13, 0));
        assert_eq!(next(tick(8), 30, Missed::Delay), (35, 4));
    }

    #[test]
    fn periods_at_both_ends_are_legal() {
        let never = Schedule::every(Duration::MAX);
        assert!(never.next(None, at(7), Missed::Skip).is_some_and(|tick| tick.at.is_never()));
        let always = Schedule::every(Duration::ZERO);
        let next = always.next(tick(0), at(1), Missed::Skip).expect("for ever");
        assert_eq!((next.at, next.skipped), (at(1), 999_999_999));
    }

    #[cfg(feature = "cron")]
    #[test]
    fn a_cron_line_goes_by_the_wall() {
        let hour = 3600 * 1_000_000_000_i64;
        let wall = Arc::new(std::sync::atomic::AtomicI64::new(hour / 2));
        let read = Arc::clone(&wall);
        let hourly = Schedule::cron_by("0 * * * *", move || {
            let nanos = read.load(std::sync::atomic::Ordering::SeqCst);
            SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos as u64)
        })
        .expect("a line");
        let first = hourly.next(None, at(100), Missed::Skip).expect("a next one");
        assert_eq!((first.at, first.wall), (at(100 + 1800), Some(hour)));
        // The wall clock is a little behind the runtime's when the tick comes: not again.
        wall.store(hour - 1000, std::sync::atomic::Ordering::SeqCst);
        let second = hourly.next(Some(first), at(1900), Missed::Skip).expect("a next one");
        assert_eq!(second.wall, Some(2 * hour));
        // Three hours late.
        wall.store(5 * hour + 1, std::sync::atomic::Ordering::SeqCst);
        let skip = hourly.next(Some(second), at(9000), Missed::Skip).expect("a next one");
        assert_eq!((skip.wall, skip.skipped), (Some(6 * hour), 3));
        let burst = hourly.next(Some(second), at(9000), Missed::Burst).expect("a next one");
        assert_eq!((burst.wall, burst.at), (Some(3 * hour), at(9000)));
        // Set back: what has run does not run again.
        wall.store(0, std::sync::atomic::Ordering::SeqCst);
        let back = hourly.next(Some(second), at(9000), Missed::Skip).expect("a next one");
        assert_eq!(back.wall, Some(3 * hour));
        assert!(Schedule::cron("61 * * * *").is_err());
        assert!(Schedule::cron("*/10 * * * * *").is_ok());
    }
}
