// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An LLC station for foreign peers: plain IEEE 802.2, without our extensions.
//!
//! `connect` sends a pattern over a connection and verifies its echo; `echo` sends back received data, on any number of
//! connections at once; `ask` sends XID and TEST. Events are printed as JSON Lines.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use barewire_link::{Link, MacAddress, Outgoing, PacketConfig, PacketLink};
use barewire_llc::{
    Cause, ConnectionConfig, ConnectionCounters, ConnectionEvent, ConnectionHandle, Delivery, Destination,
    Identification, Lsap, Peer, Source, StationConfig, StationEvent,
};
use barewire_names::Name;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::lossy::Lossy;
use crate::measure::INTERRUPTED;
use crate::names::{AnnounceArguments, PeerArguments};
use crate::transport::links::{launch_error, usage_error};
use crate::transport::llc::reliable::describe_cause;
use barewire_endpoint::{Encapsulation, LinkScope, Port, open_link};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// Header of an I PDU, in bytes.
const LLC_HEADER_BYTES: usize = 4;
/// Most concurrent connections; each may have a full send queue in flight.
const CONNECTIONS: u16 = 32;
/// I PDUs of a connection waiting for room in its send queue, from which the station signals busy (RNR).
const QUEUED_MAX: usize = 64;
/// Minimum of T1, and its value before the first measured round trip. A foreign station may pause for far longer than
/// its round trip, because its host is computing. If T1 then expires twice, two polls are answered, the second answer
/// can be mistaken for that to a third poll, and I PDUs that the peer has received are sent again. That is legal, but
/// not every peer tolerates it.
const T1_MIN: Duration = Duration::from_millis(250);
/// How long to wait for an answer to SABME. A foreign station need not answer for an unbound SAP.
const CONNECT_PATIENCE_NS: u64 = 5_000_000_000;
/// How long to wait for an XID or TEST response.
const ASK_PATIENCE_NS: u64 = 1_000_000_000;
/// Interval at which the interrupt flag is checked.
const SLEEP: Duration = Duration::from_millis(20);

#[derive(Subcommand)]
pub enum Role {
    /// Connect to an echo service, send a pattern and verify the echo
    Connect(ConnectArguments),
    /// Listen, and echo the data of every connection
    Echo(EchoArguments),
    /// Send XID and TEST, and print the responses
    Ask(AskArguments),
}

#[derive(Args)]
struct StationArguments {
    /// Own service access point
    #[arg(long, value_parser = parse_sap, default_value = "0x20")]
    sap: Lsap,
    /// Probability of dropping a frame on purpose, in each direction
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    loss: f64,
    /// Seed of the losses and of the pattern
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Broker that grants the socket [default: the default path, if this process may not open raw sockets]
    #[arg(long, value_name = "PATH")]
    broker: Option<PathBuf>,
}

#[derive(Args)]
pub struct ConnectArguments {
    #[command(flatten)]
    station: StationArguments,
    #[command(flatten)]
    peer: PeerArguments,
    /// The peer's service access point
    #[arg(long, value_parser = parse_sap, default_value = "0x20")]
    remote_sap: Lsap,
    /// Bytes to send
    #[arg(long, default_value_t = 1_000_000)]
    bytes: u64,
    /// Bytes that may be sent ahead of the echo [default: limited only by the window and the peer]
    #[arg(long, default_value_t = u64::MAX)]
    ahead: u64,
    /// Disconnect, discarding data in flight, once this many bytes have come back
    #[arg(long)]
    close_after: Option<u64>,
}

#[derive(Args)]
pub struct EchoArguments {
    #[command(flatten)]
    station: StationArguments,
    /// Interface of the station
    #[arg(long)]
    interface: String,
    #[command(flatten)]
    announce: AnnounceArguments,
    /// Disconnect after this many received bytes, once their echo is acknowledged
    #[arg(long)]
    close_after: Option<u64>,
    /// Hold back the echo until this many bytes are received
    #[arg(long, default_value_t = 0)]
    hold: u64,
    /// Accept this many connections, refuse more, and exit after the last [default: accept all, forever]
    #[arg(long)]
    connections: Option<u64>,
}

#[derive(Args)]
pub struct AskArguments {
    #[command(flatten)]
    station: StationArguments,
    #[command(flatten)]
    peer: PeerArguments,
    /// The peer's service access point; 0 is the station itself
    #[arg(long, value_parser = parse_byte, default_value = "0")]
    remote_sap: u8,
}

