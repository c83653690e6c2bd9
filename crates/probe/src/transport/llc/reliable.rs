// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LLC types 2 and 3: messages in fragments, which the engine delivers in order and at most once.

use std::collections::VecDeque;
use std::time::Duration;

use barewire_link::{ETHERNET_HEADER_BYTES, Link};
use barewire_llc::extension::Guard;
use barewire_llc::message::{FIRST_HEADER, Fragment, Fragmenter, Progress, Reassembler};
use barewire_llc::{
    Cause, ConnectionConfig, ConnectionEvent, ConnectionHandle, DatagramOutcome, Delivery, Peer, StationConfig,
    StationEvent,
};

use super::super::links::usage_error;
use super::super::{Counters, Transport, fragments_wire_bytes};
use super::ENCAPSULATION;
use barewire_endpoint::{Port, information_max};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// How long to wait for a connection.
const CONNECT_PATIENCE_NS: u64 = 10_000_000_000;
const LLC_HEADER_BYTES: usize = 4;
/// Fragments in the backlog from which the station signals busy (RNR).
const BACKLOG_FRAGMENTS: usize = 128;

/// Fragments queued before a transmit: few enough to be in the L1 cache when the kernel copies them.
const FRAGMENTS_PER_TRANSMIT: u32 = 8;
/// Most bytes borrowed from the caller's memory, but at least two messages: more than a window holds at MTU 1500, and
/// small enough for the L2 cache.
const BORROWED_BYTES: usize = 128 << 10;
const BORROWED_MESSAGES: usize = 64;
/// Consecutive messages received before events are polled, which frees slots.
const MESSAGES_PER_EVENT_POLL: u32 = 16;

pub struct Reliable<L> {
    port: Port<L>,
    service: Service,
    room: u32,
    /// The message being sent, with its next fragment.
    fragmenter: Option<(Fragmenter, Option<Fragment>)>,
    borrowed: Borrowed,
    reassembler: Reassembler,
    /// Fragments that arrived without a receive buffer.
    backlog: VecDeque<Vec<u8>>,
    /// Free buffers for the backlog.
    free_buffers: Vec<Vec<u8>>,
    is_busy: bool,
    since_event_poll: u32,
    received_messages: u32,
    malformed: u64,
    failure: Option<String>,
    mtu: usize,
}

/// Result of receiving fragments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    Nothing,
    /// No complete message, but PDUs that may cause responses or events.
    Incomplete,
    Complete,
}

/// Messages that the peer has not acknowledged, and so are still read from the caller's memory.
#[derive(Default)]
struct Borrowed {
    /// Fragments passed to the engine so far.
    offered: u64,
    /// Fragments acknowledged so far.
    acknowledged: u64,
    /// For each unacknowledged message: `offered` after its last fragment.
    ends: VecDeque<u64>,
}

impl Borrowed {
    fn message_ends(&mut self) {
        self.ends.push_back(self.offered);
    }

    /// Number of unacknowledged messages.
    fn messages(&mut self) -> usize {
        while self.ends.front().is_some_and(|end| *end <= self.acknowledged) {
            self.ends.pop_front();
        }
        self.ends.len()
    }
}

#[derive(Clone, Copy)]
enum Service {
    NotConnected {
        peer: Peer,
        connects: bool,
    },
    Connection(ConnectionHandle),
    /// One datagram in flight at a time.
    Acknowledged(Peer),
}

impl<L: Link> Reliable<L> {
    /// Type 2: a connection to the peer.
    pub fn connection(link: L, peer: Peer, mtu: usize, connects: bool) -> Result<Self, LaunchError> {
        let connection = ConnectionConfig {
            information_max: information_max(mtu, Guard::Check) as u16,
            is_extended: true,
            ..ConnectionConfig::default()
        };
        let slots = connection.queue;
        let config = StationConfig { connection, connections: 2, backlog: 1, ..StationConfig::default() };
        let mut port = Port::new(link, &config, slots, ENCAPSULATION, None).map_err(usage_error)?;
        port.station.activate(peer.local);
        port.station.listen(peer.local, !connects);
        Ok(Self::new(port, Service::NotConnected { peer, connects }, mtu))
    }

