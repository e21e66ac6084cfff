//! The weakening tool on specimens whose answer is known.

#![cfg(tenure_loom)]

use std::process::{Command, Output};

fn weaken(name: &str, survivors: &str) -> Output {
    let path = std::env::temp_dir().join(format!("tenure-{name}-{}", std::process::id()));
    std::fs::write(&path, survivors).expect("a temporary file");
    let output = Command::new(env!("CARGO_BIN_EXE_weaken"))
        .args(["--room", "specimen", "--json", "--survivors"])
        .arg(&path)
        .output()
        .expect("the tool runs");
    let _ = std::fs::remove_file(path);
    output
}

fn planted() -> &'static str {
    include_str!("../survivors.toml").split("# The rooms").next().unwrap_or("")
}

#[test]
fn kills_all_but_the_planted_survivor_and_sees_the_planted_unreached_one() {
    let output = weaken("none", "");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let survived: Vec<_> = report["changed"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|changed| changed["fate"].get("killed").is_none())
        .map(|changed| format!("{} {}", changed["function"], changed["change"]))
        .collect();
    assert_eq!(survived, [r#""set_too_strong" "AcqRel->Release""#]);
    // The flag, the two locks, the gate, the sleeping lock and the counted sleeper: each of their changes was tried.
    assert_eq!(report["changed"].as_array().map(Vec::len), Some(28));
    assert_eq!(report["unreached"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["unreached"][0]["function"], "unreached");
    assert_eq!(report["not_scanned"], serde_json::json!([]));
}

#[test]
fn explanations_are_taken_and_outdated_ones_refused() {
    let output = weaken("planted", planted());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));

    let stale = planted().replace("AcqRel->Release", "AcqRel->Acquire");
    let output = weaken("stale", &stale);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let stale = report["stale"][0].as_str().expect("one is out of date");
    assert!(stale.contains("killed now"), "{stale}");
}

/// The table's figures are of some earlier run; its rooms and models have to be these.
#[test]
fn the_readme_has_every_room_with_all_its_models() {
    let mut models = std::collections::BTreeMap::new();
    for model in tenure_loom_tests::models::all() {
        // `lease_wait` is a part of `lease`.
        let room = model.room.split('_').next().unwrap_or(model.room);
        *models.entry(room).or_insert(0) += 1;
    }
    let readme = include_str!("../README.md");
    let missing: Vec<_> = models
        .into_iter()
        .filter(|(room, count)| !readme.contains(&format!("| {room} | {count} |")))
        .collect();
    assert!(missing.is_empty(), "run `weaken --readme`, or with --room ROOM: {missing:?}");
}
