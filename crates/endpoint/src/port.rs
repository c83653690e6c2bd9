// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A station of the LLC engine on a link: frames in, frames out, time.
//!
//! What is to be sent waits in slots until the peer has acknowledged it: the engine may ask for it again. A slot
//! holds a whole frame, with room for its headers, or the head of one whose rest lies in the caller's memory.
//!
//! ```text
//! slot  | Ethernet 14 | LLC 4 | extension 14 or 34 | information …                 |
//!       (shorter headers begin later)                | … information in the caller's memory |
//! ```
//!
//! A frame whose information is encrypted is made beside them: the peer may need it again, and the caller has lent it.

use std::time::Duration;

use barewire_link::{Clock, ETHERNET_HEADER_BYTES, Incoming, Link, LinkError, Outgoing};
use barewire_llc::extension::{self, CHECK, DATAGRAM_FRONT, Extra, Guard, INFORMATION_FRONT};
use barewire_llc::{
    ConfigError, ConnectionHandle, Delivery, Handled, Header, Instant, Mac, Reply, Station, StationConfig,
    StationTransmit,
};

use crate::check::{ADDRESSES, addresses, check};
use crate::clock::now;
use crate::descriptors::HEAD_MAX;
use crate::early::Early;
use crate::framing::{self, Encapsulation, Frame};
use crate::mutant::mutant;
use crate::seal::{Seal, Unbelieved, Unsealed};
use crate::secret::Authentication;
use crate::slots::{Slot, Slots};

/// Bytes of an I PDU before its information; no other PDU with information has as many.
const I_HEADER_BYTES: usize = 4;
/// Frames handed to the link at once.
const BATCH_FRAMES: usize = 32;
/// The longest frame without a slot.
const CONTROL_BYTES: usize = ETHERNET_HEADER_BYTES + Header::MAX + Guard::MAX + extension::MAX;
/// The longest header of a frame with information.
const HEADERS_MAX: usize = ETHERNET_HEADER_BYTES + I_HEADER_BYTES + Guard::MAX + INFORMATION_FRONT;
/// Frames taken before acknowledgements are sent all the same: as many as the engine acknowledges at once.
const FRAMES_PER_TRANSMIT: u32 = 16;
/// Frames taken in one go: whoever sends faster than we receive must not keep us from everything else.
const FRAMES_AT_ONCE: u32 = 1024;
/// Looks into the ring between two looks for timers that are over: the clock costs as much as several.
const LOOKS_PER_CLOCK: u32 = 32;
/// The same while each look finds a frame, and others may be behind it.
const LOOKS_PER_CLOCK_MAX: u32 = 128;

/// Who goes to sleep does at once what is due so soon, such as an acknowledgement that waits for data to ride on:
/// waking up for it would cost more.
const DUE_SOON: Duration = Duration::from_micros(60);
/// The shortest sleep for a timer's sake. To set a timer nearer than the system's tick and to take it back costs a
/// virtual machine microseconds in every sleep (measured, `docs/performance.md`); what is repeated for a sleeper may
/// be late instead.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// How long a link may refuse frames before they count as lost: longer than any queue takes to drain.
const REFUSAL_PATIENCE: Duration = Duration::from_millis(20);

/// Bytes of the smallest MTU that leaves room for a message's head.
#[must_use]
pub const fn mtu_min(guard: Guard) -> usize {
    front(guard) + HEAD_MAX + barewire_llc::message::FIRST_HEADER + 1
}

/// Bytes of user data that a frame of type 2 carries, between two endpoints on links of this MTU, [`mtu_min`] at least.
#[must_use]
pub const fn information_max(mtu: usize, guard: Guard) -> usize {
    let most = if mtu > u16::MAX as usize { u16::MAX as usize } else { mtu };
    most - front(guard)
}

/// Bytes in front of that.
const fn front(guard: Guard) -> usize {
    I_HEADER_BYTES + guard.bytes() + INFORMATION_FRONT
}