/// Runs a role to its end.
///
/// # Errors
/// [`LaunchError::Failed`] if the peer does not answer, disconnects early, or its echo differs.
pub fn run(role: &Role) -> Result<(), LaunchError> {
    match role {
        Role::Connect(arguments) => connect(arguments),
        Role::Echo(arguments) => echo(arguments),
        Role::Ask(arguments) => ask(arguments),
    }
}

type StationPort = Port<Lossy<PacketLink>>;

/// A station on the interface, with its SAP active, and the largest information field in bytes.
fn open(station: &StationArguments, interface: &str) -> Result<(StationPort, usize), LaunchError> {
    let (hears, ring_bytes) = (LinkScope::Station, PacketConfig::DEFAULT_RING_BYTES);
    let link = open_link(interface, station.sap, hears, station.broker.as_deref(), ring_bytes).map_err(launch_error)?;
    let information_max = (link.mtu() - LLC_HEADER_BYTES).min(usize::from(u16::MAX));
    let connection = ConnectionConfig {
        information_max: information_max as u16,
        t1_initial: T1_MIN,
        t1_min: T1_MIN,
        ..ConnectionConfig::default()
    };
    let slots = connection.queue * CONNECTIONS;
    let config =
        StationConfig { connection, connections: CONNECTIONS, backlog: CONNECTIONS, ..StationConfig::default() };
    let mut port =
        Port::new(Lossy::new(link, station.loss, station.seed), &config, slots, Encapsulation::default(), None)
            .map_err(usage_error)?;
    port.station.activate(station.sap);
    Ok((port, information_max))
}

fn connect(arguments: &ConnectArguments) -> Result<(), LaunchError> {
    let station = arguments.peer.find()?;
    let (mut port, information_max) = open(&arguments.station, &station.interface)?;
    let peer = Peer { local: arguments.station.sap, mac: station.mac.0, remote: arguments.remote_sap };
    let now = port.now();
    let result = port.station.connect(peer, 0, now);
    let handle = result.map_err(|error| LaunchError::Failed(error.to_string()))?;
    let mut exchange = Exchange::new(arguments.station.seed, arguments.bytes, arguments.ahead);
    let (deadline_ns, mut is_connected, mut is_ending) = (now_ns() + CONNECT_PATIENCE_NS, false, false);
    let mut counters = ConnectionCounters::default();
    let ended = loop {
        port.receive(|delivery| {
            if let Delivery::Data { information, .. } = delivery {
                exchange.verify(information);
            }
            false
        })?;
        if let Some(connection) = port.station.connection(handle) {
            counters = *connection.counters();
        }
        match poll_events(&mut port, |_, event| match event {
            ConnectionEvent::Connected => {
                is_connected = true;
                print_record(&json!({"event": "connected"}));
                None
            }
            ConnectionEvent::Disconnected(cause) | ConnectionEvent::Reset(cause) => Some(cause),
            _ => None,
        }) {
            Some(cause) => break cause,
            None if is_connected && !is_ending => exchange.fill(&mut port, handle, information_max),
            None if !is_connected && now_ns() > deadline_ns => {
                let now = port.now();
                port.station.abort(handle, now);
                port.transmit()?;
                break Cause::NoAnswer;
            }
            None => {}
        }
        let now = port.now();
        if !is_ending && arguments.close_after.is_some_and(|bytes| exchange.received >= bytes) {
            is_ending = port.station.disconnect(handle, now);
        } else if !is_ending && is_connected && exchange.is_complete() {
            is_ending = port.station.finish(handle, now);
        }
        port.transmit()?;
        sleep(&mut port)?;
    };
    let dropped = port.link.dropped;
    // Sends final responses, such as UA.
    port.transmit()?;
    if is_connected {
        print_record(&json!({
            "event": "done", "sent": exchange.sent, "received": exchange.received, "intact": exchange.is_intact,
            "cause": cause_name(ended), "frames_lost_on_purpose": dropped, "counters": counters_json(&counters),
        }));
    }
    exchange.result(ended, is_connected, is_ending)
}

/// State of sending a pattern and verifying its echo.
struct Exchange {
    bytes: u64,
    ahead: u64,
    sent: u64,
    received: u64,
    is_intact: bool,
    send_pattern: fastrand::Rng,
    receive_pattern: fastrand::Rng,
    field: Vec<u8>,
}

