//! Permissions, times and owners: what a copy takes over, and what counts as the same.

use std::os::fd::AsFd;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, Mode, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::failure::{Doing as _, Failure};

/// Permission bits, with setuid, setgid and sticky.
const ALL: u32 = 0o7777;
/// Bits that mean something else when the owner is another one.
const PRIVILEGED: u32 = 0o6000;

/// What a new file in some directory gets without being asked: whom it belongs to, and whether its
/// mode is the one it was created with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Born {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The directory has a default ACL, which changes the mode of what is created in it.
    pub(crate) acl: bool,
}

/// Who this process is, as far as files are concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Us {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Us {
    /// May give files away.
    pub(crate) fn is_root(self) -> bool {
        self.uid == 0
    }
}

/// Who this process is; asked once.
pub(crate) fn us() -> Us {
    static US: OnceLock<Us> = OnceLock::new();
    *US.get_or_init(|| Us {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    })
}

/// The permission bits of `stat`.
#[allow(clippy::unnecessary_cast, reason = "the width differs between systems")]
pub(crate) fn mode(stat: &Stat) -> u32 {
    stat.st_mode as u32 & ALL
}

/// The kind and the number behind `stat`: two of them are the same file iff these agree.
#[allow(clippy::unnecessary_cast, reason = "the widths differ between systems")]
pub(crate) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// Modification times agree to the nanosecond.
pub(crate) fn same_mtime(a: &Stat, b: &Stat) -> bool {
    (a.st_mtime, a.st_mtime_nsec) == (b.st_mtime, b.st_mtime_nsec)
}

/// `theirs` has the owner and permissions that a copy of `ours` made by this process would have.
pub(crate) fn same_access(ours: &Stat, theirs: &Stat) -> bool {
    let same_owner = (ours.st_uid, ours.st_gid) == (theirs.st_uid, theirs.st_gid);
    if same_owner {
        mode(ours) == mode(theirs)
    } else {
        // Only root gives files away; for everybody else this is as near as it gets.
        !us().is_root() && mode(ours) & !PRIVILEGED == mode(theirs)
    }
}

/// The mode to create a copy of `stat` with: what it will have in the end if nothing but that is
/// needed, else one that keeps everybody out until [`dress`] is done.
pub(crate) fn birth_mode(stat: &Stat, born: Born) -> Mode {
    if is_born_right(stat, born) {
        Mode::from_raw_mode(mode(stat) as _)
    } else {
        Mode::RUSR | Mode::WUSR
    }
}

/// Whether a file that is created with the mode of `stat` then has that mode, and may have it.
fn is_born_right(stat: &Stat, born: Born) -> bool {
    !needs_owner(stat, born) && !born.acl && mode(stat) & PRIVILEGED == 0
}

fn needs_owner(stat: &Stat, born: Born) -> bool {
    (stat.st_uid, stat.st_gid) != (born.uid, born.gid)
}

/// Gives the file `fd` the owner, the permissions and the times of `stat`. The file was created with
/// [`birth_mode`]; `fresh = false` says that it was not, and that nothing about it is known.
pub(crate) fn dress(fd: impl AsFd, stat: &Stat, born: Born, fresh: bool) -> Result<(), Failure> {
    let fd = fd.as_fd();
    let mut wanted = mode(stat);
    if needs_owner(stat, born) || !fresh {
        let owner = Some(Uid::from_raw(stat.st_uid));
        let group = Some(Gid::from_raw(stat.st_gid));
        match rustix::fs::fchown(fd, owner, group) {
            Ok(()) => {}
            // Not ours to give away. The group may be; the privileges would be another's.
            Err(Errno::PERM | Errno::INVAL) => {
                let _ = rustix::fs::fchown(fd, None, group);
                wanted &= !PRIVILEGED;
            }
            Err(error) => return Err(error).doing("cannot set the owner"),
        }
    }
    // After chown, which clears setuid and setgid.
    if !fresh || !is_born_right(stat, born) {
        rustix::fs::fchmod(fd, Mode::from_raw_mode(wanted as _)).doing("cannot set permissions")?;
    }
    rustix::fs::futimens(fd, &times(stat)).doing("cannot set the modification time")
}

/// Owner and times of a symbolic link; it has no permissions of its own.
pub(crate) fn dress_link(
    dir: impl AsFd,
    name: &std::ffi::CStr,
    stat: &Stat,
    born: Born,
) -> Result<(), Failure> {
    let dir = dir.as_fd();
    if needs_owner(stat, born) {
        let owner = Some(Uid::from_raw(stat.st_uid));
        let group = Some(Gid::from_raw(stat.st_gid));
        match rustix::fs::chownat(dir, name, owner, group, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
            Err(error) => return Err(error).doing("cannot set the owner of the link"),
        }
    }
    match rustix::fs::utimensat(dir, name, &times(stat), AtFlags::SYMLINK_NOFOLLOW) {
        // Some file systems keep no times for links.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error).doing("cannot set the modification time of the link"),
    }
}

fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec as _ },
        last_modification: Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ },
    }
}