/// A link with a station on it.
pub struct Port<L> {
    /// The link; frames besides those of the station may be sent over it.
    pub link: L,
    /// The station; a [`Slot`] names what it sends.
    pub station: Station<Slot>,
    own: Mac,
    encapsulation: Encapsulation,
    /// Whether the station adds what those of ours do.
    is_extended: bool,
    /// Of authenticated frames: keys and counters.
    seal: Option<Box<Seal>>,
    /// Where they are encrypted: a batch of frames to be sent, the room of each, and the PDU that was received last.
    encrypted: Box<[u8]>,
    encrypted_bytes: usize,
    opened: Box<[u8]>,
    early: Early,
    /// Something of this connection that came early may be next in order.
    has_kept: Option<ConnectionHandle>,
    /// Memory for the information fields of what is to be sent.
    pub slots: Slots,
    batch: Box<[Prepared; BATCH_FRAMES]>,
    clock: Clock,
    now: Instant,
    /// Looks for something that has come since the last look for timers that are over.
    pub looks: u32,
    /// Frames taken since the last look for what is to be sent.
    handled: u32,
    /// Frames that carried no LLC PDU, or were cut.
    pub foreign: u64,
    /// Frames whose check is wrong: changed on their way, or of a station that is none of ours.
    pub damaged: u64,
    /// Frames without a seal or with a wrong one: forged, changed, or of a station that has another secret or none.
    pub unauthentic: u64,
    /// Frames with a right seal that had come before.
    pub replayed: u64,
    /// A fault to have.
    #[cfg(feature = "mutants")]
    pub mutant: Option<crate::Mutant>,
}

impl<L: Link> Port<L> {
    /// A station with `slots` frames of send memory. An extended one may authenticate its frames; then its guard follows.
    ///
    /// # Errors
    /// Which value of `config` is out of its range.
    pub fn new(
        mut link: L,
        config: &StationConfig,
        slots: u16,
        encapsulation: Encapsulation,
        authentication: Option<&Authentication>,
    ) -> Result<Self, ConfigError> {
        let (own, clock) = (link.address().0, link.clock());
        let now = now(&clock);
        let guard = if authentication.is_some() { Guard::Seal } else { Guard::Check };
        let station = Station::new(own, &StationConfig { guard, ..config.clone() }, now)?;
        let mtu = link.mtu();
        let seal = authentication.map(|authentication| {
            Box::new(Seal::new(authentication, own, config.connections, mtu, link.random_bits()))
        });
        let encrypted_bytes = (HEADERS_MAX + mtu).next_multiple_of(64);
        let encrypts = authentication.is_some_and(|authentication| authentication.encrypts);
        Ok(Self {
            own,
            encapsulation,
            is_extended: config.connection.is_extended,
            seal,
            encrypted: vec![0; if encrypts { BATCH_FRAMES * encrypted_bytes } else { 0 }].into_boxed_slice(),
            encrypted_bytes,
            opened: vec![0; if encrypts { mtu } else { 0 }].into_boxed_slice(),
            early: Early::default(),
            has_kept: None,
            slots: Slots::new(slots, mtu, guard),
            batch: Box::new([Prepared::Slot { slot: 0, header_bytes: 0 }; BATCH_FRAMES]),
            clock,
            now,
            looks: 0,
            handled: 0,
            foreign: 0,
            damaged: 0,
            unauthentic: 0,
            replayed: 0,
            #[cfg(feature = "mutants")]
            mutant: None,
            station,
            link,
        })
    }

    /// The time. The program may have computed since the last look at the clock: a timer that is set by an old one ends before
    /// a prompt peer can answer.
    #[inline]
    pub fn now(&mut self) -> Instant {
        self.now = now(&self.clock);
        self.now
    }

