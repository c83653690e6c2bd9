// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fid_cntr`: completion counters.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use barewire_endpoint::WaitPolicy;

use super::{fid_ops, new_fid, no_bind, shared_of};
use crate::bindings::*;
use crate::counter::Counter;
use crate::edge::{Errno, Result, guard, guard_status};
use crate::notifier::Notifier;
use crate::state::{Shared, State};
use crate::wait_set::WaitSet;

/// A `fid_cntr`.
#[repr(C)]
struct CounterFid {
    fid: fid_cntr,
    shared: Arc<Shared>,
    number: usize,
    /// The value and errors that the program read last, each by its own call: still reported once the domain is
    /// poisoned, and any other one is a change that it does not know of.
    shown: [AtomicU64; 2],
    _used: Arc<()>,
}

static FID_OPS: fi_ops = fid_ops(close, no_bind, control);
static OPS: fi_ops_cntr = fi_ops_cntr {
    size: size_of::<fi_ops_cntr>(),
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(adderr),
    seterr: Some(seterr),
};

/// `fi_cntr_open`.
pub(crate) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    cntr: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    guard_status("fi_cntr_open", || {
        // SAFETY: libfabric's promise: null or valid.
        let wait = unsafe { attr.as_ref() }.map_or(FI_WAIT_NONE, |attributes| attributes.wait_obj);
        // Since libfabric 2, a counter may count bytes instead.
        // SAFETY: as above.
        let counts_other = unsafe { attr.as_ref() }.is_some_and(|it| it.events != FI_CNTR_EVENTS_COMP || it.flags != 0);
        if counts_other || ![FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD].contains(&wait) {
            return Err(Errno::NOT_SUPPORTED);
        }
        // SAFETY: libfabric's promise.
        let shared = unsafe { shared_of(domain) };
        let notifier = Notifier::new()?;
        let set = [FI_WAIT_FD, FI_WAIT_UNSPEC].contains(&wait).then(|| WaitSet::new(&notifier)).transpose()?;
        let patience = WaitPolicy::new(shared.parameters.waiting, false);
        let number = shared.lock()?.counters.add(Counter::new(notifier, set, patience));
        let fid = new_fid(FI_CLASS_CNTR, context, &FID_OPS);
        let fid = fid_cntr { fid, ops: (&raw const OPS).cast_mut() };
        let counter = CounterFid { fid, number, shown: Default::default(), _used: shared.used.clone(), shared };
        // SAFETY: libfabric's promise.
        unsafe { *cntr = Box::into_raw(Box::new(counter)).cast() };
        Ok(())
    })
}

/// # Safety
/// `cntr` must be an open counter of ours.
unsafe fn counter_of<'a>(cntr: *mut fid_cntr) -> &'a CounterFid {
    // SAFETY: the caller's promise.
    unsafe { &*cntr.cast::<CounterFid>() }
}

/// The counter's number in the domain, if it belongs to it.
///
/// # Safety
/// `cntr` must be an open counter of ours.
pub(crate) unsafe fn number_of(cntr: *mut fid, shared: &Arc<Shared>) -> Option<usize> {
    // SAFETY: the caller's promise.
    let counter = unsafe { counter_of(cntr.cast()) };
    Arc::ptr_eq(&counter.shared, shared).then_some(counter.number)
}

/// The counter's value, after making progress.
///
/// # Safety
/// `cntr` must be an open counter of ours.
pub(crate) unsafe fn values_now(cntr: *mut fid) -> (u64, u64) {
    // SAFETY: the caller's promise.
    let counter = unsafe { counter_of(cntr.cast()) };
    (show("fi_poll", counter, VALUE, false).0, errors_of("fi_poll", counter))
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    guard_status("fi_close", || {
        // SAFETY: libfabric's promise.
        let counter = unsafe { counter_of(fid.cast()) };
        if let Ok(mut state) = counter.shared.lock() {
            if !state.counters[counter.number].bound.is_empty() {
                return Err(Errno::BUSY);
            }
            state.counters.remove(counter.number);
        }
        // SAFETY: allocated by `open`, and no longer used by the program.
        drop(unsafe { Box::from_raw(fid.cast::<CounterFid>()) });
        Ok(())
    })
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, argument: *mut c_void) -> c_int {
    guard_status("fi_control", || {
        // SAFETY: libfabric's promise.
        let counter = unsafe { counter_of(fid.cast()) };
        let state = counter.shared.lock()?;
        let set = state.counters[counter.number].set.as_ref();
        let (true, Some(set)) = (command == FI_GETWAIT as c_int, set) else { return Err(Errno::NOT_SUPPORTED) };
        // SAFETY: libfabric's promise for this command: room for an `int`.
        unsafe { *argument.cast::<c_int>() = set.descriptor() };
        Ok(())
    })
}

const VALUE: usize = 0;
const ERRORS: usize = 1;

