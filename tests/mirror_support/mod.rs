//! Runs the built `mirror`, makes trees for it, and compares what came out.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;

#[path = "../../examples/hard_tree/compare.rs"]
pub mod compare;
#[path = "../../examples/hard_tree/make.rs"]
pub mod make;

use make::Plan;

/// Builds the example, once, in the profile this test was built in, and says where it is.
pub fn mirror() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // target/<profile>/deps/<this test>
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().unwrap().parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--example", "mirror", "--target-dir"]);
        cargo.arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(cargo.status().unwrap().success(), "the example does not build");
        profile.join("examples/mirror")
    })
}

/// What a run said.
#[derive(Debug)]
pub struct Said {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Said {
    /// The exit code; fails if a signal ended it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by {}: {}", self.status, self.err))
    }

    /// The one JSON object that `--json` prints.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|e| panic!("{e}: {:?} {:?}", self.out, self.err))
    }
}

/// A mirror from `src` to `dst`, ready to run.
pub fn command(src: &Path, dst: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(mirror());
    command.arg(src).arg(dst).args(options);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a mirror to its end.
pub fn run(src: &Path, dst: &Path, options: &[&str]) -> Said {
    finish(command(src, dst, options))
}

/// Runs it to its end.
pub fn finish(mut command: Command) -> Said {
    let output = command.output().unwrap();
    Said {
        status: output.status,
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs it with `--json`, expects success, and returns the object.
#[track_caller]
pub fn json(src: &Path, dst: &Path, options: &[&str]) -> serde_json::Value {
    let said = run(src, dst, &[&["--json"], options].concat());
    assert_eq!(said.code(), 0, "{said:?}");
    said.json()
}

/// A place of its own, with a source tree to be made in it. Removed afterwards.
pub struct Home(tempfile::TempDir);

impl Home {
    pub fn new() -> Self {
        Self(tempfile::Builder::new().prefix("mirror-test-").tempdir().unwrap())
    }

    /// One with a hard tree in `src`.
    pub fn with_tree(files: u32, seed: u64) -> Self {
        let home = Self::new();
        make::make(&home.src(), &Plan { files, seed, specials: false, deep: false }).unwrap();
        home
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn src(&self) -> PathBuf {
        self.at("src")
    }

    pub fn dst(&self) -> PathBuf {
        self.at("dst")
    }

    /// Makes a file with what is above it.
    pub fn file(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, contents).unwrap();
        path
    }

    /// `dst` is a copy of `src`, down to the last nanosecond.
    #[track_caller]
    pub fn assert_same(&self) {
        let found = compare::differences(&self.src(), &self.dst(), false);
        assert!(found.is_empty(), "{found:#?}");
        assert_eq!(temporaries(&self.dst()), Vec::<PathBuf>::new());
    }
}

/// The temporary files below `dir` (not the look-alike that hard trees have).
pub fn temporaries(dir: &Path) -> Vec<PathBuf> {
    walkdir::WalkDir::new(dir)
        .into_iter()
        .map(|entry| entry.unwrap().into_path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            name.starts_with(b".mirror-") && !name.starts_with(b".mirror-0123456789abcdef")
        })
        .collect()
}
