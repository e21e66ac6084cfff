//! What a run found, and how it is printed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Args;
use crate::hunt::{Changed, Fate, ModelRun, Unreached, base, room_of};

/// What a run found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) rooms: BTreeMap<String, Room>,
    pub(crate) models: Vec<ModelRun>,
    pub(crate) changed: Vec<Changed>,
    pub(crate) unreached: Vec<Unreached>,
    /// Reached, and the scan of the source did not see them: a hole in the scan.
    pub(crate) not_scanned: Vec<String>,
    /// Explanations of what is not so any more.
    pub(crate) stale: Vec<String>,
    pub(crate) seconds: f64,
    #[serde(skip)]
    pub(crate) listed_only: bool,
}

/// One room's figures.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Room {
    pub(crate) models: usize,
    pub(crate) executions: u64,
    pub(crate) ms: u64,
    /// Changed orderings, and dropped transitions.
    pub(crate) orderings: Score,
    pub(crate) transitions: Score,
    pub(crate) unreached: usize,
    pub(crate) unreached_explained: usize,
}

/// Counts of fates.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Score {
    pub(crate) changes: usize,
    pub(crate) killed: usize,
    pub(crate) timed_out: usize,
    pub(crate) survived: usize,
    /// Of those not killed.
    pub(crate) explained: usize,
}

impl Score {
    fn add(&mut self, changed: &Changed) {
        self.changes += 1;
        match changed.fate {
            Fate::Killed { .. } => self.killed += 1,
            Fate::TimedOut { .. } => self.timed_out += 1,
            Fate::Survived { .. } => self.survived += 1,
        }
        self.explained += usize::from(changed.reason.is_some());
    }

    fn print(self) -> String {
        let open = self.changes - self.killed - self.explained;
        let percent = if self.changes == 0 {
            "-".into()
        } else {
            format!("{:.0} %", 100.0 * self.killed as f64 / self.changes as f64)
        };
        format!(
            "{:>4} of {:<4} {percent:>6}  explained {:<3} open {open:<3}",
            self.killed, self.changes, self.explained
        )
    }
}

impl Report {
    /// Counts rooms.
    pub(crate) fn count(&mut self) {
        for model in &self.models {
            let room = self.rooms.entry(base(&model.room).to_owned()).or_default();
            room.models += 1;
            room.executions += model.executions;
            room.ms += model.ms;
        }
        for changed in &self.changed {
            let room = self.rooms.entry(changed.room.clone()).or_default();
            let score = if changed.ordering { &mut room.orderings } else { &mut room.transitions };
            score.add(changed);
        }
        for unreached in &self.unreached {
            let room = self.rooms.entry(room_of(&unreached.file)).or_default();
            room.unreached += 1;
            room.unreached_explained += usize::from(unreached.reason.is_some());
        }
    }

    /// Whether each change is killed or explained, and each explanation needed.
    pub(crate) fn clean(&self) -> bool {
        let changed = |c: &Changed| c.reason.is_some() || matches!(c.fate, Fate::Killed { .. });
        self.stale.is_empty()
            && self.changed.iter().all(changed)
            && self.unreached.iter().all(|u| u.reason.is_some())
    }

    pub(crate) fn print(&self, args: &Args) {
        if args.json {
            match serde_json::to_string_pretty(self) {
                Ok(json) => println!("{json}"),
                Err(error) => eprintln!("weaken: {error}"),
            }
            return;
        }
        if self.listed_only {
            for model in &self.models {
                println!(
                    "{}::{} {} executions {} ms",
                    model.room, model.name, model.executions, model.ms
                );
            }
        }
        let line = |c: &Changed| {
            format!(
                "{}:{} {}: {} [{} {}]",
                c.operation.file, c.operation.line, c.function, c.call, c.operation.op, c.change
            )
        };
        for changed in &self.changed {
            match (&changed.fate, &changed.reason) {
                (Fate::Killed { by, how }, _) if args.verbose => {
                    println!("killed     {}\n           by {by}: {how}", line(changed));
                }
                (Fate::Killed { .. }, _) => {}
                (_, Some(reason)) if args.verbose => {
                    println!("explained  {}\n           {reason}", line(changed));
                }
                (_, Some(_)) => {}
                (Fate::Survived { tried }, None) => {
                    println!(
                        "SURVIVED   {}\n           {tried} passes of models reach it",
                        line(changed)
                    );
                }
                (Fate::TimedOut { models }, None) => {
                    println!("TIMED OUT  {}\n           in {}", line(changed), models.join(", "));
                }
            }
        }
        for unreached in self.unreached.iter().filter(|u| u.reason.is_none()) {
            println!(
                "UNREACHED  {}:{} {}: {}",
                unreached.file, unreached.line, unreached.function, unreached.call
            );
        }
        for stale in &self.stale {
            println!("STALE      {stale}");
        }
        for place in &self.not_scanned {
            println!("note: the scan of the source does not see {place}");
        }
        println!(
            "{:<10} {:>6} {:>10} {:>7}  orderings killed                          transitions killed                        unreached",
            "room", "models", "executions", "s"
        );
        for (name, room) in &self.rooms {
            println!(
                "{name:<10} {:>6} {:>10} {:>7.1}  {}  {}  {} ({} explained)",
                room.models,
                room.executions,
                room.ms as f64 / 1000.0,
                room.orderings.print(),
                room.transitions.print(),
                room.unreached,
                room.unreached_explained,
            );
        }
        println!("{} in {:.1} s", if self.clean() { "clean" } else { "NOT CLEAN" }, self.seconds);
    }
}
