//! Trees that are hard to copy, for testing things like `mirror`; and a comparison that looks at more
//! than `diff -r` does.
//!
//! ```text
//! cargo run --example hard_tree -- make DIR --files 2000 --seed 1
//! cargo run --example hard_tree -- compare A B
//! ```
//!
//! Without arguments it makes a tree, compares it with itself, and removes it.

#[cfg(unix)]
mod compare;
#[cfg(unix)]
mod make;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    unix::main()
}

#[cfg(not(unix))]
fn main() {
    println!("hard_tree makes what only Unix has; nothing to do here");
}

#[cfg(unix)]
mod unix {
    use std::io;
    use std::path::{Path, PathBuf};
    use std::process::ExitCode;

    use clap::{Parser, Subcommand};

    use crate::{compare, make};

    /// Make a tree that is hard to copy, or compare two trees closely
    #[derive(Parser)]
    #[command(name = "hard_tree")]
    struct Options {
        #[command(subcommand)]
        command: Option<Command>,
    }

    #[derive(Subcommand)]
    enum Command {
        /// Make a tree in DIR, which must not exist
        Make {
            dir: PathBuf,
            /// How many plain files beside the hard ones
            #[arg(long, default_value_t = 500)]
            files: u32,
            /// The same seed makes the same tree
            #[arg(long, default_value_t = 0)]
            seed: u64,
            /// Also fifos and sockets
            #[arg(long)]
            specials: bool,
            /// Also a path longer than the system takes in one piece
            #[arg(long)]
            deep: bool,
        },
        /// Compare types, contents, link targets, permissions, owners and modification times
        Compare {
            a: PathBuf,
            b: PathBuf,
            /// Leave fifos, sockets and devices out of it
            #[arg(long)]
            no_specials: bool,
        },
    }

    pub(crate) fn main() -> ExitCode {
        let same = match Options::parse().command {
            Some(Command::Make { dir, files, seed, specials, deep }) => {
                make(&dir, &make::Plan { files, seed, specials, deep }).map(|()| true)
            }
            Some(Command::Compare { a, b, no_specials }) => Ok(compare(&a, &b, !no_specials)),
            None => with_itself(),
        };
        match same {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("hard_tree: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn make(dir: &Path, plan: &make::Plan) -> io::Result<()> {
        make::make(dir, plan)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", dir.display())))
    }

    fn compare(a: &Path, b: &Path, specials: bool) -> bool {
        let found = compare::differences(a, b, specials);
        for difference in &found {
            println!("{difference}");
        }
        found.is_empty()
    }

    fn with_itself() -> io::Result<bool> {
        let home = tempfile::tempdir()?;
        let dir = home.path().join("tree");
        make(&dir, &make::Plan { files: 100, seed: 0, specials: true, deep: true })?;
        let same = compare(&dir, &dir, true);
        println!(
            "made a tree that is {} itself",
            if same { "the same as" } else { "different from" }
        );
        Ok(same)
    }
}
