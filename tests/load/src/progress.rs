//! What is going on: bars on a terminal, plain lines elsewhere (a log of a CI run is no place for bars).

use std::io::IsTerminal;
use std::sync::Mutex;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// A plain log says each time another quarter is done.
const PLAIN_STEPS: usize = 4;

#[derive(Debug)]
pub struct Progress {
    /// `None` where there is no terminal.
    bars: Option<MultiProgress>,
}

/// One thing that is done many times.
#[derive(Debug)]
pub struct Phase {
    label: &'static str,
    count: Mutex<Count>,
    bar: Option<ProgressBar>,
    /// Nobody knows at first how many there will be: quarters mean nothing then, and a plain log has the end only.
    open_ended: bool,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    done: usize,
    total: usize,
}

impl Progress {
    pub fn begin() -> Self {
        Self { bars: std::io::stderr().is_terminal().then(MultiProgress::new) }
    }

    pub fn say(&self, text: &str) {
        // Nobody looking is no reason to stop.
        match &self.bars {
            Some(bars) => drop(bars.println(text)),
            None => eprintln!("{text}"),
        }
    }

    pub fn phase(&self, label: &'static str, total: usize) -> Phase {
        let bar = self.bars.as_ref().map(|bars| {
            let style = ProgressStyle::with_template("{msg:>22} {wide_bar} {pos:>6}/{len:<6} {elapsed:>4}");
            let bar = ProgressBar::new(total as u64).with_message(label);
            bars.add(if let Ok(style) = style { bar.with_style(style) } else { bar })
        });
        Phase { label, count: Mutex::new(Count { done: 0, total }), bar, open_ended: total == 0 }
    }
}

impl Phase {
    pub fn one_done(&self) {
        let count = self.update(|count| count.done += 1);
        match &self.bar {
            Some(bar) => bar.inc(1),
            None if !self.open_ended && crosses_step(count) => self.say(count),
            None => {}
        }
    }

    /// There is one more to do.
    pub fn one_more(&self) {
        let count = self.update(|count| count.total += 1);
        if let Some(bar) = &self.bar {
            bar.set_length(count.total as u64);
        }
    }

    /// How many are done, and of how many.
    pub fn so_far(&self) -> (usize, usize) {
        let count = self.update(|_| ());
        (count.done, count.total)
    }

    pub fn finish(&self) {
        match &self.bar {
            Some(bar) => bar.finish(),
            None if self.open_ended => self.say(self.update(|_| ())),
            None => {}
        }
    }

    fn say(&self, count: Count) {
        eprintln!("{:>22} {}/{}", self.label, count.done, count.total);
    }

    fn update(&self, change: impl FnOnce(&mut Count)) -> Count {
        // A count stays a count, whoever panicked while holding it.
        let mut count = self.count.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut count);
        *count
    }
}

fn crosses_step(count: Count) -> bool {
    let step = |done: usize| done * PLAIN_STEPS / count.total.max(1);
    step(count.done) > step(count.done - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_log_has_a_line_for_each_quarter() {
        let lines = |total| (1..=total).filter(|&done| crosses_step(Count { done, total })).count();
        assert_eq!(lines(2_000), 4);
        assert_eq!(lines(7), 4);
        assert_eq!(lines(1), 1);
    }
}
