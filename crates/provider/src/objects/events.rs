// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fid_eq`: event queues, for insertions into address vectors and for events that programs write.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{fid_ops, new_fid, no_bind, queue, used_of};
use crate::bindings::*;
use crate::edge::{Errno, Result, guard, guard_status};
use crate::notifier::Notifier;

/// A `fid_eq`.
#[repr(C)]
struct EventQueueFid {
    fid: fid_eq,
    queue: Arc<EventQueue>,
    has_descriptor: bool,
    can_be_written: bool,
    _fabric: Arc<()>,
}

/// The part of an event queue that other objects write to.
pub(crate) struct EventQueue {
    events: Mutex<VecDeque<Event>>,
    notifier: Notifier,
}

enum Event {
    Normal { event: u32, bytes: Vec<u8> },
    Failed(fi_eq_err_entry),
}

// SAFETY: the pointers are the program's, and only returned to it.
unsafe impl Send for Event {}

impl EventQueue {
    /// # Safety
    /// `eq` must be an open event queue of ours.
    pub unsafe fn from_fid(eq: *mut fid_eq) -> Arc<Self> {
        // SAFETY: the caller's promise.
        unsafe { (*eq.cast::<EventQueueFid>()).queue.clone() }
    }

    pub fn push(&self, event: u32, fid: *mut fid, context: *mut c_void, data: u64) {
        let entry = fi_eq_entry { fid, context, data };
        // SAFETY: a structure without padding, read as bytes.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const entry).cast::<u8>(), size_of::<fi_eq_entry>()) };
        self.add(Event::Normal { event, bytes: bytes.to_vec() });
    }

    pub fn push_error(&self, fid: *mut fid, context: *mut c_void, data: u64, error: u32) {
        self.add(Event::Failed(fi_eq_err_entry { fid, context, data, err: error as c_int, ..Default::default() }));
    }

    fn add(&self, event: Event) {
        self.events.lock().push_back(event);
        self.notifier.notify();
    }

    /// # Safety
    /// `event` must be valid, and `to` have room for `length` bytes.
    unsafe fn read(&self, event: *mut u32, to: *mut c_void, length: usize, flags: u64) -> Result<isize> {
        let mut events = self.events.lock();
        match events.front() {
            None => {
                self.notifier.clear();
                Err(Errno::AGAIN)
            }
            Some(Event::Failed(_)) => Err(Errno::AVAILABLE),
            Some(Event::Normal { bytes, .. }) if bytes.len() > length => Err(Errno::TOO_SMALL),
            Some(Event::Normal { event: number, bytes }) => {
                // SAFETY: the caller's promise, and `bytes` fit.
                unsafe {
                    *event = *number;
                    ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), bytes.len());
                }
                let read = bytes.len() as isize;
                if flags & FI_PEEK == 0 {
                    events.pop_front();
                }
                Ok(read)
            }
        }
    }
}

static FID_OPS: fi_ops = fid_ops(close, no_bind, control);
static OPS: fi_ops_eq = fi_ops_eq {
    size: size_of::<fi_ops_eq>(),
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write),
    sread: Some(sread),
    strerror: Some(strerror),
};

/// `fi_eq_open`.
pub(crate) unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    eq: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    guard_status("fi_eq_open", || {
        // SAFETY: libfabric's promise: null or valid.
        let attributes = unsafe { attr.as_ref() }.copied().unwrap_or_default();
        if ![FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD].contains(&attributes.wait_obj) {
            return Err(Errno::NOT_SUPPORTED);
        }
        let queue = EventQueue { events: Mutex::new(VecDeque::new()), notifier: Notifier::new()? };
        let fid = new_fid(FI_CLASS_EQ, context, &FID_OPS);
        let event_queue = EventQueueFid {
            fid: fid_eq { fid, ops: (&raw const OPS).cast_mut() },
            queue: Arc::new(queue),
            has_descriptor: [FI_WAIT_FD, FI_WAIT_UNSPEC].contains(&attributes.wait_obj),
            can_be_written: attributes.flags & FI_WRITE != 0,
            // SAFETY: libfabric's promise.
            _fabric: unsafe { used_of(fabric) },
        };
        // SAFETY: libfabric's promise.
        unsafe { *eq = Box::into_raw(Box::new(event_queue)).cast() };
        Ok(())
    })
}

