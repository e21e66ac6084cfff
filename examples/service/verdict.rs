//! What is claimed of a storm, and what it took.

use std::fmt;
use std::time::Duration;

/// A table of rows and claims.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    rows: Vec<(String, String)>,
    claims: Vec<(String, bool)>,
}

impl Verdict {
    pub(crate) fn row(&mut self, what: &str, value: impl fmt::Display) {
        self.rows.push((what.to_owned(), value.to_string()));
    }

    pub(crate) fn seconds(&mut self, what: &str, took: Duration) {
        self.row(what, format_args!("{:.2} s", took.as_secs_f64()));
    }

    pub(crate) fn claim(&mut self, what: impl Into<String>, holds: bool) {
        self.claims.push((what.into(), holds));
    }

    pub(crate) fn holds(&self) -> bool {
        self.claims.iter().all(|(_, holds)| *holds)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, value) in &self.rows {
            writeln!(f, "{what:<44}{value:>14}")?;
        }
        for (claim, holds) in &self.claims {
            writeln!(f, "{} {claim}", if *holds { "ok   " } else { "FALSE" })?;
        }
        Ok(())
    }
}
