//! `mirror` from end to end: what arrives, what is left alone, what is refused.

#![cfg(unix)]

mod mirror_support;

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use std::process::Command;

use mirror_support::{Home, command, finish, json, make, run};

#[test]
fn a_hard_tree_arrives_and_a_second_run_has_nothing_to_do() {
    let home = Home::with_tree(300, 1);
    let first = json(&home.src(), &home.dst(), &[]);
    home.assert_same();
    let files = first["copied"].as_u64().unwrap() + first["links"].as_u64().unwrap();
    assert!(files > 300, "{first}");
    assert_eq!((&first["failed"], &first["skipped"]), (&0.into(), &0.into()));

    let again = json(&home.src(), &home.dst(), &[]);
    home.assert_same();
    assert_eq!(again["skipped"], files);
    assert_eq!(
        (&again["copied"], &again["links"], &again["updated"]),
        (&0.into(), &0.into(), &0.into())
    );
}

#[test]
fn an_empty_directory_arrives() {
    let home = Home::new();
    fs::create_dir(home.src()).unwrap();
    let said = json(&home.src(), &home.dst(), &[]);
    assert_eq!((&said["copied"], &said["directories"]), (&0.into(), &1.into()));
    home.assert_same();
}

#[test]
fn paths_longer_than_the_system_takes_arrive() {
    let home = Home::new();
    let plan = make::Plan { files: 1, seed: 0, specials: false, deep: true };
    make::make(&home.src(), &plan).unwrap();
    json(&home.src(), &home.dst(), &["--checksum"]);
    let found = mirror_support::compare::differences(&home.src(), &home.dst(), true);
    assert!(found.is_empty(), "{found:#?}");
    // Nor is removing them a problem.
    fs::rename(home.src().join("deep"), home.at("elsewhere")).unwrap();
    let said = json(&home.src(), &home.dst(), &["--delete"]);
    assert_eq!(said["deleted"], 32);
    assert!(!home.dst().join("deep").exists());
}

#[test]
fn fifos_and_sockets_are_passed_over_and_named() {
    let home = Home::new();
    let plan = make::Plan { files: 1, seed: 0, specials: true, deep: false };
    make::make(&home.src(), &plan).unwrap();
    let said = json(&home.src(), &home.dst(), &[]);
    assert_eq!(said["special"], 2);
    let listed = said["specials"].as_array().unwrap();
    assert!(
        listed.iter().any(|s| s["path"] == "specials/fifo" && s["kind"] == "fifo"),
        "{listed:?}"
    );
    assert!(!home.dst().join("specials/fifo").exists());
    home.assert_same();
    let text = run(&home.src(), &home.dst(), &[]);
    assert!(text.out.contains("skipped fifo: specials/fifo"), "{}", text.out);
}

#[test]
fn what_changed_is_copied_and_nothing_else() {
    let home = Home::with_tree(100, 2);
    json(&home.src(), &home.dst(), &[]);
    home.file("src/new/file", "new");
    home.file("src/sizes/1 bytes", "longer now");
    fs::set_permissions(home.src().join("sizes/4095 bytes"), fs::Permissions::from_mode(0o640))
        .unwrap();
    let said = json(&home.src(), &home.dst(), &[]);
    assert_eq!((&said["copied"], &said["updated"]), (&2.into(), &1.into()), "{said}");
    home.assert_same();
}

#[test]
fn only_checksum_finds_a_change_that_size_and_time_hide() {
    let home = Home::new();
    home.file("src/file", "before");
    json(&home.src(), &home.dst(), &[]);
    let time = fs::metadata(home.src().join("file")).unwrap().modified().unwrap();
    let hidden = fs::File::create(home.dst().join("file")).unwrap();
    std::io::Write::write_all(&mut &hidden, b"beforE").unwrap();
    hidden.set_modified(time).unwrap();

    assert_eq!(json(&home.src(), &home.dst(), &[])["skipped"], 1);
    let said = json(&home.src(), &home.dst(), &["--checksum"]);
    assert_eq!(said["copied"], 1);
    home.assert_same();
    // Same contents with another time: only the time is set.
    hidden.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    fs::File::open(home.dst().join("file"))
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    assert_eq!(json(&home.src(), &home.dst(), &["--checksum"])["updated"], 1);
    home.assert_same();
}

