//! Finds the door's operations in the source, so that those which no model reaches are seen.
//!
//! Text, not syntax trees: comments and strings are blanked, then the names of the door's verbs are
//! looked for where an ordering follows, and items under a `cfg` that a model does not have are
//! skipped. What the models reached and the scan did not find is reported by the caller: it would be
//! a hole in here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One operation in the source.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The function it stands in.
    pub(crate) function: String,
    /// The call, on one line: what explanations name, so that edits elsewhere do not touch them.
    pub(crate) call: String,
}

impl Found {
    /// What stands at a place for which the scan has nothing: a function that hands its caller's
    /// place to the door, as a barrier made of a fence does.
    pub(crate) fn at(root: &Path, (file, line, column): &Place) -> Option<Self> {
        let text = std::fs::read_to_string(root.join(file)).ok()?;
        let code = blank(&text);
        let start: usize = code.split_inclusive('\n').take(*line as usize - 1).map(str::len).sum();
        let skip = code[start..].chars().take(*column as usize - 1).map(char::len_utf8);
        let at = start + skip.sum::<usize>();
        let open = at + code[at..].find('(')?;
        let from = receiver(&code, at);
        let call = one_line(&code[from..=matching(&code, open)?]);
        Some(Self { function: function_at(&functions(&code), at), call })
    }
}

/// The innermost function around a place.
fn function_at(functions: &[(String, usize, usize)], at: usize) -> String {
    functions
        .iter()
        .filter(|(_, start, end)| (*start..*end).contains(&at))
        .max_by_key(|(_, start, _)| *start)
        .map_or_else(String::new, |(name, ..)| name.clone())
}

/// Where: file, line, column.
pub(crate) type Place = (String, u32, u32);

const VERBS: [&str; 13] = [
    "load",
    "store",
    "swap",
    "compare_exchange",
    "compare_exchange_weak",
    "fetch_add",
    "fetch_sub",
    "fetch_and",
    "fetch_or",
    "fetch_xor",
    "fetch_max",
    "fetch_min",
    "fetch_update",
];
const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
const PARKING: [&str; 3] = ["park::wait", "park::wake_one", "park::wake_all"];

/// The rooms' operations: every file under `src/`, but for the door itself.
pub(crate) fn scan(root: &Path) -> Result<BTreeMap<Place, Found>, String> {
    let mut files = Vec::new();
    collect(&root.join("src"), &mut files)?;
    let mut texts = BTreeMap::new();
    for file in files {
        let text =
            std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        texts.insert(file, text);
    }
    // First the files that a model does not compile: `#[cfg(test)] mod tests;` and the like. A module
    // that is declared twice, once in each world, is compiled.
    let (mut compiled, mut skipped) = (Vec::new(), Vec::new());
    for (file, text) in &texts {
        let code = blank(text);
        let off = disabled(text, &code);
        let folder = match file.file_stem().and_then(|s| s.to_str()) {
            Some("mod" | "lib" | "main") => file.parent().map(Path::to_path_buf),
            _ => Some(file.with_extension("")),
        };
        let Some(folder) = folder else { continue };
        for at in words(&code, "mod") {
            let rest = code[at + 3..].trim_start();
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if rest[name.len()..].trim_start().starts_with(';') {
                let hidden = off.iter().any(|(start, end)| (*start..*end).contains(&at));
                let list = if hidden { &mut skipped } else { &mut compiled };
                list.push(folder.join(name));
            }
        }
    }
    skipped.retain(|s: &PathBuf| !compiled.contains(s));
    let mut found = BTreeMap::new();
    for (file, text) in &texts {
        let relative = file.strip_prefix(root).unwrap_or(file);
        let name = relative.to_string_lossy().replace('\\', "/");
        let door = name.starts_with("src/sync") && !name.ends_with("specimen.rs");
        let stem = file.with_extension("");
        if door || skipped.iter().any(|s| stem == *s || file.starts_with(s)) {
            continue;
        }
        for (line, column, site) in operations(text) {
            found.insert((name.clone(), line, column), site);
        }
    }
    Ok(found)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

/// The operations of one file: line, column and what stands there.
pub(crate) fn operations(text: &str) -> Vec<(u32, u32, Found)> {
    let code = blank(text);
    let off = disabled(text, &code);
    let functions = functions(&code);
    let mut found = Vec::new();
    let mut add = |at: usize, from: usize, open: usize| {
        if off.iter().any(|(start, end)| (*start..*end).contains(&at)) {
            return;
        }
        let Some(close) = matching(&code, open) else { return };
        let before = &text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        let function = function_at(&functions, at);
        let call = one_line(&code[from..=close]);
        found.push((line as u32, column as u32, Found { function, call }));
    };
    for verb in VERBS {
        for at in words(&code, verb) {
            let open = at + verb.len();
            if !code[..at].trim_end().ends_with('.') || !code[open..].starts_with('(') {
                continue;
            }
            let Some(close) = matching(&code, open) else { continue };
            let arguments = &code[open..close];
            let ordered = ORDERINGS.iter().any(|o| words(arguments, o).next().is_some())
                || arguments.contains("order");
            if ordered {
                add(at, receiver(&code, at), open);
            }
        }
    }
    for at in words(&code, "fence") {
        let open = at + "fence".len();
        let declared = code[..at].trim_end().ends_with("fn");
        if code[open..].starts_with('(') && !declared {
            let from = path_start(&code, at);
            add(from, from, open);
        }
    }
    for call in PARKING {
        for (at, _) in code.match_indices(call) {
            let open = at + call.len();
            if code[open..].starts_with('(') {
                let from = path_start(&code, at);
                add(from, from, open);
            }
        }
    }
    found
}

/// Where a word stands by itself.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let part = |c: char| c.is_alphanumeric() || c == '_';
        !code[..*at].chars().next_back().is_some_and(part)
            && !code[at + word.len()..].chars().next().is_some_and(part)
    })
}

