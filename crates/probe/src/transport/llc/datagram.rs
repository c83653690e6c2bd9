// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Type 1: messages as UI PDUs, which may be lost.

use std::time::Duration;

use barewire_link::{ETHERNET_HEADER_BYTES, Link, MINIMUM_FRAME_BYTES, Outgoing};
use barewire_llc::{Delivery, Destination, Peer, StationConfig};

use super::super::datagram::{Accepted, HEADER_BYTES, Header, Reassembly};
use super::super::links::wrong;
use super::super::pace::Pacer;
use super::super::{Counters, Transport};
use super::FRAMING;
use barewire_endpoint::Port;
use barewire_recorder::LaunchError;

/// DSAP, SSAP and the control field of a UI PDU.
const LLC_BYTES: usize = 3;
const FRAME_HEADER_BYTES: usize = ETHERNET_HEADER_BYTES + LLC_BYTES + HEADER_BYTES;
const BATCH_FRAMES: usize = 32;
/// Preamble and start delimiter, frame check sequence, gap.
const WIRE_OVERHEAD_BYTES: usize = 8 + 4 + 12;

pub struct Datagrams<L> {
    port: Port<L>,
    session: u32,
    peer: Peer,
    headers: Box<[[u8; FRAME_HEADER_BYTES]; BATCH_FRAMES]>,
    reassembly: Reassembly,
    pacer: Pacer,
    counters: Counters,
    mtu: usize,
}

impl<L: Link> Datagrams<L> {
    pub fn new(link: L, session: u32, peer: Peer, mtu: usize) -> Result<Self, LaunchError> {
        let own = link.address().0;
        // Type 1 keeps nothing under way, so no slots.
        let config = StationConfig { connections: 1, backlog: 1, ..StationConfig::default() };
        let mut port = Port::new(link, &config, 0, FRAMING).map_err(wrong)?;
        port.station.activate(peer.local);
        let llc = port.station.datagram(peer.local, Destination::Individual(peer.remote)).expect("the SAP is active");
        let mut header = [0; FRAME_HEADER_BYTES];
        header[..ETHERNET_HEADER_BYTES].copy_from_slice(&FRAMING.encapsulation.header(peer.mac, own, 0));
        header[ETHERNET_HEADER_BYTES..ETHERNET_HEADER_BYTES + LLC_BYTES].copy_from_slice(llc.as_bytes());
        Ok(Self {
            port,
            session,
            peer,
            headers: Box::new([header; BATCH_FRAMES]),
            reassembly: Reassembly::new(mtu - LLC_BYTES - HEADER_BYTES),
            pacer: Pacer::default(),
            counters: Counters::default(),
            mtu,
        })
    }

    #[inline]
    fn take(&mut self, message: &mut [u8]) -> Result<Option<u32>, LaunchError> {
        let Self { port, reassembly, counters, session, peer, .. } = self;
        let mut complete = None;
        port.receive(|delivery| {
            let Delivery::Datagram { from, information, .. } = delivery else { return false };
            let Some((header, payload)) =
                Header::parse(information).filter(|(header, _)| header.session == *session && from == peer.mac)
            else {
                counters.foreign += 1;
                return false;
            };
            if let Accepted::New { offset, bytes } =
                reassembly.accept(header, payload.len(), false, message.len(), counters)
            {
                message[offset..offset + bytes].copy_from_slice(&payload[..bytes]);
                complete = reassembly.complete(message.len());
            }
            complete.is_some()
        })?;
        Ok(complete)
    }
}

/// Writes what differs from frame to frame: the length, and the fragment's place.
#[inline]
fn write_header(header: &mut [u8; FRAME_HEADER_BYTES], fields: Header, part_bytes: usize) {
    let length = FRAMING.encapsulation.length_or_type(LLC_BYTES + HEADER_BYTES + part_bytes);
    header[ETHERNET_HEADER_BYTES - 2..ETHERNET_HEADER_BYTES].copy_from_slice(&length);
    header[ETHERNET_HEADER_BYTES + LLC_BYTES..].copy_from_slice(&fields.to_bytes());
}

fn frame_wire_bytes(part_bytes: usize) -> usize {
    (FRAME_HEADER_BYTES + part_bytes).max(MINIMUM_FRAME_BYTES) + WIRE_OVERHEAD_BYTES
}

impl<L: Link> Transport for Datagrams<L> {
    #[inline]
    unsafe fn try_send(&mut self, sequence: u32, message: &[u8], done: &mut usize) -> Result<bool, LaunchError> {
        let fragment_bytes = self.reassembly.fragment_bytes();
        if message.len() <= fragment_bytes {
            if !self.pacer.allows() {
                return Ok(false);
            }
            let header = &mut self.headers[0];
            write_header(header, Header { session: self.session, sequence, fragment: 0 }, message.len());
            if self.port.link.send(&[Outgoing { header, payload: message }])? == 0 {
                return Ok(false);
            }
            self.pacer.sent(frame_wire_bytes(message.len()));
            return Ok(true);
        }
        while *done < message.len() {
            if !self.pacer.allows() {
                return Ok(false);
            }
            let batch = if self.pacer.is_off() { BATCH_FRAMES } else { 1 };
            let mut frames = [Outgoing::default(); BATCH_FRAMES];
            let mut count = 0;
            let parts = message[*done..].chunks(fragment_bytes);
            let first = *done / fragment_bytes;
            for (((frame, header), part), fragment) in
                frames.iter_mut().zip(self.headers.iter_mut()).zip(parts).zip(first..).take(batch)
            {
                let fields = Header { session: self.session, sequence, fragment: fragment as u32 };
                write_header(header, fields, part.len());
                *frame = Outgoing { header, payload: part };
                count += 1;
            }
            let sent = self.port.link.send(&frames[..count])?;
            for frame in &frames[..sent] {
                *done += frame.payload.len();
                self.pacer.sent(frame_wire_bytes(frame.payload.len()));
            }
            if sent < count {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8], patience: Duration) -> Result<Option<u32>, LaunchError> {
        let mut received = self.take(message)?;
        if received.is_none() && !patience.is_zero() && self.port.link.wait_to_receive(patience)? {
            received = self.take(message)?;
        }
        Ok(received)
    }

    fn wait_to_send(&mut self, patience: Duration) -> Result<(), LaunchError> {
        if self.pacer.is_off() {
            self.port.link.wait_to_send(patience)?;
        }
        Ok(())
    }

    fn set_pace(&mut self, bit_s: Option<f64>) {
        self.pacer.set(bit_s);
    }

    fn wire_bytes(&self, message_bytes: usize) -> usize {
        let fragment_bytes = self.reassembly.fragment_bytes();
        let (whole, rest) = (message_bytes / fragment_bytes, message_bytes % fragment_bytes);
        whole * frame_wire_bytes(fragment_bytes) + if rest > 0 { frame_wire_bytes(rest) } else { 0 }
    }

    fn is_lossy(&self) -> bool {
        true
    }

    fn check(&mut self) -> Result<(), LaunchError> {
        Ok(self.port.link.check()?)
    }

    fn counters(&mut self) -> Result<Counters, LaunchError> {
        let link = self.port.link.counters()?;
        let foreign = self.counters.foreign + self.port.foreign;
        Ok(Counters { foreign, ring_full: link.receive_dropped, send_busy: link.send_busy, ..self.counters })
    }

    fn mtu(&self) -> Option<usize> {
        Some(self.mtu)
    }
}