    /// Type 3: acknowledged datagrams to the peer.
    pub fn acknowledged(link: L, peer: Peer, mtu: usize) -> Result<Self, LaunchError> {
        // 90 retries of 1 ms tolerate a peer that is descheduled; the engine detects a repetition for 100 ms.
        let config = StationConfig {
            connections: 1,
            backlog: 1,
            datagram_peers: 8,
            datagram_retries: 90,
            datagram_timeout: Duration::from_millis(1),
            ..StationConfig::default()
        };
        let mut port = Port::new(link, &config, 2, ENCAPSULATION, None).map_err(usage_error)?;
        port.station.activate(peer.local);
        Ok(Self::new(port, Service::Acknowledged(peer), mtu))
    }

    fn new(port: Port<L>, service: Service, mtu: usize) -> Self {
        Self {
            room: information_max(mtu, Guard::Check) as u32,
            port,
            service,
            fragmenter: None,
            borrowed: Borrowed::default(),
            reassembler: Reassembler::new(),
            backlog: VecDeque::with_capacity(BACKLOG_FRAGMENTS + 1),
            free_buffers: Vec::new(),
            is_busy: false,
            since_event_poll: 0,
            received_messages: 0,
            malformed: 0,
            failure: None,
            mtu,
        }
    }

    /// Whether a message is sent from the caller's memory. One that fits a frame is cheaper to copy than to gather, and
    /// for acknowledged datagrams it makes no difference.
    #[inline]
    fn lends(&self, message_bytes: usize) -> bool {
        message_bytes > self.room as usize - FIRST_HEADER && !matches!(self.service, Service::Acknowledged(_))
    }

    /// Whether another message may be borrowed.
    fn may_borrow(&mut self, message_bytes: usize) -> Result<bool, LaunchError> {
        let max = self.borrows(message_bytes);
        if self.borrowed.messages() >= max {
            self.port.transmit()?;
            self.receive_to_backlog()?;
            self.poll_events()?;
        }
        Ok(self.borrowed.messages() < max)
    }

    /// Puts a fragment into the engine's queue; false if it is full.
    ///
    /// # Safety
    /// As [`Transport::try_send`].
    #[inline]
    unsafe fn enqueue(&mut self, fragment: &Fragment, message: &[u8]) -> bool {
        let part = &message[fragment.start as usize..fragment.end as usize];
        let lends = self.lends(message.len());
        let slots = &mut self.port.slots;
        let slot = if lends {
            // SAFETY: the caller keeps the message unchanged until `borrowed` counts all of it as acknowledged.
            unsafe { slots.lend(fragment.header(), part) }
        } else {
            slots.fill(fragment.header(), part)
        };
        let Some(slot) = slot else { return false };
        let now = self.port.now();
        let refused = match self.service {
            Service::Connection(handle) => self.port.station.send(handle, slot, now).err().map(|refused| refused.token),
            Service::Acknowledged(peer) => {
                self.port.station.send_datagram(peer, 0, slot, now).err().map(|(slot, _)| slot)
            }
            Service::NotConnected { .. } => Some(slot),
        };
        let is_taken = refused.map(|slot| self.port.slots.free(slot)).is_none();
        self.borrowed.offered += u64::from(is_taken);
        is_taken
    }

    /// Polls the engine's events.
    #[inline]
    fn poll_events(&mut self) -> Result<(), LaunchError> {
        while let Some(event) = self.port.station.poll_event() {
            match event {
                StationEvent::Connection(_, ConnectionEvent::Acknowledged(slot)) => {
                    self.port.slots.free(slot);
                    self.borrowed.acknowledged += 1;
                }
                StationEvent::Datagram(_, slot, outcome) => {
                    self.port.slots.free(slot);
                    if outcome == DatagramOutcome::NoAnswer {
                        self.failure = Some("the peer acknowledged no repetition of a datagram".to_owned());
                    }
                }
                StationEvent::Connection(_, ConnectionEvent::Dropped(slot)) => self.port.slots.free(slot),
                StationEvent::Connection(_, ConnectionEvent::Disconnected(cause) | ConnectionEvent::Reset(cause)) => {
                    self.failure = Some(describe_cause(cause));
                }
                StationEvent::Connection(..) => {}
            }
        }
        match self.failure.take() {
            Some(failure) => Err(LaunchError::Failed(failure)),
            None => Ok(()),
        }
    }