    /// Takes frames from the ring and hands what is for the user to `deliver`, until that says stop, none is
    /// left, or there is other work to do. Answers that the engine wants given at once are given. False if nothing
    /// came and no time has passed for the engine, so that there can be nothing new to send or to hear.
    ///
    /// # Errors
    /// What the link says.
    #[inline]
    pub fn receive(&mut self, mut deliver: impl FnMut(Delivery<'_>) -> bool) -> Result<bool, LinkError> {
        self.looks += 1;
        let mut is_news = false;
        let mut looks_per_clock = LOOKS_PER_CLOCK;
        if self.has_kept.is_some() {
            self.now = now(&self.clock);
            if self.deliver_kept(&mut deliver) {
                return Ok(true);
            }
            is_news = true;
        }
        for _ in 0..FRAMES_AT_ONCE {
            let Some(frame) = self.link.receive() else { break };
            if !is_news {
                self.now = now(&self.clock);
                is_news = true;
            }
            let Some(frame) = whole(&frame) else {
                self.foreign += 1;
                continue;
            };
            let mut llc = frame.llc;
            if let Some(seal) = &mut self.seal {
                let station = &self.station;
                let connection_with =
                    |from, saps, mark| station.connection_with(from, saps, mark).map(ConnectionHandle::index);
                match seal.open(&frame, &mut self.opened, connection_with) {
                    Ok(opened) => llc = opened,
                    Err(Unbelieved::Unauthentic) if mutant!(self, CheckIgnored) => {}
                    Err(Unbelieved::Unauthentic) => {
                        self.unauthentic += 1;
                        continue;
                    }
                    Err(Unbelieved::Replayed) => {
                        self.replayed += 1;
                        continue;
                    }
                }
            } else if self.is_extended && !is_intact(&frame) && !mutant!(self, CheckIgnored) {
                self.damaged += 1;
                continue;
            }
            let Frame { destination, source, behind, .. } = frame;
            let Handled { delivery, reply } = self.station.handle_frame(source, destination, llc, behind, self.now);
            let stop = match delivery {
                Some(Delivery::Early { connection, number, information }) => {
                    let is_wanted = |connection, number| self.station.is_kept(connection, number);
                    if self.early.keep(connection, number, information, is_wanted) {
                        self.station.keep(connection, number);
                    }
                    false
                }
                Some(delivery) => {
                    let stop = deliver(delivery);
                    if let Delivery::Data { connection, has_kept: true, .. } = delivery {
                        self.has_kept = Some(connection);
                    }
                    stop
                }
                None => false,
            };
            if let Some(reply) = reply {
                let answer = answer(self.own, &reply, self.encapsulation, self.seal.as_deref_mut());
                send_all(&mut self.link, &[Outgoing { header: &answer, payload: &[] }])?;
            }
            let stop = stop || self.has_kept.is_some() && self.deliver_kept(&mut deliver);
            // Acknowledgements do not wait until a long message is whole: the peer's window would close.
            self.handled += 1;
            if self.handled >= FRAMES_PER_TRANSMIT {
                self.now = now(&self.clock);
                self.transmit()?;
            }
            if stop {
                looks_per_clock = LOOKS_PER_CLOCK_MAX;
                break;
            }
        }
        // Not before what has come: a timer may wait for that.
        if self.looks >= looks_per_clock {
            self.tell_time();
            is_news = true;
        }
        Ok(is_news)
    }

    /// Hands over what came early and is next in order now; whether `deliver` says stop.
    fn deliver_kept(&mut self, deliver: &mut impl FnMut(Delivery<'_>) -> bool) -> bool {
        while let Some(connection) = self.has_kept {
            let number = self.station.next_kept(connection, self.now);
            let Some(information) = number.and_then(|number| self.early.take(connection, number)) else {
                self.has_kept = None;
                break;
            };
            let stop = deliver(Delivery::Data { connection, information: &information, has_kept: true });
            self.early.reuse(information);
            if stop {
                return true;
            }
        }
        false
    }

    /// Sends the next frame that is due; others stay due.
    ///
    /// # Errors
    /// What the link says.
    #[inline]
    pub fn transmit_one(&mut self) -> Result<(), LinkError> {
        if self.prepare(0) {
            let frame = self.batch[0].frame(&self.slots, &self.encrypted);
            send_all(&mut self.link, &[frame])?;
        }
        Ok(())
    }

    /// Sends everything that is due.
    ///
    /// # Errors
    /// What the link says.
    #[inline]
    pub fn transmit(&mut self) -> Result<(), LinkError> {
        self.handled = 0;
        while self.transmit_batch()? == BATCH_FRAMES {}
        Ok(())
    }

    /// Whether the engine has frames of a connection that it may not send yet.
    #[inline]
    pub fn holds_up(&self, connection: ConnectionHandle) -> bool {
        let connection = self.station.connection(connection);
        connection.is_some_and(|connection| connection.unacknowledged() > connection.outstanding())
    }

    /// Lets the engine know what time it is; when nothing else has. Whether something was due, so that it may have
    /// something to say.
    #[inline]
    pub fn tell_time(&mut self) -> bool {
        self.looks = 0;
        self.now = now(&self.clock);
        let is_due = self.station.next_deadline().is_some_and(|deadline| deadline <= self.now);
        if is_due {
            self.station.handle_timeout(self.now);
        }
        is_due
    }

    /// How long there is nothing to do but for frames that come: until something is due, or for `patience`. Sends
    /// what is due before.
    ///
    /// # Errors
    /// What the link says.
    pub fn prepare_to_sleep(&mut self, patience: Duration) -> Result<Duration, LinkError> {
        let is_due = self.tell_time() | self.hasten();
        self.transmit()?;
        if is_due {
            // The engine may have something to say.
            return Ok(Duration::ZERO);
        }
        let due = self.station.exact_deadline();
        let until = due.map_or(u64::MAX, |due| due.as_nanos().saturating_sub(self.now.as_nanos()));
        Ok(patience.min(Duration::from_nanos(until).max(SLEEP_MIN)))
    }

    /// Does at once what is due soon, such as an acknowledgement that waits for data to ride on. Whether there was
    /// anything.
    pub fn hasten(&mut self) -> bool {
        let is_due = self.station.exact_deadline().is_some_and(|deadline| deadline <= self.now + DUE_SOON);
        if is_due {
            self.station.handle_timeout(self.now + DUE_SOON);
        }
        is_due
    }

    /// Sleeps until a frame comes, something is due, or for `patience`.
    ///
    /// # Errors
    /// What the link says.
    pub fn sleep(&mut self, patience: Duration) -> Result<(), LinkError> {
        let patience = self.prepare_to_sleep(patience)?;
        unless_down(self.link.wait_to_receive(patience))?;
        self.tell_time();
        Ok(())
    }

    #[inline]
    fn transmit_batch(&mut self) -> Result<usize, LinkError> {
        let mut count = 0;
        while count < BATCH_FRAMES && self.prepare(count) {
            count += 1;
        }
        match count {
            0 => {}
            1 => {
                let frame = self.batch[0].frame(&self.slots, &self.encrypted);
                send_all(&mut self.link, &[frame])?;
            }
            _ => {
                let mut frames = [Outgoing::default(); BATCH_FRAMES];
                for (frame, prepared) in frames.iter_mut().zip(self.batch.iter()).take(count) {
                    *frame = prepared.frame(&self.slots, &self.encrypted);
                }
                send_all(&mut self.link, &frames[..count])?;
            }
        }
        Ok(count)
    }

    /// Makes the next frame that is due ready as number `count` of the batch; false if none is.
    #[inline]
    fn prepare(&mut self, count: usize) -> bool {
        let Some(transmit) = self.station.poll_transmit(self.now) else { return false };
        let StationTransmit { destination, header, token, mut extra, connection } = transmit;
        let (llc, slot) = (header.as_bytes(), token.copied());
        if self.seal.is_some() {
            self.batch[count] = self.prepare_sealed(count, destination, llc, slot, &mut extra, connection);
            return true;
        }
        self.batch[count] = if let Some(slot) = slot {
            let guard = if extra.is_none() { 0 } else { CHECK };
            let bytes = llc.len() + guard + extra.as_bytes().len() + self.slots.information_bytes(slot);
            let ethernet = self.encapsulation.header(destination, self.own, bytes);
            let header_bytes = self.slots.write_headers(slot, &ethernet, llc, &mut extra);
            Prepared::Slot { slot, header_bytes: header_bytes as u8 }
        } else {
            Prepared::Control(Control::new(self.own, destination, llc, &extra, |ethernet| {
                check_of(addresses(ethernet), llc, &extra)
            }))
        };
        true
    }

    /// As [`prepare`](Self::prepare), of an authenticated frame.
    fn prepare_sealed(
        &mut self,
        count: usize,
        destination: Mac,
        llc: &[u8],
        slot: Option<Slot>,
        extra: &mut Extra,
        connection: Option<ConnectionHandle>,
    ) -> Prepared {
        let Self { link, slots, encrypted, .. } = self;
        let seal = self.seal.as_mut().expect("frames are authenticated");
        let random = || link.random_bits();
        let connection = connection.map(ConnectionHandle::index);
        let Some(slot) = slot else {
            return Prepared::Control(Control::new(self.own, destination, llc, extra, |ethernet| {
                seal.authenticate(&unsealed(ethernet, llc, extra, connection), [&[]; 2], random)
            }));
        };
        let bytes = llc.len() + Guard::Seal.bytes() + extra.as_bytes().len() + slots.information_bytes(slot);
        let ethernet = self.encapsulation.header(destination, self.own, bytes);
        if seal.encrypts() {
            let at = count * self.encrypted_bytes;
            let frame = &mut encrypted[at..at + ETHERNET_HEADER_BYTES + bytes];
            let unsealed = unsealed(&ethernet, llc, extra, connection);
            encrypt(frame, seal, &ethernet, &unsealed, slots.pieces(slot), random);
            return Prepared::Encrypted { at: at as u32, bytes: frame.len() as u32 };
        }
        let header_bytes = slots.write_guarded_headers(slot, &ethernet, llc, extra, |extra, information| {
            seal.authenticate(&unsealed(&ethernet, llc, extra, connection), information, random)
        });
        Prepared::Slot { slot, header_bytes: header_bytes as u8 }
    }

    /// Sends a UI PDU of an extended station at once, of which nothing is kept: its header, what is added to it, and the
    /// information. False if the link is busy.
    ///
    /// # Errors
    /// What the link says.
    pub fn send_datagram(
        &mut self,
        destination: Mac,
        header: &Header,
        extra: &Extra,
        information: &[u8],
    ) -> Result<bool, LinkError> {
        let llc = header.as_bytes();
        let guard = if self.seal.is_some() { Guard::Seal } else { Guard::Check }.bytes();
        let bytes = llc.len() + guard + extra.as_bytes().len() + information.len();
        let ethernet = self.encapsulation.header(destination, self.own, bytes);
        let mut headers = [0; ETHERNET_HEADER_BYTES + Header::MAX + Guard::MAX + DATAGRAM_FRONT];
        let frame = match &mut self.seal {
            Some(seal) if seal.encrypts() => {
                let frame = &mut self.encrypted[..ETHERNET_HEADER_BYTES + bytes];
                let unsealed = unsealed(&ethernet, llc, extra, None);
                encrypt(frame, seal, &ethernet, &unsealed, [information, &[]], || 0);
                Outgoing { header: frame, payload: &[] }
            }
            seal => {
                let end = match seal {
                    Some(seal) => {
                        let unsealed = unsealed(&ethernet, llc, extra, None);
                        let seal = seal.authenticate(&unsealed, [information, &[]], || 0);
                        headers_of(&mut headers, &ethernet, llc, &seal, extra)
                    }
                    None => {
                        let check = check(addresses(&ethernet), llc, [extra.as_bytes(), information]);
                        headers_of(&mut headers, &ethernet, llc, &check.to_be_bytes(), extra)
                    }
                };
                Outgoing { header: &headers[..end], payload: information }
            }
        };
        match self.link.send(&[frame]) {
            // Lost, as a datagram may be.
            Err(LinkError::InterfaceDown(_)) => Ok(true),
            sent => Ok(sent? == 1),
        }
    }
}

/// A frame that is ready: where it lies.
#[derive(Clone, Copy)]
enum Prepared {
    Slot {
        slot: Slot,
        header_bytes: u8,
    },
    Control(Control),
    /// All of it beside the slots.
    Encrypted {
        at: u32,
        bytes: u32,
    },
}

impl Prepared {
    #[inline]
    fn frame<'a>(&'a self, slots: &'a Slots, encrypted: &'a [u8]) -> Outgoing<'a> {
        match self {
            Self::Slot { slot, header_bytes } => slots.frame(*slot, usize::from(*header_bytes)),
            Self::Control(control) => control.frame(),
            Self::Encrypted { at, bytes } => {
                let at = *at as usize;
                Outgoing { header: &encrypted[at..at + *bytes as usize], payload: &[] }
            }
        }
    }
}

