// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Types 2 and 3: messages in fragments that the engine delivers in order, once, or not at all.

use std::collections::VecDeque;
use std::time::Duration;

use barewire_link::{ETHERNET_HEADER_BYTES, Link};
use barewire_llc::extension::Guard;
use barewire_llc::message::{FIRST_HEADER, Fragment, Fragmenter, Progress, Reassembler};
use barewire_llc::{
    Cause, ConnectionConfig, ConnectionEvent, ConnectionHandle, DatagramOutcome, Delivery, Peer, StationConfig,
    StationEvent,
};

use super::super::links::wrong;
use super::super::{Counters, Transport, fragments_wire_bytes};
use super::ENCAPSULATION;
use barewire_endpoint::{Port, information_max};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// How long a connection may take to come about.
const CONNECT_PATIENCE_NS: u64 = 10_000_000_000;
const LLC_HEADER_BYTES: usize = 4;
/// Fragments that may wait for a buffer to be received into; with more the peer is told to wait.
const BACKLOG_FRAGMENTS: usize = 128;

/// Fragments offered before they are sent: so many are still in the nearest cache when the kernel copies them.
const FRAGMENTS_PER_TRANSMIT: u32 = 8;
/// Bytes of messages that may still be read from the caller's memory, or two messages: more than a window of MTU
/// 1500 holds, and little enough for the nearest cache but one.
const BORROWED_BYTES: usize = 128 << 10;
const BORROWED_MESSAGES: usize = 64;
/// Messages received in a row before events are taken all the same: they free slots.
const UNHEARD_MESSAGES: u32 = 16;

pub struct Reliable<L> {
    port: Port<L>,
    service: Service,
    room: u32,
    /// What is being sent.
    fragmenter: Option<(Fragmenter, Option<Fragment>)>,
    borrowed: Borrowed,
    reassembler: Reassembler,
    /// Fragments that came while only sending; their memory is used again.
    backlog: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    is_busy: bool,
    unheard: u32,
    received_messages: u32,
    malformed: u64,
    failure: Option<String>,
    mtu: usize,
}

/// What a look for fragments found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Nothing,
    /// No whole message, but something that the engine may want to answer or tell.
    News,
    Complete,
}

/// Which messages the peer has not acknowledged yet, and so are still read from the caller's memory.
#[derive(Default)]
struct Borrowed {
    /// Fragments that the engine took, and that the peer has, so far.
    offered: u64,
    acknowledged: u64,
    /// Of each message on its way: `offered` at its end.
    ends: VecDeque<u64>,
}

impl Borrowed {
    fn message_ends(&mut self) {
        self.ends.push_back(self.offered);
    }

