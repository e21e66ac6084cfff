//! The fence around one destination: who may change the name, and who comes too late.
//!
//! A check followed by a rename is a race: an attempt may pass the check, hang, lose its lease, and
//! rename over the file that its successor has published meanwhile. So there is no check *followed
//! by* a rename here. Whatever changes the directory (making the temporary file, renaming it, removing
//! it) happens while holding the destination's slot, which one attempt at a time does; and who holds it
//! goes on only if the [`FenceGate`] admits its token, as no greater one has been here:
//!
//! - a successor's first visit raises the token, so from then on its predecessors are refused;
//! - a predecessor that holds the slot has the successor wait, and its file is replaced afterwards;
//! - [`Fence::close`] ends it for all: once it returns `true`, nobody will touch the name any more,
//!   so the report that follows it stays true.
//!
//! What remains: a rename that hangs inside the kernel holds the slot. Its successors wait in
//! vain, are taken over themselves, and the file is reported as failed, with the warning that the
//! rename may still happen. No process can take back a system call.

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use tenure::lease::{FenceGate, FencingToken};
use tenure::lock::AdaptiveMutex;

use crate::failure::{Doing as _, Failure};
use crate::job::Done;
use crate::names::TempNames;
use crate::turn::Turn;

/// Guards one destination: a name in a directory of DST.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    /// The greatest token that was here. Asked only by who holds the slot.
    gate: FenceGate,
    slot: AdaptiveMutex<Slot>,
}

/// What stands at a destination.
#[derive(Debug, Default)]
struct Slot {
    /// The temporary file in work. The attempt that made it is the only one that writes into it.
    temp: Option<CString>,
    /// How the work ended, if an attempt did all of it.
    done: Option<Done>,
}

/// What an attempt finds when it takes over.
#[derive(Debug)]
pub(crate) enum Opening {
    /// There is work to do.
    Todo,
    /// A predecessor had done it all and could not say so.
    Done(Done),
}

impl Fence {
    /// Runs `work` while holding the slot, unless a newer attempt was here or the job is settled.
    fn enter<R>(
        &self,
        turn: &Turn<'_>,
        work: impl FnOnce(&mut Slot) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut slot = self.slot.lock();
        // The gate settles the order of attempts. Its owner may be late all the same: taken over, and
        // the successor not here yet, or the job given up. Then it is better to do nothing, too.
        if self.gate.admit(turn.token()).is_err() || !turn.is_current() {
            return Err(Failure::Fenced);
        }
        work(&mut slot)
    }

    /// Fences all earlier attempts, and removes what they left unfinished.
    pub(crate) fn take_over(
        &self,
        turn: &Turn<'_>,
        dir: BorrowedFd<'_>,
    ) -> Result<Opening, Failure> {
        self.enter(turn, |slot| {
            slot.clear(dir)?;
            Ok(slot.done.map_or(Opening::Todo, Opening::Done))
        })
    }

    /// Makes a temporary file with `make`, under a name that the slot remembers.
    pub(crate) fn begin<R>(
        &self,
        turn: &Turn<'_>,
        dir: BorrowedFd<'_>,
        names: &TempNames,
        make: impl FnOnce(&CStr) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.enter(turn, |slot| {
            slot.clear(dir)?;
            let name = names.fresh();
            let made = make(&name);
            // Also after an error: it may have been made in part.
            slot.temp = Some(name);
            made
        })
    }

    /// Renames the temporary file to `name`: from one moment to the next, all of it is there.
    pub(crate) fn publish(
        &self,
        turn: &Turn<'_>,
        dir: BorrowedFd<'_>,
        name: &CStr,
        done: Done,
    ) -> Result<(), Failure> {
        self.enter(turn, |slot| {
            let Some(temp) = &slot.temp else { return Err(Failure::Fenced) };
            rustix::fs::renameat(dir, temp, dir, name).doing("cannot put the file in place")?;
            slot.temp = None;
            slot.done = Some(done);
            Ok(())
        })
    }

    /// Does something to the destination in place, fenced like everything else.
    pub(crate) fn change(
        &self,
        turn: &Turn<'_>,
        work: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.enter(turn, |_| work())
    }

    /// Removes the temporary file of an attempt that gives up. Too late if it was taken over: then
    /// the successor has done so.
    pub(crate) fn give_up(&self, turn: &Turn<'_>, dir: BorrowedFd<'_>) {
        // What cannot be removed now is tried again by the successor, and at last by `close`.
        let _ = self.enter(turn, |slot| slot.clear(dir));
    }

    /// Ends it: no attempt changes anything here any more, and no temporary file is left.
    ///
    /// # Errors
    ///
    /// If an attempt has been inside the kernel for all of `patience`, or the temporary file cannot
    /// be removed: what then may still happen, or be left.
    pub(crate) fn close(
        &self,
        dir: Option<BorrowedFd<'_>>,
        patience: Duration,
    ) -> Result<(), Unclosed> {
        let Some(mut slot) = self.slot.try_lock_for(patience) else { return Err(Unclosed::Busy) };
        if let Some(last) = FencingToken::from_bytes([u8::MAX; 8]) {
            // No attempt has a greater one, so this one keeps all of them out.
            let _ = self.gate.admit(last);
        }
        match dir {
            Some(dir) => slot.clear(dir).map_err(|_| Unclosed::Leftover),
            None => Ok(()),
        }
    }
}

/// Why a fence could not be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unclosed {
    /// An attempt sits inside the kernel; its change may yet come.
    Busy,
    /// The temporary file could not be removed.
    Leftover,
}

impl Slot {
    /// Removes the temporary file, if there is one.
    fn clear(&mut self, dir: BorrowedFd<'_>) -> Result<(), Failure> {
        let Some(temp) = &self.temp else { return Ok(()) };
        match rustix::fs::unlinkat(dir, temp, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {
                self.temp = None;
                Ok(())
            }
            Err(error) => Err(error).doing("cannot remove the temporary file"),
        }
    }
}