/// A whole frame without user data.
#[derive(Clone, Copy)]
struct Control {
    bytes: [u8; CONTROL_BYTES],
    length: u8,
}

impl Control {
    /// `guard` makes the guard of a frame with this Ethernet header, if the frame has one.
    #[inline]
    fn new<const GUARD: usize>(
        own: Mac,
        destination: Mac,
        llc: &[u8],
        extra: &Extra,
        guard: impl FnOnce(&[u8; ETHERNET_HEADER_BYTES]) -> [u8; GUARD],
    ) -> Self {
        let mut bytes = [0; CONTROL_BYTES];
        let ethernet = Encapsulation::Length.header(destination, own, llc.len());
        let length = if extra.is_none() {
            headers_of(&mut bytes, &ethernet, llc, &[], extra)
        } else {
            headers_of(&mut bytes, &ethernet, llc, &guard(&ethernet), extra)
        };
        Self { bytes, length: length as u8 }
    }

    #[inline]
    fn frame(&self) -> Outgoing<'_> {
        Outgoing { header: &self.bytes[..usize::from(self.length)], payload: &[] }
    }
}

/// Writes a frame up to its information; how many bytes that is.
#[inline]
fn headers_of(bytes: &mut [u8], ethernet: &[u8], llc: &[u8], guard: &[u8], extra: &Extra) -> usize {
    let mut end = 0;
    for part in [ethernet, llc, guard, extra.as_bytes()] {
        bytes[end..end + part.len()].copy_from_slice(part);
        end += part.len();
    }
    end
}

