// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Automatic progress: a thread that does what there is to do while the program computes, and stays out of its way
//! while it asks by itself.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::bell::Bell;
use crate::bindings::*;
use crate::edge::{Errno, Result};
use crate::log::warning;
use crate::state::Shared;

/// A program that has not asked for so long is computing: less than a rendezvous of 64 KiB takes at 1 Gb/s.
const COMPUTES_AFTER: Duration = Duration::from_micros(200);
/// A look at whether it asks takes the core from it for some 20 µs (`docs/performance.md`), so as long as it asks, the
/// next comes after twice the time, up to this.
const LOOK_AFTER_MAX: Duration = Duration::from_millis(2);
/// The longest sleep, so that the thread sees that new endpoints came.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// The thread; it ends when this is dropped.
pub(crate) struct Helper {
    thread: Option<JoinHandle<()>>,
    control: Arc<Control>,
}

struct Control {
    is_over: AtomicBool,
    bell: Bell,
}

impl Helper {
    pub fn start(shared: &Arc<Shared>) -> Result<Self> {
        let control = Arc::new(Control { is_over: AtomicBool::new(false), bell: Bell::new()? });
        let (its, domain) = (control.clone(), Arc::downgrade(shared));
        let builder = Builder::new().name("barewire".to_owned());
        let thread = builder.spawn(move || run(&domain, &its)).map_err(|_| Errno(FI_EAGAIN))?;
        Ok(Self { thread: Some(thread), control })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.control.is_over.store(true, Ordering::Relaxed);
        self.control.bell.ring();
        if let Some(thread) = self.thread.take() {
            // It has said what went wrong.
            let _ = thread.join();
        }
    }
}

fn run(domain: &Weak<Shared>, control: &Control) {
    outrank_the_program();
    let mut others: Vec<RawFd> = Vec::new();
    let mut asked = None;
    let mut look_after = COMPUTES_AFTER;
    while !control.is_over.load(Ordering::Relaxed) {
        let Some(shared) = domain.upgrade() else { return };
        let mut patience = look_after;
        others.clear();
        {
            let mut state = shared.state.lock();
            if asked == Some(state.asked) {
                look_after = COMPUTES_AFTER;
                if let Err(Errno(error)) = state.progress() {
                    warning!(FI_LOG_CORE, "automatic progress ends: error {error}");
                    return;
                }
                match state.prepare_to_sleep(Some(SLEEP_MAX), &mut others) {
                    Ok(Some(due)) => patience = due.unwrap_or(SLEEP_MAX).min(SLEEP_MAX),
                    Ok(None) => patience = Duration::ZERO,
                    Err(_) => return,
                }
            } else {
                look_after = (2 * look_after).min(LOOK_AFTER_MAX);
            }
            asked = Some(state.asked);
        }
        drop(shared);
        if !patience.is_zero() {
            control.bell.await_it();
            control.bell.sleep(&others, Some(patience));
        }
    }
}

/// A thread of a real-time class never gets the core from another of its own priority, and the program's, which
/// computes, is one: so this one goes just above it. Others share the core by themselves.
fn outrank_the_program() {
    // SAFETY: takes no pointers; 0 is the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    if ![libc::SCHED_FIFO, libc::SCHED_RR].contains(&(policy & !libc::SCHED_RESET_ON_FORK)) {
        return;
    }
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` is written to, and outlives both calls.
    let is_done = unsafe {
        libc::sched_getparam(0, &raw mut parameters) == 0 && {
            parameters.sched_priority += 1;
            libc::sched_setscheduler(0, policy, &raw const parameters) == 0
        }
    };
    if !is_done {
        let error = std::io::Error::last_os_error();
        warning!(FI_LOG_CORE, "automatic progress has no priority above the program's, and may stand still: {error}");
    }
}