/// # Safety
/// `eq` must be an open event queue of ours.
unsafe fn event_queue_of<'a>(eq: *mut fid_eq) -> &'a EventQueueFid {
    // SAFETY: the caller's promise.
    unsafe { &*eq.cast::<EventQueueFid>() }
}

/// `Ok` if the program may sleep on the queue's descriptor now.
///
/// # Safety
/// `eq` must be an open event queue of ours.
pub(crate) unsafe fn trywait(eq: *mut fid_eq) -> Result<()> {
    // SAFETY: the caller's promise.
    let queue = unsafe { event_queue_of(eq) };
    // Locked until the notifier is cleared, so that a later event is not missed.
    let events = queue.queue.events.lock();
    if events.is_empty() {
        queue.queue.notifier.clear();
        return Ok(());
    }
    Err(Errno::AGAIN)
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    guard_status("fi_close", || {
        // SAFETY: libfabric's promise.
        let queue = unsafe { event_queue_of(fid.cast()) };
        if Arc::strong_count(&queue.queue) > 1 {
            return Err(Errno::BUSY);
        }
        // SAFETY: allocated by `open`, and no longer used by the program.
        drop(unsafe { Box::from_raw(fid.cast::<EventQueueFid>()) });
        Ok(())
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    guard_status("fi_control", || {
        // SAFETY: libfabric's promise.
        let queue = unsafe { event_queue_of(fid.cast()) };
        if command != FI_GETWAIT as c_int || !queue.has_descriptor {
            return Err(Errno::NOT_SUPPORTED);
        }
        // SAFETY: libfabric's promise for this command: room for an `int`.
        unsafe { *argument.cast::<c_int>() = queue.queue.notifier.descriptor().as_raw_fd() };
        Ok(())
    })
}

unsafe extern "C" fn read(eq: *mut fid_eq, event: *mut u32, to: *mut c_void, length: usize, flags: u64) -> isize {
    // SAFETY: libfabric's promise.
    guard("fi_eq_read", || unsafe { event_queue_of(eq).queue.read(event, to, length, flags) })
}

unsafe extern "C" fn readerr(eq: *mut fid_eq, to: *mut fi_eq_err_entry, flags: u64) -> isize {
    guard("fi_eq_readerr", || {
        // SAFETY: libfabric's promise.
        let queue = unsafe { event_queue_of(eq) };
        let mut events = queue.queue.events.lock();
        let Some(Event::Failed(failed)) = events.front() else { return Err(Errno::AGAIN) };
        // SAFETY: libfabric's promise.
        unsafe { *to = *failed };
        if flags & FI_PEEK == 0 {
            events.pop_front();
        }
        Ok(size_of::<fi_eq_err_entry>() as isize)
    })
}

unsafe extern "C" fn write(eq: *mut fid_eq, event: u32, from: *const c_void, length: usize, _: u64) -> isize {
    guard("fi_eq_write", || {
        // SAFETY: libfabric's promise.
        let queue = unsafe { event_queue_of(eq) };
        if !queue.can_be_written {
            return Err(Errno::INVALID);
        }
        let mut bytes = vec![0_u8; length];
        // SAFETY: libfabric's promise: `length` bytes at `from`.
        unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), bytes.as_mut_ptr(), length) };
        queue.queue.add(Event::Normal { event, bytes });
        Ok(length as isize)
    })
}

unsafe extern "C" fn sread(
    eq: *mut fid_eq,
    event: *mut u32,
    to: *mut c_void,
    length: usize,
    timeout_ms: c_int,
    flags: u64,
) -> isize {
    guard("fi_eq_sread", || {
        // SAFETY: libfabric's promise.
        let queue = &unsafe { event_queue_of(eq) }.queue;
        let until = u64::try_from(timeout_ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
        loop {
            // SAFETY: libfabric's promise.
            match unsafe { queue.read(event, to, length, flags) } {
                Err(Errno::AGAIN) => {}
                read => return read,
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(Errno::AGAIN);
            }
            let sleeper = queue.notifier.register();
            queue.notifier.sleep(sleeper, &[], left);
        }
    })
}

unsafe extern "C" fn strerror(
    _: *mut fid_eq,
    number: c_int,
    _: *const c_void,
    to: *mut c_char,
    length: usize,
) -> *const c_char {
    // SAFETY: libfabric's promise: null, or room for `length` bytes.
    unsafe { queue::describe_error(number, to, length) }
}
