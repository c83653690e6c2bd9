// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fid_av`: address vectors. The numbers of removed addresses are not reused.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use super::events::EventQueue;
use super::{fid_ops, new_fid, no_control, shared_of};
use crate::address::{self, BYTES, BadAddress};
use crate::bindings::*;
use crate::diagnostics;
use crate::edge::{Errno, guard, guard_status, unsupported};
use crate::log::warning;
use crate::open_mpi;
use crate::state::{Shared, State};
use crate::vector::{FI_ADDR_NOTAVAIL, Vector};

/// A `fid_av`.
#[repr(C)]
pub(crate) struct VectorFid {
    fid: fid_av,
    shared: Arc<Shared>,
    number: usize,
    /// Where insertions are reported.
    events: Option<Arc<EventQueue>>,
    is_asynchronous: bool,
    _used: Arc<()>,
}

static FID_OPS: fi_ops = fid_ops(close, bind, no_control);
static OPS: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert: Some(insert),
    insertsvc: Some(no_insertsvc),
    insertsym: Some(no_insertsym),
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: Some(straddr),
    av_set: Some(no_set),
};
unsupported! {
    no_insertsvc(*mut fid_av, *const c_char, *const c_char, *mut fi_addr_t, u64, *mut c_void) -> c_int;
    no_insertsym(*mut fid_av, *const c_char, usize, *const c_char, usize, *mut fi_addr_t, u64, *mut c_void) -> c_int;
    no_set(*mut fid_av, *mut fi_av_set_attr, *mut *mut fid_av_set, *mut c_void) -> c_int;
}

/// `fi_av_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    av: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    guard_status("fi_av_open", || {
        // SAFETY: libfabric's promise: null, or valid and writable.
        let attributes = unsafe { attr.as_mut() }.ok_or(Errno::INVALID)?;
        // FI_SYMMETRIC is a hint.
        if !attributes.name.is_null()
            || attributes.flags & !(FI_EVENT | FI_SYMMETRIC) != 0
            || attributes.rx_ctx_bits != 0
        {
            return Err(Errno::NOT_SUPPORTED);
        }
        if attributes.type_ == FI_AV_UNSPEC {
            attributes.type_ = FI_AV_TABLE;
        }
        // SAFETY: libfabric's promise.
        let shared = unsafe { shared_of(domain) };
        let vector = Vector { addresses: Vec::with_capacity(attributes.count.min(1 << 16)), bound_endpoints: 0 };
        let number = shared.lock()?.vectors.add(vector);
        let fid = new_fid(FI_CLASS_AV, context, &FID_OPS);
        let vector = VectorFid {
            fid: fid_av { fid, ops: (&raw const OPS).cast_mut() },
            number,
            events: None,
            is_asynchronous: attributes.flags & FI_EVENT != 0,
            _used: shared.used.clone(),
            shared,
        };
        // SAFETY: libfabric's promise.
        unsafe { *av = Box::into_raw(Box::new(vector)).cast() };
        Ok(())
    })
}

/// The vector's number in the domain, if it belongs to it.
///
/// # Safety
/// `av` must be an open address vector of ours.
pub(crate) unsafe fn number_of(av: *mut fid, shared: &Arc<Shared>) -> Option<usize> {
    // SAFETY: the caller's promise.
    let vector = unsafe { &*av.cast::<VectorFid>() };
    Arc::ptr_eq(&vector.shared, shared).then_some(vector.number)
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    guard_status("fi_close", || {
        // SAFETY: `fid` is the first field of an address vector allocated by `open`.
        let vector = unsafe { &*fid.cast::<VectorFid>() };
        if let Ok(mut state) = vector.shared.lock() {
            if state.vectors[vector.number].bound_endpoints > 0 {
                return Err(Errno::BUSY);
            }
            state.vectors.remove(vector.number);
        }
        // SAFETY: allocated by `open`, and no longer used by the program.
        drop(unsafe { Box::from_raw(fid.cast::<VectorFid>()) });
        Ok(())
    })
}

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, _: u64) -> c_int {
    guard_status("fi_av_bind", || {
        // SAFETY: libfabric's promise: both are open.
        let (vector, class) = unsafe { (&mut *fid.cast::<VectorFid>(), (*other).fclass) };
        if class != FI_CLASS_EQ as usize {
            return Err(Errno::INVALID);
        }
        // SAFETY: the class is that of an event queue.
        vector.events = Some(unsafe { EventQueue::from_fid(other.cast()) });
        Ok(())
    })
}

