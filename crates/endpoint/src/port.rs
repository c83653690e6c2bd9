// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A station of the LLC engine on a link: received frames, sent frames, timers.
//!
//! Information stays in a slot until the peer has acknowledged it, because the engine may retransmit it. A slot holds a
//! whole frame, with room for its headers, or the start of one whose rest lies in the caller's memory.
//!
//! ```text
//! slot  | Ethernet 14 | LLC 4 | extension 14 or 34 | information …                 |
//!       (shorter headers begin later)                | … information in the caller's memory |
//! ```
//!
//! Encrypted frames are built in separate buffers: the plaintext may be needed again, and may be lent memory.

use std::time::Duration;

use barewire_link::{Clock, ETHERNET_HEADER_BYTES, Incoming, Link, LinkError, MacAddress, Outgoing, PeerAddress};
use barewire_llc::extension::{self, CHECK, DATAGRAM_FRONT, Extra, Guard, INFORMATION_FRONT};
use barewire_llc::{
    ConfigError, ConnectionHandle, Delivery, Handled, Header, Instant, Mac, Peer, Reply, Station, StationConfig,
    StationTransmit,
};

use crate::address::Address;
use crate::check::{ADDRESSES, addresses, check};
use crate::clock::now;
use crate::descriptors::HEAD_MAX;
use crate::framing::{self, Encapsulation, Frame};
use crate::labels::Labels;
use crate::mutant::mutant;
use crate::reorder::ReorderBuffer;
use crate::seal::{Seal, SealError, Unsealed};
use crate::secret::Authentication;
use crate::slots::{Slot, Slots};

/// Bytes of an I PDU before its information; no other PDU with information has a header of this length.
const I_HEADER_BYTES: usize = 4;
/// Maximum number of frames passed to the link in one call: few enough to be in the L1 or L2 cache when the kernel
/// copies them. A system call that sends 16 datagrams takes 4.2 µs, one with 32 takes 5.3.
pub(crate) const BATCH_FRAMES: usize = 32;
/// Size of the longest frame without a slot.
const CONTROL_BYTES: usize = ETHERNET_HEADER_BYTES + Header::MAX + Guard::MAX + extension::MAX;
/// Size of the longest header of a frame with information.
const HEADERS_MAX: usize = ETHERNET_HEADER_BYTES + I_HEADER_BYTES + Guard::MAX + INFORMATION_FRONT;
/// Frames received in one call, so that a fast sender cannot starve other work.
const FRAMES_PER_RECEIVE: u32 = 1024;
/// Polls of the ring between two checks of the timers; reading the clock costs as much as several polls.
const POLLS_PER_CLOCK_READ: u32 = 32;
/// The same while every poll finds a frame, and others may be behind it.
const POLLS_PER_CLOCK_READ_MAX: u32 = 128;

/// Timers that expire this soon, as of a delayed acknowledgement, are handled before a sleep: waking up costs more.
const DUE_SOON: Duration = Duration::from_micros(60);
/// Minimum timeout of a sleep. Arming and cancelling a timer that expires before the next tick costs a virtual machine
/// microseconds in each sleep (measured, `docs/performance.md`). Retransmissions to a sleeper may be late instead.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// How long a link may refuse frames before they are dropped: longer than any queue takes to drain.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(20);

/// Smallest MTU in bytes that leaves room for a message's head.
#[must_use]
pub const fn mtu_min(guard: Guard) -> usize {
    front(guard) + HEAD_MAX + barewire_llc::message::FIRST_HEADER + 1
}

/// Bytes of user data in a type 2 frame between two endpoints on links of this MTU, which is at least [`mtu_min`].
#[must_use]
pub const fn information_max(mtu: usize, guard: Guard) -> usize {
    let mtu = if mtu > u16::MAX as usize { u16::MAX as usize } else { mtu };
    mtu - front(guard)
}

/// Bytes of a frame's payload before the user data.
const fn front(guard: Guard) -> usize {
    I_HEADER_BYTES + guard.bytes() + INFORMATION_FRONT
}

