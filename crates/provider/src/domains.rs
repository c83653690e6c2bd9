// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All domains of the process.
//!
//! If the program forked while another thread, such as the progress thread, holds a domain's lock, the domain would
//! stay locked in the child forever, and the child could not even close the objects it inherited. So the thread that
//! forks holds all domains during the fork.
//!
//! A program may also poll several domains round-robin, as Open MPI 5 does: a sleep in one must end by events of the
//! others.

use std::mem::{forget, take};
use std::os::fd::RawFd;
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::Duration;

use crate::edge::{Errno, Result};
use crate::lock::Lock;
use crate::progress;
use crate::state::Shared;

struct Domains {
    all: Vec<Weak<Shared>>,
    /// The domains held during a fork.
    held: Vec<Arc<Shared>>,
}

static DOMAINS: LazyLock<Lock<Domains>> = LazyLock::new(|| Lock::shared(Domains { all: Vec::new(), held: Vec::new() }));

/// Registers a domain, so that it is unlocked in a forked child and its events end sleeps in other domains.
pub(crate) fn register(domain: &Arc<Shared>) -> Result<()> {
    static STATUS: OnceLock<i32> = OnceLock::new();
    // SAFETY: the handlers live as long as this library: the C library removes them when it is unloaded.
    let status = *STATUS.get_or_init(|| unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) });
    if status != 0 {
        return Err(Errno(status as u32));
    }
    let mut domains = DOMAINS.lock();
    domains.all.retain(|domain| domain.strong_count() > 0);
    domains.all.push(Arc::downgrade(domain));
    Ok(())
}

/// All open domains.
pub(crate) fn all() -> Vec<Arc<Shared>> {
    DOMAINS.lock().all.iter().filter_map(Weak::upgrade).collect()
}

/// Prepares all domains except `own`, which the caller has locked, for a sleep of the caller. Adds to `descriptors`
/// what to sleep on; returns the longest sleep, or `None` if a domain has work to do. Skips domains locked by another
/// thread, which makes their progress.
pub(crate) fn prepare_others_to_sleep(
    own: &Shared,
    patience: Duration,
    descriptors: &mut Vec<RawFd>,
) -> Option<Duration> {
    let mut left = patience;
    // Must not wait: a thread that forks holds this lock and waits for the caller's domain.
    let Some(domains) = DOMAINS.try_lock() else { return Some(left) };
    for domain in domains.all.iter().filter_map(Weak::upgrade).filter(|domain| !std::ptr::eq(&raw const **domain, own))
    {
        let Some(mut state) = domain.try_lock() else { continue };
        // Errors are reported by the domain's own polls.
        if let Ok(prepared) = state.prepare_to_sleep(Some(left), descriptors) {
            left = prepared?.map_or(left, |due| left.min(due));
        }
    }
    Some(left)
}

extern "C" fn before() {
    let mut domains = DOMAINS.lock();
    domains.held = domains.all.iter().filter_map(Weak::upgrade).collect();
    domains.held.iter().for_each(|domain| domain.state.hold());
    forget(domains);
    progress::before_fork();
}

extern "C" fn in_parent() {
    // SAFETY: `before` has locked it, in this thread.
    unsafe { progress::after_fork_in_parent() };
    // SAFETY: `before` has forgotten the guard, in this thread.
    let mut domains = unsafe { DOMAINS.make_guard() };
    let held = take(&mut domains.held);
    // Release the list last: another thread that forks locks it first, and then waits for domains.
    for domain in &held {
        // SAFETY: as above.
        unsafe { domain.state.release() };
    }
    drop(domains);
}

extern "C" fn in_child() {
    // SAFETY: the only thread of a child is the one that forked, and `before` has taken the locks in it.
    unsafe {
        progress::after_fork_in_child();
        DOMAINS.reset_in_child();
    }
    let held = take(&mut DOMAINS.lock().held);
    for domain in &held {
        // SAFETY: as above.
        unsafe { domain.state.reset_in_child() };
        domain.poison.in_child();
    }
}
