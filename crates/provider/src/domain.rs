// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The domain: one interface, and all that a program has on it, behind one lock.

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barewire_endpoint::Patience;
use barewire_link::Interface;

use crate::bell::Bell;
use crate::bindings::*;
use crate::counter::Counter;
use crate::edge::{Errno, Result, guard_status, unsupported};
use crate::endpoint::{Endpoint, Family, valid};
use crate::fabric::{fid_ops, is_used, new_fid, no_control, share};
use crate::leisure::{self, Leisure, Pause};
use crate::libfabric::libfabric;
use crate::lock::{Guard, Lock};
use crate::log::{info, warning};
use crate::parameters::{Parameters, Progress};
use crate::progress::Helper;
use crate::queue::Queue;
use crate::region::Region;
use crate::table::Table;
use crate::vector::Vector;
use crate::{counter, device, endpoint, fork, poll, queue, region, vector};

/// A `fid_domain`.
#[repr(C)]
pub(crate) struct Domain {
    fid: fid_domain,
    shared: Arc<Shared>,
    /// Does what there is to do while the program computes.
    helper: Option<Helper>,
    _fabric: Arc<()>,
}

/// What the domain's objects have in common.
pub(crate) struct Shared {
    pub state: Lock<State>,
    pub interface: Interface,
    pub parameters: Parameters,
    /// Each object has a share of it.
    pub used: Arc<()>,
    /// The process that opened it: a child of it has no business with the peers.
    pub process: u32,
}

/// The domain's objects, each by its number.
pub(crate) struct State {
    pub endpoints: Table<Endpoint>,
    pub queues: Table<Queue>,
    pub counters: Table<Counter>,
    pub vectors: Table<Vector>,
    pub regions: Table<Region>,
    /// Grows whenever the program asks what has come: then it makes progress by itself.
    pub asked: u64,
    /// Since when questions find nothing.
    pub leisure: Leisure,
}

impl State {
    /// Makes progress with all endpoints; what has ended goes to its queue.
    ///
    /// # Errors
    /// When an interface no longer works.
    #[inline(never)]
    pub fn progress(&mut self) -> Result<()> {
        let mut has_counted = false;
        for endpoint in self.endpoints.iter_mut() {
            has_counted |= endpoint.progress(&mut self.queues, &self.vectors)?;
        }
        if has_counted {
            self.counters.iter_mut().for_each(Counter::changed);
        }
        Ok(())
    }

    /// Whether nothing can be sent now.
    #[inline]
    pub fn owes_nothing(&self) -> bool {
        self.endpoints.iter().all(Endpoint::owes_nothing)
    }

    /// Brings what has ended to its queue.
    #[inline]
    pub fn collect(&mut self) {
        for endpoint in self.endpoints.iter_mut() {
            endpoint.collect(&mut self.queues, &self.vectors);
        }
    }

    /// Makes ready for a sleep: what to sleep on, and for how long at most (`None` in it: for ever). `None`: there is
    /// something to do.
    pub fn prepare_to_sleep(
        &mut self,
        patience: Option<Duration>,
        others: &mut Vec<RawFd>,
    ) -> Result<Option<Option<Duration>>> {
        /// Nothing is due later.
        const LONG: Duration = Duration::from_secs(3600);
        let mut left = patience.unwrap_or(LONG);
        for endpoint in self.endpoints.iter_mut() {
            match endpoint.prepare_to_sleep(left, others)? {
                Some(endpoint) => left = left.min(endpoint),
                None => return Ok(None),
            }
        }
        Ok(Some((left < LONG).then_some(left)))
    }
}

impl Shared {
    /// A question has found nothing: lets others have the core, if they want it and this happens again and again. Most
    /// programs give it away between two questions by themselves, but some never do.
    #[inline(always)]
    pub fn give_way(&self, state: Guard<'_, State>, bell: impl Fn(&State) -> &Bell) -> Result<()> {
        if self.parameters.gives_way { self.pause(state, bell) } else { Ok(()) }
    }

