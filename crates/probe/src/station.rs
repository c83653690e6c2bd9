// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An LLC station for foreign peers: it speaks the bare protocol, with nothing of ours above it.
//!
//! `connect` sends a pattern over a connection and verifies its echo; `echo` sends back what comes, on any
//! number of connections at once; `ask` sends XID and TEST. What happens comes out as JSON Lines.

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
use crate::transport::links::{launch_error, wrong};
use crate::transport::llc::reliable::describe;
use barewire_endpoint::{Encapsulation, LinkScope, Port, open_link};
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// Bytes of an I PDU besides its information.
const LLC_HEADER_BYTES: usize = 4;
/// Connections at once, at most; each may have a whole send queue under way.
const CONNECTIONS: u16 = 32;
/// I PDUs of a connection that wait for room in its send queue; with more the peer is told to wait.
const WAITING_MAX: usize = 64;
/// T1 at least, and before the first measured round trip. A foreign station may pause for far longer than its round
/// trip, since its host computes; T1 that then runs out twice has two polls answered, the second answer can be taken
/// for that to a third poll, and what the peer has is sent again. That is legal, but not every peer bears it.
const T1_MIN: Duration = Duration::from_millis(250);
/// How long a peer may keep silent before a connection counts as impossible. A foreign station need not
/// answer for a SAP that nobody has, so this is an answer of its own.
const CONNECT_PATIENCE_NS: u64 = 5_000_000_000;
/// How long an XID or TEST response may take.
const ASK_PATIENCE_NS: u64 = 1_000_000_000;
/// Longest sleep: after it the interrupt flag is looked at.
const SLEEP: Duration = Duration::from_millis(20);

#[derive(Subcommand)]
pub enum Role {
    /// Connect to a service that echoes, send a pattern and verify what comes back
    Connect(ConnectArguments),
    /// Listen, and echo what comes on every connection
    Echo(EchoArguments),
    /// Send XID and TEST, and print the answers
    Ask(AskArguments),
}

#[derive(Args)]
struct HereArguments {
    /// Own service access point
    #[arg(long, value_parser = parse_sap, default_value = "0x20")]
    sap: Lsap,
    /// Probability that a frame is lost on purpose, in each direction
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    loss: f64,
    /// Seed of the losses and of the pattern
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Broker to get the frames' socket from [default: its usual place, where the system refuses a socket of our own]
    #[arg(long, value_name = "PATH")]
    broker: Option<PathBuf>,
}

#[derive(Args)]
pub struct ConnectArguments {
    #[command(flatten)]
    here: HereArguments,
    #[command(flatten)]
    peer: PeerArguments,
    /// The peer's service access point
    #[arg(long, value_parser = parse_sap, default_value = "0x20")]
    remote_sap: Lsap,
    /// Bytes to send
    #[arg(long, default_value_t = 1_000_000)]
    bytes: u64,
    /// Bytes that may be sent ahead of the echo [default: as many as the window and the peer take]
    #[arg(long, default_value_t = u64::MAX)]
    ahead: u64,
    /// Disconnect, whatever is under way, once so many bytes have come back
    #[arg(long)]
    close_after: Option<u64>,
}

#[derive(Args)]
pub struct EchoArguments {
    #[command(flatten)]
    here: HereArguments,
    /// Interface to be a station on
    #[arg(long)]
    interface: String,
    #[command(flatten)]
    announce: AnnounceArguments,
    /// End a connection, once its echo is acknowledged, after so many bytes have come
    #[arg(long)]
    close_after: Option<u64>,
    /// Send nothing back before so many bytes have come
    #[arg(long, default_value_t = 0)]
    hold: u64,
    /// Accept so many connections, refuse more, and end with the last [default: accept all until ended]
    #[arg(long)]
    connections: Option<u64>,
}

#[derive(Args)]
pub struct AskArguments {
    #[command(flatten)]
    here: HereArguments,
    #[command(flatten)]
    peer: PeerArguments,
    /// The peer's service access point; 0 is the station itself
    #[arg(long, value_parser = parse_byte, default_value = "0")]
    remote_sap: u8,
}

