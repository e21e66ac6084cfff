//! Attacks on `examples/mirror`: what must not be lost, whatever somebody puts in the way.

#![cfg(unix)]

mod mirror_support;

use std::fs;
use std::path::Path;
use std::process::Command;

use mirror_support::mirror;

/// A mirror in a mount namespace of its own, in which `src/<from>` is also to be seen at `dst/<at>`.
/// `None`: this system does not let us.
#[cfg(target_os = "linux")]
fn with_bind_mount(home: &Path, from: &str, at: &str, options: &[&str]) -> Option<(i32, String)> {
    let allowed = Command::new("unshare").args(["-m", "true"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no mount namespaces here");
        return None;
    }
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c"])
        .arg("mount --bind \"$1\" \"$2\" || exit 77; shift 2; exec \"$@\"")
        .arg("sh")
        .arg(home.join(from))
        .arg(home.join("dst").join(at))
        .arg(mirror())
        .args([home.join("src"), home.join("dst")])
        .args(options)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(77) => {
            eprintln!("skipped: no bind mounts here");
            None
        }
        code => Some((code.unwrap(), said)),
    }
}

#[test]
#[cfg(target_os = "linux")]
fn delete_does_not_empty_what_is_mounted_in_the_destination() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::create_dir_all(at("src/sub")).unwrap();
    fs::create_dir_all(at("dst/old/mounted")).unwrap();
    fs::write(at("src/sub/precious"), "x").unwrap();
    let options = ["--delete", "--attempts", "1"];
    let Some((code, said)) = with_bind_mount(home.path(), "src", "old/mounted", &options) else {
        return;
    };
    assert_eq!(fs::read(at("src/sub/precious")).unwrap(), b"x", "{said}");
    assert_eq!(fs::read(at("dst/sub/precious")).unwrap(), b"x", "{said}");
    assert_eq!(code, 1, "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_source_that_is_mounted_in_the_destination_is_not_written_to() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::create_dir_all(at("src/sub")).unwrap();
    fs::create_dir_all(at("src/other")).unwrap();
    fs::create_dir_all(at("dst/sub")).unwrap();
    fs::write(at("src/sub/file"), "x").unwrap();
    fs::write(at("src/other/precious"), "x").unwrap();
    let options = ["--delete", "--attempts", "1"];
    let Some((code, said)) = with_bind_mount(home.path(), "src", "sub", &options) else { return };
    assert!(at("src/other/precious").exists() && at("src/sub/file").exists(), "{said}");
    assert!(!at("src/file").exists(), "{said}");
    assert!(at("dst/other/precious").exists(), "{said}");
    assert_eq!(code, 1, "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_source_below_what_is_mounted_in_the_destination_is_not_removed() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::create_dir_all(at("src/up")).unwrap();
    fs::create_dir_all(at("dst/up")).unwrap();
    fs::write(at("src/precious"), "x").unwrap();
    fs::write(at("src/up/file"), "x").unwrap();
    let options = ["--delete", "--attempts", "1"];
    // dst/up shows the directory that SRC is in, and SRC's `up` has no `src`.
    let Some((code, said)) = with_bind_mount(home.path(), "", "up", &options) else { return };
    assert!(at("src/precious").exists() && at("src/up/file").exists(), "{said}");
    assert_eq!(code, 1, "{said}");
}

/// Another directory of SRC than the one that stands at the same place, which the walk has not come to.
#[test]
#[cfg(target_os = "linux")]
fn another_part_of_the_source_that_is_mounted_in_the_destination_is_not_written_to() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    for dir in ["src/sub", "src/other", "dst/sub"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    fs::write(at("src/sub/file"), "x").unwrap();
    fs::write(at("src/other/precious"), "x").unwrap();
    let options = ["--delete", "--attempts", "1"];
    let Some((code, said)) = with_bind_mount(home.path(), "src/other", "sub", &options) else {
        return;
    };
    assert!(at("src/other/precious").exists(), "{said}");
    assert!(!at("src/other/file").exists(), "{said}");
    assert!(said.contains("--into-mounts"), "{said}");
    assert_eq!(code, 1, "{said}");
}

/// Whoever knows what is mounted there may have it written to.
#[test]
#[cfg(target_os = "linux")]
fn what_is_mounted_in_the_destination_is_written_to_on_request() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    for dir in ["src/sub", "elsewhere", "dst/sub"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    fs::write(at("src/sub/file"), "x").unwrap();
    let options = ["--into-mounts", "--attempts", "1"];
    let Some((code, said)) = with_bind_mount(home.path(), "elsewhere", "sub", &options) else {
        return;
    };
    assert!(at("elsewhere/file").exists(), "{said}");
    assert_eq!(code, 0, "{said}");
}

/// A summary that cannot be written is a failure; one that nobody reads is not.
#[test]
#[cfg(target_os = "linux")]
fn a_summary_that_does_not_fit_on_the_device_fails_the_run() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join("src")).unwrap();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (src, dst) = (home.path().join("src"), home.path().join("dst"));
    let mut command = mirror_support::command(&src, &dst, &["--json"]);
    let status = command.stdout(full).status().unwrap();
    assert_eq!(status.code(), Some(1));
}
