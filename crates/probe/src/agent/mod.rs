// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `barewire-probe agent`: one host of `barewire cluster check`, which tells it over standard input what to measure.
//!
//! Commands are JSON Lines; each is answered by one record of its `number` on standard output, when it is done. Several
//! may run at once, and requests of other agents are answered meanwhile. The process sleeps whenever it waits, so that
//! more hosts than cores can be emulated. It ends with its input.

mod facts;
mod frame;
mod ping;
mod stream;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use barewire_link::{
    ETHERNET_HEADER_BYTES, Field, Filter, Interface, IpInterface, Link, LinkError, MacAddress, Outgoing, PacketConfig,
    PacketLink, UdpConfig, UdpLink,
};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;
use clap::{Args, ValueEnum};
use frame::{ETHER_TYPE, FRAME_HEADER_BYTES, HEADER_BYTES, Header, Kind, PAYLOAD_BYTES_MIN};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ping::Ping;
use serde::Deserialize;
use serde_json::{Value, json};
use stream::{Inbound, Outbound};

use crate::measure::INTERRUPTED;

/// Longest sleep, after which interruptions are noticed.
const IDLE: Duration = Duration::from_millis(200);
/// Pause after the interface has refused a frame.
const BUSY_NS: u64 = 200_000;
/// Frames per call of the link, after which what has arrived is handled.
const BATCH: u32 = 16;
/// Most received streams whose result was not requested yet. A further one replaces the one idle for longest, for
/// example one with a frame that arrived after its result was reported.
const STREAMS_MAX: usize = 64;
/// Holds what arrives while the scheduler lets this process wait: 20 ms at 1 Gb/s.
const RING_BYTES: usize = 4 << 20;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Over {
    /// Frames, or UDP where this process may not send frames
    Auto,
    Packet,
    Udp,
}

#[derive(Args)]
pub struct AgentCommand {
    /// Interface to measure
    #[arg(long)]
    interface: String,
    /// What carries the measurement
    #[arg(long, value_enum, default_value = "auto")]
    link: Over,
}

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Order {
    /// Round trips; payloads in bytes.
    Ping { number: u32, peer: String, bytes: usize, reply_bytes: usize, count: u32, enough: u32, timeout_ms: u64 },
    /// Send a stream; `bytes` is the payload of each frame.
    Stream { number: u32, peer: String, bytes: usize, window: u32, milliseconds: u64 },
    /// Report what has been received of a stream, and forget it.
    Received { number: u32, stream: u32 },
    /// Compute; nothing else happens meanwhile.
    Work { number: u32, milliseconds: u64 },
    /// Report speed, duplex and error counters of the interface.
    Interface { number: u32 },
}

pub fn run(command: &AgentCommand) -> Result<(), LaunchError> {
    let carrier = open(command)?;
    // With UDP, the link's address is made from a socket's: take the interface's.
    let interface = Interface::by_name(&command.interface)?;
    let hardware = interface.address;
    let mut agent = Agent {
        link: carrier.link,
        interface: command.interface.clone(),
        hardware,
        pings: Vec::new(),
        outbound: Vec::new(),
        inbound: HashMap::new(),
        filling: vec![0; usize::from(u16::MAX)],
    };
    let ready = json!({
        "record": "ready",
        "address": agent.link.address().to_string(),
        "payload_bytes_max": agent.link.mtu(),
        "mtu": interface.mtu,
        "carrier": carrier.name,
        "reason": carrier.reason,
        "machine": facts::machine(),
        "cores": barewire_recorder::cpu::allowed(),
        "interface": facts::interface(&command.interface, Some(hardware)),
    });
    println!("{ready}");
    agent.serve()
}

/// What carries the measurement, and why it is not frames if these were preferred.
struct Carrier {
    link: Box<dyn Link>,
    name: &'static str,
    reason: Option<String>,
}

