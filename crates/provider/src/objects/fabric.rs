// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fid_fabric`: all Ethernet interfaces of this host.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::{Fabric, counter, domain, events, fid_ops, is_used, new_fid, no_bind, no_control, queue};
use crate::bindings::*;
use crate::edge::{Errno, guard_status, unsupported};

static FID_OPS: fi_ops = fid_ops(close, no_bind, no_control);
pub(super) static OPS: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: Some(open_domain),
    passive_ep: Some(no_passive),
    eq_open: Some(events::open),
    wait_open: Some(no_wait),
    trywait: Some(trywait),
    domain2: Some(open_domain2),
};

unsupported! {
    no_passive(*mut fid_fabric, *mut fi_info, *mut *mut fid_pep, *mut c_void) -> c_int;
    no_wait(*mut fid_fabric, *mut fi_wait_attr, *mut *mut fid_wait) -> c_int;
}

/// `fi_fabric`, as libfabric calls it.
///
/// # Safety
/// As fi_fabric(3) says: both structures valid.
pub(crate) unsafe extern "C" fn open(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    guard_status("fi_fabric", || {
        // SAFETY: libfabric's promise.
        let api_version = unsafe { (*attr).api_version };
        let fid = new_fid(FI_CLASS_FABRIC, context, &FID_OPS);
        let fid = fid_fabric { fid, ops: (&raw const OPS).cast_mut(), api_version };
        let opened = Fabric { fid, used: Arc::new(()) };
        // SAFETY: libfabric's promise.
        unsafe { *fabric = Box::into_raw(Box::new(opened)).cast() };
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    guard_status("fi_close", || {
        // SAFETY: `fid` is the first field of a fabric allocated by `open`.
        let fabric = unsafe { &*fid.cast::<Fabric>() };
        if is_used(&fabric.used) {
            return Err(Errno::BUSY);
        }
        // SAFETY: allocated by `open`, and no longer used by the program.
        drop(unsafe { Box::from_raw(fid.cast::<Fabric>()) });
        Ok(())
    })
}

unsafe extern "C" fn open_domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    result: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's promise.
    unsafe { domain::open(fabric, info, result, context) }
}

unsafe extern "C" fn open_domain2(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    result: *mut *mut fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return Errno::NOT_SUPPORTED.negative() as c_int;
    }
    // SAFETY: libfabric's promise.
    unsafe { domain::open(fabric, info, result, context) }
}

/// `fi_trywait`: success if the program may sleep on the objects' descriptors now.
unsafe extern "C" fn trywait(_: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    guard_status("fi_trywait", || {
        for index in 0..count.max(0) as usize {
            // SAFETY: libfabric's promise: `count` open objects.
            let fid = unsafe { *fids.add(index) };
            // SAFETY: as above.
            match unsafe { (*fid).fclass } as u64 {
                // SAFETY: the class determines the type.
                CLASS_CQ => unsafe { queue::trywait(fid.cast()) }?,
                // SAFETY: as above.
                CLASS_CNTR => unsafe { counter::trywait(fid.cast()) }?,
                // SAFETY: as above.
                CLASS_EQ => unsafe { events::trywait(fid.cast()) }?,
                _ => return Err(Errno::INVALID),
            }
        }
        Ok(())
    })
}

const CLASS_CQ: u64 = FI_CLASS_CQ as u64;
const CLASS_CNTR: u64 = FI_CLASS_CNTR as u64;
const CLASS_EQ: u64 = FI_CLASS_EQ as u64;
