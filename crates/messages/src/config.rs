// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Configuration of the message layer, and the reasons for its defaults.

use barewire_endpoint::Tuning;

/// Configuration of a messenger. The timeout for an unreachable peer belongs to the endpoint's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Size in bytes up to which a message is sent eagerly, whether or not a receive is posted.
    pub eager_bytes: usize,
    /// Size in bytes from which a local peer fetches a message by itself, and in any case above
    /// [`eager_bytes`](Self::eager_bytes); 0: never.
    pub fetched_bytes: usize,
    /// Limit of outstanding sends, and of outstanding accesses to peers' memory; further ones are refused with
    /// [`PostError::Full`](crate::PostError::Full).
    pub sends: usize,
    /// Limit in bytes of the copies that outstanding sends hold; further ones are refused likewise. Sends from the
    /// caller's memory do not count.
    pub copied_bytes: usize,
    /// Limit in bytes of copies, above which sends to a stalled peer are not copied.
    pub buffered_bytes: usize,
    /// Limit of outstanding receives.
    pub receives: usize,
    /// Limit in bytes of unexpected messages. From half of it on, peers are told to use rendezvous only; at the limit,
    /// flow control stops them, expected messages included. So half of it should exceed what all peers can have in
    /// flight: a pipe or a window each. At least a frame's. What peers that are gone have left may exceed this limit and
    /// the next one, by as much again.
    pub unexpected_bytes: usize,
    /// Limit of unexpected messages and rendezvous requests; then flow control stops the peers.
    pub unexpected_messages: usize,
    /// Limit of known peers; connections from further addresses are closed.
    pub peers: usize,
    /// Bytes of a write in one endpoint message, whose limit is 4 GiB.
    pub write_chunk_bytes: u32,
    /// Frames of rendezvous data in one endpoint message, 1 to 4096. Other messages to the same peer, such as answers
    /// to its own requests, wait for the end of one chunk and for what the engine or the pipe holds.
    pub rendezvous_chunk_frames: usize,
    /// Bytes of the longest message that can be injected, if that exceeds one frame.
    pub inject_bytes: usize,
    /// The fault to inject, to test the tests.
    #[cfg(feature = "mutants")]
    pub mutant: Option<crate::Mutant>,
}

impl Config {
    /// Default of a value that is measured on each machine.
    pub const EAGER_BYTES: usize = Tuning::EAGER_BYTES;
    /// A copy of this size is cheap, however short a frame is.
    pub const INJECT_BYTES: usize = 8 << 10;
    /// Default of a value that is measured on each machine.
    pub const FETCHED_BYTES: usize = Tuning::FETCHED_BYTES;
    /// A program may post all its sends before its peers post a receive, and so may its peers. Over TCP only memory
    /// bounds that, and such a program would deadlock if a post were refused. So this limit only bounds memory: 200
    /// bytes for each send in use.
    pub const SENDS: usize = 1 << 20;
    /// Bounds an endless stream of short messages to a peer that receives none.
    pub const COPIED_BYTES: usize = 256 << 20;
    /// What TCP buffers by default for four peers that do not receive.
    pub const BUFFERED_BYTES: usize = 16 << 20;
    /// See [`SENDS`](Self::SENDS).
    pub const RECEIVES: usize = 1 << 20;
    /// An eager message of maximum length from each of five hundred peers.
    pub const UNEXPECTED_BYTES: usize = 64 << 20;
    /// See [`SENDS`](Self::SENDS): what peers may have sent before a receive is posted.
    pub const UNEXPECTED_MESSAGES: usize = 1 << 20;
    /// A peer's number is never reused, so this bounds the memory of peers that come and go: 200 bytes each.
    pub const PEERS: usize = 1 << 16;
    /// Answers to the peer leave between chunks. Long enough that the last frame of each, which is not full, costs less
    /// than 1 %.
    pub const WRITE_CHUNK_BYTES: u32 = 256 << 10;
    /// A window, which is in flight anyway.
    pub const RENDEZVOUS_CHUNK_FRAMES: usize = 64;

    /// Configuration with the values measured on this machine.
    #[must_use]
    pub fn tuned(tuning: &Tuning) -> Self {
        Self { eager_bytes: tuning.eager_bytes, fetched_bytes: tuning.fetched_bytes, ..Self::default() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            eager_bytes: Self::EAGER_BYTES,
            fetched_bytes: Self::FETCHED_BYTES,
            sends: Self::SENDS,
            copied_bytes: Self::COPIED_BYTES,
            buffered_bytes: Self::BUFFERED_BYTES,
            receives: Self::RECEIVES,
            unexpected_bytes: Self::UNEXPECTED_BYTES,
            unexpected_messages: Self::UNEXPECTED_MESSAGES,
            peers: Self::PEERS,
            write_chunk_bytes: Self::WRITE_CHUNK_BYTES,
            rendezvous_chunk_frames: Self::RENDEZVOUS_CHUNK_FRAMES,
            inject_bytes: 0,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}
