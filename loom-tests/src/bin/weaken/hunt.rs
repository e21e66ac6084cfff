//! Records what the models reach, then looks for a model that fails, change by change.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Args;
use crate::change::{Operation, is_ordering};
use crate::child::{CONFUSED, MARK, Recorded};
use crate::report::Report;
use crate::scan::{self, Found, Place};
use crate::survivors::Survivors;

/// A model as it was recorded.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ModelRun {
    pub(crate) room: String,
    pub(crate) name: String,
    #[serde(skip)]
    pub(crate) passes: Vec<Recorded>,
    pub(crate) executions: u64,
    pub(crate) ms: u64,
}

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fate {
    /// A model failed: which, in which pass, and how.
    Killed { by: String, how: String },
    /// No model failed, and this one did not end in time.
    TimedOut { models: Vec<String> },
    /// All models that reach it pass.
    Survived { tried: usize },
}

/// One change to one operation.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Changed {
    pub(crate) room: String,
    pub(crate) operation: Operation,
    pub(crate) function: String,
    pub(crate) call: String,
    pub(crate) change: String,
    pub(crate) ordering: bool,
    pub(crate) fate: Fate,
    /// The explanation, where there is one.
    pub(crate) reason: Option<String>,
    pub(crate) ms: u64,
}

/// An operation that no model reaches.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Unreached {
    pub(crate) room: String,
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) function: String,
    pub(crate) call: String,
    pub(crate) reason: Option<String>,
}

/// The room of a model: `lease_wait` is a part of `lease`.
pub(crate) fn base(room: &str) -> &str {
    room.split('_').next().unwrap_or(room)
}

/// The room of a file: `src/lock/raw.rs` and `src/lock.rs` are `lock`'s.
pub(crate) fn room_of(file: &str) -> String {
    let inside = file.rsplit_once("src/").map_or(file, |(_, inside)| inside);
    let room = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs");
    // The door's own specimens.
    if inside.ends_with("specimen.rs") { "specimen".into() } else { room.into() }
}

enum Ended {
    Passed(String),
    Failed(String),
    TimedOut,
    Confused(String),
}

/// Runs this binary again with `--child WORDS`.
fn child(words: &[String], limit: Duration) -> Ended {
    let exe = match std::env::current_exe() {
        Ok(exe) => exe,
        Err(error) => return Ended::Confused(error.to_string()),
    };
    let spawned = Command::new(exe)
        .arg("--child")
        .args(words)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut process = match spawned {
        Ok(process) => process,
        Err(error) => return Ended::Confused(error.to_string()),
    };
    let (out, err) = (process.stdout.take(), process.stderr.take());
    let read = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = read(out.map(|p| Box::new(p) as _));
    let err = read(err.map(|p| Box::new(p) as _));
    let start = Instant::now();
    let mut nap = Duration::from_micros(500);
    let status = loop {
        match process.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if start.elapsed() > limit => {
                let _ = process.kill();
                let _ = process.wait();
                break None;
            }
            Ok(None) => {
                std::thread::sleep(nap);
                nap = (nap * 2).min(Duration::from_millis(20));
            }
            Err(error) => return Ended::Confused(error.to_string()),
        }
    };
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    match status {
        None => Ended::TimedOut,
        Some(status) if status.success() => {
            match out.lines().find_map(|line| line.split_once(MARK)) {
                Some((_, answer)) => Ended::Passed(answer.to_owned()),
                None => Ended::Confused(format!("a child said nothing: {words:?}")),
            }
        }
        Some(status) if status.code() == Some(i32::from(CONFUSED)) => Ended::Confused(err),
        Some(_) => Ended::Failed(how(&err)),
    }
}

/// The first panic's message, shortened.
fn how(err: &str) -> String {
    let mut lines = err.lines();
    let message = lines
        .by_ref()
        .find(|line| line.contains("panicked at"))
        .and_then(|_| lines.find(|line| !line.trim().is_empty()))
        .unwrap_or("aborted");
    let short: String = message.trim().chars().take(110).collect();
    match short.split_once("; threads =") {
        Some((deadlock, _)) => deadlock.to_owned(),
        None => short,
    }
}

