// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creating processes: by fork alone, with a small program, and with a shell that starts it. Each is waited for.

use std::ffi::{CStr, CString};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::ptr;

use crate::record::Quantity;
use crate::stretch::{Effort, Subject, measure};
use barewire_recorder::LaunchError;

/// The argument with which this program is the small one.
pub const HELLO: &str = "hello";
const SHELL: &CStr = c"/bin/sh";

/// What the small program does: it prints a line.
pub fn hello() -> ExitCode {
    let written = writeln!(std::io::stdout(), "hello world");
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

pub fn run(effort: Effort, output: &mut dyn Write) -> Result<(), LaunchError> {
    let null = OpenOptions::new().write(true).open("/dev/null").map_err(|e| LaunchError::system("/dev/null", e))?;
    let program = std::env::current_exe().map_err(|error| LaunchError::system("finding this program", error))?;
    let program = CString::new(program.as_os_str().as_bytes()).expect("a path has no NUL");
    let hello = CString::new(HELLO).expect("no NUL");
    let small = [program.as_ptr(), hello.as_ptr(), ptr::null()];
    // The program's path is no part of the script, so it needs no quotes.
    let script = CString::new(format!("\"$0\" {HELLO}")).expect("no NUL");
    let shell = [SHELL.as_ptr(), c"-c".as_ptr(), script.as_ptr(), program.as_ptr(), ptr::null()];
    let null = null.as_raw_fd();
    let mut subjects = [
        Subject { name: "fork", operations: 1, repeat: Box::new(|times| repeated(times, || {})) },
        Subject {
            name: "exec",
            operations: 1,
            repeat: Box::new(|times| repeated(times, || execute(&program, &small, null))),
        },
        Subject {
            name: "shell",
            operations: 1,
            repeat: Box::new(|times| repeated(times, || execute(SHELL, &shell, null))),
        },
    ];
    measure(&mut subjects, 0, Quantity::Time, effort, output)
}

/// Forks a process that runs `child` and exits, and waits for it; `times` times.
fn repeated(times: u64, child: impl Fn()) -> Result<(), LaunchError> {
    for _ in 0..times {
        // SAFETY: this process has one thread, and `child` makes system calls only.
        let process = unsafe { libc::fork() };
        if process < 0 {
            return Err(LaunchError::last("fork"));
        }
        if process == 0 {
            child();
            // SAFETY: no pointers, and it does not return.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        while unsafe { libc::waitpid(process, &raw mut status, 0) } < 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(LaunchError::system("waitpid", error));
            }
        }
        if status != 0 {
            return Err(LaunchError::Failed(format!("a new process ended with the status {status:#x}")));
        }
    }
    Ok(())
}

/// Becomes another program with its output discarded; exits with 127 if it cannot.
fn execute(program: &CStr, arguments: &[*const libc::c_char], null: libc::c_int) {
    // SAFETY: the descriptor is open, and the arguments are C strings that end with a null pointer.
    unsafe {
        libc::dup2(null, libc::STDOUT_FILENO);
        libc::execv(program.as_ptr(), arguments.as_ptr());
        libc::_exit(127);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_or_is_missing_is_an_error() {
        repeated(3, || {}).unwrap();
        let null = OpenOptions::new().write(true).open("/dev/null").unwrap();
        let missing = [c"/nonexistent".as_ptr(), ptr::null()];
        let error = repeated(1, || execute(c"/nonexistent", &missing, null.as_raw_fd())).unwrap_err();
        assert!(error.to_string().contains("0x7f00"), "{error}");
    }
}
