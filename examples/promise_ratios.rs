//! Prints each row of `cargo bench --bench promise` as a ratio to its best peer.
//!
//! ```text
//! cargo bench --bench promise && cargo run --release --example promise_ratios
//! ```
//!
//! Reads the medians that criterion left in `target/criterion` (or in the folder given).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn medians(folder: &Path) -> BTreeMap<String, BTreeMap<String, f64>> {
    let mut rows: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    let files = walkdir::WalkDir::new(folder).into_iter().filter_map(Result::ok);
    for file in files.filter(|file| file.path().ends_with("new/benchmark.json")) {
        let read = |name: &str| -> Option<serde_json::Value> {
            let text = std::fs::read_to_string(file.path().with_file_name(name)).ok()?;
            serde_json::from_str(&text).ok()
        };
        let row = (|| {
            let about = read("benchmark.json")?;
            let median = read("estimates.json")?["median"]["point_estimate"].as_f64()?;
            let group = about["group_id"].as_str()?.to_owned();
            Some((group, about["function_id"].as_str()?.to_owned(), median))
        })();
        if let Some((group, function, median)) = row {
            rows.entry(group).or_default().insert(function, median);
        }
    }
    rows
}

fn main() {
    let folder = std::env::args_os().nth(1).map_or_else(
        || {
            let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
            PathBuf::from(target).join("criterion")
        },
        PathBuf::from,
    );
    println!(
        "{:28} {:>10} {:>10}  {:24} {:>6}",
        "row", "tenure ns", "peer ns", "best peer", "ratio"
    );
    for (group, functions) in medians(&folder) {
        let Some(ours) = functions.get("tenure") else { continue };
        let peers = functions.iter().filter(|(name, _)| !name.starts_with("tenure"));
        let Some((peer, best)) = peers.min_by(|a, b| a.1.total_cmp(b.1)) else { continue };
        println!("{group:28} {ours:10.1} {best:10.1}  {peer:24} {:6.2}", ours / best);
    }
}
