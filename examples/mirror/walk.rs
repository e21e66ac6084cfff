//! The walk: goes through SRC, makes the directories of DST, and hands out one job per entry.
//!
//! One thread walks, depth first. In memory are the names of one directory (of DST, if it was there
//! before), the subdirectories still to come of those above it, and the window of jobs in hand: a
//! million files take no more than a thousand.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat};
use rustix::io::Errno;

use crate::attributes::identity;
use crate::delete;
use crate::failure::{Doing as _, Failure};
use crate::job::{Job, Work};
use crate::run::Run;
use crate::tree::{self, Copy, DIRECTORY, Directory};

/// A directory whose files are handed out, and whose subdirectories are not all walked.
struct Level {
    directory: Arc<Directory>,
    subdirectories: Vec<Subdirectory>,
}

struct Subdirectory {
    name: CString,
    /// What DST has of that name.
    theirs: Option<FileType>,
}

/// What DST has in a directory.
type Theirs = HashMap<CString, FileType>;

/// Walks a tree.
pub(crate) struct Walk<'a> {
    run: &'a Run,
    /// The top of DST, which may turn up in SRC through a mount.
    dst: Option<(u64, u64)>,
    submit: &'a mut dyn FnMut(Job),
}

impl<'a> Walk<'a> {
    /// Every entry found goes to `submit`.
    pub(crate) fn new(run: &'a Run, dst: Option<&Stat>, submit: &'a mut dyn FnMut(Job)) -> Self {
        Self { run, dst: dst.map(identity), submit }
    }

    /// Walks everything below `root`, until the run is stopped.
    pub(crate) fn walk(&mut self, root: Arc<Directory>) {
        let mut levels = vec![self.enter(root)];
        while let Some(level) = levels.last_mut() {
            if !self.run.is_stopping()
                && let Some(next) = level.subdirectories.pop()
            {
                let directory = level.directory.clone();
                match self.open(&directory, next) {
                    Ok(Some(below)) => {
                        let below = self.enter(below);
                        levels.push(below);
                    }
                    Ok(None) => {}
                    Err((name, failure)) => {
                        self.run.directory_failed(&directory.path_of(&name), &failure)
                    }
                }
            } else if let Some(level) = levels.pop() {
                let failed =
                    &mut |path: Vec<u8>, failure| self.run.directory_failed(&path, &failure);
                level.directory.settle_one(failed);
            }
        }
    }

    /// Hands out the files of a directory, and what of DST is to be removed.
    fn enter(&mut self, directory: Arc<Directory>) -> Level {
        self.run.report.directories.add(1);
        let mut subdirectories = Vec::new();
        if let Err(failure) = self.list(&directory, &mut subdirectories) {
            self.run.directory_failed(&directory.path(), &failure);
        }
        Level { directory, subdirectories }
    }

    fn list(
        &mut self,
        directory: &Arc<Directory>,
        subdirectories: &mut Vec<Subdirectory>,
    ) -> Result<(), Failure> {
        let mut theirs = match &directory.dst {
            Some(copy) if copy.existed => list_copy(copy)?,
            _ => Theirs::new(),
        };
        // A directory that cannot be listed to its end says nothing about what is not in it: the
        // early return keeps `--delete` away.
        for entry in Dir::read_from(&directory.src).doing("cannot list the directory")? {
            if self.run.is_stopping() {
                return Ok(());
            }
            let entry = entry.doing("cannot list the directory")?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let their_kind = theirs.remove(name);
            match self.kind(directory, name, entry.file_type()) {
                Ok(FileType::Directory) => {
                    subdirectories.push(Subdirectory { name: name.to_owned(), theirs: their_kind });
                }
                Ok(kind @ (FileType::RegularFile | FileType::Symlink)) => {
                    self.hand_out(
                        directory,
                        name,
                        Work::Copy { kind, occupied: their_kind.is_some() },
                    );
                }
                Ok(special) => self.run.report.special(&directory.path_of(name), special),
                Err(failure) => self.run.directory_failed(&directory.path_of(name), &failure),
            }
        }
        for (name, kind) in theirs {
            if self.run.exclusive && kind != FileType::Directory && self.run.temps.is_stale(&name) {
                self.remove_leftover(directory, &name);
            } else if self.run.options.delete {
                self.hand_out(directory, &name, Work::Remove);
            }
        }
        Ok(())
    }

    /// What an entry is; not every file system says so in its listings.
    fn kind(
        &self,
        directory: &Directory,
        name: &CStr,
        listed: FileType,
    ) -> Result<FileType, Failure> {
        if listed != FileType::Unknown {
            return Ok(listed);
        }
        let stat = rustix::fs::statat(&directory.src, name, AtFlags::SYMLINK_NOFOLLOW)
            .doing("cannot examine the source")?;
        Ok(FileType::from_raw_mode(stat.st_mode))
    }

    fn hand_out(&mut self, directory: &Arc<Directory>, name: &CStr, work: Work) {
        directory.expect_one();
        self.run.report.found.add(1);
        (self.submit)(Job::new(directory.clone(), name.to_owned(), work));
    }

