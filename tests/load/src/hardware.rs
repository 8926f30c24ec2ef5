//! What the figures were measured on.

use std::fs::read_to_string;

use serde::Serialize;

const KIB_PER_GIB: f64 = 1024.0 * 1024.0;

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hardware {
    pub cores: usize,
    pub cpu: String,
    pub memory_gib: f64,
    pub os: &'static str,
}

impl Hardware {
    /// As Linux tells it; elsewhere model and memory stay unknown.
    pub fn look() -> Self {
        let cpu = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = read_to_string("/proc/meminfo").unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            cpu: value_of(&cpu, "model name").unwrap_or("unknown").to_owned(),
            memory_gib: value_of(&memory, "MemTotal").map_or(0.0, gib),
            os: std::env::consts::OS,
        }
    }
}

/// The value of the first `name : value` line.
fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

/// `"24600000 kB"` in GiB, to one digit.
fn gib(kib: &str) -> f64 {
    let kib: f64 = kib.trim_end_matches("kB").trim().parse().unwrap_or(0.0);
    (kib / KIB_PER_GIB * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        let cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC\nmodel name\t: AMD EPYC\n";
        assert_eq!(value_of(cpuinfo, "model name"), Some("AMD EPYC"));
        assert_eq!(value_of("MemTotal:       25165824 kB\n", "MemTotal").map(gib), Some(24.0));
        assert_eq!(value_of("", "MemTotal"), None);
    }
}
