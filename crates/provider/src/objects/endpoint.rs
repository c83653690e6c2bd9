// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fid_ep`: opening, binding, enabling, naming, closing.

mod access;
mod atomic;
mod messages;
mod rma;

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use super::{counter, fid_ops, new_fid, queue, shared_of, vector};
use crate::address;
use crate::bindings::*;
use crate::counter::{Counted, Counter};
use crate::edge::{Errno, Result, guard, guard_status, unsupported};
use crate::endpoint::{Bound, Endpoint};
use crate::state::{Shared, State};
pub(super) use atomic::{AtomicClass, atomic_limits};

/// A `fid_ep`.
#[repr(C)]
struct EndpointFid {
    fid: fid_ep,
    shared: Arc<Shared>,
    number: usize,
    _used: Arc<()>,
}

static FID_OPS: fi_ops = fid_ops(close, bind, control);
static OPS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel: Some(cancel),
    getopt: Some(getopt),
    setopt: Some(setopt),
    tx_ctx: Some(no_tx_context),
    rx_ctx: Some(no_rx_context),
    rx_size_left: Some(no_size_left),
    tx_size_left: Some(no_size_left),
};
static CM_OPS: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: Some(no_setname),
    getname: Some(getname),
    getpeer: Some(no_getpeer),
    connect: Some(no_connect),
    listen: Some(no_listen),
    accept: Some(no_accept),
    reject: Some(no_reject),
    shutdown: Some(no_shutdown),
    join: Some(no_join),
};
unsupported! {
    no_tx_context(*mut fid_ep, c_int, *mut fi_tx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_rx_context(*mut fid_ep, c_int, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_size_left(*mut fid_ep) -> isize;
    no_setname(fid_t, *mut c_void, usize) -> c_int;
    no_getpeer(*mut fid_ep, *mut c_void, *mut usize) -> c_int;
    no_connect(*mut fid_ep, *const c_void, *const c_void, usize) -> c_int;
    no_listen(*mut fid_pep) -> c_int;
    no_accept(*mut fid_ep, *const c_void, usize) -> c_int;
    no_reject(*mut fid_pep, fid_t, *const c_void, usize) -> c_int;
    no_shutdown(*mut fid_ep, u64) -> c_int;
    no_join(*mut fid_ep, *const c_void, u64, *mut *mut fid_mc, *mut c_void) -> c_int;
}

/// `fi_endpoint`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    guard_status("fi_endpoint", || {
        // SAFETY: libfabric's promise: an `info` of ours, its attributes null or valid.
        let (info, transmit, receive, attributes) = unsafe {
            let info = info.as_ref().ok_or(Errno::INVALID)?;
            (info, info.tx_attr.as_ref(), info.rx_attr.as_ref(), info.ep_attr.as_ref())
        };
        let is_unreliable = match attributes.map_or(FI_EP_RDM, |attributes| attributes.type_) {
            FI_EP_RDM => false,
            FI_EP_DGRAM => true,
            _ => return Err(Errno::NOT_SUPPORTED),
        };
        // SAFETY: libfabric's promise.
        let shared = unsafe { shared_of(domain) };
        let mut endpoint = Endpoint::new(is_unreliable);
        endpoint.transmit_flags = transmit.map_or(0, |attributes| attributes.op_flags);
        endpoint.inject_size = transmit.map_or(usize::MAX, |attributes| attributes.inject_size);
        endpoint.receive_flags = receive.map_or(0, |attributes| attributes.op_flags);
        endpoint.is_directed = info.caps & FI_DIRECTED_RECV != 0;
        let number = shared.lock()?.endpoints.add(endpoint);
        let fid = fid_ep {
            fid: new_fid(FI_CLASS_EP, context, &FID_OPS),
            ops: (&raw const OPS).cast_mut(),
            cm: (&raw const CM_OPS).cast_mut(),
            msg: (&raw const messages::MESSAGE_OPS).cast_mut(),
            rma: (&raw const rma::RMA_OPS).cast_mut(),
            tagged: (&raw const messages::TAGGED_OPS).cast_mut(),
            atomic: (&raw const atomic::ATOMIC_OPS).cast_mut(),
            collective: std::ptr::null_mut(),
        };
        let endpoint = EndpointFid { fid, number, _used: shared.used.clone(), shared };
        // SAFETY: libfabric's promise.
        unsafe { *ep = Box::into_raw(Box::new(endpoint)).cast() };
        Ok(())
    })
}

/// `fi_endpoint2`.
pub(crate) unsafe extern "C" fn open2(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return Errno::NOT_SUPPORTED.negative() as c_int;
    }
    // SAFETY: libfabric's promise.
    unsafe { open(domain, info, ep, context) }
}