    fn pause(&self, mut state: Guard<'_, State>, bell: impl Fn(&State) -> &Bell) -> Result<()> {
        match state.leisure.pause(Instant::now) {
            Pause::Nothing => {}
            Pause::Yield => {
                drop(state);
                std::thread::yield_now();
            }
            Pause::Sleep => {
                self.sleep(state, Some(leisure::SLEEP), bell, &mut Vec::new())?;
            }
        }
        Ok(())
    }

    /// Sleeps until there is something to do, and at most for so long. Whether the bell rang; `None`: there is something.
    fn sleep(
        &self,
        mut state: Guard<'_, State>,
        patience: Option<Duration>,
        bell: impl Fn(&State) -> &Bell,
        others: &mut Vec<RawFd>,
    ) -> Result<Option<bool>> {
        others.clear();
        let Some(left) = state.prepare_to_sleep(patience, others)? else { return Ok(None) };
        let bell: *const Bell = bell(&state);
        // SAFETY: the object stays open while the program sleeps in a call on it, and so does its bell, which does not
        // move.
        let bell = unsafe { &*bell };
        bell.await_it();
        drop(state);
        Ok(Some(bell.sleep(others, left)))
    }

    /// Makes progress until `is_over`, or until a time; waits meanwhile as users wish. `is_over` is told how the last
    /// wait ended, if one did, and says how patient the next one is. True: woken by a signal, or too late.
    pub fn wait(
        &self,
        until: Option<Instant>,
        mut is_over: impl FnMut(&mut State, Option<bool>) -> (bool, Patience),
        bell: impl Fn(&State) -> &Bell,
    ) -> Result<bool> {
        let mut others = Vec::new();
        let mut ended = None;
        let mut asking_until: Option<Instant> = None;
        let mut turns = 0_u32;
        loop {
            let mut state = self.state.lock();
            state.asked += 1;
            state.collect();
            let (mut is_done, mut patience) = is_over(&mut state, ended.take());
            if !is_done {
                state.progress()?;
                (is_done, patience) = is_over(&mut state, None);
            }
            if is_done {
                is_over(&mut state, asking_until.map(|_| true));
                return Ok(false);
            }
            turns = turns.wrapping_add(1);
            let began_asking = asking_until.is_some();
            if patience.asks() && (!began_asking || !turns.is_multiple_of(TURNS_PER_CLOCK)) {
                asking_until.get_or_insert_with(|| Instant::now() + Patience::ASKING);
                continue;
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return Ok(true);
            }
            if !patience.sleeps() || (patience.asks() && asking_until.is_some_and(|until| now < until)) {
                continue;
            }
            let left = until.map(|until| until - now);
            let Some(is_rung) = self.sleep(state, left, &bell, &mut others)? else { continue };
            ended = Some(false);
            asking_until = None;
            if is_rung {
                let mut state = self.state.lock();
                state.collect();
                return Ok(!is_over(&mut state, None).0);
            }
        }
    }
}

/// Questions between two looks at the clock.
const TURNS_PER_CLOCK: u32 = 32;

