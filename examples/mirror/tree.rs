//! Directories in work: a pair of open directories, and what is left to do below them.
//!
//! Everything is done relative to an open directory and without following links, so nothing is ever
//! read or written through a link that somebody put in the way, and paths may be of any length.
//!
//! A directory gets its permissions and times last, when everything below it is settled: whoever
//! settles the last thing finishes the directory, and then perhaps the one above.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::attributes::{self, Born};
use crate::failure::{Doing as _, Failure};

/// How a directory is opened.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How a file that may have become something else meanwhile is opened: a link is refused, a fifo
/// does not make us wait, a terminal does not become ours.
const CAREFULLY: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A directory of SRC and its copy, both open.
#[derive(Debug)]
pub(crate) struct Directory {
    parent: Option<Arc<Directory>>,
    name: CString,
    pub(crate) src: OwnedFd,
    /// `None`: it is not there, and this is a dry run.
    pub(crate) dst: Option<Copy>,
    stat: Stat,
    /// What is not settled yet: files, subdirectories, and the walk itself.
    left: AtomicUsize,
}

/// The copy's side of a directory.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) fd: OwnedFd,
    pub(crate) born: Born,
    /// It was there before this run, so there may be something in it.
    pub(crate) existed: bool,
}

impl Copy {
    /// Takes on an open directory in DST. `writable`: sees to it that files can be made in it, where
    /// that is ours to decide; it gets its own permissions in the end.
    pub(crate) fn new(fd: OwnedFd, existed: bool, writable: bool) -> Result<Self, Failure> {
        let stat = rustix::fs::fstat(&fd).doing("cannot examine the directory in DST")?;
        if writable && stat.st_mode & 0o700 != 0o700 {
            // Not ours: then making the first file tells what is wrong.
            let mode = attributes::mode(&stat) | 0o700;
            let _ = rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode as _));
        }
        let setgid = stat.st_mode & 0o2000 != 0;
        let us = attributes::us();
        let gid = if setgid { stat.st_gid } else { us.gid };
        let born = Born { uid: us.uid, gid, acl: has_default_acl(&fd) };
        Ok(Self { fd, born, existed })
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn has_default_acl(fd: &OwnedFd) -> bool {
    let mut nothing = [0_u8; 0];
    rustix::fs::fgetxattr(fd, c"system.posix_acl_default", &mut nothing).is_ok()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn has_default_acl(_: &OwnedFd) -> bool {
    true // not known: permissions are then always set explicitly
}

impl Directory {
    /// The directory at the top.
    pub(crate) fn root(src: OwnedFd, stat: Stat, dst: Option<Copy>) -> Arc<Self> {
        Arc::new(Self {
            parent: None,
            name: CString::default(),
            src,
            dst,
            stat,
            left: AtomicUsize::new(1),
        })
    }

    /// One below `parent`, which now has one thing more to wait for.
    pub(crate) fn below(
        parent: &Arc<Self>,
        name: CString,
        src: OwnedFd,
        stat: Stat,
        dst: Option<Copy>,
    ) -> Arc<Self> {
        parent.expect_one();
        Arc::new(Self {
            parent: Some(parent.clone()),
            name,
            src,
            dst,
            stat,
            left: AtomicUsize::new(1),
        })
    }

    /// One thing more must be settled before this directory is done.
    pub(crate) fn expect_one(&self) {
        // Relaxed: the caller holds one that is not settled, so this cannot be the last.
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// One thing is settled. If it was the last, the directory is finished, and so on upwards;
    /// `failed` hears of the directories that could not be.
    pub(crate) fn settle_one(self: Arc<Self>, failed: &mut dyn FnMut(Vec<u8>, Failure)) {
        let mut this = self;
        // AcqRel: what the others did to this directory comes before its times are set.
        while this.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            if let Err(failure) = this.finish() {
                failed(this.path(), failure);
            }
            match &this.parent {
                Some(parent) => this = parent.clone(),
                None => return,
            }
        }
    }

    /// Permissions, owner and times, if they are not right already.
    fn finish(&self) -> Result<(), Failure> {
        let Some(copy) = &self.dst else { return Ok(()) };
        let theirs = rustix::fs::fstat(&copy.fd).doing("cannot examine the directory")?;
        if attributes::same_access(&self.stat, &theirs)
            && attributes::same_mtime(&self.stat, &theirs)
        {
            return Ok(());
        }
        attributes::dress(&copy.fd, &self.stat, copy.born, false)
    }

    /// Whether `other` is this directory of SRC, or one above it.
    pub(crate) fn is_at_or_below(&self, other: (u64, u64)) -> bool {
        std::iter::successors(Some(self), |at| at.parent.as_deref())
            .any(|at| attributes::identity(&at.stat) == other)
    }

    /// Path from SRC, empty for SRC itself.
    pub(crate) fn path(&self) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = self;
        while let Some(parent) = &at.parent {
            names.push(at.name.to_bytes());
            at = parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// Path from SRC of `name` in this directory.
    pub(crate) fn path_of(&self, name: &CStr) -> Vec<u8> {
        let mut path = self.path();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());
        path
    }
}

/// Whether the open directory `fd` is a mount point, also of a bind mount where the system tells.
/// `above` is the directory it was opened in.
pub(crate) fn is_mount_point(
    above: BorrowedFd<'_>,
    fd: BorrowedFd<'_>,
    stat: &Stat,
) -> Result<bool, Errno> {
    if rustix::fs::fstat(above)?.st_dev != stat.st_dev {
        return Ok(true);
    }
    Ok(is_mount_root(fd))
}

/// The root of a mount, as the system says; `false` if it does not.
#[cfg(target_os = "linux")]
fn is_mount_root(fd: BorrowedFd<'_>) -> bool {
    use rustix::fs::{StatxAttributes, StatxFlags};
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())
        .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(not(target_os = "linux"))]
fn is_mount_root(_: BorrowedFd<'_>) -> bool {
    false
}

/// What `name` is, itself and not what it points to; `None` if there is no such thing.
pub(crate) fn look(dir: impl AsFd, name: &CStr) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a regular file for reading. The caller must still look at what it got.
pub(crate) fn open_carefully(dir: impl AsFd, name: &CStr) -> Result<File, Errno> {
    Ok(rustix::fs::openat(dir, name, OFlags::RDONLY.union(CAREFULLY), Mode::empty())?.into())
}
