// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A station of the LLC engine on a link: frames in, frames out, time.
//!
//! What is to be sent waits in a segment of slots, each a whole frame with room for its headers, until the
//! peer has acknowledged it: the engine may ask for it again.
//!
//! ```text
//! slot: | Ethernet 14 | LLC 4 | information …                |
//!                             (type 3: LLC 3, one byte later)
//! ```

use std::time::Duration;

use barewire_link::{ETHERNET_HEADER_BYTES, Incoming, Link, Outgoing};
use barewire_llc::{Delivery, Handled, Header, Instant, Mac, Reply, Station, StationConfig, StationTransmit};

use super::framing;
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// The longest header of a PDU that has an information field: an I PDU's.
const LLC_HEADER_BYTES: usize = 4;
const HEADROOM_BYTES: usize = ETHERNET_HEADER_BYTES + LLC_HEADER_BYTES;
/// Frames handed to the link at once.
const BATCH_FRAMES: usize = 32;
/// The longest frame without a slot: Ethernet header and FRMR, padded by nobody.
const CONTROL_BYTES: usize = ETHERNET_HEADER_BYTES + Header::MAX;
/// Frames taken before acknowledgements are sent all the same: as many as the engine acknowledges at once.
const FRAMES_PER_TRANSMIT: u32 = 16;
/// Looks into the ring between two looks at the clock: the clock costs as much as several.
const LOOKS_PER_CLOCK: u32 = 32;

/// How long a link may refuse frames before they count as lost: longer than any queue takes to drain.
const REFUSAL_PATIENCE_NS: u64 = 20_000_000;

/// A slot of the segment.
pub type Slot = u16;

/// A link with a station on it.
pub struct Port<L> {
    pub link: L,
    pub station: Station<Slot>,
    own: Mac,
    segment: Box<[u8]>,
    slot_bytes: usize,
    lengths: Box<[u16]>,
    free: Vec<Slot>,
    batch: Box<[Prepared; BATCH_FRAMES]>,
    now: Instant,
    looks: u32,
    /// Frames taken since the last look for what is to be sent.
    handled: u32,
    /// Frames that carried no LLC PDU, or were cut.
    pub foreign: u64,
}

impl<L: Link> Port<L> {
    /// A station with `slots` frames of send memory.
    pub fn new(link: L, config: &StationConfig, slots: u16) -> Result<Self, LaunchError> {
        let own = link.address().0;
        let now = Instant::from_nanos(now_ns());
        let station = Station::new(own, config, now).map_err(|error| LaunchError::WrongUse(error.to_string()))?;
        // A slot starts on a cache line of its own.
        let slot_bytes = (ETHERNET_HEADER_BYTES + link.mtu()).next_multiple_of(64);
        Ok(Self {
            own,
            segment: vec![0; slot_bytes * usize::from(slots)].into_boxed_slice(),
            slot_bytes,
            lengths: vec![0; usize::from(slots)].into_boxed_slice(),
            free: (0..slots).collect(),
            batch: Box::new(
                [Prepared { is_in_slot: false, start: 0, end: 0, control: [0; CONTROL_BYTES] }; BATCH_FRAMES],
            ),
            now,
            looks: 0,
            handled: 0,
            foreign: 0,
            station,
            link,
        })
    }

    /// The time, not older than some looks into the ring.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Fills a free slot with an information field in two pieces; `None` if all are under way.
    #[inline]
    pub fn fill_slot(&mut self, first: &[u8], second: &[u8]) -> Option<Slot> {
        let slot = self.free.pop()?;
        let at = usize::from(slot) * self.slot_bytes + HEADROOM_BYTES;
        let place = &mut self.segment[at..at + first.len() + second.len()];
        let (a, b) = place.split_at_mut(first.len());
        a.copy_from_slice(first);
        b.copy_from_slice(second);
        self.lengths[usize::from(slot)] = (first.len() + second.len()) as u16;
        Some(slot)
    }

