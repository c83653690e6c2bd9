// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Atomics, fences and a raw mutex. `crates/loom` replaces this file with loom's versions.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::lock_api::RawMutex as _;

/// A mutex whose owner need not be the thread that locked it, nor have a guard.
pub(crate) struct RawMutex(parking_lot::RawMutex);

impl RawMutex {
    pub const fn new() -> Self {
        Self(parking_lot::RawMutex::INIT)
    }

    #[inline]
    pub fn lock(&self) {
        self.0.lock();
    }

    #[inline]
    pub fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    /// # Safety
    /// The caller must have locked it.
    #[inline]
    pub unsafe fn unlock(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.0.unlock() };
    }
}

/// Together with [`heavy_fence`] in another thread it acts as a sequentially consistent fence in both. No instruction.
#[inline]
pub(crate) fn light_fence() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// A fence in all threads of this process; false if the system has none.
pub(crate) fn heavy_fence() -> bool {
    membarrier(PRIVATE_EXPEDITED)
}

/// A number of the calling thread, not 0, which no other living thread has.
#[inline]
pub(crate) fn this_thread() -> usize {
    // SAFETY: takes and reads nothing.
    unsafe { libc::pthread_self() as usize }
}

pub(crate) fn yield_now() {
    std::thread::yield_now();
}

/// Registers the process for [`heavy_fence`]; false if the system has none.
pub(crate) fn can_order_all_threads() -> bool {
    membarrier(REGISTER_PRIVATE_EXPEDITED)
}

const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// Runs a membarrier(2) command; whether it succeeded.
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
