// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program has on one interface, behind one lock; and how it is waited for.

use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barewire_endpoint::Patience;
use barewire_link::Interface;

use crate::attention::Attention;
use crate::backoff::{self, Backoff, Pause};
use crate::counter::Counter;
use crate::domains;
use crate::edge::{Errno, Result};
use crate::endpoint::Endpoint;
use crate::lock::{Guard, Kept, Lock};
use crate::notifier::Notifier;
use crate::parameters::Parameters;
use crate::poison::Poison;
use crate::queue::{Entry, Queue};
use crate::region::Region;
use crate::table::Table;
use crate::vector::Vector;

/// What the domain's objects have in common.
pub(crate) struct Shared {
    /// Entered through [`lock`](Self::lock) and [`keep`](Self::keep).
    pub state: Lock<State>,
    pub poison: Arc<Poison>,
    pub interface: Interface,
    pub parameters: Parameters,
    /// Each object has a share of it.
    pub used: Arc<()>,
    /// The process that opened it: a child of it has no business with the peers.
    pub process: u32,
}

impl Shared {
    /// See [`Parameters::mtu_without_seal`].
    pub fn carried_mtu(&self) -> usize {
        self.parameters.mtu_without_seal(self.interface.mtu)
    }
}

/// The domain's objects, each by its number.
pub(crate) struct State {
    pub endpoints: Table<Endpoint>,
    pub queues: Table<Queue>,
    pub counters: Table<Counter>,
    pub vectors: Table<Vector>,
    pub regions: Table<Region>,
    /// What the progress thread watches.
    pub attention: Arc<Attention>,
    /// Sleepers await it.
    poison: Arc<Poison>,
    /// Since when polls find nothing.
    pub backoff: Backoff,
    /// There was progress, or a local peer's message without, since the last question that was answered without a look.
    has_looked: bool,
    /// A thread of the program's has slept, or was told that it may.
    pub has_sleepers: bool,
    /// The next progress panics.
    #[cfg(test)]
    pub panics: bool,
}

impl State {
    pub fn new(attention: Arc<Attention>, poison: Arc<Poison>) -> Self {
        Self {
            endpoints: Table::new(),
            queues: Table::new(),
            counters: Table::new(),
            vectors: Table::new(),
            regions: Table::new(),
            attention,
            poison,
            backoff: Backoff::default(),
            has_looked: false,
            has_sleepers: false,
            #[cfg(test)]
            panics: false,
        }
    }

    /// Makes progress with all endpoints; what has ended goes to its queue.
    ///
    /// # Errors
    /// When an interface no longer works.
    #[inline(never)]
    pub fn progress(&mut self) -> Result<()> {
        self.has_looked = true;
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
            self.counters.iter_mut().for_each(Counter::changed);
        }
        self.ask_for_attention();
        status
    }

    /// Has the progress thread look after what is under way, should the program not ask; soon, if something could not
    /// be sent yet.
    #[inline]
    fn ask_for_attention(&self) {
        if !self.attention.is_urgent() && self.has_messages() {
            let is_urgent = self.is_held_up();
            if is_urgent || !self.attention.is_asked_for() {
                self.attention.ask_for(is_urgent);
            }
        }
    }

    /// Whether something could not be sent yet.
    #[inline]
    pub fn is_held_up(&self) -> bool {
        self.endpoints.iter().any(Endpoint::is_held_up)
    }

    /// Whether a message waits, or is not acknowledged.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.endpoints.iter().any(Endpoint::has_messages)
    }

    /// Receives a local peer's message for a queue that has nothing else to tell, without other progress.
    #[inline]
    pub fn receive_next(&mut self, queue: usize) -> Option<Entry> {
        let Self { endpoints, vectors, .. } = self;
        let received = endpoints.iter_mut().find_map(|endpoint| endpoint.receive_next(queue, vectors))?;
        self.has_looked = true;
        Some(received)
    }

    /// What a call says that has posted an operation. If it was refused there is progress first: who asks again and again
    /// gets on. So there is if it waits for room: a program that only sends never asks.
    ///
    /// # Errors
    /// Why it was refused, or that the interface no longer works.
    #[inline]
    pub fn posted(&mut self, endpoint: usize, posted: Result<()>) -> Result<isize> {
        let is_refused = posted == Err(Errno::AGAIN);
        if is_refused || self.endpoints[endpoint].waits_for_room() {
            self.attention.not_needed_now();
            let progress = self.progress_of(endpoint);
            if is_refused {
                progress?;
            }
            // Else the message is taken, and the next question tells what is wrong.
        }
        self.ask_for_attention();
        if self.has_sleepers {
            self.wake_sleepers();
        }
        self.backoff.end();
        posted.map(|()| 0)
    }

    /// Whether the program sleeps in one of its calls: then it wakes up for whatever there is to do.
    pub fn is_asleep(&self) -> bool {
        let mut notifiers = self
            .queues
            .iter()
            .map(|queue| &queue.notifier)
            .chain(self.counters.iter().map(|counter| &counter.notifier));
        notifiers.any(Notifier::is_awaited)
    }

    /// What was posted may have ended at once, be due earlier than anything else, or have led to another peer.
    #[cold]
    pub fn wake_sleepers(&mut self) {
        // Who sleeps again says so again.
        self.has_sleepers = false;
        self.collect();
        self.queues.iter_mut().for_each(Queue::wake);
        self.counters.iter_mut().for_each(Counter::changed);
    }

    /// Makes progress with one endpoint.
    ///
    /// # Errors
    /// As of [`progress`](Self::progress).
    #[cold]
    pub fn progress_of(&mut self, endpoint: usize) -> Result<()> {
        if self.endpoints[endpoint].progress(&mut self.queues, &self.vectors)? {
            self.counters.iter_mut().for_each(Counter::changed);
        }
        Ok(())
    }

    /// Whether a question may be answered without progress: nothing can be sent or told now, and the one before was not.
    #[inline]
    pub fn may_rest(&mut self) -> bool {
        std::mem::take(&mut self.has_looked) && self.endpoints.iter().all(Endpoint::owes_nothing)
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
        others.push(self.poison.descriptor());
        for endpoint in self.endpoints.iter_mut() {
            match endpoint.prepare_to_sleep(left, others)? {
                Some(endpoint) => left = left.min(endpoint),
                None => return Ok(None),
            }
        }
        Ok(Some((left < LONG).then_some(left)))
    }
}