/// The start of the path that ends in the name at `at`: `atomic::fence`, `Self::WORD`.
fn path_start(code: &str, at: usize) -> usize {
    let path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    code[..at].trim_end_matches(path).len()
}

/// The start of the expression before `.verb`: `self.slots[i].word`, over lines.
fn receiver(code: &str, verb: usize) -> usize {
    let bytes = code.as_bytes();
    let mut at = verb;
    loop {
        let rest = code[..at].trim_end();
        let Some(last) = rest.bytes().last() else { return at };
        match last {
            b'.' | b'?' => at = rest.len() - 1,
            b')' | b']' => {
                let mut depth = 0_i32;
                let mut i = rest.len();
                while i > 0 {
                    i -= 1;
                    match bytes[i] {
                        b')' | b']' => depth += 1,
                        b'(' | b'[' => depth -= 1,
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
                at = i;
            }
            b if b.is_ascii_alphanumeric() || b == b'_' => {
                // A word is part of the expression if a dot, a call or an index follows it, or if
                // it is where the expression begins.
                let follows = code[at..].trim_start().bytes().next();
                if !matches!(follows, Some(b'.' | b'(' | b'[' | b'?')) {
                    return at;
                }
                at = path_start(code, rest.len());
                let before = code[..at].trim_end();
                if !before.ends_with(['.', '?']) {
                    return at;
                }
            }
            _ => return at + (code[at..].len() - code[at..].trim_start().len()),
        }
    }
}

fn one_line(code: &str) -> String {
    let mut line = code.split_whitespace().collect::<Vec<_>>().join(" ");
    for (from, to) in [(" .", "."), ("( ", "("), (", )", ")"), (" )", ")"), (",)", ")")] {
        line = line.replace(from, to);
    }
    line
}

/// The index of the bracket that closes the one at `open`.
fn matching(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (i, b) in code.bytes().enumerate().skip(open) {
        match b {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// Each function: name, start and end of its body.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let mut functions = Vec::new();
    for at in words(code, "fn") {
        let rest = code[at + 2..].trim_start();
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if name.is_empty() {
            continue;
        }
        if let Some((open, b'{')) = item_end(code, at)
            && let Some(close) = matching(code, open)
        {
            functions.push((name, open, close));
        }
    }
    functions
}

/// Where an item's head ends: at its `{` or its `;`; a field's, a variant's or an argument's at the
/// `,` or bracket after it.
fn item_end(code: &str, from: usize) -> Option<(usize, u8)> {
    let first = code[from..].split_whitespace().next().unwrap_or("");
    let word = first.split('(').next().unwrap_or("");
    let items = [
        "pub",
        "fn",
        "impl",
        "mod",
        "struct",
        "enum",
        "union",
        "trait",
        "const",
        "static",
        "unsafe",
        "async",
        "extern",
        "type",
        "use",
        "let",
        "macro_rules!",
    ];
    // The comma of a generic list does not end an item.
    let item = items.contains(&word);
    let mut depth = 0_i32;
    for (i, b) in code.bytes().enumerate().skip(from) {
        match b {
            b'(' | b'[' => depth += 1,
            b')' | b']' if depth > 0 => depth -= 1,
            b',' if item => {}
            b'{' | b';' | b',' | b'}' | b')' | b']' if depth == 0 => return Some((i, b)),
            _ => {}
        }
    }
    None
}

/// The stretches under a `cfg` that a model does not have.
fn disabled(text: &str, code: &str) -> Vec<(usize, usize)> {
    let mut off = Vec::new();
    for (at, _) in code.match_indices("#[cfg(") {
        let open = at + "#[cfg".len();
        let Some(close) = matching(code, open) else { continue };
        if holds(&text[open + 1..close]) {
            continue;
        }
        // Past this attribute and any that follow.
        let mut head = matching(code, at + 1).map_or(close, |end| end + 1);
        loop {
            let next = code[head..].len() - code[head..].trim_start().len() + head;
            if !code[next..].starts_with("#[") {
                break;
            }
            head = matching(code, next + 1).map_or(code.len(), |end| end + 1);
        }
        let end = match item_end(code, head) {
            Some((open, b'{')) => matching(code, open).map_or(code.len(), |close| close + 1),
            Some((end, b';' | b',')) => end + 1,
            Some((end, _)) => end,
            None => code.len(),
        };
        off.push((at, end));
    }
    // What a file says of itself.
    for (at, _) in code.match_indices("#![cfg(") {
        let open = at + "#![cfg".len();
        if matching(code, open).is_some_and(|close| !holds(&text[open + 1..close])) {
            off.push((at, code.len()));
        }
    }
    off
}

/// Whether a `cfg` predicate holds in a model on this system.
fn holds(predicate: &str) -> bool {
    let predicate = predicate.trim();
    let inner = |name: &str| {
        predicate.strip_prefix(name).map(str::trim_start).and_then(|rest| {
            rest.strip_prefix('(').and_then(|rest| rest.trim_end().strip_suffix(')'))
        })
    };
    if let Some(inner) = inner("not") {
        return !holds(inner);
    }
    if let Some(inner) = inner("all") {
        return parts(inner).all(holds);
    }
    if let Some(inner) = inner("any") {
        return parts(inner).any(holds);
    }
    match predicate {
        "tenure_loom" | "debug_assertions" | "panic = \"unwind\"" => true,
        "unix" => cfg!(unix),
        "windows" => cfg!(windows),
        "target_os = \"linux\"" => cfg!(target_os = "linux"),
        "target_pointer_width = \"64\"" => cfg!(target_pointer_width = "64"),
        "target_arch = \"x86_64\"" => cfg!(target_arch = "x86_64"),
        _ => false,
    }
}

/// The parts of a list, at its top level.
fn parts(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    list.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .filter(|part| !part.trim().is_empty())
}

/// The text with comments, strings and characters blanked, byte for byte.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let wipe = |out: &mut Vec<u8>, from: usize, to: usize| {
        for b in &mut out[from..to] {
            if *b != b'\n' {
                *b = b' ';
            }
        }
    };
    let mut i = 0;
    while i < bytes.len() {
        let rest = &bytes[i..];
        let end = if rest.starts_with(b"//") {
            i + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            let mut depth = 0_i32;
            let mut j = i;
            loop {
                if bytes[j..].starts_with(b"/*") {
                    depth += 1;
                    j += 2;
                } else if bytes[j..].starts_with(b"*/") {
                    depth -= 1;
                    j += 2;
                } else {
                    j += 1;
                }
                if depth == 0 || j >= bytes.len() {
                    break j.min(bytes.len());
                }
            }
        } else if let Some(end) = raw_string(bytes, i) {
            end
        } else if rest[0] == b'"' {
            let mut j = i + 1;
            while j < bytes.len() && bytes[j] != b'"' {
                j += if bytes[j] == b'\\' { 2 } else { 1 };
            }
            (j + 1).min(bytes.len())
        } else if rest[0] == b'\'' {
            // A character, or a lifetime, which stays.
            let escaped = rest.get(1) == Some(&b'\\');
            let close =
                rest.iter().skip(if escaped { 3 } else { 2 }).take(10).position(|b| *b == b'\'');
            let length = text[i + 1..].chars().next().map_or(1, char::len_utf8);
            match close {
                Some(at) if escaped => i + 3 + at + 1,
                Some(_) if rest.get(1 + length) == Some(&b'\'') => i + 2 + length,
                _ => {
                    i += 1;
                    continue;
                }
            }
        } else {
            i += 1;
            continue;
        };
        wipe(&mut out, i, end);
        i = end;
    }
    String::from_utf8(out).unwrap_or_default()
}

/// The end of the raw string that starts at `i`, if one does.
fn raw_string(bytes: &[u8], i: usize) -> Option<usize> {
    if i > 0 && (bytes[i - 1].is_ascii_alphanumeric() || bytes[i - 1] == b'_') {
        return None;
    }
    let mut j = i;
    if bytes.get(j) == Some(&b'b') {
        j += 1;
    }
    if bytes.get(j) != Some(&b'r') {
        return None;
    }
    j += 1;
    let hashes = bytes[j..].iter().take_while(|b| **b == b'#').count();
    j += hashes;
    if bytes.get(j) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let length = bytes[j + 1..].windows(close.len()).position(|w| w == close)?;
    Some(j + 1 + length + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(text: &str) -> Vec<String> {
        let mut found = operations(text);
        found.sort_by_key(|(line, column, _)| (*line, *column));
        found.into_iter().map(|(l, c, f)| format!("{l}:{c} {}: {}", f.function, f.call)).collect()
    }

    #[test]
    fn finds_calls_over_lines_and_names_their_function() {
        let text = "fn take(&self) {\n    self.slots[i(2)]\n        .word\n        .compare_exchange(\n            A,\n            B,\n            Ordering::AcqRel,\n            Acquire,\n        );\n}\n";
        assert_eq!(
            calls(text),
            ["4:10 take: self.slots[i(2)].word.compare_exchange(A, B, Ordering::AcqRel, Acquire)"]
        );
    }

    #[test]
    fn skips_tests_comments_strings_and_other_worlds() {
        let text = r##"
            // self.a.load(Ordering::Relaxed)
            /* self.a.load(Ordering::Relaxed) /* nested */ */
            fn a<'a>() { let s = "x.load(Ordering::Relaxed)"; let c = '"'; let r = r#"x.load(SeqCst)"#; }
            #[cfg(test)]
            mod tests { fn t() { x.load(Ordering::Relaxed); } }
            #[cfg(all(unix, not(tenure_loom)))]
            #[inline]
            fn native() { x.load(Ordering::Relaxed); }
            #[cfg(tenure_loom)]
            fn model() -> Result<(), E> { x.load(Ordering::Relaxed); vec.swap(1, 2); }
            struct S {
                #[cfg(test)]
                field: Field<A>,
            }
            #[cfg(not(tenure_loom))]
            fn generic<K, V>() -> Map<K, V> { x.load(Ordering::Relaxed) }
            impl<K, V> S<K, V> { fn last(&self) { self.x.load(Ordering::Relaxed); } }
        "##;
        let found = calls(text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("model: x.load"), "{found:?}");
        assert!(found[1].contains("last: self.x.load"), "{found:?}");
    }

    #[test]
    fn skips_a_file_that_says_it_is_of_another_world() {
        let text = |of: &str| format!("//! A file.\n#![cfg({of})]\nfn t() {{ x.load(SeqCst); }}\n");
        assert_eq!(calls(&text("all(test, not(tenure_loom))")), [""; 0]);
        assert_eq!(calls(&text("tenure_loom")), ["3:12 t: x.load(SeqCst)"]);
    }

    #[test]
    fn finds_fences_waits_and_wakes() {
        let text = "fn f() {\n    fence(Ordering::SeqCst);\n    if x { crate::sync::park::wake_one(&raw const w); }\n    park::wait(&w, 1, None);\n}\nfn fence(x: u8) {}\n";
        assert_eq!(
            calls(text),
            [
                "2:5 f: fence(Ordering::SeqCst)",
                "3:12 f: crate::sync::park::wake_one(&raw const w)",
                "4:5 f: park::wait(&w, 1, None)",
            ]
        );
    }
}
