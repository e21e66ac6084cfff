//! Comparing an entry of SRC with its copy: what is there to do?

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::attributes::{mode, same_access, same_mtime, us};
use crate::copy;
use crate::failure::{Doing as _, Failure};
use crate::tree;

/// What there is to do.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Nothing: it was there already.
    Unchanged,
    /// Nothing: a fifo, socket or device.
    Special(FileType),
    /// Nothing: it went away.
    Vanished,
    /// The contents agree; permissions, owner or time do not. The copy, open.
    Dress { file: File, stat: Stat },
    /// The file must be copied. The source, open.
    Write { from: File, stat: Stat, replaces: Option<FileType> },
    /// The link must be made.
    Link { target: CString, stat: Stat, replaces: Option<FileType> },
}

/// The entry `name` on both sides.
#[derive(Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) name: &'a CStr,
    pub(crate) src: BorrowedFd<'a>,
    /// What SRC's directory said it is.
    pub(crate) kind: FileType,
    /// The copy's directory, unless nothing of that name can be in it.
    pub(crate) dst: Option<BorrowedFd<'a>>,
}

impl Pair<'_> {
    /// Finds out what is to do; with `checksum`, contents count and not size and time. `beat` is called while contents are compared.
    pub(crate) fn plan(&self, checksum: bool, beat: copy::Beat<'_>) -> Result<Plan, Failure> {
        let theirs = match self.dst {
            Some(dst) => tree::look(dst, self.name).doing("cannot examine what is in DST")?,
            None => None,
        };
        let replaces = theirs.as_ref().map(|stat| FileType::from_raw_mode(stat.st_mode));
        if replaces.is_none() && self.kind == FileType::RegularFile {
            // The usual case of a first run: the file is opened at once, and looked at afterwards.
            match self.open_source() {
                Ok(Some((from, stat))) => return Ok(Plan::Write { from, stat, replaces }),
                Ok(None) => {} // it is something else by now: look again
                Err(Errno::NOENT) => return Ok(Plan::Vanished),
                Err(error) => return Err(error).doing("cannot open the source"),
            }
        }
        let Some(ours) = tree::look(self.src, self.name).doing("cannot examine the source")? else {
            return Ok(Plan::Vanished);
        };
        match FileType::from_raw_mode(ours.st_mode) {
            FileType::RegularFile => {
                self.plan_file(&ours, theirs.as_ref(), replaces, checksum, beat)
            }
            FileType::Symlink => self.plan_link(ours, theirs.as_ref(), replaces),
            FileType::Directory => {
                Err(Failure::Moved("the source became a directory while it was looked at"))
            }
            special => Ok(Plan::Special(special)),
        }
    }

    fn plan_file(
        &self,
        ours: &Stat,
        theirs: Option<&Stat>,
        replaces: Option<FileType>,
        checksum: bool,
        beat: copy::Beat<'_>,
    ) -> Result<Plan, Failure> {
        let candidate = theirs
            .filter(|theirs| {
                replaces == Some(FileType::RegularFile) && theirs.st_size == ours.st_size
            })
            .filter(|theirs| checksum || same_mtime(ours, theirs));
        let alike = |theirs: &Stat| same_mtime(ours, theirs) && same_access(ours, theirs);
        if let Some(theirs) = candidate {
            if !checksum && alike(theirs) {
                return Ok(Plan::Unchanged);
            }
            if let Some(file) = self.open_copy(theirs) {
                let same = !checksum || {
                    let Some((from, stat)) = self.open_source().doing("cannot open the source")?
                    else {
                        return Err(Failure::Moved(
                            "the source changed its kind while it was looked at",
                        ));
                    };
                    stat.st_size == ours.st_size
                        && copy::same_contents(&from, &file, stat.st_size as u64, beat)?
                };
                if same && alike(theirs) {
                    return Ok(Plan::Unchanged);
                }
                if same {
                    return Ok(Plan::Dress { file, stat: *ours });
                }
            }
        }
        match self.open_source() {
            Ok(Some((from, stat))) => Ok(Plan::Write { from, stat, replaces }),
            Ok(None) => Err(Failure::Moved("the source changed its kind while it was looked at")),
            Err(Errno::NOENT) => Ok(Plan::Vanished),
            Err(error) => Err(error).doing("cannot open the source"),
        }
    }

    fn plan_link(
        &self,
        ours: Stat,
        theirs: Option<&Stat>,
        replaces: Option<FileType>,
    ) -> Result<Plan, Failure> {
        let target = match rustix::fs::readlinkat(self.src, self.name, Vec::new()) {
            Ok(target) => target,
            Err(Errno::NOENT) => return Ok(Plan::Vanished),
            Err(Errno::INVAL) => {
                return Err(Failure::Moved("the source changed its kind while it was looked at"));
            }
            Err(error) => return Err(error).doing("cannot read the link"),
        };
        if let (Some(theirs), Some(dst), Some(FileType::Symlink)) = (theirs, self.dst, replaces) {
            let same = rustix::fs::readlinkat(dst, self.name, Vec::new())
                .is_ok_and(|their| their == target);
            let owned =
                !us().is_root() || (ours.st_uid, ours.st_gid) == (theirs.st_uid, theirs.st_gid);
            if same && owned && same_mtime(&ours, theirs) {
                return Ok(Plan::Unchanged);
            }
        }
        Ok(Plan::Link { target, stat: ours, replaces })
    }

    /// Opens the source and makes sure that it is a regular file; `None` if it is not (any more).
    fn open_source(&self) -> Result<Option<(File, Stat)>, Errno> {
        match tree::open_carefully(self.src, self.name) {
            Ok(from) => {
                let stat = rustix::fs::fstat(from.as_fd())?;
                let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
                Ok(regular.then_some((from, stat)))
            }
            // A link, or a socket or a device without a driver.
            Err(Errno::LOOP | Errno::NXIO | Errno::NODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the copy, to compare it or to change its permissions. `None` if it cannot be used for
    /// that: unreadable, changed meanwhile, or with a second name that would change along.
    fn open_copy(&self, theirs: &Stat) -> Option<File> {
        if theirs.st_nlink > 1 || mode(theirs) & 0o400 == 0 {
            return None;
        }
        let file = tree::open_carefully(self.dst?, self.name).ok()?;
        let stat = rustix::fs::fstat(file.as_fd()).ok()?;
        let same = (stat.st_dev, stat.st_ino) == (theirs.st_dev, theirs.st_ino);
        same.then_some(file)
    }
}