unsafe extern "C" fn insert(
    av: *mut fid_av,
    addresses: *const c_void,
    count: usize,
    numbers: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    let inserted = guard("fi_av_insert", || {
        // SAFETY: libfabric's promise: an open address vector.
        let vector = unsafe { &*av.cast::<VectorFid>() };
        if vector.is_asynchronous && vector.events.is_none() {
            return Err(Errno(FI_ENOEQ));
        }
        if flags & !(FI_MORE | FI_SYNC_ERR) != 0 {
            return Err(Errno::BAD_FLAGS);
        }
        open_mpi::mend();
        let mut inserted = 0;
        let (credentials, reach) = (vector.shared.parameters.credentials(), vector.shared.device.reach);
        let mut state = vector.shared.lock()?;
        let State { vectors, .. } = &mut *state;
        for index in 0..count {
            let mut bytes = [0; BYTES];
            // SAFETY: libfabric's promise: `count` addresses of our length.
            unsafe { ptr::copy_nonoverlapping(addresses.cast::<u8>().add(index * BYTES), bytes.as_mut_ptr(), BYTES) };
            let (number, status) = match address::of_peer(bytes, credentials, reach) {
                Ok(address) => {
                    let known = &mut vectors[vector.number].addresses;
                    let number = known.len();
                    known.push(Some(address));
                    inserted += 1;
                    (number as u64, 0)
                }
                Err(error) => {
                    warning!(FI_LOG_AV, "address {index}: {error}");
                    // The user can remove these causes.
                    use BadAddress::{Protection, Reach, Token, Version};
                    if matches!(error, Protection { .. } | Token { .. } | Reach { .. } | Version(_)) {
                        diagnostics::report_refusal(&error.to_string());
                    }
                    (FI_ADDR_NOTAVAIL, FI_EINVAL as c_int)
                }
            };
            if !numbers.is_null() {
                // SAFETY: libfabric's promise: null, or room for `count`.
                unsafe { *numbers.add(index) = number };
            }
            if flags & FI_SYNC_ERR != 0 && !context.is_null() {
                // SAFETY: libfabric's promise for this flag: `count` elements of type `int`.
                unsafe { *context.cast::<c_int>().add(index) = status };
            } else if status != 0
                && vector.is_asynchronous
                && let Some(events) = &vector.events
            {
                events.push_error(av.cast(), context, index as u64, status as u32);
            }
        }
        drop(state);
        if let (true, Some(events)) = (vector.is_asynchronous, &vector.events) {
            events.push(FI_AV_COMPLETE, av.cast(), context, inserted as u64);
            return Ok(0);
        }
        Ok(inserted)
    });
    inserted as c_int
}

unsafe extern "C" fn remove(av: *mut fid_av, numbers: *mut fi_addr_t, count: usize, _: u64) -> c_int {
    guard_status("fi_av_remove", || {
        // SAFETY: libfabric's promise: an open address vector.
        let vector = unsafe { &*av.cast::<VectorFid>() };
        let mut state = vector.shared.lock()?;
        for index in 0..count {
            // SAFETY: libfabric's promise: `count` numbers.
            let number = unsafe { *numbers.add(index) };
            let slot = usize::try_from(number).ok().and_then(|n| state.vectors[vector.number].addresses.get_mut(n));
            if slot.and_then(Option::take).is_none() {
                return Err(Errno::INVALID);
            }
            for endpoint in state.endpoints.iter_mut().filter(|endpoint| endpoint.uses(vector.number)) {
                endpoint.remove_peer(number as usize);
            }
            // Receives from this peer alone have failed.
            state.wake_if_asleep();
        }
        Ok(())
    })
}

unsafe extern "C" fn lookup(av: *mut fid_av, number: fi_addr_t, to: *mut c_void, length: *mut usize) -> c_int {
    guard_status("fi_av_lookup", || {
        // SAFETY: libfabric's promise: an open address vector.
        let vector = unsafe { &*av.cast::<VectorFid>() };
        let state = vector.shared.lock()?;
        let known = &state.vectors[vector.number].addresses;
        let address = usize::try_from(number).ok().and_then(|number| *known.get(number)?).ok_or(Errno::INVALID)?;
        // SAFETY: libfabric's promise: `*length` bytes of room at `to`.
        unsafe { write(&address::to_bytes(address, vector.shared.parameters.credentials()), to, length) };
        Ok(())
    })
}

/// Writes as much of an address as fits, and sets `*length` to its full length.
///
/// # Safety
/// `to` must have room for `*length` bytes.
pub(crate) unsafe fn write(bytes: &[u8; BYTES], to: *mut c_void, length: *mut usize) {
    // SAFETY: the caller's promise.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), BYTES.min(*length));
        *length = BYTES;
    }
}

unsafe extern "C" fn straddr(
    _: *mut fid_av,
    address: *const c_void,
    to: *mut c_char,
    length: *mut usize,
) -> *const c_char {
    let mut bytes = [0; BYTES];
    // SAFETY: libfabric's promise: an address of our length.
    unsafe { ptr::copy_nonoverlapping(address.cast::<u8>(), bytes.as_mut_ptr(), BYTES) };
    let shown = match address::from_bytes(bytes) {
        Ok((address, _)) => format!("fi_barewire://{address}\0"),
        Err(_) => "fi_barewire://?\0".to_owned(),
    };
    // SAFETY: libfabric's promise: `*length` bytes of room at `to`.
    unsafe {
        let room = *length;
        let copied = shown.len().min(room);
        ptr::copy_nonoverlapping(shown.as_ptr(), to.cast::<u8>(), copied);
        if copied > 0 {
            *to.add(copied - 1) = 0;
        }
        *length = shown.len();
    }
    to
}
