// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the two sides of a measurement say to each other on the control channel: one JSON object a
//! line. The data path carries nothing of this.

use std::net::SocketAddr;

use crate::client::Failure;
use barewire_recorder::clock::now_ns;
use serde::{Deserialize, Serialize};

/// Both sides must speak the same version.
pub const VERSION: u32 = 5;

/// From the active side, which drives.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Request {
    /// Set up one transport.
    Open(Session),
    /// The active side's end of the transport is there.
    Connect { endpoint: Endpoint },
    /// Take part in one block of messages.
    Block(Block),
    /// The active side has finished its part of the block, and sent so many messages, lead-in included.
    EndBlock { sent: u32 },
}

/// From the passive side, one to each request but [`Request::EndBlock`], which ends in [`Reply::Done`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Reply {
    Ready { endpoint: Endpoint, host: Host },
    Connected,
    Started,
    Done(Outcome),
    Refused(Failure),
}

/// What both sides must agree on before the first message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    pub version: u32,
    pub transport: Kind,
    /// Missing from version 1, whose refusal shall be about the version.
    #[serde(default)]
    pub link: LinkKind,
    pub wait: Wait,
    pub seed: u64,
    /// Random, the same in all pairs of a run but for the lowest byte, which is the pair.
    pub session: u32,
    /// How many pairs run at once, and which of them this is.
    pub pairs: u8,
    pub pair: u8,
    /// Each pair is a process of its own, on both sides.
    #[serde(default)]
    pub processes: bool,
    /// Memory to walk through before a buffer is used again; 0 keeps messages in the cache.
    pub walk_bytes: usize,
    /// Give the core away while waiting, because other pairs or hosts need it.
    pub give_way: bool,
    /// Of endpoints and what is above them: the job's token, random.
    #[serde(default)]
    pub token: u64,
    /// Of libfabric: the provider, as it writes it.
    #[serde(default)]
    pub provider: Option<String>,
    /// Of endpoints and messages: what goes before both sides' tuning files.
    #[serde(default)]
    pub tuned: Vec<(String, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Tcp,
    Udp,
    Raw,
    /// As raw, over AF_XDP.
    Xdp,
    Llc1,
    Llc2,
    Llc3,
    /// U-Net endpoints: over LLC type 2, or shared memory if both sides have one interface.
    Endpoint,
    /// The message layer over such an endpoint: tags, matching, eager and rendezvous.
    Messages,
    /// Tagged messages through libfabric, over one of its providers.
    Libfabric,
}

/// What carries the frames of raw and LLC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// AF_PACKET: shares the interface with everybody.
    #[default]
    Packet,
    /// AF_XDP, the best way that the interface has.
    Xdp,
    /// AF_XDP behind the driver: every interface.
    XdpGeneric,
    /// AF_XDP in the driver, with a copy.
    XdpNative,
    /// AF_XDP in the driver, without a copy.
    XdpZerocopy,
}

/// How a side waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Ask again and again.
    Spin,
    /// Ask for a while, then sleep in the kernel.
    Adaptive,
    /// Sleep in the kernel.
    Block,
    /// Sleep in the kernel, which polls the device for a while first (TCP, UDP and AF_XDP).
    Busypoll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    Pingpong,
    Stream,
    Bidirectional,
}

/// One uninterrupted stretch of messages.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Block {
    pub test: Test,
    pub message_bytes: u32,
    pub first_sequence: u32,
    /// Messages of a stream that go before the clock starts, without a pause.
    pub lead_in: u32,
    /// Messages within the clock; of a block by time no more than these.
    pub messages: u32,
    /// A block by time ends so long after its first message; 0 is a block by number.
    pub lasts_ns: u64,
    /// Wire bits per second that a side may send at most.
    pub pace_bit_s: Option<f64>,
}

impl Block {
    /// Whether its end is a matter of time, so that several processes end together.
    pub fn is_by_time(&self) -> bool {
        self.lasts_ns > 0
    }

    /// When a block that begins now ends.
    pub fn deadline_ns(&self) -> u64 {
        if self.is_by_time() { now_ns() + self.lasts_ns } else { u64::MAX }
    }
}

/// How far a receiver was at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// `CLOCK_MONOTONIC` of the receiver's machine.
    pub at_ns: u64,
    /// Messages within the clock by then.
    pub messages: u32,
}

/// What the passive side saw of a block.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Messages received of those within the clock.
    pub received: u32,
    /// Messages received that were not what was sent.
    pub corrupt: u32,
    /// Stream: from the last message of the lead-in to the last message.
    pub duration_ns: u64,
    /// Stream by time: how far it was, from the end of the lead-in to the last message.
    pub marks: Vec<Mark>,
    pub counters: Counters,
}

/// Where a side runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    pub kernel: String,
    pub cpu: Option<usize>,
    pub interface: Option<String>,
    pub ip: Option<String>,
}

/// Counted, never acted upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames or datagrams of somebody else: other addresses, another session, no header of ours.
    pub foreign: u64,
    /// Frames or datagrams with a header of ours and the wrong length.
    pub malformed: u64,
    /// Parts of messages that had already been received or given up.
    pub stale: u64,
    /// Parts that came twice.
    pub duplicate: u64,
    /// Messages of which some parts came and others did not.
    pub incomplete: u64,
    /// I PDUs sent again (llc2).
    pub repeated: u64,
    /// Frames that found the receive ring full.
    pub ring_full: u64,
    /// Times that the transport could not take what was to be sent.
    pub send_busy: u64,
}

impl Counters {
    /// Adds another transport's.
    pub fn add(&mut self, other: &Self) {
        self.foreign += other.foreign;
        self.malformed += other.malformed;
        self.stale += other.stale;
        self.duplicate += other.duplicate;
        self.incomplete += other.incomplete;
        self.repeated += other.repeated;
        self.ring_full += other.ring_full;
        self.send_busy += other.send_busy;
    }
}

/// Where a transport's end can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    Socket(SocketAddr),
    Station {
        address: [u8; 6],
        mtu: usize,
    },
    /// An endpoint's name in its libfabric provider's own form.
    Fabric {
        name: Vec<u8>,
    },
}
