//! Named places at which a test may have the process killed or frozen.
//!
//! With the feature `crash-points`, and `CRASH_AT` naming the place, the process ends by SIGKILL, as when the machine under
//! it dies: no destructor runs, no reply leaves. With `FREEZE_AT` it stops by SIGSTOP, as an environment that Lambda freezes
//! between two steps, until somebody sends SIGCONT. Without the feature [`point`] is empty; AWS never runs a build with it.

/// Dies or stops here when told to.
#[cfg(feature = "crash-points")]
pub fn point(name: &str) {
    use rustix::process::Signal;

    for (switch, signal) in [("CRASH_AT", Signal::KILL), ("FREEZE_AT", Signal::STOP)] {
        if is_told(switch, name) {
            eprintln!("{switch} {name}");
            // Fails only when the process is already gone.
            rustix::process::kill_process(rustix::process::getpid(), signal).ok();
        }
    }
}

#[cfg(feature = "crash-points")]
#[allow(clippy::disallowed_methods, reason = "a test's switch, not configuration")]
fn is_told(switch: &str, name: &str) -> bool {
    std::env::var(switch).is_ok_and(|at| at == name)
}

/// Nothing, in a build without crash points.
#[cfg(not(feature = "crash-points"))]
pub const fn point(_name: &str) {}
