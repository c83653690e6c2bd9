// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fid_domain`: a program's objects on one interface.

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::{
    Domain, counter, endpoint, fid_ops, is_used, new_fid, no_control, poll, queue, region, shared_of, used_of, vector,
};
use crate::bindings::*;
use crate::device::DeviceError;
use crate::edge::{Errno, guard_status, unsupported};
use crate::libfabric::libfabric;
use crate::lock::Lock;
use crate::log::{info, warning};
use crate::parameters::{Parameters, Progress};
use crate::poison::Poison;
use crate::progress::ProgressThread;
use crate::progress_request::ProgressRequest;
use crate::state::{Shared, State};
use crate::{device, domains};

static FID_OPS: fi_ops = fid_ops(close, bind, no_control);
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
        let class = match flags {
            0 => endpoint::AtomicClass::Base,
            FI_FETCH_ATOMIC => endpoint::AtomicClass::Fetch,
            FI_COMPARE_ATOMIC => endpoint::AtomicClass::Compare,
            _ => return Err(Errno::NOT_SUPPORTED),
        };
        // SAFETY: libfabric's promise.
        let (count, size) = endpoint::atomic_limits(class, datatype, op, unsafe { shared_of(domain) }.carried_mtu())?;
        // SAFETY: as above: room for the result.
        unsafe { *attr = fi_atomic_attr { count, size } };
        Ok(())
    })
}

/// `fi_domain`.
///
/// # Safety
/// As fi_domain(3) says: a fabric of ours, an `info` of ours, and a valid pointer for the result.
pub(crate) unsafe fn open(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    result: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    guard_status("fi_domain", || {
        // SAFETY: the caller's promise; an `info` of ours has these attributes, and its name is null-terminated.
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
        let devices = device::devices(&parameters).map_err(|error| {
            warning!(FI_LOG_DOMAIN, "{error}");
            match error {
                DeviceError::Mtu { .. } => Errno::INVALID,
                error => error.exhausted().unwrap_or(Errno::LINK_IS_DOWN),
            }
        })?;
        let device = devices.into_iter().next().ok_or(Errno::NO_DATA)?;
        let progress = parameters.progress.unwrap_or(match attributes.data_progress {
            FI_PROGRESS_AUTO => Progress::Auto,
            _ => Progress::Manual,
        });
        let progress_request = Arc::new(ProgressRequest::new(progress == Progress::Auto, parameters.core_sharing)?);
        let poison = Arc::new(Poison::new()?);
        let state = State::new(progress_request.clone(), poison.clone());
        let state = if attributes.threading == FI_THREAD_DOMAIN && progress == Progress::Manual {
            Lock::serial(state)
        } else {
            Lock::shared(state)
        };
        let (name, mtu, waiting) = (&device.name, device.mtu, parameters.waiting);
        info!(FI_LOG_DOMAIN, "{name}: MTU {mtu}, waiting {waiting:?}, progress {progress:?}");
        let shared =
            Arc::new(Shared { state, poison, device, parameters, used: Arc::new(()), process: std::process::id() });
        domains::register(&shared)?;
        let progress_thread = ProgressThread::start(&shared, progress_request)?;
        // SAFETY: the caller's promise.
        unsafe { *result = new(shared, Some(progress_thread), used_of(fabric), context) };
        Ok(())
    })
}

/// A domain that `close` frees.
pub(super) fn new(
    shared: Arc<Shared>,
    progress_thread: Option<ProgressThread>,
    fabric: Arc<()>,
    context: *mut c_void,
) -> *mut fid_domain {
    let fid = new_fid(FI_CLASS_DOMAIN, context, &FID_OPS);
    let fid = fid_domain { fid, ops: (&raw const OPS).cast_mut(), mr: (&raw const region::OPS).cast_mut() };
    Box::into_raw(Box::new(Domain { fid, shared, _progress_thread: progress_thread, _fabric: fabric })).cast()
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    guard_status("fi_close", || {
        // SAFETY: `fid` is the first field of a domain allocated by `open`.
        let domain = unsafe { &*fid.cast::<Domain>() };
        if is_used(&domain.shared.used) {
            return Err(Errno::BUSY);
        }
        if domain.shared.process != std::process::id() {
            // A forked child must not close its parent's connections.
            std::mem::forget(domain.shared.clone());
        }
        // SAFETY: allocated by `open`, and no longer used by the program.
        let domain = unsafe { Box::from_raw(fid.cast::<Domain>()) };
        // Dropping a poisoned state may panic again; the rest of it then lives until the process ends.
        let is_poisoned = domain.shared.poison.check().is_err();
        match catch_unwind(AssertUnwindSafe(|| drop(domain))) {
            Err(panic) if !is_poisoned => resume_unwind(panic),
            _ => Ok(()),
        }
    })
}

/// Binds an event queue, which gets no events: memory registrations complete before their call returns, so that none can
/// be asked to tell it.
unsafe extern "C" fn bind(_: *mut fid, _: *mut fid, flags: u64) -> c_int {
    guard_status("fi_domain_bind", || if flags & FI_REG_MR == 0 { Ok(()) } else { Err(Errno::NOT_SUPPORTED) })
}
