// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a domain, behind one lock; and waiting for its events.

use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barewire_endpoint::WaitPolicy;

use crate::backoff::{self, Backoff, Pause};
use crate::counter::{Counted, Counter};
use crate::device::Device;
use crate::domains;
use crate::edge::{Errno, Result};
use crate::endpoint::Endpoint;
use crate::lock::{Guard, Lock, TryGuard};
use crate::notifier::Notifier;
use crate::parameters::Parameters;
use crate::poison::Poison;
use crate::progress_request::{Posted, ProgressRequest};
use crate::queue::{Entry, Queue};
use crate::region::Region;
use crate::table::Table;
use crate::vector::Vector;

/// What the objects of a domain share.
pub(crate) struct Shared {
    /// Locked through [`lock`](Self::lock) and [`try_lock`](Self::try_lock).
    pub state: Lock<State>,
    pub poison: Arc<Poison>,
    pub device: Device,
    pub parameters: Parameters,
    /// Cloned by each object of the domain.
    pub used: Arc<()>,
    /// The process that opened the domain; a forked child must not use its connections.
    pub process: u32,
}

impl Shared {
    /// See [`Parameters::mtu_without_seal`].
    pub fn carried_mtu(&self) -> usize {
        self.parameters.mtu_without_seal(self.device.mtu)
    }
}

/// The domain's objects, by number.
pub(crate) struct State {
    pub endpoints: Table<Endpoint>,
    pub queues: Table<Queue>,
    pub counters: Table<Counter>,
    pub vectors: Table<Vector>,
    pub regions: Table<Region>,
    /// The request to the progress thread.
    pub progress_request: Arc<ProgressRequest>,
    /// Included in every sleep.
    poison: Arc<Poison>,
    /// State of empty polls.
    pub backoff: Backoff,
    /// Progress was attempted, or a local peer's message received, since the last poll that skipped progress.
    has_progressed: bool,
    /// A thread of the program has slept, or was permitted to by `fi_trywait`.
    pub has_sleepers: bool,
    /// Progress was attempted since a thread last went to sleep, which may have to wake earlier now.
    has_progressed_since_sleep: bool,
    /// The next progress call panics.
    #[cfg(test)]
    pub panics: bool,
}

impl State {
    pub fn new(progress_request: Arc<ProgressRequest>, poison: Arc<Poison>) -> Self {
        Self {
            endpoints: Table::new(),
            queues: Table::new(),
            counters: Table::new(),
            vectors: Table::new(),
            regions: Table::new(),
            progress_request,
            poison,
            backoff: Backoff::default(),
            has_progressed: false,
            has_sleepers: false,
            has_progressed_since_sleep: false,
            #[cfg(test)]
            panics: false,
        }
    }

    /// Makes progress on all endpoints and queues their completions.
    ///
    /// # Errors
    /// An interface no longer works.
    #[inline(never)]
    pub fn progress(&mut self) -> Result<()> {
        self.has_progressed = true;
        self.has_progressed_since_sleep = true;
        #[cfg(test)]
        assert!(!std::mem::take(&mut self.panics), "a test's panic");
        let (mut has_counted, mut status) = (false, Ok(()));
        for endpoint in self.endpoints.iter_mut() {
            match endpoint.progress(&mut self.queues, &self.vectors) {
                Ok(has) => has_counted |= has,
                Err(error) => status = Err(error),
            }
        }
        if has_counted {
            self.counters.iter_mut().for_each(Counter::wake);
        }
        self.request_progress();
        status
    }

    /// Handles all timers that are due, and makes the progress that they cause.
    ///
    /// # Errors
    /// As [`progress`](Self::progress).
    pub fn run_timers(&mut self) -> Result<()> {
        let ran = self.endpoints.iter_mut().map(Endpoint::run_timers).fold(Ok(()), Result::and);
        self.progress().and(ran)
    }

    /// Makes progress until everything that has arrived is handled, in a bounded number of calls. Each call of
    /// `progress` ends with the first message that completes an operation, for a program that waits for it. True if
    /// something is left.
    ///
    /// # Errors
    /// As [`progress`](Self::progress).
    pub fn drain(&mut self) -> Result<bool> {
        /// Bounds for how long the program finds the domain locked.
        const CALLS_MAX: u32 = 64;
        let has_more = |state: &mut Self| state.endpoints.iter_mut().any(Endpoint::has_more_to_receive);
        for _ in 0..CALLS_MAX {
            if !has_more(self) {
                return Ok(false);
            }
            self.progress()?;
        }
        Ok(has_more(self))
    }

