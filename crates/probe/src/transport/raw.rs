// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plain Ethernet frames, with an experimental EtherType and a header of twelve bytes.

use std::time::Duration;

use barewire_link::{ETHERNET_HEADER_BYTES, Field, Filter, Link, MINIMUM_FRAME_BYTES, MacAddress};

use super::datagram::{Accepted, HEADER_BYTES, Header, Reassembly};
use super::fragmenter::{Fragmenter, FrameHeader};
use super::links::{self, OpenLink};
use super::{Counters, Endpoint, LocalConfig, Transport};
use crate::protocol::{Session, Station};
use barewire_recorder::LaunchError;

/// IEEE 802 local experimental EtherType 1.
const ETHER_TYPE: u16 = 0x88b5;
const FRAME_HEADER_BYTES: usize = ETHERNET_HEADER_BYTES + HEADER_BYTES;

/// A link opened before the peer is known.
pub struct Listening {
    link: OpenLink,
}

impl Listening {
    pub fn new(session: &Session, local: &LocalConfig) -> Result<(Self, Endpoint), LaunchError> {
        if local.broker.is_some() {
            let text =
                "the broker grants LLC service access points, not raw frames: choose llc1, llc2, llc3 or endpoint";
            return Err(LaunchError::WrongUse(text.to_owned()));
        }
        let mut fields = vec![Field::word(12, ETHER_TYPE)];
        if session.pairs > 1 {
            // The pair is the session's last byte. A single pair also receives foreign frames, and counts them.
            fields.push(Field::byte(17, session.pair));
        }
        let (link, endpoint) = links::open(session, local, ETHER_TYPE, Filter::all_of(&fields))?;
        Ok((Self { link }, endpoint))
    }

    pub fn accept(mut self, session: &Session, peer: Station) -> Result<Box<dyn Transport>, LaunchError> {
        links::require_other_station(&self.link, peer)?;
        self.link.add_station(peer)?;
        Ok(Box::new(Raw::new(self.link, session.session, peer)))
    }
}

/// Messages in raw frames, over any link.
pub struct Raw<L> {
    link: L,
    session: u32,
    /// Expected destination, source and EtherType of received frames.
    incoming: [u8; ETHERNET_HEADER_BYTES],
    fragmenter: Fragmenter<RawHeader, FRAME_HEADER_BYTES>,
    reassembly: Reassembly,
    counters: Counters,
    mtu: usize,
}

impl<L: Link> Raw<L> {
    fn new(link: L, session: u32, peer: Station) -> Self {
        let ethernet_header = |to: MacAddress, from: MacAddress| {
            let mut header = [0; ETHERNET_HEADER_BYTES];
            header[..6].copy_from_slice(&to.0);
            header[6..12].copy_from_slice(&from.0);
            header[12..].copy_from_slice(&ETHER_TYPE.to_be_bytes());
            header
        };
        let address = MacAddress(peer.address);
        let mut header = [0; FRAME_HEADER_BYTES];
        header[..ETHERNET_HEADER_BYTES].copy_from_slice(&ethernet_header(address, link.address()));
        let mtu = link.mtu().min(peer.mtu);
        Self {
            session,
            incoming: ethernet_header(link.address(), address),
            fragmenter: Fragmenter::new(header, session, mtu - HEADER_BYTES, links::hidden_bytes(peer)),
            reassembly: Reassembly::new(mtu - HEADER_BYTES),
            counters: Counters::default(),
            mtu,
            link,
        }
    }

    /// Receives frames until one completes a message or none is left.
    #[inline]
    fn receive_next(&mut self, message: &mut [u8]) -> Option<u32> {
        while let Some(frame) = self.link.receive() {
            let header = match frame.bytes.split_first_chunk() {
                Some((ethernet, rest)) if *ethernet == self.incoming && !frame.is_truncated() => Header::parse(rest),
                _ => None,
            };
            let Some((header, payload)) = header.filter(|(header, _)| header.session == self.session) else {
                self.counters.foreign += 1;
                continue;
            };
            let padded = frame.bytes.len() <= MINIMUM_FRAME_BYTES;
            let accepted = self.reassembly.accept(header, payload.len(), padded, message.len(), &mut self.counters);
            if let Accepted::New { offset, bytes } = accepted {
                message[offset..offset + bytes].copy_from_slice(&payload[..bytes]);
                if let Some(sequence) = self.reassembly.complete(message.len()) {
                    return Some(sequence);
                }
            }
        }
        None
    }
}

/// The twelve bytes after the Ethernet header.
struct RawHeader;

impl FrameHeader<FRAME_HEADER_BYTES> for RawHeader {
    #[inline]
    fn write(header: &mut [u8; FRAME_HEADER_BYTES], fields: Header, _part_bytes: usize) {
        header[ETHERNET_HEADER_BYTES..].copy_from_slice(&fields.to_bytes());
    }
}

impl<L: Link> Transport for Raw<L> {
    #[inline]
    unsafe fn try_send(&mut self, sequence: u32, message: &[u8], done: &mut usize) -> Result<bool, LaunchError> {
        Ok(self.fragmenter.try_send(&mut self.link, sequence, message, done)?)
    }

