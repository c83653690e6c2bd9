// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transport `messages`: the message layer with tags, matching, eager and rendezvous, as our libfabric provider
//! uses it.

use std::time::Duration;

use barewire_endpoint::Address;
use barewire_link::Link;
use barewire_llc::message::FIRST_HEADER;
use barewire_messages::{
    Failure, Label, Messenger, Outcome, Part, Pattern, PeerId, PostError, ReceiveOptions, Selector, SendOptions,
};

use super::{CONNECT_PATIENCE_NS, FRAME_HEADER_BYTES, Role, counters_of, failed};
use crate::transport::{Counters, Transport, borrowed_messages, fragments_wire_bytes};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// Label of all messages: there is one peer, and its messages arrive in order.
const LABEL: Label = Label { tag: Some(7), data: None };
/// The layer's header of an eager message: kind and tag.
const HEAD_BYTES: usize = 1 + 8;
/// Context of the receive; a send has 0.
const RECEIVE: u64 = 1;

/// A messenger with one peer. One receive is posted at a time, in the memory that [`Transport::receive`] was given.
pub struct Messages<L> {
    messenger: Messenger<L>,
    peer: PeerId,
    role: Role,
    is_posted: bool,
    /// Length of the received message.
    received: Option<usize>,
    /// Sends whose buffers the messenger still reads.
    in_flight: usize,
    received_messages: u32,
    mtu: usize,
}

impl<L: Link> Messages<L> {
    pub fn new(mut messenger: Messenger<L>, peer: Address, role: Role, mtu: usize) -> Self {
        let peer = messenger.peer(peer);
        Self { messenger, peer, role, is_posted: false, received: None, in_flight: 0, received_messages: 0, mtu }
    }

    /// Makes progress, and polls completions.
    #[inline]
    fn make_progress(&mut self) -> Result<(), LaunchError> {
        self.messenger.progress().map_err(failed)?;
        while let Some(completion) = self.messenger.poll() {
            match completion.outcome {
                Outcome::Sent => self.in_flight -= 1,
                Outcome::Received(message) => {
                    (self.is_posted, self.received) = (false, Some(message.envelope.length as usize));
                }
                Outcome::Failed { failure: Failure::Cancelled, .. } if completion.context == RECEIVE => {
                    self.is_posted = false;
                }
                Outcome::Failed { failure, .. } => return Err(LaunchError::Failed(failure.to_string())),
                Outcome::Done(_) | Outcome::Written(_) => {}
            }
        }
        Ok(())
    }

    /// Posts the receive unless it is posted.
    ///
    /// # Safety
    /// `message` must stay allocated and unused by others until `received` is set or the receive is cancelled.
    #[inline]
    unsafe fn post(&mut self, message: &mut [u8]) -> Result<(), LaunchError> {
        if self.is_posted || self.received.is_some() {
            return Ok(());
        }
        let wanted = Selector::Tagged(Pattern::exact(self.peer, LABEL.tag.unwrap_or_default()));
        let options = ReceiveOptions { context: RECEIVE, ..ReceiveOptions::default() };
        // SAFETY: the caller's promise.
        match unsafe { self.messenger.receive(wanted, &[Part::into(message)], options) } {
            Ok(()) => self.is_posted = true,
            Err(PostError::Full) => {}
            Err(error) => return Err(LaunchError::Failed(error.to_string())),
        }
        Ok(())
    }

    fn receive_hello(&mut self, deadline_ns: u64) -> Result<(), LaunchError> {
        while self.received.is_none() {
            // SAFETY: an empty buffer is never written to.
            unsafe { self.post(&mut []) }?;
            self.poll_before(deadline_ns)?;
        }
        self.received = None;
        Ok(())
    }

    fn send_hello(&mut self, deadline_ns: u64) -> Result<(), LaunchError> {
        loop {
            match self.messenger.inject(self.peer, LABEL, &[]) {
                Ok(()) => return Ok(()),
                Err(PostError::Full) => self.poll_before(deadline_ns)?,
                Err(error) => return Err(LaunchError::Failed(error.to_string())),
            }
        }
    }