    /// A temporary file that a killed run left. Its lock on DST went with it.
    fn remove_leftover(&self, directory: &Directory, name: &CStr) {
        let Some(copy) = &directory.dst else { return };
        if self.run.options.dry_run {
            return;
        }
        match rustix::fs::unlinkat(&copy.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => {
                let failure = Err::<(), _>(error).doing("cannot remove a leftover temporary file");
                if let Err(failure) = failure {
                    self.run.directory_failed(&directory.path_of(name), &failure);
                }
            }
        }
    }

    /// Opens a subdirectory on both sides, making the copy's if it is missing. `None`: it vanished.
    fn open(
        &self,
        parent: &Arc<Directory>,
        next: Subdirectory,
    ) -> Result<Option<Arc<Directory>>, (CString, Failure)> {
        match self.open_pair(parent, &next) {
            Ok(None) => Ok(None),
            Ok(Some((src, stat, dst))) => {
                Ok(Some(Directory::below(parent, next.name, src, stat, dst)))
            }
            Err(failure) => Err((next.name, failure)),
        }
    }

    fn open_pair(
        &self,
        parent: &Directory,
        next: &Subdirectory,
    ) -> Result<Option<(OwnedFd, Stat, Option<Copy>)>, Failure> {
        let src = match rustix::fs::openat(&parent.src, &next.name, DIRECTORY, Mode::empty()) {
            Ok(src) => src,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(Failure::Moved(
                    "the directory became something else while it was looked at",
                ));
            }
            Err(error) => return Err(error).doing("cannot open the directory"),
        };
        let stat = rustix::fs::fstat(&src).doing("cannot examine the directory")?;
        if self.dst == Some(identity(&stat)) {
            return Err(Failure::InTheWay("this is DST itself"));
        }
        let Some(above) = &parent.dst else { return Ok(Some((src, stat, None))) };
        let Some((fd, existed)) = self.open_copy(above, next)? else {
            return Ok(Some((src, stat, None)));
        };
        if existed {
            self.keep_off_source(parent, above, &fd, identity(&stat))?;
        }
        let dst = Some(Copy::new(fd, existed, !self.run.options.dry_run)?);
        Ok(Some((src, stat, dst)))
    }

    /// What was in DST before may be a part of SRC, through a bind mount: to write there is to write
    /// into SRC. A directory of SRC that the walk has not come to looks like any other, so nothing
    /// that is mounted is written to unless the user says so.
    fn keep_off_source(
        &self,
        parent: &Directory,
        above: &Copy,
        fd: &OwnedFd,
        src: (u64, u64),
    ) -> Result<(), Failure> {
        let stat = rustix::fs::fstat(fd).doing("cannot examine the directory in DST")?;
        let theirs = identity(&stat);
        if theirs == src || parent.is_at_or_below(theirs) {
            return Err(Failure::InTheWay("what DST has here is a directory of SRC"));
        }
        let mounted = tree::is_mount_point(above.fd.as_fd(), fd.as_fd(), &stat)
            .doing("cannot examine the directory in DST")?;
        if mounted && !self.run.options.into_mounts {
            return Err(Failure::InTheWay(
                "something is mounted here in DST; --into-mounts writes into it",
            ));
        }
        Ok(())
    }

    /// The copy's side, and whether it was there before. `None` in a dry run, if it is not there.
    fn open_copy(
        &self,
        above: &Copy,
        next: &Subdirectory,
    ) -> Result<Option<(OwnedFd, bool)>, Failure> {
        let dir = above.fd.as_fd();
        let name = &next.name;
        let mut existed = next.theirs.is_some();
        // What listings do not say must be looked at.
        let theirs = match next.theirs {
            Some(FileType::Unknown) => tree::look(dir, name)
                .doing("cannot examine what is in DST")?
                .map(|stat| FileType::from_raw_mode(stat.st_mode)),
            theirs => theirs,
        };
        if theirs != Some(FileType::Directory) {
            existed = false;
            if self.run.options.dry_run {
                return Ok(None);
            }
            if theirs.is_some() {
                // A file gives way to what SRC has of its name, as it would to another file. A link
                // goes itself; what it points to is not touched.
                match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(error).doing("cannot remove the file in the way"),
                }
            }
            // Nobody but us until it is complete and gets its own permissions.
            match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
                Ok(()) => {}
                Err(Errno::EXIST) => existed = true,
                Err(error) => return Err(error).doing("cannot create the directory"),
            }
        }
        let fd = match rustix::fs::openat(dir, name, DIRECTORY, Mode::empty()) {
            Err(Errno::ACCESS) if !self.run.options.dry_run => {
                delete::make_ours(dir, name).doing("cannot open the directory in DST")?;
                rustix::fs::openat(dir, name, DIRECTORY, Mode::empty())
            }
            other => other,
        }
        .doing("cannot open the directory in DST")?;
        Ok(Some((fd, existed)))
    }
}

fn list_copy(copy: &Copy) -> Result<Theirs, Failure> {
    let mut theirs = Theirs::new();
    for entry in Dir::read_from(&copy.fd).doing("cannot list the directory in DST")? {
        let entry = entry.doing("cannot list the directory in DST")?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            theirs.insert(name.to_owned(), entry.file_type());
        }
    }
    Ok(theirs)
}
