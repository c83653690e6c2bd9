// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A domain's lock. If the program promises that one thread at a time uses the domain (`FI_THREAD_DOMAIN`), the lock
//! costs that thread two stores and a load; the progress thread pays with a process-wide memory barrier. A second thread
//! of the program makes it an ordinary lock: MPI libraries give that promise for programs that do not keep it, such as
//! PT-Scotch, whose threads call MPI after `MPI_Init`. The lock is free in a forked child.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use crate::sync::{self, AtomicBool, Ordering, RawMutex};

pub(crate) struct Lock<T> {
    /// In a shared lock taken by every thread; in a serial one by [`try_lock`](Self::try_lock), and by the program's
    /// thread when it must wait for that.
    raw: UnsafeCell<RawMutex>,
    /// Changes while no thread holds the lock.
    is_shared: AtomicBool,
    /// Serial lock: the program's thread.
    owner: usize,
    /// Serial lock: that thread holds it.
    is_held_by_program: AtomicBool,
    /// Serial lock: another thread holds it, or is about to find out whether it may.
    is_held_by_other: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time accesses the value: ensured by the mutex, or by the two flags.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A lock for any number of threads.
    pub fn shared(value: T) -> Self {
        Self {
            raw: UnsafeCell::new(RawMutex::new()),
            is_shared: AtomicBool::new(true),
            owner: 0,
            is_held_by_program: AtomicBool::new(false),
            is_held_by_other: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// A lock for the calling thread, and for threads that only [`try_lock`](Self::try_lock), until another thread
    /// [locks](Self::lock) it. A [`shared`](Self::shared) lock where the system has no membarrier.
    pub fn serial(value: T) -> Self {
        let is_shared = AtomicBool::new(!sync::can_order_all_threads());
        Self { is_shared, owner: sync::this_thread(), ..Self::shared(value) }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.is_shared.load(Ordering::Relaxed) || !self.enter() {
            self.raw().lock();
        }
        Guard(self)
    }

    /// Takes a serial lock. False if it is, or was made, a shared one.
    #[inline]
    fn enter(&self) -> bool {
        if self.owner != sync::this_thread() {
            self.share();
            return false;
        }
        loop {
            self.is_held_by_program.store(true, Ordering::Relaxed);
            // The other thread's heavy fence makes this a full fence: either it sees the store above, or the load below
            // sees its store.
            sync::light_fence();
            if self.is_held_by_other.load(Ordering::Acquire) {
                self.wait_for_other();
                continue;
            }
            if self.is_shared.load(Ordering::Relaxed) {
                self.is_held_by_program.store(false, Ordering::Release);
                return false;
            }
            return true;
        }
    }

    /// Makes a serial lock a shared one.
    #[cold]
    fn share(&self) {
        self.hold();
        if !self.is_shared.load(Ordering::Relaxed) {
            self.is_held_by_other.store(true, Ordering::Relaxed);
            // A forked child must register again.
            let is_ordered = sync::heavy_fence() || sync::can_order_all_threads() && sync::heavy_fence();
            assert!(is_ordered, "membarrier(2) has worked before");
            while self.is_held_by_program.load(Ordering::Acquire) {
                sync::yield_now();
            }
            self.is_shared.store(true, Ordering::Relaxed);
            self.is_held_by_other.store(false, Ordering::Release);
        }
        // SAFETY: held since the first line.
        unsafe { self.release() };
    }

    /// Sleeps until the other thread has released the lock; it may need this core for that.
    #[cold]
    fn wait_for_other(&self) {
        self.is_held_by_program.store(false, Ordering::Release);
        self.hold();
        // SAFETY: held since the line above.
        unsafe { self.release() };
    }

    /// Takes the lock unless another thread holds it. The only way to take a serial lock besides the program's thread.
    pub fn try_lock(&self) -> Option<TryGuard<'_, T>> {
        if !self.raw().try_lock() {
            return None;
        }
        let guard = TryGuard(self);
        if self.is_shared.load(Ordering::Relaxed) {
            return Some(guard);
        }
        self.is_held_by_other.store(true, Ordering::Relaxed);
        let is_ordered = sync::heavy_fence();
        (is_ordered && !self.is_held_by_program.load(Ordering::Acquire)).then_some(guard)
    }

    /// Locks out all other threads until [`release`](Self::release), except the program's thread of a serial lock.
    pub fn hold(&self) {
        self.raw().lock();
    }

    /// Ends a [`hold`](Self::hold).
    ///
    /// # Safety
    /// The calling thread must hold it.
    pub unsafe fn release(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.raw().unlock() };
    }