impl Exchange {
    fn new(seed: u64, bytes: u64, ahead: u64) -> Self {
        let [send_pattern, receive_pattern] = [fastrand::Rng::with_seed(seed), fastrand::Rng::with_seed(seed)];
        Self { bytes, ahead, sent: 0, received: 0, is_intact: true, send_pattern, receive_pattern, field: Vec::new() }
    }

    /// Fills the send queue.
    fn fill(&mut self, port: &mut StationPort, handle: ConnectionHandle, information_max: usize) {
        // At least one field even if `ahead` is smaller, or the exchange would stall.
        while self.sent == self.received || self.sent < self.received.saturating_add(self.ahead) {
            if self.field.is_empty() {
                let length = (self.bytes - self.sent).min(information_max as u64);
                let generator = &mut self.send_pattern;
                self.field.extend((0..length).map(|_| generator.u8(..)));
            }
            if self.field.is_empty() || !enqueue(port, handle, &self.field) {
                return;
            }
            self.sent += self.field.len() as u64;
            self.field.clear();
        }
    }

    fn verify(&mut self, information: &[u8]) {
        self.received += information.len() as u64;
        for byte in information {
            self.is_intact &= *byte == self.receive_pattern.u8(..);
        }
    }

    fn is_complete(&self) -> bool {
        self.received >= self.bytes
    }

    fn result(&self, ended: Cause, is_connected: bool, is_ending: bool) -> Result<(), LaunchError> {
        if !is_connected {
            let hint = "is its service access point bound? Some stations do not answer for an unbound one";
            let text = describe_cause(ended);
            let hint = if ended == Cause::NoAnswer { format!("; {hint}") } else { String::new() };
            return Err(LaunchError::Failed(format!("{text}{hint}")));
        }
        if !self.is_intact || self.received > self.bytes {
            return Err(LaunchError::Failed("the echo differs from what was sent".to_owned()));
        }
        if !is_ending && !self.is_complete() {
            let text = describe_cause(ended);
            return Err(LaunchError::Failed(format!("{text} after {} of {} bytes", self.received, self.bytes)));
        }
        Ok(())
    }
}

fn echo(arguments: &EchoArguments) -> Result<(), LaunchError> {
    let (mut port, _) = open(&arguments.station, &arguments.interface)?;
    port.station.listen(arguments.station.sap, true);
    let name = arguments.announce.start(Some(&arguments.interface), None);
    print_record(&json!({
        "event": "listening", "sap": arguments.station.sap.byte(), "mac": port.link.address().to_string(),
        "name": name.as_ref().map(Name::as_str),
    }));
    let mut echoes: BTreeMap<ConnectionHandle, Echo> = BTreeMap::new();
    let (mut left, close_after) = (arguments.connections, arguments.close_after.unwrap_or(u64::MAX));
    while left != Some(0) || !echoes.is_empty() {
        port.receive(|delivery| {
            if let Delivery::Data { connection, information, .. } = delivery
                && let Some(echo) = echoes.get_mut(&connection)
            {
                echo.receive(information, close_after);
            }
            false
        })?;
        for (handle, echo) in &mut echoes {
            if let Some(connection) = port.station.connection(*handle) {
                echo.counters = *connection.counters();
            }
        }
        let mut incoming = Vec::new();
        poll_events(&mut port, |handle, event| {
            match event {
                ConnectionEvent::Incoming => incoming.push(handle),
                ConnectionEvent::Reset(cause) => {
                    if let Some(echo) = echoes.get_mut(&handle) {
                        echo.reset = Some(cause);
                    }
                }
                ConnectionEvent::Disconnected(cause) => {
                    if let Some(echo) = echoes.remove(&handle) {
                        echo.report(cause);
                    }
                }
                _ => {}
            }
            None::<()>
        });
        for handle in incoming {
            accept_or_refuse(&mut port, handle, &mut left, &mut echoes);
        }
        for (handle, echo) in &mut echoes {
            echo.send_back(&mut port, *handle, arguments.hold, close_after);
        }
        port.transmit()?;
        sleep(&mut port)?;
    }
    Ok(())
}

/// Accepts a connection, or refuses it once `left` is 0.
fn accept_or_refuse(
    port: &mut StationPort,
    handle: ConnectionHandle,
    left: &mut Option<u64>,
    echoes: &mut BTreeMap<ConnectionHandle, Echo>,
) {
    let now = port.now();
    let Some(peer) = port.station.peer(handle) else { return };
    let is_wanted = *left != Some(0);
    let peer_mac = MacAddress(peer.mac).to_string();
    if is_wanted && port.station.accept(handle, now) {
        *left = left.map(|left| left - 1);
        print_record(&json!({"event": "accepted", "peer": peer_mac, "peer_sap": peer.remote.byte()}));
        echoes.insert(handle, Echo::new(peer));
    } else {
        port.station.disconnect(handle, now);
        print_record(&json!({"event": "refused", "peer": peer_mac, "peer_sap": peer.remote.byte()}));
    }
}

