// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LLC type 1: messages in UI PDUs, which may be lost.

use std::time::Duration;

use barewire_link::{ETHERNET_HEADER_BYTES, Link};
use barewire_llc::{Delivery, Destination, Peer, StationConfig};

use super::super::datagram::{Accepted, HEADER_BYTES, Header, Reassembly};
use super::super::fragmenter::{Fragmenter, FrameHeader};
use super::super::links::usage_error;
use super::super::{Counters, Transport};
use super::ENCAPSULATION;
use barewire_endpoint::Port;
use barewire_recorder::LaunchError;

/// DSAP, SSAP and the control field of a UI PDU.
const LLC_BYTES: usize = 3;
const FRAME_HEADER_BYTES: usize = ETHERNET_HEADER_BYTES + LLC_BYTES + HEADER_BYTES;

pub struct Datagrams<L> {
    port: Port<L>,
    session: u32,
    peer: Peer,
    fragmenter: Fragmenter<UiHeader, FRAME_HEADER_BYTES>,
    reassembly: Reassembly,
    counters: Counters,
    mtu: usize,
}

impl<L: Link> Datagrams<L> {
    pub fn new(link: L, session: u32, peer: Peer, mtu: usize, hidden_bytes: usize) -> Result<Self, LaunchError> {
        let own = link.address().0;
        // Type 1 keeps no frames in flight, so it needs no slots.
        let config = StationConfig { connections: 1, backlog: 1, ..StationConfig::default() };
        let mut port = Port::new(link, &config, 0, ENCAPSULATION, None).map_err(usage_error)?;
        port.station.activate(peer.local);
        let addressed = port.station.datagram(peer.local, Destination::Individual(peer.remote), 0);
        let (llc, _) = addressed.expect("the SAP is active");
        let mut header = [0; FRAME_HEADER_BYTES];
        header[..ETHERNET_HEADER_BYTES].copy_from_slice(&ENCAPSULATION.header(peer.mac, own, 0));
        header[ETHERNET_HEADER_BYTES..ETHERNET_HEADER_BYTES + LLC_BYTES].copy_from_slice(llc.as_bytes());
        Ok(Self {
            port,
            session,
            peer,
            fragmenter: Fragmenter::new(header, session, mtu - LLC_BYTES - HEADER_BYTES, hidden_bytes),
            reassembly: Reassembly::new(mtu - LLC_BYTES - HEADER_BYTES),
            counters: Counters::default(),
            mtu,
        })
    }

    #[inline]
    fn receive_next(&mut self, message: &mut [u8]) -> Result<Option<u32>, LaunchError> {
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

/// Writes the length field, and the fragment's header after the LLC header.
struct UiHeader;

impl FrameHeader<FRAME_HEADER_BYTES> for UiHeader {
    #[inline]
    fn write(header: &mut [u8; FRAME_HEADER_BYTES], fields: Header, part_bytes: usize) {
        let length = ENCAPSULATION.length_or_type(LLC_BYTES + HEADER_BYTES + part_bytes);
        header[ETHERNET_HEADER_BYTES - 2..ETHERNET_HEADER_BYTES].copy_from_slice(&length);
        header[ETHERNET_HEADER_BYTES + LLC_BYTES..].copy_from_slice(&fields.to_bytes());
    }
}

impl<L: Link> Transport for Datagrams<L> {
    #[inline]
    unsafe fn try_send(&mut self, sequence: u32, message: &[u8], done: &mut usize) -> Result<bool, LaunchError> {
        Ok(self.fragmenter.try_send(&mut self.port.link, sequence, message, done)?)
    }

    #[inline]
    unsafe fn receive(&mut self, message: &mut [u8], patience: Duration) -> Result<Option<u32>, LaunchError> {
        let mut received = self.receive_next(message)?;
        if received.is_none() && !patience.is_zero() && self.port.link.wait_to_receive(patience)? {
            received = self.receive_next(message)?;
        }
        Ok(received)
    }

    fn wait_to_send(&mut self, patience: Duration) -> Result<(), LaunchError> {
        if self.fragmenter.waits_for_link() {
            self.port.link.wait_to_send(patience)?;
        }
        Ok(())
    }

    fn set_pace(&mut self, bit_s: Option<f64>) {
        self.fragmenter.set_pace(bit_s);
    }

    fn wire_bytes(&self, message_bytes: usize) -> usize {
        self.fragmenter.wire_bytes(message_bytes)
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