/// Shows the counter's value or errors to the program, and returns it and whether the domain works. A counter cannot
/// report a link failure; `fi_cntr_wait` does. `awaits_change`: the program may wait for a change by calling this again
/// and again.
fn show(call: &str, counter: &CounterFid, which: usize, awaits_change: bool) -> (u64, bool) {
    let status = guard(call, || {
        let mut state = counter.shared.lock()?;
        state.progress_request.note_program_progress();
        let _ = state.progress();
        let (value, errors) = state.counter_value(counter.number);
        let shown = [value, errors][which];
        if counter.shown[which].swap(shown, Ordering::Relaxed) == shown && awaits_change {
            counter.shared.back_off(state, |state| &state.counters[counter.number].notifier)?;
        }
        Ok(0)
    });
    (counter.shown[which].load(Ordering::Relaxed), status == 0)
}

unsafe extern "C" fn read(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: libfabric's promise.
    show("fi_cntr_read", unsafe { counter_of(cntr) }, VALUE, true).0
}

unsafe extern "C" fn readerr(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: libfabric's promise.
    errors_of("fi_cntr_readerr", unsafe { counter_of(cntr) })
}

/// The counter's errors. In a poisoned domain a counter keeps its values, plus one error.
fn errors_of(call: &str, counter: &CounterFid) -> u64 {
    let (errors, works) = show(call, counter, ERRORS, false);
    errors + u64::from(!works)
}

/// Changes a counter and wakes its waiters.
///
/// # Safety
/// `cntr` must be an open counter of ours.
unsafe fn change(cntr: *mut fid_cntr, apply: impl FnOnce(&mut Counter, (u64, u64))) -> c_int {
    guard_status("fi_cntr", || {
        // SAFETY: the caller's promise.
        let counter = unsafe { counter_of(cntr) };
        let mut state = counter.shared.lock()?;
        let shown = state.counter_value(counter.number);
        let counter = &mut state.counters[counter.number];
        apply(counter, shown);
        counter.wake();
        Ok(())
    })
}

unsafe extern "C" fn add(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: libfabric's promise.
    unsafe { change(cntr, |counter, _| counter.value = counter.value.wrapping_add(value)) }
}

unsafe extern "C" fn adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: libfabric's promise.
    unsafe { change(cntr, |counter, _| counter.errors = counter.errors.wrapping_add(value)) }
}

unsafe extern "C" fn set(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: libfabric's promise.
    unsafe { change(cntr, |counter, (shown, _)| counter.value = counter.value.wrapping_add(value.wrapping_sub(shown))) }
}

unsafe extern "C" fn seterr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: libfabric's promise.
    unsafe {
        change(cntr, |counter, (_, shown)| counter.errors = counter.errors.wrapping_add(value.wrapping_sub(shown)))
    }
}

unsafe extern "C" fn wait(cntr: *mut fid_cntr, threshold: u64, timeout_ms: c_int) -> c_int {
    guard_status("fi_cntr_wait", || {
        // SAFETY: libfabric's promise.
        let counter = unsafe { counter_of(cntr) };
        let until = u64::try_from(timeout_ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
        let number = counter.number;
        let errors_before = counter.shared.lock()?.counter_value(number).1;
        let reached = |state: &State| {
            let (value, errors) = state.counter_value(number);
            (value >= threshold, errors != errors_before)
        };
        loop {
            let is_late = counter.shared.wait(
                until,
                |state, asked| {
                    if let Some(asked) = asked {
                        state.counters[number].patience.learn(asked);
                    }
                    let (is_reached, is_wrong) = reached(state);
                    (is_reached || is_wrong, state.counters[number].patience.clone())
                },
                |state| &state.counters[number].notifier,
            )?;
            let (is_reached, is_wrong) = reached(&*counter.shared.lock()?);
            if is_reached {
                return Ok(());
            }
            if is_wrong {
                return Err(Errno::AVAILABLE);
            }
            if is_late && until.is_some_and(|until| Instant::now() >= until) {
                return Err(Errno(FI_ETIMEDOUT));
            }
        }
    })
}

/// `Ok` if the program may sleep on the counter's descriptor now: it has read the counter's last change.
///
/// # Safety
/// `cntr` must be an open counter of ours.
pub(crate) unsafe fn trywait(cntr: *mut fid_cntr) -> Result<()> {
    // SAFETY: the caller's promise.
    let counter = unsafe { counter_of(cntr) };
    let mut state = counter.shared.lock()?;
    state.progress()?;
    state.counters[counter.number].notifier.clear();
    let [value, errors] = [VALUE, ERRORS].map(|which| counter.shown[which].load(Ordering::Relaxed));
    if state.counter_value(counter.number) != (value, errors) {
        return Err(Errno::AGAIN);
    }
    let mut descriptors = Vec::new();
    let Some(patience) = state.prepare_to_sleep(None, &mut descriptors)? else { return Err(Errno::AGAIN) };
    state.has_sleepers = true;
    state.counters[counter.number].is_armed = true;
    state.counters[counter.number].set.as_mut().ok_or(Errno::INVALID)?.arm(&descriptors, patience)
}