    /// Requests the progress thread if messages are under way; urgently if something could not be sent yet.
    #[inline]
    fn request_progress(&self) {
        if !self.progress_request.is_urgent() && self.has_messages() {
            let is_urgent = self.is_blocked();
            if is_urgent || !self.progress_request.is_requested() {
                self.progress_request.request(is_urgent);
            }
        }
    }

    /// Whether something could not be sent yet.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.endpoints.iter().any(Endpoint::is_blocked)
    }

    /// Whether a message waits to be sent, or is not acknowledged.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.endpoints.iter().any(Endpoint::has_messages)
    }

    /// Whether receives wait for more than fits a window.
    pub fn awaits_long_messages(&self) -> bool {
        self.endpoints.iter().any(Endpoint::awaits_long_messages)
    }

    /// Receives a local peer's message for an empty queue, without other progress.
    #[inline]
    pub fn receive_next(&mut self, queue: usize) -> Option<Entry> {
        let Self { endpoints, vectors, .. } = self;
        let received = endpoints.iter_mut().find_map(|endpoint| endpoint.receive_next(queue, vectors))?;
        self.has_progressed = true;
        Some(received)
    }

    /// The result of a call that posts an operation. Makes progress if the operation was refused, so that retries
    /// succeed, or waits for room, because a program that only sends never polls.
    ///
    /// # Errors
    /// Why it was refused, or the interface no longer works.
    #[inline]
    pub fn finish_post(&mut self, endpoint: usize, posted: Result<()>) -> Result<isize> {
        let is_refused = posted == Err(Errno::AGAIN);
        if is_refused || self.endpoints[endpoint].is_waiting_for_room() {
            self.progress_request.note_program_progress();
            let progress = self.progress_of(endpoint);
            if is_refused {
                progress?;
            }
            // Otherwise the message was accepted, and the next poll reports the error.
        }
        if self.endpoints[endpoint].take_unsent() {
            self.progress_request.note_waiting(Posted::Send);
        }
        if self.endpoints[endpoint].take_unreceived() {
            self.progress_request.note_waiting(Posted::Receive);
        }
        self.request_progress();
        self.wake_if_asleep();
        self.backoff.reset();
        posted.map(|()| 0)
    }

    /// Whether a thread of the program sleeps in a call; it then wakes for every event.
    pub fn is_asleep(&self) -> bool {
        let mut notifiers = self
            .queues
            .iter()
            .map(|queue| &queue.notifier)
            .chain(self.counters.iter().map(|counter| &counter.notifier));
        notifiers.any(Notifier::is_awaited)
    }

    /// Whether threads of the program sleep, and others have attempted progress meanwhile.
    pub fn has_stale_sleepers(&self) -> bool {
        self.has_progressed_since_sleep && self.is_asleep()
    }

    /// Wakes all sleepers after a call that may have completed operations.
    #[inline]
    pub fn wake_if_asleep(&mut self) {
        if self.has_sleepers {
            self.wake_sleepers();
        }
    }

    /// Wakes all sleepers: an operation may have completed, brought an earlier deadline, or added a peer's descriptor.
    #[cold]
    pub fn wake_sleepers(&mut self) {
        // Set again by the next sleep.
        self.has_sleepers = false;
        self.collect();
        self.queues.iter_mut().for_each(Queue::wake);
        self.counters.iter_mut().for_each(Counter::wake);
    }

    /// Makes progress on one endpoint.
    ///
    /// # Errors
    /// As [`progress`](Self::progress).
    #[cold]
    pub fn progress_of(&mut self, endpoint: usize) -> Result<()> {
        if self.endpoints[endpoint].progress(&mut self.queues, &self.vectors)? {
            self.counters.iter_mut().for_each(Counter::wake);
        }
        Ok(())
    }

    /// Whether a poll may skip progress: nothing can be sent or reported now, and the previous poll did not skip it.
    #[inline]
    pub fn can_skip_progress(&mut self) -> bool {
        std::mem::take(&mut self.has_progressed) && self.endpoints.iter().all(Endpoint::has_nothing_to_send)
    }

    /// Queues all completions.
    #[inline]
    pub fn collect(&mut self) {
        for endpoint in self.endpoints.iter_mut() {
            endpoint.collect(&mut self.queues, &self.vectors);
        }
    }

    /// Prepares for a sleep: adds to `descriptors` what to sleep on, and returns the longest sleep (`Some(None)`:
    /// unlimited), or `None` if there is work to do.
    pub fn prepare_to_sleep(
        &mut self,
        patience: Option<Duration>,
        descriptors: &mut Vec<RawFd>,
    ) -> Result<Option<Option<Duration>>> {
        /// Longer than any deadline.
        const NO_DEADLINE: Duration = Duration::from_secs(3600);
        let mut left = patience.unwrap_or(NO_DEADLINE);
        descriptors.push(self.poison.descriptor());
        for endpoint in self.endpoints.iter_mut() {
            match endpoint.prepare_to_sleep(left, descriptors)? {
                Some(endpoint) => left = left.min(endpoint),
                None => return Ok(None),
            }
        }
        Ok(Some((left < NO_DEADLINE).then_some(left)))
    }
}