    /// One iteration of waiting for the peer; an error after the deadline.
    fn poll_before(&mut self, deadline_ns: u64) -> Result<(), LaunchError> {
        if now_ns() > deadline_ns {
            return Err(LaunchError::Failed("no channel was established within 10 s".to_owned()));
        }
        self.make_progress()?;
        std::thread::yield_now();
        Ok(())
    }
}

impl<L: Link> Transport for Messages<L> {
    /// Peers connect on their first message: exchanges an empty one in each direction.
    fn establish(&mut self) -> Result<(), LaunchError> {
        let deadline_ns = now_ns() + CONNECT_PATIENCE_NS;
        if self.role == Role::Active {
            self.send_hello(deadline_ns)?;
            return self.receive_hello(deadline_ns);
        }
        self.receive_hello(deadline_ns)?;
        self.send_hello(deadline_ns)?;
        // Flushes the acknowledgements that the peer waits for.
        self.settle().map(|_| ())
    }

    #[inline]
    unsafe fn try_send(&mut self, _sequence: u32, message: &[u8], done: &mut usize) -> Result<bool, LaunchError> {
        if *done == message.len() {
            return Ok(true);
        }
        for attempt in 0..2 {
            let posted = if message.len() <= self.messenger.inject_max() {
                self.messenger.inject(self.peer, LABEL, message)
            } else if self.in_flight >= borrowed_messages(message.len()) {
                Err(PostError::Full)
            } else {
                // SAFETY: the caller keeps the message unchanged until `borrows` later messages are sent; `in_flight`,
                // which completions decrement, allows no more.
                let posted =
                    unsafe { self.messenger.send(self.peer, LABEL, &[Part::of(message)], SendOptions::default()) };
                self.in_flight += usize::from(posted.is_ok());
                posted
            };
            match posted {
                Ok(()) => {
                    *done = message.len();
                    return Ok(true);
                }
                Err(PostError::Full) if attempt == 0 => self.make_progress()?,
                Err(PostError::Full) => {}
                Err(error) => return Err(LaunchError::Failed(error.to_string())),
            }
        }
        Ok(false)
    }

    fn borrows(&self, message_bytes: usize) -> usize {
        if message_bytes > self.messenger.inject_max() { borrowed_messages(message_bytes) } else { 0 }
    }

    #[inline]
    unsafe fn receive(&mut self, message: &mut [u8], patience: Duration) -> Result<Option<u32>, LaunchError> {
        // SAFETY: every call passes the same memory until the message is complete; a caller that gives up settles
        // before it reuses the memory, which cancels the receive.
        unsafe { self.post(message) }?;
        self.make_progress()?;
        if self.received.is_none() && !patience.is_zero() {
            self.messenger.endpoint().sleep(patience).map_err(failed)?;
            self.make_progress()?;
        }
        let Some(bytes) = self.received.take() else { return Ok(None) };
        if bytes != message.len() {
            let text = format!("a message of {bytes} bytes came instead of {}", message.len());
            return Err(LaunchError::Failed(text));
        }
        self.received_messages = self.received_messages.wrapping_add(1);
        Ok(Some(self.received_messages.wrapping_sub(1)))
    }

    fn wait_to_send(&mut self, patience: Duration) -> Result<(), LaunchError> {
        self.messenger.endpoint().sleep(patience).map_err(failed)
    }

    fn settle(&mut self) -> Result<bool, LaunchError> {
        if self.is_posted {
            // A receive that has already matched completes instead.
            self.messenger.cancel(RECEIVE);
        }
        let is_settled = self.messenger.settle().map_err(failed)?;
        self.make_progress()?;
        Ok(is_settled && !self.is_posted && self.in_flight == 0)
    }

    fn is_lazy(&self) -> bool {
        true
    }

    fn set_pace(&mut self, _bit_s: Option<f64>) {}

    fn wire_bytes(&self, message_bytes: usize) -> usize {
        let room = self.messenger.inject_max() + FIRST_HEADER;
        fragments_wire_bytes(message_bytes + HEAD_BYTES, room, FRAME_HEADER_BYTES)
    }

    fn is_lossy(&self) -> bool {
        false
    }

    fn check(&mut self) -> Result<(), LaunchError> {
        self.messenger.endpoint().check().map_err(failed)
    }

