// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lock that costs nothing where the program has promised to need none (`FI_THREAD_DOMAIN`), and that a forked child
//! finds open.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;

pub(crate) struct Lock<T> {
    raw: UnsafeCell<RawMutex>,
    is_needed: bool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time: by the lock, or by the program's promise.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// # Safety
    /// If it is not `is_needed`, no two threads may hold a guard at once.
    pub const unsafe fn new(value: T, is_needed: bool) -> Self {
        Self { raw: UnsafeCell::new(RawMutex::INIT), is_needed, value: UnsafeCell::new(value) }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.is_needed {
            self.raw().lock();
        }
        Guard(self)
    }

    /// The guard again that was forgotten, so that the lock stayed locked.
    ///
    /// # Safety
    /// This thread must have forgotten it, once for each time.
    pub unsafe fn resume(&self) -> Guard<'_, T> {
        Guard(self)
    }

    /// Opens the lock in a child, whose copy may name waiting threads that the child does not have.
    ///
    /// # Safety
    /// The caller must be the only thread of its process, which was forked by one that had the lock.
    pub unsafe fn open_in_child(&self) {
        // SAFETY: no other thread looks at it; there is nothing to drop in it.
        unsafe { *self.raw.get() = RawMutex::INIT };
    }

    #[inline]
    fn raw(&self) -> &RawMutex {
        // SAFETY: it is written to only by `open_in_child`, when there is no other thread and no guard.
        unsafe { &*self.raw.get() }
    }
}

pub(crate) struct Guard<'a, T>(&'a Lock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: as long as this guard lives, nobody else has one.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_needed {
            // SAFETY: `lock` has locked it, and the guard is the only one.
            unsafe { self.0.raw().unlock() };
        }
    }
}
