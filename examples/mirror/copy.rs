//! Copying the bytes of one open file into another.
//!
//! Small files: one read, one write, through a buffer the thread keeps. Larger ones: chunk by chunk,
//! inside the kernel where the system can, with a heartbeat after each chunk; holes stay holes.
//! What is copied is the length the file had when it was opened. A file that grows meanwhile gets
//! that prefix (and its old time, so that the next run sees the difference); one that shrinks is an
//! error, and tried again.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustix::io::Errno;

use crate::failure::{Doing as _, Failure};

/// Bytes between two heartbeats.
pub(crate) const CHUNK: u64 = 1 << 20;
/// Up to here a file is read at once: measured on ext4, the in-kernel copy costs more for these.
const SMALL: u64 = 128 << 10;

/// Called after each chunk with its bytes; an error ends the copy.
pub(crate) type Beat<'a> = &'a mut dyn FnMut(u64) -> Result<(), Failure>;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` with this thread's buffer, at least `SMALL` bytes of it.
fn with_buffer<R>(work: impl FnOnce(&mut [u8]) -> R) -> R {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            buffer.resize(SMALL as usize, 0);
        }
        work(buffer)
    })
}

/// Copies the first `len` bytes of `from` into the empty file `to`. `sparse`: `from` has holes.
pub(crate) fn contents(
    from: &File,
    to: &File,
    len: u64,
    sparse: bool,
    beat: Beat<'_>,
) -> Result<(), Failure> {
    if len == 0 {
        Ok(())
    } else if sparse {
        data_only(from, to, len, beat)
    } else if len <= SMALL {
        buffered(from, to, 0, len)?;
        beat(len)
    } else {
        range(from, to, 0, len, beat)
    }
}

/// Copies the stretches that hold data and leaves holes between them.
fn data_only(from: &File, to: &File, len: u64, beat: Beat<'_>) -> Result<(), Failure> {
    let mut at = 0;
    while at < len {
        let start = match seek_data(from, at) {
            Ok(Some(start)) if start < len => start,
            Ok(_) => break, // a hole up to the end
            // A file system that cannot say where the holes are: all of it is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return range(from, to, at, len, beat);
            }
            Err(error) => return Err(error).doing("cannot find the data in the source"),
        };
        let end = seek_hole(from, start).doing("cannot find the holes in the source")?.min(len);
        range(from, to, start, end, beat)?;
        at = end;
    }
    to.set_len(len).doing("cannot set the length")
}

#[cfg(any(
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd",
    target_vendor = "apple"
))]
fn seek_data(from: &File, at: u64) -> Result<Option<u64>, Errno> {
    match rustix::fs::seek(from, rustix::fs::SeekFrom::Data(at)) {
        Ok(start) => Ok(Some(start)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(any(
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd",
    target_vendor = "apple"
))]
fn seek_hole(from: &File, at: u64) -> Result<u64, Errno> {
    rustix::fs::seek(from, rustix::fs::SeekFrom::Hole(at))
}

#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd",
    target_vendor = "apple"
)))]
fn seek_data(_: &File, _: u64) -> Result<Option<u64>, Errno> {
    Err(Errno::INVAL)
}

#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd",
    target_vendor = "apple"
)))]
fn seek_hole(_: &File, _: u64) -> Result<u64, Errno> {
    Err(Errno::INVAL)
}

/// Copies `at..end` in chunks, inside the kernel as long as it agrees to.
fn range(from: &File, to: &File, mut at: u64, end: u64, beat: Beat<'_>) -> Result<(), Failure> {
    let mut in_kernel = true;
    while at < end {
        let want = CHUNK.min(end - at);
        let mut got = 0;
        if in_kernel {
            match kernel_copy(from, to, at, want) {
                // The end of the file, or a file system that pretends to copy: reading will tell.
                Ok(0) => in_kernel = false,
                Ok(n) => got = n,
                Err(Errno::INTR) => continue,
                Err(
                    Errno::XDEV
                    | Errno::NOSYS
                    | Errno::INVAL
                    | Errno::OPNOTSUPP
                    | Errno::PERM
                    | Errno::IO,
                ) => {
                    in_kernel = false;
                }
                Err(error) => return Err(error).doing("cannot write"),
            }
        }
        if got == 0 {
            got = want.min(SMALL);
            buffered(from, to, at, got)?;
        }
        at += got;
        beat(got)?;
    }
    Ok(())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn kernel_copy(from: &File, to: &File, at: u64, len: u64) -> Result<u64, Errno> {
    let (mut off_in, mut off_out) = (at, at);
    let n =
        rustix::fs::copy_file_range(from, Some(&mut off_in), to, Some(&mut off_out), len as usize)?;
    Ok(n as u64)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn kernel_copy(_: &File, _: &File, _: u64, _: u64) -> Result<u64, Errno> {
    Err(Errno::NOSYS)
}

/// Copies `len <= SMALL` bytes at `at` through the buffer.
fn buffered(from: &File, to: &File, at: u64, len: u64) -> Result<(), Failure> {
    with_buffer(|buffer| {
        let piece = &mut buffer[..len as usize];
        read_exactly(from, piece, at)?;
        to.write_all_at(piece, at).doing("cannot write")
    })
}

fn read_exactly(from: &File, piece: &mut [u8], at: u64) -> Result<(), Failure> {
    from.read_exact_at(piece, at).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Failure::Moved("the source shrank while it was read"),
        _ => Failure::Io { doing: "cannot read", source: error },
    })
}

/// Whether the first `len` bytes of both are the same.
pub(crate) fn same_contents(a: &File, b: &File, len: u64, beat: Beat<'_>) -> Result<bool, Failure> {
    let mut at = 0;
    while at < len {
        let piece = (SMALL / 2).min(len - at);
        let same = with_buffer(|buffer| {
            let (left, right) = buffer[..2 * piece as usize].split_at_mut(piece as usize);
            read_exactly(a, left, at)?;
            // Whatever keeps the copy from being read, or makes it too short: it is not the same.
            Ok(b.read_exact_at(right, at).is_ok() && left == right)
        })?;
        if !same {
            return Ok(false);
        }
        at += piece;
        beat(0)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn read(mut file: &File) -> Vec<u8> {
        use std::io::Seek as _;
        file.rewind().unwrap();
        let mut out = Vec::new();
        file.read_to_end(&mut out).unwrap();
        out
    }

    fn pattern(len: u64) -> Vec<u8> {
        (0..len).map(|i| (i % 251) as u8).collect()
    }

    #[test]
    fn every_length_around_the_limits_arrives() {
        for len in [0, 1, 4095, SMALL - 1, SMALL, SMALL + 1, CHUNK - 1, CHUNK, 3 * CHUNK + 17] {
            let (from, to) = (file(&pattern(len)), file(b""));
            let mut beaten = 0;
            contents(&from, &to, len, false, &mut |n| {
                beaten += n;
                Ok(())
            })
            .unwrap();
            assert_eq!(beaten, len);
            assert!(read(&to) == pattern(len), "{len} bytes");
        }
    }

    #[test]
    fn large_files_beat_once_a_chunk() {
        let (from, to) = (file(&pattern(5 * CHUNK)), file(b""));
        let mut beats = 0;
        contents(&from, &to, 5 * CHUNK, false, &mut |n| {
            assert!(n <= CHUNK);
            beats += 1;
            Ok(())
        })
        .unwrap();
        assert!(beats >= 5);
    }

    #[test]
    fn a_beat_that_fails_ends_the_copy() {
        let (from, to) = (file(&pattern(5 * CHUNK)), file(b""));
        let mut beats = 0;
        let result = contents(&from, &to, 5 * CHUNK, false, &mut |_| {
            beats += 1;
            if beats == 2 { Err(Failure::Cancelled) } else { Ok(()) }
        });
        assert!(matches!(result, Err(Failure::Cancelled)));
        assert_eq!(beats, 2);
    }

    #[test]
    fn holes_stay_holes_and_the_bytes_agree() {
        use std::os::unix::fs::MetadataExt as _;
        let from = file(b"");
        let len = 64 << 20;
        from.set_len(len).unwrap();
        from.write_all_at(b"middle", 32 << 20).unwrap();
        from.write_all_at(b"end", len - 3).unwrap();
        let to = file(b"");
        contents(&from, &to, len, true, &mut |_| Ok(())).unwrap();
        assert!(same_contents(&from, &to, len, &mut |_| Ok(())).unwrap());
        let stat = to.metadata().unwrap();
        assert_eq!(stat.len(), len);
        assert!(stat.blocks() * 512 <= from.metadata().unwrap().blocks() * 512 + (1 << 20));
    }

    #[test]
    fn a_source_that_shrank_is_an_error() {
        for len in [10, SMALL + 10, 2 * CHUNK] {
            let (from, to) = (file(&pattern(len - 5)), file(b""));
            let result = contents(&from, &to, len, false, &mut |_| Ok(()));
            assert!(matches!(result, Err(Failure::Moved(_))), "{len}: {result:?}");
        }
    }

    #[test]
    fn one_different_byte_is_found_and_a_short_copy_too() {
        let len = 3 * SMALL + 5;
        let from = file(&pattern(len));
        let mut other = pattern(len);
        assert!(same_contents(&from, &file(&other), len, &mut |_| Ok(())).unwrap());
        *other.last_mut().unwrap() ^= 1;
        assert!(!same_contents(&from, &file(&other), len, &mut |_| Ok(())).unwrap());
        assert!(!same_contents(&from, &file(&pattern(len - 1)), len, &mut |_| Ok(())).unwrap());
    }
}