#[test]
fn delete_removes_what_the_source_does_not_have_and_nothing_without_it() {
    let home = Home::with_tree(40, 3);
    json(&home.src(), &home.dst(), &[]);
    home.file("dst/extra/deep/er/file", "x");
    home.file("dst/extra file", "x");
    home.file("outside/keep", "x");
    symlink(home.at("outside"), home.dst().join("extra/link out")).unwrap();
    symlink(home.at("outside"), home.dst().join("link out")).unwrap();

    assert_eq!(json(&home.src(), &home.dst(), &[])["deleted"], 0);
    assert!(home.dst().join("extra/deep/er/file").exists());
    let rehearsed = run(&home.src(), &home.dst(), &["--delete", "--dry-run"]);
    assert!(rehearsed.out.contains("would remove extra file"), "{}", rehearsed.out);
    assert!(home.dst().join("extra file").exists());
    let said = json(&home.src(), &home.dst(), &["--delete"]);
    // extra, deep, er, file, the link in it; the file and the link beside it
    assert_eq!(said["deleted"], 7);
    home.assert_same();
    assert!(home.at("outside/keep").exists());
}

#[test]
fn a_dry_run_says_what_it_would_do_and_does_not_do_it() {
    let home = Home::with_tree(30, 4);
    let said = run(&home.src(), &home.dst(), &["--dry-run"]);
    assert_eq!(said.code(), 0);
    assert!(!home.dst().exists());
    assert!(said.out.contains("would copy sizes/4097 bytes"), "{}", said.out);
    assert!(said.out.contains("would link links/round"), "{}", said.out);
    assert!(said.out.contains("nothing was changed"), "{}", said.out);
    let counted = json(&home.src(), &home.dst(), &["--dry-run"]);
    let real = json(&home.src(), &home.dst(), &[]);
    for what in ["copied", "bytes", "links"] {
        assert_eq!(counted[what], real[what], "{what}");
    }
}

#[test]
fn links_in_the_destination_are_replaced_and_not_written_through() {
    let home = Home::new();
    home.file("src/file", "new");
    home.file("src/directory/inside", "new");
    home.file("outside/file", "old");
    fs::create_dir(home.dst()).unwrap();
    symlink(home.at("outside/file"), home.dst().join("file")).unwrap();
    symlink(home.at("outside"), home.dst().join("directory")).unwrap();
    json(&home.src(), &home.dst(), &[]);
    home.assert_same();
    assert_eq!(fs::read_to_string(home.at("outside/file")).unwrap(), "old");
    assert_eq!(fs::read_dir(home.at("outside")).unwrap().count(), 1);
}

#[test]
fn a_second_name_of_a_file_in_the_destination_keeps_its_contents() {
    let home = Home::new();
    home.file("src/file", "new contents");
    home.file("dst/file", "old contents, longer");
    fs::hard_link(home.dst().join("file"), home.at("second name")).unwrap();
    json(&home.src(), &home.dst(), &[]);
    home.assert_same();
    assert_eq!(fs::read_to_string(home.at("second name")).unwrap(), "old contents, longer");
    // Nor do permissions change through it.
    fs::remove_file(home.at("second name")).unwrap();
    fs::hard_link(home.dst().join("file"), home.at("second name")).unwrap();
    let mode = home.at("second name").metadata().unwrap().mode();
    fs::set_permissions(home.src().join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    json(&home.src(), &home.dst(), &[]);
    home.assert_same();
    assert_eq!(home.at("second name").metadata().unwrap().mode(), mode);
}

#[test]
fn kinds_that_changed_give_way() {
    let home = Home::new();
    home.file("src/was a file/inside", "x");
    home.file("src/was an empty directory", "x");
    home.file("src/was a full directory", "x");
    symlink("target", {
        fs::create_dir_all(home.src()).unwrap();
        home.src().join("was something else")
    })
    .unwrap();
    home.file("dst/was a file", "x");
    fs::create_dir(home.dst().join("was an empty directory")).unwrap();
    home.file("dst/was a full directory/inside/deeper", "precious");
    home.file("dst/was something else", "x");

    let said = run(&home.src(), &home.dst(), &["--json", "--attempts", "2"]);
    assert_eq!(said.code(), 1, "{said:?}");
    let failures = said.json()["failures"].as_array().unwrap().clone();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0]["path"], "was a full directory");
    assert!(failures[0]["error"].as_str().unwrap().contains("--delete"), "{failures:?}");
    assert!(home.dst().join("was a full directory/inside/deeper").exists(), "nothing lost");
    assert!(home.dst().join("was a file/inside").exists(), "everything else arrived");

    assert_eq!(json(&home.src(), &home.dst(), &["--delete"])["deleted"], 2);
    home.assert_same();
}

