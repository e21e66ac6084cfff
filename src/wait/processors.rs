//! Whether anybody else can run while this thread spins.

/// Whether this process runs on one processor, or under a quota of one or less, so that spinning
/// only keeps the owner from running. Looked up once, without allocating. Never so in a model.
#[cfg(any(tenure_loom, tenure_shuttle))]
pub(crate) fn only_one() -> bool {
    false
}

#[cfg(not(any(tenure_loom, tenure_shuttle)))]
pub(crate) use system::only_one;

#[cfg(not(any(tenure_loom, tenure_shuttle)))]
mod system {
    use crate::sync::atomic::{AtomicU32, Ordering};

    /// Not looked up yet.
    const UNKNOWN: u32 = 0;
    const ONE: u32 = 1;
    const MORE: u32 = 2;

    /// Whether this process runs on one processor, or under a quota of one or less, so that spinning
    /// only keeps the owner from running. Looked up once, without allocating.
    pub(crate) fn only_one() -> bool {
        static KNOWN: AtomicU32 = AtomicU32::new(UNKNOWN);
        // ORDERING: Relaxed: the value is all there is; two threads may look it up at once.
        let mut known = KNOWN.load(Ordering::Relaxed);
        if known == UNKNOWN {
            known = if look_up() { ONE } else { MORE };
            // ORDERING: Relaxed: as above.
            KNOWN.store(known, Ordering::Relaxed);
        }
        known == ONE
    }

    #[cfg(target_os = "linux")]
    fn look_up() -> bool {
        // SAFETY: all zeroes are the empty set.
        let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
        // The main thread's: this one may be pinned while others are not.
        // SAFETY: a place for the answer that lives in this frame, and its size.
        let known = unsafe {
            libc::sched_getaffinity(libc::getpid(), size_of::<libc::cpu_set_t>(), &raw mut set) == 0
        };
        // SAFETY: reads the set that was filled above.
        if known && unsafe { libc::CPU_COUNT(&set) } == 1 {
            return true;
        }
        // The second version of control groups has one file, the first two. As a container sees them.
        let mut text = [0_u8; 64];
        if let Some(limit) = read(c"/sys/fs/cgroup/cpu.max", &mut text) {
            return quota_is_one(limit);
        }
        let mut period = [0_u8; 64];
        read(c"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &mut text)
            .zip(read(c"/sys/fs/cgroup/cpu/cpu.cfs_period_us", &mut period))
            .is_some_and(|(quota, period)| is_one(number(quota), number(period)))
    }

    /// A short file, as far as the buffer reaches.
    #[cfg(target_os = "linux")]
    fn read<'b>(path: &core::ffi::CStr, into: &'b mut [u8]) -> Option<&'b [u8]> {
        // SAFETY: a C string that outlives the call.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if file < 0 {
            return None;
        }
        // SAFETY: the buffer is borrowed for the call and has the length that is passed.
        let read = unsafe { libc::read(file, into.as_mut_ptr().cast(), into.len()) };
        // SAFETY: the descriptor was opened above and is closed once.
        unsafe { libc::close(file) };
        into.get(..usize::try_from(read).ok()?)
    }

    /// `cpu.max` holds "quota period", both in microseconds, or "max period".
    #[cfg(target_os = "linux")]
    fn quota_is_one(text: &[u8]) -> bool {
        let mut parts = text.split(u8::is_ascii_whitespace).map(number);
        is_one(parts.next().flatten(), parts.next().flatten())
    }

    #[cfg(target_os = "linux")]
    fn is_one(quota: Option<u64>, period: Option<u64>) -> bool {
        quota.zip(period).is_some_and(|(quota, period)| quota <= period)
    }

    /// A number, and a line's end after it; `None` for "max", for -1, and for none.
    #[cfg(target_os = "linux")]
    fn number(text: &[u8]) -> Option<u64> {
        let text = text.trim_ascii();
        (!text.is_empty()).then_some(())?;
        text.iter().try_fold(0_u64, |sum, digit| {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
            sum.checked_mul(10)?.checked_add(u64::from(digit))
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn look_up() -> bool {
        std::thread::available_parallelism().is_ok_and(|count| count.get() == 1)
    }

    #[cfg(all(test, target_os = "linux"))]
    mod tests {
        use super::{is_one, number, quota_is_one};

        #[test]
        fn a_quota_of_one_processor_or_less_is_one() {
            assert!(quota_is_one(b"100000 100000\n"));
            assert!(quota_is_one(b"50000 100000\n"));
            assert!(!quota_is_one(b"200000 100000\n"));
            assert!(!quota_is_one(b"max 100000\n"));
            assert!(!quota_is_one(b""));
            assert!(!quota_is_one(b"99999999999999999999999 1"));
            assert!(is_one(number(b"50000\n"), number(b"100000\n")));
            assert!(!is_one(number(b"-1\n"), number(b"100000\n")), "no quota");
        }
    }
}
