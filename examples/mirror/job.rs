//! The job: one entry of SRC, brought to its place in DST. This is what an attempt does.
//!
//! An attempt may be the first or the tenth, and any of its predecessors may still be alive. It owes
//! them nothing: it begins by fencing them, works on a temporary file of its own, and touches the
//! directory in DST only inside the fence.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, FileType, OFlags, Stat};
use rustix::io::Errno;

use crate::attributes;
use crate::chaos::{Fate, Stage};
use crate::compare::{Pair, Plan};
use crate::copy;
use crate::delete;
use crate::failure::{Doing as _, Failure};
use crate::fence::{Fence, Opening};
use crate::run::Run;
use crate::tree::{Copy, Directory};
use crate::turn::Turn;

/// One entry and what is to become of it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) directory: Arc<Directory>,
    pub(crate) name: CString,
    pub(crate) work: Work,
    pub(crate) fence: Fence,
    /// The number of the latest attempt.
    attempts: AtomicU32,
}

/// What is to become of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Make DST's entry like SRC's.
    Copy {
        /// What SRC's directory said it is. It may be something else by now.
        kind: FileType,
        /// DST may have something of that name.
        occupied: bool,
    },
    /// Remove DST's entry, and what is below it.
    Remove,
}

/// How a job ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// A file arrived, with so many bytes.
    Copied(u64),
    /// A symbolic link arrived.
    Linked,
    /// Only permissions, owner or times had to be changed.
    Updated,
    /// It was there already.
    Unchanged,
    /// A fifo, socket or device; not for us.
    Special(FileType),
    /// It went away before we got to it.
    Vanished,
    /// It was removed, with all below it.
    Removed,
}

impl Job {
    /// A job that nobody has tried yet.
    pub(crate) fn new(directory: Arc<Directory>, name: CString, work: Work) -> Self {
        Self { directory, name, work, fence: Fence::default(), attempts: AtomicU32::new(0) }
    }

    /// Whether an attempt may still be running somewhere, now that the job is settled.
    pub(crate) fn may_have_late_attempts(&self, done: bool) -> bool {
        // Relaxed: the attempt that settled a job stored its own number, or a later one did.
        !done || self.attempts.load(Ordering::Relaxed) > 1
    }

    /// Path from SRC.
    pub(crate) fn path(&self) -> Vec<u8> {
        self.directory.path_of(&self.name)
    }

    /// One attempt at the job. May be called again while an earlier call hangs.
    pub(crate) fn attempt(&self, run: &Run, turn: &Turn<'_>) -> Result<Done, Failure> {
        self.attempts.fetch_max(turn.number(), Ordering::Relaxed);
        let is_current = || turn.is_current();
        let fate = run.chaos.fate(|| self.path(), turn.number(), &is_current);
        let copy = match &self.directory.dst {
            Some(copy) if !run.options.dry_run => copy,
            // Nothing is changed, so there is nothing to fence.
            copy => return self.rehearse(run, copy.as_ref(), turn),
        };
        if turn.number() > 1
            && let Opening::Done(done) = self.fence.take_over(turn, copy.fd.as_fd())?
        {
            fate.at_the_end()?;
            return Ok(done);
        }
        let result = Attempt { job: self, run, turn, copy, fate }.run();
        if result.is_err() {
            self.fence.give_up(turn, copy.fd.as_fd());
        }
        result
    }

    /// Both sides of the entry.
    fn pair<'a>(&'a self, kind: FileType, occupied: bool, copy: Option<&'a Copy>) -> Pair<'a> {
        let dst = copy.filter(|_| occupied).map(|copy| copy.fd.as_fd());
        Pair { name: &self.name, src: self.directory.src.as_fd(), kind, dst }
    }

    /// What an attempt would do.
    fn rehearse(&self, run: &Run, copy: Option<&Copy>, turn: &Turn<'_>) -> Result<Done, Failure> {
        let Work::Copy { kind, occupied } = self.work else {
            run.report.would("remove", &self.path());
            return Ok(Done::Removed);
        };
        let (verb, done) = match self
            .pair(kind, occupied, copy)
            .plan(run.options.checksum, &mut |_| turn.beat())?
        {
            Plan::Unchanged => return Ok(Done::Unchanged),
            Plan::Special(kind) => return Ok(Done::Special(kind)),
            Plan::Vanished => return Ok(Done::Vanished),
            Plan::Dress { .. } => ("update", Done::Updated),
            Plan::Write { stat, .. } => ("copy", Done::Copied(stat.st_size as u64)),
            Plan::Link { .. } => ("link", Done::Linked),
        };
        run.report.would(verb, &self.path());
        Ok(done)
    }
}

/// One attempt.
struct Attempt<'a> {
    job: &'a Job,
    run: &'a Run,
    turn: &'a Turn<'a>,
    copy: &'a Copy,
    fate: Fate<'a>,
}

