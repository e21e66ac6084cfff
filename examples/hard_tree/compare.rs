//! Compares two trees closely: names, types, contents, link targets, permissions, owners, times.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// What differs, one line each; empty if nothing does. Access times do not count.
pub(crate) fn differences(a: &Path, b: &Path, specials: bool) -> Vec<String> {
    let mut found = Vec::new();
    let open =
        |path: &Path| rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
    match (open(a), open(b)) {
        (Ok(fa), Ok(fb)) => {
            attributes(
                ".",
                &rustix::fs::fstat(&fa).unwrap(),
                &rustix::fs::fstat(&fb).unwrap(),
                &mut found,
            );
            directory("", &fa, &fb, specials, &mut found);
        }
        (a, b) => found.push(format!("cannot open: {:?}, {:?}", a.err(), b.err())),
    }
    found
}

fn list(dir: &OwnedFd) -> BTreeMap<CString, Stat> {
    let mut entries = BTreeMap::new();
    for entry in Dir::read_from(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
            entries.insert(name.to_owned(), stat);
        }
    }
    entries
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn is_special(stat: &Stat) -> bool {
    !matches!(kind(stat), FileType::RegularFile | FileType::Directory | FileType::Symlink)
}

fn directory(path: &str, a: &OwnedFd, b: &OwnedFd, specials: bool, found: &mut Vec<String>) {
    let (mut ours, mut theirs) = (list(a), list(b));
    if !specials {
        ours.retain(|_, stat| !is_special(stat));
        theirs.retain(|_, stat| !is_special(stat));
    }
    for (name, stat) in &ours {
        let path = format!("{path}/{}", name.to_bytes().escape_ascii());
        match theirs.remove(name) {
            None => found.push(format!("{path}: missing")),
            Some(their) if kind(stat) != kind(&their) => {
                found.push(format!("{path}: {:?} became {:?}", kind(stat), kind(&their)));
            }
            Some(their) => {
                attributes(&path, stat, &their, found);
                entry(&path, name, stat, &their, a, b, specials, found);
            }
        }
    }
    found.extend(
        theirs.keys().map(|name| format!("{path}/{}: too much", name.to_bytes().escape_ascii())),
    );
}

#[expect(clippy::too_many_arguments, reason = "two of everything")]
fn entry(
    path: &str,
    name: &CStr,
    ours: &Stat,
    theirs: &Stat,
    a: &OwnedFd,
    b: &OwnedFd,
    specials: bool,
    found: &mut Vec<String>,
) {
    let open = |dir: &OwnedFd| rustix::fs::openat(dir, name, OPEN, Mode::empty()).unwrap();
    match kind(ours) {
        FileType::Directory => directory(path, &open(a), &open(b), specials, found),
        FileType::Symlink => {
            let read =
                |dir: &OwnedFd| rustix::fs::readlinkat(dir.as_fd(), name, Vec::new()).unwrap();
            if read(a) != read(b) {
                found.push(format!("{path}: {:?} became {:?}", read(a), read(b)));
            }
        }
        FileType::RegularFile if ours.st_size != theirs.st_size => {
            found.push(format!("{path}: {} bytes became {}", ours.st_size, theirs.st_size));
        }
        FileType::RegularFile if !same(open(a).into(), open(b).into()) => {
            found.push(format!("{path}: contents differ"));
        }
        _ => {}
    }
}

fn same(mut a: File, mut b: File) -> bool {
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let n = a.read(&mut left).unwrap();
        if n == 0 {
            return b.read(&mut right).unwrap() == 0;
        }
        if b.read_exact(&mut right[..n]).is_err() || left[..n] != right[..n] {
            return false;
        }
    }
}

fn attributes(path: &str, a: &Stat, b: &Stat, found: &mut Vec<String>) {
    if a.st_mode & 0o7777 != b.st_mode & 0o7777 {
        found.push(format!(
            "{path}: mode {:o} became {:o}",
            a.st_mode & 0o7777,
            b.st_mode & 0o7777
        ));
    }
    if (a.st_mtime, a.st_mtime_nsec) != (b.st_mtime, b.st_mtime_nsec) {
        found.push(format!(
            "{path}: modified {}.{:09} became {}.{:09}",
            a.st_mtime, a.st_mtime_nsec, b.st_mtime, b.st_mtime_nsec
        ));
    }
    if (a.st_uid, a.st_gid) != (b.st_uid, b.st_gid) {
        found.push(format!(
            "{path}: owner {}:{} became {}:{}",
            a.st_uid, a.st_gid, b.st_uid, b.st_gid
        ));
    }
}
