// SPDX-License-Identifier: Apache-2.0 OR MIT
//! User of a connection: sends its messages, waits for the peer's, and disconnects.

use barewire_llc::{Cause, ConnectionEvent, ConnectionHandle, Instant, Station};

use crate::checks::{Checks, Stream, Violation, message, parse};

/// Messages between two requests for an acknowledgement: no divisor of any window.
const ANSWER_INTERVAL: u32 = 7;

/// A message in flight: its stream and number, and the stream's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub stream: Stream,
    pub number: u32,
    pub total: u32,
}

impl Token {
    pub fn bytes(self) -> [u8; 16] {
        message(self.stream, self.number, self.total)
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct End {
    is_client: bool,
    /// The next message to send.
    outgoing: Token,
    acknowledged: u32,
    /// Stream and length of the received messages, after the first.
    incoming: Option<(Stream, u32)>,
    received: u32,
    is_finishing: bool,
}

/// What an end does after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Continue,
    /// The connection was reset: begin a new stream.
    NewStream,
    /// Respond to a reset: with `accept_reset` if the peer reset.
    Reset {
        by_peer: bool,
    },
    Closed,
}

impl End {
    pub fn new(is_client: bool, stream: Stream, total: u32) -> Self {
        Self {
            is_client,
            outgoing: Token { stream, number: 0, total },
            acknowledged: 0,
            incoming: None,
            received: 0,
            is_finishing: false,
        }
    }

    /// After a reset, whose initiator becomes the client, since the peer may have restarted.
    pub fn restart_stream(&mut self, is_client: bool, stream: Stream, total: u32) {
        *self = Self::new(is_client, stream, total);
    }

    pub fn deliver(&mut self, information: &[u8], checks: &mut Checks) {
        let Some((stream, number, total)) = parse(information) else { return checks.report(Violation::NotIntact) };
        checks.delivered(stream, number);
        if self.incoming.is_none_or(|(known, _)| known != stream) {
            self.incoming = Some((stream, total));
            self.received = 0;
        }
        self.received += 1;
    }

    pub fn handle(&mut self, event: ConnectionEvent<Token>, checks: &mut Checks) -> Next {
        match event {
            ConnectionEvent::Acknowledged(token) => {
                checks.acknowledged(token.stream, token.number);
                self.acknowledged += u32::from(token.stream == self.outgoing.stream);
            }
            ConnectionEvent::Dropped(token) => checks.dropped(token.stream, token.number),
            ConnectionEvent::Incoming | ConnectionEvent::Connected => {}
            ConnectionEvent::Reset(cause) => {
                checks.stream_ended(self.outgoing.stream, self.outgoing.number);
                return Next::Reset { by_peer: cause == Cause::PeerReset };
            }
            ConnectionEvent::ResetDone => {
                checks.stream_ended(self.outgoing.stream, self.outgoing.number);
                return Next::NewStream;
            }
            ConnectionEvent::Disconnected(cause) => {
                checks.stream_ended(self.outgoing.stream, self.outgoing.number);
                if self.is_finishing && cause == Cause::Requested {
                    self.require_agreement(checks);
                }
                return Next::Closed;
            }
        }
        Next::Continue
    }

    /// Whether an event is an orderly end of the connection.
    pub fn is_orderly(&self, event: ConnectionEvent<Token>) -> bool {
        match event {
            ConnectionEvent::Disconnected(Cause::Requested) => self.is_finishing,
            // The client's DISC was repeated until it gave up, or the server was already disconnected.
            ConnectionEvent::Disconnected(Cause::NoAnswer | Cause::PeerNotConnected) => self.is_finishing,
            ConnectionEvent::Disconnected(Cause::PeerDisconnected) => !self.is_client,
            _ => false,
        }
    }

    /// Fills the send queue, and finishes once both directions are complete. Only clients finish.
    pub fn pump(&mut self, station: &mut Station<Token>, handle: ConnectionHandle, now: Instant) {
        while self.outgoing.number < self.outgoing.total && station.send(handle, self.outgoing, now).is_ok() {
            self.outgoing.number += 1;
            // Request an acknowledgement of all that is sent so far.
            if self.outgoing.number.is_multiple_of(ANSWER_INTERVAL) {
                station.request_ack(handle, now);
            }
        }
        let all_sent = self.acknowledged == self.outgoing.total;
        let all_received = self.incoming.is_some_and(|(_, total)| self.received >= total);
        if self.is_client && !self.is_finishing && all_sent && all_received {
            self.is_finishing = station.finish(handle, now);
        }
    }

    /// After an orderly end, both ends must have all messages.
    fn require_agreement(&self, checks: &mut Checks) {
        let sent = Some((self.outgoing.stream, self.outgoing.total));
        for (stream, total) in sent.into_iter().chain(self.incoming) {
            let delivered = checks.delivered_count(stream);
            checks.require(delivered == total, Violation::EndsDisagree { stream });
        }
    }
}
