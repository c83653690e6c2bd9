// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A station of the LLC engine on a link: frames in, frames out, time.
//!
//! What is to be sent waits in slots until the peer has acknowledged it: the engine may ask for it again. A slot
//! holds a whole frame, with room for its headers, or the head of one whose rest lies in the caller's memory.
//!
//! ```text
//! slot  | Ethernet 14 | LLC 4 | job token 8, if any | information …                 |
//!       (type 3: LLC 3, one byte later)                 | … information in the caller's memory |
//! ```

use std::time::Duration;

use barewire_link::{Clock, ETHERNET_HEADER_BYTES, Incoming, Link, LinkError, Outgoing};
use barewire_llc::{
    ConfigError, ConnectionHandle, Delivery, Handled, Header, Instant, Mac, Reply, Station, StationConfig,
    StationTransmit,
};

use crate::clock::now;
use crate::descriptors::HEAD_MAX;
use crate::framing::{self, Encapsulation, Frame, Framing};
use crate::slots::{Slot, Slots};
use crate::token::JobToken;

/// Bytes of an I PDU before its information; no other PDU with information has as many.
const I_HEADER_BYTES: usize = 4;
/// Frames handed to the link at once.
const BATCH_FRAMES: usize = 32;
/// The longest frame without a slot: Ethernet header, FRMR and token, padded by nobody.
const CONTROL_BYTES: usize = ETHERNET_HEADER_BYTES + Header::MAX + JobToken::BYTES;
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
pub fn mtu_min(token: Option<JobToken>) -> usize {
    let token_bytes = token.map_or(0, |_| JobToken::BYTES);
    I_HEADER_BYTES + token_bytes + HEAD_MAX + barewire_llc::message::FIRST_HEADER + 1
}

/// A link with a station on it.
pub struct Port<L> {
    /// The link; frames besides those of the station may be sent over it.
    pub link: L,
    /// The station; a [`Slot`] names what it sends.
    pub station: Station<Slot>,
    own: Mac,
    framing: Framing,
    round_octet: Option<u16>,
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
    /// Frames without the job's token.
    pub strangers: u64,
}

