//! Emptying a directory that SRC does not have, all the way down and never through a link.
//!
//! Nor through a mount: what is mounted in DST is not DST's to lose, and may be SRC itself (a bind
//! mount). A mount point could not be removed in the end anyway. Nor is SRC ever emptied, in case DST
//! has a directory above it mounted somewhere.

use std::ffi::{CStr, CString};
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::os::fd::AsRawFd as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[cfg(any(target_os = "linux", target_os = "android"))]
use rustix::fs::OFlags;
use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat};
use rustix::io::Errno;

use crate::attributes::identity;
use crate::failure::{Doing as _, Failure};
use crate::tree::{self, DIRECTORY};

/// Called after each entry removed; an error ends the work.
pub(crate) type Beat<'a> = &'a mut dyn FnMut() -> Result<(), Failure>;

/// A directory being emptied.
struct Level {
    fd: OwnedFd,
    name: CString,
    subdirectories: Vec<CString>,
}

/// Removes everything inside the directory `name`, but not the directory itself: that is the caller's
/// to do, where it cannot be too late for it. Nothing happens if `name` is gone or no directory; what
/// is gone already is no error, so that another attempt can go on where one stopped. Calls `beat`
/// after each entry removed.
///
/// A mount point and the directory whose identity is `src` are left as they are, which is an error.
pub(crate) fn empty(
    dir: impl AsFd,
    name: &CStr,
    src: (u64, u64),
    beat: Beat<'_>,
) -> Result<(), Failure> {
    let mut levels: Vec<Level> = enter(dir.as_fd(), name, src, beat)?.into_iter().collect();
    while let Some(level) = levels.last_mut() {
        if let Some(below) = level.subdirectories.pop() {
            let next = enter(level.fd.as_fd(), &below, src, beat)?;
            levels.extend(next);
            continue;
        }
        let Some(emptied) = levels.pop() else { break };
        let Some(above) = levels.last() else { break };
        match rustix::fs::unlinkat(&above.fd, &emptied.name, AtFlags::REMOVEDIR) {
            Ok(()) => beat()?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error).doing("cannot remove the directory"),
        }
    }
    Ok(())
}

/// Opens a directory, removes its files, and lists its subdirectories. `None`: it is gone, or none.
fn enter(
    above: BorrowedFd<'_>,
    name: &CStr,
    src: (u64, u64),
    beat: Beat<'_>,
) -> Result<Option<Level>, Failure> {
    let fd = match open(above, name) {
        Ok(fd) => fd,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(error) => return Err(error).doing("cannot open the directory to remove it"),
    };
    let stat = rustix::fs::fstat(&fd).doing("cannot examine the directory to remove it")?;
    if identity(&stat) == src {
        return Err(Failure::InTheWay("this is SRC itself, and is not removed"));
    }
    if tree::is_mount_point(above, fd.as_fd(), &stat)
        .doing("cannot examine the directory to remove it")?
    {
        return Err(Failure::InTheWay("something is mounted here, and is not removed"));
    }
    relax(&fd, &stat);
    let mut subdirectories = Vec::new();
    for entry in Dir::read_from(&fd).doing("cannot list the directory to remove it")? {
        let entry = entry.doing("cannot list the directory to remove it")?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entry.file_type() == FileType::Directory {
            subdirectories.push(name.to_owned());
            continue;
        }
        match rustix::fs::unlinkat(&fd, name, AtFlags::empty()) {
            Ok(()) => beat()?,
            Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => subdirectories.push(name.to_owned()),
            Err(error) => return Err(error).doing("cannot remove"),
        }
    }
    Ok(Some(Level { fd, name: name.to_owned(), subdirectories }))
}

/// Opens a directory that is to be emptied, even if its permissions are against it and it is ours.
fn open(above: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let above = above.as_fd();
    match rustix::fs::openat(above, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            make_ours(above, name)?;
            rustix::fs::openat(above, name, DIRECTORY, Mode::empty())
        }
        other => other,
    }
}

