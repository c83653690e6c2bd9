// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests. Each knows two roles: the active side, which drives and keeps the samples of a round
//! trip, and the passive side, which answers, or receives and keeps the time of a stream.

pub mod bidirectional;
mod idle;
pub mod pingpong;
pub mod stream;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::idle::{Idle, patience_of};
use crate::control::Channel;
use crate::pattern::{Pattern, Sender};
use crate::protocol::{Block, Session, Test};
use crate::transport::{LONGEST_SLEEP, Transport};
use barewire_endpoint::WaitPolicy;
use barewire_recorder::LaunchError;

/// Set by SIGINT and SIGTERM.
pub static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// A message that has not come after this is lost, or, where none can be lost, the peer is gone.
const LOSS_PATIENCE_NS: u64 = 1_000_000_000;
const SILENCE_PATIENCE_NS: u64 = 10_000_000_000;
/// Nothing has come for so long after the other side has finished: nothing is on its way any more.
const QUIET_NS: u64 = 20_000_000;
/// So many messages lost one after the other are no loss but a link that is down.
const LOST_IN_A_ROW: u32 = 3;
/// Sleep between two looks at the control channel.
const SHORT_SLEEP: Duration = Duration::from_millis(1);

/// Of a stream by time so much is kept and checked: a block by number's worth.
const KEPT_BYTES: usize = 4 << 20;
const KEPT_LEAST: usize = 4;
const KEPT_MOST: usize = 16_384;

/// One side of a measurement: a transport, how to wait for it, and the memory of its messages.
pub struct Side {
    /// Before the pattern and the inbox, whose memory it may use: dropped first.
    pub transport: Box<dyn Transport>,
    waiting: WaitPolicy,
    seed: u64,
    walk_bytes: usize,
    pub pattern: Pattern,
    pub inbox: Inbox,
    message_bytes: usize,
    /// The block's end is not a number of messages.
    is_by_time: bool,
}

/// What an active side keeps of a block.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Samples {
    pub values_ns: Vec<u64>,
    /// Block by time: when each of these began, by the machine's `CLOCK_MONOTONIC`.
    pub began_ns: Vec<u64>,
    /// Messages sent, those of a lead-in as well.
    pub sent: u32,
    /// Stream: how long the sender was busy with all messages of the block.
    pub sending_ns: u64,
    pub lost: u32,
    pub corrupt: u32,
}

impl Side {
    pub fn new(transport: Box<dyn Transport>, session: &Session) -> Self {
        Self {
            transport,
            waiting: patience_of(session.wait, session.give_way),
            seed: session.seed,
            walk_bytes: session.walk_bytes,
            pattern: Pattern::new(session.seed, 1, 0, 0),
            inbox: Inbox::new(1, 1),
            message_bytes: 0,
            is_by_time: false,
        }
    }

    /// Makes the memory ready that a block needs, outside of any clock.
    pub fn prepare(&mut self, block: &Block, sender: Sender) -> Result<(), LaunchError> {
        let message_bytes = block.message_bytes as usize;
        if message_bytes != self.message_bytes {
            // The transport may still read what it was given.
            self.settle()?;
            // Free the old memory before asking for the new.
            self.pattern = Pattern::new(self.seed, 1, 0, 0);
            self.inbox = Inbox::new(1, 1);
            let borrowed = self.transport.borrows(message_bytes);
            self.pattern = Pattern::new(self.seed, message_bytes, self.walk_bytes, borrowed);
            self.message_bytes = message_bytes;
        }
        let places = match (block.test, sender) {
            // A block by time may be long: its last messages stay.
            (Test::Stream, Sender::Passive) if block.is_by_time() => {
                (KEPT_BYTES / message_bytes).clamp(KEPT_LEAST, KEPT_MOST)
            }
            // Every message stays until the clock has stopped and it can be checked.
            (Test::Stream, Sender::Passive) => (block.lead_in + block.messages) as usize,
            (Test::Stream, Sender::Active) => 1,
            // One more than the pattern has slots: a place then never holds the message that it should get.
            _ => self.pattern.slots() + 1,
        };
        if self.inbox.places() != places || self.inbox.message_bytes != message_bytes {
            // The transport may have a place to receive into.
            self.settle()?;
            self.inbox = Inbox::new(1, 1);
            self.inbox = Inbox::new(message_bytes, places);
        }
        self.transport.set_pace(block.pace_bit_s);
        self.is_by_time = block.is_by_time();
        Ok(())
    }

