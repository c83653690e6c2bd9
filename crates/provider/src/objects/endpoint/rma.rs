// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remote memory access: `fi_write`, `fi_read` and their families.

use std::ffi::c_void;
use std::ptr;

use barewire_messages::Part;

use super::access::{Target, target};
use super::messages::{Flags, bytes, inject_parts, part, remote_data, with_parts};
use super::{EndpointFid, endpoint_of};
use crate::bindings::*;
use crate::edge::{Errno, Result, guard};

pub(super) static RMA_OPS: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject_write),
    writedata: Some(writedata),
    injectdata: Some(inject_writedata),
};

impl EndpointFid {
    /// # Safety
    /// The parts must be valid until the operation has ended.
    unsafe fn write(
        &self,
        to: Target,
        parts: &[Part],
        data: Option<u64>,
        flags: Flags,
        context: *mut c_void,
    ) -> Result<isize> {
        self.access(to.peer, FI_RMA | FI_WRITE, context, flags, |messenger, peer, options, flags| {
            if flags & FI_INJECT != 0 {
                let max_bytes = messenger.inject_write_max();
                let copy = |bytes: &[u8]| Ok(messenger.write_copy(peer, to.remote, bytes, data, options)?);
                // SAFETY: the caller's promise.
                return unsafe { inject_parts(parts, max_bytes, copy) };
            }
            // SAFETY: the caller's promise.
            Ok(unsafe { messenger.write(peer, to.remote, parts, data, options) }?)
        })
    }

    fn inject_write(&self, to: Target, bytes: &[u8], data: Option<u64>) -> Result<isize> {
        self.access(to.peer, FI_RMA | FI_WRITE, ptr::null_mut(), Flags::Injected, |messenger, peer, options, _| {
            Ok(messenger.write_copy(peer, to.remote, bytes, data, options)?)
        })
    }

    /// # Safety
    /// The parts must be valid, and used by nothing else, until the operation has ended.
    unsafe fn read(&self, from: Target, parts: &[Part], flags: Flags, context: *mut c_void) -> Result<isize> {
        self.access(from.peer, FI_RMA | FI_READ, context, flags, |messenger, peer, options, _| {
            // SAFETY: the caller's promise.
            unsafe { messenger.read(peer, from.remote, parts, options) }?;
            Ok(())
        })
    }
}

unsafe extern "C" fn read(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's promise: an open endpoint, and memory that is valid until the operation ends.
    guard("fi_read", || unsafe {
        endpoint_of(ep).read(target(from, addr, key), &[part(buf, len)], Flags::Default, context)
    })
}

unsafe extern "C" fn readv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `read`.
    guard("fi_readv", || unsafe {
        with_parts(iov, count, |parts| endpoint_of(ep).read(target(from, addr, key), parts, Flags::Default, context))
    })
}

/// The target of a message. Its vector of remote addresses must have one entry.
///
/// # Safety
/// The message must be valid.
unsafe fn target_of(msg: &fi_msg_rma) -> Result<Target> {
    if msg.rma_iov_count != 1 {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    let remote = unsafe { &*msg.rma_iov };
    Ok(target(msg.addr, remote.addr, remote.key))
}

unsafe extern "C" fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: as in `read`, with a valid message structure.
    guard("fi_readmsg", || unsafe {
        let msg = &*msg;
        let from = target_of(msg)?;
        with_parts(msg.msg_iov, msg.iov_count, |parts| {
            endpoint_of(ep).read(from, parts, Flags::Given(flags), msg.context)
        })
    })
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `read`.
    guard("fi_write", || unsafe {
        endpoint_of(ep).write(target(to, addr, key), &[part(buf, len)], None, Flags::Default, context)
    })
}

unsafe extern "C" fn writedata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `read`.
    guard("fi_writedata", || unsafe {
        endpoint_of(ep).write(target(to, addr, key), &[part(buf, len)], Some(data), Flags::Default, context)
    })
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `read`.
    guard("fi_writev", || unsafe {
        with_parts(iov, count, |parts| {
            endpoint_of(ep).write(target(to, addr, key), parts, None, Flags::Default, context)
        })
    })
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: as in `readmsg`.
    guard("fi_writemsg", || unsafe {
        let msg = &*msg;
        let (to, data) = (target_of(msg)?, remote_data(flags, msg.data));
        with_parts(msg.msg_iov, msg.iov_count, |parts| {
            endpoint_of(ep).write(to, parts, data, Flags::Given(flags), msg.context)
        })
    })
}

unsafe extern "C" fn inject_write(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: as in `read`.
    guard("fi_inject_write", || unsafe { endpoint_of(ep).inject_write(target(to, addr, key), bytes(buf, len), None) })
}

unsafe extern "C" fn inject_writedata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: as in `read`.
    guard("fi_inject_writedata", || unsafe {
        endpoint_of(ep).inject_write(target(to, addr, key), bytes(buf, len), Some(data))
    })
}
