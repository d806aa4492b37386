//! The program `graphsieve`: parses the command line, runs it, and turns the outcome into an exit status.

use std::env;
use std::panic;
use std::process::ExitCode;
use std::sync::Once;

use clap::Parser;
use graphsieve::cli::{self, Cli, report_error};
use graphsieve::error::{Error, is_caught};
use graphsieve_kernels::device::{self, Failure};

fn main() -> ExitCode {
    report_panics();
    keep_memory();
    name_runtime_directory();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refused) => return cli::refuse(&refused),
    };
    // Caught so that temporary files are removed on the way out; the hook has told the user.
    panic::catch_unwind(|| run(cli)).unwrap_or(ExitCode::FAILURE)
}

fn run(cli: Cli) -> ExitCode {
    match cli::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report_error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Lets the allocator keep what a step gives back for the next one. By default every matrix above 128 KiB is mapped
/// anew, and the system clears its pages: a quarter of an epoch on a processor.
fn keep_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: no other thread runs yet; both calls only set limits, and what they refuse stays as it was.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 28);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
    }
}

/// Where there is no desktop, Mesa looks for one before it lists devices, and a library of it says on stderr that this
/// variable is missing, past the log and its format. A directory that is not there is no desktop either.
fn name_runtime_directory() {
    #[cfg(target_os = "linux")]
    if env::var_os("XDG_RUNTIME_DIR").is_none() {
        // SAFETY: no other thread runs yet.
        unsafe { env::set_var("XDG_RUNTIME_DIR", "/nonexistent") };
    }
}

/// The last resort: a panic is a bug of this program, told in one line. Further ones follow from the first.
fn report_panics() {
    static FIRST: Once = Once::new();
    panic::set_hook(Box::new(|panic| {
        if is_caught() {
            return;
        }
        FIRST.call_once(|| {
            let message = panic.payload_as_str().unwrap_or("no message").replace('\n', " ");
            let place = panic.location().map_or_else(String::new, |at| format!(" at {}:{}", at.file(), at.line()));
            // What follows from a device that failed is no bug of this program.
            if let Some(Failure { reason, kept }) = device::failure() {
                return report_error(&Error::DeviceFailed { work: "of this run", reason, kept });
            }
            let text = format!("internal error{place}: {message}; please report it together with the command line");
            report_error(&text);
        });
    }));
}