/// Length of the longest PDU that any link delivers: a peer may have a longer MTU.
const RECEIVED_MAX: usize = 1 << 16;

/// A link with a station on it.
pub struct Port<L> {
    /// The link. Frames of others than the station may be sent over it.
    pub link: L,
    /// The station. It refers to information by its [`Slot`].
    pub station: Station<Slot>,
    own: Mac,
    encapsulation: Encapsulation,
    /// Whether frames have an extension.
    is_extended: bool,
    /// Keys and counters, if frames are authenticated.
    seal: Option<Box<Seal>>,
    /// The labels that the station's configuration counts.
    pub(crate) labels: Option<Labels>,
    /// With encryption: a batch of frames to send, the size reserved for each, and the PDU received last.
    encrypted: Box<[u8]>,
    encrypted_bytes: usize,
    decrypted: Box<[u8]>,
    reorder: ReorderBuffer,
    /// Connection of which a frame in the reorder buffer may be next.
    reordered: Option<ConnectionHandle>,
    /// Memory for the information to send.
    pub slots: Slots,
    batch: Box<[Prepared; BATCH_FRAMES]>,
    clock: Clock,
    now: Instant,
    /// Polls since the timers were last checked.
    pub polls: u32,
    /// Frames received since the last `transmit`, and before the next: as many as one acknowledgement covers.
    handled: u32,
    handled_max: u32,
    /// Frames without an LLC PDU, and truncated frames.
    pub foreign: u64,
    /// Frames with a wrong check: corrupted in transit, or from a station of another implementation.
    pub damaged: u64,
    /// Frames without a valid seal: forged, modified, or from a station with another secret or none.
    pub unauthentic: u64,
    /// Frames with a valid seal that were received before.
    pub replayed: u64,
    /// Injected fault.
    #[cfg(feature = "mutants")]
    pub mutant: Option<crate::Mutant>,
}

