// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program forks while another of its threads, such as the one of automatic progress, is busy with a domain: the child
//! would have that domain locked for ever, by a thread that it does not have, and could not even close what it has of
//! its parent's. So the thread that forks holds all domains meanwhile.

use std::mem::{forget, take};
use std::sync::{Arc, Once, Weak};

use crate::edge::{Errno, Result};
use crate::lock::Lock;
use crate::state::Shared;

struct Domains {
    all: Vec<Weak<Shared>>,
    /// Between the two ends of a fork.
    held: Vec<Arc<Shared>>,
}

static DOMAINS: Lock<Domains> = Lock::shared(Domains { all: Vec::new(), held: Vec::new() });

/// From now on a child finds this domain open.
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
    }
}
