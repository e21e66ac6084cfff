//! Results in a file, so that many short runs make one table.

use std::fs::OpenOptions;
use std::io::{Error, ErrorKind, Result, Write};
use std::path::Path;

use crate::Row;
use crate::measure::Summary;
use crate::peers;

/// Adds a line for each peer: case, peer, and the numbers of its summary, with tabs between.
pub(crate) fn save(path: &Path, row: &Row) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    for (peer, summary) in &row.peers {
        let numbers: Vec<_> = summary.numbers().iter().map(f64::to_string).collect();
        writeln!(file, "{}\t{peer}\t{}", row.name, numbers.join("\t"))?;
    }
    Ok(())
}

/// Reads what was saved. A case that was run again counts as its last run.
pub(crate) fn load(path: &Path) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for line in std::fs::read_to_string(path)?.lines() {
        let (name, peer, summary) = parsed(line)
            .ok_or_else(|| Error::new(ErrorKind::InvalidData, format!("not a result: {line}")))?;
        let at = rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            rows.push(Row { name, peers: Vec::new() });
            rows.len() - 1
        });
        rows[at].peers.retain(|(known, _)| *known != peer);
        rows[at].peers.push((peer, summary));
    }
    Ok(rows)
}

fn parsed(line: &str) -> Option<(String, &'static str, Summary)> {
    let mut parts = line.split('\t');
    let (name, peer) = (parts.next()?, parts.next()?);
    let peer = peers::ALL.iter().find(|known| known.name == peer)?.name;
    let numbers: Vec<f64> = parts.map(|part| part.parse().ok()).collect::<Option<_>>()?;
    Some((name.to_string(), peer, Summary::from_numbers(numbers.try_into().ok()?)))
}
