//! Counts the locked instructions of each operation: a child process runs it once, and is stepped
//! through one machine instruction at a time.
//!
//! A locked instruction is one with a `lock` prefix, or an exchange with memory. What is counted is
//! what ran, so neither inlining nor a cold path in the assembly blurs it.
//!
//! `cargo test --release --test promise_locked -- --nocapture` prints the table, peers included. A
//! binary of its own without libtest, since it forks; x86-64 Linux only, elsewhere it says so.

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri), not(tenure_sanitize)))]
fn main() {
    stepped::main();
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", not(miri), not(tenure_sanitize))))]
fn main() {
    println!("NOT RUN: needs ptrace on x86-64 Linux");
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri), not(tenure_sanitize)))]
mod stepped {
    use std::arch::asm;
    use std::hint::black_box;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use tenure::promise::{Eventual, Promise, promise, ready};

    fn pair() -> (Promise<u64, u64>, Eventual<u64, u64>) {
        promise()
    }

    fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// A row: its name, the operation, and how many locked instructions it may take.
    type Row = (&'static str, fn(), Option<u32>);

    const ROWS: [Row; 18] = [
        (
            "create + set + take",
            || {
                let (p, mut e) = pair();
                p.set(black_box(1)).unwrap();
                assert!(matches!(e.try_get(), Some(Ok(1))));
            },
            Some(1),
        ),
        (
            "create + set + get",
            || {
                let (p, e) = pair();
                p.set(black_box(1)).unwrap();
                assert_eq!(e.get().ok(), Some(1));
            },
            Some(1),
        ),
        (
            "create + set error + take",
            || {
                let (p, mut e) = pair();
                p.set_error(black_box(1)).unwrap();
                assert!(matches!(e.try_get(), Some(Err(_))));
            },
            Some(1),
        ),
        (
            "create + drop writer + see",
            || {
                let (p, mut e) = pair();
                drop(p);
                assert!(matches!(e.try_get(), Some(Err(_))));
            },
            Some(1),
        ),
        (
            "create + drop reader + see",
            || {
                let (p, e) = pair();
                drop(e);
                assert!(p.set(black_box(1)).is_err());
            },
            Some(1),
        ),
        (
            "create + poll + set + poll",
            || {
                let (p, mut e) = pair();
                assert!(poll(&mut e).is_pending());
                p.set(black_box(1)).unwrap();
                assert!(matches!(poll(&mut e), Poll::Ready(Ok(1))));
            },
            Some(2),
        ),
        (
            "create + callback + set",
            || {
                let (p, e) = pair();
                e.on_complete(|outcome| drop(black_box(outcome)));
                p.set(black_box(1)).unwrap();
            },
            Some(1),
        ),
        (
            "create + set + callback",
            || {
                let (p, e) = pair();
                p.set(black_box(1)).unwrap();
                e.on_complete(|outcome| drop(black_box(outcome)));
            },
            Some(1),
        ),
        (
            "create + map + callback + set",
            || {
                let (p, e) = pair();
                e.map(|n| n + 1).on_complete(|outcome| drop(black_box(outcome)));
                p.set(black_box(1)).unwrap();
            },
            // Two attachments; the cancel node is put in (1), shared (1), and goes (2).
            Some(6),
        ),
        (
            "create + 3 maps + callback + set",
            || {
                let (p, e) = pair();
                e.map(|n| n + 1)
                    .map(|n| n + 1)
                    .map(|n| n + 1)
                    .on_complete(|outcome| drop(black_box(outcome)));
                p.set(black_box(1)).unwrap();
            },
            // Two attachments more: the node moves along.
            Some(8),
        ),
        (
            "ready + take",
            || assert!(matches!(ready::<_, ()>(black_box(1)).try_get(), Some(Ok(1)))),
            Some(0),
        ),
        (
            "oneshot: create + set + take",
            || {
                let (s, r) = oneshot::channel::<u64>();
                s.send(black_box(1)).unwrap();
                assert_eq!(r.try_recv().ok(), Some(1));
            },
            None,
        ),
        (
            "oneshot: create + drop writer + see",
            || {
                let (s, r) = oneshot::channel::<u64>();
                drop(s);
                assert!(r.try_recv().is_err());
            },
            None,
        ),
        (
            "tokio: create + set + take",
            || {
                let (s, mut r) = tokio::sync::oneshot::channel::<u64>();
                s.send(black_box(1)).unwrap();
                assert_eq!(r.try_recv().ok(), Some(1));
            },
            None,
        ),
        (
            "tokio: create + poll + set + poll",
            || {
                let (s, mut r) = tokio::sync::oneshot::channel::<u64>();
                assert!(poll(&mut r).is_pending());
                s.send(black_box(1)).unwrap();
                assert!(poll(&mut r).is_ready());
            },
            None,
        ),
        (
            "futures: create + set + take",
            || {
                let (s, mut r) = futures::channel::oneshot::channel::<u64>();
                s.send(black_box(1)).unwrap();
                assert!(matches!(r.try_recv(), Ok(Some(1))));
            },
            None,
        ),
        (
            "crossfire: create + set + take",
            || {
                let (s, mut r) = crossfire::oneshot::oneshot::<u64>();
                s.send(black_box(1));
                assert_eq!(r.try_recv().ok(), Some(1));
            },
            None,
        ),
        (
            "crossfire: create + poll + set + poll",
            || {
                let (s, mut r) = crossfire::oneshot::oneshot::<u64>();
                assert!(poll(&mut r).is_pending());
                s.send(black_box(1));
                assert!(poll(&mut r).is_ready());
            },
            None,
        ),
    ];

    const BREAKPOINT: u8 = 0xcc;

    /// Whether the instruction that begins with these bytes is a locked one.
    fn is_locked(code: &[u8]) -> bool {
        let mut at = 0;
        loop {
            match code.get(at) {
                Some(0xf0) => return true,
                // The other legacy prefixes, and REX.
                Some(
                    0x66
                    | 0x67
                    | 0xf2
                    | 0xf3
                    | 0x2e
                    | 0x36
                    | 0x3e
                    | 0x26
                    | 0x64
                    | 0x65
                    | 0x40..=0x4f,
                ) => at += 1,
                // XCHG with memory locks by itself; with a register (mod 3) it does not.
                Some(0x86 | 0x87) => return code.get(at + 1).is_some_and(|modrm| modrm >> 6 != 3),
                _ => return false,
            }
        }
    }

    /// Instructions and locked instructions of one run of `operation`; `None` if nothing may be traced.
    fn count(operation: fn()) -> Option<(u32, u32)> {
        // SAFETY: this process has one thread.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork");
        if child == 0 {
            // SAFETY: asks to be traced, and stops.
            unsafe {
                if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                    libc::_exit(2);
                }
                libc::raise(libc::SIGSTOP);
            }
            // What is made at first use is there, and the pool is filled.
            (0..100).for_each(|_| operation());
            // SAFETY: two breakpoints, which the tracer waits for.
            unsafe {
                asm!("int3");
                operation();
                asm!("int3");
                libc::_exit(0);
            }
        }
        let wait = || {
            let mut status = 0;
            // SAFETY: a place for the answer.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            libc::WIFSTOPPED(status).then(|| libc::WSTOPSIG(status))
        };
        let go = |how| {
            // SAFETY: a stopped child of ours.
            assert_eq!(unsafe { libc::ptrace(how, child, 0, 0) }, 0, "ptrace");
            wait()
        };
        if wait() != Some(libc::SIGSTOP) {
            return None;
        }
        assert_eq!(go(libc::PTRACE_CONT), Some(libc::SIGTRAP), "the operation failed");
        let (mut all, mut locked) = (0, 0);
        loop {
            // SAFETY: a stopped child of ours, and a place for its registers; reading its text.
            let code = unsafe {
                let mut registers: libc::user_regs_struct = std::mem::zeroed();
                assert_eq!(libc::ptrace(libc::PTRACE_GETREGS, child, 0, &raw mut registers), 0);
                let [low, high] = [0, 8].map(|offset| {
                    libc::ptrace(libc::PTRACE_PEEKTEXT, child, registers.rip + offset, 0)
                });
                (i128::from(high) << 64 | i128::from(low as u64)).to_le_bytes()
            };
            if code[0] == BREAKPOINT {
                break;
            }
            all += 1;
            locked += u32::from(is_locked(&code));
            assert_eq!(go(libc::PTRACE_SINGLESTEP), Some(libc::SIGTRAP), "the operation failed");
        }
        // SAFETY: our child.
        unsafe { libc::kill(child, libc::SIGKILL) };
        let mut status = 0;
        // SAFETY: a place for the answer.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        Some((all, locked))
    }

    pub(crate) fn main() {
        assert!(is_locked(&[0xf0, 0x0f, 0xb1, 0x0f]) && is_locked(&[0x48, 0x87, 0x07]));
        assert!(is_locked(&[0x66, 0xf0, 0x0f, 0xc1, 0x07]) && !is_locked(&[0x87, 0xc3]));
        println!("{:38} {:>7} {:>12}", "operation", "locked", "instructions");
        let mut wrong = Vec::new();
        for (name, operation, expected) in ROWS {
            let Some((all, locked)) = count(operation) else {
                println!("NOT RUN: tracing is not allowed here");
                return;
            };
            println!("{name:38} {locked:7} {all:12}");
            if expected.is_some_and(|expected| locked > expected) {
                wrong.push(name);
            }
        }
        assert!(wrong.is_empty(), "more locked instructions than promised: {wrong:?}");
    }
}
