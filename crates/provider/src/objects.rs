// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libfabric's objects: C structures with function tables. This file holds what they have in common.

mod counter;
mod domain;
mod endpoint;
mod events;
pub(crate) mod fabric;
#[cfg(test)]
mod panics;
mod poll;
mod queue;
mod region;
pub mod simulation;
mod vector;

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use crate::bindings::*;
use crate::edge::unsupported;
use crate::progress::ProgressThread;
use crate::state::Shared;

/// A `fid_fabric`.
#[repr(C)]
struct Fabric {
    fid: fid_fabric,
    /// Cloned by each domain and event queue.
    used: Arc<()>,
}

/// A `fid_domain`.
#[repr(C)]
struct Domain {
    fid: fid_domain,
    shared: Arc<Shared>,
    /// `None` in simulated worlds.
    _progress_thread: Option<ProgressThread>,
    _fabric: Arc<()>,
}

/// Whether other objects depend on the owner of `used`.
fn is_used(used: &Arc<()>) -> bool {
    Arc::strong_count(used) > 1
}

type Close = unsafe extern "C" fn(*mut fid) -> c_int;
type Bind = unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int;
type Control = unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int;

/// The common function table of all objects.
const fn fid_ops(close: Close, bind: Bind, control: Control) -> fi_ops {
    fi_ops {
        size: size_of::<fi_ops>(),
        close: Some(close),
        bind: Some(bind),
        control: Some(control),
        ops_open: Some(no_ops_open),
        tostr: None,
        ops_set: None,
    }
}

/// The common header of all objects.
fn new_fid(class: u32, context: *mut c_void, ops: &'static fi_ops) -> fid {
    fid { fclass: class as usize, context, ops: ptr::from_ref(ops).cast_mut() }
}

unsupported! {
    no_bind(*mut fid, *mut fid, u64) -> c_int;
    no_control(*mut fid, c_int, *mut c_void) -> c_int;
    no_ops_open(*mut fid, *const std::ffi::c_char, u64, *mut *mut c_void, *mut c_void) -> c_int;
}

/// The fabric's use count, for its children to clone.
///
/// # Safety
/// `fabric` must be an open fabric of ours.
unsafe fn used_of(fabric: *mut fid_fabric) -> Arc<()> {
    // SAFETY: the caller's promise.
    unsafe { (*fabric.cast::<Fabric>()).used.clone() }
}

/// What the domain's objects share.
///
/// # Safety
/// `domain` must be an open domain of ours.
unsafe fn shared_of(domain: *mut fid_domain) -> Arc<Shared> {
    // SAFETY: the caller's promise.
    unsafe { (*domain.cast::<Domain>()).shared.clone() }
}
