// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests. Each has two sides: the active side drives and records round trips; the passive side answers, or
//! receives and times a stream.

pub mod bidirectional;
mod idle;
pub mod pingpong;
pub mod stream;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use nix::poll::PollTimeout;
use serde::{Deserialize, Serialize};

use self::idle::{Idle, patience_for};
use crate::control::Channel;
use crate::pattern::{Pattern, Sender};
use crate::protocol::{Block, Session, Test};
use crate::transport::{SLEEP_MAX, Transport};
use barewire_endpoint::WaitPolicy;
use barewire_recorder::LaunchError;

/// Set by SIGINT and SIGTERM.
pub static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// When a message counts as lost.
const LOSS_PATIENCE_NS: u64 = 1_000_000_000;
/// When the peer of a lossless transport counts as gone.
const SILENCE_PATIENCE_NS: u64 = 10_000_000_000;
/// After the peer has finished, an idle time after which nothing is in flight any more.
const IDLE_NS: u64 = 20_000_000;
/// More consecutive losses mean that the link is down.
const CONSECUTIVE_LOSSES_MAX: u32 = 3;
/// Sleep between two polls of the control channel.
const SHORT_SLEEP: Duration = Duration::from_millis(1);
/// How soon a side that waits for the control channel notices an interrupt; seldom enough to disturb nobody's block.
const INTERRUPT_CHECK_MS: u8 = 200;

/// Bytes of a timed stream's last messages that are kept and checked.
const KEPT_BYTES: usize = 4 << 20;
const KEPT_MIN: usize = 4;
const KEPT_MAX: usize = 16_384;

/// One side of a measurement: a transport, its waiting policy, and the memory of its messages.
pub struct Side {
    /// Declared first, so dropped first: it may use the memory of `pattern` and `inbox`.
    pub transport: Box<dyn Transport>,
    waiting: WaitPolicy,
    seed: u64,
    walk_bytes: usize,
    pub pattern: Pattern,
    pub inbox: Inbox,
    message_bytes: usize,
    /// Whether the current block ends by time.
    is_timed: bool,
}

/// The active side's record of a block.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Samples {
    pub values_ns: Vec<u64>,
    /// Timed block: start of each round trip, in the machine's `CLOCK_MONOTONIC`.
    pub began_ns: Vec<u64>,
    /// Messages sent, lead-in included.
    pub sent: u32,
    /// Stream: time that sending all messages of the block took.
    pub sending_ns: u64,
    pub lost: u32,
    pub corrupt: u32,
}

impl Side {
    pub fn new(transport: Box<dyn Transport>, session: &Session) -> Self {
        Self {
            transport,
            waiting: patience_for(session.wait, session.give_way),
            seed: session.seed,
            walk_bytes: session.walk_bytes,
            pattern: Pattern::new(session.seed, 1, 0, 0),
            inbox: Inbox::new(1, 1),
            message_bytes: 0,
            is_timed: false,
        }
    }

    /// Allocates a block's memory, outside of any timed section.
    pub fn prepare(&mut self, block: &Block, sender: Sender) -> Result<(), LaunchError> {
        let message_bytes = block.message_bytes as usize;
        if message_bytes != self.message_bytes {
            // The transport may still read borrowed messages.
            self.settle()?;
            // Free the old memory before asking for the new.
            self.pattern = Pattern::new(self.seed, 1, 0, 0);
            self.inbox = Inbox::new(1, 1);
            require_memory(self.walk_bytes)?;
            let borrowed = self.transport.borrows(message_bytes);
            self.pattern = Pattern::new(self.seed, message_bytes, self.walk_bytes, borrowed);
            self.message_bytes = message_bytes;
        }
        let walked = self.walk_bytes.div_ceil(message_bytes);
        let slots = match (block.test, sender) {
            (Test::Stream, Sender::Active) => 1,
            // A timed block may be long: keep its last messages.
            (Test::Stream, Sender::Passive) if block.is_timed() => {
                (KEPT_BYTES / message_bytes).clamp(KEPT_MIN, KEPT_MAX).max(walked)
            }
            // Keep every message, to check it after the clock has stopped.
            (Test::Stream, Sender::Passive) => ((block.lead_in + block.messages) as usize).max(walked),
            (Test::Bidirectional, _) => walked.max(1),
            (Test::Pingpong, _) => self.pattern.slots(),
        };
        // No multiple of the pattern's slots: a slot then never already holds the message expected in it.
        let slots = slots + usize::from(slots.is_multiple_of(self.pattern.slots()));
        if self.inbox.slots() != slots || self.inbox.message_bytes != message_bytes {
            // The transport may have a receive posted into the old inbox.
            self.settle()?;
            self.inbox = Inbox::new(1, 1);
            self.inbox = Inbox::new(message_bytes, slots);
        }
        self.transport.set_pace(block.pace_bit_s);
        self.is_timed = block.is_timed();
        Ok(())
    }