/// A connection whose data is echoed.
struct Echo {
    peer: Peer,
    waiting: VecDeque<Vec<u8>>,
    is_busy: bool,
    is_ending: bool,
    reset: Option<Cause>,
    received: u64,
    sent: u64,
    counters: ConnectionCounters,
}

impl Echo {
    fn new(peer: Peer) -> Self {
        Self {
            peer,
            waiting: VecDeque::new(),
            is_busy: false,
            is_ending: false,
            reset: None,
            received: 0,
            sent: 0,
            counters: ConnectionCounters::default(),
        }
    }

    fn receive(&mut self, information: &[u8], close_after: u64) {
        if self.received < close_after {
            self.received += information.len() as u64;
            self.waiting.push_back(information.to_vec());
        }
    }

    /// Echoes what the send queue takes. If too much remains, signals busy to the peer.
    fn send_back(&mut self, port: &mut StationPort, handle: ConnectionHandle, hold: u64, close_after: u64) {
        if self.received < hold {
            return;
        }
        while self.waiting.front().is_some_and(|information| enqueue(port, handle, information)) {
            self.sent += self.waiting.pop_front().map_or(0, |information| information.len() as u64);
        }
        let now = port.now();
        // With `hold`, a long queue is intended.
        let is_busy = hold == 0 && self.waiting.len() >= if self.is_busy { QUEUED_MAX / 2 } else { QUEUED_MAX };
        if is_busy != self.is_busy {
            self.is_busy = is_busy;
            port.station.set_busy(handle, is_busy, now);
        }
        if !self.is_ending && self.reset.is_some() {
            // The reset has lost data: disconnect.
            self.is_ending = port.station.disconnect(handle, now);
        } else if !self.is_ending && self.received >= close_after && self.waiting.is_empty() {
            self.is_ending = port.station.finish(handle, now);
        }
    }

    fn report(&self, cause: Cause) {
        print_record(&json!({
            "event": "closed", "peer": MacAddress(self.peer.mac).to_string(), "peer_sap": self.peer.remote.byte(),
            "received": self.received, "sent": self.sent, "cause": cause_name(cause),
            "reset": self.reset.map(cause_name), "counters": counters_json(&self.counters),
        }));
    }
}

/// Sends XID and TEST, the latter with a full-size frame, to the peer's station or one of its SAPs.
fn ask(arguments: &AskArguments) -> Result<(), LaunchError> {
    let station = arguments.peer.find()?;
    let (mut port, information_max) = open(&arguments.station, &station.interface)?;
    let (own, destination) = (port.link.address().0, Destination::from(arguments.remote_sap));
    let source = Source::Individual(arguments.station.sap);
    let mut generator = fastrand::Rng::with_seed(arguments.station.seed);
    // A TEST header is an octet shorter than an I PDU's.
    let information: Vec<u8> = (0..=information_max).map(|_| generator.u8(..)).collect();
    let commands = [
        ("XID", port.station.identify(source, destination), &[][..]),
        ("TEST", port.station.test(source, destination), &information),
    ];
    for (name, header, information) in commands {
        let llc = header.as_bytes();
        let ethernet = Encapsulation::Length.header(station.mac.0, own, llc.len() + information.len());
        let frame = [&ethernet, llc, information].concat();
        let began_ns = now_ns();
        port.link.send(&[Outgoing { header: &frame, payload: &[], label: 0 }])?;
        let mut record = None;
        while record.is_none() {
            port.receive(|delivery| {
                record = answer_of(&delivery, information);
                record.is_some()
            })?;
            if now_ns() > began_ns + ASK_PATIENCE_NS {
                return Err(LaunchError::Failed(format!("no answer to {name} within a second")));
            }
            if record.is_none() {
                sleep(&mut port)?;
            }
        }
        print_record(&record.unwrap_or_default());
    }
    Ok(())
}

