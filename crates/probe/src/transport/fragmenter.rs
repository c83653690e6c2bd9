// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends messages over an unreliable transport: splits them into frames, each with a header, at a pace.

use std::marker::PhantomData;

use barewire_link::{Link, LinkError, MINIMUM_FRAME_BYTES, Outgoing};

use super::WIRE_OVERHEAD_BYTES;
use super::datagram::Header;
use super::pace::Pacer;

/// Most frames per call of the link.
const BATCH_FRAMES: usize = 32;

/// Writes the fields of an `N`-byte header that differ between frames.
pub trait FrameHeader<const N: usize> {
    /// Writes the fragment's fields, and the length if the header has one.
    fn write(header: &mut [u8; N], fields: Header, part_bytes: usize);
}

/// Frame headers of a batch, and the pace.
pub struct Fragmenter<H, const N: usize> {
    headers: Box<[[u8; N]; BATCH_FRAMES]>,
    session: u32,
    fragment_bytes: usize,
    /// Bytes of a frame that the link adds.
    hidden_bytes: usize,
    pacer: Pacer,
    frame_header: PhantomData<H>,
}

impl<H: FrameHeader<N>, const N: usize> Fragmenter<H, N> {
    /// For fragments of up to `fragment_bytes`, each behind a copy of `header`, to which the link adds `hidden_bytes`.
    pub fn new(header: [u8; N], session: u32, fragment_bytes: usize, hidden_bytes: usize) -> Self {
        let headers = Box::new([header; BATCH_FRAMES]);
        Self { headers, session, fragment_bytes, hidden_bytes, pacer: Pacer::default(), frame_header: PhantomData }
    }

    /// Continues sending a message of which `done` bytes are sent; true once all are.
    #[inline]
    pub fn try_send(
        &mut self,
        link: &mut impl Link,
        sequence: u32,
        message: &[u8],
        done: &mut usize,
    ) -> Result<bool, LinkError> {
        if message.len() > self.fragment_bytes {
            return self.send_fragments(link, sequence, message, done);
        }
        if !self.pacer.allows() {
            return Ok(false);
        }
        let header = &mut self.headers[0];
        H::write(header, Header { session: self.session, sequence, fragment: 0 }, message.len());
        if link.send(&[Outgoing { header, payload: message, label: 0 }])? == 0 {
            return Ok(false);
        }
        self.pacer.sent(self.frame_wire_bytes(message.len()));
        Ok(true)
    }

    /// Continues a message of several frames, with up to [`BATCH_FRAMES`] per system call. Not inlined: its batch on
    /// the stack would cost a short message 30 ns.
    #[inline(never)]
    fn send_fragments(
        &mut self,
        link: &mut impl Link,
        sequence: u32,
        message: &[u8],
        done: &mut usize,
    ) -> Result<bool, LinkError> {
        let Self { fragment_bytes, hidden_bytes, .. } = *self;
        while *done < message.len() {
            if !self.pacer.allows() {
                return Ok(false);
            }
            // A paced sender paces single frames.
            let batch = if self.pacer.is_off() { BATCH_FRAMES } else { 1 };
            let mut frames = [Outgoing::default(); BATCH_FRAMES];
            let mut count = 0;
            let parts = message[*done..].chunks(fragment_bytes);
            let first = *done / fragment_bytes;
            for (((frame, header), part), fragment) in
                frames.iter_mut().zip(self.headers.iter_mut()).zip(parts).zip(first..).take(batch)
            {
                H::write(header, Header { session: self.session, sequence, fragment: fragment as u32 }, part.len());
                *frame = Outgoing { header, payload: part, label: 0 };
                count += 1;
            }
            let sent = link.send(&frames[..count])?;
            for frame in &frames[..sent] {
                *done += frame.payload.len();
                self.pacer.sent(frame_wire_bytes(N + hidden_bytes + frame.payload.len()));
            }
            if sent < count {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends at most this many wire bits per second, or as fast as possible.
    pub fn set_pace(&mut self, bit_s: Option<f64>) {
        self.pacer.set(bit_s);
    }

    /// Whether a blocked sender waits for the link rather than for the pacer.
    pub fn waits_for_link(&self) -> bool {
        self.pacer.is_off()
    }

    /// Bytes of a message on the wire, with headers, FCS, preamble and gaps.
    pub fn wire_bytes(&self, message_bytes: usize) -> usize {
        let (whole, rest) = (message_bytes / self.fragment_bytes, message_bytes % self.fragment_bytes);
        let last = if rest > 0 { self.frame_wire_bytes(rest) } else { 0 };
        whole * self.frame_wire_bytes(self.fragment_bytes) + last
    }

    fn frame_wire_bytes(&self, part_bytes: usize) -> usize {
        frame_wire_bytes(N + self.hidden_bytes + part_bytes)
    }
}

fn frame_wire_bytes(frame_bytes: usize) -> usize {
    frame_bytes.max(MINIMUM_FRAME_BYTES) + WIRE_OVERHEAD_BYTES
}
