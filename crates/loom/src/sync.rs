// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replacement of the atomics by loom's, each with a name for mutants to select.

pub(crate) use loom::sync::atomic::Ordering;
use loom::sync::{Condvar, Mutex, atomic};

use crate::mutant::Mutant;

macro_rules! named {
    ($($atomic:ident: $value:ty),*) => {$(
        #[derive(Debug)]
        pub(crate) struct $atomic(atomic::$atomic, &'static str);

        impl $atomic {
            pub fn new(value: $value) -> Self {
                Self::named(value, "flag")
            }

            pub fn named(value: $value, name: &'static str) -> Self {
                Self(atomic::$atomic::new(value), name)
            }

            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                self.0.load(Mutant::of_load(self.1, order))
            }

            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, Mutant::of_store(self.1, order));
            }

            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.0.swap(value, order)
            }
        }
    )*};
}

named!(AtomicBool: bool, AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize);

impl AtomicUsize {
    pub fn fetch_add(&self, more: usize, order: Ordering) -> usize {
        self.0.fetch_add(more, order)
    }

    pub fn fetch_sub(&self, less: usize, order: Ordering) -> usize {
        self.0.fetch_sub(less, order)
    }
}

pub(crate) fn fence(order: Ordering) {
    if !Mutant::NoFence.is() {
        atomic::fence(order);
    }
}

pub(crate) fn light_fence() {
    if !Mutant::NoLightFence.is() {
        atomic::fence(Ordering::SeqCst);
    }
}

pub(crate) fn heavy_fence() -> bool {
    if !Mutant::NoHeavyFence.is() {
        atomic::fence(Ordering::SeqCst);
    }
    true
}

pub(crate) const fn can_order_all_threads() -> bool {
    true
}

pub(crate) fn this_thread() -> usize {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    loom::thread::current().id().hash(&mut hasher);
    hasher.finish() as usize
}

pub(crate) fn yield_now() {
    loom::thread::yield_now();
}

/// Whether it is locked, and the waiting threads.
pub(crate) struct RawMutex(Mutex<bool>, Condvar);

impl RawMutex {
    pub fn new() -> Self {
        Self(Mutex::new(false), Condvar::new())
    }

    pub fn lock(&self) {
        let mut is_locked = self.0.lock().unwrap();
        while *is_locked {
            is_locked = self.1.wait(is_locked).unwrap();
        }
        *is_locked = true;
    }

    pub fn try_lock(&self) -> bool {
        !std::mem::replace(&mut *self.0.lock().unwrap(), true)
    }

    pub unsafe fn unlock(&self) {
        *self.0.lock().unwrap() = false;
        self.1.notify_one();
    }
}