    /// How many.
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
    /// One datagram under way at a time.
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
        let mut port = Port::new(link, &config, slots, ENCAPSULATION, None).map_err(wrong)?;
        port.station.activate(peer.local);
        port.station.listen(peer.local, !connects);
        Ok(Self::new(port, Service::NotConnected { peer, connects }, mtu))
    }

    /// Type 3: acknowledged datagrams to the peer.
    pub fn acknowledged(link: L, peer: Peer, mtu: usize) -> Result<Self, LaunchError> {
        // A side that is off its core for some milliseconds is not gone; the engine knows a repetition for 100.
        let config = StationConfig {
            connections: 1,
            backlog: 1,
            datagram_peers: 8,
            datagram_retries: 90,
            datagram_timeout: Duration::from_millis(1),
            ..StationConfig::default()
        };
        let mut port = Port::new(link, &config, 2, ENCAPSULATION, None).map_err(wrong)?;
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
            spare: Vec::new(),
            is_busy: false,
            unheard: 0,
            received_messages: 0,
            malformed: 0,
            failure: None,
            mtu,
        }
    }

    /// Whether a message is sent from the caller's memory: one that fits a frame costs less to copy than to gather,
    /// and acknowledged datagrams are too slow for it to matter.
    #[inline]
    fn lends(&self, message_bytes: usize) -> bool {
        message_bytes > self.room as usize - FIRST_HEADER && !matches!(self.service, Service::Acknowledged(_))
    }

    /// Whether one message more may be borrowed.
    fn may_borrow(&mut self, message_bytes: usize) -> Result<bool, LaunchError> {
        let most = self.borrows(message_bytes);
        if self.borrowed.messages() >= most {
            self.port.transmit()?;
            self.receive_for_later()?;
            self.hear()?;
        }
        Ok(self.borrowed.messages() < most)
    }

    /// Puts a fragment into the engine's queue; false if it takes none now.
    ///
    /// # Safety
    /// As [`Transport::try_send`].
    #[inline]
    unsafe fn offer(&mut self, fragment: &Fragment, message: &[u8]) -> bool {
        let part = &message[fragment.start as usize..fragment.end as usize];
        let lends = self.lends(message.len());
        let slots = &mut self.port.slots;
        let slot = if lends {
            // SAFETY: the caller leaves the message as it is until `borrowed` knows that all of it is acknowledged.
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

    /// Takes what the engine has to say.
    #[inline]
    fn hear(&mut self) -> Result<(), LaunchError> {
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
                    self.failure = Some(describe(cause));
                }
                StationEvent::Connection(..) | StationEvent::AddressChecked { .. } => {}
            }
        }
        match self.failure.take() {
            Some(failure) => Err(LaunchError::Failed(failure)),
            None => Ok(()),
        }
    }

    /// Looks for frames while there is no buffer to receive into: acknowledgements, and data that must wait.
    fn receive_for_later(&mut self) -> Result<(), LaunchError> {
        let Self { port, backlog, spare, .. } = self;
        port.receive(|delivery| {
            if let Some(information) = information_of(&delivery) {
                let mut fragment = spare.pop().unwrap_or_default();
                fragment.clear();
                fragment.extend_from_slice(information);
                backlog.push_back(fragment);
            }
            false
        })?;
        self.set_busy(self.backlog.len() >= BACKLOG_FRAGMENTS);
        Ok(())
    }

    /// Tells the peer to wait, or to go on.
    fn set_busy(&mut self, is_busy: bool) {
        if let (Service::Connection(handle), true) = (self.service, is_busy != self.is_busy) {
            self.is_busy = is_busy;
            let now = self.port.now();
            self.port.station.set_busy(handle, is_busy, now);
        }
    }

    /// Takes fragments, those that waited first, until one completes the message.
    #[inline]
    fn take(&mut self, message: &mut [u8]) -> Result<Taken, LaunchError> {
        while let Some(fragment) = self.backlog.pop_front() {
            let complete = place(&mut self.reassembler, &fragment, message, &mut self.malformed)?;
            self.spare.push(fragment);
            if complete {
                return Ok(Taken::Complete);
            }
        }
        self.set_busy(false);
        let Self { port, reassembler, malformed, .. } = self;
        let mut result = Ok(false);
        let is_news = port.receive(|delivery| {
            if let Some(information) = information_of(&delivery) {
                result = place(reassembler, information, message, malformed);
            }
            !matches!(result, Ok(false))
        })?;
        Ok(match result? {
            true => Taken::Complete,
            false if is_news => Taken::News,
            false => Taken::Nothing,
        })
    }
}

/// Brings the connection about, as the side that asks or as the one that is asked.
fn establish<L: Link>(port: &mut Port<L>, peer: Peer, connects: bool) -> Result<ConnectionHandle, LaunchError> {
    let deadline_ns = now_ns() + CONNECT_PATIENCE_NS;
    let mut handle = None;
    if connects {
        let now = port.now();
        let asked = port.station.connect(peer, 0, now);
        handle = Some(asked.map_err(|error| LaunchError::Failed(error.to_string()))?);
    }
    while now_ns() < deadline_ns {
        port.update_time();
        port.receive(|_| false)?;
        while let Some(event) = port.station.poll_event() {
            match event {
                StationEvent::Connection(asking, ConnectionEvent::Incoming) => {
                    if port.station.peer(asking) == Some(peer) {
                        let now = port.now();
                        port.station.accept(asking, now);
                        port.transmit()?;
                        return Ok(asking);
                    }
                    let now = port.now();
                    port.station.disconnect(asking, now);
                }
                StationEvent::Connection(made, ConnectionEvent::Connected) if Some(made) == handle => return Ok(made),
                StationEvent::Connection(_, ConnectionEvent::Disconnected(cause)) => {
                    return Err(LaunchError::Failed(describe(cause)));
                }
                _ => {}
            }
        }
        port.transmit()?;
        std::thread::yield_now();
    }
    Err(LaunchError::Failed("no LLC connection came about within 10 s".to_owned()))
}

#[inline]
fn information_of<'a>(delivery: &Delivery<'a>) -> Option<&'a [u8]> {
    match delivery {
        Delivery::Data { information, .. } | Delivery::AcknowledgedDatagram { information, .. } => Some(information),
        _ => None,
    }
}

