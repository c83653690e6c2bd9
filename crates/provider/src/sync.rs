// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What threads are ordered by. `crates/loom` puts loom's in its place.

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
    /// The caller must have it.
    #[inline]
    pub unsafe fn unlock(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.0.unlock() };
    }
}

/// With [`heavy_fence`] in another thread, as a sequentially consistent fence in each; for the processor it is nothing.
#[inline]
pub(crate) fn light_fence() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// A fence of all threads of this process; false: the system has none.
pub(crate) fn heavy_fence() -> bool {
    membarrier(PRIVATE_EXPEDITED)
}

/// Whether there will be heavy fences.
pub(crate) fn can_order_all_threads() -> bool {
    membarrier(REGISTER_PRIVATE_EXPEDITED)
}

const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// Runs one of the system's commands about barriers in other threads; whether it could.
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