impl State {
    /// A counter's values: successful and failed operations.
    pub fn counter_value(&self, number: usize) -> (u64, u64) {
        let counter = &self.counters[number];
        counter.bound.iter().fold((counter.value, counter.errors), |(value, errors), (counted, flags)| {
            let (succeeded, failed) = self.completed(*counted, *flags);
            (value.wrapping_add(succeeded), errors.wrapping_add(failed))
        })
    }

    fn completed(&self, counted: Counted, flags: u64) -> (u64, u64) {
        match counted {
            Counted::Endpoint(number) => self.endpoints[number].completed(flags),
            Counted::Region(number) => self.regions[number].completed(flags),
        }
    }

    /// Binds a counter, which counts operations of the kinds in `flags` from now on.
    ///
    /// # Errors
    /// Some of these operations are counted by a counter already.
    pub fn bind_counter(&mut self, number: usize, counted: Counted, flags: u64) -> Result<()> {
        let is_bound =
            |counter: &Counter| counter.bound.iter().any(|(known, kinds)| *known == counted && kinds & flags != 0);
        if self.counters.iter().any(is_bound) {
            return Err(Errno::INVALID);
        }
        let (succeeded, failed) = self.completed(counted, flags);
        let counter = &mut self.counters[number];
        counter.value = counter.value.wrapping_sub(succeeded);
        counter.errors = counter.errors.wrapping_sub(failed);
        counter.bound.push((counted, flags));
        Ok(())
    }

    /// Counts peers' accesses to a region from now on.
    pub fn count_accesses(&mut self, region: usize) {
        let Self { regions, endpoints, .. } = self;
        let region = &mut regions[region];
        region.counts.get_or_insert_default();
        for endpoint in endpoints.iter_mut() {
            endpoint.count_accesses(region);
        }
    }
}

/// The guard of the state's lock. A panic while it is held poisons the domain.
pub(crate) struct StateGuard<'a, G = Guard<'a, State>> {
    guard: G,
    poison: &'a Poison,
}

impl<G: Deref<Target = State>> Deref for StateGuard<'_, G> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        &self.guard
    }
}

impl<G: DerefMut<Target = State>> DerefMut for StateGuard<'_, G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        &mut self.guard
    }
}

impl<G> Drop for StateGuard<'_, G> {
    /// Runs before the field `guard` releases the lock.
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.poison.after_panic();
        }
    }
}

