// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Context switches in a ring of processes on one core: each reads its working set, and passes a byte on by a pipe.
//!
//! Beside it one process does the same alone, for the costs that are not the switch's. The difference is the cost of
//! the switch itself, and of getting the working set back into the cache.

use std::fs::File;
use std::hint::black_box;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::FromRawFd;

use crate::memory;
use crate::peer::{Peer, Place};
use crate::record::Quantity;
use crate::region::Region;
use crate::stretch::{Effort, Repeat, Subject, measure};
use barewire_recorder::LaunchError;

const PROCESSES: [(usize, &str); 3] = [(2, "processes-2"), (8, "processes-8"), (16, "processes-16")];
/// Bytes of a process's working set.
const SIZES: [usize; 3] = [0, 16 << 10, 64 << 10];

pub fn run(core: usize, random: &mut fastrand::Rng, effort: Effort, output: &mut dyn Write) -> Result<(), LaunchError> {
    let mut sizes = SIZES;
    random.shuffle(&mut sizes);
    for bytes in sizes {
        let mut alone = Ring::start(1, bytes, core)?;
        let mut rings: Vec<(usize, &str, Ring)> = PROCESSES
            .into_iter()
            .map(|(processes, name)| Ring::start(processes, bytes, core).map(|ring| (processes, name, ring)))
            .collect::<Result<_, _>>()?;
        let mut subjects = vec![Subject { name: "alone", operations: 1, repeat: alone.rounds() }];
        subjects.extend(rings.iter_mut().map(|(processes, name, ring)| Subject {
            name,
            operations: *processes as u64,
            repeat: ring.rounds(),
        }));
        measure(&mut subjects, bytes, Quantity::Time, effort, output)?;
    }
    Ok(())
}

/// This process as a member of a ring, with the others.
struct Ring {
    next: PipeWriter,
    last: PipeReader,
    set: WorkingSet,
    _others: Vec<Peer>,
}

impl Ring {
    /// A ring of one writes to itself.
    fn start(processes: usize, bytes: usize, core: usize) -> Result<Self, LaunchError> {
        let failed = |error| LaunchError::system("pipe", error);
        let (mut last, next) = std::io::pipe().map_err(failed)?;
        let mut others = Vec::new();
        for _ in 1..processes {
            let (reader, writer) = std::io::pipe().map_err(failed)?;
            others.push(Peer::start(&["member", &bytes.to_string()], core, last.into(), writer.into())?);
            last = reader;
        }
        let mut ring = Self { next, last, set: WorkingSet::new(bytes)?, _others: others };
        // Once all have started.
        ring.rounds()(1)?;
        Ok(ring)
    }

    /// Passes the byte around the ring.
    fn rounds(&mut self) -> Repeat<'_> {
        Box::new(move |times| {
            let mut byte = [1];
            for _ in 0..times {
                self.next.write_all(&byte).and_then(|()| self.last.read_exact(&mut byte)).map_err(lost)?;
                self.set.read();
            }
            Ok(())
        })
    }
}

fn lost(error: std::io::Error) -> LaunchError {
    LaunchError::Failed(format!("a process of the ring is gone: {error}"))
}

/// Another process of a ring: runs until its standard input is closed or its parent ends.
pub fn member(bytes: usize, place: &Place) -> Result<(), LaunchError> {
    place.settle()?;
    let set = WorkingSet::new(bytes)?;
    // SAFETY: standard input and output are open, and nothing else in this process uses them.
    let (mut input, mut output) =
        unsafe { (File::from_raw_fd(libc::STDIN_FILENO), File::from_raw_fd(libc::STDOUT_FILENO)) };
    let mut byte = [0];
    while input.read_exact(&mut byte).is_ok() {
        set.read();
        if output.write_all(&byte).is_err() {
            break;
        }
    }
    Ok(())
}

/// Memory that is read between two switches; may be empty.
struct WorkingSet(Option<Region>);

impl WorkingSet {
    fn new(bytes: usize) -> Result<Self, LaunchError> {
        Ok(Self(if bytes == 0 { None } else { Some(Region::anonymous(bytes)?) }))
    }

    #[inline]
    fn read(&self) {
        if let Some(region) = &self.0 {
            black_box(memory::read(black_box(region.words())));
        }
    }
}
