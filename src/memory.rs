//! What the system says of the memory of this process.

use std::fs;

/// The largest resident set so far, in bytes; `None` where the system does not tell.
pub(crate) fn resident_peak() -> Option<u64> {
    of_status("VmHWM:")
}

/// A line of the system's account of this process, in bytes: `VmRSS:` is what is resident now.
pub(crate) fn of_status(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Lets [`resident_peak`] begin anew with what is resident now; without effect where the system has no such thing.
pub(crate) fn forget_peak() {
    // Linux only; elsewhere there is no peak to forget.
    let _ = fs::write("/proc/self/clear_refs", "5");
}
