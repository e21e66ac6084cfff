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

/// The README around its table, and the table's rows by room.
struct Page {
    before: String,
    rows: BTreeMap<String, String>,
    after: String,
}

fn read(path: &Path) -> Result<Page, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| {
        rest.split_once(END).map(|(table, after)| (before, table, after))
    });
    let Some((before, table, after)) = parts else {
        return Err(format!("{}: there is no table", path.display()));
    };
    let rows = table
        .lines()
        .skip(2)
        .filter_map(|line| Some((line.split('|').nth(1)?.trim().to_owned(), format!("{line}\n"))))
        .collect();
    Ok(Page { before: before.to_owned(), rows, after: after.to_owned() })
}

/// The rows of the rooms that this run weakened.
fn rows(report: &Report) -> impl Iterator<Item = (&String, String)> {
    let weakened =
        |room: &Room| room.orderings.changes + room.transitions.changes + room.unreached > 0;
    let rooms = report.rooms.iter().filter(move |(_, room)| weakened(room));
    rooms.map(|(name, room)| (name, row(name, room)))
}

/// Writes the rows of the rooms that this run weakened; the others stay.
pub(crate) fn write(report: &Report, root: &Path) -> Result<(), String> {
    let path = root.join("loom-tests/README.md");
    let mut page = read(&path)?;
    page.rows.extend(rows(report).map(|(name, row)| (name.clone(), row)));
    let table: String = page.rows.into_values().collect();
    let text = format!("{}{BEGIN}{HEAD}{table}{END}{}", page.before, page.after);
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// What a row claims and a run has to confirm: all but executions and time, which differ from machine
/// to machine.
fn claims(row: &str) -> Vec<&str> {
    let cells: Vec<&str> = row.trim().split('|').map(str::trim).collect();
    cells.iter().enumerate().filter(|(at, _)| ![3, 4].contains(at)).map(|(_, cell)| *cell).collect()
}

/// The rows of this run that the README has otherwise.
pub(crate) fn differences(report: &Report, root: &Path) -> Result<Vec<String>, String> {
    let page = read(&root.join("loom-tests/README.md"))?;
    let differs = |(name, new): (&String, String)| {
        let old = page.rows.get(name).map_or("", String::as_str);
        (claims(old) != claims(&new)).then(|| {
            let old = if old.is_empty() { "nothing" } else { old.trim() };
            format!("the README has {old}\n           this run       {}", new.trim())
        })
    };
    Ok(rows(report).filter_map(differs).collect())
}

#[cfg(test)]
mod tests {
    use super::claims;

    #[test]
    fn a_row_claims_all_but_executions_and_time() {
        let row = "| wait | 5 | 21819 | 11.3 s | 4 of 4 | 7 of 7 | 0 | 0, 0 |\n";
        assert_eq!(claims(row), claims("| wait | 5 | 9 | 0.1 s | 4 of 4 | 7 of 7 | 0 | 0, 0 |"));
        assert_ne!(
            claims(row),
            claims("| wait | 4 | 21819 | 11.3 s | 4 of 4 | 7 of 7 | 0 | 0, 0 |")
        );
        assert_ne!(
            claims(row),
            claims("| wait | 5 | 21819 | 11.3 s | 3 of 4 | 7 of 7 | 1 | 0, 0 |")
        );
    }
}