#[inline]
fn place(
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

/// What has happened, in words for the user.
pub fn describe(cause: Cause) -> String {
    let text = match cause {
        Cause::Requested => "this side ended the LLC connection",
        Cause::PeerDisconnected => "the peer ended the LLC connection",
        Cause::PeerRefused => "the peer refused the LLC connection",
        Cause::PeerNotConnected => "the peer knows of no LLC connection; was it started again?",
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
        // One frame goes out at once; several are worth asking for all that is due.
        let is_short = message.len() <= self.room as usize - FIRST_HEADER;
        let (mut fragmenter, mut next) = match self.fragmenter.take() {
            Some(under_way) => under_way,
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
            if !unsafe { self.offer(fragment, message) } {
                // What the peer has acknowledged meanwhile makes room.
                self.port.transmit()?;
                self.receive_for_later()?;
                self.hear()?;
                // SAFETY: the caller's promise.
                if !unsafe { self.offer(fragment, message) } {
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
        let mut taken = self.take(message)?;
        if taken != Taken::Complete && !patience.is_zero() {
            self.port.transmit()?;
            self.hear()?;
            self.port.sleep(patience)?;
            taken = self.take(message)?;
        }
        if taken == Taken::Nothing {
            return Ok(None);
        }
        // A message is handed over first; what else there is to send or to hear can wait for a quieter moment.
        self.unheard += 1;
        if taken == Taken::News || self.unheard >= UNHEARD_MESSAGES {
            self.unheard = 0;
            self.port.transmit()?;
            self.hear()?;
        }
        if taken == Taken::News {
            return Ok(None);
        }
        self.received_messages = self.received_messages.wrapping_add(1);
        Ok(Some(self.received_messages.wrapping_sub(1)))
    }

    fn wait_to_send(&mut self, patience: Duration) -> Result<(), LaunchError> {
        Ok(self.port.sleep(patience)?)
    }

    fn settle(&mut self) -> Result<bool, LaunchError> {
        self.receive_for_later()?;
        self.port.update_time();
        self.port.transmit()?;
        self.hear()?;
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

    /// Both ends of a connection, brought about by two threads as by two processes.
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

    /// Sends messages from one end to the other while both take turns, and checks every byte.
    fn carry(from: &mut Reliable<MemoryLink>, to: &mut Reliable<MemoryLink>, messages: u32, bytes: usize) {
        let mut pattern = Pattern::new(5, bytes, 0, from.borrows(bytes));
        let mut place = vec![0; bytes];
        let (mut sending, mut done, mut received) = (0, 0, 0);
        while received < messages {
            if sending < messages {
                let message = pattern.message(sending, Sender::Active);
                // SAFETY: the pattern keeps what is borrowed.
                if unsafe { from.try_send(sending, message, &mut done) }.unwrap() {
                    (sending, done) = (sending + 1, 0);
                }
            } else {
                from.settle().unwrap();
            }
            // SAFETY: the place stays where it is.
            if let Some(sequence) = unsafe { to.receive(&mut place, Duration::ZERO) }.unwrap() {
                assert_eq!(sequence, received);
                assert!(pattern.is_intact(&place, sequence, Sender::Active), "message {sequence} of {bytes} bytes");
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
            carry(&mut a, &mut b, 3, bytes);
            a.received_messages = 0;
            b.received_messages = 0;
            carry(&mut b, &mut a, 3, bytes);
            a.received_messages = 0;
            b.received_messages = 0;
        }
        assert_eq!(a.counters().unwrap().repeated, 0);
    }

    #[test]
    fn a_connection_loses_nothing_on_a_wire_that_does() {
        for seed in 0..10 {
            let faults = Faults { loss: 0.05, duplication: 0.02, reordering: 0.02, ..Faults::default() };
            let (mut a, mut b) = connected(faults, seed);
            carry(&mut a, &mut b, 20, 5000);
            assert!(a.counters().unwrap().repeated > 0, "seed {seed} lost nothing");
        }
    }

    #[test]
    fn acknowledged_datagrams_lose_nothing_on_a_wire_that_does() {
        for seed in 0..3 {
            let faults = Faults { loss: 0.05, duplication: 0.02, ..Faults::default() };
            let (mut a, mut b) = acknowledged(faults, seed);
            carry(&mut a, &mut b, 5, 2000);
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
    fn both_ends_may_send_at_once_more_than_both_can_hold() {
        let mut pattern = Pattern::new(5, 200_000, 0, 0);
        let (there, back) = (pattern.message(0, Sender::Active).to_vec(), pattern.message(0, Sender::Passive).to_vec());
        let (mut a, mut b) = connected(Faults::default(), 1);
        let (mut done_a, mut done_b) = (0, 0);
        // Neither looks for data until it has sent all of its own.
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
            for (end, place, got) in [(&mut a, &mut at_a, &mut got_a), (&mut b, &mut at_b, &mut got_b)] {
                // Who has its message still answers the other.
                *got = if *got {
                    end.settle().is_ok()
                } else {
                    // SAFETY: the place stays where it is.
                    unsafe { end.receive(place, Duration::ZERO) }.unwrap().is_some()
                };
            }
        }
        assert!(pattern.is_intact(&at_b, 0, Sender::Active) && pattern.is_intact(&at_a, 0, Sender::Passive));
    }
}