#[test]
fn a_file_that_keeps_failing_is_listed_with_its_history_and_the_rest_arrives() {
    let home = Home::new();
    home.file("src/good", "x");
    home.file("src/bad", "x");
    home.file("dst/bad/in the way", "x");
    let said = run(&home.src(), &home.dst(), &["--attempts", "3"]);
    assert_eq!(said.code(), 1);
    assert!(
        said.out.contains("failed after 3 attempts: bad: DST has a directory here"),
        "{}",
        said.out
    );
    assert!(said.out.contains("    3. "), "{}", said.out);
    assert!(said.out.contains("failed 1"), "{}", said.out);
    assert_eq!(fs::read_to_string(home.dst().join("good")).unwrap(), "x");
}

#[test]
fn what_a_killed_run_left_is_removed_and_only_that() {
    let home = Home::new();
    home.file("src/a/file", "x");
    // A name that is ours in shape, but that the source has: it is a file like any other.
    home.file("src/a/.mirror-0123456789abcdef-0123456789abcdef-0.tmp", "not temporary");
    json(&home.src(), &home.dst(), &[]);
    let top = fs::metadata(home.dst()).unwrap();
    let root = top.dev().wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31) ^ top.ino();
    let stale = home.dst().join(format!("a/.mirror-{root:016x}-00000000deadbeef-1f.tmp"));
    let foreign = home.dst().join("a/.mirror-1111111111111111-2222222222222222-1.tmp");
    fs::write(&stale, "half").unwrap();
    fs::write(&foreign, "of a run into another place").unwrap();
    json(&home.src(), &home.dst(), &["--dry-run"]);
    assert!(stale.exists());
    json(&home.src(), &home.dst(), &[]);
    assert!(!stale.exists() && foreign.exists());
    fs::remove_file(foreign).unwrap();
    json(&home.src(), &home.dst(), &[]);
    home.assert_same_but_names();
}

impl Home {
    #[track_caller]
    fn assert_same_but_names(&self) {
        let found = mirror_support::compare::differences(&self.src(), &self.dst(), true);
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn nonsense_is_refused_with_code_2_and_nothing_happens() {
    let home = Home::new();
    home.file("src/file", "x");
    home.file("plain", "x");
    symlink(home.src(), home.at("link")).unwrap();
    let (src, dst) = (home.src(), home.dst());
    for (from, to, options, says) in [
        (home.at("none"), dst.clone(), &[][..], "does not exist"),
        (home.at("plain"), dst.clone(), &[], "not a directory"),
        (src.clone(), home.at("plain"), &[], "not a directory"),
        (src.clone(), src.clone(), &[], "same directory"),
        (src.clone(), src.join("sub"), &[], "inside SRC"),
        (src.clone(), home.at("link/sub"), &[], "inside SRC"),
        (src.clone(), home.at(""), &[], "inside DST"),
        (src.clone(), dst.clone(), &["--workers", "0"], "--workers"),
        (src.clone(), dst.clone(), &["--attempts", "0"], "--attempts"),
        (src.clone(), dst.clone(), &["--chaos", "2"], "--chaos"),
        (src.clone(), dst.clone(), &["--chaos", "nan"], "--chaos"),
        (src.clone(), dst.clone(), &["--attempt-timeout", "0s"], "--attempt-timeout"),
        (src.clone(), dst.clone(), &["--what"], "--what"),
    ] {
        let said = run(&from, &to, options);
        assert_eq!(said.code(), 2, "{from:?} {to:?} {options:?}: {said:?}");
        assert!(said.err.contains(says), "{says}: {}", said.err);
        assert!(said.out.is_empty(), "{}", said.out);
    }
    assert!(!home.dst().exists());
    assert_eq!(fs::read_dir(home.src()).unwrap().count(), 1);
}

#[test]
fn a_destination_in_use_is_refused() {
    let home = Home::new();
    home.file("src/file", "x");
    fs::create_dir(home.dst()).unwrap();
    let lock = fs::File::open(home.dst()).unwrap();
    lock.try_lock().unwrap();
    let said = run(&home.src(), &home.dst(), &[]);
    assert_eq!(said.code(), 1);
    assert!(said.err.contains("another mirror"), "{}", said.err);
}

#[test]
fn few_open_files_are_enough() {
    let home = Home::with_tree(400, 9);
    // Through a shell, which lowers the limit for what it starts.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 128; exec \"$0\" \"$@\""]).arg(mirror_support::mirror());
    limited.arg(home.src()).arg(home.dst()).arg("--json");
    let said = finish(limited);
    assert_eq!(said.code(), 0, "{said:?}");
    home.assert_same();
}

/// `mirror` from the home's `src` to its `dst` as somebody without privileges, if we have some to give
/// away: everything in the home is then theirs. `None` if there is no `setpriv` to do it with.
fn as_nobody(home: &Home, options: &[&str]) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        return Some(command(&home.src(), &home.dst(), options));
    }
    Command::new("setpriv").arg("--version").output().ok()?;
    // The target folder may be where nobody else gets to.
    let program = home.at("program");
    if !program.exists() {
        fs::copy(mirror_support::mirror(), &program).unwrap();
        fs::create_dir_all(home.dst()).unwrap();
        fs::set_permissions(home.at(""), fs::Permissions::from_mode(0o755)).unwrap();
        for entry in walkdir::WalkDir::new(home.at("")) {
            std::os::unix::fs::lchown(entry.unwrap().path(), Some(65534), Some(65534)).unwrap();
        }
    }
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    nobody.arg(program).arg(home.src()).arg(home.dst()).args(options);
    Some(nobody)
}

