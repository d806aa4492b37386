//! Runs a program and counts its system calls that change files below a directory; one of them does not go well.
//!
//! The kernel stops the program before each such call (a seccomp filter that asks its tracer), whichever thread makes
//! it, and goes on when this thread says so: the n-th call is one call, no kill is late, and every other call costs
//! nothing. `strace --inject` counts the calls of each thread for itself, so that calls of a thread that writes
//! checkpoints come into reach only behind as many of the main thread. A library that is loaded first sees what goes
//! through the C library, and misses the renames of `tempfile`, which asks the kernel itself.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::ptr::null_mut;

use libc::{c_int, c_long, pid_t, user_regs_struct};

/// What happens at a call, before it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// SIGKILL.
    Killed,
    /// SIGKILL when half of what a call writes is written.
    Torn,
    /// The call fails with this number, and those behind it are made.
    Once(c_int),
    /// The call fails, and those behind it that need room or rights.
    FromHere(c_int),
}

impl Fault {
    pub fn kills(self) -> bool {
        matches!(self, Self::Killed | Self::Torn)
    }

    pub fn error(self) -> Option<c_int> {
        match self {
            Self::Once(error) | Self::FromHere(error) => Some(error),
            Self::Killed | Self::Torn => None,
        }
    }

    /// The error of a call that stands `behind` the one with the fault, or is it (0).
    fn of(self, call: &Call, behind: usize) -> Option<c_int> {
        let is_met = match self {
            Self::Killed | Self::Torn => false,
            Self::Once(_) => behind == 0,
            Self::FromHere(libc::EACCES) => call.asks_rights(),
            Self::FromHere(_) => !call.removes(),
        };
        self.error().filter(|_| is_met)
    }
}

/// A system call that changes files.
#[derive(Clone, Debug)]
pub struct Call {
    pub name: &'static str,
    /// The file, or the new name of one that is renamed, as seen from the directory.
    pub path: PathBuf,
}

impl Call {
    pub fn writes(&self) -> bool {
        matches!(self.name, "write" | "pwrite64")
    }

    /// Whether it takes a name away, which needs no room.
    pub fn removes(&self) -> bool {
        self.name.starts_with("unlink") || self.name == "rmdir"
    }

    /// Whether the rights of files and directories are asked, and not those of an open file.
    pub fn asks_rights(&self) -> bool {
        !matches!(Named::of(self.name), Some(Named::Open(_)))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.path.display())
    }
}

/// The argument in which a call has its file.
#[derive(Clone, Copy)]
enum Named {
    /// A file that is open.
    Open(usize),
    /// A path.
    Path(usize),
    /// A path, behind the directory from which it is seen.
    At(usize),
}

/// Calls that change files, by number and name.
const CALLS: [(c_long, &str, Named); 27] = [
    (libc::SYS_write, "write", Named::Open(0)),
    (libc::SYS_pwrite64, "pwrite64", Named::Open(0)),
    (libc::SYS_writev, "writev", Named::Open(0)),
    (libc::SYS_pwritev, "pwritev", Named::Open(0)),
    (libc::SYS_fsync, "fsync", Named::Open(0)),
    (libc::SYS_fdatasync, "fdatasync", Named::Open(0)),
    (libc::SYS_ftruncate, "ftruncate", Named::Open(0)),
    (libc::SYS_fallocate, "fallocate", Named::Open(0)),
    (libc::SYS_sendfile, "sendfile", Named::Open(0)),
    (libc::SYS_copy_file_range, "copy_file_range", Named::Open(2)),
    (libc::SYS_open, "open", Named::Path(0)),
    (libc::SYS_openat, "openat", Named::At(0)),
    (libc::SYS_creat, "creat", Named::Path(0)),
    (libc::SYS_truncate, "truncate", Named::Path(0)),
    (libc::SYS_rename, "rename", Named::Path(1)),
    (libc::SYS_renameat, "renameat", Named::At(2)),
    (libc::SYS_renameat2, "renameat2", Named::At(2)),
    (libc::SYS_link, "link", Named::Path(1)),
    (libc::SYS_linkat, "linkat", Named::At(2)),
    (libc::SYS_symlink, "symlink", Named::Path(1)),
    (libc::SYS_symlinkat, "symlinkat", Named::At(1)),
    (libc::SYS_mkdir, "mkdir", Named::Path(0)),
    (libc::SYS_mkdirat, "mkdirat", Named::At(0)),
    (libc::SYS_unlink, "unlink", Named::Path(0)),
    (libc::SYS_unlinkat, "unlinkat", Named::At(0)),
    (libc::SYS_rmdir, "rmdir", Named::Path(0)),
    (libc::SYS_fchmod, "fchmod", Named::Open(0)),
];