    /// Whether the core is shared, so that a side that never waits must yield it.
    pub fn yields(&self) -> bool {
        self.waiting.shares_core()
    }

    /// Sends message `sequence` of `sender`.
    #[inline]
    pub fn send(&mut self, sequence: u32, sender: Sender) -> Result<(), LaunchError> {
        let message = self.pattern.message(sequence, sender);
        let mut done = 0;
        let mut idle = Idle::new(&self.waiting);
        // SAFETY: the pattern keeps as many messages unchanged as the transport borrows, and is replaced only once the
        // transport is settled; the transport is dropped before it.
        while !unsafe { self.transport.try_send(sequence, message, &mut done)? } {
            idle.tick_within(&mut *self.transport, SILENCE_PATIENCE_NS)?;
            if self.waiting.sleeps() {
                self.transport.wait_to_send(SLEEP_MAX)?;
            }
        }
        Ok(())
    }

    /// Receives the next message into `slot`; its sequence number, or `None` on timeout or once `stop` reports that
    /// the other side has finished.
    #[inline]
    pub fn receive(&mut self, slot: usize, mut stop: impl FnMut() -> bool) -> Result<Option<u32>, LaunchError> {
        let limit_ns = if self.transport.is_lossy() { LOSS_PATIENCE_NS } else { SILENCE_PATIENCE_NS };
        let message = self.inbox.slot(slot);
        let mut idle = Idle::new(&self.waiting);
        loop {
            // SAFETY: every call until the message is complete passes this slot, also if `stop` has ended the loop in
            // between; the inbox is replaced only once the transport is settled, and dropped after it.
            if let Some(sequence) = unsafe { self.transport.receive(message, idle.patience()) }? {
                self.waiting.learn(idle.is_spinning());
                return Ok(Some(sequence));
            }
            if idle.tick(&mut *self.transport)? {
                // A lossless transport delivers all that was sent, but in a timed block the receiver does not know how
                // much that is.
                let is_lossy = self.transport.is_lossy();
                let may_be_over = if is_lossy { idle.since_ns() > IDLE_NS } else { self.is_timed };
                if may_be_over && stop() {
                    return Ok(None);
                }
                if idle.since_ns() > limit_ns {
                    return if is_lossy { Ok(None) } else { Err(peer_silent()) };
                }
            }
        }
    }

    /// Completes all outstanding operations of the transport, at the end of a block.
    pub fn settle(&mut self) -> Result<(), LaunchError> {
        let mut idle = Idle::new(&self.waiting);
        while !self.transport.settle()? {
            idle.tick_within(&mut *self.transport, SILENCE_PATIENCE_NS)?;
        }
        Ok(())
    }

    /// Waits for the control channel's next message. Meanwhile a lazy transport makes progress: its peer may need a
    /// retransmission.
    pub fn wait_readable(&mut self, channel: &Channel) -> Result<(), LaunchError> {
        if !self.transport.is_lazy() {
            while !channel.wait_readable(PollTimeout::from(INTERRUPT_CHECK_MS)) {
                if INTERRUPTED.load(Ordering::Relaxed) {
                    return Err(LaunchError::Interrupted);
                }
            }
            return Ok(());
        }
        let mut idle = Idle::new(&self.waiting);
        while !channel.is_readable() {
            self.transport.settle()?;
            if self.waiting.sleeps() {
                self.transport.wait_to_send(SHORT_SLEEP)?;
            }
            idle.tick(&mut *self.transport)?;
        }
        Ok(())
    }
}

