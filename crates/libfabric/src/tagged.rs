// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tagged messages to and from one peer: injected where they are short enough, their ends read from the completion queue.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

use crate::bindings::*;
use crate::endpoint::{Endpoint, called};
use crate::error::FabricError;

/// What became of a message that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is copied: its memory can be used again.
    Injected,
    /// It is read from its memory until a completion says otherwise.
    UnderWay,
    /// Nothing: the provider has no room. Ask the queue, then try again.
    Busy,
}

/// What has ended since the queue was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Messages that were under way and whose memory can be used again.
    pub sent: usize,
    /// The receive that was posted has a message of so many bytes.
    pub received: Option<usize>,
    /// The receive that was posted was taken back.
    pub cancelled: bool,
}

/// All messages have it: there is one peer, and its messages come in order.
const TAG: u64 = 7;
/// Operations under way at once, of which one is the receive.
const OPERATIONS: usize = 65;
const RECEIVE: u16 = 0;
/// Completions that are read at once.
const AT_ONCE: usize = 8;

/// Memory that providers may use while an operation is under way; in the mode `FI_CONTEXT2` it is demanded of us.
pub(crate) struct Contexts {
    memory: Box<[fi_context2]>,
    /// Those of sends that nobody uses.
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

    /// Which one a completion names.
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
    /// After [`Posted::UnderWay`] the message must stay in place and unchanged until [`Done::sent`] has counted it, or the
    /// endpoint is dropped.
    #[inline]
    pub unsafe fn send(&mut self, message: &[u8]) -> Result<Posted, FabricError> {
        let (endpoint, at, bytes) = (self.endpoint.get(), message.as_ptr().cast::<c_void>(), message.len());
        if bytes <= self.inject_bytes {
            // SAFETY: the endpoint is open; an injected message is copied before the call returns.
            let status = unsafe { called!((*(*endpoint).tagged).inject, endpoint, at, bytes, self.peer, TAG) };
            return match status {
                0 => Ok(Posted::Injected),
                status => self.not_sent("fi_tinject", status, bytes),
            };
        }
        let Some(number) = self.contexts.free.pop() else { return Ok(Posted::Busy) };
        let context = self.contexts.at(number);
        // SAFETY: the endpoint is open; the caller keeps the message, and we the context until it is completed.
        let status = unsafe {
            called!((*(*endpoint).tagged).send, endpoint, at, bytes, ptr::null_mut(), self.peer, TAG, context)
        };
        if status == 0 {
            return Ok(Posted::UnderWay);
        }
        self.contexts.free.push(number);
        self.not_sent("fi_tsend", status, bytes)
    }

    #[cold]
    fn not_sent(&self, call: &'static str, status: isize, bytes: usize) -> Result<Posted, FabricError> {
        let most = self.message_bytes_max();
        match status {
            _ if status == -(FI_EAGAIN as isize) => Ok(Posted::Busy),
            _ if bytes > most => Err(FabricError::TooLong { bytes, most, provider: self.provider() }),
            _ => Err(self.library.call_failed(call, status)),
        }
    }

    /// Posts the receive; false if the provider has no room for it now. There is one at a time.
    ///
    /// # Errors
    /// [`FabricError::Call`].
    ///
    /// # Safety
    /// The memory must stay in place, and be used by nothing else, until [`Done`] has told that the receive was completed
    /// or cancelled, or the endpoint is dropped.
    #[inline]
    pub unsafe fn receive(&mut self, message: &mut [u8]) -> Result<bool, FabricError> {
        let (endpoint, context) = (self.endpoint.get(), self.contexts.at(RECEIVE));
        let (at, bytes) = (message.as_mut_ptr().cast::<c_void>(), message.len());
        // SAFETY: the endpoint is open; the caller keeps the memory, and we the context until it is completed.
        let status = unsafe {
            called!((*(*endpoint).tagged).recv, endpoint, at, bytes, ptr::null_mut(), self.peer, TAG, 0, context)
        };
        match status {
            0 => Ok(true),
            status if status == -(FI_EAGAIN as isize) => Ok(false),
            status => Err(self.library.call_failed("fi_trecv", status)),
        }
    }