impl Named {
    fn of(name: &str) -> Option<Self> {
        CALLS.iter().find(|call| call.1 == name).map(|call| call.2)
    }
}

/// A thread that stands before a system call, or behind one.
struct Stopped(pid_t);

impl Stopped {
    /// `ptrace` for this thread.
    fn ask(&self, request: libc::c_uint, data: *mut libc::c_void) -> io::Result<()> {
        // SAFETY: requests here read or write what `data` points to, or take it as a number.
        match unsafe { libc::ptrace(request, self.0, null_mut::<libc::c_void>(), data) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn registers(&self) -> io::Result<user_regs_struct> {
        // SAFETY: numbers, of which all bits may be zero.
        let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
        self.ask(libc::PTRACE_GETREGS, (&raw mut registers).cast())?;
        Ok(registers)
    }

    fn set(&self, mut registers: user_regs_struct) -> io::Result<()> {
        self.ask(libc::PTRACE_SETREGS, (&raw mut registers).cast())
    }

    /// Lets it go on, with a signal or without (0). One that was killed meanwhile does not.
    fn go_on(&self, request: libc::c_uint, signal: c_int) {
        let _ = self.ask(request, signal as usize as *mut _);
    }

    fn text(&self, mut at: u64) -> io::Result<PathBuf> {
        let memory = File::open(format!("/proc/{}/mem", self.0))?;
        let mut text = Vec::new();
        loop {
            // To the end of a page: the next one may not be there.
            let mut page = vec![0; 4096 - at as usize % 4096];
            memory.read_exact_at(&mut page, at)?;
            if let Some(end) = page.iter().position(|&byte| byte == 0) {
                text.extend(&page[..end]);
                return String::from_utf8(text).map(Into::into).map_err(io::Error::other);
            }
            at += page.len() as u64;
            text.extend(page);
        }
    }

    fn open_file(&self, descriptor: u64) -> io::Result<PathBuf> {
        fs::read_link(format!("/proc/{}/fd/{}", self.0, descriptor as c_int))
    }

    /// The call before which it stands, when that changes files below `root`, its working directory.
    fn call(&self, registers: &user_regs_struct, root: &Path) -> io::Result<Option<Call>> {
        let number = registers.orig_rax as c_long;
        let Some(&(_, name, named)) = CALLS.iter().find(|call| call.0 == number) else { return Ok(None) };
        let arguments = [registers.rdi, registers.rsi, registers.rdx, registers.r10];
        let flags = match name {
            "open" => registers.rsi as c_int,
            "openat" => registers.rdx as c_int,
            _ => libc::O_CREAT,
        };
        if flags & (libc::O_CREAT | libc::O_WRONLY | libc::O_RDWR) == 0 {
            return Ok(None);
        }
        let path = match named {
            Named::Open(at) => self.open_file(arguments[at])?,
            Named::Path(at) => root.join(self.text(arguments[at])?),
            Named::At(at) => {
                let path = self.text(arguments[at + 1])?;
                let is_seen_from_root = path.is_absolute() || arguments[at] as c_int == libc::AT_FDCWD;
                let from = if is_seen_from_root { root.to_owned() } else { self.open_file(arguments[at])? };
                from.join(path)
            }
        };
        if name.starts_with("mkdir") && path.is_dir() {
            // It says so, whatever room and rights there are.
            return Ok(None);
        }
        Ok(path.strip_prefix(root).ok().map(|path| Call { name, path: path.to_owned() }))
    }
}

/// Stops at the calls of [`CALLS`] and lets all others pass.
fn filter() -> Vec<libc::sock_filter> {
    const ARCHITECTURE: u32 = 0xc000_003e;
    let load =
        |at| libc::sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: at };
    let unless = |k, jf| libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt: 0, jf, k };
    let give = |k| libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k };
    let head = [load(4), unless(ARCHITECTURE, 1 + 2 * CALLS.len() as u8), load(0)];
    let calls = CALLS.iter().flat_map(|call| [unless(call.0 as u32, 1), give(libc::SECCOMP_RET_TRACE)]);
    head.into_iter().chain(calls).chain([give(libc::SECCOMP_RET_ALLOW)]).collect()
}