    /// Receives frames without a buffer: processes acknowledgements, and puts data into the backlog.
    fn receive_to_backlog(&mut self) -> Result<(), LaunchError> {
        let Self { port, backlog, free_buffers, .. } = self;
        port.receive(|delivery| {
            if let Some(information) = information_of(&delivery) {
                let mut fragment = free_buffers.pop().unwrap_or_default();
                fragment.clear();
                fragment.extend_from_slice(information);
                backlog.push_back(fragment);
            }
            false
        })?;
        self.set_busy(self.backlog.len() >= BACKLOG_FRAGMENTS);
        Ok(())
    }

    /// Sets or clears the busy condition (RNR) for the peer.
    fn set_busy(&mut self, is_busy: bool) {
        if let (Service::Connection(handle), true) = (self.service, is_busy != self.is_busy) {
            self.is_busy = is_busy;
            let now = self.port.now();
            self.port.station.set_busy(handle, is_busy, now);
        }
    }

    /// Receives fragments, the backlog first, until one completes the message.
    #[inline]
    fn receive_next(&mut self, message: &mut [u8]) -> Result<Input, LaunchError> {
        while let Some(fragment) = self.backlog.pop_front() {
            let complete = place_fragment(&mut self.reassembler, &fragment, message, &mut self.malformed)?;
            self.free_buffers.push(fragment);
            if complete {
                return Ok(Input::Complete);
            }
        }
        self.set_busy(false);
        let Self { port, reassembler, malformed, .. } = self;
        let mut result = Ok(false);
        let has_pdus = port.receive(|delivery| {
            if let Some(information) = information_of(&delivery) {
                result = place_fragment(reassembler, information, message, malformed);
            }
            !matches!(result, Ok(false))
        })?;
        Ok(match result? {
            true => Input::Complete,
            false if has_pdus => Input::Incomplete,
            false => Input::Nothing,
        })
    }
}

/// Establishes the connection, as the initiator if `connects`.
fn establish<L: Link>(port: &mut Port<L>, peer: Peer, connects: bool) -> Result<ConnectionHandle, LaunchError> {
    let deadline_ns = now_ns() + CONNECT_PATIENCE_NS;
    let mut handle = None;
    if connects {
        let now = port.now();
        let result = port.station.connect(peer, 0, now);
        handle = Some(result.map_err(|error| LaunchError::Failed(error.to_string()))?);
    }
    while now_ns() < deadline_ns {
        port.update_time();
        port.receive(|_| false)?;
        while let Some(event) = port.station.poll_event() {
            match event {
                StationEvent::Connection(incoming, ConnectionEvent::Incoming) => {
                    if port.station.peer(incoming) == Some(peer) {
                        let now = port.now();
                        port.station.accept(incoming, now);
                        port.transmit()?;
                        return Ok(incoming);
                    }
                    let now = port.now();
                    port.station.disconnect(incoming, now);
                }
                StationEvent::Connection(made, ConnectionEvent::Connected) if Some(made) == handle => return Ok(made),
                StationEvent::Connection(_, ConnectionEvent::Disconnected(cause)) => {
                    return Err(LaunchError::Failed(describe_cause(cause)));
                }
                _ => {}
            }
        }
        port.transmit()?;
        std::thread::yield_now();
    }
    Err(LaunchError::Failed("no LLC connection was established within 10 s".to_owned()))
}

#[inline]
fn information_of<'a>(delivery: &Delivery<'a>) -> Option<&'a [u8]> {
    match delivery {
        Delivery::Data { information, .. } | Delivery::AcknowledgedDatagram { information, .. } => Some(information),
        _ => None,
    }
}

