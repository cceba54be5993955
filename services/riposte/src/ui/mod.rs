//! What does the person at the terminal see? Progress bars, tables, answers; colours only on a terminal.

pub mod answer;
pub mod progress;
pub mod report;

use anstyle::{AnsiColor, Style};

/// Headings and labels.
pub const STRONG: Style = Style::new().bold();
/// What may be skipped: timings, places.
pub const FAINT: Style = Style::new().dimmed();
/// Citations and addresses.
pub const LINK: Style = AnsiColor::Cyan.on_default();
/// Problems.
pub const ALARM: Style = AnsiColor::Red.on_default().bold();

/// `text` in `style`; `anstream` takes the codes out again when the output is no terminal.
pub fn paint(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Bytes for people: `469 MiB`.
#[allow(clippy::cast_precision_loss)] // Three digits are shown.
pub fn bytes(count: u64) -> String {
    match count {
        0..1_024 => format!("{count} B"),
        1_024..1_048_576 => format!("{:.0} KiB", count as f64 / 1_024.0),
        1_048_576..1_073_741_824 => format!("{:.0} MiB", count as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", count as f64 / 1_073_741_824.0),
    }
}

/// A duration for people: `12.3 s`, `340 ms`.
pub fn took(duration: std::time::Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.1} s"),
        seconds => format!("{:.0} ms", seconds * 1e3),
    }
}