/// Plays a role to its end.
///
/// # Errors
/// [`LaunchError::Failed`] if the peer does not answer, ends early, or sends other bytes than it got.
pub fn run(role: &Role) -> Result<(), LaunchError> {
    match role {
        Role::Connect(arguments) => connect(arguments),
        Role::Echo(arguments) => echo(arguments),
        Role::Ask(arguments) => ask(arguments),
    }
}

type StationPort = Port<Lossy<PacketLink>>;

/// A station on the interface, its SAP active, and the bytes of information that a frame holds.
fn open(here: &HereArguments, interface: &str) -> Result<(StationPort, usize), LaunchError> {
    let (hears, ring_bytes) = (LinkScope::Station, PacketConfig::DEFAULT_RING_BYTES);
    let link = open_link(interface, here.sap, hears, here.broker.as_deref(), ring_bytes).map_err(launch_error)?;
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
    let mut port = Port::new(Lossy::new(link, here.loss, here.seed), &config, slots, Encapsulation::default(), None)
        .map_err(wrong)?;
    port.station.activate(here.sap);
    Ok((port, information_max))
}

fn connect(arguments: &ConnectArguments) -> Result<(), LaunchError> {
    let place = arguments.peer.find()?;
    let (mut port, information_max) = open(&arguments.here, &place.interface)?;
    let peer = Peer { local: arguments.here.sap, mac: place.mac.0, remote: arguments.remote_sap };
    let now = port.now();
    let asked = port.station.connect(peer, 0, now);
    let handle = asked.map_err(|error| LaunchError::Failed(error.to_string()))?;
    let mut exchange = Exchange::new(arguments.here.seed, arguments.bytes, arguments.ahead);
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
        match hear(&mut port, |_, event| match event {
            ConnectionEvent::Connected => {
                is_connected = true;
                say(&json!({"event": "connected"}));
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
        rest(&mut port)?;
    };
    let not_sent = port.link.not_sent;
    // What was last sent because of the end, such as UA.
    port.transmit()?;
    if is_connected {
        say(&json!({
            "event": "done", "sent": exchange.sent, "received": exchange.received, "intact": exchange.is_intact,
            "cause": name_of(ended), "frames_lost_on_purpose": not_sent, "counters": table_of(&counters),
        }));
    }
    exchange.verdict(ended, is_connected, is_ending)
}

/// A pattern on its way out, and its echo on its way in.
struct Exchange {
    bytes: u64,
    ahead: u64,
    sent: u64,
    received: u64,
    is_intact: bool,
    to_send: fastrand::Rng,
    to_receive: fastrand::Rng,
    field: Vec<u8>,
}

impl Exchange {
    fn new(seed: u64, bytes: u64, ahead: u64) -> Self {
        let [to_send, to_receive] = [fastrand::Rng::with_seed(seed), fastrand::Rng::with_seed(seed)];
        Self { bytes, ahead, sent: 0, received: 0, is_intact: true, to_send, to_receive, field: Vec::new() }
    }

    /// Puts as much into the send queue as that takes.
    fn fill(&mut self, port: &mut StationPort, handle: ConnectionHandle, information_max: usize) {
        // At least one field, or nothing would ever come back.
        while self.sent == self.received || self.sent < self.received.saturating_add(self.ahead) {
            if self.field.is_empty() {
                let length = (self.bytes - self.sent).min(information_max as u64);
                let generator = &mut self.to_send;
                self.field.extend((0..length).map(|_| generator.u8(..)));
            }
            if self.field.is_empty() || !offer(port, handle, &self.field) {
                return;
            }
            self.sent += self.field.len() as u64;
            self.field.clear();
        }
    }

    fn verify(&mut self, information: &[u8]) {
        self.received += information.len() as u64;
        for byte in information {
            self.is_intact &= *byte == self.to_receive.u8(..);
        }
    }

    fn is_complete(&self) -> bool {
        self.received >= self.bytes
    }

    fn verdict(&self, ended: Cause, is_connected: bool, is_ending: bool) -> Result<(), LaunchError> {
        if !is_connected {
            let hint = "is its service access point bound? Some stations never say that it is not";
            let text = describe(ended);
            let hint = if ended == Cause::NoAnswer { format!("; {hint}") } else { String::new() };
            return Err(LaunchError::Failed(format!("{text}{hint}")));
        }
        if !self.is_intact || self.received > self.bytes {
            return Err(LaunchError::Failed("the echo differs from what was sent".to_owned()));
        }
        if !is_ending && !self.is_complete() {
            let text = describe(ended);
            return Err(LaunchError::Failed(format!("{text} after {} of {} bytes", self.received, self.bytes)));
        }
        Ok(())
    }
}

fn echo(arguments: &EchoArguments) -> Result<(), LaunchError> {
    let (mut port, _) = open(&arguments.here, &arguments.interface)?;
    port.station.listen(arguments.here.sap, true);
    let name = arguments.announce.start(Some(&arguments.interface), None);
    say(&json!({
        "event": "listening", "sap": arguments.here.sap.byte(), "mac": port.link.address().to_string(),
        "name": name.as_ref().map(Name::as_str),
    }));
    let mut echoes: BTreeMap<ConnectionHandle, Echo> = BTreeMap::new();
    let (mut left, close_after) = (arguments.connections, arguments.close_after.unwrap_or(u64::MAX));
    while left != Some(0) || !echoes.is_empty() {
        port.receive(|delivery| {
            if let Delivery::Data { connection, information, .. } = delivery
                && let Some(echo) = echoes.get_mut(&connection)
            {
                echo.take(information, close_after);
            }
            false
        })?;
        for (handle, echo) in &mut echoes {
            if let Some(connection) = port.station.connection(*handle) {
                echo.counters = *connection.counters();
            }
        }
        let mut asking = Vec::new();
        hear(&mut port, |handle, event| {
            match event {
                ConnectionEvent::Incoming => asking.push(handle),
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
        for handle in asking {
            answer(&mut port, handle, &mut left, &mut echoes);
        }
        for (handle, echo) in &mut echoes {
            echo.give(&mut port, *handle, arguments.hold, close_after);
        }
        port.transmit()?;
        rest(&mut port)?;
    }
    Ok(())
}

/// Accepts a connection, or refuses it when enough were accepted.
fn answer(
    port: &mut StationPort,
    handle: ConnectionHandle,
    left: &mut Option<u64>,
    echoes: &mut BTreeMap<ConnectionHandle, Echo>,
) {
    let now = port.now();
    let Some(peer) = port.station.peer(handle) else { return };
    let is_wanted = *left != Some(0);
    let whom = MacAddress(peer.mac).to_string();
    if is_wanted && port.station.accept(handle, now) {
        *left = left.map(|left| left - 1);
        say(&json!({"event": "accepted", "peer": whom, "peer_sap": peer.remote.byte()}));
        echoes.insert(handle, Echo::new(peer));
    } else {
        port.station.disconnect(handle, now);
        say(&json!({"event": "refused", "peer": whom, "peer_sap": peer.remote.byte()}));
    }
}

/// A connection whose data goes back.
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

    fn take(&mut self, information: &[u8], close_after: u64) {
        if self.received < close_after {
            self.received += information.len() as u64;
            self.waiting.push_back(information.to_vec());
        }
    }

    /// Sends back what there is room for; the rest waits, and soon the peer as well.
    fn give(&mut self, port: &mut StationPort, handle: ConnectionHandle, hold: u64, close_after: u64) {
        if self.received < hold {
            return;
        }
        while self.waiting.front().is_some_and(|information| offer(port, handle, information)) {
            self.sent += self.waiting.pop_front().map_or(0, |information| information.len() as u64);
        }
        let now = port.now();
        // What was held on purpose says nothing about the peer's pace.
        let is_busy = hold == 0 && self.waiting.len() >= if self.is_busy { WAITING_MAX / 2 } else { WAITING_MAX };
        if is_busy != self.is_busy {
            self.is_busy = is_busy;
            port.station.set_busy(handle, is_busy, now);
        }
        if !self.is_ending && self.reset.is_some() {
            // Its data is lost, so there is nothing to go on with.
            self.is_ending = port.station.disconnect(handle, now);
        } else if !self.is_ending && self.received >= close_after && self.waiting.is_empty() {
            self.is_ending = port.station.finish(handle, now);
        }
    }

    fn report(&self, cause: Cause) {
        say(&json!({
            "event": "closed", "peer": MacAddress(self.peer.mac).to_string(), "peer_sap": self.peer.remote.byte(),
            "received": self.received, "sent": self.sent, "cause": name_of(cause),
            "reset": self.reset.map(name_of), "counters": table_of(&self.counters),
        }));
    }
}

/// Asks the peer's station, or one of its SAPs, what it is and whether frames of full size reach it.
fn ask(arguments: &AskArguments) -> Result<(), LaunchError> {
    let place = arguments.peer.find()?;
    let (mut port, information_max) = open(&arguments.here, &place.interface)?;
    let (own, destination) = (port.link.address().0, Destination::from(arguments.remote_sap));
    let source = Source::Individual(arguments.here.sap);
    let mut generator = fastrand::Rng::with_seed(arguments.here.seed);
    // A TEST header is an octet shorter than an I PDU's.
    let information: Vec<u8> = (0..=information_max).map(|_| generator.u8(..)).collect();
    let questions = [
        ("XID", port.station.identify(source, destination), &[][..]),
        ("TEST", port.station.test(source, destination), &information),
    ];
    for (name, header, information) in questions {
        let llc = header.as_bytes();
        let ethernet = Encapsulation::Length.header(place.mac.0, own, llc.len() + information.len());
        let frame = [&ethernet, llc, information].concat();
        let began_ns = now_ns();
        port.link.send(&[Outgoing { header: &frame, payload: &[] }])?;
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
                rest(&mut port)?;
            }
        }
        say(&record.unwrap_or_default());
    }
    Ok(())
}

fn answer_of(delivery: &Delivery<'_>, expected: &[u8]) -> Option<Value> {
    match delivery {
        Delivery::Identification { from, source, identification } => {
            let said = match identification {
                Identification::Basic { class, window } => json!({"class": *class as u8, "window": window.value()}),
                Identification::Other(bytes) => json!({ "other": bytes }),
            };
            Some(json!({"event": "xid", "from": MacAddress(*from).to_string(), "sap": source.byte(), "said": said}))
        }
        Delivery::Test { from, source, information } => Some(json!({
            "event": "test", "from": MacAddress(*from).to_string(), "sap": source.byte(),
            "bytes": information.len(), "intact": *information == expected,
        })),
        _ => None,
    }
}

/// Puts an information field into a connection's send queue; false if that takes none now.
fn offer(port: &mut StationPort, handle: ConnectionHandle, information: &[u8]) -> bool {
    let Some(slot) = port.slots.fill(information, &[]) else { return false };
    let now = port.now();
    let refused = port.station.send(handle, slot, now).err();
    refused.map(|refused| port.slots.free(refused.token)).is_none()
}

/// Takes what the engine has to say: memory comes back, the rest is `consider`ed until that has a result.
fn hear<R>(
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
            StationEvent::Datagram(..) | StationEvent::AddressChecked { .. } => {}
        }
    }
    None
}

