// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fid_cq`: completion queues.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barewire_endpoint::WaitPolicy;

use super::{fid_ops, new_fid, no_bind, shared_of};
use crate::bindings::*;
use crate::edge::{Errno, Result, guard, guard_status};
use crate::notifier::Notifier;
use crate::queue::Queue;
use crate::state::Shared;
use crate::wait_set::WaitSet;

/// A `fid_cq`.
#[repr(C)]
struct QueueFid {
    fid: fid_cq,
    shared: Arc<Shared>,
    number: usize,
    _used: Arc<()>,
}

static FID_OPS: fi_ops = fid_ops(close, no_bind, control);
static OPS: fi_ops_cq = fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
};

/// `fi_cq_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    guard_status("fi_cq_open", || {
        // SAFETY: libfabric's promise: null or valid.
        let attributes = unsafe { attr.as_mut() };
        let (format, wait, size) = attributes.as_ref().map_or((FI_CQ_FORMAT_CONTEXT, FI_WAIT_NONE, 0), |attributes| {
            (attributes.format, attributes.wait_obj, attributes.size)
        });
        let format = if format == FI_CQ_FORMAT_UNSPEC { FI_CQ_FORMAT_TAGGED } else { format };
        if ![FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD].contains(&wait) || format > FI_CQ_FORMAT_TAGGED {
            return Err(Errno::NOT_SUPPORTED);
        }
        if let Some(attributes) = attributes {
            attributes.format = format;
        }
        // SAFETY: libfabric's promise.
        let shared = unsafe { shared_of(domain) };
        let notifier = Notifier::new()?;
        let set = [FI_WAIT_FD, FI_WAIT_UNSPEC].contains(&wait).then(|| WaitSet::new(&notifier)).transpose()?;
        let patience = WaitPolicy::new(shared.parameters.waiting, false);
        let number = shared.lock()?.queues.add(Queue::new(format, size, notifier, set, patience));
        let fid = new_fid(FI_CLASS_CQ, context, &FID_OPS);
        let fid = fid_cq { fid, ops: (&raw const OPS).cast_mut() };
        let queue = QueueFid { fid, number, _used: shared.used.clone(), shared };
        // SAFETY: libfabric's promise.
        unsafe { *cq = Box::into_raw(Box::new(queue)).cast() };
        Ok(())
    })
}

/// # Safety
/// `cq` must be an open completion queue of ours.
#[inline]
unsafe fn queue_of<'a>(cq: *mut fid_cq) -> &'a QueueFid {
    // SAFETY: the caller's promise.
    unsafe { &*cq.cast::<QueueFid>() }
}

/// The queue's number in the domain, if it belongs to it.
///
/// # Safety
/// `cq` must be an open completion queue of ours.
pub(crate) unsafe fn number_of(cq: *mut fid, shared: &Arc<Shared>) -> Option<usize> {
    // SAFETY: the caller's promise.
    let queue = unsafe { queue_of(cq.cast()) };
    Arc::ptr_eq(&queue.shared, shared).then_some(queue.number)
}