fn open(command: &AgentCommand) -> Result<Carrier, LaunchError> {
    let name = command.interface.clone();
    let mut reason = None;
    if command.link != Over::Udp {
        let filter = Filter::all_of(&[Field::word(12, ETHER_TYPE)]);
        let config = PacketConfig { interface: name.clone(), protocol: ETHER_TYPE, filter, ring_bytes: RING_BYTES };
        match PacketLink::open(&config) {
            Ok(link) => return Ok(Carrier { link: Box::new(link), name: "packet", reason }),
            Err(error @ LinkError::NotPermitted) if command.link == Over::Auto => {
                reason = Some(error.to_string());
            }
            Err(error) => return Err(error.into()),
        }
    }
    // Fails early with a clear message if there is no address.
    IpInterface::by_name(&name)?;
    let link = UdpLink::open(&UdpConfig { interface: name, others: Vec::new(), ports: None, sources: 1 })?;
    Ok(Carrier { link: Box::new(link), name: "udp", reason })
}

struct Agent {
    link: Box<dyn Link>,
    interface: String,
    hardware: MacAddress,
    pings: Vec<Ping>,
    outbound: Vec<Outbound>,
    inbound: HashMap<u32, Inbound>,
    /// What frames are filled with.
    filling: Vec<u8>,
}

