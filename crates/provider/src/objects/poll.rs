// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fid_poll`: poll sets of completion queues and counters.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{counter, fid_ops, new_fid, no_bind, no_control, queue, shared_of};
use crate::bindings::*;
use crate::edge::{Errno, guard, guard_status};

/// A `fid_poll`.
#[repr(C)]
struct PollFid {
    fid: fid_poll,
    members: Mutex<Vec<Member>>,
    _used: Arc<()>,
}

struct Member {
    fid: *mut fid,
    /// A counter's value and errors at the last poll.
    shown: (u64, u64),
}

static FID_OPS: fi_ops = fid_ops(close, no_bind, no_control);
static OPS: fi_ops_poll =
    fi_ops_poll { size: size_of::<fi_ops_poll>(), poll: Some(poll), poll_add: Some(add), poll_del: Some(remove) };

/// `fi_poll_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_poll_attr,
    result: *mut *mut fid_poll,
) -> c_int {
    guard_status("fi_poll_open", || {
        // SAFETY: libfabric's promise: null or valid.
        if unsafe { attr.as_ref() }.is_some_and(|attributes| attributes.flags != 0) {
            return Err(Errno::NOT_SUPPORTED);
        }
        let fid = new_fid(FI_CLASS_POLL, std::ptr::null_mut(), &FID_OPS);
        let fid = fid_poll { fid, ops: (&raw const OPS).cast_mut() };
        // SAFETY: libfabric's promise.
        let used = unsafe { shared_of(domain) }.used.clone();
        let set = PollFid { fid, members: Mutex::new(Vec::new()), _used: used };
        // SAFETY: libfabric's promise.
        unsafe { *result = Box::into_raw(Box::new(set)).cast() };
        Ok(())
    })
}

/// # Safety
/// `set` must be an open poll set of ours.
unsafe fn poll_set_of<'a>(set: *mut fid_poll) -> &'a PollFid {
    // SAFETY: the caller's promise.
    unsafe { &*set.cast::<PollFid>() }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: allocated by `open`, and no longer used by the program.
    drop(unsafe { Box::from_raw(fid.cast::<PollFid>()) });
    0
}

unsafe extern "C" fn add(set: *mut fid_poll, member: *mut fid, _: u64) -> c_int {
    guard_status("fi_poll_add", || {
        // SAFETY: libfabric's promise: an open object.
        let class = unsafe { (*member).fclass };
        if class != FI_CLASS_CQ as usize && class != FI_CLASS_CNTR as usize {
            return Err(Errno::INVALID);
        }
        // SAFETY: libfabric's promise.
        unsafe { poll_set_of(set) }.members.lock().push(Member { fid: member, shown: (0, 0) });
        Ok(())
    })
}

unsafe extern "C" fn remove(set: *mut fid_poll, member: *mut fid, _: u64) -> c_int {
    guard_status("fi_poll_del", || {
        // SAFETY: libfabric's promise.
        let mut members = unsafe { poll_set_of(set) }.members.lock();
        let index = members.iter().position(|known| known.fid == member).ok_or(Errno::INVALID)?;
        members.remove(index);
        Ok(())
    })
}

unsafe extern "C" fn poll(set: *mut fid_poll, contexts: *mut *mut c_void, count: c_int) -> c_int {
    let found = guard("fi_poll", || {
        // SAFETY: libfabric's promise.
        let mut members = unsafe { poll_set_of(set) }.members.lock();
        let (mut found, mut looked_at) = (0, 0);
        for member in members.iter_mut() {
            if found >= count as isize {
                break;
            }
            looked_at += 1;
            // SAFETY: a member stays open until it is removed.
            let is_ready = unsafe {
                if (*member.fid).fclass == FI_CLASS_CQ as usize {
                    queue::is_readable(member.fid)
                } else {
                    let shown = counter::values_now(member.fid);
                    std::mem::replace(&mut member.shown, shown) != shown
                }
            };
            if is_ready {
                // SAFETY: libfabric's promise: room for `count` contexts, and `found` is less.
                unsafe { *contexts.offset(found) = (*member.fid).context };
                found += 1;
            }
        }
        // The next call begins behind the last one that had room.
        members.rotate_left(looked_at);
        Ok(found)
    });
    found as c_int
}
