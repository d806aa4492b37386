//! What the system says of the memory of this process.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// The largest resident set so far, in bytes; `None` where the system does not tell.
pub(crate) fn resident_peak() -> Option<u64> {
    of_status("VmHWM:")
}

/// A line of the system's account of this process, in bytes: `VmRSS:` is what is resident now.
pub(crate) fn of_status(name: &str) -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, name)
}

/// The memory that this process may take at most, in bytes: that of the machine, or what its control groups leave of
/// it, be they a container's or a batch job's; `None` where the system does not tell.
pub(crate) fn of_machine() -> Option<u64> {
    // Readers ask for every array of a file.
    static FOUND: LazyLock<Option<u64>> = LazyLock::new(|| {
        let all = fs::read_to_string("/proc/meminfo").ok()?;
        let all = kibibytes(&all, "MemTotal:")?;
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Some(least_limit(&groups, Path::new("/sys/fs/cgroup")).map_or(all, |limit| limit.min(all)))
    });
    *FOUND
}

/// The memory of this machine, where it is less than so many bytes.
pub(crate) fn too_little_for(bytes: u64) -> Option<u64> {
    of_machine().filter(|&machine| bytes > machine)
}

/// The least limit of the control groups that `account` names, of either version, and of those around them; `root` is
/// where they lie.
fn least_limit(account: &str, root: &Path) -> Option<u64> {
    let of_line = |line: &str| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let (root, name) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|of| of == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let own = root.join(group.trim_start_matches('/'));
        let groups = own.ancestors().take_while(|dir| dir.starts_with(&root));
        groups.filter_map(|dir| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok()).min()
    };
    account.lines().filter_map(of_line).min()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_any_group_around_the_process_counts() {
        let root = tempfile::tempdir().unwrap();
        let limits = [("a/b/memory.max", "max\n"), ("a/memory.max", "64\n"), ("memory/c/memory.limit_in_bytes", "8\n")];
        for (name, limit) in limits {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, limit).unwrap();
        }
        for (account, limit) in [("0::/a/b\n", Some(64)), ("0::/\n", None), ("2:cpu:/a\n1:memory:/c/d\n", Some(8))] {
            assert_eq!(least_limit(account, root.path()), limit, "{account}");
        }
    }
}