    /// Gives a slot back once the engine has done with it.
    #[inline]
    pub fn free_slot(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// Whether nothing is under way.
    pub fn has_all_slots(&self) -> bool {
        self.free.len() == self.lengths.len()
    }

    /// Takes frames from the ring and hands what is for the user to `deliver`, until that says stop or
    /// none is left. Answers that the engine wants given at once are given. False if nothing came and no
    /// time has passed for the engine, so that there can be nothing new to send or to hear.
    #[inline]
    pub fn receive(&mut self, mut deliver: impl FnMut(Delivery<'_>) -> bool) -> Result<bool, LaunchError> {
        self.looks += 1;
        let mut is_news = self.looks >= LOOKS_PER_CLOCK;
        if is_news {
            self.tell_time();
        }
        loop {
            let Some(frame) = self.link.receive() else { return Ok(is_news) };
            is_news = true;
            let Some((destination, source, llc)) = whole(&frame) else {
                self.foreign += 1;
                continue;
            };
            let Handled { delivery, reply } = self.station.handle_frame(source, destination, llc, self.now);
            let stop = delivery.is_some_and(&mut deliver);
            if let Some(reply) = reply {
                let answer = answer(self.own, &reply);
                send_all(&mut self.link, &[Outgoing { header: &answer, payload: &[] }])?;
            }
            // Acknowledgements do not wait until a long message is whole: the peer's window would close.
            self.handled += 1;
            if self.handled >= FRAMES_PER_TRANSMIT {
                self.transmit()?;
            }
            if stop {
                return Ok(true);
            }
        }
    }

    /// Sends the next frame that is due; others stay due.
    #[inline]
    pub fn transmit_one(&mut self) -> Result<(), LaunchError> {
        if self.prepare(0) {
            let frame = self.batch[0].frame(&self.segment);
            send_all(&mut self.link, &[frame])?;
        }
        Ok(())
    }

    /// Sends everything that is due.
    #[inline]
    pub fn transmit(&mut self) -> Result<(), LaunchError> {
        self.handled = 0;
        while self.transmit_batch()? == BATCH_FRAMES {}
        Ok(())
    }

    /// Lets the engine know what time it is; when nothing else has.
    #[inline]
    pub fn tell_time(&mut self) {
        self.looks = 0;
        self.now = Instant::from_nanos(now_ns());
        if self.station.next_deadline().is_some_and(|deadline| deadline <= self.now) {
            self.station.handle_timeout(self.now);
        }
    }

    /// Sleeps until a frame comes, something is due, or for `patience`.
    pub fn sleep(&mut self, patience: Duration) -> Result<(), LaunchError> {
        self.tell_time();
        self.transmit()?;
        let until =
            self.station.next_deadline().map_or(u64::MAX, |due| due.as_nanos().saturating_sub(self.now.as_nanos()));
        self.link.wait_to_receive(patience.min(Duration::from_nanos(until)))?;
        self.tell_time();
        Ok(())
    }

    #[inline]
    fn transmit_batch(&mut self) -> Result<usize, LaunchError> {
        let mut count = 0;
        while count < BATCH_FRAMES && self.prepare(count) {
            count += 1;
        }
        match count {
            0 => {}
            1 => {
                let frame = self.batch[0].frame(&self.segment);
                send_all(&mut self.link, &[frame])?;
            }
            _ => {
                let mut frames = [Outgoing::default(); BATCH_FRAMES];
                for (frame, prepared) in frames.iter_mut().zip(self.batch.iter()).take(count) {
                    *frame = prepared.frame(&self.segment);
                }
                send_all(&mut self.link, &frames[..count])?;
            }
        }
        Ok(count)
    }

    /// Makes the next frame that is due ready as number `count` of the batch; false if none is.
    #[inline]
    fn prepare(&mut self, count: usize) -> bool {
        let Some(StationTransmit { destination, header, token }) = self.station.poll_transmit(self.now) else {
            return false;
        };
        let llc = header.as_bytes();
        let prepared = &mut self.batch[count];
        let (bytes, start, information) = match token {
            // The header ends where the information begins.
            Some(&slot) => {
                let start = usize::from(slot) * self.slot_bytes + LLC_HEADER_BYTES - llc.len();
                (&mut self.segment[..], start, usize::from(self.lengths[usize::from(slot)]))
            }
            None => (&mut prepared.control[..], 0, 0),
        };
        let ethernet = framing::ethernet_header(destination, self.own, llc.len() + information);
        bytes[start..start + ETHERNET_HEADER_BYTES].copy_from_slice(&ethernet);
        let at = start + ETHERNET_HEADER_BYTES;
        match *llc {
            // An I PDU, nearly always: a copy of a known length is no call.
            [dsap, ssap, first, second] => bytes[at..at + 4].copy_from_slice(&[dsap, ssap, first, second]),
            _ => bytes[at..at + llc.len()].copy_from_slice(llc),
        }
        prepared.is_in_slot = token.is_some();
        (prepared.start, prepared.end) = (start, at + llc.len() + information);
        true
    }
}

/// A frame that is ready: where it lies.
#[derive(Clone, Copy)]
struct Prepared {
    is_in_slot: bool,
    start: usize,
    end: usize,
    /// The frame itself, if it has no slot.
    control: [u8; CONTROL_BYTES],
}

impl Prepared {
    #[inline]
    fn frame<'a>(&'a self, segment: &'a [u8]) -> Outgoing<'a> {
        let bytes = if self.is_in_slot { segment } else { &self.control };
        Outgoing { header: &bytes[self.start..self.end], payload: &[] }
    }
}

/// The LLC PDU of a frame that is all there.
#[inline]
fn whole<'a>(frame: &Incoming<'a>) -> Option<(Mac, Mac, &'a [u8])> {
    if frame.is_truncated() { None } else { framing::parse(frame.bytes) }
}

fn answer(own: Mac, reply: &Reply<'_>) -> Vec<u8> {
    let llc = reply.header.as_bytes();
    let ethernet = framing::ethernet_header(reply.destination, own, llc.len() + reply.information.len());
    [&ethernet, llc, reply.information].concat()
}

/// Hands all frames over. A busy link is waited for, because what the engine gave out counts as sent; but a link whose
/// other end is down refuses every frame, and then they are lost, as they would be on the wire.
fn send_all(link: &mut impl Link, frames: &[Outgoing<'_>]) -> Result<(), LaunchError> {
    let mut sent = link.send(frames)?;
    if sent < frames.len() {
        let deadline_ns = now_ns() + REFUSAL_PATIENCE_NS;
        while sent < frames.len() && now_ns() < deadline_ns {
            link.wait_to_send(Duration::from_millis(1))?;
            sent += link.send(&frames[sent..])?;
        }
    }
    Ok(())
}
