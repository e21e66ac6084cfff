//! The frontier: throughput against tail, a mark for each lock.

use std::fmt::Write;

use crate::measure::Summary;
use crate::{BAR, OURS, Row, peers};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
/// Where the axes are: left, right, top, bottom.
const FRAME: [f64; 4] = [60.0, 690.0, 34.0, 390.0];

/// A name, throughput, and p99.9, the last two over those of the lock that is the measure.
struct Mark<'a> {
    name: &'a str,
    throughput: f64,
    tail: f64,
    colour: &'static str,
}

/// Right is more throughput, up is a shorter p99.9, both as geometric means over all cases. `also`:
/// other marks, a line of name, throughput and p99.9 for each.
pub(crate) fn frontier(rows: &[Row], also: &str) -> String {
    let ours = peers::ALL.iter().filter_map(|peer| {
        let colour = if peer.name == OURS { "#d62728" } else { "#1f77b4" };
        Some(Mark {
            name: peer.name,
            throughput: mean(rows, peer.name, |s| s.per_second)?,
            tail: mean(rows, peer.name, |s| s.p999.max(100.0))?,
            colour,
        })
    });
    let others = also.lines().filter_map(|line| {
        let mut parts = line.split('\t');
        let (name, throughput, tail) = (parts.next()?, parts.next()?, parts.next()?);
        let (throughput, tail) = (throughput.trim().parse().ok()?, tail.trim().parse().ok()?);
        Some(Mark { name, throughput, tail, colour: "#ff9896" })
    });
    // Ours last, on top.
    let mut marks: Vec<_> = others.chain(ours).collect();
    marks.sort_by_key(|mark| mark.name == OURS);
    drawn(&marks)
}

/// The geometric mean over the cases of a lock's number over that of the measure.
fn mean(rows: &[Row], name: &str, number: impl Fn(&Summary) -> f64) -> Option<f64> {
    let logs: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((number(&row.of(name)?) / number(&row.of(BAR)?)).ln()))
        .collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

fn drawn(marks: &[Mark]) -> String {
    let [left, right, top, bottom] = FRAME;
    let least = marks.iter().map(|m| m.throughput).fold(0.8, f64::min);
    let most = marks.iter().map(|m| m.throughput).fold(1.1, f64::max) + 0.05;
    let shortest = marks.iter().map(|m| m.tail).fold(0.5, f64::min) / 1.2;
    let longest = marks.iter().map(|m| m.tail).fold(2.0, f64::max) * 1.2;
    let first = (least * 10.0).floor() / 10.0;
    let x = |throughput: f64| left + (throughput - first) / (most - first) * (right - left);
    let y = |tail: f64| top + (tail / shortest).ln() / (longest / shortest).ln() * (bottom - top);
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' \
         font-family='sans-serif' font-size='12' style='max-width:{WIDTH}px'>\n\
         <rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>\n"
    );
    for tenth in 0..40 {
        let at = first + f64::from(tenth) / 10.0;
        if at < most {
            let _ = writeln!(
                svg,
                "<line x1='{0:.0}' x2='{0:.0}' y1='{top}' y2='{bottom}' stroke='#ddd'/>\
                 <text x='{0:.0}' y='{1:.0}' text-anchor='middle'>{at:.1}</text>",
                x(at),
                bottom + 16.0
            );
        }
    }
    for at in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0] {
        if (shortest..longest).contains(&at) {
            let _ = writeln!(
                svg,
                "<line x1='{left}' x2='{right}' y1='{0:.0}' y2='{0:.0}' stroke='#ddd'/>\
                 <text x='{1:.0}' y='{2:.0}' text-anchor='end'>{at}</text>",
                y(at),
                left - 6.0,
                y(at) + 4.0
            );
        }
    }
    let _ = writeln!(
        svg,
        "<text x='{:.0}' y='{:.0}' text-anchor='middle'>throughput over {BAR} (more is better)</text>\n\
         <text x='10' y='18'>p99.9 wait over {BAR} (less, so higher up, is better)</text>",
        f64::midpoint(left, right),
        HEIGHT - 14.0
    );
    for Mark { name, throughput, tail, colour } in marks {
        let (size, x, y) = (if *name == OURS { 6 } else { 4 }, x(*throughput), y(*tail));
        // Names stay inside the frame.
        let (anchor, aside) = if x > right - 120.0 { ("end", -9.0) } else { ("start", 9.0) };
        let _ = writeln!(
            svg,
            "<circle cx='{x:.1}' cy='{y:.1}' r='{size}' fill='{colour}'>\
             <title>{name}: {throughput:.2}, {tail:.2}</title></circle>\n\
             <text x='{:.1}' y='{:.1}' text-anchor='{anchor}'>{name}</text>",
            x + aside,
            y + 4.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}