#[inline]
fn place_fragment(
    reassembler: &mut Reassembler,
    fragment: &[u8],
    message: &mut [u8],
    malformed: &mut u64,
) -> Result<bool, LaunchError> {
    match reassembler.place(fragment, message) {
        Ok(Progress::Partial(_)) => Ok(false),
        Ok(Progress::Complete(bytes)) if bytes as usize == message.len() => Ok(true),
        Ok(Progress::Complete(bytes)) => {
            Err(LaunchError::Failed(format!("a message of {bytes} bytes came instead of {}", message.len())))
        }
        Err(error) => {
            *malformed += 1;
            Err(LaunchError::Failed(format!("the peer's fragments do not fit: {error}")))
        }
    }
}

/// Error message for a cause.
pub fn describe_cause(cause: Cause) -> String {
    let text = match cause {
        Cause::Requested => "this side ended the LLC connection",
        Cause::PeerDisconnected => "the peer ended the LLC connection",
        Cause::PeerRefused => "the peer refused the LLC connection",
        Cause::PeerNotConnected => "the peer has no LLC connection; was it restarted?",
        Cause::PeerReset => "the peer reset the LLC connection",
        Cause::PeerRejected(_) => "the peer rejected a PDU of the LLC connection",
        Cause::NoAnswer => "the peer answers no LLC PDU: is its host down, or the link?",
        Cause::Stalled => "the peer acknowledges nothing",
    };
    text.to_owned()
}

impl<L: Link> Transport for Reliable<L> {
    fn establish(&mut self) -> Result<(), LaunchError> {
        if let Service::NotConnected { peer, connects } = self.service {
            self.service = Service::Connection(establish(&mut self.port, peer, connects)?);
        }
        Ok(())
    }

    #[inline]
    unsafe fn try_send(&mut self, _sequence: u32, message: &[u8], done: &mut usize) -> Result<bool, LaunchError> {
        if *done == message.len() {
            return Ok(true);
        }
        // A single frame is sent alone; several are sent with everything due.
        let is_short = message.len() <= self.room as usize - FIRST_HEADER;
        let (mut fragmenter, mut next) = match self.fragmenter.take() {
            Some(in_flight) => in_flight,
            None => {
                if self.lends(message.len()) && !self.may_borrow(message.len())? {
                    return Ok(false);
                }
                let mut fragmenter =
                    Fragmenter::new(message.len() as u32, self.room).expect("an MTU has room for a header");
                let first = fragmenter.next();
                (fragmenter, first)
            }
        };
        let mut waiting = 0;
        while let Some(fragment) = &next {
            // SAFETY: the caller's promise.
            if !unsafe { self.enqueue(fragment, message) } {
                // Acknowledgements received meanwhile make room.
                self.port.transmit()?;
                self.receive_to_backlog()?;
                self.poll_events()?;
                // SAFETY: the caller's promise.
                if !unsafe { self.enqueue(fragment, message) } {
                    self.fragmenter = Some((fragmenter, next));
                    return Ok(false);
                }
            }
            *done = fragment.end as usize;
            next = fragmenter.next();
            waiting += 1;
            if waiting == FRAGMENTS_PER_TRANSMIT {
                waiting = 0;
                self.port.transmit()?;
            }
        }
        if is_short {
            self.port.transmit_one()?;
        } else {
            if self.lends(message.len()) {
                self.borrowed.message_ends();
            }
            self.port.transmit()?;
        }
        Ok(true)
    }

    fn borrows(&self, message_bytes: usize) -> usize {
        if self.lends(message_bytes) { (BORROWED_BYTES / message_bytes).clamp(2, BORROWED_MESSAGES) } else { 0 }
    }

    #[inline]
    unsafe fn receive(&mut self, message: &mut [u8], patience: Duration) -> Result<Option<u32>, LaunchError> {
        let mut input = self.receive_next(message)?;
        if input != Input::Complete && !patience.is_zero() {
            self.port.transmit()?;
            self.poll_events()?;
            self.port.sleep(patience)?;
            input = self.receive_next(message)?;
        }
        if input == Input::Nothing {
            return Ok(None);
        }
        // Deliver a complete message first: transmitting and polling events can wait.
        self.since_event_poll += 1;
        if input == Input::Incomplete || self.since_event_poll >= MESSAGES_PER_EVENT_POLL {
            self.since_event_poll = 0;
            self.port.transmit()?;
            self.poll_events()?;
        }
        if input == Input::Incomplete {
            return Ok(None);
        }
        self.received_messages = self.received_messages.wrapping_add(1);
        Ok(Some(self.received_messages.wrapping_sub(1)))
    }

