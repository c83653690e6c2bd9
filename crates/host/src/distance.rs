// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far two cores are from each other: the time that a cache line takes from one to the other and back.
//!
//! Both processes spin, so that neither the kernel nor a sleeping core takes part. A round trip is two hops.

use std::fs::File;
use std::hint::spin_loop;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::peer::{Peer, Place};
use crate::record::Quantity;
use crate::region::Shared;
use crate::stretch::{Effort, Subject, measure};
use barewire_recorder::LaunchError;

/// Values of the word: whose turn it is.
const INITIATOR: u32 = 0;
const RESPONDER: u32 = 1;
/// The answering process has not begun after so long, or is gone.
const PATIENCE: Duration = Duration::from_secs(1);
/// Reads of the word between two looks at the clock.
const READS_PER_CLOCK: u32 = 1 << 16;

pub fn run(other: Option<usize>, effort: Effort, output: &mut dyn Write) -> Result<(), LaunchError> {
    let Some(core) = other else { return Ok(()) };
    let file = Shared::file()?;
    let shared = Shared::new(&file)?;
    let _peer = Peer::start(&["bounce"], core, file.into(), Stdio::null())?;
    let repeat = |times| {
        for _ in 0..times {
            shared.word().store(RESPONDER, Ordering::Release);
            wait_for(shared.word(), INITIATOR)?;
        }
        Ok(())
    };
    // The first answer takes as long as its process takes to start.
    repeat(1)?;
    let mut subjects = [Subject { name: "line/across", operations: 2, repeat: Box::new(repeat) }];
    measure(&mut subjects, 0, Quantity::Time, effort, output)
}

/// The answering side: runs until its parent ends or kills it.
pub fn bounce(place: &Place) -> Result<(), LaunchError> {
    place.settle()?;
    // SAFETY: standard input is open, and nothing else in this process uses it.
    let shared = Shared::new(&unsafe { File::from_raw_fd(libc::STDIN_FILENO) })?;
    loop {
        while shared.word().load(Ordering::Acquire) != RESPONDER {
            spin_loop();
        }
        shared.word().store(INITIATOR, Ordering::Release);
    }
}

fn wait_for(word: &AtomicU32, turn: u32) -> Result<(), LaunchError> {
    let began = Instant::now();
    loop {
        for _ in 0..READS_PER_CLOCK {
            if word.load(Ordering::Acquire) == turn {
                return Ok(());
            }
            spin_loop();
        }
        if began.elapsed() > PATIENCE {
            return Err(LaunchError::Failed("no answer from the other core within a second".to_owned()));
        }
    }
}