fn answer_of(delivery: &Delivery<'_>, expected: &[u8]) -> Option<Value> {
    match delivery {
        Delivery::Identification { from, source, identification } => {
            let value = match identification {
                Identification::Basic { class, window } => json!({"class": *class as u8, "window": window.value()}),
                Identification::Other(bytes) => json!({ "other": bytes }),
            };
            Some(json!({"event": "xid", "from": MacAddress(*from).to_string(), "sap": source.byte(), "said": value}))
        }
        Delivery::Test { from, source, information } => Some(json!({
            "event": "test", "from": MacAddress(*from).to_string(), "sap": source.byte(),
            "bytes": information.len(), "intact": *information == expected,
        })),
        _ => None,
    }
}

/// Puts an information field into a connection's send queue; false if it is full.
fn enqueue(port: &mut StationPort, handle: ConnectionHandle, information: &[u8]) -> bool {
    let Some(slot) = port.slots.fill(information, &[]) else { return false };
    let now = port.now();
    let refused = port.station.send(handle, slot, now).err();
    refused.map(|refused| port.slots.free(refused.token)).is_none()
}

/// Polls the engine's events: frees slots, and passes other events to `consider` until it returns a result.
fn poll_events<R>(
    port: &mut StationPort,
    mut consider: impl FnMut(ConnectionHandle, ConnectionEvent<u16>) -> Option<R>,
) -> Option<R> {
    while let Some(event) = port.station.poll_event() {
        match event {
            StationEvent::Connection(_, ConnectionEvent::Acknowledged(slot) | ConnectionEvent::Dropped(slot)) => {
                port.slots.free(slot);
            }
            StationEvent::Connection(handle, event) => {
                if let Some(result) = consider(handle, event) {
                    return Some(result);
                }
            }
            StationEvent::Datagram(..) => {}
        }
    }
    None
}

/// Sleeps until a frame arrives or a timer expires.
fn sleep(port: &mut StationPort) -> Result<(), LaunchError> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        return Err(LaunchError::Interrupted);
    }
    Ok(port.sleep(SLEEP)?)
}

fn print_record(record: &Value) {
    println!("{record}");
}

fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Requested => "requested",
        Cause::PeerDisconnected => "peer disconnected",
        Cause::PeerRefused => "peer refused",
        Cause::PeerNotConnected => "peer not connected",
        Cause::PeerReset => "peer reset",
        Cause::PeerRejected(_) => "peer rejected",
        Cause::NoAnswer => "no answer",
        Cause::Stalled => "stalled",
    }
}

fn counters_json(counters: &ConnectionCounters) -> Value {
    json!({
        "information_received": counters.information_received, "information_sent": counters.information_sent,
        "information_repeated": counters.information_repeated,
        "information_acknowledged": counters.information_acknowledged, "recoveries": counters.recoveries,
        "timeouts": counters.timeouts, "frmr_received": counters.frmr_received, "frmr_sent": counters.frmr_sent,
        "received_ahead": counters.received_ahead, "received_again": counters.received_again,
        "received_late": counters.received_late, "overtaken": counters.overtaken, "ignored": counters.ignored,
    })
}

fn parse_byte(text: &str) -> Result<u8, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| format!("'{text}' is not an octet; write it as 0x20 or 32"))
}

fn parse_sap(text: &str) -> Result<Lsap, String> {
    let byte = parse_byte(text)?;
    Lsap::new(byte).ok_or_else(|| format!("{text} is not a service access point: they are even, 0x02 to 0xfe"))
}

fn parse_probability(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..1.0).contains(number));
    number.ok_or_else(|| format!("'{text}' is not a probability; write one per cent as 0.01"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_access_point_is_an_even_octet_in_either_notation() {
        assert_eq!(parse_sap("0x20").unwrap(), parse_sap("32").unwrap());
        for wrong in ["0", "0x21", "256", "0x", "", "twenty"] {
            assert!(parse_sap(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_byte_in_the_echo_and_an_early_end_are_errors() {
        let mut pattern = fastrand::Rng::with_seed(3);
        let mut bytes: Vec<u8> = (0..100).map(|_| pattern.u8(..)).collect();
        let mut exchange = Exchange::new(3, 100, 0);
        exchange.verify(&bytes[..60]);
        assert!(exchange.result(Cause::PeerDisconnected, true, false).is_err());
        exchange.verify(&bytes[60..]);
        assert!(exchange.result(Cause::PeerDisconnected, true, false).is_ok());
        bytes[99] ^= 1;
        let mut exchange = Exchange::new(3, 100, 0);
        exchange.verify(&bytes);
        assert!(exchange.result(Cause::Requested, true, true).is_err());
    }
}