/// Sees to it that entries of the open directory can be removed.
fn relax(fd: &OwnedFd, stat: &Stat) {
    if stat.st_mode & 0o700 != 0o700 {
        // Refused if it is not ours; then removing what is in it tells why it cannot be.
        let _ = rustix::fs::fchmod(fd, Mode::from_raw_mode(((stat.st_mode & 0o7777) | 0o700) as _));
    }
}

/// Gives us the permissions to open a directory whose owner we are. A link that takes its place
/// meanwhile is not followed.
pub(crate) fn make_ours(above: impl AsFd, name: &CStr) -> Result<(), Errno> {
    let above = above.as_fd();
    let stat = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    chmod_itself(above, name)
}

/// Linux changes no permissions without following links, except through the name of an open file.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn chmod_itself(above: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let place = rustix::fs::openat(above, name, DIRECTORY.union(OFlags::PATH), Mode::empty())?;
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    rustix::fs::chmod(path, Mode::RWXU)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn chmod_itself(above: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    rustix::fs::chmodat(above, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The identity of no file.
    const NONE: (u64, u64) = (u64::MAX, u64::MAX);

    #[test]
    fn the_source_is_not_emptied_wherever_it_turns_up() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("top/deep/src")).unwrap();
        fs::write(home.path().join("top/deep/src/keep"), "x").unwrap();
        let src = identity(&rustix::fs::stat(home.path().join("top/deep/src")).unwrap());
        let dir = fs::File::open(home.path()).unwrap();
        let result = empty(&dir, c"top", src, &mut || Ok(()));
        assert!(matches!(result, Err(Failure::InTheWay(_))), "{result:?}");
        assert!(home.path().join("top/deep/src/keep").exists());
    }

    #[test]
    fn a_tree_goes_and_what_its_links_point_to_stays() {
        let home = tempfile::tempdir().unwrap();
        let outside = home.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("keep"), "x").unwrap();
        let top = home.path().join("top");
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        fs::write(top.join("a/file"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, top.join("a/link")).unwrap();
        std::os::unix::fs::symlink("nowhere", top.join("a/b/dangling")).unwrap();
        let dir = fs::File::open(home.path()).unwrap();
        let mut removed = 0;
        let mut beat = || {
            removed += 1;
            Ok(())
        };
        empty(&dir, c"top", NONE, &mut beat).unwrap();
        empty(&dir, c"top", NONE, &mut beat).unwrap();
        assert_eq!(removed, 6, "a, b, c, file, link, dangling, once each");
        assert_eq!(fs::read_dir(&top).unwrap().count(), 0);
        assert!(outside.join("keep").exists());
    }

    #[test]
    fn what_is_no_directory_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("real")).unwrap();
        fs::write(home.path().join("real/keep"), "x").unwrap();
        fs::write(home.path().join("file"), "x").unwrap();
        std::os::unix::fs::symlink("real", home.path().join("link")).unwrap();
        let dir = fs::File::open(home.path()).unwrap();
        for name in [c"link", c"file", c"nothing"] {
            empty(&dir, name, NONE, &mut || panic!("nothing to remove")).unwrap();
        }
        assert!(home.path().join("real/keep").exists() && home.path().join("file").exists());
    }

    #[test]
    fn deep_trees_are_emptied_without_recursion() {
        let home = tempfile::tempdir().unwrap();
        let mut at: OwnedFd = fs::File::open(home.path()).unwrap().into();
        for _ in 0..400 {
            rustix::fs::mkdirat(&at, c"d", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, c"d", DIRECTORY, Mode::empty()).unwrap();
        }
        let dir = fs::File::open(home.path()).unwrap();
        let mut removed = 0;
        empty(&dir, c"d", NONE, &mut || {
            removed += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(removed, 399);
    }

    #[test]
    fn a_beat_that_fails_ends_it() {
        let home = tempfile::tempdir().unwrap();
        let top = home.path().join("top");
        fs::create_dir(&top).unwrap();
        for i in 0..10 {
            fs::write(top.join(i.to_string()), "x").unwrap();
        }
        let dir = fs::File::open(home.path()).unwrap();
        let result = empty(&dir, c"top", NONE, &mut || Err(Failure::Fenced));
        assert!(matches!(result, Err(Failure::Fenced)));
        assert_eq!(fs::read_dir(&top).unwrap().count(), 9);
    }
}