/// Whether an entry or an error can be read, after making progress.
///
/// # Safety
/// `cq` must be an open completion queue of ours.
pub(crate) unsafe fn is_readable(cq: *mut fid) -> bool {
    // SAFETY: the caller's promise.
    let queue = unsafe { queue_of(cq.cast()) };
    // Errors of the link or the domain are reported when the queue is read.
    let Ok(mut state) = queue.shared.lock() else { return true };
    state.progress_request.note_program_progress();
    state.progress().is_err() || !state.queues[queue.number].is_empty()
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    guard_status("fi_close", || {
        // SAFETY: libfabric's promise.
        let queue = unsafe { queue_of(fid.cast()) };
        if let Ok(mut state) = queue.shared.lock() {
            if state.queues[queue.number].bound_endpoints > 0 {
                return Err(Errno::BUSY);
            }
            state.queues.remove(queue.number);
        }
        // SAFETY: allocated by `open`, and no longer used by the program.
        drop(unsafe { Box::from_raw(fid.cast::<QueueFid>()) });
        Ok(())
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    guard_status("fi_control", || {
        // SAFETY: libfabric's promise.
        let queue = unsafe { queue_of(fid.cast()) };
        let state = queue.shared.lock()?;
        let set = state.queues[queue.number].set.as_ref();
        let (true, Some(set)) = (command == FI_GETWAIT as c_int, set) else { return Err(Errno::NOT_SUPPORTED) };
        // SAFETY: libfabric's promise for this command: room for an `int`.
        unsafe { *argument.cast::<c_int>() = set.descriptor() };
        Ok(())
    })
}

/// Makes progress if the queue is empty, or no entry is wanted (`max` is 0): then progress is all that is asked for.
///
/// # Safety
/// As for `fi_cq_readfrom`.
#[inline(always)]
unsafe fn poll_and_read(queue: &QueueFid, to: *mut c_void, max: usize, sources: *mut fi_addr_t) -> Result<isize> {
    let mut state = queue.shared.lock()?;
    if state.queues[queue.number].was_drained() && state.can_skip_progress() {
        // Open MPI polls until the queue is empty, and only then answers the message that it has read.
        state.progress_request.note_program_progress();
        return Err(Errno::AGAIN);
    }
    if max > 0
        && state.queues[queue.number].is_empty()
        && let Some(entry) = state.receive_next(queue.number)
    {
        state.progress_request.note_program_progress();
        state.backoff.reset();
        // SAFETY: the caller's promise.
        return Ok(unsafe { state.queues[queue.number].write_directly(&entry, to.cast(), sources) });
    }
    state.progress_request.note_program_progress();
    if max == 0 || state.queues[queue.number].is_empty() {
        state.progress()?;
    }
    if state.queues[queue.number].is_empty() {
        queue.shared.back_off(state, |state| &state.queues[queue.number].notifier)?;
        return Err(Errno::AGAIN);
    }
    state.backoff.reset();
    if max == 0 {
        return Ok(0);
    }
    // SAFETY: the caller's promise.
    unsafe { state.queues[queue.number].take(to.cast(), max, sources) }
}

unsafe extern "C" fn read(cq: *mut fid_cq, to: *mut c_void, max: usize) -> isize {
    // SAFETY: libfabric's promise.
    guard("fi_cq_read", || unsafe { poll_and_read(queue_of(cq), to, max, ptr::null_mut()) })
}

unsafe extern "C" fn readfrom(cq: *mut fid_cq, to: *mut c_void, max: usize, sources: *mut fi_addr_t) -> isize {
    // SAFETY: libfabric's promise.
    guard("fi_cq_readfrom", || unsafe { poll_and_read(queue_of(cq), to, max, sources) })
}

unsafe extern "C" fn readerr(cq: *mut fid_cq, to: *mut fi_cq_err_entry, _: u64) -> isize {
    guard("fi_cq_readerr", || {
        // SAFETY: libfabric's promise.
        let queue = unsafe { queue_of(cq) };
        let mut state = queue.shared.lock()?;
        let entry = state.queues[queue.number].take_error().ok_or(Errno::AGAIN)?;
        // SAFETY: libfabric's promise. Fields that newer API versions append are not written.
        let to = unsafe { &mut *to };
        to.op_context = entry.context;
        to.flags = entry.flags;
        to.len = entry.length;
        to.buf = entry.buffer;
        to.data = entry.data;
        to.tag = entry.tag;
        to.olen = entry.truncated_bytes;
        to.err = entry.error as c_int;
        to.prov_errno = entry.error as c_int;
        to.err_data_size = 0;
        Ok(1)
    })
}

unsafe extern "C" fn sread(
    cq: *mut fid_cq,
    to: *mut c_void,
    max: usize,
    condition: *const c_void,
    timeout_ms: c_int,
) -> isize {
    // SAFETY: libfabric's promise.
    unsafe { sreadfrom(cq, to, max, ptr::null_mut(), condition, timeout_ms) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut fid_cq,
    to: *mut c_void,
    max: usize,
    sources: *mut fi_addr_t,
    _: *const c_void,
    timeout_ms: c_int,
) -> isize {
    guard("fi_cq_sread", || {
        // SAFETY: libfabric's promise.
        let queue = unsafe { queue_of(cq) };
        let until = u64::try_from(timeout_ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
        loop {
            let was_interrupted = queue.shared.wait(
                until,
                |state, asked| {
                    let queue = &mut state.queues[queue.number];
                    if let Some(asked) = asked {
                        queue.patience.learn(asked);
                    }
                    (!queue.is_empty(), queue.patience.clone())
                },
                |state| &state.queues[queue.number].notifier,
            )?;
            let mut state = queue.shared.lock()?;
            // SAFETY: libfabric's promise.
            let taken = unsafe { state.queues[queue.number].take(to.cast(), max, sources) };
            // Another thread may have taken what ended the wait.
            if was_interrupted || taken != Err(Errno::AGAIN) {
                return taken;
            }
        }
    })
}

unsafe extern "C" fn signal(cq: *mut fid_cq) -> c_int {
    guard_status("fi_cq_signal", || {
        // SAFETY: libfabric's promise.
        let queue = unsafe { queue_of(cq) };
        queue.shared.lock()?.queues[queue.number].notifier.signal();
        Ok(())
    })
}

/// `Ok` if the program may sleep on the queue's descriptor now.
///
/// # Safety
/// `cq` must be an open completion queue of ours.
pub(crate) unsafe fn trywait(cq: *mut fid_cq) -> Result<()> {
    // SAFETY: the caller's promise.
    let queue = unsafe { queue_of(cq) };
    let mut state = queue.shared.lock()?;
    state.progress_request.note_program_progress();
    if state.queues[queue.number].is_empty() {
        state.progress()?;
    }
    state.queues[queue.number].notifier.clear();
    if !state.queues[queue.number].is_empty() {
        return Err(Errno::AGAIN);
    }
    let mut descriptors = Vec::new();
    let Some(patience) = state.prepare_to_sleep(None, &mut descriptors)? else { return Err(Errno::AGAIN) };
    state.has_sleepers = true;
    state.queues[queue.number].is_armed = true;
    state.queues[queue.number].set.as_mut().ok_or(Errno::INVALID)?.arm(&descriptors, patience)
}

unsafe extern "C" fn strerror(
    _: *mut fid_cq,
    number: c_int,
    _: *const c_void,
    to: *mut c_char,
    length: usize,
) -> *const c_char {
    // SAFETY: libfabric's promise: null, or room for `length` bytes.
    unsafe { describe_error(number, to, length) }
}

/// Describes an error number.
///
/// # Safety
/// `to` must be null, or have room for `length` bytes.
pub(crate) unsafe fn describe_error(number: c_int, to: *mut c_char, length: usize) -> *const c_char {
    let text: &'static CStr = match number as u32 {
        FI_ETRUNC => c"the message was truncated: it is longer than the receive buffer",
        FI_ECANCELED => c"the receive was cancelled",
        FI_ENOMSG => c"no matching message has arrived",
        FI_ECONNREFUSED => c"the peer refuses connections",
        FI_ETIMEDOUT => c"the peer answers, but receives nothing",
        FI_ECONNRESET => c"the peer closed its endpoint, ended, or restarted",
        FI_ECONNABORTED => c"the peer violated the protocol",
        FI_ENOMEM => c"this process or its peer on this host has no descriptors or memory left: ulimit -n, ulimit -v",
        FI_ESHUTDOWN => c"this process closed the connection",
        number if number == libc::EHOSTUNREACH as u32 => {
            c"the peer does not answer: is its process running, its host up, and the link?"
        }
        _ => c"the operation failed",
    };
    if !to.is_null() && length > 0 {
        let copied = text.count_bytes().min(length - 1);
        // SAFETY: the caller's promise; one byte is left for the terminator.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), to, copied);
            *to.add(copied) = 0;
        }
    }
    text.as_ptr()
}
