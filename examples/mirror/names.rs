//! Names: how they are shown, and which ones are our own temporary files.

use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::Stat;

use crate::attributes::identity;

/// `bytes` as text for a terminal, a log or JSON: as it is where it is printable UTF-8, otherwise
/// quoted with every other byte escaped.
pub(crate) fn show(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => {
            let mut out = String::from("\"");
            for chunk in bytes.utf8_chunks() {
                out.extend(chunk.valid().chars().flat_map(char::escape_debug));
                for byte in chunk.invalid() {
                    // Writing to a string does not fail.
                    let _ = write!(out, "\\x{byte:02x}");
                }
            }
            out.push('"');
            out
        }
    }
}

/// The temporary names of one run: `.mirror-<root>-<run>-<n>.tmp`.
///
/// They do not grow with the name they stand in for, so a file whose name has the longest legal
/// length can be copied too. `root` is the identity of DST, which a run holds locked: whoever
/// holds that lock knows that every such name of another run was left by one that died.
#[derive(Debug)]
pub(crate) struct TempNames {
    root: u64,
    run: u64,
    next: AtomicU64,
}

impl TempNames {
    /// The names of a new run into the directory that `root` describes.
    pub(crate) fn new(root: &Stat) -> Self {
        Self { root: number(root), run: fastrand::u64(..), next: AtomicU64::new(0) }
    }

    /// A name nobody has used.
    pub(crate) fn fresh(&self) -> CString {
        // Relaxed: only the number matters.
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!(".mirror-{:016x}-{:016x}-{n:x}.tmp", self.root, self.run);
        CString::new(name).unwrap_or_default() // it has no NUL
    }

    /// Whether `name` was left behind by an earlier run into this very DST.
    pub(crate) fn is_stale(&self, name: &CStr) -> bool {
        parse(name.to_bytes()).is_some_and(|(root, run)| root == self.root && run != self.run)
    }
}

/// One number for the file a `Stat` describes.
fn number(stat: &Stat) -> u64 {
    let (device, inode) = identity(stat);
    // Mixed, so that they do not cancel out.
    device.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31) ^ inode
}

/// Root and run of a temporary name; `None` if it is somebody else's file.
fn parse(name: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(name).ok()?;
    let mut parts = text.strip_prefix(".mirror-")?.strip_suffix(".tmp")?.split('-');
    let (root, run, n) = (parts.next()?, parts.next()?, parts.next()?);
    let hex = |s: &str| s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if parts.next().is_some() || root.len() != 16 || run.len() != 16 || !(1..=16).contains(&n.len())
    {
        return None;
    }
    if ![root, run, n].into_iter().all(hex) {
        return None;
    }
    Some((u64::from_str_radix(root, 16).ok()?, u64::from_str_radix(run, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_names_stay_and_others_are_escaped() {
        assert_eq!(show(b"plain name"), "plain name");
        assert_eq!(show("größe \u{1F980}".as_bytes()), "größe \u{1F980}");
        assert_eq!(show(b"a\nb"), "\"a\\nb\"");
        assert_eq!(show(b"\xff\"x"), "\"\\xff\\\"x\"");
        assert_eq!(show(b"\x1b[31m"), "\"\\u{1b}[31m\"");
    }

    #[test]
    fn only_an_earlier_run_into_the_same_place_is_stale() {
        let here = rustix::fs::stat("/").unwrap();
        let elsewhere = rustix::fs::stat("/proc").unwrap();
        let (ours, earlier) = (TempNames::new(&here), TempNames::new(&here));
        assert!(ours.is_stale(&earlier.fresh()));
        assert!(!ours.is_stale(&ours.fresh()));
        assert!(!ours.is_stale(&TempNames::new(&elsewhere).fresh()));
    }

    #[test]
    fn names_that_look_alike_are_left_alone() {
        let stale = TempNames::new(&rustix::fs::stat("/").unwrap()).fresh();
        assert!(parse(stale.to_bytes()).is_some());
        for name in [
            ".mirror-.tmp",
            ".mirror-0-0-0.tmp",
            ".mirror-0123456789abcdef-0123456789abcdef-.tmp",
            ".mirror-0123456789abcdef-0123456789abcdeg-0.tmp",
            ".mirror-0123456789abcdef-0123456789ABCDEF-0.tmp",
            ".mirror-0123456789abcdef-0123456789abcdef-0-0.tmp",
            ".mirror-0123456789abcdef-0123456789abcdef-0.tmp2",
            "mirror-0123456789abcdef-0123456789abcdef-0.tmp",
        ] {
            assert_eq!(parse(name.as_bytes()), None, "{name}");
        }
    }
}
