// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cost of entering the kernel.

use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::Write;
use std::os::fd::AsRawFd;

use crate::record::Quantity;
use crate::stretch::{Effort, Subject, measure};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

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
    let mut subjects = [
        Subject { name: "getppid", operations: 1, repeat: Box::new(getppid) },
        Subject { name: "write", operations: 1, repeat: Box::new(write) },
        Subject { name: "clock", operations: 1, repeat: Box::new(clock) },
    ];
    measure(&mut subjects, 0, Quantity::Time, effort, output)
}