/// What of a frame with this Ethernet header is sealed besides its information, and the connection it is of.
#[inline]
fn unsealed<'a>(
    ethernet: &'a [u8; ETHERNET_HEADER_BYTES],
    llc: &'a [u8],
    extra: &'a Extra,
    connection: Option<usize>,
) -> Unsealed<'a> {
    Unsealed { addresses: addresses(ethernet), llc, extension: extra.as_bytes(), mark: extra.mark(), connection }
}

/// Makes a whole frame with its information encrypted.
fn encrypt(
    frame: &mut [u8],
    seal: &mut Seal,
    ethernet: &[u8; ETHERNET_HEADER_BYTES],
    unsealed: &Unsealed<'_>,
    information: [&[u8]; 2],
    random: impl FnOnce() -> u64,
) {
    let Unsealed { llc, extension, .. } = *unsealed;
    let (first, rest) = frame.split_at_mut(ETHERNET_HEADER_BYTES);
    first.copy_from_slice(ethernet);
    let (second, rest) = rest.split_at_mut(llc.len());
    second.copy_from_slice(llc);
    let (place, rest) = rest.split_first_chunk_mut().expect("there is room for a seal");
    let (third, rest) = rest.split_at_mut(extension.len());
    third.copy_from_slice(extension);
    let (in_slot, lent) = rest.split_at_mut(information[0].len());
    in_slot.copy_from_slice(information[0]);
    lent.copy_from_slice(information[1]);
    *place = seal.encrypt(unsealed, rest, random);
}

