//! How far along is it? A bar on a terminal; elsewhere one line at the start and one at the end.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;

/// One piece of work whose size becomes known on the way.
pub struct Progress {
    bar: ProgressBar,
    label: String,
    plain: bool,
    began: Instant,
}

/// Moves a bar that another part of the program owns.
pub struct Handle(ProgressBar);

impl Handle {
    /// `done` of `total` are done.
    pub fn at(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }
}

/// What is counted.
#[derive(Clone, Copy)]
pub enum Unit {
    /// Bytes of a download.
    Bytes,
    /// Things of the given name, in the plural.
    Things(&'static str),
}

impl Progress {
    /// Starts to show `label`.
    pub fn start(label: impl Into<String>, unit: Unit) -> Self {
        let label = label.into();
        let plain = !std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let counts = match unit {
            Unit::Bytes => "{bytes}/{total_bytes} {bytes_per_sec} {eta}".to_string(),
            Unit::Things(name) => format!("{{pos}}/{{len}} {name} {{eta}}"),
        };
        let template = format!("{{msg}} [{{bar:32}}] {counts}");
        let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(label.clone());
        if plain {
            say(&format!("{label} ..."));
        }
        Self { bar, label, plain, began: Instant::now() }
    }

    /// `done` of `total` are done.
    pub fn at(&self, done: u64, total: u64) {
        self.handle().at(done, total);
    }

    /// For work on other threads.
    pub fn handle(&self) -> Handle {
        Handle(self.bar.clone())
    }

    /// Shows `label` from now on.
    pub fn label(&mut self, label: &str) {
        if label == self.label {
            return;
        }
        self.label = label.to_string();
        self.bar.set_message(self.label.clone());
        if self.plain {
            say(&format!("{label} ..."));
        }
    }

    /// Ends the bar and leaves one line.
    pub fn done(self, result: &str) {
        self.bar.finish_and_clear();
        say(&format!("{} ({})", result, super::took(self.began.elapsed())));
    }
}

impl Drop for Progress {
    // A bar that is left behind by an error would garble the error's line.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// One line on stderr, where progress belongs: stdout is for results.
pub fn say(line: &str) {
    use std::io::Write as _;
    // Nobody to tell when stderr is closed.
    let _ = writeln!(anstream::stderr(), "{line}");
}
