// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Completion queues.

use std::collections::VecDeque;
use std::ffi::c_void;

use barewire_endpoint::WaitPolicy;

use crate::bindings::*;
use crate::edge::{Errno, Result};
use crate::notifier::Notifier;
use crate::wait_set::WaitSet;

/// Number of unread entries, 5 MB, from which on peers are held back, unless the program has asked for a longer queue.
/// A program that reads its queue never has as many.
const UNREAD_MAX: usize = 1 << 16;

/// A completion queue.
pub(crate) struct Queue {
    entries: VecDeque<Entry>,
    /// Number of unread entries from which on peers are held back.
    unread_max: usize,
    format: fi_cq_format,
    pub notifier: Notifier,
    /// The descriptor that the program sleeps on, if it requested one.
    pub set: Option<WaitSet>,
    /// A waiter may be blocked on `set`.
    pub is_armed: bool,
    pub patience: WaitPolicy,
    /// Number of endpoints bound to it.
    pub bound_endpoints: usize,
    /// The last read emptied the queue.
    is_drained: bool,
}

/// A completion.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub context: *mut c_void,
    pub flags: u64,
    /// Bytes of the message, or of the buffer if the message was truncated.
    pub length: usize,
    pub buffer: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub source: fi_addr_t,
    /// 0 on success.
    pub error: u32,
    /// Bytes of the message beyond the buffer.
    pub truncated_bytes: usize,
}

// SAFETY: the pointers are the program's, and only returned to it.
unsafe impl Send for Entry {}

impl Queue {
    /// A queue for at least `size` entries.
    pub fn new(
        format: fi_cq_format,
        size: usize,
        notifier: Notifier,
        set: Option<WaitSet>,
        patience: WaitPolicy,
    ) -> Self {
        Self {
            entries: VecDeque::with_capacity(64),
            unread_max: size.max(UNREAD_MAX),
            format,
            notifier,
            set,
            is_armed: false,
            patience,
            bound_endpoints: 0,
            is_drained: false,
        }
    }

    /// Removes the next entry, if it is an error.
    pub fn take_error(&mut self) -> Option<Entry> {
        self.entries.front().filter(|entry| entry.error != 0)?;
        self.entries.pop_front()
    }

    /// Whether the last read emptied the queue and nothing was added since. Resets itself.
    #[inline]
    pub fn was_drained(&mut self) -> bool {
        std::mem::take(&mut self.is_drained) && self.entries.is_empty()
    }

    #[inline]
    pub fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
        self.wake();
    }

    /// Wakes all threads that wait for a completion.
    #[inline]
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            self.notifier.notify();
        }
        self.notifier.notify_if_awaited();
    }

    /// Whether the program leaves so many entries unread that no peer may add more.
    #[inline]
    pub fn is_flooded(&self) -> bool {
        self.entries.len() >= self.unread_max
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Writes an entry that bypasses the queue, which must be empty.
    ///
    /// # Safety
    /// As for [`take`](Self::take), with room for one entry.
    #[inline]
    pub unsafe fn write_directly(&mut self, entry: &Entry, to: *mut u8, sources: *mut fi_addr_t) -> isize {
        // SAFETY: the caller's promise.
        unsafe {
            entry.write(self.format, to);
            if !sources.is_null() {
                *sources = entry.source;
            }
        }
        self.is_drained = true;
        1
    }

    /// Reads at most `max` entries.
    ///
    /// # Safety
    /// `to` must have room for `max` entries of this queue's format, `sources` be null or have room for as many.
    #[inline]
    pub unsafe fn take(&mut self, mut to: *mut u8, max: usize, sources: *mut fi_addr_t) -> Result<isize> {
        let mut read = 0;
        while read < max
            && let Some(entry) = self.entries.front()
            && entry.error == 0
        {
            // SAFETY: the caller's promise: room for another entry.
            unsafe {
                to = to.add(entry.write(self.format, to));
                if !sources.is_null() {
                    *sources.add(read) = entry.source;
                }
            }
            self.entries.pop_front();
            read += 1;
        }
        self.is_drained = read > 0 && self.entries.is_empty();
        match (read, self.entries.front()) {
            (0, None) => Err(Errno::AGAIN),
            (0, Some(entry)) if entry.error != 0 => Err(Errno::AVAILABLE),
            _ => Ok(read as isize),
        }
    }
}

impl Entry {
    /// Writes the entry in a queue's format; returns its size.
    ///
    /// # Safety
    /// `to` must have room for the entry.
    #[inline(always)]
    unsafe fn write(&self, format: fi_cq_format, to: *mut u8) -> usize {
        let &Self { context: op_context, flags, length: len, buffer: buf, data, tag, .. } = self;
        // SAFETY: the caller's promise.
        unsafe {
            match format {
                FI_CQ_FORMAT_TAGGED => {
                    let tagged = fi_cq_tagged_entry { op_context, flags, len, buf, data, tag };
                    to.cast::<fi_cq_tagged_entry>().write(tagged);
                    size_of::<fi_cq_tagged_entry>()
                }
                FI_CQ_FORMAT_DATA => {
                    to.cast::<fi_cq_data_entry>().write(fi_cq_data_entry { op_context, flags, len, buf, data });
                    size_of::<fi_cq_data_entry>()
                }
                FI_CQ_FORMAT_MSG => {
                    to.cast::<fi_cq_msg_entry>().write(fi_cq_msg_entry { op_context, flags, len });
                    size_of::<fi_cq_msg_entry>()
                }
                _ => {
                    to.cast::<fi_cq_entry>().write(fi_cq_entry { op_context });
                    size_of::<fi_cq_entry>()
                }
            }
        }
    }
}