    fn wait_to_send(&mut self, patience: Duration) -> Result<(), LaunchError> {
        Ok(self.port.sleep(patience)?)
    }

    fn settle(&mut self) -> Result<bool, LaunchError> {
        self.receive_to_backlog()?;
        self.port.update_time();
        self.port.transmit()?;
        self.poll_events()?;
        Ok(self.port.slots.are_all_free())
    }

    fn is_lazy(&self) -> bool {
        true
    }

    fn set_pace(&mut self, _bit_s: Option<f64>) {}

    fn wire_bytes(&self, message_bytes: usize) -> usize {
        fragments_wire_bytes(message_bytes, self.room as usize, ETHERNET_HEADER_BYTES + LLC_HEADER_BYTES)
    }

    fn is_lossy(&self) -> bool {
        false
    }

    fn check(&mut self) -> Result<(), LaunchError> {
        Ok(self.port.link.check()?)
    }

    fn counters(&mut self) -> Result<Counters, LaunchError> {
        let link = self.port.link.counters()?;
        let repeated = match self.service {
            Service::Connection(handle) => self.port.station.connection(handle).map(|connection| connection.counters()),
            Service::Acknowledged(_) | Service::NotConnected { .. } => None,
        };
        Ok(Counters {
            foreign: self.port.foreign,
            malformed: self.malformed,
            duplicate: repeated.map_or(0, |counters| counters.received_again),
            repeated: repeated.map_or(0, |counters| counters.information_repeated),
            ring_full: link.receive_dropped,
            send_busy: link.send_busy,
            ..Counters::default()
        })
    }

    fn mtu(&self) -> Option<usize> {
        Some(self.mtu)
    }
}

#[cfg(test)]
mod tests {
    use barewire_link::{Faults, MemoryLink};
    use barewire_llc::Lsap;

    use super::*;
    use crate::pattern::{Pattern, Sender};

    const MTU: usize = 300;

    fn peers(a: &MemoryLink, b: &MemoryLink) -> [Peer; 2] {
        let sap = Lsap::new(0x20).unwrap();
        [b, a].map(|to| Peer { local: sap, mac: to.address().0, remote: sap })
    }

