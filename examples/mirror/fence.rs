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
        // The gate settles the order of attempts, and is what `close` shuts. The lease is asked as well:
        // an attempt may have lost it without a successor having been here yet.
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tenure::clock::ManualClock;
    use tenure::retry::RetryPolicy;
    use tenure::runtime::{JobCtx, Runtime};

    use super::*;
    use crate::run::Run;

    const TIMEOUT: Duration = Duration::from_secs(1);
    const SOON: Duration = Duration::from_millis(50);

    /// One destination, `file`, in a directory of its own, and a runtime whose clock we move.
    struct Stage {
        home: tempfile::TempDir,
        dir: fs::File,
        fence: Fence,
        names: TempNames,
        run: Arc<Run>,
    }

    impl Stage {
        fn new() -> Arc<Self> {
            let home = tempfile::tempdir().unwrap();
            let dir = fs::File::open(home.path()).unwrap();
            let names = TempNames::new(&rustix::fs::fstat(&dir).unwrap());
            Arc::new(Self { home, dir, fence: Fence::default(), names, run: Run::of_a_test() })
        }

        /// Makes the temporary file of an attempt, with `contents`.
        fn begin(&self, turn: &Turn<'_>, contents: &str) -> Result<(), Failure> {
            self.fence.begin(turn, self.dir.as_fd(), &self.names, |temp| {
                let path = self.home.path().join(temp.to_str().unwrap());
                fs::File::create(path)
                    .and_then(|mut f| f.write_all(contents.as_bytes()))
                    .doing("create")
            })
        }

        fn publish(&self, turn: &Turn<'_>) -> Result<(), Failure> {
            self.fence.publish(turn, self.dir.as_fd(), c"file", Done::Copied(0))
        }

        fn contents(&self) -> String {
            fs::read_to_string(self.home.path().join("file")).unwrap()
        }

        fn entries(&self) -> usize {
            fs::read_dir(self.home.path()).unwrap().count()
        }
    }

    /// The first attempt, which hangs until it is woken.
    struct Zombie {
        go: Sender<()>,
        /// Whether it ended without a panic.
        ended: Receiver<bool>,
    }

    impl Zombie {
        fn wake(&self) {
            self.go.send(()).unwrap();
        }

        fn wait(&self) {
            assert_eq!(self.ended.recv(), Ok(true), "the first attempt says why");
        }
    }

    /// Runs `first` as the first attempt of a job and, when its time is up, `second` as the second.
    /// Checks what is left: a file that says `outcome`, and nothing else.
    #[track_caller]
    fn two_attempts(
        outcome: &str,
        first: impl Fn(&Stage, &Turn<'_>, &Receiver<()>) + Send + Sync + 'static,
        second: impl Fn(&Stage, &Turn<'_>, &Zombie) + Send + Sync + 'static,
    ) {
        let stage = Stage::new();
        let clock = Arc::new(ManualClock::new());
        let runtime = Runtime::builder()
            .workers(1)
            .attempt_timeout(TIMEOUT)
            .clock(clock.clone())
            .build()
            .unwrap();
        let once_more = RetryPolicy::immediate().max_attempts(2).build().unwrap();
        let (go, gone) = channel();
        let (end, ended) = channel();
        let (begin, begun) = channel();
        let (gone, zombie) = (Mutex::new(gone), Mutex::new(Zombie { go, ended }));
        let on = stage.clone();
        let attempt = move |ctx: &JobCtx| -> Result<(), Failure> {
            let turn = Turn::new(ctx, &on.run);
            let _ = begin.send(turn.number());
            if turn.number() == 1 {
                let gone = gone.lock().unwrap();
                let first = catch_unwind(AssertUnwindSafe(|| first(&on, &turn, &gone)));
                let _ = end.send(first.is_ok());
            } else {
                second(&on, &turn, &zombie.lock().unwrap());
            }
            Ok(())
        };
        let handle = runtime.job(attempt).retry(once_more).submit().unwrap();
        assert_eq!(begun.recv().unwrap(), 1);
        while begun.recv_timeout(SOON) != Ok(2) {
            clock.advance(TIMEOUT);
        }
        handle.get().unwrap();
        assert_eq!((stage.contents().as_str(), stage.entries()), (outcome, 1));
    }

    #[track_caller]
    fn assert_fenced(result: Result<(), Failure>) {
        assert!(matches!(result, Err(Failure::Fenced)), "{result:?}");
    }

    #[test]
    fn a_zombie_does_not_replace_what_its_successor_has_published() {
        two_attempts(
            "new",
            |stage, turn, wake| {
                stage.begin(turn, "old").unwrap();
                wake.recv().unwrap();
                assert_fenced(stage.publish(turn));
            },
            |stage, turn, zombie| {
                stage.fence.take_over(turn, stage.dir.as_fd()).unwrap();
                stage.begin(turn, "new").unwrap();
                stage.publish(turn).unwrap();
                zombie.wake();
                zombie.wait();
            },
        );
    }

    #[test]
    fn a_zombie_does_not_publish_what_its_successor_is_still_writing() {
        two_attempts(
            "new",
            |stage, turn, wake| {
                stage.begin(turn, "old").unwrap();
                wake.recv().unwrap();
                assert_fenced(stage.publish(turn));
                stage.fence.give_up(turn, stage.dir.as_fd());
            },
            |stage, turn, zombie| {
                stage.fence.take_over(turn, stage.dir.as_fd()).unwrap();
                stage.begin(turn, "new").unwrap();
                zombie.wake();
                zombie.wait();
                assert_eq!(stage.entries(), 1, "a temporary file, and no other");
                stage.publish(turn).unwrap();
            },
        );
    }

    #[test]
    fn a_zombie_does_not_even_make_a_temporary_file() {
        two_attempts(
            "new",
            |stage, turn, wake| {
                wake.recv().unwrap();
                assert_fenced(stage.begin(turn, "old"));
                assert_fenced(stage.fence.change(turn, || panic!("must not run")));
            },
            |stage, turn, zombie| {
                stage.fence.take_over(turn, stage.dir.as_fd()).unwrap();
                stage.begin(turn, "new").unwrap();
                stage.publish(turn).unwrap();
                zombie.wake();
                zombie.wait();
            },
        );
    }

    #[test]
    fn an_attempt_without_a_lease_does_nothing_even_before_its_successor_has_come() {
        two_attempts(
            "new",
            |stage, turn, wake| {
                stage.begin(turn, "old").unwrap();
                wake.recv().unwrap();
                assert_fenced(stage.publish(turn));
            },
            |stage, turn, zombie| {
                zombie.wake();
                zombie.wait();
                stage.fence.take_over(turn, stage.dir.as_fd()).unwrap();
                stage.begin(turn, "new").unwrap();
                stage.publish(turn).unwrap();
            },
        );
    }

    #[test]
    fn who_is_inside_already_goes_first_and_is_replaced() {
        two_attempts(
            "new",
            // It passed the check, and hangs before what it checked for: the race that a check
            // followed by a rename would lose.
            |stage, turn, wake| {
                let change = stage.fence.change(turn, || {
                    wake.recv().unwrap();
                    fs::write(stage.home.path().join("file"), "old").doing("write")
                });
                change.unwrap();
            },
            |stage, turn, zombie| {
                zombie.wake();
                stage.fence.take_over(turn, stage.dir.as_fd()).unwrap();
                stage.begin(turn, "new").unwrap();
                stage.publish(turn).unwrap();
                zombie.wait();
            },
        );
    }

    #[test]
    fn what_a_predecessor_published_without_saying_so_is_done() {
        two_attempts(
            "old",
            |stage, turn, wake| {
                stage.begin(turn, "old").unwrap();
                stage.publish(turn).unwrap();
                wake.recv().unwrap();
            },
            |stage, turn, zombie| {
                let opening = stage.fence.take_over(turn, stage.dir.as_fd()).unwrap();
                assert!(matches!(opening, Opening::Done(Done::Copied(0))));
                zombie.wake();
            },
        );
    }

    #[test]
    fn after_closing_nobody_enters_and_closing_waits_only_so_long() {
        let stage = Stage::new();
        let runtime = Runtime::builder().workers(1).build().unwrap();
        let (inside, entered) = channel();
        let (go, gone) = channel::<()>();
        let gone = Mutex::new(gone);
        let on = stage.clone();
        let attempt = move |ctx: &JobCtx| -> Result<(), Failure> {
            let turn = Turn::new(ctx, &on.run);
            on.begin(&turn, "half")?;
            on.fence.change(&turn, || {
                let _ = inside.send(());
                let _ = gone.lock().unwrap().recv();
                Ok(())
            })?;
            let _ = inside.send(());
            let _ = gone.lock().unwrap().recv();
            assert_fenced(on.publish(&turn));
            assert_fenced(on.fence.change(&turn, || panic!("must not run")));
            Ok(())
        };
        let handle = runtime.job(attempt).retry(RetryPolicy::never()).submit().unwrap();
        entered.recv().unwrap();
        assert_eq!(stage.fence.close(Some(stage.dir.as_fd()), SOON), Err(Unclosed::Busy));
        go.send(()).unwrap();
        entered.recv().unwrap();
        assert_eq!(stage.entries(), 1);
        assert_eq!(stage.fence.close(Some(stage.dir.as_fd()), SOON), Ok(()));
        assert_eq!(stage.entries(), 0, "the temporary file is gone");
        go.send(()).unwrap();
        handle.get().unwrap();
        assert_eq!(stage.entries(), 0);
    }
}
