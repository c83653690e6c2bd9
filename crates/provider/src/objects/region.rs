// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fid_mr`: memory regions, which peers may access through all endpoints of a domain.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use barewire_messages::{Access, Part};

use super::{counter, fid_ops, new_fid, shared_of};
use crate::bindings::*;
use crate::counter::Counted;
use crate::edge::{Errno, guard_status};
use crate::region::Region;
use crate::state::Shared;

/// A `fid_mr`.
#[repr(C)]
struct RegionFid {
    fid: fid_mr,
    shared: Arc<Shared>,
    number: usize,
    _used: Arc<()>,
}

pub(crate) static OPS: fi_ops_mr =
    fi_ops_mr { size: size_of::<fi_ops_mr>(), reg: Some(reg), regv: Some(regv), regattr: Some(regattr) };
static FID_OPS: fi_ops = fid_ops(close, bind, control);

unsafe extern "C" fn reg(
    domain: *mut fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    let iov = iovec { iov_base: buf.cast_mut(), iov_len: len };
    // SAFETY: libfabric's promise: memory that is valid until the region is closed.
    unsafe { regv(domain, &raw const iov, 1, access, offset, key, flags, mr, context) }
}

unsafe extern "C" fn regv(
    domain: *mut fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    let attributes =
        fi_mr_attr { mr_iov: iov, iov_count: count, access, offset, requested_key, context, ..Default::default() };
    // SAFETY: as in `reg`.
    unsafe { regattr(domain, &raw const attributes, flags, mr) }
}

unsafe extern "C" fn regattr(domain: *mut fid, attr: *const fi_mr_attr, flags: u64, mr: *mut *mut fid_mr) -> c_int {
    guard_status("fi_mr_reg", || {
        // SAFETY: libfabric's promise: valid attributes, and an open domain of ours.
        let (attributes, shared) = unsafe { (&*attr, shared_of(domain.cast())) };
        // A counter may be bound to any region, announced by FI_RMA_EVENT or not.
        if flags & !FI_RMA_EVENT != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        // The kind of memory counts only with FI_HMEM, which is not offered.
        if attributes.offset != 0 || attributes.iov_count != 1 {
            return Err(Errno::NOT_SUPPORTED);
        }
        // SAFETY: as above: one entry.
        let iovec { iov_base, iov_len } = unsafe { *attributes.mr_iov };
        let part = Part { address: iov_base.cast(), bytes: iov_len };
        let access =
            Access { read: attributes.access & FI_REMOTE_READ != 0, write: attributes.access & FI_REMOTE_WRITE != 0 };
        let key = attributes.requested_key;
        let mut state = shared.lock()?;
        // Memory without remote access, which is only sent from or received into, needs no unique key.
        let is_remote = access.read || access.write;
        if is_remote && state.regions.iter_mut().any(|known| known.key == key && known.is_reachable()) {
            return Err(Errno(FI_ENOKEY));
        }
        let region = Region { key, part, access, counts: None };
        if is_remote {
            let refused = state.endpoints.iter_mut().enumerate().find_map(|(number, endpoint)| {
                // SAFETY: the program's promise: the memory is valid until the region is closed.
                unsafe { endpoint.register(&region) }.err().map(|error| (number, error))
            });
            if let Some((number, error)) = refused {
                state.endpoints.iter_mut().take(number).for_each(|endpoint| endpoint.deregister(key));
                return Err(error);
            }
        }
        let number = state.regions.add(region);
        drop(state);
        let fid = new_fid(FI_CLASS_MR, attributes.context, &FID_OPS);
        let fid = fid_mr { fid, mem_desc: std::ptr::null_mut(), key };
        let region = RegionFid { fid, number, _used: shared.used.clone(), shared };
        // SAFETY: libfabric's promise.
        unsafe { *mr = Box::into_raw(Box::new(region)).cast() };
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    guard_status("fi_close", || {
        // SAFETY: `fid` is the first field of a memory region allocated by `regattr`.
        let region = unsafe { &*fid.cast::<RegionFid>() };
        if let Ok(mut state) = region.shared.lock()
            && let Some(known) = state.regions.remove(region.number)
        {
            if known.is_reachable() {
                state.endpoints.iter_mut().for_each(|endpoint| endpoint.deregister(known.key));
            }
            for counter in state.counters.iter_mut() {
                counter.unbind(Counted::Region(region.number), |flags| known.completed(flags));
            }
        }
        // SAFETY: allocated by `regattr`, and no longer used by the program.
        drop(unsafe { Box::from_raw(fid.cast::<RegionFid>()) });
        Ok(())
    })
}

/// Binds a counter of peers' accesses through all endpoints. Regions belong to the domain, so to bind an endpoint is
/// an error.
unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    guard_status("fi_mr_bind", || {
        // SAFETY: libfabric's promise: both are open, and `fid` is the first field of a memory region.
        let (region, class) = unsafe { (&*fid.cast::<RegionFid>(), (*other).fclass) };
        if class != FI_CLASS_CNTR as usize {
            return Err(Errno::INVALID);
        }
        if flags == 0 || flags & !(FI_REMOTE_WRITE | FI_REMOTE_READ) != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        // SAFETY: the class determines the type.
        let counter = unsafe { counter::number_of(other, &region.shared) }.ok_or(Errno::INVALID)?;
        let mut state = region.shared.lock()?;
        state.bind_counter(counter, Counted::Region(region.number), flags)?;
        state.count_accesses(region.number);
        Ok(())
    })
}

/// Enabling and refreshing have no effect: a region is usable once registered.
unsafe extern "C" fn control(_: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    let is_known = [FI_ENABLE, FI_REFRESH].contains(&(command as u32));
    if is_known { 0 } else { Errno::NOT_SUPPORTED.negative() as c_int }
}
