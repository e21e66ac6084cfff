//! Makes a tree that is hard to copy.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};

/// What the tree is to have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Plain files, spread over directories.
    pub(crate) files: u32,
    /// The same seed makes the same tree.
    pub(crate) seed: u64,
    /// Fifos and sockets too.
    pub(crate) specials: bool,
    /// A path longer than `PATH_MAX` too.
    pub(crate) deep: bool,
}

/// Makes the tree in `dir`, which must not exist.
pub(crate) fn make(dir: &Path, plan: &Plan) -> io::Result<()> {
    fs::create_dir(dir)?;
    let mut rng = fastrand::Rng::with_seed(plan.seed);
    let mut directories = Vec::new();
    plain(dir, plan.files, &mut rng, &mut directories)?;
    sizes(&subdir(dir, "sizes")?, &mut rng)?;
    names(&subdir(dir, "names")?)?;
    modes(&subdir(dir, "modes")?)?;
    times(&subdir(dir, "times")?)?;
    links(&subdir(dir, "links")?)?;
    empties(&subdir(dir, "empty")?)?;
    if plan.specials {
        specials(&subdir(dir, "specials")?)?;
    }
    if plan.deep {
        deep(&subdir(dir, "deep")?)?;
    }
    // Last, as everything made inside a directory changes its time.
    for (n, dir) in directories.iter().enumerate() {
        set_mtime(dir, 1_100_000_000 + n as i64, 1000 * n as u32)?;
    }
    set_mtime(dir, 1_000_000_000, 5)
}

fn subdir(dir: &Path, name: &str) -> io::Result<PathBuf> {
    let path = dir.join(name);
    fs::create_dir(&path)?;
    Ok(path)
}

