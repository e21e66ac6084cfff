//! The frontier: throughput against tail, a mark for each case and peer.

use std::fmt::Write;

use crate::Row;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 560.0;
const MARGIN: f64 = 60.0;

/// Right is more throughput (of the case's best), down is a shorter p99.9 (over the case's best,
/// logarithmic). The better lock is at the lower right.
pub(crate) fn frontier(rows: &[Row]) -> String {
    const COLOURS: [&str; 8] =
        ["#d62728", "#ff9896", "#1f77b4", "#2ca02c", "#98df8a", "#9467bd", "#ff7f0e", "#7f7f7f"];
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' \
         font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n"
    );
    let x = |share: f64| MARGIN + share.clamp(0.0, 1.0) * (WIDTH - 2.0 * MARGIN - 140.0);
    let y = |times: f64| {
        let decades = times.max(1.0).log10().min(3.0);
        HEIGHT - MARGIN - decades / 3.0 * (HEIGHT - 2.0 * MARGIN)
    };
    for tenth in 0..=5 {
        let share = f64::from(tenth) / 5.0;
        let _ = writeln!(
            svg,
            "<text x='{:.0}' y='{:.0}' text-anchor='middle'>{share:.1}</text>",
            x(share),
            HEIGHT - MARGIN + 18.0
        );
    }
    for times in [1.0, 10.0, 100.0, 1000.0] {
        let _ = writeln!(
            svg,
            "<text x='{:.0}' y='{:.0}' text-anchor='end'>{times:.0}×</text>\
             <line x1='{:.0}' x2='{:.0}' y1='{:.0}' y2='{:.0}' stroke='#ddd'/>",
            MARGIN - 6.0,
            y(times) + 4.0,
            x(0.0),
            x(1.0),
            y(times),
            y(times)
        );
    }
    let _ = writeln!(
        svg,
        "<text x='{:.0}' y='{:.0}' text-anchor='middle'>throughput, of the best in its case</text>\
         <text x='16' y='24'>p99.9 wait, over the shortest in its case</text>",
        x(0.5),
        HEIGHT - 14.0
    );
    let names: Vec<_> =
        rows.first().map(|r| r.peers.iter().map(|p| p.0).collect()).unwrap_or_default();
    for (number, name) in names.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        for row in rows {
            let Some((_, own)) = row.peers.iter().find(|(n, _)| n == name) else { continue };
            let most = row.peers.iter().map(|p| p.1.per_second).fold(1.0, f64::max);
            let shortest = row.peers.iter().map(|p| p.1.p999).fold(f64::INFINITY, f64::min);
            let (share, times) = (own.per_second / most, own.p999.max(1.0) / shortest.max(1.0));
            let _ = writeln!(
                svg,
                "<circle cx='{:.1}' cy='{:.1}' r='4' fill='{colour}' fill-opacity='.65'>\
                 <title>{name}, {}: {share:.2} of the best, p99.9 {times:.1}×</title></circle>",
                x(share),
                y(times),
                row.case.name()
            );
        }
        let at = 40.0 + 20.0 * number as f64;
        let _ = writeln!(
            svg,
            "<circle cx='{:.0}' cy='{:.0}' r='5' fill='{colour}'/>\
             <text x='{:.0}' y='{:.0}'>{name}</text>",
            WIDTH - 175.0,
            at,
            WIDTH - 163.0,
            at + 4.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}