    #[inline]
    unsafe fn receive(&mut self, message: &mut [u8], patience: Duration) -> Result<Option<u32>, LaunchError> {
        let mut received = self.receive_next(message);
        if received.is_none() && !patience.is_zero() && self.link.wait_to_receive(patience)? {
            received = self.receive_next(message);
        }
        Ok(received)
    }

    fn wait_to_send(&mut self, patience: Duration) -> Result<(), LaunchError> {
        if self.fragmenter.waits_for_link() {
            self.link.wait_to_send(patience)?;
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
        Ok(self.link.check()?)
    }

    fn counters(&mut self) -> Result<Counters, LaunchError> {
        let link = self.link.counters()?;
        Ok(Counters { ring_full: link.receive_dropped, send_busy: link.send_busy, ..self.counters })
    }

    fn mtu(&self) -> Option<usize> {
        Some(self.mtu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::{Pattern, Sender};
    use barewire_link::{Faults, MemoryLink, Outgoing};

    fn pair(faults: Faults, seed: u64) -> (Raw<MemoryLink>, Raw<MemoryLink>) {
        let (a, b) = MemoryLink::pair(200, faults, seed);
        let station = |link: &MemoryLink| Station { address: link.address().0, mtu: 200, socket: None };
        let (at_a, at_b) = (station(&a), station(&b));
        (Raw::new(a, 7, at_b), Raw::new(b, 7, at_a))
    }

    fn send(transport: &mut Raw<MemoryLink>, sequence: u32, message: &[u8]) {
        let mut done = 0;
        // SAFETY: raw frames borrow nothing.
        while !unsafe { transport.try_send(sequence, message, &mut done) }.unwrap() {}
    }

    #[test]
    fn messages_of_any_length_arrive_intact() {
        let (mut a, mut b) = pair(Faults::default(), 1);
        for (sequence, bytes) in (0..).zip([1, 20, 187, 188, 189, 376, 1000, 20_000]) {
            let mut pattern = Pattern::new(3, bytes, 0, 0);
            send(&mut a, sequence, pattern.message(sequence, Sender::Active));
            let mut message = vec![0; bytes];
            // SAFETY: raw frames are copied; no message is kept.
            assert_eq!(unsafe { b.receive(&mut message, Duration::ZERO) }.unwrap(), Some(sequence));
            assert!(pattern.is_intact(&message, sequence, Sender::Active));
        }
    }

    /// On a wire that loses, duplicates and reorders, delivered messages are intact and in increasing order, and
    /// everything else is counted. Corruption is left out: on a real wire the FCS detects it.
    #[test]
    fn a_faulty_wire_loses_messages_and_never_delivers_a_wrong_one() {
        for seed in 0..50 {
            let faults = Faults { loss: 0.02, duplication: 0.05, reordering: 0.05, ..Faults::default() };
            let (mut a, mut b) = pair(faults, seed);
            let mut pattern = Pattern::new(3, 500, 0, 0);
            let (mut message, mut last, mut delivered) = (vec![0; 500], None, 0);
            for sequence in 0..200 {
                send(&mut a, sequence, pattern.message(sequence, Sender::Active));
                // SAFETY: as above.
                while let Some(got) = unsafe { b.receive(&mut message, Duration::ZERO) }.unwrap() {
                    assert!(last < Some(got) && got <= sequence);
                    assert!(pattern.is_intact(&message, got, Sender::Active));
                    last = Some(got);
                    delivered += 1;
                }
            }
            let counters = b.counters().unwrap();
            assert!((100..200).contains(&delivered), "seed {seed}: {delivered} of 200");
            assert!(counters.duplicate + counters.stale > 0 && counters.foreign == 0, "{counters:?}");
        }
    }

    #[test]
    fn foreign_frames_are_counted_and_ignored() {
        let (mut a, mut b) = pair(Faults::default(), 1);
        let (ours, header) = (b.incoming, Header { session: 7, sequence: 0, fragment: 0 });
        let foreign_session = Header { session: 8, ..header }.to_bytes();
        let mut other_source = ours;
        other_source[11] = 99;
        let foreign: [(&[u8], &[u8]); 5] = [
            (&ours, &[]),
            (&ours, &[1; 11]),
            (&ours, &foreign_session),
            (&other_source, &header.to_bytes()),
            (&[0; 14], &[0; 46]),
        ];
        for (header, payload) in foreign {
            assert_eq!(a.link.send(&[Outgoing { header, payload, label: 0 }]).unwrap(), 1);
        }
        let malformed = [&header.to_bytes()[..], &[0; 150]].concat();
        a.link.send(&[Outgoing { header: &ours, payload: &malformed, label: 0 }]).unwrap();
        send(&mut a, 0, &[5; 40]);
        let mut message = [0; 40];
        // SAFETY: as above.
        assert_eq!(unsafe { b.receive(&mut message, Duration::ZERO) }.unwrap(), Some(0));
        assert_eq!(message, [5; 40]);
        let counters = b.counters().unwrap();
        assert_eq!((counters.foreign, counters.malformed), (5, 1));
    }
}
