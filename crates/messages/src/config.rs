// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a user of the message layer may choose, and why the defaults are what they are.

use barewire_endpoint::Tuning;

/// How a messenger is made. How long a dead peer is waited for follows from the endpoint's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Up to so many bytes a message is sent at once, whether it is waited for or not.
    pub eager_bytes: usize,
    /// From so many bytes on, and above [`eager_bytes`](Self::eager_bytes) in any case, a local peer fetches a message
    /// itself; 0: never.
    pub fetched_bytes: usize,
    /// Sends that are not completed, at most, and as many accesses to peers' memory; more are refused until some are.
    pub sends: usize,
    /// Bytes of such sends that were copied, at most: then more are refused. What is sent from the caller's memory does not count.
    pub copied_bytes: usize,
    /// Receives that are not completed, at most.
    pub receives: usize,
    /// Bytes of messages that came before their receives, at most. At half of it peers are asked to announce what they
    /// send; at all of it they wait, also with what is expected. So half of it should be more than all peers have under
    /// way: a pipe or a window each.
    pub unexpected_bytes: usize,
    /// Such messages and announcements, at most: then peers wait.
    pub unexpected_messages: usize,
    /// Of the endpoint's send descriptors, those that one peer may have, so that one that takes nothing does not stop
    /// the others.
    pub descriptors_per_peer: u16,
    /// Addresses that are known because they connected, at most; others are turned away.
    pub peers: usize,
    /// Peers that connected, and that this process has not named itself ([`Messenger::peer`](crate::Messenger::peer)),
    /// may access registered memory: where whoever can connect belongs to the job.
    pub memory_for_all: bool,
    /// Bytes of a write to a peer's memory that go in one message of the endpoint's, which takes 4 GiB at most.
    pub cut_bytes: u32,
    /// Frames of a rendezvous that go in one message of the endpoint's, 1 to 4096: others to the same peer, such as the
    /// leave to send for its own, wait for the end of one and for what the engine or the pipe holds.
    pub cut_frames: usize,
    /// Bytes of the longest message that can be injected, if that is more than go in one frame.
    pub inject_bytes: usize,
    /// A fault to have, for the tests of tests.
    #[cfg(feature = "mutants")]
    pub mutant: Option<crate::Mutant>,
}

impl Config {
    /// Default of what is measured on a machine.
    pub const EAGER_BYTES: usize = Tuning::EAGER_BYTES;
    /// Up to here a copy costs little, however short a frame is.
    pub const INJECT_BYTES: usize = 8 << 10;
    /// Default of what is measured on a machine.
    pub const FETCHED_BYTES: usize = Tuning::FETCHED_BYTES;
    /// A program may post all its sends before its peers post a receive, and they likewise: over TCP only memory bounds that,
    /// and whoever is refused there stands still for ever. So this bounds memory alone: 200 bytes each, when they are used.
    pub const SENDS: usize = 1 << 20;
    /// Short messages without end to a peer that takes none are held back in the end.
    pub const COPIED_BYTES: usize = 256 << 20;
    /// See [`SENDS`](Self::SENDS).
    pub const RECEIVES: usize = 1 << 20;
    /// A thousand peers with an eager message of the longest kind each.
    pub const UNEXPECTED_BYTES: usize = 64 << 20;
    /// See [`SENDS`](Self::SENDS): what the others have sent by then.
    pub const UNEXPECTED_MESSAGES: usize = 1 << 20;
    /// A quarter of the endpoint's.
    pub const DESCRIPTORS_PER_PEER: u16 = 64;
    /// A number is never given twice, so this bounds what those that come and go cost: 200 bytes each.
    pub const PEERS: usize = 1 << 16;
    /// Long enough that a cut costs nothing.
    pub const CUT_BYTES: u32 = 1 << 30;
    /// A window: those are under way anyway.
    pub const CUT_FRAMES: usize = 64;

    /// With what was measured on this machine.
    #[must_use]
    pub fn tuned(tuning: &Tuning) -> Self {
        let descriptors_per_peer = (tuning.send_descriptors / 4) as u16;
        Self {
            eager_bytes: tuning.eager_bytes,
            fetched_bytes: tuning.fetched_bytes,
            descriptors_per_peer,
            ..Self::default()
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            eager_bytes: Self::EAGER_BYTES,
            fetched_bytes: Self::FETCHED_BYTES,
            sends: Self::SENDS,
            copied_bytes: Self::COPIED_BYTES,
            receives: Self::RECEIVES,
            unexpected_bytes: Self::UNEXPECTED_BYTES,
            unexpected_messages: Self::UNEXPECTED_MESSAGES,
            descriptors_per_peer: Self::DESCRIPTORS_PER_PEER,
            peers: Self::PEERS,
            memory_for_all: true,
            cut_bytes: Self::CUT_BYTES,
            cut_frames: Self::CUT_FRAMES,
            inject_bytes: 0,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}