impl<L: Link> Port<L> {
    /// A station with `slots` slots. With `authentication`, which needs an extended station, its guard is the seal.
    ///
    /// # Errors
    /// [`ConfigError`] for a value of `config` that is out of range.
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
        let station = Station::new(&StationConfig { guard, ..config.clone() }, now)?;
        let mtu = link.mtu();
        let seal = authentication.map(|authentication| {
            Box::new(Seal::new(authentication, own, config.connections, RECEIVED_MAX, link.random_bits()))
        });
        let encrypted_bytes = (HEADERS_MAX + mtu).next_multiple_of(64);
        let encrypts = authentication.is_some_and(|authentication| authentication.encrypts);
        Ok(Self {
            own,
            encapsulation,
            is_extended: config.connection.is_extended,
            seal,
            labels: None,
            encrypted: vec![0; if encrypts { BATCH_FRAMES * encrypted_bytes } else { 0 }].into_boxed_slice(),
            encrypted_bytes,
            decrypted: vec![0; if encrypts { RECEIVED_MAX } else { 0 }].into_boxed_slice(),
            reorder: ReorderBuffer::default(),
            reordered: None,
            slots: Slots::new(slots, mtu, guard),
            batch: Box::new([Prepared::Slot { slot: 0, header_bytes: 0, label: 0 }; BATCH_FRAMES]),
            clock,
            now,
            polls: 0,
            handled: 0,
            handled_max: config.connection.acknowledge_every.into(),
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

    /// Reads the clock.
    #[inline]
    fn read_clock(&mut self) {
        self.now = now(&self.clock);
        self.link.note_time(self.now.as_nanos());
    }

    /// Bytes of user data in a type 2 frame to a peer at present, on a link of at most this MTU.
    #[inline]
    pub fn information_to(&mut self, connection: ConnectionHandle, mtu_max: usize) -> Option<usize> {
        let Peer { mac, remote, .. } = self.station.peer(connection)?;
        let mtu = self.link.mtu_to(MacAddress(mac), remote.byte());
        let guard = if self.seal.is_some() { Guard::Seal } else { Guard::Check };
        Some(information_max(mtu.min(mtu_max), guard))
    }

    /// Names a peer to the link, before anything is sent to it.
    pub fn add_peer(&mut self, peer: Address, key: u64) {
        let Address { mac, sap, locator, .. } = peer;
        self.link.add_peer(&PeerAddress { mac: MacAddress(mac), sap: sap.byte(), locator, key });
    }

    /// Reads the clock. Timers need the current time: set by a time before the program computed, a timer could expire
    /// before a prompt peer can answer.
    #[inline]
    pub fn now(&mut self) -> Instant {
        self.read_clock();
        self.now
    }

    /// Receives frames and passes user data to `deliver`, until `deliver` returns true, no frame is left, or the limit
    /// is reached. Sends immediate replies of the engine. Returns false if no frame was received and the engine's time
    /// did not advance: then there is nothing new to send and no new event.
    ///
    /// # Errors
    /// An error of the link.
    #[inline]
    pub fn receive(&mut self, mut deliver: impl FnMut(Delivery<'_>) -> bool) -> Result<bool, LinkError> {
        self.polls += 1;
        self.link.note_time(self.now.as_nanos());
        let mut has_changed = false;
        let mut polls_per_clock_read = POLLS_PER_CLOCK_READ;
        if self.reordered.is_some() {
            self.read_clock();
            if self.deliver_reordered(&mut deliver) {
                return Ok(true);
            }
            has_changed = true;
        }
        for _ in 0..FRAMES_PER_RECEIVE {
            let Some(frame) = self.link.receive() else { break };
            if !has_changed {
                self.now = now(&self.clock);
                has_changed = true;
            }
            let Some(frame) = parse(&frame) else {
                self.foreign += 1;
                continue;
            };
            let mut llc = frame.llc;
            if let Some(seal) = &mut self.seal {
                let station = &self.station;
                let connection_with =
                    |from, saps, mark| station.connection_with(from, saps, mark).map(ConnectionHandle::index);
                match seal.open(&frame, &mut self.decrypted, connection_with) {
                    Ok(opened) => llc = opened,
                    Err(SealError::Unauthentic) if mutant!(self, CheckIgnored) => {}
                    Err(SealError::Unauthentic) => {
                        self.unauthentic += 1;
                        continue;
                    }
                    Err(SealError::Replayed) => {
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
                    if self.reorder.keep(connection, number, information, is_wanted) {
                        self.station.keep(connection, number);
                    }
                    false
                }
                Some(delivery) => {
                    let stop = deliver(delivery);
                    if let Delivery::Data { connection, has_kept: true, .. } = delivery {
                        self.reordered = Some(connection);
                    }
                    stop
                }
                None => false,
            };
            if let Some(reply) = reply {
                let frame = reply_frame(self.own, &reply, self.encapsulation, self.seal.as_deref_mut());
                send_all(&mut self.link, &[Outgoing { header: &frame, payload: &[], label: 0 }])?;
            }
            let stop = stop || self.reordered.is_some() && self.deliver_reordered(&mut deliver);
            // Do not delay acknowledgements until a long message is complete: the peer's window would close.
            self.handled += 1;
            if self.handled >= self.handled_max {
                self.read_clock();
                self.transmit()?;
            }
            if stop {
                polls_per_clock_read = POLLS_PER_CLOCK_READ_MAX;
                break;
            }
        }
        // Only after the received frames are processed: they may be what a timer waits for.
        if self.polls >= polls_per_clock_read {
            self.update_time();
            has_changed = true;
        }
        Ok(has_changed)
    }

    /// Whether frames may be kept that are next in order.
    pub fn has_reordered(&self) -> bool {
        self.reordered.is_some()
    }

    /// Delivers frames from the reorder buffer that are next in order. Returns whether `deliver` returned true.
    fn deliver_reordered(&mut self, deliver: &mut impl FnMut(Delivery<'_>) -> bool) -> bool {
        while let Some(connection) = self.reordered {
            let number = self.station.next_kept(connection, self.now);
            let Some(information) = number.and_then(|number| self.reorder.take(connection, number)) else {
                self.reordered = None;
                break;
            };
            let stop = deliver(Delivery::Data { connection, information: &information, has_kept: true });
            self.reorder.reuse(information);
            if stop {
                return true;
            }
        }
        false
    }

    /// Sends the next frame that is due, and no others.
    ///
    /// # Errors
    /// An error of the link.
    #[inline]
    pub fn transmit_one(&mut self) -> Result<(), LinkError> {
        if self.prepare(0) {
            let frame = self.batch[0].frame(&self.slots, &self.encrypted);
            send_all(&mut self.link, &[frame])?;
        }
        Ok(())
    }

    /// Sends all frames that are due.
    ///
    /// # Errors
    /// An error of the link.
    #[inline]
    pub fn transmit(&mut self) -> Result<(), LinkError> {
        self.handled = 0;
        // The link knows only the time before the last frames were received.
        self.link.note_time(self.now.as_nanos());
        while self.transmit_batch()? == BATCH_FRAMES {}
        Ok(())
    }

    /// Whether the connection has queued frames that it may not send yet.
    #[inline]
    pub fn is_blocked(&self, connection: ConnectionHandle) -> bool {
        let connection = self.station.connection(connection);
        connection.is_some_and(|connection| connection.unacknowledged() > connection.outstanding())
    }

    /// Updates the engine's time when no frame does. Returns whether a timer expired, so that there may be events.
    #[inline]
    pub fn update_time(&mut self) -> bool {
        self.polls = 0;
        self.read_clock();
        let is_due = self.station.next_deadline().is_some_and(|deadline| deadline <= self.now);
        if is_due {
            self.station.handle_timeout(self.now);
        }
        is_due
    }

    /// Sends what is due, and returns how long the caller may sleep while no frame arrives: until the next timer of the
    /// engine or the link, at most for `timeout`.
    ///
    /// # Errors
    /// An error of the link.
    pub fn prepare_to_sleep(&mut self, timeout: Duration) -> Result<Duration, LinkError> {
        let is_due = self.update_time() | self.handle_due_soon();
        self.transmit()?;
        // Whoever prepares for a sleep need not be the one that receives.
        self.link.send_due();
        let (now, link_due) = (self.now.as_nanos(), self.link.next_deadline().unwrap_or(u64::MAX));
        if is_due || link_due <= now {
            // There may be events, or the link does in `receive` what is due.
            return Ok(Duration::ZERO);
        }
        let due = self.station.exact_deadline().map_or(u64::MAX, Instant::as_nanos);
        let until = due.min(link_due).saturating_sub(now);
        Ok(timeout.min(Duration::from_nanos(until).max(SLEEP_MIN)))
    }

    /// Handles timers that expire soon, such as that of a delayed acknowledgement. Returns whether there were any.
    pub fn handle_due_soon(&mut self) -> bool {
        let is_due = self.station.exact_deadline().is_some_and(|deadline| deadline <= self.now + DUE_SOON);
        if is_due {
            self.station.handle_timeout(self.now + DUE_SOON);
        }
        is_due
    }

    /// Sleeps until a frame arrives, a timer expires, or for `timeout`.
    ///
    /// # Errors
    /// An error of the link.
    pub fn sleep(&mut self, timeout: Duration) -> Result<(), LinkError> {
        let timeout = self.prepare_to_sleep(timeout)?;
        ignore_down(self.link.wait_to_receive(timeout))?;
        self.update_time();
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

    /// Prepares the next frame that is due as frame `count` of the batch; false if none is due.
    #[inline]
    fn prepare(&mut self, count: usize) -> bool {
        let Some(transmit) = self.station.poll_transmit(self.now) else { return false };
        let StationTransmit { destination, header, token, mut extra, connection, label } = transmit;
        let (llc, slot) = (header.as_bytes(), token.copied());
        let label = label.zip(self.labels).map_or(0, |(number, labels)| labels.value(number));
        if self.seal.is_some() {
            self.batch[count] =
                self.prepare_sealed(count, Route { destination, label }, llc, slot, &mut extra, connection);
            return true;
        }
        self.batch[count] = if let Some(slot) = slot {
            let guard = if extra.is_none() { 0 } else { CHECK };
            let bytes = llc.len() + guard + extra.as_bytes().len() + self.slots.information_bytes(slot);
            let ethernet = self.encapsulation.header(destination, self.own, bytes);
            let header_bytes = self.slots.write_headers(slot, &ethernet, llc, &mut extra);
            Prepared::Slot { slot, header_bytes: header_bytes as u8, label }
        } else {
            Prepared::Control(Control::new(self.own, destination, llc, &extra, label, |ethernet| {
                check_of(addresses(ethernet), llc, &extra)
            }))
        };
        true
    }

    /// As [`prepare`](Self::prepare), for authenticated frames.
    fn prepare_sealed(
        &mut self,
        count: usize,
        Route { destination, label }: Route,
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
            return Prepared::Control(Control::new(self.own, destination, llc, extra, label, |ethernet| {
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
            return Prepared::Encrypted { at: at as u32, bytes: frame.len() as u32, label };
        }
        let header_bytes = slots.write_guarded_headers(slot, &ethernet, llc, extra, |extra, information| {
            seal.authenticate(&unsealed(&ethernet, llc, extra, connection), information, random)
        });
        Prepared::Slot { slot, header_bytes: header_bytes as u8, label }
    }

    /// Sends a UI PDU of an extended station at once, without keeping a copy. Returns false if the link is busy.
    ///
    /// # Errors
    /// An error of the link.
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
                Outgoing { header: frame, payload: &[], label: 0 }
            }
            seal => {
                let end = match seal {
                    Some(seal) => {
                        let unsealed = unsealed(&ethernet, llc, extra, None);
                        let seal = seal.authenticate(&unsealed, [information, &[]], || 0);
                        write_headers(&mut headers, &ethernet, llc, &seal, extra)
                    }
                    None => {
                        let check = check(addresses(&ethernet), llc, [extra.as_bytes(), information]);
                        write_headers(&mut headers, &ethernet, llc, &check.to_be_bytes(), extra)
                    }
                };
                Outgoing { header: &headers[..end], payload: information, label: 0 }
            }
        };
        match self.link.send(&[frame]) {
            // Datagrams may be lost.
            Err(LinkError::InterfaceDown(_)) => Ok(true),
            sent => Ok(sent? == 1),
        }
    }
}

/// Where a frame goes, and by which path: see [`Outgoing::label`].
#[derive(Clone, Copy)]
struct Route {
    destination: Mac,
    label: u16,
}

/// Location of a frame that is ready to send.
#[derive(Clone, Copy)]
enum Prepared {
    Slot {
        slot: Slot,
        header_bytes: u8,
        label: u16,
    },
    Control(Control),
    /// In the buffer for encrypted frames.
    Encrypted {
        at: u32,
        bytes: u32,
        label: u16,
    },
}

impl Prepared {
    #[inline]
    fn frame<'a>(&'a self, slots: &'a Slots, encrypted: &'a [u8]) -> Outgoing<'a> {
        match self {
            Self::Slot { slot, header_bytes, label } => slots.frame(*slot, usize::from(*header_bytes), *label),
            Self::Control(control) => control.frame(),
            Self::Encrypted { at, bytes, label } => {
                let at = *at as usize;
                Outgoing { header: &encrypted[at..at + *bytes as usize], payload: &[], label: *label }
            }
        }
    }
}

/// A whole frame without user data.
#[derive(Clone, Copy)]
struct Control {
    bytes: [u8; CONTROL_BYTES],
    length: u8,
    label: u16,
}

impl Control {
    /// `guard` makes the guard of a frame with this Ethernet header; not called for frames without an extension.
    #[inline]
    fn new<const GUARD: usize>(
        own: Mac,
        destination: Mac,
        llc: &[u8],
        extra: &Extra,
        label: u16,
        guard: impl FnOnce(&[u8; ETHERNET_HEADER_BYTES]) -> [u8; GUARD],
    ) -> Self {
        let mut bytes = [0; CONTROL_BYTES];
        let ethernet = Encapsulation::Length.header(destination, own, llc.len());
        let length = if extra.is_none() {
            write_headers(&mut bytes, &ethernet, llc, &[], extra)
        } else {
            write_headers(&mut bytes, &ethernet, llc, &guard(&ethernet), extra)
        };
        Self { bytes, length: length as u8, label }
    }

    #[inline]
    fn frame(&self) -> Outgoing<'_> {
        Outgoing { header: &self.bytes[..usize::from(self.length)], payload: &[], label: self.label }
    }
}

/// Writes a frame up to its information. Returns the number of bytes written.
#[inline]
fn write_headers(bytes: &mut [u8], ethernet: &[u8], llc: &[u8], guard: &[u8], extra: &Extra) -> usize {
    let mut end = 0;
    for part in [ethernet, llc, guard, extra.as_bytes()] {
        bytes[end..end + part.len()].copy_from_slice(part);
        end += part.len();
    }
    end
}

/// What the seal of a frame with this Ethernet header covers besides its information, and its connection.
#[inline]
fn unsealed<'a>(
    ethernet: &'a [u8; ETHERNET_HEADER_BYTES],
    llc: &'a [u8],
    extra: &'a Extra,
    connection: Option<usize>,
) -> Unsealed<'a> {
    Unsealed { addresses: addresses(ethernet), llc, extension: extra.as_bytes(), mark: extra.mark(), connection }
}