    fn counters(&mut self) -> Result<Counters, LaunchError> {
        counters_of(self.messenger.endpoint())
    }

    fn mtu(&self) -> Option<usize> {
        Some(self.mtu)
    }
}

#[cfg(test)]
mod tests {
    use barewire_endpoint::{Endpoint, Framing, Tuning};
    use barewire_link::{Faults, MemoryLink};
    use barewire_llc::Lsap;

    use super::*;

    fn pair(eager_bytes: usize) -> [Messages<MemoryLink>; 2] {
        let tuning = Tuning::default().with(&[("eager_bytes", eager_bytes)]).unwrap();
        let (a, b) = MemoryLink::pair(1500, Faults::default(), 1);
        let [a, b] = [a, b].map(|link| {
            let mut config = barewire_endpoint::Config::new(Lsap::new(0x20).unwrap(), Framing::default());
            config.local = None;
            let endpoint = Endpoint::open(link, config, None).unwrap();
            Messenger::new(endpoint, barewire_messages::Config::tuned(&tuning))
        });
        let (at_a, at_b) = (a.address(), b.address());
        [Messages::new(a, at_b, Role::Active, 1500), Messages::new(b, at_a, Role::Passive, 1500)]
    }

    /// Passes one message from `from` to `to`.
    fn pass(from: &mut Messages<MemoryLink>, to: &mut Messages<MemoryLink>, message: &[u8], buffer: &mut [u8]) {
        let mut done = 0;
        let mut is_received = false;
        while !is_received || !from.settle().unwrap() {
            // SAFETY: both buffers outlive the loop, which ends once the message is received and the sender has
            // settled.
            unsafe {
                from.try_send(0, message, &mut done).unwrap();
                is_received = is_received || to.receive(buffer, Duration::ZERO).unwrap().is_some();
            }
            from.make_progress().unwrap();
            to.make_progress().unwrap();
        }
    }

    #[test]
    fn messages_pass_both_ways_by_eager_and_rendezvous() {
        for eager_bytes in [0, 4096, 1 << 20] {
            let [mut a, mut b] = pair(eager_bytes);
            for bytes in [1, 8, 1400, 1500, 4096, 4097, 100_000] {
                let (there, back) = (vec![1; bytes], vec![2; bytes]);
                let (mut at_a, mut at_b) = (vec![0; bytes], vec![0; bytes]);
                pass(&mut a, &mut b, &there, &mut at_b);
                pass(&mut b, &mut a, &back, &mut at_a);
                assert!(at_b == there && at_a == back, "{bytes} bytes, eager up to {eager_bytes}");
            }
        }
    }

    #[test]
    fn settling_cancels_the_receive_and_the_message_arrives_in_the_next() {
        let [mut a, mut b] = pair(1 << 20);
        let (mut given_up, mut buffer) = ([0; 8], [0; 8]);
        // SAFETY: `given_up` outlives the receive, which is cancelled below.
        assert_eq!(unsafe { b.receive(&mut given_up, Duration::ZERO) }.unwrap(), None);
        while !b.settle().unwrap() {}
        let mut done = 0;
        while !a.settle().unwrap() || done == 0 {
            // SAFETY: the message is a constant.
            unsafe { a.try_send(0, const { &[7; 8] }, &mut done) }.unwrap();
            b.settle().unwrap();
        }
        assert_eq!(given_up, [0; 8]);
        // SAFETY: the buffer outlives the receive.
        while unsafe { b.receive(&mut buffer, Duration::ZERO) }.unwrap().is_none() {}
        assert_eq!(buffer, [7; 8]);
    }

    #[test]
    fn a_message_of_another_length_is_an_error() {
        let [mut a, mut b] = pair(1 << 20);
        let (mut buffer, mut done) = ([0; 9], 0);
        let error = loop {
            // SAFETY: the message is a constant, and the buffer outlives the receive.
            unsafe {
                a.try_send(0, const { &[7; 8] }, &mut done).unwrap();
                if let Err(error) = b.receive(&mut buffer, Duration::ZERO) {
                    break error;
                }
            }
            a.make_progress().unwrap();
        };
        assert!(error.to_string().contains("8 bytes came instead of 9"), "{error}");
    }
}
