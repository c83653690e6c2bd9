// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The domain: one interface, and all that a program has on it.

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::{
    Domain, counter, endpoint, fid_ops, is_used, new_fid, no_control, poll, queue, region, share, shared_of, vector,
};
use crate::attention::Attention;
use crate::bindings::*;
use crate::device::DeviceError;
use crate::edge::{Errno, guard_status, unsupported};
use crate::libfabric::libfabric;
use crate::lock::Lock;
use crate::log::{info, warning};
use crate::parameters::{Parameters, Progress};
use crate::poison::Poison;
use crate::progress::ProgressThread;
use crate::state::{Shared, State};
use crate::{device, domains};

pub(super) static FID_OPS: fi_ops = fid_ops(close, bind, no_control);
static OPS: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: Some(vector::open),
    cq_open: Some(queue::open),
    endpoint: Some(endpoint::open),
    scalable_ep: Some(no_scalable),
    cntr_open: Some(counter::open),
    poll_open: Some(poll::open),
    stx_ctx: Some(no_stx),
    srx_ctx: Some(no_srx),
    query_atomic: Some(query_atomic),
    query_collective: Some(no_query_collective),
    endpoint2: Some(endpoint::open2),
};
unsupported! {
    no_scalable(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_stx(*mut fid_domain, *mut fi_tx_attr, *mut *mut fid_stx, *mut c_void) -> c_int;
    no_srx(*mut fid_domain, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_query_collective(*mut fid_domain, fi_collective_op, *mut fi_collective_attr, u64) -> c_int;
}

unsafe extern "C" fn query_atomic(
    domain: *mut fid_domain,
    datatype: fi_datatype,
    op: fi_op,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    guard_status("fi_query_atomic", || {
        let family = match flags {
            0 => endpoint::Family::Plain,
            FI_FETCH_ATOMIC => endpoint::Family::Fetching,
            FI_COMPARE_ATOMIC => endpoint::Family::Comparing,
            _ => return Err(Errno::NOT_SUPPORTED),
        };
        // SAFETY: libfabric's promise.
        let (count, size) = endpoint::valid(family, datatype, op, unsafe { shared_of(domain) }.carried_mtu())?;
        // SAFETY: as above: room for the answer.
        unsafe { *attr = fi_atomic_attr { count, size } };
        Ok(())
    })
}

/// `fi_domain`.
///
/// # Safety
/// As libfabric's manual says: a fabric of ours, an `info` of ours, and a place for the result.
pub(crate) unsafe fn open(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    made: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    guard_status("fi_domain", || {
        // SAFETY: the caller's promise; the attributes of an `info` of ours are there, and its name ends with a zero.
        let (attributes, name) = unsafe {
            let attributes = (*info).domain_attr.as_ref().ok_or(Errno::INVALID)?;
            if attributes.name.is_null() {
                return Err(Errno::INVALID);
            }
            (attributes, CStr::from_ptr(attributes.name).to_string_lossy().into_owned())
        };
        let parameters = Parameters::load(libfabric().ok_or(Errno::OTHER)?).map_err(|error| {
            warning!(FI_LOG_DOMAIN, "{error}");
            Errno::INVALID
        })?;
        let parameters = Parameters { interface: Some(name), ..parameters };
        let interface = device::interfaces(&parameters).map_err(|error| {
            warning!(FI_LOG_DOMAIN, "{error}");
            match error {
                DeviceError::Mtu { .. } => Errno::INVALID,
                error => error.exhausted().unwrap_or(Errno::LINK_IS_DOWN),
            }
        })?;
        let interface = interface.into_iter().next().ok_or(Errno::NO_DATA)?;
        let progress = parameters.progress.unwrap_or(match attributes.data_progress {
            FI_PROGRESS_AUTO => Progress::Auto,
            _ => Progress::Manual,
        });
        let attention = Arc::new(Attention::new(progress == Progress::Auto)?);
        let poison = Arc::new(Poison::new()?);
        let state = State::new(attention.clone(), poison.clone());
        let state = if attributes.threading == FI_THREAD_DOMAIN && progress == Progress::Manual {
            // SAFETY: the program promises to have one thread here at a time, and the progress thread comes as a
            // keeper.
            unsafe { Lock::serial(state) }
        } else {
            Lock::shared(state)
        };
        let (name, mtu, waiting) = (&interface.name, interface.mtu, parameters.waiting);
        info!(FI_LOG_DOMAIN, "{name}: MTU {mtu}, waiting {waiting:?}, progress {progress:?}");
        let shared =
            Arc::new(Shared { state, poison, interface, parameters, used: Arc::new(()), process: std::process::id() });
        domains::watch(&shared)?;
        let progress_thread = ProgressThread::start(&shared, attention)?;
        let fid = new_fid(FI_CLASS_DOMAIN, context, &FID_OPS);
        let fid = fid_domain { fid, ops: (&raw const OPS).cast_mut(), mr: (&raw const region::OPS).cast_mut() };
        // SAFETY: the caller's promise.
        let held = unsafe { share(fabric) };
        let domain = Box::into_raw(Box::new(Domain { fid, shared, _progress_thread: progress_thread, _fabric: held }));
        // SAFETY: the caller's promise.
        unsafe { *made = domain.cast() };
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    guard_status("fi_close", || {
        // SAFETY: of a domain, the first field of what `open` made.
        let domain = unsafe { &*fid.cast::<Domain>() };
        if is_used(&domain.shared.used) {
            return Err(Errno::BUSY);
        }
        if domain.shared.process != std::process::id() {
            // What a process has of its parent's is not its own to end.
            std::mem::forget(domain.shared.clone());
        }
        // SAFETY: made by `open`; the program does not use it any more.
        let domain = unsafe { Box::from_raw(fid.cast::<Domain>()) };
        // State that a panic has left may panic once more: what is left of it then ends with the process.
        let is_poisoned = domain.shared.poison.check().is_err();
        match catch_unwind(AssertUnwindSafe(|| drop(domain))) {
            Err(panic) if !is_poisoned => resume_unwind(panic),
            _ => Ok(()),
        }
    })
}

/// Of an event queue: memory registrations are done when their call returns, so nothing is ever told there.
unsafe extern "C" fn bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    0
}
