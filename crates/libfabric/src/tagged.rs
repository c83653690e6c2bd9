// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tagged messages to and from one peer: injected if short enough, with completions read from the completion queue.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

use crate::bindings::*;
use crate::endpoint::{Endpoint, call_op};
use crate::error::FabricError;

/// Result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// Copied: the buffer can be reused.
    Injected,
    /// In flight: the buffer is read until a completion is reported.
    InFlight,
    /// Not sent: the provider has no room. Poll the completion queue, then retry.
    Busy,
}

/// Operations completed since the last poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completions {
    /// Sends that have completed; their buffers can be reused.
    pub sent: usize,
    /// The posted receive has completed with this many bytes.
    pub received: Option<usize>,
    /// The posted receive was cancelled.
    pub cancelled: bool,
}

/// Tag of all messages: there is one peer, and its messages are ordered.
const TAG: u64 = 7;
/// Limit of outstanding operations, one of which is the receive.
const OPERATIONS: usize = 65;
const RECEIVE: u16 = 0;
/// Completions to read per call.
const READ_COUNT: usize = 8;

/// Contexts that providers may use while an operation is outstanding; mode `FI_CONTEXT2` requires them.
pub(crate) struct Contexts {
    memory: Box<[fi_context2]>,
    /// Free contexts for sends.
    free: Vec<u16>,
}

impl Contexts {
    pub fn new() -> Self {
        let memory = (0..OPERATIONS).map(|_| fi_context2::default()).collect();
        Self { memory, free: (RECEIVE + 1..OPERATIONS as u16).collect() }
    }

    #[inline]
    fn at(&mut self, number: u16) -> *mut c_void {
        (&raw mut self.memory[usize::from(number)]).cast()
    }

    /// Index of the context in a completion.
    #[inline]
    fn number(&self, context: *mut c_void) -> u16 {
        ((context as usize - self.memory.as_ptr() as usize) / size_of::<fi_context2>()) as u16
    }
}

impl Endpoint {
    /// Sends a message.
    ///
    /// # Errors
    /// [`FabricError::TooLong`], [`FabricError::Call`].
    ///
    /// # Safety
    /// After [`SendStatus::InFlight`], the message must stay in place and unchanged until [`Completions::sent`] has
    /// counted it, or the endpoint is dropped.
    #[inline]
    pub unsafe fn send(&mut self, message: &[u8]) -> Result<SendStatus, FabricError> {
        let (endpoint, buffer, bytes) = (self.endpoint.get(), message.as_ptr().cast::<c_void>(), message.len());
        if bytes <= self.inject_bytes {
            // SAFETY: the endpoint is open; an injected message is copied before the call returns.
            let status = unsafe { call_op!((*(*endpoint).tagged).inject, endpoint, buffer, bytes, self.peer, TAG) };
            return match status {
                0 => Ok(SendStatus::Injected),
                status => self.send_failed("fi_tinject", status, bytes),
            };
        }
        let Some(number) = self.contexts.free.pop() else { return Ok(SendStatus::Busy) };
        let context = self.contexts.at(number);
        // SAFETY: the endpoint is open; the caller keeps the message, and this the context, until the send completes.
        let status = unsafe {
            call_op!((*(*endpoint).tagged).send, endpoint, buffer, bytes, ptr::null_mut(), self.peer, TAG, context)
        };
        if status == 0 {
            return Ok(SendStatus::InFlight);
        }
        self.contexts.free.push(number);
        self.send_failed("fi_tsend", status, bytes)
    }

    #[cold]
    fn send_failed(&self, call: &'static str, status: isize, bytes: usize) -> Result<SendStatus, FabricError> {
        let limit = self.message_bytes_max();
        match status {
            _ if status == -(FI_EAGAIN as isize) => Ok(SendStatus::Busy),
            _ if bytes > limit => Err(FabricError::TooLong { bytes, limit, provider: self.provider() }),
            _ => Err(self.library.call_failed(call, status)),
        }
    }

    /// Posts the receive, of which there is one at a time. False if the provider has no room now.
    ///
    /// # Errors
    /// [`FabricError::Call`].
    ///
    /// # Safety
    /// The memory must stay in place, and be used by nothing else, until [`Completions`] has reported the receive as
    /// completed or cancelled, or the endpoint is dropped.
    #[inline]
    pub unsafe fn receive(&mut self, message: &mut [u8]) -> Result<bool, FabricError> {
        let (endpoint, context) = (self.endpoint.get(), self.contexts.at(RECEIVE));
        let (buffer, bytes) = (message.as_mut_ptr().cast::<c_void>(), message.len());
        // SAFETY: the endpoint is open; the caller keeps the memory, and this the context, until the receive completes.
        let status = unsafe {
            call_op!((*(*endpoint).tagged).recv, endpoint, buffer, bytes, ptr::null_mut(), self.peer, TAG, 0, context)
        };
        match status {
            0 => Ok(true),
            status if status == -(FI_EAGAIN as isize) => Ok(false),
            status => Err(self.library.call_failed("fi_trecv", status)),
        }
    }