/// Refuses what cannot be allocated: that would end the process, with all its sessions.
fn require_memory(walk_bytes: usize) -> Result<(), LaunchError> {
    Vec::<u8>::new().try_reserve_exact(walk_bytes).map_err(|_| {
        LaunchError::WrongUse(format!("there is no memory of {walk_bytes} bytes: choose a smaller --walk-bytes"))
    })
}

/// Memory for received messages, in slots.
pub struct Inbox {
    bytes: Vec<u8>,
    message_bytes: usize,
}

impl Inbox {
    fn new(message_bytes: usize, slots: usize) -> Self {
        // Write to every page, to take page faults before the clock runs.
        Self { bytes: vec![0xa5; message_bytes * slots], message_bytes }
    }

    pub fn slots(&self) -> usize {
        self.bytes.len() / self.message_bytes
    }

    /// Slot `number` modulo the number of slots.
    #[inline]
    pub fn slot(&mut self, number: usize) -> &mut [u8] {
        let at = number % self.slots() * self.message_bytes;
        &mut self.bytes[at..at + self.message_bytes]
    }
}

fn peer_silent() -> LaunchError {
    LaunchError::Failed("the peer no longer answers: is its host down, or the link?".to_owned())
}

/// Counts consecutive losses, and fails at [`CONSECUTIVE_LOSSES_MAX`].
#[derive(Default)]
pub struct LossStreak(u32);