/// The LLC PDU of a frame that is all there.
#[inline]
fn whole<'a>(frame: &Incoming<'a>) -> Option<Frame<'a>> {
    if frame.is_truncated() { None } else { framing::parse(frame.bytes) }
}

/// Whether a frame of a station of ours is as it was sent.
#[inline]
fn is_intact(frame: &Frame<'_>) -> bool {
    let checked = extension::checked(frame.llc, frame.behind);
    checked.is_some_and(|checked| check(frame.addresses, checked.head, checked.pieces) == checked.check)
}

/// The check of a PDU with what is added behind it.
#[inline]
fn check_of(addresses: &[u8; ADDRESSES], llc: &[u8], extra: &Extra) -> [u8; CHECK] {
    let (head, rest) = extension::head(llc);
    check(addresses, head, [rest, extra.as_bytes()]).to_be_bytes()
}

fn answer(own: Mac, reply: &Reply<'_>, encapsulation: Encapsulation, seal: Option<&mut Seal>) -> Vec<u8> {
    let llc = [reply.header.as_bytes(), reply.information].concat();
    let ethernet = encapsulation.header(reply.destination, own, llc.len());
    let mut frame = [&ethernet[..], &llc].concat();
    match seal {
        _ if reply.extra.is_none() => {}
        Some(seal) => {
            let unsealed = unsealed(&ethernet, &llc, &reply.extra, None);
            frame.extend(seal.authenticate(&unsealed, [&[]; 2], || 0));
        }
        None => frame.extend(check_of(addresses(&ethernet), &llc, &reply.extra)),
    }
    frame.extend(reply.extra.as_bytes());
    frame
}

/// What a link says, of which the interface may be down for a while: nothing has come then, and what was sent is lost, as
/// on a wire that was pulled. Whom that cuts off is given up by the engine, if it lasts.
pub(crate) fn unless_down<T: Default>(result: Result<T, LinkError>) -> Result<T, LinkError> {
    match result {
        Err(LinkError::InterfaceDown(_)) => Ok(T::default()),
        other => other,
    }
}

/// Hands all frames over, unless the link is down.
#[inline]
fn send_all(link: &mut impl Link, frames: &[Outgoing<'_>]) -> Result<(), LinkError> {
    unless_down(hand_over_all(link, frames))
}

/// Hands all frames over. A busy link is waited for, because what the engine gave out counts as sent; but a link whose
/// other end is down refuses every frame, and then they are lost, as they would be on the wire.
#[inline]
fn hand_over_all(link: &mut impl Link, frames: &[Outgoing<'_>]) -> Result<(), LinkError> {
    let mut sent = link.send(frames)?;
    if sent < frames.len() {
        let clock = link.clock();
        let deadline = now(&clock) + REFUSAL_PATIENCE;
        while sent < frames.len() && now(&clock) < deadline {
            link.wait_to_send(Duration::from_millis(1))?;
            sent += link.send(&frames[sent..])?;
        }
    }
    Ok(())
}