fn set_mtime(path: &Path, seconds: i64, nanos: u32) -> io::Result<()> {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Bytes that differ from file to file and compress badly.
fn noise(rng: &mut fastrand::Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// Many files as they are found anywhere: mostly small, twenty to a directory, nested.
fn plain(
    dir: &Path,
    files: u32,
    rng: &mut fastrand::Rng,
    directories: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let mut at = dir.to_owned();
    for n in 0..files {
        if n % 20 == 0 {
            let above = if n % 100 == 0 || directories.is_empty() {
                dir
            } else {
                &directories[rng.usize(..directories.len())]
            };
            at = above.join(format!("d{n}"));
            fs::create_dir(&at)?;
            directories.push(at.clone());
        }
        let len = match rng.u8(..) {
            0..8 => 0,
            8..200 => rng.usize(1..4096),
            200..250 => rng.usize(4096..40_000),
            _ => rng.usize(40_000..300_000),
        };
        let path = at.join(format!("file {n}.dat"));
        fs::write(&path, noise(rng, len))?;
        set_mtime(&path, 1_200_000_000 + i64::from(n), rng.u32(..1_000_000_000))?;
    }
    Ok(())
}

/// Lengths around the limits of buffers, blocks and chunks; and a file that is mostly hole.
fn sizes(dir: &Path, rng: &mut fastrand::Rng) -> io::Result<()> {
    const K: usize = 1024;
    for len in [
        0,
        1,
        4095,
        4096,
        4097,
        64 * K,
        128 * K - 1,
        128 * K,
        128 * K + 1,
        K * K,
        K * K + 1,
        5 * K * K + 3,
    ] {
        fs::write(dir.join(format!("{len} bytes")), noise(rng, len))?;
    }
    let sparse = File::create(dir.join("sparse"))?;
    sparse.set_len(64 << 20)?;
    sparse.write_all_at(b"in the middle", 32 << 20)?;
    sparse.write_all_at(b"at the end", (64 << 20) - 10)?;
    File::create(dir.join("all hole"))?.set_len(3 << 20)
}

fn names(dir: &Path) -> io::Result<()> {
    let longest = [b'n'; 255];
    let odd: &[&[u8]] = &[
        b"\xff\xfe not UTF-8 \x80",
        b"new\nline",
        b"tab\tand \x1b[31mcolour",
        b" leading and trailing ",
        b"-rf",
        b"--delete",
        b"back\\slash",
        b"quotes\"and'more`",
        b"$(dollar) *?[]{}!#&;|<>",
        "größe".as_bytes(),
        "gro\u{308}ße".as_bytes(),
        "\u{1F980}".as_bytes(),
        b"...",
        b".hidden",
        // Looks like somebody's temporary file, and is not.
        b".mirror-0123456789abcdef-0123456789abcdef-0.tmp",
        &longest,
    ];
    for (n, name) in odd.iter().enumerate() {
        let path = dir.join(OsStr::from_bytes(name));
        fs::write(&path, format!("odd name {n}"))?;
        set_mtime(&path, 1_300_000_000 + n as i64, 7)?;
    }
    for name in [&b"directory \xff"[..], b"directory\nof two lines", b"-d"] {
        let path = dir.join(OsStr::from_bytes(name));
        fs::create_dir(&path)?;
        fs::write(path.join("inside"), "x")?;
    }
    Ok(())
}

fn modes(dir: &Path) -> io::Result<()> {
    for mode in [0o600, 0o644, 0o755, 0o444, 0o555, 0o400, 0o666, 0o777, 0o4755, 0o2755, 0o1644] {
        let path = dir.join(format!("file {mode:04o}"));
        fs::write(&path, format!("{mode:o}"))?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        set_mtime(&path, 1_400_000_000, mode)?;
    }
    for mode in [0o700, 0o755, 0o750, 0o777, 0o1777, 0o2755, 0o555, 0o500] {
        let path = dir.join(format!("directory {mode:04o}"));
        fs::create_dir(&path)?;
        fs::write(path.join("inside"), "x")?;
        set_mtime(&path, 1_500_000_000, mode)?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn times(dir: &Path) -> io::Result<()> {
    for (name, seconds, nanos) in [
        ("epoch", 0, 0),
        ("before the epoch", -1_000_000, 999_999_999),
        ("one nanosecond", 1_600_000_000, 1),
        ("after 2038", 4_000_000_000, 123_456_789),
    ] {
        let file = dir.join(name);
        fs::write(&file, name)?;
        set_mtime(&file, seconds, nanos)?;
        let below = dir.join(format!("directory {name}"));
        fs::create_dir(&below)?;
        fs::write(below.join("inside"), "x")?;
        set_mtime(&below, seconds, nanos)?;
    }
    Ok(())
}

fn links(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("target"), "linked to")?;
    fs::create_dir(dir.join("target directory"))?;
    fs::write(dir.join("target directory/inside"), "x")?;
    let longest = "l".repeat(4000);
    let targets: [(&str, &[u8]); 9] = [
        ("to a file", b"target"),
        ("to a directory", b"target directory"),
        ("up", b".."),
        ("round", b"round"),
        ("dangling", b"nowhere at all"),
        ("absolute", b"/etc/passwd"),
        ("to root", b"/"),
        ("not UTF-8", b"\xff\xfe"),
        ("long", longest.as_bytes()),
    ];
    for (n, (name, target)) in targets.iter().enumerate() {
        let path = dir.join(name);
        symlink(OsStr::from_bytes(target), &path)?;
        set_mtime(&path, 1_700_000_000, n as u32)?;
    }
    fs::hard_link(dir.join("target"), dir.join("hard link"))
}

fn empties(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir.join("a/b/c/d"))?;
    fs::create_dir_all(dir.join("e/f"))?;
    fs::create_dir(dir.join("g"))?;
    for path in ["a/b/c/d", "a/b/c", "a/b", "a", "e/f", "e", "g"] {
        set_mtime(&dir.join(path), 1_234_567_890, 42)?;
    }
    Ok(())
}

fn specials(dir: &Path) -> io::Result<()> {
    #[cfg(not(target_vendor = "apple"))]
    rustix::fs::mknodat(CWD, dir.join("fifo"), rustix::fs::FileType::Fifo, Mode::RWXU, 0)?;
    // A socket's path is short; bind it from inside, under a short name.
    let listener = std::os::unix::net::UnixListener::bind(dir.join("s"));
    drop(listener);
    let mut file = File::create(dir.join("beside them"))?;
    file.write_all(b"a file")
}

/// Directories so deep that no path names the last one.
fn deep(dir: &Path) -> io::Result<()> {
    let name = "d".repeat(200);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: OwnedFd = File::open(dir)?.into();
    for _ in 0..30 {
        rustix::fs::mkdirat(&at, &name, Mode::from_raw_mode(0o755))?;
        at = rustix::fs::openat(&at, &name, flags, Mode::empty())?;
    }
    let file = rustix::fs::openat(
        &at,
        "at the bottom",
        OFlags::CREATE | OFlags::WRONLY,
        Mode::from_raw_mode(0o644),
    )?;
    File::from(file).write_all(b"hello from below")
}
