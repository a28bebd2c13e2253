//! Progress bars: on stderr, only when it is a terminal, only after a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that ends sooner shows no bar.
const QUIET: Duration = Duration::from_secs(1);

/// A bar that appears once the work has lasted a second.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
}

impl Progress {
    /// A bar over `total_bytes` bytes.
    pub fn of_bytes(what: &'static str, total_bytes: u64) -> Self {
        let template = "{msg} [{bar:32}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        Self::new(what, total_bytes, template)
    }

    /// A bar over `total` things.
    pub fn of_count(what: &'static str, total: u64) -> Self {
        let template = "{msg} [{bar:32}] {human_pos} of {human_len}, {per_sec}, {eta} left";
        Self::new(what, total, template)
    }

    /// A bar of a thousand steps that mostly shows its message.
    pub fn of_message() -> Self {
        Self::new("", 1000, "[{bar:24}] {wide_msg}")
    }

    fn new(what: &'static str, total: u64, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(what);
        Self {
            bar,
            started: Instant::now(),
            shown: false,
        }
    }

    /// `amount` more is done.
    pub fn add(&mut self, amount: u64) {
        self.show();
        self.bar.inc(amount);
    }

    /// `done` of `total` is done.
    pub fn set(&mut self, done: u64, total: u64) {
        self.show();
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// Changes the message.
    pub fn say(&mut self, message: String) {
        self.show();
        self.bar.set_message(message);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&mut self) {
        if !self.shown && self.started.elapsed() >= QUIET {
            self.shown = true;
            // indicatif keeps it hidden when stderr is not a terminal.
            self.bar
                .set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
