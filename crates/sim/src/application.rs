// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the user of a connection does: sends its messages, waits for the peer's, and leaves.

use barewire_llc::{Cause, ConnectionEvent, ConnectionHandle, Instant, Station};

use crate::checks::{Checks, Stream, Violation, message, parse};

/// Messages between two times that the user waits for an acknowledgement: not a divisor of any window's or delay's.
const WANT_ANSWER_EVERY: u32 = 7;

/// A message under way: its stream and number, and how many the stream has.
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

/// One end of one connection.
#[derive(Debug)]
pub struct End {
    is_client: bool,
    /// What goes out.
    outgoing: Token,
    acknowledged: u32,
    /// What comes in, once its first message has come.
    incoming: Option<(Stream, u32)>,
    received: u32,
    is_finishing: bool,
}

/// What an end wants after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    GoOn,
    /// The connection was reset: a new stream is to begin.
    NewStream,
    /// The user must react to a reset: with `accept_reset` if the peer reset.
    Reset {
        by_peer: bool,
    },
    Over,
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

    /// After a reset: who asked for it is the client then, since the peer may be a new one.
    pub fn begin_again(&mut self, is_client: bool, stream: Stream, total: u32) {
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
                checks.stream_over(self.outgoing.stream, self.outgoing.number);
                return Next::Reset { by_peer: cause == Cause::PeerReset };
            }
            ConnectionEvent::ResetDone => {
                checks.stream_over(self.outgoing.stream, self.outgoing.number);
                return Next::NewStream;
            }
            ConnectionEvent::Disconnected(cause) => {
                checks.stream_over(self.outgoing.stream, self.outgoing.number);
                if self.is_finishing && cause == Cause::Requested {
                    self.require_agreement(checks);
                }
                return Next::Over;
            }
        }
        Next::GoOn
    }

    /// Whether an event is the end that a connection should come to.
    pub fn is_orderly(&self, event: ConnectionEvent<Token>) -> bool {
        match event {
            ConnectionEvent::Disconnected(Cause::Requested) => self.is_finishing,
            // The client's DISC was repeated until it gave up, or the server knew of the end already.
            ConnectionEvent::Disconnected(Cause::NoAnswer | Cause::PeerNotConnected) => self.is_finishing,
            ConnectionEvent::Disconnected(Cause::PeerDisconnected) => !self.is_client,
            _ => false,
        }
    }

    /// Sends what fits, and finishes once both directions are complete. Only clients finish.
    pub fn pump(&mut self, station: &mut Station<Token>, handle: ConnectionHandle, now: Instant) {
        while self.outgoing.number < self.outgoing.total && station.send(handle, self.outgoing, now).is_ok() {
            self.outgoing.number += 1;
            // Now and then somebody waits for what was sent so far.
            if self.outgoing.number.is_multiple_of(WANT_ANSWER_EVERY) {
                station.request_ack(handle, now);
            }
        }
        let all_sent = self.acknowledged == self.outgoing.total;
        let all_received = self.incoming.is_some_and(|(_, total)| self.received >= total);
        if self.is_client && !self.is_finishing && all_sent && all_received {
            self.is_finishing = station.finish(handle, now);
        }
    }

    /// The orderly end: both ends have all.
    fn require_agreement(&self, checks: &mut Checks) {
        let sent = Some((self.outgoing.stream, self.outgoing.total));
        for (stream, total) in sent.into_iter().chain(self.incoming) {
            let delivered = checks.delivered_of(stream);
            checks.require(delivered == total, Violation::EndsDisagree { stream });
        }
    }
}