    /// Both ends of a connection, established by two threads.
    fn connected(faults: Faults, seed: u64) -> (Reliable<MemoryLink>, Reliable<MemoryLink>) {
        let (a, b) = MemoryLink::pair(MTU, faults, seed);
        let [at_a, at_b] = peers(&a, &b);
        let mut active = Reliable::connection(a, at_a, MTU, true).unwrap();
        let mut passive = Reliable::connection(b, at_b, MTU, false).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| passive.establish().unwrap());
            active.establish().unwrap();
        });
        (active, passive)
    }

    fn acknowledged(faults: Faults, seed: u64) -> (Reliable<MemoryLink>, Reliable<MemoryLink>) {
        let (a, b) = MemoryLink::pair(MTU, faults, seed);
        let [at_a, at_b] = peers(&a, &b);
        (Reliable::acknowledged(a, at_a, MTU).unwrap(), Reliable::acknowledged(b, at_b, MTU).unwrap())
    }

    /// Sends messages from one end to the other, driving both in turn, and checks every byte.
    fn transfer(from: &mut Reliable<MemoryLink>, to: &mut Reliable<MemoryLink>, messages: u32, bytes: usize) {
        let mut pattern = Pattern::new(5, bytes, 0, from.borrows(bytes));
        let mut buffer = vec![0; bytes];
        let (mut sending, mut done, mut received) = (0, 0, 0);
        while received < messages {
            if sending < messages {
                let message = pattern.message(sending, Sender::Active);
                // SAFETY: the pattern keeps borrowed messages unchanged.
                if unsafe { from.try_send(sending, message, &mut done) }.unwrap() {
                    (sending, done) = (sending + 1, 0);
                }
            } else {
                from.settle().unwrap();
            }
            // SAFETY: the buffer outlives the transfer.
            if let Some(sequence) = unsafe { to.receive(&mut buffer, Duration::ZERO) }.unwrap() {
                assert_eq!(sequence, received);
                assert!(pattern.is_intact(&buffer, sequence, Sender::Active), "message {sequence} of {bytes} bytes");
                received += 1;
            }
        }
        while !from.settle().unwrap() {
            to.settle().unwrap();
        }
    }

    #[test]
    fn a_connection_carries_messages_of_any_length_both_ways() {
        let (mut a, mut b) = connected(Faults::default(), 1);
        for bytes in [1, 290, 291, 292, 583, 10_000, 100_000] {
            transfer(&mut a, &mut b, 3, bytes);
            a.received_messages = 0;
            b.received_messages = 0;
            transfer(&mut b, &mut a, 3, bytes);
            a.received_messages = 0;
            b.received_messages = 0;
        }
        assert_eq!(a.counters().unwrap().repeated, 0);
    }

    #[test]
    fn a_connection_loses_nothing_on_a_lossy_wire() {
        for seed in 0..10 {
            let faults = Faults { loss: 0.05, duplication: 0.02, reordering: 0.02, ..Faults::default() };
            let (mut a, mut b) = connected(faults, seed);
            transfer(&mut a, &mut b, 20, 5000);
            assert!(a.counters().unwrap().repeated > 0, "seed {seed} lost nothing");
        }
    }

    #[test]
    fn acknowledged_datagrams_lose_nothing_on_a_lossy_wire() {
        for seed in 0..3 {
            let faults = Faults { loss: 0.05, duplication: 0.02, ..Faults::default() };
            let (mut a, mut b) = acknowledged(faults, seed);
            transfer(&mut a, &mut b, 5, 2000);
        }
    }

    #[test]
    fn a_peer_that_is_gone_is_an_error_in_bounded_time() {
        let (mut a, b) = acknowledged(Faults { loss: 1.0, ..Faults::default() }, 1);
        let deadline_ns = now_ns() + 5_000_000_000;
        // SAFETY: the message is a constant.
        assert!(unsafe { a.try_send(0, &[1; 10], &mut 0) }.unwrap());
        let error = loop {
            if let Err(error) = a.settle() {
                break error;
            }
            assert!(now_ns() < deadline_ns, "no error within 5 s");
        };
        assert!(error.to_string().contains("acknowledged no repetition"));
        drop(b);
    }

    #[test]
    fn both_ends_can_send_more_than_their_queues_hold_at_once() {
        let mut pattern = Pattern::new(5, 200_000, 0, 0);
        let (there, back) = (pattern.message(0, Sender::Active).to_vec(), pattern.message(0, Sender::Passive).to_vec());
        let (mut a, mut b) = connected(Faults::default(), 1);
        let (mut done_a, mut done_b) = (0, 0);
        // Neither receives until it has sent its message.
        for _ in 0..1000 {
            // SAFETY: both messages outlive both ends.
            let sent_a = unsafe { a.try_send(0, &there, &mut done_a) }.unwrap();
            // SAFETY: as above.
            let sent_b = unsafe { b.try_send(0, &back, &mut done_b) }.unwrap();
            assert!(!sent_a && !sent_b, "both hold less than a message");
        }
        let (mut at_a, mut at_b) = (vec![0; 200_000], vec![0; 200_000]);
        let (mut got_a, mut got_b) = (false, false);
        while !(got_a && got_b) {
            // SAFETY: as above.
            unsafe { a.try_send(0, &there, &mut done_a) }.unwrap();
            // SAFETY: as above.
            unsafe { b.try_send(0, &back, &mut done_b) }.unwrap();
            for (end, buffer, got) in [(&mut a, &mut at_a, &mut got_a), (&mut b, &mut at_b, &mut got_b)] {
                // An end that has its message still answers the other.
                *got = if *got {
                    end.settle().is_ok()
                } else {
                    // SAFETY: the buffers outlive both ends.
                    unsafe { end.receive(buffer, Duration::ZERO) }.unwrap().is_some()
                };
            }
        }
        assert!(pattern.is_intact(&at_b, 0, Sender::Active) && pattern.is_intact(&at_a, 0, Sender::Passive));
    }
}