impl Shared {
    /// Locks the domain.
    ///
    /// # Errors
    /// The domain is poisoned.
    #[inline]
    pub fn lock(&self) -> Result<StateGuard<'_>> {
        let guard = self.state.lock();
        self.poison.check()?;
        Ok(StateGuard { guard, poison: &self.poison })
    }

    /// As [`Lock::try_lock`]; also `None` if the domain is poisoned.
    pub fn try_lock(&self) -> Option<StateGuard<'_, TryGuard<'_, State>>> {
        let guard = self.state.try_lock()?;
        self.poison.check().ok()?;
        Some(StateGuard { guard, poison: &self.poison })
    }

    /// Called after an empty poll: yields the core or sleeps if polls stay empty and the core is contended. Most
    /// programs yield between polls themselves, but some never do.
    #[inline(always)]
    pub fn back_off(&self, mut state: StateGuard<'_>, notifier: impl Fn(&State) -> &Notifier) -> Result<()> {
        match state.backoff.pause(self.parameters.core_sharing, Instant::now, backoff::cpu_time, backoff::run_delay) {
            Pause::Nothing => Ok(()),
            pause => self.pause(state, pause, notifier),
        }
    }

    #[cold]
    fn pause(&self, state: StateGuard<'_>, pause: Pause, notifier: impl Fn(&State) -> &Notifier) -> Result<()> {
        match pause {
            Pause::Nothing => {}
            Pause::Yield => {
                drop(state);
                std::thread::yield_now();
            }
            Pause::Sleep(longest) => {
                let mut descriptors = Vec::new();
                let Some(left) = domains::prepare_others_to_sleep(self, longest, &mut descriptors) else {
                    return Ok(());
                };
                let began = Instant::now();
                if self.sleep(state, Some(left), notifier, &mut descriptors)?.is_some() {
                    let mut state = self.lock()?;
                    state.backoff.slept(began.elapsed(), longest);
                    state.wake_if_asleep();
                }
            }
        }
        Ok(())
    }

    /// Sleeps until there is work to do, until one of `descriptors` is readable, or for `patience`. Returns whether it
    /// was notified, or `None` if there is work already.
    fn sleep(
        &self,
        mut state: StateGuard<'_>,
        patience: Option<Duration>,
        notifier: impl Fn(&State) -> &Notifier,
        descriptors: &mut Vec<RawFd>,
    ) -> Result<Option<bool>> {
        let Some(left) = state.prepare_to_sleep(patience, descriptors)? else {
            // The event that would wake the other sleepers has been consumed.
            state.wake_if_asleep();
            return Ok(None);
        };
        let notifier: *const Notifier = notifier(&state);
        // SAFETY: the object stays open while the program sleeps in a call on it, and its notifier does not move.
        let notifier = unsafe { &*notifier };
        state.has_sleepers = true;
        state.has_progressed_since_sleep = false;
        let sleeper = notifier.register();
        drop(state);
        Ok(Some(notifier.sleep(sleeper, descriptors, left)))
    }

    /// Makes progress until `is_over` or a time, and waits in between as configured. `is_over` gets the outcome of the
    /// last wait, if one has ended (true: by polling), and returns the patience of the next one. True if interrupted by
    /// a signal or by the time.
    ///
    /// A thread that leaves wakes those that still sleep: their deadlines may have become earlier meanwhile.
    pub fn wait(
        &self,
        until: Option<Instant>,
        mut is_over: impl FnMut(&mut State, Option<bool>) -> (bool, WaitPolicy),
        notifier: impl Fn(&State) -> &Notifier,
    ) -> Result<bool> {
        let mut descriptors = Vec::new();
        let mut ended = None;
        let mut asking_until: Option<Instant> = None;
        let mut polls = 0_u32;
        loop {
            let mut state = self.lock()?;
            state.progress_request.note_program_progress();
            state.collect();
            let (mut is_done, mut patience) = is_over(&mut state, ended.take());
            if !is_done {
                state.progress()?;
                (is_done, patience) = is_over(&mut state, None);
            }
            if is_done {
                is_over(&mut state, asking_until.map(|_| true));
                state.wake_if_asleep();
                return Ok(false);
            }
            if notifier(&state).was_signalled() {
                state.wake_if_asleep();
                return Ok(true);
            }
            polls = polls.wrapping_add(1);
            let began_asking = asking_until.is_some();
            if patience.spins() && (!began_asking || !polls.is_multiple_of(POLLS_PER_CLOCK_READ)) {
                asking_until.get_or_insert_with(|| Instant::now() + WaitPolicy::SPIN_TIME);
                continue;
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                state.wake_if_asleep();
                return Ok(true);
            }
            if !patience.sleeps() || (patience.spins() && asking_until.is_some_and(|until| now < until)) {
                continue;
            }
            let left = until.map(|until| until - now);
            descriptors.clear();
            let Some(is_notified) = self.sleep(state, left, &notifier, &mut descriptors)? else { continue };
            ended = Some(false);
            asking_until = None;
            if is_notified {
                let mut state = self.lock()?;
                state.collect();
                if is_over(&mut state, None).0 {
                    state.wake_if_asleep();
                    return Ok(false);
                }
                // An operation was posted: descriptors and deadlines may have changed.
            }
        }
    }
}

/// Polls between two readings of the clock.
const POLLS_PER_CLOCK_READ: u32 = 32;