impl Agent {
    fn serve(&mut self) -> Result<(), LaunchError> {
        let mut unread = Vec::new();
        let stdin =
            std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| LaunchError::system("stdin", error))?;
        // Unbuffered, so that poll sees what is left.
        let mut input = File::from(stdin);
        while !INTERRUPTED.load(Ordering::Relaxed) {
            self.receive()?;
            let deadline_ns = self.advance()?;
            let idle_ns = u64::try_from(IDLE.as_nanos()).unwrap_or(u64::MAX);
            let patience_ns = deadline_ns.saturating_sub(now_ns()).min(idle_ns);
            self.link.wait_to_receive_or(&[input.as_fd()], Duration::from_nanos(patience_ns))?;
            if has_input(&input)? && !self.read_orders(&mut input, &mut unread)? {
                return Ok(());
            }
        }
        Err(LaunchError::Interrupted)
    }

    /// Reads the available input; false at its end.
    fn read_orders(&mut self, input: &mut File, unread: &mut Vec<u8>) -> Result<bool, LaunchError> {
        let mut chunk = [0; 4096];
        let count = input.read(&mut chunk).map_err(|error| LaunchError::system("read", error))?;
        unread.extend_from_slice(&chunk[..count]);
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = unread.drain(..=end).collect();
            let order = serde_json::from_slice(&line)
                .map_err(|error| LaunchError::WrongUse(format!("not a command for an agent: {error}")))?;
            self.obey(order)?;
        }
        Ok(count > 0)
    }

    fn obey(&mut self, order: Order) -> Result<(), LaunchError> {
        match order {
            Order::Ping { number, peer, bytes, reply_bytes, count, enough, timeout_ms } => {
                let (bytes, reply_bytes) = (self.payload_bytes(bytes)?, self.payload_bytes(reply_bytes)?);
                let timeout_ns = timeout_ms * 1_000_000;
                self.pings.push(Ping::new(number, mac(&peer)?, (bytes, reply_bytes), count, enough, timeout_ns));
            }
            Order::Stream { number, peer, bytes, window, milliseconds } => {
                let (bytes, duration_ns) = (self.payload_bytes(bytes)?, milliseconds * 1_000_000);
                let window = window.max(1);
                self.outbound.push(Outbound::new(number, mac(&peer)?, bytes, window, now_ns(), duration_ns));
            }
            Order::Received { number, stream } => {
                let dropped = self.link.counters()?.receive_dropped;
                let inbound = self.inbound.remove(&stream);
                let inbound = inbound.unwrap_or_else(|| Inbound::new(dropped));
                answer(
                    number,
                    &json!({
                        "received": inbound.received,
                        "reordered": inbound.reordered,
                        "nanoseconds": inbound.last_ns - inbound.first_ns,
                        "dropped_here": dropped - inbound.dropped_before,
                    }),
                );
            }
            Order::Work { number, milliseconds } => answer(number, &facts::work(milliseconds * 1_000_000)?),
            Order::Interface { number } => answer(number, &facts::interface(&self.interface, Some(self.hardware))),
        }
        Ok(())
    }

    /// A payload's length as it is sent: at least Ethernet's minimum. WrongUse if the interface does not take it.
    fn payload_bytes(&self, bytes: usize) -> Result<usize, LaunchError> {
        if bytes > self.filling.len() || bytes > self.link.mtu() {
            let text = format!("a payload of {bytes} bytes exceeds the interface's MTU {}", self.link.mtu());
            return Err(LaunchError::WrongUse(text));
        }
        Ok(bytes.max(PAYLOAD_BYTES_MIN))
    }

    /// Handles all frames that have arrived.
    fn receive(&mut self) -> Result<(), LaunchError> {
        self.link.check()?;
        while let Some(frame) = self.link.receive() {
            let Some((source, header)) = Header::parse(frame.bytes) else { continue };
            match header.kind {
                Kind::Echo => {
                    // No longer than the request, so that requests cannot be amplified.
                    let request_bytes = frame.frame_bytes - ETHERNET_HEADER_BYTES;
                    let bytes = (header.value as usize).min(request_bytes).max(PAYLOAD_BYTES_MIN);
                    self.send(source, Header { kind: Kind::Reply, value: 0, ..header }, bytes)?;
                }
                Kind::Reply => {
                    if let Some(ping) = self.pings.iter_mut().find(|ping| ping.number == header.number) {
                        ping.reply(header.sequence, now_ns());
                    }
                }
                Kind::Data => {
                    if !self.inbound.contains_key(&header.number) {
                        if self.inbound.len() == STREAMS_MAX
                            && let Some(quiet) = self.inbound.iter().min_by_key(|(_, stream)| stream.last_ns)
                        {
                            let number = *quiet.0;
                            self.inbound.remove(&number);
                        }
                        let dropped_before = self.link.counters()?.receive_dropped;
                        self.inbound.insert(header.number, Inbound::new(dropped_before));
                    }
                    let due = self.inbound.get_mut(&header.number).and_then(|it| it.take(header.sequence, now_ns()));
                    if let Some(expected) = due {
                        let ack = Header { kind: Kind::Ack, number: header.number, sequence: expected, value: 0 };
                        self.send(source, ack, PAYLOAD_BYTES_MIN)?;
                    }
                }
                Kind::End => {
                    self.send(source, Header { kind: Kind::Ack, value: 1, ..header }, PAYLOAD_BYTES_MIN)?;
                }
                Kind::Ack => {
                    if let Some(stream) = self.outbound.iter_mut().find(|stream| stream.number == header.number) {
                        stream.acknowledge(header.sequence, header.value == 1, now_ns());
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends one frame; one that the interface does not take is lost, as on a wire.
    fn send(&mut self, to: MacAddress, header: Header, payload_bytes: usize) -> Result<(), LaunchError> {
        let header = header.emit(to, self.link.address());
        let payload = &self.filling[..payload_bytes - HEADER_BYTES];
        self.link.send(&[Outgoing { header: &header, payload, label: 0 }])?;
        Ok(())
    }

    /// Advances the commands in progress; returns the latest time of the next call.
    fn advance(&mut self) -> Result<u64, LaunchError> {
        let mut deadline_ns = u64::MAX;
        for mut ping in std::mem::take(&mut self.pings) {
            match self.advance_ping(&mut ping)? {
                Some(until_ns) => {
                    deadline_ns = deadline_ns.min(until_ns);
                    self.pings.push(ping);
                }
                None => {
                    answer(ping.number, &json!({"round_trips_ns": ping.round_trips_ns, "lost": ping.lost}));
                }
            }
        }
        for mut stream in std::mem::take(&mut self.outbound) {
            match self.advance_stream(&mut stream)? {
                Ok(until_ns) => {
                    deadline_ns = deadline_ns.min(until_ns);
                    self.outbound.push(stream);
                }
                Err(told) => answer(stream.number, &told),
            }
        }
        Ok(deadline_ns)
    }

    /// Returns when to continue; `None` when it is over.
    fn advance_ping(&mut self, ping: &mut Ping) -> Result<Option<u64>, LaunchError> {
        let now = now_ns();
        match ping.step(now) {
            ping::Step::Over => Ok(None),
            ping::Step::Wait { until_ns } => Ok(Some(until_ns)),
            ping::Step::Ask { sequence } => {
                let value = ping.reply_bytes as u32;
                let header = Header { kind: Kind::Echo, number: ping.number, sequence, value };
                // A frame that the interface refuses is lost as well: a veth refuses what is too long for its peer.
                self.send(ping.peer, header, ping.bytes)?;
                ping.asked(now);
                Ok(Some(now))
            }
        }
    }

    /// Returns when to continue, or the answer when it is over.
    fn advance_stream(&mut self, stream: &mut Outbound) -> Result<Result<u64, Value>, LaunchError> {
        let now = now_ns();
        match stream.step(now) {
            stream::Step::Over { sent, nanoseconds } => {
                Ok(Err(json!({"sent": sent, "nanoseconds": nanoseconds, "stalls": stream.stalls})))
            }
            stream::Step::Wait { until_ns } => Ok(Ok(until_ns)),
            stream::Step::End { sequence } => {
                let header = Header { kind: Kind::End, number: stream.number, sequence, value: 0 };
                self.send(stream.peer, header, PAYLOAD_BYTES_MIN)?;
                stream.end_sent(now);
                Ok(Ok(now))
            }
            stream::Step::Data { sequence, count } => {
                let count = count.min(BATCH);
                let sent = self.send_data(stream, sequence, count)?;
                stream.sent(sent);
                Ok(Ok(if sent < count { now + BUSY_NS } else { now }))
            }
        }
    }

    fn send_data(&mut self, stream: &Outbound, sequence: u32, count: u32) -> Result<u32, LaunchError> {
        let from = self.link.address();
        let headers: Vec<[u8; FRAME_HEADER_BYTES]> = (sequence..sequence + count)
            .map(|sequence| Header { kind: Kind::Data, number: stream.number, sequence, value: 0 })
            .map(|header| header.emit(stream.peer, from))
            .collect();
        let payload = &self.filling[..stream.bytes + ETHERNET_HEADER_BYTES - FRAME_HEADER_BYTES];
        let frames: Vec<Outgoing<'_>> = headers.iter().map(|header| Outgoing { header, payload, label: 0 }).collect();
        Ok(self.link.send(&frames)? as u32)
    }
}

fn answer(number: u32, told: &Value) {
    println!("{}", json!({"record": "answer", "number": number, "told": told}));
}

fn mac(text: &str) -> Result<MacAddress, LaunchError> {
    MacAddress::from_str(text).map_err(|error| LaunchError::WrongUse(format!("{text}: {error}")))
}

fn has_input(input: &File) -> Result<bool, LaunchError> {
    let mut inputs = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    let ready = poll(&mut inputs, PollTimeout::ZERO).map_err(|error| LaunchError::system("poll", error))?;
    Ok(ready > 0)
}

#[cfg(test)]
mod tests {
    use barewire_link::{Faults, MemoryLink};

    use super::*;

    #[test]
    fn streams_that_nobody_asks_for_do_not_keep_later_ones_out() {
        let (mut peer, link) = MemoryLink::pair(1500, Faults::default(), 1);
        let (from, to) = (peer.address(), link.address());
        let mut agent = Agent {
            link: Box::new(link),
            interface: String::new(),
            hardware: to,
            pings: Vec::new(),
            outbound: Vec::new(),
            inbound: HashMap::new(),
            filling: Vec::new(),
        };
        for number in 0..=STREAMS_MAX as u32 {
            let header = Header { kind: Kind::Data, number, sequence: 0, value: 0 }.emit(to, from);
            peer.send(&[Outgoing { header: &header, payload: &[0; 46], label: 0 }]).unwrap();
            agent.receive().unwrap();
        }
        assert!(agent.inbound.contains_key(&(STREAMS_MAX as u32)) && agent.inbound.len() == STREAMS_MAX);
    }
}
