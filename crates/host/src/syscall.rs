// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cost of entering the kernel.

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::Write;
use std::os::fd::AsRawFd;

use crate::record::Quantity;
use crate::stretch::{Effort, Subject, measure};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// A file that every system has.
const PATH: &CStr = c"/dev/null";

pub fn run(effort: Effort, output: &mut dyn Write) -> Result<(), LaunchError> {
    let null = OpenOptions::new().write(true).open("/dev/null").map_err(|e| LaunchError::system("/dev/null", e))?;
    let getppid = |times| {
        for _ in 0..times {
            // SAFETY: no arguments, and it cannot fail. Called by number, because a C library may cache the result.
            black_box(unsafe { libc::syscall(libc::SYS_getppid) });
        }
        Ok(())
    };
    let write = |times| {
        for _ in 0..times {
            // SAFETY: one byte of a constant.
            if unsafe { libc::write(null.as_raw_fd(), b"x".as_ptr().cast(), 1) } != 1 {
                return Err(LaunchError::last("write to /dev/null"));
            }
        }
        Ok(())
    };
    let clock = |times| {
        for _ in 0..times {
            black_box(now_ns());
        }
        Ok(())
    };
    let zero = OpenOptions::new().read(true).open("/dev/zero").map_err(|e| LaunchError::system("/dev/zero", e))?;
    let read = |times| {
        let mut byte = 0_u8;
        for _ in 0..times {
            // SAFETY: one byte, alive during the call.
            if unsafe { libc::read(zero.as_raw_fd(), (&raw mut byte).cast(), 1) } != 1 {
                return Err(LaunchError::last("read of /dev/zero"));
            }
        }
        Ok(())
    };
    let stat = |times| {
        // SAFETY: zeros are a valid value.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        for _ in 0..times {
            // SAFETY: the path is a C string, and `found` outlives the call.
            if unsafe { libc::stat(PATH.as_ptr(), &raw mut found) } != 0 {
                return Err(LaunchError::last("stat"));
            }
        }
        Ok(())
    };
    let open = |times| {
        for _ in 0..times {
            // SAFETY: the path is a C string.
            let descriptor = unsafe { libc::open(PATH.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
            // SAFETY: the descriptor is new, and nothing else uses it.
            if descriptor < 0 || unsafe { libc::close(descriptor) } != 0 {
                return Err(LaunchError::last("open and close"));
            }
        }
        Ok(())
    };
    catch_signal()?;
    let signal = |times| {
        for _ in 0..times {
            // SAFETY: no pointers; the handler does nothing.
            if unsafe { libc::raise(libc::SIGUSR1) } != 0 {
                return Err(LaunchError::last("raise"));
            }
        }
        Ok(())
    };
    let mut subjects = [
        Subject { name: "getppid", operations: 1, repeat: Box::new(getppid) },
        Subject { name: "write", operations: 1, repeat: Box::new(write) },
        Subject { name: "read", operations: 1, repeat: Box::new(read) },
        Subject { name: "stat", operations: 1, repeat: Box::new(stat) },
        Subject { name: "open", operations: 1, repeat: Box::new(open) },
        Subject { name: "signal", operations: 1, repeat: Box::new(signal) },
        Subject { name: "clock", operations: 1, repeat: Box::new(clock) },
    ];
    measure(&mut subjects, 0, Quantity::Time, effort, output)
}

/// Handles SIGUSR1 by a function that does nothing.
fn catch_signal() -> Result<(), LaunchError> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: zeros are a valid action without flags and with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as *const () as libc::sighandler_t;
    // SAFETY: the action outlives the call, and its handler is safe at any time.
    if unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(LaunchError::last("sigaction"));
    }
    Ok(())
}