/// Builds a frame with encrypted information.
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
    let (seal_bytes, rest) = rest.split_first_chunk_mut().expect("there is room for a seal");
    let (third, rest) = rest.split_at_mut(extension.len());
    third.copy_from_slice(extension);
    let (in_slot, lent) = rest.split_at_mut(information[0].len());
    in_slot.copy_from_slice(information[0]);
    lent.copy_from_slice(information[1]);
    *seal_bytes = seal.encrypt(unsealed, rest, random);
}

/// Parses a frame; `None` if it is truncated or carries no LLC PDU.
#[inline]
fn parse<'a>(frame: &Incoming<'a>) -> Option<Frame<'a>> {
    if frame.is_truncated() { None } else { framing::parse(frame.bytes) }
}

/// Whether a frame's check is right.
#[inline]
fn is_intact(frame: &Frame<'_>) -> bool {
    let checked = extension::checked(frame.llc, frame.behind);
    checked.is_some_and(|checked| check(frame.addresses, checked.head, checked.pieces) == checked.check)
}

/// The check of a PDU with its extension.
#[inline]
fn check_of(addresses: &[u8; ADDRESSES], llc: &[u8], extra: &Extra) -> [u8; CHECK] {
    let (head, rest) = extension::head(llc);
    check(addresses, head, [rest, extra.as_bytes()]).to_be_bytes()
}

