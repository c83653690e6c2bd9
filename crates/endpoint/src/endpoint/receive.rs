// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receiving: from frames to the sink.

use barewire_link::Link;
use barewire_llc::message::Piece;
use barewire_llc::{ConnectionHandle, Delivery, Source};

use super::Endpoint;
use crate::address::Address;
use crate::channel::{Carrier, ChannelId, Channels, Parked};
use crate::error::{Ending, EndpointError};
use crate::mutant::mutant;
use crate::sink::{Class, Sink};

/// Frames received in one call, so that other work is not starved.
const FRAMES_AT_ONCE: u32 = 64;

impl<L: Link> Endpoint<L> {
    /// Receives frames. Returns whether engine state may have changed, and whether something was delivered.
    #[inline]
    pub(super) fn receive_frames(&mut self, sink: &mut impl Sink) -> Result<(bool, bool), EndpointError> {
        let Self { port, channels, parked_channels, .. } = self;
        let (mut taken, mut delivered, mut stopped_early) = (0, false, false);
        let (mut refused, mut malformed) = (None::<ConnectionHandle>, None);
        let has_changed = port.receive(|delivery| {
            taken += 1;
            match delivery {
                Delivery::Data { connection, information, .. } => {
                    let outcome = match channels.find_connection(connection) {
                        Some(index) => deliver(channels, parked_channels, sink, index, information),
                        None => Delivered::Malformed,
                    };
                    match outcome {
                        Delivered::Accepted => delivered = true,
                        Delivered::Parked => refused = Some(connection),
                        Delivered::Malformed => malformed = Some(connection),
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
            // Signal busy, or abort the connection, before any more of its frames are received.
            stopped_early = taken == FRAMES_AT_ONCE || refused.is_some() || malformed.is_some() || sink.has_enough();
            stopped_early
        })?;
        self.stopped_early = stopped_early;
        if let Some(handle) = refused {
            let now = self.port.now();
            self.port.station.set_busy(handle, true, now);
        }
        if let Some(handle) = malformed {
            self.malformed += 1;
            self.abort_connection(handle, Ending::Violation);
        }
        Ok((has_changed, delivered))
    }

    /// Offers parked pieces to the sink again. Returns whether it took one.
    pub(super) fn offer_parked(&mut self, sink: &mut impl Sink) -> bool {
        let mut has_taken = false;
        for position in (0..self.parked_channels.len()).rev() {
            let index = self.parked_channels[position];
            let id = self.channels.id(index);
            let Some(channel) = self.channels.at(index) else { continue };
            if mutant!(self.config, ParkedReversed) {
                channel.parked.make_contiguous().reverse();
            }
            while let Some(parked) = channel.parked.front()
                && offer(sink, id, parked.piece(), channel.ending.is_some())
            {
                has_taken = true;
                channel.parked.pop_front();
            }
            if channel.parked.is_empty() {
                self.parked_channels.swap_remove(position);
                match channel.carrier {
                    Carrier::Wire { handle, .. } => {
                        let now = self.port.now();
                        self.port.station.set_busy(handle, mutant!(self.config, StaysBusy), now);
                    }
                    Carrier::Ended => self.end(index, Ending::PeerClosed, sink),
                    Carrier::Pending | Carrier::Connecting { .. } | Carrier::Local { .. } => {}
                }
            }
        }
        has_taken
    }
}

/// Offers a piece of a channel to the sink, twice if the peer is gone.
#[inline]
fn offer(sink: &mut impl Sink, from: ChannelId, piece: Piece<'_>, is_left: bool) -> bool {
    sink.piece(from, piece) || is_left && sink.left_piece(from, piece)
}

/// Result of delivering a fragment.
pub(super) enum Delivered {
    Accepted,
    /// The sink has no room; the piece is parked.
    Parked,
    /// The fragment does not continue the message.
    Malformed,
}

/// Delivers a channel's next fragment to the sink.
#[inline]
pub(super) fn deliver(
    channels: &mut Channels,
    parked_channels: &mut Vec<u16>,
    sink: &mut impl Sink,
    index: u16,
    fragment: &[u8],
) -> Delivered {
    let id = channels.id(index);
    let Some(channel) = channels.at(index) else { return Delivered::Malformed };
    let Ok(piece) = channel.reassembler.accept(fragment, u32::MAX as usize) else { return Delivered::Malformed };
    if channel.parked.is_empty() {
        if offer(sink, id, piece, channel.ending.is_some()) {
            return Delivered::Accepted;
        }
        parked_channels.push(index);
    }
    channel.parked.push_back(Parked::new(piece));
    Delivered::Parked
}