/// Calls `each` for every item, on several threads.
fn spread<T: Sync, R: Send>(jobs: usize, items: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = each(item);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Records the models: which sites they reach, in which pass, in what time.
fn record(args: &Args, jobs: usize, models: &[(String, String)]) -> Result<Vec<ModelRun>, String> {
    let runs = spread(jobs, models, |(room, name)| {
        let words = ["record".to_owned(), format!("{room}::{name}")];
        match child(&words, Duration::from_secs(args.limit.saturating_mul(5))) {
            Ended::Passed(answer) => {
                let passes: Vec<Recorded> = serde_json::from_str(&answer)
                    .map_err(|e| format!("{room}::{name}: a child's answer: {e}"))?;
                let executions = passes.iter().map(|p| p.executions).sum();
                let ms = passes.iter().map(|p| p.ms).sum();
                let (room, name) = (room.clone(), name.clone());
                Ok(ModelRun { room, name, passes, executions, ms })
            }
            Ended::Failed(how) => {
                Err(format!("{room}::{name} fails as it is, nothing weakened: {how}"))
            }
            Ended::TimedOut => Err(format!("{room}::{name} does not end in time as it is")),
            Ended::Confused(error) => Err(format!("{room}::{name}: {error}")),
        }
    });
    // All that fail, not only the first.
    let (good, bad): (Vec<_>, Vec<_>) = runs.into_iter().partition(Result::is_ok);
    let bad: Vec<String> = bad.into_iter().filter_map(Result::err).collect();
    if bad.is_empty() { Ok(good.into_iter().flatten().collect()) } else { Err(bad.join("\n")) }
}

/// The whole run.
pub(crate) fn hunt(args: &Args, root: &Path) -> Result<Report, String> {
    let start = Instant::now();
    let jobs = args
        .jobs
        .or_else(|| std::thread::available_parallelism().ok().map(Into::into))
        .unwrap_or(1);
    let path = args.survivors.clone().unwrap_or_else(|| root.join("loom-tests/survivors.toml"));
    let survivors = Survivors::read(&path)?;
    let source = scan::scan(root)?;

    let all = tenure_loom_tests::models::all();
    let has = |room: &str| all.iter().any(|m| base(m.room) == room);
    let narrow = !args.all_models && args.room.iter().any(|room| has(room));
    let models: Vec<(String, String)> = all
        .iter()
        .filter(|m| !narrow || args.room.iter().any(|room| room == base(m.room)))
        .map(|m| (m.room.to_owned(), m.name.to_owned()))
        .collect();
    eprintln!("weaken: recording {} models", models.len());
    let runs = record(args, jobs, &models)?;

    // Which (model, pass) reach an operation, cheapest first.
    let mut reach: BTreeMap<Operation, Vec<(u64, String, String)>> = BTreeMap::new();
    for run in &runs {
        for pass in &run.passes {
            if args.cheap.is_some_and(|most| pass.ms > most) {
                continue;
            }
            for site in &pass.sites {
                let model = format!("{}::{}", run.room, run.name);
                reach.entry(site.clone()).or_default().push((pass.ms, model, pass.pass.clone()));
            }
        }
    }
    for reached in reach.values_mut() {
        reached.sort();
    }
    let in_scope = |file: &str, line: u32| {
        let ours = file.starts_with("src/")
            && (!file.starts_with("src/sync") || file.ends_with("specimen.rs"));
        let room = args.room.is_empty() || args.room.contains(&room_of(file));
        let site = args.site.as_deref().is_none_or(|wanted| {
            let (path, at) = wanted.rsplit_once(':').unwrap_or((wanted, ""));
            file.ends_with(path) && (at.is_empty() || at == line.to_string())
        });
        ours && room && site
    };

    let mut lost = BTreeSet::new();
    let mut todo = Vec::new();
    for (operation, reached) in &reach {
        if !in_scope(&operation.file, operation.line) {
            continue;
        }
        let place: Place = (operation.file.clone(), operation.line, operation.column);
        let found = source.get(&place).cloned().or_else(|| Found::at(root, &place));
        let found = found.unwrap_or_else(|| {
            lost.insert(place);
            Found { function: String::new(), call: String::new() }
        });
        for change in operation.changes(args.orderings_only) {
            todo.push((operation.clone(), found.clone(), change, reached));
        }
    }
    let places: BTreeSet<Place> =
        reach.keys().map(|o| (o.file.clone(), o.line, o.column)).collect();
    let unreached: Vec<Unreached> = source
        .iter()
        .filter(|(place, _)| in_scope(&place.0, place.1) && !places.contains(*place))
        .map(|((file, line, _), found)| Unreached {
            room: room_of(file),
            file: file.clone(),
            line: *line,
            function: found.function.clone(),
            call: found.call.clone(),
            reason: None,
        })
        .collect();

    if !args.list {
        eprintln!("weaken: {} changes, {jobs} at a time", todo.len());
    }
    let count = AtomicUsize::new(0);
    let work: &[_] = if args.list { &[] } else { &todo };
    let changed = spread(jobs, work, |(operation, found, change, reached)| {
        let begun = Instant::now();
        let fate = fate(args, operation, change, reached)?;
        let done = count.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(50) {
            eprintln!("weaken: {done} of {}", work.len());
        }
        Ok::<_, String>(Changed {
            room: room_of(&operation.file),
            ordering: is_ordering(&operation.op, change),
            operation: operation.clone(),
            function: found.function.clone(),
            call: found.call.clone(),
            change: change.clone(),
            fate,
            reason: None,
            ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    });
    let changed = changed.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut report = Report {
        rooms: BTreeMap::new(),
        models: runs,
        changed,
        unreached,
        not_scanned: lost.into_iter().map(|(f, l, c)| format!("{f}:{l}:{c}")).collect(),
        stale: Vec::new(),
        seconds: 0.0,
        listed_only: args.list,
    };
    let whole = args.site.is_none() && args.cheap.is_none() && !args.list && !args.orderings_only;
    survivors.explain(&mut report, |file| in_scope(file, 0) && whole);
    report.count();
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

fn fate(
    args: &Args,
    operation: &Operation,
    change: &str,
    reached: &[(u64, String, String)],
) -> Result<Fate, String> {
    let mut late = Vec::new();
    for (ms, model, pass) in reached {
        let words = [
            "mutate".to_owned(),
            model.clone(),
            pass.clone(),
            operation.file.clone(),
            operation.line.to_string(),
            operation.column.to_string(),
            operation.op.clone(),
            change.to_owned(),
        ];
        // A change may make a model larger, not a hundred times so.
        let limit = Duration::from_millis(ms.saturating_mul(20).max(5_000))
            .min(Duration::from_secs(args.limit));
        match child(&words, limit) {
            Ended::Failed(how) => return Ok(Fate::Killed { by: format!("{model} ({pass})"), how }),
            Ended::TimedOut => late.push(format!("{model} ({pass})")),
            Ended::Confused(error) => return Err(error),
            Ended::Passed(times) if times == "0" => {
                return Err(format!(
                    "{model} reached {}:{}:{} when recorded, and not when changed",
                    operation.file, operation.line, operation.column
                ));
            }
            Ended::Passed(_) => {}
        }
    }
    Ok(if late.is_empty() {
        Fate::Survived { tried: reached.len() }
    } else {
        Fate::TimedOut { models: late }
    })
}