    /// Cancels the receive; [`Completions`] reports whether it was cancelled or had completed before.
    ///
    /// # Errors
    /// [`FabricError::Call`].
    pub fn cancel(&mut self) -> Result<(), FabricError> {
        let (fid, context) = (self.endpoint.fid(), self.contexts.at(RECEIVE));
        // SAFETY: the endpoint is open; a context of no operation is allowed.
        let status = unsafe { call_op!((*(*self.endpoint.get()).ops).cancel, fid, context) };
        // A receive that has just completed cannot be cancelled.
        if status == 0 || status == -(libc::ENOENT as isize) || status == -(FI_EAGAIN as isize) {
            return Ok(());
        }
        Err(self.library.call_failed("fi_cancel", status))
    }

    /// Makes progress, and returns completions.
    ///
    /// # Errors
    /// [`FabricError::Call`], also for a failed operation.
    #[inline]
    pub fn poll(&mut self) -> Result<Completions, FabricError> {
        let queue = self.queue.get();
        let mut entries = [const { MaybeUninit::<fi_cq_tagged_entry>::uninit() }; READ_COUNT];
        // SAFETY: the queue is open, has entries of this format, and the array has room for this many.
        let read = unsafe { call_op!((*(*queue).ops).read, queue, entries.as_mut_ptr().cast(), READ_COUNT) };
        self.completions(&entries, read, "fi_cq_read")
    }

    /// As [`poll`](Self::poll), but sleeps until a completion, or for `patience`, in whole milliseconds.
    ///
    /// # Errors
    /// As for `poll`; -FI_ENOSYS if the endpoint was opened without a wait object.
    pub fn wait(&mut self, patience: Duration) -> Result<Completions, FabricError> {
        let queue = self.queue.get();
        let mut entries = [const { MaybeUninit::<fi_cq_tagged_entry>::uninit() }; READ_COUNT];
        let timeout = patience.as_millis().clamp(1, i32::MAX as u128) as i32;
        // SAFETY: as in `poll`; no wait condition.
        let read = unsafe {
            call_op!((*(*queue).ops).sread, queue, entries.as_mut_ptr().cast(), READ_COUNT, ptr::null(), timeout)
        };
        self.completions(&entries, read, "fi_cq_sread")
    }

    #[inline]
    fn completions(
        &mut self,
        entries: &[MaybeUninit<fi_cq_tagged_entry>; READ_COUNT],
        read: isize,
        call: &'static str,
    ) -> Result<Completions, FabricError> {
        let mut done = Completions::default();
        if read <= 0 {
            if read != 0 && read != -(FI_EAGAIN as isize) {
                self.failed(read, call, &mut done)?;
            }
            return Ok(done);
        }
        for entry in &entries[..read as usize] {
            // SAFETY: the queue has written this many.
            let entry = unsafe { entry.assume_init_ref() };
            match self.contexts.number(entry.op_context) {
                RECEIVE => done.received = Some(entry.len),
                number => {
                    self.contexts.free.push(number);
                    done.sent += 1;
                }
            }
        }
        Ok(done)
    }

    /// Reads an error entry; a cancelled receive is no error.
    #[cold]
    fn failed(&mut self, status: isize, call: &'static str, done: &mut Completions) -> Result<(), FabricError> {
        // A signal may end a sleep.
        if status == -(libc::EINTR as isize) || status == -(libc::ETIMEDOUT as isize) {
            return Ok(());
        }
        if status != -(FI_EAVAIL as isize) {
            return Err(self.library.call_failed(call, status));
        }
        let queue = self.queue.get();
        let mut error = fi_cq_err_entry::default();
        // SAFETY: the queue is open; a zeroed entry has no buffer for provider data, and requests none.
        let read = unsafe { call_op!((*(*queue).ops).readerr, queue, &raw mut error, 0) };
        match read {
            1 => {}
            read if read == 0 || read == -(FI_EAGAIN as isize) => return Ok(()),
            read => return Err(self.library.call_failed("fi_cq_readerr", read)),
        }
        let number = self.contexts.number(error.op_context);
        if number == RECEIVE && error.err == FI_ECANCELED as i32 {
            done.cancelled = true;
            return Ok(());
        }
        let operation = if number == RECEIVE {
            "a receive (fi_trecv)"
        } else {
            self.contexts.free.push(number);
            "a send (fi_tsend)"
        };
        Err(self.library.call_failed(operation, -(error.err as isize)))
    }
}
