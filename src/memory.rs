//! What the system says of the memory of this process.

use std::fs;

/// The largest resident set so far, in bytes; `None` where the system does not tell.
pub(crate) fn resident_peak() -> Option<u64> {
    of_status("VmHWM:")
}

/// A line of the system's account of this process, in bytes: `VmRSS:` is what is resident now.
pub(crate) fn of_status(name: &str) -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, name)
}

/// The memory that this process may take at most, in bytes: that of the machine, or what a container leaves of it;
/// `None` where the system does not tell.
pub(crate) fn of_machine() -> Option<u64> {
    let all = fs::read_to_string("/proc/meminfo").ok()?;
    let all = kibibytes(&all, "MemTotal:")?;
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|limit| limit.trim().parse().ok());
    Some(limit.map_or(all, |limit: u64| limit.min(all)))
}

/// A line of an account, in bytes.
fn kibibytes(account: &str, name: &str) -> Option<u64> {
    let line = account.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Lets [`resident_peak`] begin anew with what is resident now; without effect where the system has no such thing.
pub(crate) fn forget_peak() {
    // Linux only; elsewhere there is no peak to forget.
    let _ = fs::write("/proc/self/clear_refs", "5");
}
