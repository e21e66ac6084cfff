//! SRC and DST: are they what they have to be, and do they keep out of each other's way?

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::attributes::identity;
use crate::names::show;

/// Both ends, open.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) src: OwnedFd,
    pub(crate) src_stat: Stat,
    /// `None`: it is not there, and a dry run does not make it.
    pub(crate) dst: Option<Destination>,
}

/// The open top of the copy.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) fd: OwnedFd,
    pub(crate) stat: Stat,
    /// It was there before.
    pub(crate) existed: bool,
    /// Nobody else mirrors into it as long as this process lives.
    pub(crate) exclusive: bool,
}

/// Why it cannot begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// The arguments make no sense: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// They do, but the system does not let us: exit code 1.
    #[error("{what}: {source}")]
    System {
        /// What could not be done, and to what.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// There are no threads, or no signals: exit code 1.
    #[error("{0}")]
    Engine(String),
}

impl Refused {
    /// 2 for usage, 1 for everything else.
    pub(crate) fn exit_code(&self) -> i32 {
        match self {
            Self::Usage(_) => 2,
            Self::System { .. } | Self::Engine(_) => 1,
        }
    }

    pub(crate) fn system(what: &str, path: &Path, error: impl Into<io::Error>) -> Self {
        Self::System { what: format!("{what} {}", display(path)), source: error.into() }
    }
}

fn display(path: &Path) -> String {
    show(path.as_os_str().as_encoded_bytes())
}

