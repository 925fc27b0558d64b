//! Progress bars on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar on standard error, hidden if standard error is no terminal. Dropping it removes the bar.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar for work called `name`.
    pub(crate) fn new(name: &str) -> Self {
        let bar = ProgressBar::no_length();
        // The template is a constant that parses. If it did not, the bar would show progress in another form.
        if let Ok(style) = ProgressStyle::with_template(
            "{prefix} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}",
        ) {
            bar.set_style(style);
        }
        bar.set_prefix(name.to_owned());
        Self(bar)
    }

    /// A bar for work called `name` that is counted in bytes.
    pub(crate) fn of_bytes(name: &str) -> Self {
        let progress = Self::new(name);
        if let Ok(style) = ProgressStyle::with_template(
            "{prefix} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        ) {
            progress.0.set_style(style);
        }
        progress
    }

    /// Shows `done` of `total`; `None` if the total is unknown.
    pub(crate) fn show(&self, done: u64, total: Option<u64>) {
        if let Some(total) = total {
            self.0.set_length(total);
        }
        self.0.set_position(done);
    }

    /// Shows `elapsed` of `total` time.
    pub(crate) fn show_time(&self, elapsed: Duration, total: Duration) {
        self.show(elapsed.as_secs(), Some(total.as_secs()));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