/// # Safety
/// `ep` must be an open endpoint of ours.
#[inline]
unsafe fn endpoint_of<'a>(ep: *mut fid_ep) -> &'a EndpointFid {
    // SAFETY: the caller's promise.
    unsafe { &*ep.cast::<EndpointFid>() }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    /// Limit for closing. An unreachable peer is given up earlier.
    const PATIENCE: Duration = Duration::from_secs(15);
    guard_status("fi_close", || {
        // SAFETY: libfabric's promise.
        let ep = unsafe { endpoint_of(fid.cast()) };
        if let Ok(mut state) = ep.shared.lock()
            && let Some(mut endpoint) = state.endpoints.remove(ep.number)
        {
            for bound in [endpoint.transmit, endpoint.receive].into_iter().flatten() {
                state.queues[bound.queue].bound_endpoints -= 1;
            }
            if let Some(vector) = endpoint.vector {
                state.vectors[vector].bound_endpoints -= 1;
            }
            for counter in state.counters.iter_mut() {
                counter.unbind(Counted::Endpoint(ep.number), |flags| endpoint.completed(flags));
            }
            // A forked child must not close its parent's connections.
            if ep.shared.process == std::process::id() {
                let siblings: Vec<_> = state.endpoints.iter().filter_map(Endpoint::address).collect();
                endpoint.finish(PATIENCE, &siblings, || {
                    // Link errors are reported when the siblings' queues are read.
                    let _ = state.progress();
                    state.endpoints.iter().all(Endpoint::has_nothing_to_send)
                });
                // Peers may have accessed memory meanwhile.
                state.counters.iter_mut().for_each(Counter::wake);
            } else {
                std::mem::forget(endpoint);
            }
        }
        // SAFETY: allocated by `open`, and no longer used by the program.
        drop(unsafe { Box::from_raw(fid.cast::<EndpointFid>()) });
        Ok(())
    })
}

/// The kinds of operations that a counter can count.
const COUNTED_OPERATIONS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

