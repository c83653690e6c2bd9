// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replacement of a pipe's shared memory: the same words, and cells whose accesses loom checks for data races. A line
//! is a word and 56 bytes; message bytes that cover a word are stored to it.

use std::cell;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use nix::errno::Errno;

use crate::bounds::{LINE_BYTES, MESSAGES_PER_RING, STEPS_PER_RING};
use crate::error::ShmError;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const WORD_BYTES: usize = 8;
const REST: usize = LINE_BYTES - WORD_BYTES;

pub(crate) struct Memory([Ring; 2]);

#[derive(Clone)]
pub(crate) struct Ring {
    shared: Arc<Shared>,
    pub(crate) bytes: usize,
}

struct Shared {
    control: Control,
    lines: Vec<(AtomicU64, UnsafeCell<[u8; REST]>)>,
    /// The message lent to the receiver.
    lent: cell::UnsafeCell<Vec<u8>>,
}

// SAFETY: loom runs one thread at a time, and only the receiver uses `lent`.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

pub(crate) struct Control {
    pub(crate) acknowledged: Padded<AtomicU64>,
    pub(crate) receiver_sleeps: Padded<AtomicU32>,
    pub(crate) sender_sleeps: Padded<AtomicU32>,
}

pub(crate) struct Padded<T>(pub(crate) T);

pub(crate) fn check(_: usize) -> Result<(), ShmError> {
    Ok(())
}

pub(crate) const fn message_max(ring_bytes: usize) -> usize {
    ring_bytes / MESSAGES_PER_RING - WORD_BYTES
}

impl Memory {
    pub(crate) fn new(ring_bytes: usize) -> Self {
        Self([(); 2].map(|()| Ring::new(ring_bytes)))
    }

    /// The same memory, for the other end.
    pub(crate) fn again(&self) -> Self {
        Self(self.0.clone())
    }

    pub(crate) fn ring(&self, direction: usize) -> Ring {
        self.0[direction].clone()
    }
}

impl Ring {
    pub(crate) fn new(bytes: usize) -> Self {
        let line = |_| (AtomicU64::named(0, "word"), UnsafeCell::new([0; REST]));
        let control = Control {
            acknowledged: Padded(AtomicU64::named(0, "acknowledged")),
            receiver_sleeps: Padded(AtomicU32::new(0)),
            sender_sleeps: Padded(AtomicU32::new(0)),
        };
        let lines = (0..bytes / LINE_BYTES).map(line).collect();
        Self { shared: Arc::new(Shared { control, lines, lent: cell::UnsafeCell::default() }), bytes }
    }

    pub(crate) fn word(&self, position: u64) -> &AtomicU64 {
        &self.line(position).0
    }

    pub(crate) fn control(&self) -> &Control {
        &self.shared.control
    }

    /// # Safety
    /// No requirement: loom detects data races.
    pub(crate) unsafe fn write<const PARTS: usize>(&self, position: u64, message: [&[u8]; PARTS]) {
        let message = message.concat();
        let (first, rest) = message.split_at(message.len().min(REST));
        let line_at = position - WORD_BYTES as u64;
        self.fill(line_at, first);
        for (line, bytes) in rest.chunks(LINE_BYTES).enumerate() {
            let at = line_at + (LINE_BYTES * (line + 1)) as u64;
            let (word, bytes) = bytes.split_at(bytes.len().min(WORD_BYTES));
            let mut covered = [0; WORD_BYTES];
            covered[..word.len()].copy_from_slice(word);
            self.word(at).store(u64::from_ne_bytes(covered), Ordering::Relaxed);
            self.fill(at, bytes);
        }
    }

    /// # Safety
    /// As for [`write`](Self::write).
    pub(crate) unsafe fn lend<'a>(&self, position: u64, bytes: usize) -> &'a [u8] {
        // SAFETY: only the receiver calls this, and its previous loan has ended.
        let lent = unsafe { &mut *self.shared.lent.get() };
        lent.clear();
        let mut at = position - WORD_BYTES as u64;
        while lent.len() < bytes {
            if !lent.is_empty() {
                lent.extend(self.word(at).load(Ordering::Relaxed).to_ne_bytes());
            }
            // SAFETY: loom checks that no thread writes to the cell.
            self.line(at).1.with(|cell| lent.extend(unsafe { *cell }));
            at += LINE_BYTES as u64;
        }
        lent.truncate(bytes);
        lent
    }

    pub(crate) fn release(&self, _: u64, _: u64) {}

    pub(crate) const fn populate(&self, _: u64, _: u64) -> Result<u64, Errno> {
        Err(Errno::EINVAL)
    }

    pub(crate) const fn message_max(&self) -> usize {
        message_max(self.bytes)
    }

    pub(crate) const fn step(&self) -> u64 {
        (self.bytes / STEPS_PER_RING) as u64
    }

    fn line(&self, position: u64) -> &(AtomicU64, UnsafeCell<[u8; REST]>) {
        &self.shared.lines[position as usize / LINE_BYTES % self.shared.lines.len()]
    }

    fn fill(&self, line_at: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            // SAFETY: loom checks that no other thread accesses the cell.
            self.line(line_at).1.with_mut(|cell| unsafe { (&mut *cell)[..bytes.len()].copy_from_slice(bytes) });
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Ring of {} bytes", self.bytes)
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Memory")
    }
}
