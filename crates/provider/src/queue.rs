// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What has ended and was not read, as completion queues tell it.

use std::collections::VecDeque;
use std::ffi::c_void;

use barewire_endpoint::Patience;

use crate::bindings::*;
use crate::edge::{Errno, Result};
use crate::notifier::Notifier;
use crate::wait_set::WaitSet;

/// What has ended and was not read.
pub(crate) struct Queue {
    entries: VecDeque<Entry>,
    format: fi_cq_format,
    pub notifier: Notifier,
    /// The descriptor that a program sleeps on, if it asked for one.
    pub set: Option<WaitSet>,
    /// Perhaps it does now.
    pub is_armed: bool,
    pub patience: Patience,
    /// Endpoints that are bound to it.
    pub users: usize,
    /// The last question took all there was.
    is_drained: bool,
}

/// An operation that has ended.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub context: *mut c_void,
    pub flags: u64,
    /// Of the message; of one that was cut, what there was room for.
    pub length: usize,
    pub buffer: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub source: fi_addr_t,
    /// 0: it worked.
    pub error: u32,
    /// Bytes that were cut off.
    pub lost: usize,
}

// SAFETY: the pointers in it are the program's, and only handed back to it.
unsafe impl Send for Entry {}

impl Queue {
    pub fn new(format: fi_cq_format, notifier: Notifier, set: Option<WaitSet>, patience: Patience) -> Self {
        let entries = VecDeque::with_capacity(64);
        Self { entries, format, notifier, set, is_armed: false, patience, users: 0, is_drained: false }
    }

    /// The next entry, if it is an error.
    pub fn take_error(&mut self) -> Option<Entry> {
        self.entries.front().filter(|entry| entry.error != 0)?;
        self.entries.pop_front()
    }

    /// Whether nothing has ended since the last question took all there was; true once for each.
    #[inline]
    pub fn was_drained(&mut self) -> bool {
        std::mem::take(&mut self.is_drained) && self.entries.is_empty()
    }

    #[inline]
    pub fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
        self.wake();
    }

    /// Wakes who sleeps until something has ended.
    #[inline]
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            self.notifier.notify();
        }
        self.notifier.notify_if_awaited();
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Hands over one that never stood in the queue, which has nothing else.
    ///
    /// # Safety
    /// As of [`take`](Self::take), with room for one.
    #[inline]
    pub unsafe fn hand_over(&mut self, entry: &Entry, to: *mut u8, sources: *mut fi_addr_t) -> isize {
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

    /// Reads `most` entries at most.
    ///
    /// # Safety
    /// `to` must have room for `most` entries of this queue's format, `sources` be null or have room for as many.
    #[inline]
    pub unsafe fn take(&mut self, mut to: *mut u8, most: usize, sources: *mut fi_addr_t) -> Result<isize> {
        let mut read = 0;
        while read < most
            && let Some(entry) = self.entries.front()
            && entry.error == 0
        {
            // SAFETY: the caller's promise: room for one more.
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
    /// Writes it in a queue's format; how many bytes that has.
    ///
    /// # Safety
    /// `to` must have room for it.
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