impl LossStreak {
    pub fn record(&mut self, lost: bool) -> Result<(), LaunchError> {
        self.0 = if lost { self.0 + 1 } else { 0 };
        if self.0 >= CONSECUTIVE_LOSSES_MAX { Err(peer_silent()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;
    use crate::protocol::{Kind, LinkKind, Wait};
    use crate::transport::Counters;

    const SEED: u64 = 4;
    const BYTES: usize = 256 << 10;

    /// A peer that has each message ready, in order; notes where they are received.
    struct Ready {
        pattern: Pattern,
        sender: Sender,
        next: u32,
        /// Number of a message that never comes.
        lost: Option<u32>,
        addresses: Arc<Mutex<BTreeSet<usize>>>,
    }

    impl Transport for Ready {
        unsafe fn try_send(&mut self, _sequence: u32, message: &[u8], done: &mut usize) -> Result<bool, LaunchError> {
            *done = message.len();
            Ok(true)
        }

        unsafe fn receive(&mut self, message: &mut [u8], _patience: Duration) -> Result<Option<u32>, LaunchError> {
            self.addresses.lock().unwrap().insert(message.as_ptr().addr());
            self.next += u32::from(self.lost == Some(self.next));
            message.copy_from_slice(self.pattern.message(self.next, self.sender));
            self.next += 1;
            Ok(Some(self.next - 1))
        }

        fn wait_to_send(&mut self, _patience: Duration) -> Result<(), LaunchError> {
            Ok(())
        }

        fn set_pace(&mut self, _bit_s: Option<f64>) {}

        fn wire_bytes(&self, message_bytes: usize) -> usize {
            message_bytes
        }

        fn is_lossy(&self) -> bool {
            false
        }

        fn check(&mut self) -> Result<(), LaunchError> {
            Ok(())
        }

        fn counters(&mut self) -> Result<Counters, LaunchError> {
            Ok(Counters::default())
        }

        fn mtu(&self) -> Option<usize> {
            None
        }
    }

    fn session(walk_bytes: usize) -> Session {
        Session {
            version: 1,
            transport: Kind::Raw,
            link: LinkKind::Packet,
            wait: Wait::Spin,
            seed: SEED,
            session: 0,
            pairs: 1,
            pair: 0,
            processes: false,
            walk_bytes,
            give_way: false,
            token: 0,
            provider: None,
            tuned: Vec::new(),
        }
    }

    /// How many buffers `blocks` blocks of 20 messages are received into, by the side that is not `sender`.
    fn buffers(test: Test, sender: Sender, walk_bytes: usize, lasts_ns: u64, blocks: u32) -> usize {
        let addresses = Arc::<Mutex<BTreeSet<usize>>>::default();
        let pattern = Pattern::new(SEED, BYTES, walk_bytes, 0);
        let ready = Ready { pattern, sender, next: 0, lost: None, addresses: Arc::clone(&addresses) };
        let mut side = Side::new(Box::new(ready), &session(walk_bytes));
        let receiver = if sender == Sender::Active { Sender::Passive } else { Sender::Active };
        for number in 0..blocks {
            let lead_in = u32::from(test == Test::Stream);
            let (first_sequence, messages) = (20 * number, 20 - lead_in);
            let block = Block {
                test,
                message_bytes: BYTES as u32,
                first_sequence,
                lead_in,
                messages,
                lasts_ns,
                pace_bit_s: None,
            };
            side.prepare(&block, receiver).unwrap();
            let outcome = match (test, receiver) {
                (Test::Pingpong, Sender::Passive) => pingpong::passive(&mut side, &block, || false).unwrap(),
                (Test::Stream, _) if block.is_timed() => {
                    let mut reception = stream::Reception::new(&side, &block).unwrap();
                    (0..20).for_each(|_| assert!(reception.receive(&mut side, || false).unwrap()));
                    reception.end(&mut side)
                }
                (Test::Stream, _) => stream::passive(&mut side, &block, || false).unwrap(),
                (Test::Bidirectional, Sender::Passive) => bidirectional::passive(&mut side, &block, || false).unwrap(),
                (_, Sender::Active) => {
                    let samples = match test {
                        Test::Pingpong => pingpong::active(&mut side, &block).unwrap(),
                        _ => bidirectional::active(&mut side, &block).unwrap(),
                    };
                    crate::protocol::Outcome { received: messages, corrupt: samples.corrupt, ..Default::default() }
                }
            };
            assert_eq!((outcome.received, outcome.corrupt), (messages, 0));
        }
        let addresses = addresses.lock().unwrap();
        addresses.len()
    }

    #[test]
    fn without_the_cache_every_receiver_walks_through_all_of_the_memory() {
        for (test, sender, lasts_ns) in [
            (Test::Pingpong, Sender::Active, 0),
            (Test::Pingpong, Sender::Passive, 0),
            (Test::Stream, Sender::Active, 0),
            (Test::Stream, Sender::Active, 1),
            (Test::Bidirectional, Sender::Active, 0),
            (Test::Bidirectional, Sender::Passive, 0),
        ] {
            let walked = buffers(test, sender, 30 * BYTES, lasts_ns, 3);
            assert!((30..=31).contains(&walked), "{test:?} from {sender:?}, {lasts_ns} ns: {walked} buffers");
        }
    }

    #[test]
    fn a_stream_is_timed_from_the_last_message_of_the_lead_in_and_only_from_it() {
        for (lost, has_duration) in [(None, true), (Some(0), true), (Some(2), false)] {
            let (pattern, addresses) = (Pattern::new(SEED, 64, 0, 0), Arc::default());
            let ready = Ready { pattern, sender: Sender::Active, next: 0, lost, addresses };
            let mut side = Side::new(Box::new(ready), &session(0));
            let (test, lead_in, messages) = (Test::Stream, 3, 17);
            let block =
                Block { test, message_bytes: 64, first_sequence: 0, lead_in, messages, lasts_ns: 0, pace_bit_s: None };
            side.prepare(&block, Sender::Passive).unwrap();
            let outcome = stream::passive(&mut side, &block, || false).unwrap();
            assert_eq!((outcome.received, outcome.duration_ns > 0), (17, has_duration), "{lost:?} is lost");
        }
    }

    #[test]
    fn in_the_cache_no_receiver_uses_more_memory_than_it_needs() {
        assert_eq!(buffers(Test::Pingpong, Sender::Active, 0, 0, 3), 3);
        assert_eq!(buffers(Test::Bidirectional, Sender::Active, 0, 0, 3), 1);
        assert_eq!(buffers(Test::Stream, Sender::Active, 0, 1, 3), 17);
        assert!(buffers(Test::Stream, Sender::Active, 0, 0, 3) <= 21);
    }

    #[test]
    fn memory_that_does_not_exist_is_wrong_use() {
        for walk_bytes in [usize::MAX, 1 << 55] {
            assert!(matches!(require_memory(walk_bytes), Err(LaunchError::WrongUse(text)) if text.contains("--walk")));
        }
        require_memory(1 << 20).unwrap();
    }
}
