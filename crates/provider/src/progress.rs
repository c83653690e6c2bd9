// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A domain's progress thread. While the program computes, it keeps connections alive and delivers what was posted
//! before; with automatic progress it makes all progress then. It does not interfere with a program that polls.

use std::mem::forget;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use barewire_endpoint::Config;
use nix::sys::signal::{SigSet, SigmaskHow};
use parking_lot::Mutex;

use crate::bindings::*;
use crate::edge::{self, Errno, Result};
use crate::lock::Lock;
use crate::log::warning;
use crate::notifier::Notifier;
use crate::parameters::Parameters;
use crate::progress_request::ProgressRequest;
use crate::state::Shared;

/// The longest sleep while progress is requested, so that the thread notices new endpoints.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// A silent peer is polled after a quarter of its patience, and twenty times in the remainder.
const KEEP_ALIVES_PER_PATIENCE: u32 = 16;
/// The longest interval between checks that only keep connections alive; a local peer's first message may wait as long.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(1);
/// The interval between checks while more has arrived than one of them receives.
const DRAIN_INTERVAL: Duration = Duration::from_millis(1);
/// The shortest interval between two steps, so that frames of a long message are handled together: at 1 Gb/s, waking up
/// for each would take more than half of the core from the program.
const RECEIVING_INTERVAL: Duration = Duration::from_micros(100);
/// The same without automatic progress: what is sent waits for an acknowledgement of half a window.
const SENDING_INTERVAL: Duration = Duration::from_micros(50);
/// The thread's stack, kept small because it counts as locked memory under mlockall(2).
const STACK_BYTES: usize = 256 << 10;

/// All started threads that may still run, for [`end_all`].
static THREADS: LazyLock<Lock<Vec<Weak<Control>>>> = LazyLock::new(|| Lock::shared(Vec::new()));

/// The thread; dropping this ends it.
pub(crate) struct ProgressThread(Arc<Control>);

struct Control {
    thread: Mutex<Option<JoinHandle<()>>>,
    is_over: AtomicBool,
    notifier: Notifier,
    /// The process of the thread; a forked child does not have the thread.
    process: u32,
}