#[test]
fn unreadable_entries_fail_and_everything_else_arrives() {
    let home = Home::new();
    home.file("src/secret", "x");
    home.file("src/closed/inside", "x");
    home.file("src/open/file", "x");
    home.file("dst/closed/kept", "not known to be superfluous");
    let closed = fs::Permissions::from_mode(0o000);
    fs::set_permissions(home.src().join("secret"), closed.clone()).unwrap();
    fs::set_permissions(home.src().join("closed"), closed).unwrap();
    let Some(command) = as_nobody(&home, &["--json", "--delete", "--attempts", "2"]) else {
        return;
    };
    let said = finish(command);
    assert_eq!(said.code(), 1, "{said:?}");
    let said = said.json();
    let mut failed: Vec<_> =
        said["failures"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect();
    failed.sort_unstable();
    assert_eq!(failed, ["closed", "secret"], "{said}");
    assert!(home.dst().join("open/file").exists());
    assert!(home.dst().join("closed/kept").exists(), "nothing known about it, nothing deleted");
}

#[test]
fn directories_without_write_permission_are_written_by_their_owner() {
    let home = Home::new();
    home.file("src/shut/file", "x");
    home.file("src/shut/deeper/file", "x");
    for dir in ["src/shut/deeper", "src/shut"] {
        fs::set_permissions(home.at(dir), fs::Permissions::from_mode(0o555)).unwrap();
    }
    for _ in 0..2 {
        let Some(command) = as_nobody(&home, &["--json"]) else { return };
        let said = finish(command);
        assert_eq!(said.code(), 0, "{said:?}");
        home.assert_same();
        // The second time there is something to write into a directory that is shut by now.
        fs::set_permissions(home.src().join("shut"), fs::Permissions::from_mode(0o755)).unwrap();
        home.file("src/shut/another", "x");
        std::os::unix::fs::chown(home.src().join("shut/another"), Some(65534), Some(65534))
            .unwrap_or(());
        fs::set_permissions(home.src().join("shut"), fs::Permissions::from_mode(0o555)).unwrap();
    }
    for dir in ["src/shut", "src/shut/deeper", "dst/shut", "dst/shut/deeper"] {
        fs::set_permissions(home.at(dir), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn names_are_shown_so_that_nothing_is_lost_or_executed() {
    let home = Home::new();
    fs::create_dir_all(home.src()).unwrap();
    let name = std::ffi::OsStr::from_bytes(b"a\x1b[2J\xff\n");
    fs::write(home.src().join(name), "x").unwrap();
    fs::create_dir_all(home.dst().join(name).join("full")).unwrap();
    let said = run(&home.src(), &home.dst(), &["--attempts", "1"]);
    assert_eq!(said.code(), 1);
    assert!(said.out.contains("\"a\\u{1b}[2J\\xff\\n\""), "{}", said.out);
}