static FID_OPS: fi_ops = fid_ops(close, bind, no_control);
static OPS: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: Some(vector::open),
    cq_open: Some(queue::open),
    endpoint: Some(endpoint::open),
    scalable_ep: Some(no_scalable),
    cntr_open: Some(counter::open),
    poll_open: Some(poll::open),
    stx_ctx: Some(no_stx),
    srx_ctx: Some(no_srx),
    query_atomic: Some(query_atomic),
    query_collective: Some(no_query_collective),
    endpoint2: Some(endpoint::open2),
};
unsupported! {
    no_scalable(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_stx(*mut fid_domain, *mut fi_tx_attr, *mut *mut fid_stx, *mut c_void) -> c_int;
    no_srx(*mut fid_domain, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void) -> c_int;
    no_query_collective(*mut fid_domain, fi_collective_op, *mut fi_collective_attr, u64) -> c_int;
}

unsafe extern "C" fn query_atomic(
    domain: *mut fid_domain,
    datatype: fi_datatype,
    op: fi_op,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    guard_status("fi_query_atomic", || {
        let family = match flags {
            0 => Family::Plain,
            FI_FETCH_ATOMIC => Family::Fetching,
            FI_COMPARE_ATOMIC => Family::Comparing,
            _ => return Err(Errno::NOT_SUPPORTED),
        };
        // SAFETY: libfabric's promise.
        let (count, size) = valid(family, datatype, op, unsafe { shared_of(domain) }.interface.mtu)?;
        // SAFETY: as above: room for the answer.
        unsafe { *attr = fi_atomic_attr { count, size } };
        Ok(())
    })
}

/// `fi_domain`.
///
/// # Safety
/// As libfabric's manual says: a fabric of ours, an `info` of ours, and a place for the result.
pub(crate) unsafe fn open(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    made: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    guard_status("fi_domain", || {
        // SAFETY: the caller's promise; the attributes of an `info` of ours are there, and its name ends with a zero.
        let (attributes, name) = unsafe {
            let attributes = (*info).domain_attr.as_ref().ok_or(Errno::INVALID)?;
            if attributes.name.is_null() {
                return Err(Errno::INVALID);
            }
            (attributes, CStr::from_ptr(attributes.name).to_string_lossy().into_owned())
        };
        let parameters = Parameters::load(libfabric().ok_or(Errno::OTHER)?).map_err(|error| {
            warning!(FI_LOG_DOMAIN, "{error}");
            Errno::INVALID
        })?;
        let parameters = Parameters { interface: Some(name), ..parameters };
        let interface = device::interfaces(&parameters).map_err(|error| {
            warning!(FI_LOG_DOMAIN, "{error}");
            Errno::LINK_IS_DOWN
        })?;
        let interface = interface.into_iter().next().ok_or(Errno::NO_DATA)?;
        let has_helper = match parameters.progress {
            Some(progress) => progress == Progress::Auto,
            None => attributes.data_progress == FI_PROGRESS_AUTO,
        };
        let is_serial = attributes.threading == FI_THREAD_DOMAIN;
        let state = State {
            endpoints: Table::new(),
            queues: Table::new(),
            counters: Table::new(),
            vectors: Table::new(),
            regions: Table::new(),
            asked: 0,
            leisure: Leisure::default(),
        };
        // SAFETY: with FI_THREAD_DOMAIN, and no helper, the program promises to have one thread here at a time.
        let state = unsafe { Lock::new(state, !is_serial || has_helper) };
        let progress = if has_helper { Progress::Auto } else { Progress::Manual };
        let (name, mtu, waiting) = (&interface.name, interface.mtu, parameters.waiting);
        info!(FI_LOG_DOMAIN, "{name}: MTU {mtu}, waiting {waiting:?}, progress {progress:?}");
        let shared = Arc::new(Shared { state, interface, parameters, used: Arc::new(()), process: std::process::id() });
        fork::watch(&shared)?;
        let helper = has_helper.then(|| Helper::start(&shared)).transpose()?;
        let fid = new_fid(FI_CLASS_DOMAIN, context, &FID_OPS);
        let fid = fid_domain { fid, ops: (&raw const OPS).cast_mut(), mr: (&raw const region::OPS).cast_mut() };
        // SAFETY: the caller's promise.
        let held = unsafe { share(fabric) };
        let domain = Box::into_raw(Box::new(Domain { fid, shared, helper, _fabric: held }));
        // SAFETY: the caller's promise.
        unsafe { *made = domain.cast() };
        Ok(())
    })
}

/// What a domain's objects share.
///
/// # Safety
/// `domain` must be one of ours that is open.
pub(crate) unsafe fn shared_of(domain: *mut fid_domain) -> Arc<Shared> {
    // SAFETY: the caller's promise.
    unsafe { (*domain.cast::<Domain>()).shared.clone() }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    guard_status("fi_close", || {
        // SAFETY: of a domain, the first field of what `open` made.
        let domain = unsafe { &*fid.cast::<Domain>() };
        if is_used(&domain.shared.used) {
            return Err(Errno::BUSY);
        }
        // SAFETY: made by `open`; the program does not use it any more.
        let mut domain = unsafe { Box::from_raw(fid.cast::<Domain>()) };
        if domain.shared.process != std::process::id() {
            // The thread is the parent's: none here could be waited for.
            std::mem::forget(domain.helper.take());
        }
        Ok(())
    })
}

/// Of an event queue: memory registrations are done when their call returns, so nothing is ever told there.
unsafe extern "C" fn bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    0
}