/// Lets the kernel stop `command` for the thread that spawns it.
fn let_be_traced(command: &mut Command) {
    let filter = filter();
    let set_up = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        let outcomes = [
            // SAFETY: system calls on numbers and on a filter that is there until the end of this process.
            || unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) },
            // SAFETY: as above.
            || unsafe { libc::ptrace(libc::PTRACE_TRACEME) as c_int },
        ];
        if outcomes.iter().any(|outcome| outcome() == -1) {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above.
        match unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: nothing but system calls.
    unsafe { command.pre_exec(set_up) };
}

/// Runs `command` in `root` to its end, with a fault at a call, counted from 0; `begun` is told its process. Returns
/// its calls until then, and how it ended.
///
/// # Errors
/// Where processes may not be traced.
pub fn run(
    mut command: Command,
    root: &Path,
    fault: Option<(usize, Fault)>,
    begun: impl FnOnce(u32),
) -> io::Result<(Vec<Call>, ExitStatus)> {
    let_be_traced(&mut command);
    let child = command.current_dir(root).spawn()?;
    let main = child.id() as pid_t;
    begun(child.id());
    let options = libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_EXITKILL;
    let (mut calls, mut is_set, mut torn) = (Vec::new(), false, None);
    loop {
        let mut status = 0;
        // Children of this thread alone: others wait for theirs.
        // SAFETY: it writes the status and nothing else.
        let found = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if found == -1 {
            let error = io::Error::last_os_error();
            if error.kind() == ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        let thread = Stopped(found);
        if !libc::WIFSTOPPED(status) {
            if found == main {
                return Ok((calls, ExitStatus::from_raw(status)));
            }
            continue;
        }
        if !is_set {
            // It has begun its program, and made no call yet.
            thread.ask(libc::PTRACE_SETOPTIONS, options as usize as *mut _)?;
            is_set = true;
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if torn == Some(found) {
            // SAFETY: a signal to a child that nobody has waited for.
            unsafe { libc::kill(main, libc::SIGKILL) };
        }
        if event != libc::PTRACE_EVENT_SECCOMP {
            let is_own = event != 0 || matches!(signal, libc::SIGTRAP | libc::SIGSTOP);
            thread.go_on(libc::PTRACE_CONT, if is_own { 0 } else { signal });
            continue;
        }
        // A thread that was killed with the others says nothing more.
        let Ok(mut registers) = thread.registers() else { continue };
        let Ok(Some(call)) = thread.call(&registers, root) else {
            thread.go_on(libc::PTRACE_CONT, 0);
            continue;
        };
        let behind = fault.and_then(|(n, fault)| Some((fault, calls.len().checked_sub(n)?)));
        let error = behind.and_then(|(fault, behind)| fault.of(&call, behind));
        calls.push(call);
        match behind {
            Some((Fault::Killed, 0)) => {
                // SAFETY: as above.
                unsafe { libc::kill(main, libc::SIGKILL) };
            }
            Some((Fault::Torn, 0)) => {
                registers.rdx /= 2;
                thread.set(registers)?;
                torn = Some(found);
                thread.go_on(libc::PTRACE_SYSCALL, 0);
                continue;
            }
            _ => {}
        }
        if let Some(error) = error {
            // No call is made, and this is its answer.
            registers.orig_rax = u64::MAX;
            registers.rax = i64::from(-error) as u64;
            thread.set(registers)?;
        }
        thread.go_on(libc::PTRACE_CONT, 0);
    }
}