/// Sleeps until there is something to do.
fn rest(port: &mut StationPort) -> Result<(), LaunchError> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        return Err(LaunchError::Interrupted);
    }
    Ok(port.sleep(SLEEP)?)
}

fn say(record: &Value) {
    println!("{record}");
}

fn name_of(cause: Cause) -> &'static str {
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

fn table_of(counters: &ConnectionCounters) -> Value {
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
    number.map_err(|_| format!("'{text}' is no octet; write it as 0x20 or 32"))
}

fn parse_sap(text: &str) -> Result<Lsap, String> {
    let byte = parse_byte(text)?;
    Lsap::new(byte).ok_or_else(|| format!("{text} is no service access point: they are even, 0x02 to 0xfe"))
}

fn parse_probability(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..1.0).contains(number));
    number.ok_or_else(|| format!("'{text}' is no probability; write one per cent as 0.01"))
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
    fn a_wrong_byte_of_the_echo_is_seen_and_an_early_end_is_an_error() {
        let mut pattern = fastrand::Rng::with_seed(3);
        let mut bytes: Vec<u8> = (0..100).map(|_| pattern.u8(..)).collect();
        let mut exchange = Exchange::new(3, 100, 0);
        exchange.verify(&bytes[..60]);
        assert!(exchange.verdict(Cause::PeerDisconnected, true, false).is_err());
        exchange.verify(&bytes[60..]);
        assert!(exchange.verdict(Cause::PeerDisconnected, true, false).is_ok());
        bytes[99] ^= 1;
        let mut exchange = Exchange::new(3, 100, 0);
        exchange.verify(&bytes);
        assert!(exchange.verdict(Cause::Requested, true, true).is_err());
    }
}