    /// Whether others want this core, so that who could go on without end must let them.
    pub fn gives_way(&self) -> bool {
        self.waiting.shares_core()
    }

    /// Sends message `sequence` of `sender`.
    #[inline]
    pub fn send(&mut self, sequence: u32, sender: Sender) -> Result<(), LaunchError> {
        let message = self.pattern.message(sequence, sender);
        let mut done = 0;
        let mut idle = Idle::new(&self.waiting);
        // SAFETY: the pattern keeps as many messages unchanged as the transport borrows, and is replaced once that
        // is settled; the transport is dropped before it.
        while !unsafe { self.transport.try_send(sequence, message, &mut done)? } {
            idle.turn(&mut *self.transport, SILENCE_PATIENCE_NS)?;
            if self.waiting.sleeps() {
                self.transport.wait_to_send(LONGEST_SLEEP)?;
            }
        }
        Ok(())
    }

    /// Receives the next message into `place`; its sequence number, or `None` if none came in time
    /// or `stop` says that the other side has finished.
    #[inline]
    pub fn receive(&mut self, place: usize, mut stop: impl FnMut() -> bool) -> Result<Option<u32>, LaunchError> {
        let limit_ns = if self.transport.is_lossy() { LOSS_PATIENCE_NS } else { SILENCE_PATIENCE_NS };
        let message = self.inbox.place(place);
        let mut idle = Idle::new(&self.waiting);
        loop {
            // SAFETY: every call until the message has come passes this place, also after `stop` has ended the loop in
            // between; the inbox is replaced once the transport is settled, and dropped after it.
            if let Some(sequence) = unsafe { self.transport.receive(message, idle.patience()) }? {
                self.waiting.learn(idle.still_asks());
                return Ok(Some(sequence));
            }
            if idle.looks(&mut *self.transport)? {
                // Where nothing can be lost, all that was sent still comes; but how much that is, a side that measures
                // by time does not know before.
                let is_lossy = self.transport.is_lossy();
                let may_be_over = if is_lossy { idle.since_ns() > QUIET_NS } else { self.is_by_time };
                if may_be_over && stop() {
                    return Ok(None);
                }
                if idle.since_ns() > limit_ns {
                    return if is_lossy { Ok(None) } else { Err(silence()) };
                }
            }
        }
    }

    /// Lets the transport finish what it does behind a call's back, at the end of a block.
    pub fn settle(&mut self) -> Result<(), LaunchError> {
        let mut idle = Idle::new(&self.waiting);
        while !self.transport.settle()? {
            idle.turn(&mut *self.transport, SILENCE_PATIENCE_NS)?;
        }
        Ok(())
    }

    /// Waits for the control channel's next message. Meanwhile the transport answers its peer, which may have
    /// lost what it is waiting for.
    pub fn wait_for_news(&mut self, channel: &Channel) -> Result<(), LaunchError> {
        if !self.transport.is_lazy() {
            channel.wait_for_news();
            return Ok(());
        }
        let mut idle = Idle::new(&self.waiting);
        while !channel.has_news() {
            self.transport.settle()?;
            if self.waiting.sleeps() {
                self.transport.wait_to_send(SHORT_SLEEP)?;
            }
            idle.looks(&mut *self.transport)?;
        }
        Ok(())
    }
}

/// Room for messages that come in.
pub struct Inbox {
    bytes: Vec<u8>,
    message_bytes: usize,
}

impl Inbox {
    fn new(message_bytes: usize, places: usize) -> Self {
        // Written, not only reserved: no page may be missing once the clock runs.
        Self { bytes: vec![0xa5; message_bytes * places], message_bytes }
    }

    pub fn places(&self) -> usize {
        self.bytes.len() / self.message_bytes
    }

    /// Places follow each other and start again.
    #[inline]
    pub fn place(&mut self, number: usize) -> &mut [u8] {
        let at = number % self.places() * self.message_bytes;
        &mut self.bytes[at..at + self.message_bytes]
    }
}

fn silence() -> LaunchError {
    LaunchError::Failed("the peer no longer answers: is its host down, or the link?".to_owned())
}

/// Counts messages lost one after the other, and gives up when it is no longer loss.
#[derive(Default)]
pub struct LossStreak(u32);

impl LossStreak {
    pub fn note(&mut self, lost: bool) -> Result<(), LaunchError> {
        self.0 = if lost { self.0 + 1 } else { 0 };
        if self.0 >= LOST_IN_A_ROW { Err(silence()) } else { Ok(()) }
    }
}
