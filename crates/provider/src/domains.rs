// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All domains of the process.
//!
//! A program forks while another of its threads, such as the one of automatic progress, is busy with a domain: the child
//! would have that domain locked for ever, by a thread that it does not have, and could not even close what it has of
//! its parent's. So the thread that forks holds all domains meanwhile.
//!
//! And a program may poll several of them in turn, as Open MPI 5 does: a pause in one must hear what comes to the others.

use std::mem::{forget, take};
use std::os::fd::RawFd;
use std::sync::{Arc, LazyLock, Once, Weak};
use std::time::Duration;

use crate::edge::{Errno, Result};
use crate::lock::Lock;
use crate::state::Shared;

struct Domains {
    all: Vec<Weak<Shared>>,
    /// Between the two ends of a fork.
    held: Vec<Arc<Shared>>,
}

static DOMAINS: LazyLock<Lock<Domains>> = LazyLock::new(|| Lock::shared(Domains { all: Vec::new(), held: Vec::new() }));

/// From now on a child finds this domain open, and pauses hear it.
pub(crate) fn watch(domain: &Arc<Shared>) -> Result<()> {
    static ASKED: Once = Once::new();
    let mut status = 0;
    // SAFETY: the functions are there as long as this library: the C library forgets them when it is closed.
    ASKED.call_once(|| status = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) });
    if status != 0 {
        return Err(Errno(status as u32));
    }
    let mut domains = DOMAINS.lock();
    domains.all.retain(|domain| domain.strong_count() > 0);
    domains.all.push(Arc::downgrade(domain));
    Ok(())
}

/// Makes all domains but one, which the caller has locked, ready for a sleep of the caller's: what else to sleep on, and for
/// how long at most. `None`: one of them has something to do. Whoever is busy with one now looks after it.
pub(crate) fn prepare_others_to_sleep(but: &Shared, patience: Duration, others: &mut Vec<RawFd>) -> Option<Duration> {
    let mut left = patience;
    // Never waiting: a thread that forks waits for the caller's.
    let Some(domains) = DOMAINS.keep() else { return Some(left) };
    for domain in domains.all.iter().filter_map(Weak::upgrade).filter(|domain| !std::ptr::eq(&raw const **domain, but))
    {
        let Some(mut state) = domain.keep() else { continue };
        // What is broken is told by its own polls.
        if let Ok(prepared) = state.prepare_to_sleep(Some(left), others) {
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
}

extern "C" fn in_parent() {
    // SAFETY: `before` has forgotten it, in this thread.
    let mut domains = unsafe { DOMAINS.resume() };
    let held = take(&mut domains.held);
    // The list last: another thread that forks takes it first, and then waits for domains.
    for domain in &held {
        // SAFETY: as above.
        unsafe { domain.state.release() };
    }
    drop(domains);
}

extern "C" fn in_child() {
    // SAFETY: a child has one thread, that which forked, and it had the lock by `before`.
    unsafe { DOMAINS.open_in_child() };
    let held = take(&mut DOMAINS.lock().held);
    for domain in &held {
        // SAFETY: as above.
        unsafe { domain.state.open_in_child() };
        domain.poison.in_child();
    }
}