impl Attempt<'_> {
    fn run(&self) -> Result<Done, Failure> {
        self.fate.at(Stage::Start)?;
        let done = match self.job.work {
            Work::Remove => self.remove()?,
            Work::Copy { kind, occupied } => self.bring(kind, occupied)?,
        };
        self.fate.at_the_end()?;
        Ok(done)
    }

    /// Makes DST's entry like SRC's.
    fn bring(&self, kind: FileType, occupied: bool) -> Result<Done, Failure> {
        let pair = self.job.pair(kind, occupied, Some(self.copy));
        match pair.plan(self.run.options.checksum, &mut |_| self.turn.beat())? {
            Plan::Unchanged => Ok(Done::Unchanged),
            Plan::Special(kind) => Ok(Done::Special(kind)),
            Plan::Vanished => Ok(Done::Vanished),
            Plan::Dress { file, stat } => {
                self.fate.at(Stage::Publishing)?;
                let dress = || attributes::dress(&file, &stat, self.copy.born, false);
                self.job.fence.change(self.turn, dress)?;
                self.fate.at(Stage::Published)?;
                Ok(Done::Updated)
            }
            Plan::Write { from, stat, replaces } => self.write(&from, &stat, replaces),
            Plan::Link { target, stat, replaces } => self.link(&target, &stat, replaces),
        }
    }

    /// Copies the open file into a temporary one, and publishes that.
    fn write(&self, from: &File, stat: &Stat, replaces: Option<FileType>) -> Result<Done, Failure> {
        const CREATE: OFlags = OFlags::WRONLY
            .union(OFlags::CREATE)
            .union(OFlags::EXCL)
            .union(OFlags::NOFOLLOW)
            .union(OFlags::CLOEXEC);
        let dir = self.copy.fd.as_fd();
        let born = self.copy.born;
        let mode = attributes::birth_mode(stat, born);
        let make = |temp: &CStr| {
            rustix::fs::openat(dir, temp, CREATE, mode).doing("cannot create a temporary file")
        };
        let to = File::from(self.job.fence.begin(self.turn, dir, &self.run.temps, make)?);
        let size = stat.st_size as u64;
        // Half of the chunks before fate may strike: what it leaves behind is a file cut short.
        let mut left = size / copy::CHUNK / 2;
        if left == 0 {
            self.fate.at(Stage::Copying)?;
        }
        let sparse = (stat.st_blocks as u64).saturating_mul(512) < size;
        copy::contents(from, &to, size, sparse, &mut |bytes| {
            self.run.report.moved.add(bytes);
            left = left.saturating_sub(1);
            if left == 0 {
                self.fate.at(Stage::Copying)?;
            }
            self.turn.beat()
        })?;
        attributes::dress(&to, stat, born, true)?;
        let done = self.publish(replaces, Done::Copied(size))?;
        if stat.st_nlink > 1 {
            self.run.report.hard_links.add(1);
        }
        Ok(done)
    }

    /// Makes the link under a temporary name, and publishes that.
    fn link(
        &self,
        target: &CStr,
        stat: &Stat,
        replaces: Option<FileType>,
    ) -> Result<Done, Failure> {
        let dir = self.copy.fd.as_fd();
        self.job.fence.begin(self.turn, dir, &self.run.temps, |temp| {
            rustix::fs::symlinkat(target, dir, temp).doing("cannot create a temporary link")?;
            // By its name, hence in here: later the name might be a successor's.
            attributes::dress_link(dir, temp, stat, self.copy.born)
        })?;
        self.fate.at(Stage::Copying)?;
        self.publish(replaces, Done::Linked)
    }

    fn publish(&self, replaces: Option<FileType>, done: Done) -> Result<Done, Failure> {
        self.fate.at(Stage::Publishing)?;
        if replaces == Some(FileType::Directory) {
            self.make_way()?;
        }
        self.job.fence.publish(self.turn, self.copy.fd.as_fd(), &self.job.name, done)?;
        self.fate.at(Stage::Published)?;
        Ok(done)
    }

    /// Removes a directory that stands where the file belongs: with what is in it only if asked to.
    fn make_way(&self) -> Result<(), Failure> {
        let dir = self.copy.fd.as_fd();
        if self.run.options.delete {
            delete::empty(dir, &self.job.name, self.run.src, &mut || self.removed_one())?;
        }
        self.job.fence.change(self.turn, || {
            match rustix::fs::unlinkat(dir, &self.job.name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
                Err(Errno::NOTEMPTY | Errno::EXIST) => Err(Failure::InTheWay(
                    "DST has a directory here that is not empty (--delete would remove it)",
                )),
                Err(error) => Err(error).doing("cannot remove the directory in the way"),
            }
        })
    }

    /// Removes what SRC does not have. The entry itself goes inside the fence; what is below it may
    /// be removed by several attempts at once.
    fn remove(&self) -> Result<Done, Failure> {
        let dir = self.copy.fd.as_fd();
        let name = &self.job.name;
        let unlink = |flags| {
            let mut is_directory = false;
            self.job.fence.change(self.turn, || match rustix::fs::unlinkat(dir, name, flags) {
                Ok(()) => {
                    self.run.report.removed_one();
                    Ok(())
                }
                Err(Errno::NOENT) => Ok(()),
                Err(error) if flags.is_empty() && says_directory(error) => {
                    is_directory = true;
                    Ok(())
                }
                Err(error) => Err(error).doing("cannot remove"),
            })?;
            Ok(is_directory)
        };
        if unlink(AtFlags::empty())? {
            self.fate.at(Stage::Copying)?;
            delete::empty(dir, name, self.run.src, &mut || self.removed_one())?;
            self.fate.at(Stage::Publishing)?;
            unlink(AtFlags::REMOVEDIR)?;
        }
        self.fate.at(Stage::Published)?;
        Ok(Done::Removed)
    }

    fn removed_one(&self) -> Result<(), Failure> {
        self.run.report.removed_one();
        self.turn.beat()
    }
}

/// What unlinking says to a directory: EISDIR on Linux, EPERM elsewhere.
fn says_directory(error: Errno) -> bool {
    error == Errno::ISDIR || (error == Errno::PERM && !cfg!(target_os = "linux"))
}
