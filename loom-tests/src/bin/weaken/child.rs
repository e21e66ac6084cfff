//! One model in this process, because a model that fails may abort it.

use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use tenure::sync::site::{self, Mutation};
use tenure_loom_tests::harness::{Model, Pass};

use crate::change::{self, Operation};

/// What recording a model told, one pass.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) pass: String,
    pub(crate) executions: u64,
    pub(crate) ms: u64,
    pub(crate) sites: Vec<Operation>,
}

/// Marks the line that the parent reads.
pub(crate) const MARK: &str = "weaken-child ";

/// The exit code of a child that was asked for something impossible; a failing model has another.
pub(crate) const CONFUSED: u8 = 3;

pub(crate) fn pass_name(pass: Pass) -> &'static str {
    match pass {
        Pass::Plain => "plain",
        Pass::EarlyWake => "early-wake",
        Pass::WeakFailure => "weak-failure",
    }
}

fn find(full: &str) -> Option<Model> {
    tenure_loom_tests::models::all().into_iter().find(|m| format!("{}::{}", m.room, m.name) == full)
}

/// `record MODEL`, or `mutate MODEL PASS FILE LINE COLUMN OP CHANGE`.
pub(crate) fn main(words: &[String]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["record", model] => find(model).and_then(record),
        ["mutate", model, pass, file, line, column, op, change] => find(model).and_then(|model| {
            let mutation = Mutation {
                at: (file.to_owned(), line.parse().ok()?, column.parse().ok()?),
                op: change::parse_op(op)?,
                change: change::parse_change(change)?,
            };
            let pass = Pass::ALL.into_iter().find(|p| pass_name(*p) == pass)?;
            site::mutate(mutation).then_some(())?;
            model.pass(pass);
            println!("{MARK}{}", site::mutated());
            Some(())
        }),
        _ => None,
    };
    match done {
        Some(()) => ExitCode::SUCCESS,
        None => {
            eprintln!("weaken: a child does not understand {words:?}");
            ExitCode::from(CONFUSED)
        }
    }
}

fn record(model: Model) -> Option<()> {
    site::record(true);
    let mut passes = Vec::new();
    for pass in Pass::ALL {
        let plain: Option<&(Recorded, tenure::model::Explored)> = passes.first();
        let wanted = plain.is_none_or(|(_, plain)| match pass {
            Pass::Plain => true,
            Pass::EarlyWake => plain.waits > 0 && !model.once,
            Pass::WeakFailure => plain.weak > 0 && !model.once,
        });
        if !wanted {
            continue;
        }
        let explored = model.pass(pass);
        let sites = site::take_sites()
            .into_keys()
            .map(|s| Operation {
                file: s.file,
                line: s.line,
                column: s.column,
                op: change::op_name(s.op).to_owned(),
                order: s.order.map(str::to_owned),
            })
            .collect();
        let ms = u64::try_from(explored.time.as_millis()).unwrap_or(u64::MAX);
        let pass = pass_name(pass).to_owned();
        passes.push((Recorded { pass, executions: explored.executions, ms, sites }, explored));
    }
    let passes: Vec<Recorded> = passes.into_iter().map(|(recorded, _)| recorded).collect();
    println!("{MARK}{}", serde_json::to_string(&passes).ok()?);
    Some(())
}
