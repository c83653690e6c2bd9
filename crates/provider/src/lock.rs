// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A domain's lock. Where the program has promised to come with one thread at a time (`FI_THREAD_DOMAIN`) it costs that
//! thread two stores and a load; the keeper, a thread of our own that seldom comes, pays for both. A forked child finds it
//! open.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use crate::sync::{self, AtomicBool, Ordering, RawMutex};

pub(crate) struct Lock<T> {
    /// Of all who come, if many threads may; else of the keeper, and of the program when it must wait for the keeper.
    raw: UnsafeCell<RawMutex>,
    is_shared: bool,
    /// The program's one thread is in.
    is_inside: AtomicBool,
    /// The keeper is in, or is finding out whether it may be.
    is_kept: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time: by the mutex, or by the program's promise and the two flags.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// For any number of threads.
    pub fn shared(value: T) -> Self {
        Self {
            raw: UnsafeCell::new(RawMutex::new()),
            is_shared: true,
            is_inside: AtomicBool::new(false),
            is_kept: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// For a program with one thread at a time, and for one keeper. Where the system has no barriers for that, it is as
    /// [`shared`](Self::shared).
    ///
    /// # Safety
    /// No two threads may be between [`lock`](Self::lock) and the end of its guard at once.
    pub unsafe fn serial(value: T) -> Self {
        let is_shared = !sync::can_order_all_threads();
        Self { is_shared, ..Self::shared(value) }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.is_shared {
            self.raw().lock();
        } else {
            self.enter();
        }
        Guard(self)
    }

    #[inline]
    fn enter(&self) {
        loop {
            self.is_inside.store(true, Ordering::Relaxed);
            // The keeper's barrier makes this one of the processor's: either it sees that store, or this load its own.
            sync::light_fence();
            if !self.is_kept.load(Ordering::Acquire) {
                return;
            }
            self.give_way();
        }
    }

    /// Sleeps until the keeper has done, which may need this core for it.
    #[cold]
    fn give_way(&self) {
        self.is_inside.store(false, Ordering::Release);
        self.hold();
        // SAFETY: held just now.
        unsafe { self.release() };
    }

    /// What the keeper takes; `None`: the program is in, and does by itself what there is to do.
    pub fn keep(&self) -> Option<Kept<'_, T>> {
        if !self.raw().try_lock() {
            return None;
        }
        let kept = Kept(self);
        if self.is_shared {
            return Some(kept);
        }
        self.is_kept.store(true, Ordering::Relaxed);
        let is_ordered = sync::heavy_fence();
        (is_ordered && !self.is_inside.load(Ordering::Acquire)).then_some(kept)
    }

    /// Keeps all others out, but for a serial program's own thread, until [`release`](Self::release).
    pub fn hold(&self) {
        self.raw().lock();
    }

    /// Ends a hold.
    ///
    /// # Safety
    /// This thread must have it.
    pub unsafe fn release(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.raw().unlock() };
    }

    /// The guard again that was forgotten, so that the lock stayed locked.
    ///
    /// # Safety
    /// This thread must have forgotten it, once for each time.
    pub unsafe fn resume(&self) -> Guard<'_, T> {
        Guard(self)
    }

    /// Opens it in a child, whose copy may name waiting threads that the child does not have.
    ///
    /// # Safety
    /// The caller must be the only thread of its process, which was forked by one that had it locked or held.
    pub unsafe fn open_in_child(&self) {
        // SAFETY: no other thread looks at it; there is nothing to drop in it.
        unsafe { *self.raw.get() = RawMutex::new() };
    }

    #[inline]
    fn raw(&self) -> &RawMutex {
        // SAFETY: it is written to only by `open_in_child`, when there is no other thread and no guard.
        unsafe { &*self.raw.get() }
    }
}

/// The keeper's guard.
pub(crate) struct Kept<'a, T>(&'a Lock<T>);

impl<T> Deref for Kept<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: as long as this guard lives, nobody else has one.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Kept<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Kept<'_, T> {
    fn drop(&mut self) {
        self.0.is_kept.store(false, Ordering::Release);
        // SAFETY: `keep` has the hold.
        unsafe { self.0.release() };
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
        if self.0.is_shared {
            // SAFETY: `lock` has locked it, and the guard is the only one.
            unsafe { self.0.raw().unlock() };
        } else {
            self.0.is_inside.store(false, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// Two values that are equal whenever nobody is in.
    #[derive(Default)]
    struct Twins(u64, u64);

    impl Twins {
        fn step(&mut self) {
            assert_eq!(self.0, self.1, "somebody else is in");
            self.0 += 1;
            std::hint::black_box(&mut *self);
            self.1 += 1;
        }
    }

    #[test]
    fn a_serial_program_and_the_keeper_are_never_in_at_once() {
        // SAFETY: one thread below locks it, the other keeps it.
        let lock = Arc::new(unsafe { Lock::serial(Twins::default()) });
        let (its, is_over) = (lock.clone(), Arc::new(AtomicBool::new(false)));
        let ends = is_over.clone();
        let keeper = thread::spawn(move || {
            let mut kept = 0_u64;
            while !ends.load(Ordering::Relaxed) {
                if let Some(mut twins) = its.keep() {
                    twins.step();
                    kept += 1;
                }
            }
            kept
        });
        let mut steps = 0_u64;
        let began = std::time::Instant::now();
        while began.elapsed().as_millis() < 300 {
            for _ in 0..1000 {
                lock.lock().step();
            }
            steps += 1000;
        }
        is_over.store(true, Ordering::Relaxed);
        let kept = keeper.join().unwrap();
        assert!(kept > 0, "the keeper was never in");
        assert_eq!(lock.lock().deref().0, steps + kept);
    }

    #[test]
    fn the_keeper_is_refused_while_the_program_is_in_and_the_program_waits_for_the_keeper() {
        // SAFETY: only one thread at a time locks it.
        let lock = Arc::new(unsafe { Lock::serial(0) });
        let inside = lock.lock();
        assert!(lock.keep().is_none());
        drop(inside);
        let kept = lock.keep().unwrap();
        let its = lock.clone();
        let program = thread::spawn(move || *its.lock());
        thread::sleep(std::time::Duration::from_millis(20));
        let mut kept = kept;
        *kept = 7;
        drop(kept);
        assert_eq!(program.join().unwrap(), 7);
    }
}