impl State {
    /// What a counter shows: operations that worked, and those that did not.
    pub fn count(&self, number: usize) -> (u64, u64) {
        let counter = &self.counters[number];
        counter.bound.iter().fold((counter.value, counter.errors), |(value, errors), (endpoint, what)| {
            let (more, wrong) = self.endpoints[*endpoint].ended(*what);
            (value.wrapping_add(more), errors.wrapping_add(wrong))
        })
    }
}

/// The state, for whoever has its lock; a panic meanwhile puts the domain out of service.
pub(crate) struct Held<'a, G = Guard<'a, State>> {
    guard: G,
    poison: &'a Poison,
}

impl<G: Deref<Target = State>> Deref for Held<'_, G> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        &self.guard
    }
}

impl<G: DerefMut<Target = State>> DerefMut for Held<'_, G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        &mut self.guard
    }
}

impl<G> Drop for Held<'_, G> {
    /// Before the lock is released, which is a field's.
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.poison.after_panic();
        }
    }
}

impl Shared {
    /// Enters the domain.
    ///
    /// # Errors
    /// The domain is out of service.
    #[inline]
    pub fn lock(&self) -> Result<Held<'_>> {
        let guard = self.state.lock();
        self.poison.check()?;
        Ok(Held { guard, poison: &self.poison })
    }

    /// As of [`Lock::keep`]; `None` as well if the domain is out of service.
    pub fn keep(&self) -> Option<Held<'_, Kept<'_, State>>> {
        let guard = self.state.keep()?;
        self.poison.check().ok()?;
        Some(Held { guard, poison: &self.poison })
    }

    /// A poll has found nothing: lets others have the core, if they want it and this happens again and again. Most
    /// programs yield between two polls by themselves, but some never do.
    #[inline(always)]
    pub fn give_way(&self, mut state: Held<'_>, notifier: impl Fn(&State) -> &Notifier) -> Result<()> {
        match state.backoff.pause(self.parameters.competition, Instant::now, backoff::used, backoff::queue) {
            Pause::Nothing => Ok(()),
            pause => self.pause(state, pause, notifier),
        }
    }

    #[cold]
    fn pause(&self, state: Held<'_>, pause: Pause, notifier: impl Fn(&State) -> &Notifier) -> Result<()> {
        match pause {
            Pause::Nothing => {}
            Pause::Yield => {
                drop(state);
                std::thread::yield_now();
            }
            Pause::Sleep(longest) => {
                let mut others = Vec::new();
                let Some(left) = domains::prepare_others_to_sleep(self, longest, &mut others) else { return Ok(()) };
                let began = Instant::now();
                if self.sleep(state, Some(left), notifier, &mut others)?.is_some() {
                    self.lock()?.backoff.slept(began.elapsed(), longest);
                }
            }
        }
        Ok(())
    }

    /// Sleeps until there is something to do, one of `others` can be read, and at most for so long. Whether it was
    /// notified;
    /// `None`: there is something.
    fn sleep(
        &self,
        mut state: Held<'_>,
        patience: Option<Duration>,
        notifier: impl Fn(&State) -> &Notifier,
        others: &mut Vec<RawFd>,
    ) -> Result<Option<bool>> {
        let Some(left) = state.prepare_to_sleep(patience, others)? else { return Ok(None) };
        let notifier: *const Notifier = notifier(&state);
        // SAFETY: the object stays open while the program sleeps in a call on it, and so does its notifier, which does
        // not move.
        let notifier = unsafe { &*notifier };
        state.has_sleepers = true;
        let sleeper = notifier.await_it();
        drop(state);
        Ok(Some(notifier.sleep(sleeper, others, left)))
    }

    /// Makes progress until `is_over`, or until a time; waits meanwhile as users wish. `is_over` is told how the last
    /// wait ended, if one did, and says how patient the next one is. True: woken by a signal, or too late.
    pub fn wait(
        &self,
        until: Option<Instant>,
        mut is_over: impl FnMut(&mut State, Option<bool>) -> (bool, Patience),
        notifier: impl Fn(&State) -> &Notifier,
    ) -> Result<bool> {
        let mut others = Vec::new();
        let mut ended = None;
        let mut asking_until: Option<Instant> = None;
        let mut turns = 0_u32;
        loop {
            let mut state = self.lock()?;
            state.attention.not_needed_now();
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
            others.clear();
            let Some(is_notified) = self.sleep(state, left, &notifier, &mut others)? else { continue };
            ended = Some(false);
            asking_until = None;
            if is_notified {
                let mut state = self.lock()?;
                state.collect();
                if is_over(&mut state, None).0 {
                    return Ok(false);
                }
                if notifier(&state).was_signalled() {
                    return Ok(true);
                }
                // Somebody has posted something: what to sleep on, and for how long, may be different now.
            }
        }
    }
}

/// Questions between two looks at the clock.
const TURNS_PER_CLOCK: u32 = 32;