impl ProgressThread {
    pub fn start(shared: &Arc<Shared>, progress_request: Arc<ProgressRequest>) -> Result<Self> {
        let control = Arc::new(Control {
            thread: Mutex::new(None),
            is_over: AtomicBool::new(false),
            notifier: Notifier::new()?,
            process: shared.process,
        });
        let (thread_control, domain) = (control.clone(), Arc::downgrade(shared));
        let main = move || {
            edge::guard_status("the progress thread", || {
                run(&domain, &thread_control, &progress_request);
                Ok(())
            });
        };
        // Signals are for the program's own threads.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(|error| Errno(error as u32))?;
        let thread = Builder::new().name("barewire".to_owned()).stack_size(STACK_BYTES).spawn(main);
        mask.thread_set_mask().map_err(|error| Errno(error as u32))?;
        *control.thread.lock() = Some(thread.map_err(|_| Errno(FI_EAGAIN))?);
        let mut all = THREADS.lock();
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

/// Locks the list during a fork, so that no other thread holds it in the child.
pub(crate) fn before_fork() {
    forget(THREADS.lock());
}

/// Unlocks it again.
///
/// # Safety
/// In the thread that called [`before_fork`], once.
pub(crate) unsafe fn after_fork_in_parent() {
    // SAFETY: the caller's promise.
    drop(unsafe { THREADS.make_guard() });
}

/// Unlocks it in the child.
///
/// # Safety
/// As above, in the child's only thread.
pub(crate) unsafe fn after_fork_in_child() {
    // SAFETY: the caller's promise.
    unsafe { THREADS.reset_in_child() };
}

/// Ends all threads before their code is unloaded, for a program that did not close its domains.
pub(crate) fn end_all() {
    // In a child that was created without fork's handlers it may be locked forever, by a thread that the child lacks.
    let Some(mut all) = THREADS.try_lock() else { return };
    let all = std::mem::take(&mut *all);
    all.iter().filter_map(Weak::upgrade).for_each(|control| control.end());
}

impl Control {
    fn end(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        if self.process != std::process::id() {
            // The parent's thread: joining it in the child would never return.
            std::mem::forget(thread);
            return;
        }
        self.is_over.store(true, Ordering::Relaxed);
        self.notifier.notify();
        // The thread has logged its own failure.
        let _ = thread.join();
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn sleep(&self, descriptors: &[RawFd], patience: Duration) {
        let sleeper = self.notifier.register();
        self.notifier.sleep(sleeper, descriptors, Some(patience));
    }
}

/// Makes progress whenever the program does not: continuously while messages are under way, otherwise often enough to
/// keep connections alive.
fn run(domain: &Weak<Shared>, control: &Control, progress_request: &ProgressRequest) {
    raise_priority();
    sleep_precisely();
    let step_interval = if progress_request.is_automatic() { RECEIVING_INTERVAL } else { SENDING_INTERVAL };
    let mut descriptors: Vec<RawFd> = Vec::new();
    let mut has_worked = true;
    while !control.is_over() {
        let began = Instant::now();
        let Some(shared) = domain.upgrade() else { return };
        if shared.poison.check().is_err() {
            return;
        }
        progress_request.disarm();
        descriptors.clear();
        let patience = step(&shared, progress_request, &mut descriptors, &mut has_worked);
        drop(shared);
        if !patience.is_zero() {
            descriptors.push(progress_request.descriptor());
            control.sleep(&descriptors, patience);
            std::thread::sleep(step_interval.saturating_sub(began.elapsed()));
        }
    }
}

/// Makes progress unless the program does. Returns how long to sleep; adds to `descriptors` what to sleep on.
pub(crate) fn step(
    shared: &Shared,
    progress_request: &ProgressRequest,
    descriptors: &mut Vec<RawFd>,
    has_worked: &mut bool,
) -> Duration {
    let has_program_progressed = progress_request.has_program_progressed();
    if !has_program_progressed || progress_request.is_urgent() {
        // Locked: the program is in a call and makes progress itself.
        let Some(mut state) = shared.try_lock() else { return progress_request.next_interval() };
        let is_asleep = state.is_asleep();
        if has_program_progressed || is_asleep {
            if !has_program_progressed && state.has_stale_sleepers() {
                state.wake_sleepers();
            }
            if !state.is_blocked() {
                progress_request.clear_urgency();
                if is_asleep && progress_request.is_requested() {
                    return SLEEP_MAX;
                }
            }
        } else {
            progress_request.reset_interval();
            *has_worked = note_status(state.progress(), *has_worked);
            let has_messages = state.has_messages();
            if !has_messages && (progress_request.is_oversubscribed() || !state.awaits_long_messages()) {
                progress_request.cancel();
            }
            if progress_request.is_requested() {
                // What only receives wakes the thread when it arrives.
                let longest = if has_messages { SLEEP_MAX } else { keep_alive_interval(&shared.parameters) };
                let prepared = state.prepare_to_sleep(Some(longest), descriptors);
                if !*has_worked {
                    descriptors.clear();
                }
                return match prepared {
                    Ok(None) if *has_worked => Duration::ZERO,
                    Ok(Some(Some(due))) => due.min(longest),
                    _ => longest,
                };
            }
            // `progress` reads the clock only in every n-th call, and this may be the only one for a second.
            let ran = state.run_timers();
            // A peer's poll may be queued behind messages for the program; unanswered, the peer gives this process up.
            let drained = state.drain();
            *has_worked = note_status(ran.and(drained.map(drop)), *has_worked);
            if state.has_sleepers {
                // This thread may have consumed the event that they wait for.
                state.wake_sleepers();
            }
            if drained == Ok(true) {
                return DRAIN_INTERVAL;
            }
        }
    }
    let interval = progress_request.next_interval();
    if progress_request.is_requested() { interval } else { keep_alive_interval(&shared.parameters) }
}

/// The interval at which connections are kept alive: peers are polled, and peers' polls are answered.
pub(crate) fn keep_alive_interval(parameters: &Parameters) -> Duration {
    let patience = parameters.patience.unwrap_or(Config::DEAD_PEER_TIMEOUT);
    (patience.max(Config::DEAD_PEER_TIMEOUT_MIN) / KEEP_ALIVES_PER_PATIENCE).min(KEEP_ALIVE_MAX)
}

/// Whether progress succeeded. A failure is logged once; a link that is down may come up again.
fn note_status(status: Result<()>, had_worked: bool) -> bool {
    if let Err(Errno(error)) = status
        && had_worked
    {
        warning!(FI_LOG_CORE, "no progress while the program computes: error {error}; retrying");
    }
    status.is_ok()
}

/// By default the kernel may let a thread sleep for 50 µs longer.
fn sleep_precisely() {
    // SAFETY: takes no pointers; changes this thread only. It cannot fail with a valid time, in nanoseconds.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

/// A real-time thread is not preempted by another of equal priority. If the program's threads are real-time, this one
/// takes a priority just above theirs. Other scheduling classes share the core anyway.
fn raise_priority() {
    // SAFETY: takes no pointers; 0 means the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    if ![libc::SCHED_FIFO, libc::SCHED_RR].contains(&(policy & !libc::SCHED_RESET_ON_FORK)) {
        return;
    }
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` is written to, and outlives both calls.
    let is_raised = unsafe {
        libc::sched_getparam(0, &raw mut parameters) == 0 && {
            parameters.sched_priority += 1;
            libc::sched_setscheduler(0, policy, &raw const parameters) == 0
        }
    };
    if !is_raised {
        let error = std::io::Error::last_os_error();
        warning!(
            FI_LOG_CORE,
            "cannot raise the progress thread's priority above the program's, which may starve it: {error}"
        );
    }
}