fn reply_frame(own: Mac, reply: &Reply<'_>, encapsulation: Encapsulation, seal: Option<&mut Seal>) -> Vec<u8> {
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

/// Treats a link that is down as one on which nothing arrives and frames are lost, like an unplugged cable. If that
/// lasts, the engine gives up the peers.
pub(crate) fn ignore_down<T: Default>(result: Result<T, LinkError>) -> Result<T, LinkError> {
    match result {
        Err(LinkError::InterfaceDown(_)) => Ok(T::default()),
        other => other,
    }
}

/// Sends all frames, unless the link is down.
#[inline]
fn send_all(link: &mut impl Link, frames: &[Outgoing<'_>]) -> Result<(), LinkError> {
    ignore_down(send_or_drop(link, frames))
}

/// Sends all frames. Waits for a busy link, because the engine counts these frames as sent. A link whose other end is
/// down refuses every frame; after [`REFUSAL_TIMEOUT`] the rest is dropped, as it would be lost on the wire.
#[inline]
fn send_or_drop(link: &mut impl Link, frames: &[Outgoing<'_>]) -> Result<(), LinkError> {
    let mut sent = link.send(frames)?;
    if sent < frames.len() {
        let clock = link.clock();
        let deadline = now(&clock) + REFUSAL_TIMEOUT;
        while sent < frames.len() && now(&clock) < deadline {
            link.wait_to_send(Duration::from_millis(1))?;
            sent += link.send(&frames[sent..])?;
        }
    }
    Ok(())
}
