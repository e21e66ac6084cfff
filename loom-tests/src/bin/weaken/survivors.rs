//! The explained survivors: `loom-tests/survivors.toml`.

use std::path::Path;

use serde::Deserialize;

use crate::hunt::Fate;
use crate::report::Report;

/// The file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Survivors {
    #[serde(default)]
    survivor: Vec<Survivor>,
    #[serde(default)]
    unreached: Vec<Untouched>,
}

/// A change that no model can kill, and why it is right all the same.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivor {
    file: String,
    /// The function it stands in.
    function: String,
    /// The call on one line, as the report prints it: no line numbers, so that edits elsewhere in the
    /// file do not touch it.
    call: String,
    op: String,
    /// `AcqRel->Release`, `dropped`; several with the same reason as a list.
    change: Changes,
    /// One sentence: the proof that loom cannot see.
    reason: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Changes {
    One(String),
    Several(Vec<String>),
}

impl Changes {
    fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several,
        }
    }
}

/// An operation that no model reaches, and why none has to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Untouched {
    file: String,
    function: String,
    call: String,
    reason: String,
}

impl Survivors {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let survivors: Self =
            toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let empty = survivors.survivor.iter().map(|s| (&s.file, &s.reason));
        let empty = empty.chain(survivors.unreached.iter().map(|u| (&u.file, &u.reason)));
        for (file, reason) in empty {
            if reason.trim().len() < 20 {
                return Err(format!("{}: {file}: a reason is a sentence", path.display()));
            }
        }
        Ok(survivors)
    }

    /// Writes each explanation to what it explains. One that explains nothing is out of date, if this
    /// run looked at the whole of its file.
    pub(crate) fn explain(&self, report: &mut Report, looked_at: impl Fn(&str) -> bool) {
        for survivor in &self.survivor {
            for change in survivor.change.all() {
                let mut used = false;
                let mut killed = false;
                for changed in &mut report.changed {
                    let same = changed.operation.file == survivor.file
                        && changed.function == survivor.function
                        && changed.call == survivor.call
                        && changed.operation.op == survivor.op
                        && changed.change == *change;
                    if !same {
                        continue;
                    }
                    match changed.fate {
                        Fate::Killed { .. } => killed = true,
                        Fate::Survived { .. } | Fate::TimedOut { .. } => {
                            used = true;
                            changed.reason = Some(survivor.reason.trim().to_owned());
                        }
                    }
                }
                if !used && looked_at(&survivor.file) {
                    report.stale.push(format!(
                        "{} {}: {} {change}: {}",
                        survivor.file,
                        survivor.function,
                        survivor.call,
                        if killed { "killed now" } else { "not there any more" }
                    ));
                }
            }
        }
        for untouched in &self.unreached {
            let mut used = false;
            for unreached in &mut report.unreached {
                if unreached.file == untouched.file
                    && unreached.function == untouched.function
                    && unreached.call == untouched.call
                {
                    used = true;
                    unreached.reason = Some(untouched.reason.trim().to_owned());
                }
            }
            if !used && looked_at(&untouched.file) {
                report.stale.push(format!(
                    "{} {}: {}: reached now, or not there any more",
                    untouched.file, untouched.function, untouched.call
                ));
            }
        }
    }
}
