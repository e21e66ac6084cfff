//! The table in `loom-tests/README.md`: a row a room, made from a run.

use std::collections::BTreeMap;
use std::path::Path;

use crate::report::{Report, Room, Score};

const HEAD: &str = "| room | models | executions | time | orderings killed | transitions killed | \
                    explained | unreached, explained |\n|---|---|---|---|---|---|---|---|\n";
const BEGIN: &str = "<!-- table: weaken --readme -->\n";
const END: &str = "<!-- end of table -->";

fn score(score: Score) -> String {
    if score.changes == 0 {
        return "–".into();
    }
    format!("{} of {}", score.killed, score.changes)
}

fn row(name: &str, room: &Room) -> String {
    format!(
        "| {name} | {} | {} | {:.1} s | {} | {} | {} | {}, {} |\n",
        room.models,
        room.executions,
        room.ms as f64 / 1000.0,
        score(room.orderings),
        score(room.transitions),
        room.orderings.explained + room.transitions.explained,
        room.unreached,
        room.unreached_explained,
    )
}

/// Writes the rows of the rooms that this run weakened; the others stay.
pub(crate) fn write(report: &Report, root: &Path) -> Result<(), String> {
    let path = root.join("loom-tests/README.md");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| {
        rest.split_once(END).map(|(table, after)| (before, table, after))
    });
    let Some((before, table, after)) = parts else {
        return Err(format!("{}: no table to write", path.display()));
    };
    let mut rows: BTreeMap<String, String> = table
        .lines()
        .skip(2)
        .filter_map(|line| Some((line.split('|').nth(1)?.trim().to_owned(), format!("{line}\n"))))
        .collect();
    for (name, room) in &report.rooms {
        if room.orderings.changes + room.transitions.changes + room.unreached > 0 {
            rows.insert(name.clone(), row(name, room));
        }
    }
    let table: String = rows.into_values().collect();
    let text = format!("{before}{BEGIN}{HEAD}{table}{END}{after}");
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
}