impl Places {
    /// Opens both ends; makes DST where it is missing, unless this is a dry run.
    pub(crate) fn open(src: &Path, dst: &Path, dry_run: bool) -> Result<Self, Refused> {
        let from = canonical_source(src)?;
        let (to, missing) = canonical_destination(dst)?;
        keep_apart(src, &from, dst, &to.join(&missing))?;
        // Before anything is made: behind a bind mount the paths differ and the directories do not.
        let src_fd = open(&from).map_err(|error| Refused::system("cannot open SRC", src, error))?;
        let src_stat = rustix::fs::fstat(&src_fd)
            .map_err(|error| Refused::system("cannot examine SRC", src, error))?;
        keep_apart_by_identity(src, &from, &src_stat, dst, &to, missing.as_os_str().is_empty())?;

        let existed = missing.as_os_str().is_empty();
        if !existed && dry_run {
            return Ok(Self { src: src_fd, src_stat, dst: None });
        }
        let whole = to.join(&missing);
        if !existed {
            make(&whole).map_err(|error| Refused::system("cannot create DST", dst, error))?;
        }
        let fd = open(&whole).map_err(|error| Refused::system("cannot open DST", dst, error))?;
        let stat = rustix::fs::fstat(&fd)
            .map_err(|error| Refused::system("cannot examine DST", dst, error))?;
        let exclusive = !dry_run && lock(&fd, dst)?;
        Ok(Self { src: src_fd, src_stat, dst: Some(Destination { fd, stat, existed, exclusive }) })
    }
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Makes DST, private until it is complete, and the directories above it as usual.
fn make(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Two runs into one place would take each other's temporary files for leftovers.
fn lock(fd: &OwnedFd, dst: &Path) -> Result<bool, Refused> {
    match rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Err(Refused::System {
            what: format!("cannot use DST {}", display(dst)),
            source: io::Error::other("another mirror is writing into it"),
        }),
        // A file system without locks. Then leftovers of earlier runs are not touched.
        Err(_) => Ok(false),
    }
}

fn canonical_source(src: &Path) -> Result<PathBuf, Refused> {
    match std::fs::canonicalize(src) {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err(Refused::Usage(format!("SRC {} is not a directory", display(src)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Refused::Usage(format!("SRC {} does not exist", display(src))))
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(Refused::Usage(format!(
            "SRC {} is below something that is not a directory",
            display(src)
        ))),
        Err(error) => Err(Refused::system("cannot find SRC", src, error)),
    }
}

/// The part of DST that is there, without links, and the rest, which is missing.
fn canonical_destination(dst: &Path) -> Result<(PathBuf, PathBuf), Refused> {
    let mut there = dst;
    let mut missing: Vec<OsString> = Vec::new();
    loop {
        let here = if there.as_os_str().is_empty() { Path::new(".") } else { there };
        match std::fs::canonicalize(here) {
            Ok(path) if path.is_dir() => {
                missing.reverse();
                return Ok((path, missing.into_iter().collect()));
            }
            Ok(_) if missing.is_empty() => {
                return Err(Refused::Usage(format!("DST {} is not a directory", display(dst))));
            }
            Ok(_) => {
                let what = format!(
                    "DST {} is below {}, which is not a directory",
                    display(dst),
                    display(here)
                );
                return Err(Refused::Usage(what));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if here.symlink_metadata().is_ok() {
                    return Err(Refused::Usage(format!(
                        "DST: {} is a link to nowhere",
                        display(here)
                    )));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            Err(error) => return Err(Refused::system("cannot find DST", dst, error)),
        }
        let (Some(name), Some(above)) = (there.file_name(), there.parent()) else {
            let what =
                format!("DST {} leads back out of a directory that does not exist", display(dst));
            return Err(Refused::Usage(what));
        };
        missing.push(name.to_owned());
        there = above;
    }
}

fn keep_apart(src: &Path, from: &Path, dst: &Path, to: &Path) -> Result<(), Refused> {
    let (src, dst) = (display(src), display(dst));
    if from == to {
        Err(Refused::Usage(format!("SRC {src} and DST {dst} are the same directory")))
    } else if to.starts_with(from) {
        Err(Refused::Usage(format!("DST {dst} is inside SRC {src}")))
    } else if from.starts_with(to) {
        Err(Refused::Usage(format!("SRC {src} is inside DST {dst}")))
    } else {
        Ok(())
    }
}

fn keep_apart_by_identity(
    src: &Path,
    from: &Path,
    src_stat: &Stat,
    dst: &Path,
    to: &Path,
    whole: bool,
) -> Result<(), Refused> {
    let is = |path: &Path, other: &Stat| {
        rustix::fs::stat(path).is_ok_and(|s| identity(&s) == identity(other))
    };
    let (src, dst) = (display(src), display(dst));
    if to.ancestors().any(|above| is(above, src_stat)) {
        return Err(Refused::Usage(format!(
            "DST {dst} is SRC {src} or inside it, by another path"
        )));
    }
    let Ok(dst_stat) = rustix::fs::stat(to) else { return Ok(()) };
    if whole && from.ancestors().any(|above| is(above, &dst_stat)) {
        return Err(Refused::Usage(format!("SRC {src} is inside DST {dst}, by another path")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn refused(src: &Path, dst: &Path) -> String {
        match Places::open(src, dst, false) {
            Err(Refused::Usage(why)) => why,
            other => panic!("{src:?} to {dst:?}: {other:?}"),
        }
    }

    #[test]
    fn arguments_that_make_no_sense() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir_all(at("src/sub")).unwrap();
        fs::write(at("file"), "x").unwrap();
        symlink("src", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();

        assert!(refused(&at("none"), &at("dst")).contains("does not exist"));
        assert!(refused(&at("file"), &at("dst")).contains("not a directory"));
        assert!(refused(&at("src"), &at("file")).contains("not a directory"));
        assert!(refused(&at("src"), &at("file/below")).contains("not a directory"));
        assert!(refused(&at("src"), &at("src")).contains("same directory"));
        assert!(refused(&at("src"), &at("link")).contains("same directory"));
        assert!(refused(&at("src"), &at("src/new")).contains("inside SRC"));
        assert!(refused(&at("src"), &at("link/new/deeper")).contains("inside SRC"));
        assert!(refused(&at("src/sub"), &at("src")).contains("inside DST"));
        assert!(refused(&at("src/sub"), &at("link")).contains("inside DST"));
        assert!(refused(&at("src"), &at("dangling")).contains("link to nowhere"));
        assert!(refused(&at("src"), &at("new/../src/x")).contains("leads back"));
        assert!(!at("dst").exists() && !at("src/new").exists() && !at("new").exists());
    }

    #[test]
    fn neighbours_with_a_common_prefix_are_no_relatives() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("src")).unwrap();
        let places =
            Places::open(&home.path().join("src"), &home.path().join("src2/deep/er"), false)
                .unwrap();
        assert!(!places.dst.unwrap().existed);
        assert!(home.path().join("src2/deep/er").is_dir());
    }

    #[test]
    fn a_dry_run_makes_nothing() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("src")).unwrap();
        let places =
            Places::open(&home.path().join("src"), &home.path().join("dst"), true).unwrap();
        assert!(places.dst.is_none() && !home.path().join("dst").exists());
    }

    #[test]
    fn two_runs_into_one_place_are_one_too_many() {
        let home = tempfile::tempdir().unwrap();
        let (src, dst) = (home.path().join("src"), home.path().join("dst"));
        fs::create_dir(&src).unwrap();
        let first = Places::open(&src, &dst, false).unwrap();
        let second = Places::open(&src, &dst, false);
        assert!(second.is_err_and(|error| error.to_string().contains("another mirror")));
        drop(first);
        assert!(Places::open(&src, &dst, false).is_ok());
    }
}