    /// Recreates a guard that was forgotten with the lock still locked.
    ///
    /// # Safety
    /// The calling thread must have forgotten one guard for each call.
    pub unsafe fn make_guard(&self) -> Guard<'_, T> {
        Guard(self)
    }

    /// Unlocks it in a forked child, whose copy may list waiting threads that the child does not have.
    ///
    /// # Safety
    /// The caller must be the only thread of its process, forked by a thread that had it locked or held.
    pub unsafe fn reset_in_child(&self) {
        // SAFETY: no other thread accesses it; it has nothing to drop.
        unsafe { *self.raw.get() = RawMutex::new() };
    }

    #[inline]
    fn raw(&self) -> &RawMutex {
        // SAFETY: only `reset_in_child` writes to it, when there is no other thread and no guard.
        unsafe { &*self.raw.get() }
    }
}

/// The guard of [`Lock::try_lock`].
pub(crate) struct TryGuard<'a, T>(&'a Lock<T>);

impl<T> Deref for TryGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: no other guard exists while this one lives.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for TryGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for TryGuard<'_, T> {
    fn drop(&mut self) {
        self.0.is_held_by_other.store(false, Ordering::Release);
        // SAFETY: `try_lock` has locked it.
        unsafe { self.0.release() };
    }
}

pub(crate) struct Guard<'a, T>(&'a Lock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: no other guard exists while this one lives.
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
        if self.0.is_shared.load(Ordering::Relaxed) {
            // SAFETY: `lock` has locked it, and this is the only guard.
            unsafe { self.0.raw().unlock() };
        } else {
            self.0.is_held_by_program.store(false, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// Two values that are equal whenever the lock is free.
    #[derive(Default)]
    struct Pair(u64, u64);

    impl Pair {
        fn step(&mut self) {
            assert_eq!(self.0, self.1, "another thread is in the lock");
            self.0 += 1;
            std::hint::black_box(&mut *self);
            self.1 += 1;
        }
    }

    #[test]
    fn a_serial_lock_excludes_try_lock() {
        let lock = Arc::new(Lock::serial(Pair::default()));
        let (shared, is_over) = (lock.clone(), Arc::new(AtomicBool::new(false)));
        let ends = is_over.clone();
        let other = thread::spawn(move || {
            let mut locked = 0_u64;
            while !ends.load(Ordering::Relaxed) {
                if let Some(mut pair) = shared.try_lock() {
                    pair.step();
                    locked += 1;
                }
            }
            locked
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
        let locked = other.join().unwrap();
        assert!(locked > 0, "try_lock never succeeded");
        assert_eq!(lock.lock().deref().0, steps + locked);
    }

    /// Proves that a program that uses several threads, although it promised one, does no harm.
    #[test]
    fn a_serial_lock_excludes_other_threads_of_the_program() {
        const STEPS: u64 = 20_000;
        for _ in 0..20 {
            let lock = Lock::serial(Pair::default());
            let repeat = || (0..STEPS).for_each(|_| lock.lock().step());
            let tried = thread::scope(|scope| {
                scope.spawn(repeat);
                scope.spawn(repeat);
                let other =
                    scope.spawn(|| (0..STEPS).filter_map(|_| lock.try_lock()).map(|mut pair| pair.step()).count());
                repeat();
                other.join().unwrap()
            });
            assert_eq!(lock.lock().deref().0, 3 * STEPS + tried as u64);
        }
    }

    #[test]
    fn try_lock_fails_while_a_serial_lock_is_held_and_lock_waits_for_its_guard() {
        let lock = Arc::new(Lock::serial(0));
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        let mut guard = lock.try_lock().unwrap();
        let shared = lock.clone();
        let program = thread::spawn(move || *shared.lock());
        thread::sleep(std::time::Duration::from_millis(20));
        *guard = 7;
        drop(guard);
        assert_eq!(program.join().unwrap(), 7);
    }
}
