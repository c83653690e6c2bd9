// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A domain's progress thread. While the program computes it keeps the peers' connections alive and brings to its peers
//! what was posted before; with automatic progress it does then all that there is to do. It stays out of the way of a
//! program that asks by itself.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use barewire_endpoint::Config;
use nix::sys::signal::{SigSet, SigmaskHow};
use parking_lot::Mutex;

use crate::attention::Attention;
use crate::bindings::*;
use crate::edge::{self, Errno, Result};
use crate::log::warning;
use crate::notifier::Notifier;
use crate::parameters::Parameters;
use crate::state::Shared;

/// The longest sleep while there is something to do, so that the thread sees that new endpoints came.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// Peers are asked for a sign of life after a quarter of their patience, and twenty times in the rest.
const LOOKS_IN_A_PATIENCE: u32 = 16;
/// Between two looks that only keep alive; also a local peer's first message may wait for so long.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(1);
/// Of the thread: locked memory counts it in.
const STACK_BYTES: usize = 256 << 10;

/// All that were started and may run, for [`end_all`].
static ALL: Mutex<Vec<Weak<Control>>> = Mutex::new(Vec::new());

/// The thread; it ends when this is dropped.
pub(crate) struct ProgressThread(Arc<Control>);

struct Control {
    thread: Mutex<Option<JoinHandle<()>>>,
    is_over: AtomicBool,
    notifier: Notifier,
    /// Which has the thread; a child of it has none.
    process: u32,
}

impl ProgressThread {
    pub fn start(shared: &Arc<Shared>, attention: Arc<Attention>) -> Result<Self> {
        let control = Arc::new(Control {
            thread: Mutex::new(None),
            is_over: AtomicBool::new(false),
            notifier: Notifier::new()?,
            process: shared.process,
        });
        let (its, domain) = (control.clone(), Arc::downgrade(shared));
        let run = move || {
            edge::guard_status("the progress thread", || {
                attend(&domain, &its, &attention);
                Ok(())
            });
        };
        // The program's signals are for its own threads.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(|error| Errno(error as u32))?;
        let thread = Builder::new().name("barewire".to_owned()).stack_size(STACK_BYTES).spawn(run);
        mask.thread_set_mask().map_err(|error| Errno(error as u32))?;
        *control.thread.lock() = Some(thread.map_err(|_| Errno(FI_EAGAIN))?);
        let mut all = ALL.lock();
        all.retain(|control| control.strong_count() > 0);
        all.push(Arc::downgrade(&control));
        Ok(Self(control))
    }
}

#[cfg(test)]
impl ProgressThread {
    pub fn has_ended(&self) -> bool {
        self.0.thread.lock().as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Ends all threads, before their code is unloaded: the program did not close its domains.
pub(crate) fn end_all() {
    // Locked in a child: by a thread that it does not have.
    let Some(mut all) = ALL.try_lock() else { return };
    let all = std::mem::take(&mut *all);
    all.iter().filter_map(Weak::upgrade).for_each(|control| control.end());
}

impl Control {
    fn end(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        if self.process != std::process::id() {
            // It is the parent's: here it could be waited for without end.
            std::mem::forget(thread);
            return;
        }
        self.is_over.store(true, Ordering::Relaxed);
        self.notifier.notify();
        // It has said what went wrong.
        let _ = thread.join();
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn sleep(&self, others: &[RawFd], patience: Duration) {
        let sleeper = self.notifier.await_it();
        self.notifier.sleep(sleeper, others, Some(patience));
    }
}

/// Makes progress whenever the program does not: as long as there is something under way, and else, now and then, so that
/// peers do not take it for dead.
fn attend(domain: &Weak<Shared>, control: &Control, attention: &Attention) {
    outrank_the_program();
    let mut others: Vec<RawFd> = Vec::new();
    let mut is_well = true;
    while !control.is_over() {
        let Some(shared) = domain.upgrade() else { return };
        if shared.poison.check().is_err() {
            return;
        }
        attention.heard();
        others.clear();
        let patience = look(&shared, attention, &mut others, &mut is_well);
        drop(shared);
        if !patience.is_zero() {
            others.push(attention.descriptor());
            control.sleep(&others, patience);
        }
    }
}

/// Does what the program does not; for how long to sleep then, and on what.
fn look(shared: &Shared, attention: &Attention, others: &mut Vec<RawFd>, is_well: &mut bool) -> Duration {
    let has_turned = attention.has_turned();
    if !has_turned || attention.is_urgent() {
        // Refused: the program is in a call, and does by itself what there is to do.
        let Some(mut state) = shared.keep() else { return attention.watch() };
        let is_asleep = state.is_asleep();
        if has_turned || is_asleep {
            if !state.is_held_up() {
                attention.calm_down();
                if is_asleep && attention.is_asked_for() {
                    return SLEEP_MAX;
                }
            }
        } else {
            attention.take_over();
            *is_well = has_worked(state.progress(), *is_well);
            if !state.has_messages() {
                attention.dismiss();
            }
            if attention.is_asked_for() {
                let prepared = state.prepare_to_sleep(Some(SLEEP_MAX), others);
                if !*is_well {
                    others.clear();
                }
                return match prepared {
                    Ok(None) if *is_well => Duration::ZERO,
                    Ok(Some(Some(due))) => due.min(SLEEP_MAX),
                    _ => SLEEP_MAX,
                };
            }
            if state.has_sleepers {
                // What they sleep on may have been heard here.
                state.wake_sleepers();
            }
        }
    }
    let watched = attention.watch();
    if attention.is_asked_for() { watched } else { keep_alive_after(&shared.parameters) }
}

/// Peers are asked for a sign of life by then, and hear one from here.
fn keep_alive_after(parameters: &Parameters) -> Duration {
    let patience = parameters.patience.unwrap_or(Config::NOTICE_THE_DEAD_WITHIN);
    (patience.max(Config::NOTICE_THE_DEAD_WITHIN_MIN) / LOOKS_IN_A_PATIENCE).min(KEEP_ALIVE_MAX)
}

/// Whether progress was made. A link that is down may come up again: that is said once, and tried again.
fn has_worked(status: Result<()>, had_worked: bool) -> bool {
    if let Err(Errno(error)) = status
        && had_worked
    {
        warning!(FI_LOG_CORE, "no progress while the program computes: error {error}; trying on");
    }
    status.is_ok()
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
        warning!(FI_LOG_CORE, "the progress thread has no priority above the program's, and may stand still: {error}");
    }
}