    /// Asks for the receive to be taken back; [`Done`] will tell whether it was, or got a message before.
    ///
    /// # Errors
    /// [`FabricError::Call`].
    pub fn cancel(&mut self) -> Result<(), FabricError> {
        let (fid, context) = (self.endpoint.fid(), self.contexts.at(RECEIVE));
        // SAFETY: the endpoint is open; a context that names no operation is allowed.
        let status = unsafe { called!((*(*self.endpoint.get()).ops).cancel, fid, context) };
        // One that has just been completed is not there to be cancelled.
        if status == 0 || status == -(libc::ENOENT as isize) || status == -(FI_EAGAIN as isize) {
            return Ok(());
        }
        Err(self.library.call_failed("fi_cancel", status))
    }

    /// Makes progress, and says what has ended.
    ///
    /// # Errors
    /// [`FabricError::Call`], also of an operation that failed.
    #[inline]
    pub fn poll(&mut self) -> Result<Done, FabricError> {
        let queue = self.queue.get();
        let mut entries = [const { MaybeUninit::<fi_cq_tagged_entry>::uninit() }; AT_ONCE];
        // SAFETY: the queue is open and was opened for entries of this kind; there is room for so many.
        let read = unsafe { called!((*(*queue).ops).read, queue, entries.as_mut_ptr().cast(), AT_ONCE) };
        self.ended(&entries, read, "fi_cq_read")
    }

    /// As [`poll`](Self::poll), asleep until something ends or for `patience`, in whole milliseconds.
    ///
    /// # Errors
    /// As of `poll`; -FI_ENOSYS where the endpoint was opened without sleeping.
    pub fn wait(&mut self, patience: Duration) -> Result<Done, FabricError> {
        let queue = self.queue.get();
        let mut entries = [const { MaybeUninit::<fi_cq_tagged_entry>::uninit() }; AT_ONCE];
        let timeout = patience.as_millis().clamp(1, i32::MAX as u128) as i32;
        // SAFETY: as in `poll`; no condition but that something has ended.
        let read = unsafe {
            called!((*(*queue).ops).sread, queue, entries.as_mut_ptr().cast(), AT_ONCE, ptr::null(), timeout)
        };
        self.ended(&entries, read, "fi_cq_sread")
    }

    #[inline]
    fn ended(
        &mut self,
        entries: &[MaybeUninit<fi_cq_tagged_entry>; AT_ONCE],
        read: isize,
        call: &'static str,
    ) -> Result<Done, FabricError> {
        let mut done = Done::default();
        if read <= 0 {
            if read != 0 && read != -(FI_EAGAIN as isize) {
                self.failed(read, call, &mut done)?;
            }
            return Ok(done);
        }
        for entry in &entries[..read as usize] {
            // SAFETY: the queue has written as many as it says.
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

    /// Reads what failed; a receive that was taken back is no failure.
    #[cold]
    fn failed(&mut self, status: isize, call: &'static str, done: &mut Done) -> Result<(), FabricError> {
        // A signal may end a sleep.
        if status == -(libc::EINTR as isize) || status == -(libc::ETIMEDOUT as isize) {
            return Ok(());
        }
        if status != -(FI_EAVAIL as isize) {
            return Err(self.library.call_failed(call, status));
        }
        let queue = self.queue.get();
        let mut error = fi_cq_err_entry::default();
        // SAFETY: the queue is open; an entry of zeros has no room for the provider's own data, and asks for none.
        let read = unsafe { called!((*(*queue).ops).readerr, queue, &raw mut error, 0) };
        match read {
            1 => {}
            read if read == 0 || read == -(FI_EAGAIN as isize) => return Ok(()),
            read => return Err(self.library.call_failed("fi_cq_readerr", read)),
        }
        let of = self.contexts.number(error.op_context);
        if of == RECEIVE && error.err == FI_ECANCELED as i32 {
            done.cancelled = true;
            return Ok(());
        }
        let operation = if of == RECEIVE { "a receive (fi_trecv)" } else { "a send (fi_tsend)" };
        Err(self.library.call_failed(operation, -(error.err as isize)))
    }
}
