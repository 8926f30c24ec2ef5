//! Named places at which a test may have the process killed.
//!
//! With the feature `crash-points`, and `CRASH_AT` naming the place, the process ends by SIGKILL, as when the machine under
//! it dies: no destructor runs, no reply leaves. Without the feature [`point`] is empty; AWS never runs a build with it.

/// Dies here when told to.
#[cfg(feature = "crash-points")]
#[allow(
    clippy::disallowed_methods,
    reason = "a test's switch, not configuration"
)]
pub fn point(name: &str) {
    if std::env::var("CRASH_AT").is_ok_and(|at| at == name) {
        eprintln!("crash point {name}");
        // Fails only when the process is already gone.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .ok();
    }
}

/// Nothing, in a build without crash points.
#[cfg(not(feature = "crash-points"))]
pub const fn point(_name: &str) {}
