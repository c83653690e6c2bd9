// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of the control channel between both sides of a measurement: one JSON object a line.

use std::net::SocketAddr;

use crate::client::Failure;
use crate::sizes::MESSAGE_BYTES_MAX;
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;
use serde::{Deserialize, Serialize};

/// Protocol version; both sides must have the same.
pub const VERSION: u32 = 6;
/// Most payload of a stream's block that ends by count: a schedule asks for five of the longest messages at most.
const KEPT_BYTES_MAX: u64 = 8 * MESSAGE_BYTES_MAX as u64;
/// Least MTU of an interface, IPv4's.
const MTU_MIN: usize = 68;
/// Longest block that ends by time: a schedule asks for 50 ms for each process.
const BLOCK_NS_MAX: u64 = 60_000_000_000;

/// From the active side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Request {
    /// Set up one transport.
    Open(Session),
    /// The active side's end of the transport exists.
    Connect { endpoint: Endpoint },
    /// Take part in one block of messages.
    Block(Block),
    /// The active side has finished the block, having sent this many messages, lead-in included.
    EndBlock { sent: u32 },
}

/// From the passive side: one for each request. [`Reply::Done`] answers [`Request::EndBlock`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Reply {
    Ready { endpoint: Endpoint, host: Host },
    Connected,
    Started,
    Done(Outcome),
    Refused(Failure),
}

/// Parameters of a session, common to both sides.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    pub version: u32,
    pub transport: Kind,
    /// Absent in version 1, which must parse, so that it is refused for its version.
    #[serde(default)]
    pub link: LinkKind,
    pub wait: Wait,
    pub seed: u64,
    /// Random; equal in all pairs of a run except for the lowest byte, the pair's number.
    pub session: u32,
    /// Number of concurrent pairs.
    pub pairs: u8,
    /// This pair's number.
    pub pair: u8,
    /// Each pair has its own process on both sides.
    #[serde(default)]
    pub processes: bool,
    /// Memory to walk through before a buffer is reused; 0 keeps messages in the cache.
    pub walk_bytes: usize,
    /// Yield the core while waiting, because other pairs or hosts need it.
    pub give_way: bool,
    /// For endpoint, messages and libfabric: the job token, random.
    #[serde(default)]
    pub token: u64,
    /// For libfabric: the provider's name in libfabric's notation.
    #[serde(default)]
    pub provider: Option<String>,
    /// For endpoint and messages: values that override both sides' tuning files.
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
    /// The kernel's LLC type 2, AF_LLC.
    #[serde(rename = "kernel-llc2")]
    #[value(name = "kernel-llc2")]
    KernelLlc2,
    /// U-Net endpoints: over LLC type 2, or shared memory if both sides use the same interface.
    Endpoint,
    /// The message layer over such an endpoint: tags, matching, eager and rendezvous.
    Messages,
    /// Tagged messages through libfabric, over one of its providers.
    Libfabric,
}

/// The link for frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// AF_PACKET: the interface stays shared.
    #[default]
    Packet,
    /// AF_XDP in the fastest mode that the interface supports.
    Xdp,
    /// AF_XDP with a generic hook, which every interface has.
    XdpGeneric,
    /// AF_XDP with a native hook, copying.
    XdpNative,
    /// AF_XDP with a native hook, zero-copy.
    XdpZerocopy,
    /// Each frame's content in a UDP datagram: needs no privilege, and crosses routers.
    Udp,
}

impl LinkKind {
    /// Whether one pair takes an interface's queue.
    pub fn is_xdp(self) -> bool {
        !matches!(self, Self::Packet | Self::Udp)
    }
}

/// How a side waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Poll continuously.
    Spin,
    /// Poll for a while, then sleep in the kernel.
    Adaptive,
    /// Sleep in the kernel.
    Block,
    /// Sleep in the kernel, which first busy-polls the device (TCP, UDP and AF_XDP).
    Busypoll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    Pingpong,
    Stream,
    Bidirectional,
}

/// One uninterrupted sequence of messages.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Block {
    pub test: Test,
    pub message_bytes: u32,
    pub first_sequence: u32,
    /// Stream: messages sent immediately before the timed ones.
    pub lead_in: u32,
    /// Timed messages; an upper bound in a timed block.
    pub messages: u32,
    /// A timed block ends this long after its first message; 0: the block ends by count.
    pub lasts_ns: u64,
    /// Most wire bits per second that a side may send.
    pub pace_bit_s: Option<f64>,
}

impl Block {
    /// Whether it ends by time, so that several processes end together.
    pub fn is_timed(&self) -> bool {
        self.lasts_ns > 0
    }

    /// Refuses a block that no schedule asks for: it would need no memory, or too much.
    pub fn check(&self) -> Result<(), LaunchError> {
        let messages = u64::from(self.lead_in) + u64::from(self.messages);
        // The receiver of such a stream keeps every message.
        let is_kept = self.test == Test::Stream && !self.is_timed();
        if (1..=MESSAGE_BYTES_MAX).contains(&self.message_bytes)
            && u32::try_from(messages).is_ok()
            && (self.messages > 0 || self.is_timed())
            && (messages * u64::from(self.message_bytes) <= KEPT_BYTES_MAX || !is_kept)
            && self.lasts_ns <= BLOCK_NS_MAX
        {
            return Ok(());
        }
        Err(LaunchError::Failed(format!("no block can be as the active side requests it: {self:?}")))
    }