impl<L: Link> Port<L> {
    /// A station with `slots` frames of send memory.
    ///
    /// # Errors
    /// Which value of `config` is out of its range.
    pub fn new(link: L, config: &StationConfig, slots: u16, framing: Framing) -> Result<Self, ConfigError> {
        let (own, clock) = (link.address().0, link.clock());
        let now = now(&clock);
        let station = Station::new(own, config, now)?;
        Ok(Self {
            own,
            framing,
            round_octet: config.connection.round_octet,
            slots: Slots::new(slots, link.mtu(), token_bytes(framing.token.as_ref())),
            batch: Box::new([Prepared::Slot { slot: 0, llc_bytes: 0 }; BATCH_FRAMES]),
            clock,
            now,
            looks: 0,
            handled: 0,
            foreign: 0,
            strangers: 0,
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

    /// Bytes of user data that a frame of type 2 carries, between two links of this MTU, which is [`mtu_min`] at least.
    #[must_use]
    pub fn information_max(mtu: usize, token: Option<JobToken>) -> usize {
        (mtu - I_HEADER_BYTES).min(usize::from(u16::MAX)) - token.map_or(0, |_| JobToken::BYTES)
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
            if self.framing.token.is_some_and(|token| !token.is_in(frame.llc, frame.behind)) {
                self.strangers += 1;
                continue;
            }
            let Handled { delivery, reply } =
                self.station.handle_frame(frame.source, frame.destination, frame.llc, self.now);
            let stop = delivery.is_some_and(|delivery| {
                deliver(if self.framing.token.is_some() { without_token(delivery) } else { delivery })
            });
            if let Some(reply) = reply {
                let answer = answer(self.own, &reply, self.framing);
                send_all(&mut self.link, &[Outgoing { header: &answer, payload: &[] }])?;
            }
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

    /// Sends the next frame that is due; others stay due.
    ///
    /// # Errors
    /// What the link says.
    #[inline]
    pub fn transmit_one(&mut self) -> Result<(), LinkError> {
        if self.prepare(0) {
            let frame = self.batch[0].frame(&self.slots);
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
                let frame = self.batch[0].frame(&self.slots);
                send_all(&mut self.link, &[frame])?;
            }
            _ => {
                let mut frames = [Outgoing::default(); BATCH_FRAMES];
                for (frame, prepared) in frames.iter_mut().zip(self.batch.iter()).take(count) {
                    *frame = prepared.frame(&self.slots);
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
        let StationTransmit { destination, header, token, round } = transmit;
        let llc = header.as_bytes();
        if let Some(&slot) = token {
            let bytes = llc.len() + self.slots.information_bytes(slot);
            self.slots.write_headers(slot, &self.framing.encapsulation.header(destination, self.own, bytes), llc);
            if let (Some(octet), I_HEADER_BYTES) = (self.round_octet, llc.len()) {
                self.slots.write_round(slot, octet, round);
            }
            self.batch[count] = Prepared::Slot { slot, llc_bytes: llc.len() as u8 };
        } else {
            self.batch[count] = Prepared::Control(Control::new(self.own, destination, llc, self.framing.token));
        }
        true
    }
}

/// A frame that is ready: where it lies.
#[derive(Clone, Copy)]
enum Prepared {
    Slot { slot: Slot, llc_bytes: u8 },
    Control(Control),
}

impl Prepared {
    #[inline]
    fn frame<'a>(&'a self, slots: &'a Slots) -> Outgoing<'a> {
        match self {
            Self::Slot { slot, llc_bytes } => slots.frame(*slot, usize::from(*llc_bytes)),
            Self::Control(control) => control.frame(),
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
    #[inline]
    fn new(own: Mac, destination: Mac, llc: &[u8], token: Option<JobToken>) -> Self {
        let mut bytes = [0; CONTROL_BYTES];
        bytes[..ETHERNET_HEADER_BYTES].copy_from_slice(&Encapsulation::Length.header(destination, own, llc.len()));
        let mut end = ETHERNET_HEADER_BYTES + llc.len();
        bytes[ETHERNET_HEADER_BYTES..end].copy_from_slice(llc);
        if let Some(token) = token {
            bytes[end..end + JobToken::BYTES].copy_from_slice(token.bytes());
            end += JobToken::BYTES;
        }
        Self { bytes, length: end as u8 }
    }

    #[inline]
    fn frame(&self) -> Outgoing<'_> {
        Outgoing { header: &self.bytes[..usize::from(self.length)], payload: &[] }
    }
}

/// The LLC PDU of a frame that is all there.
#[inline]
fn whole<'a>(frame: &Incoming<'a>) -> Option<Frame<'a>> {
    if frame.is_truncated() { None } else { framing::parse(frame.bytes) }
}

fn token_bytes(token: Option<&JobToken>) -> &[u8] {
    token.map_or(&[], |token| token.bytes())
}

/// What is for the user, without the token before it.
#[inline]
fn without_token(delivery: Delivery<'_>) -> Delivery<'_> {
    match delivery {
        Delivery::Data { connection, information } => {
            Delivery::Data { connection, information: &information[JobToken::BYTES..] }
        }
        Delivery::Datagram { from, source, destination, information } => {
            Delivery::Datagram { from, source, destination, information: &information[JobToken::BYTES..] }
        }
        Delivery::AcknowledgedDatagram { peer, information } => {
            Delivery::AcknowledgedDatagram { peer, information: &information[JobToken::BYTES..] }
        }
        other @ (Delivery::Identification { .. } | Delivery::Test { .. }) => other,
    }
}

fn answer(own: Mac, reply: &Reply<'_>, framing: Framing) -> Vec<u8> {
    let llc = reply.header.as_bytes();
    let bytes = llc.len() + reply.information.len();
    let ethernet = framing.encapsulation.header(reply.destination, own, bytes);
    [&ethernet, llc, reply.information, token_bytes(framing.token.as_ref())].concat()
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
