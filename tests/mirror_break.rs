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