    /// When a block that begins now ends.
    pub fn deadline_ns(&self) -> u64 {
        if self.is_timed() { now_ns() + self.lasts_ns } else { u64::MAX }
    }
}

/// A receiver's progress at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// `CLOCK_MONOTONIC` of the receiver's machine.
    pub at_ns: u64,
    /// Timed messages received so far.
    pub messages: u32,
}

/// The passive side's record of a block.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Timed messages received.
    pub received: u32,
    /// Messages received with a wrong payload.
    pub corrupt: u32,
    /// Stream: time from the last message of the lead-in to the last message.
    pub duration_ns: u64,
    /// Timed stream: progress from the end of the lead-in to the last message.
    pub marks: Vec<Mark>,
    pub counters: Counters,
}

/// Environment of one side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    pub kernel: String,
    pub cpu: Option<usize>,
    pub interface: Option<String>,
    pub ip: Option<String>,
}

/// Anomalies of a transport, counted only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames or datagrams with other addresses, another session or a foreign header.
    pub foreign: u64,
    /// Frames or datagrams of this session with a wrong length.
    pub malformed: u64,
    /// Fragments of messages already received or given up.
    pub stale: u64,
    /// Fragments received twice.
    pub duplicate: u64,
    /// Messages given up with some fragments missing.
    pub incomplete: u64,
    /// I PDUs retransmitted (llc2).
    pub repeated: u64,
    /// Frames dropped because the receive ring was full.
    pub ring_full: u64,
    /// Sends that the transport refused because it was busy.
    pub send_busy: u64,
}

impl Counters {
    /// Adds another transport's counters.
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

/// An end of a link for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Station {
    pub address: [u8; 6],
    pub mtu: usize,
    /// Where datagrams reach it, for UDP.
    pub socket: Option<SocketAddr>,
}

/// An end of the kernel's LLC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sap {
    pub address: [u8; 6],
    pub sap: u8,
    pub mtu: usize,
}

/// Address of one end of a transport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    Socket(SocketAddr),
    Station(Station),
    Sap(Sap),
    /// A libfabric endpoint's address in the provider's format.
    Fabric {
        name: Vec<u8>,
    },
}

impl Endpoint {
    /// The peer's endpoint as this host reaches it. A link-local address comes with the number of the peer's interface;
    /// `scope_id` is the number of this host's.
    pub fn within(mut self, scope_id: u32) -> Result<Self, LaunchError> {
        match &mut self {
            Self::Socket(SocketAddr::V6(v6)) if v6.ip().is_unicast_link_local() => v6.set_scope_id(scope_id),
            Self::Station(Station { mtu, .. }) | Self::Sap(Sap { mtu, .. }) if *mtu < MTU_MIN => {
                return Err(LaunchError::Failed(format!("the peer's interface cannot have an MTU of {mtu}")));
            }
            _ => {}
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_link_local_endpoint_gets_the_interface_of_this_host() {
        for (told, reached) in [
            ("[fe80::2%2]:7", "[fe80::2%5]:7"),
            ("[fe80::2]:7", "[fe80::2%5]:7"),
            ("[fd00::2]:7", "[fd00::2]:7"),
            ("10.0.0.2:7", "10.0.0.2:7"),
        ] {
            let told = Endpoint::Socket(told.parse().unwrap());
            assert_eq!(told.within(5).unwrap(), Endpoint::Socket(reached.parse().unwrap()));
        }
    }

    #[test]
    fn an_interface_without_room_for_headers_is_refused() {
        for (mtu, is_possible) in [(0, false), (12, false), (1500, true)] {
            let station = Endpoint::Station(Station { address: [2; 6], mtu, socket: None });
            let sap = Endpoint::Sap(Sap { address: [2; 6], sap: 16, mtu });
            assert!([station, sap].map(|told| told.within(0).is_ok()) == [is_possible; 2], "{mtu}");
        }
    }

    #[test]
    fn only_blocks_that_a_schedule_asks_for_are_possible() {
        let stream = Block {
            test: Test::Stream,
            message_bytes: MESSAGE_BYTES_MAX,
            first_sequence: u32::MAX,
            lead_in: 1,
            messages: 4,
            lasts_ns: 0,
            pace_bit_s: None,
        };
        let timed = Block { lasts_ns: 50_000_000, messages: u32::MAX - 1, ..stream };
        let round_trips = Block { test: Test::Pingpong, messages: 1000, ..stream };
        let warm_up = Block { messages: 0, lasts_ns: 1, ..round_trips };
        for possible in [stream, timed, round_trips, warm_up] {
            possible.check().unwrap();
        }
        for impossible in [
            Block { message_bytes: 0, ..stream },
            Block { message_bytes: MESSAGE_BYTES_MAX + 1, ..stream },
            Block { messages: 8, ..stream },
            Block { messages: 0, ..round_trips },
            Block { message_bytes: 1, messages: u32::MAX, ..stream },
            Block { lead_in: 2, ..timed },
            Block { lasts_ns: u64::MAX, ..timed },
        ] {
            assert!(matches!(impossible.check(), Err(LaunchError::Failed(_))), "{impossible:?}");
        }
    }
}