unsafe extern "C" fn bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    guard_status("fi_ep_bind", || {
        // SAFETY: libfabric's promise: both are open.
        let (ep, class) = unsafe { (endpoint_of(fid.cast()), (*other).fclass) };
        let shared = &ep.shared;
        let mut state = shared.lock()?;
        let state = &mut *state;
        let endpoint = &mut state.endpoints[ep.number];
        if endpoint.wire.is_some() && class != FI_CLASS_CNTR as usize {
            return Err(Errno::BAD_STATE);
        }
        if class == FI_CLASS_CQ as usize {
            // SAFETY: the class determines the type.
            let queue = unsafe { queue::number_of(other, shared) }.ok_or(Errno::INVALID)?;
            let bound = Bound { queue, is_selective: flags & FI_SELECTIVE_COMPLETION != 0 };
            let slots = [(FI_TRANSMIT, &mut endpoint.transmit), (FI_RECV, &mut endpoint.receive)];
            let mut wanted: Vec<_> = slots.into_iter().filter(|(flag, _)| flags & flag != 0).collect();
            if wanted.is_empty() || wanted.iter().any(|(_, slot)| slot.is_some()) {
                return Err(Errno::INVALID);
            }
            for (_, slot) in &mut wanted {
                **slot = Some(bound);
                state.queues[queue].bound_endpoints += 1;
            }
        } else if class == FI_CLASS_AV as usize {
            // SAFETY: as above.
            let vector = unsafe { vector::number_of(other, shared) }.ok_or(Errno::INVALID)?;
            if endpoint.vector.is_some() {
                return Err(Errno::INVALID);
            }
            endpoint.vector = Some(vector);
            state.vectors[vector].bound_endpoints += 1;
        } else if class == FI_CLASS_CNTR as usize {
            // SAFETY: as above.
            let counter = unsafe { counter::number_of(other, shared) }.ok_or(Errno::INVALID)?;
            if flags & !COUNTED_OPERATIONS != 0 {
                return Err(Errno::BAD_FLAGS);
            }
            state.bind_counter(counter, Counted::Endpoint(ep.number), flags)?;
            state.endpoints[ep.number].reported_counts.get_or_insert_default();
        } else if class != FI_CLASS_EQ as usize {
            return Err(Errno::INVALID);
        }
        Ok(())
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    guard_status("fi_control", || {
        // SAFETY: libfabric's promise.
        let ep = unsafe { endpoint_of(fid.cast()) };
        let mut state = ep.shared.lock()?;
        let State { endpoints, regions, .. } = &mut *state;
        let endpoint = &mut endpoints[ep.number];
        let flags = argument.cast::<u64>();
        match command as u32 {
            FI_ENABLE => {
                endpoint.enable(&ep.shared.device, &ep.shared.parameters)?;
                for region in regions.iter_mut().filter(|region| region.is_reachable()) {
                    // SAFETY: the program's promise: a region's memory is valid until it is closed.
                    unsafe { endpoint.register(region) }?;
                }
                // Sleepers must wake for this endpoint, too.
                state.wake_if_asleep();
                Ok(())
            }
            // SAFETY: libfabric's promise for these commands: 64 bits.
            FI_GETOPSFLAG => unsafe {
                let which = if *flags & FI_TRANSMIT != 0 { endpoint.transmit_flags } else { endpoint.receive_flags };
                *flags = which;
                Ok(())
            },
            FI_SETOPSFLAG => {
                // SAFETY: as above.
                let wanted = unsafe { *flags };
                match (wanted & FI_TRANSMIT != 0, wanted & FI_RECV != 0) {
                    (true, false) => endpoint.transmit_flags = wanted & !FI_TRANSMIT,
                    (false, true) => endpoint.receive_flags = wanted & !FI_RECV,
                    _ => return Err(Errno::INVALID),
                }
                Ok(())
            }
            _ => Err(Errno::NOT_SUPPORTED),
        }
    })
}

unsafe extern "C" fn getname(fid: fid_t, to: *mut c_void, length: *mut usize) -> c_int {
    guard_status("fi_getname", || {
        // SAFETY: libfabric's promise.
        let ep = unsafe { endpoint_of(fid.cast()) };
        let state = ep.shared.lock()?;
        let wire = state.endpoints[ep.number].wire.as_ref().ok_or(Errno::BAD_STATE)?;
        // SAFETY: libfabric's promise: room for `*length` bytes.
        let room = unsafe { *length };
        // SAFETY: as above.
        unsafe { vector::write(&address::to_bytes(wire.address(), ep.shared.parameters.credentials()), to, length) };
        if room < address::BYTES { Err(Errno::TOO_SMALL) } else { Ok(()) }
    })
}

unsafe extern "C" fn cancel(fid: fid_t, context: *mut c_void) -> isize {
    guard("fi_cancel", || {
        // SAFETY: libfabric's promise.
        let ep = unsafe { endpoint_of(fid.cast()) };
        let mut state = ep.shared.lock()?;
        let endpoint = &mut state.endpoints[ep.number];
        let multi_receives = endpoint.multi_receives.iter().filter(|receive| receive.context == context);
        let mut numbers: Vec<u64> = multi_receives.map(|receive| receive.number).collect();
        if numbers.is_empty() {
            numbers.push(context as u64);
        }
        let wire = endpoint.wire()?;
        // One that ends with a message in progress cannot be cancelled again.
        if !numbers.into_iter().any(|number| wire.cancel(number)) {
            return Err(Errno(FI_ENOENT));
        }
        state.wake_if_asleep();
        Ok(0)
    })
}

unsafe extern "C" fn getopt(fid: fid_t, level: c_int, name: c_int, value: *mut c_void, length: *mut usize) -> c_int {
    guard_status("fi_getopt", || {
        check_option(level, name)?;
        // SAFETY: libfabric's promise.
        let ep = unsafe { endpoint_of(fid.cast()) };
        let bytes = ep.shared.lock()?.endpoints[ep.number].min_multi_recv;
        // SAFETY: libfabric's promise: `*length` bytes of room.
        unsafe {
            if *length < size_of::<usize>() {
                return Err(Errno::TOO_SMALL);
            }
            *value.cast::<usize>() = bytes;
            *length = size_of::<usize>();
        }
        Ok(())
    })
}

unsafe extern "C" fn setopt(fid: fid_t, level: c_int, name: c_int, value: *const c_void, length: usize) -> c_int {
    guard_status("fi_setopt", || {
        check_option(level, name)?;
        if length != size_of::<usize>() {
            return Err(Errno::INVALID);
        }
        // SAFETY: libfabric's promise.
        let (ep, bytes) = unsafe { (endpoint_of(fid.cast()), *value.cast::<usize>()) };
        ep.shared.lock()?.endpoints[ep.number].min_multi_recv = bytes;
        Ok(())
    })
}

fn check_option(level: c_int, name: c_int) -> Result<()> {
    let is_supported = level == FI_OPT_ENDPOINT as c_int && name == FI_OPT_MIN_MULTI_RECV as c_int;
    if is_supported { Ok(()) } else { Err(Errno(FI_ENOPROTOOPT)) }
}
