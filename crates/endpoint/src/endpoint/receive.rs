// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages in: from frames to the sink.

use barewire_link::Link;
use barewire_llc::{ConnectionHandle, Delivery, Source};

use super::Endpoint;
use crate::address::Address;
use crate::channel::{Carrier, Channels, Parked};
use crate::error::{Ending, EndpointError};
use crate::mutant::mutant;
use crate::sink::{Class, Sink};

/// Frames taken in one go at most: there is other work, too.
const FRAMES_AT_ONCE: u32 = 64;

impl<L: Link> Endpoint<L> {
    /// Takes frames from the link. Whether there can be news, and whether something was delivered.
    #[inline]
    pub(super) fn take_frames(&mut self, sink: &mut impl Sink) -> Result<(bool, bool), EndpointError> {
        let Self { port, channels, waiting, .. } = self;
        let (mut taken, mut delivered) = (0, false);
        let (mut refused, mut broken) = (None::<ConnectionHandle>, None);
        let is_news = port.receive(|delivery| {
            taken += 1;
            match delivery {
                Delivery::Data { connection, information, .. } => {
                    let given = match channels.of_connection(connection) {
                        Some(index) => give(channels, waiting, sink, index, information),
                        None => Given::Broken,
                    };
                    match given {
                        Given::Taken => delivered = true,
                        Given::Parked => refused = Some(connection),
                        Given::Broken => broken = Some(connection),
                    }
                }
                Delivery::Datagram { from, source: Source::Individual(sap), information, .. } => {
                    sink.datagram(Address::new(from, sap), Class::Unreliable, information);
                    delivered = true;
                }
                Delivery::AcknowledgedDatagram { peer, information } => {
                    sink.datagram(Address::new(peer.mac, peer.remote), Class::Acknowledged, information);
                    delivered = true;
                }
                Delivery::Early { .. }
                | Delivery::Datagram { .. }
                | Delivery::Identification { .. }
                | Delivery::Test { .. } => {}
            }
            // A peer is told to wait, or broken off with, before more of it is taken.
            taken == FRAMES_AT_ONCE || refused.is_some() || broken.is_some() || sink.has_enough()
        })?;
        if let Some(handle) = refused {
            let now = self.port.now();
            self.port.station.set_busy(handle, true, now);
        }
        if let Some(handle) = broken {
            self.malformed += 1;
            self.end_connection(handle, Ending::Violation);
        }
        Ok((is_news, delivered))
    }

    /// Offers the pieces again that the sink refused. Whether it took one.
    pub(super) fn offer_again(&mut self, sink: &mut impl Sink) -> bool {
        let mut took = false;
        for place in (0..self.waiting.len()).rev() {
            let index = self.waiting[place];
            let id = self.channels.id(index);
            let Some(channel) = self.channels.at(index) else { continue };
            if mutant!(self.config, ParkedReversed) {
                channel.parked.make_contiguous().reverse();
            }
            while let Some(parked) = channel.parked.front()
                && sink.piece(id, parked.piece())
            {
                took = true;
                channel.parked.pop_front();
            }
            if channel.parked.is_empty() {
                self.waiting.swap_remove(place);
                match channel.carrier {
                    Carrier::Wire { handle, .. } => {
                        let now = self.port.now();
                        self.port.station.set_busy(handle, mutant!(self.config, StaysBusy), now);
                    }
                    Carrier::Over => self.end(index, Ending::PeerClosed, sink),
                    Carrier::Pending | Carrier::Connecting { .. } | Carrier::Local { .. } => {}
                }
            }
        }
        took
    }
}

/// What became of a fragment.
pub(super) enum Given {
    Taken,
    /// The sink has no room; it waits.
    Parked,
    /// It does not fit what came before.
    Broken,
}

/// Gives the sink what a channel's next fragment brings.
#[inline]
pub(super) fn give(
    channels: &mut Channels,
    waiting: &mut Vec<u16>,
    sink: &mut impl Sink,
    index: u16,
    fragment: &[u8],
) -> Given {
    let id = channels.id(index);
    let Some(channel) = channels.at(index) else { return Given::Broken };
    let Ok(piece) = channel.reassembler.accept(fragment, u32::MAX as usize) else { return Given::Broken };
    if channel.parked.is_empty() {
        if sink.piece(id, piece) {
            return Given::Taken;
        }
        waiting.push(index);
    }
    channel.parked.push_back(Parked::new(piece));
    Given::Parked
}
