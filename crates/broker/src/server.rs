// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker's event loop: single-threaded, never blocks on a client.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use barewire_broker::{MessageError, Reply, Request, Status, sap_filter, station_filter};
use barewire_link::{Claim, Claimed, Interface, LinkError, PacketConfig, Restricted, RingGeometry};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::fstat;
use serde_json::{Value, json};

use crate::audit::Audit;
use crate::bounds::{
    ACCEPT_PAUSE, ACCEPTS_PER_ITERATION, CONNECTIONS, CONNECTIONS_OF_UNLISTED_USERS, CONNECTIONS_OF_USER, EXIT_TIMEOUT,
    REQUEST_TIMEOUT, SOCKETS_PER_MESSAGE, SWEEP_INTERVAL,
};
use crate::egress::mark_of;
use crate::grant_file::{GrantFile, open_packet_sockets};
use crate::groups::Groups;
use crate::ledger::{Entry, Key, Ledger};
use crate::peer::{Accepted, Peer, Received, accept, has_hung_up, receive, reply};
use crate::policy::Policy;
use crate::signals::{Signal, Signals};

/// State of the broker; see [`run`](Server::run).
pub struct Server {
    pub listener: OwnedFd,
    pub signals: Signals,
    pub policy: Policy,
    /// Reloads the policy file; the error says what is wrong with it.
    pub reload: Box<dyn Fn() -> Result<Policy, String>>,
    pub audit: Audit,
    pub grant_file: GrantFile,
    pub ledger: Ledger,
    pub groups: Groups,
    /// Claims of the granted service access points, against programs that need no broker.
    pub claims: BTreeMap<Key, Claim>,
    pub exiting_holders: Vec<ExitingHolder>,
    pub connections_max: usize,
    pub policy_path: PathBuf,
}

struct Connection {
    peer: Peer,
    state: State,
}

enum State {
    /// Waiting for the request, until this time.
    Waiting(Instant),
    Holding(Key),
}

/// The holder of a socket in a group whose connection has ended before its process. Once the process ends, only the
/// group holds the socket.
pub struct ExitingHolder {
    key: Key,
    pidfd: OwnedFd,
    until: Instant,
}

/// All protocols: with a single one the kernel's handler of length frames would get each frame first.
const PROTOCOL: u16 = libc::ETH_P_ALL as u16;

/// Why a request is refused, for the client and the log.
struct Refusal {
    status: Status,
    text: String,
}

impl Server {
    /// Serves until SIGTERM or SIGINT. Granted sockets stay usable.
    ///
    /// # Errors
    /// If poll fails.
    pub fn run(mut self) -> io::Result<()> {
        let mut connections: BTreeMap<u64, Connection> = BTreeMap::new();
        let (mut next_id, mut accept_after, mut sweep_at) = (0_u64, Instant::now(), Instant::now());
        loop {
            let now = Instant::now();
            let mut wake = self.audit.tick(now);
            let mut wake_at = |at: Instant| {
                let left = at.saturating_duration_since(now);
                wake = Some(wake.map_or(left, |wake| wake.min(left)));
            };
            if accept_after > now {
                wake_at(accept_after);
            }
            if self.ledger.has_orphans() {
                wake_at(sweep_at);
            }
            for connection in connections.values() {
                if let State::Waiting(until) = connection.state {
                    wake_at(until);
                }
            }
            for holder in &self.exiting_holders {
                wake_at(holder.until);
            }
            if let Some(interval) = self.groups.recovery_interval() {
                wake_at(now + interval);
            }
            let ready = self.wait(&connections, accept_after <= now, wake)?;
            for signal in self.signals.take() {
                match signal {
                    Signal::End => {
                        self.leave_placeholders(&connections);
                        self.audit.note("end", json!({ "held": self.ledger.entries().count() }));
                        return Ok(());
                    }
                    Signal::Reload => self.reload(),
                }
            }
            // Checking every group is cheaper than tracking which descriptor was ready.
            for error in self.groups.recover() {
                let fields = json!({ "reason": error.to_string() });
                self.audit.note("sockets may lose their frames since their interface went down", fields);
            }
            self.serve_users_fairly(&ready.connections, &mut connections);
            let now = Instant::now();
            self.finish_exiting_holders(|holder| holder.until <= now || is_readable(&holder.pidfd));
            let late: Vec<u64> = connections
                .iter()
                .filter(|(_, connection)| matches!(connection.state, State::Waiting(until) if until <= now))
                .map(|(id, _)| *id)
                // A request that was sent but not served yet is not late.
                .filter(|id| !ready.connections.contains(id))
                .collect();
            for id in late {
                let text = format!("no request within {} s", REQUEST_TIMEOUT.as_secs());
                self.refuse(id, &mut connections, &Refusal { status: Status::Malformed, text }, Value::Null);
            }
            if ready.listener {
                accept_after = self.accept_some(&mut connections, &mut next_id, now);
            }
            if self.ledger.has_orphans() && sweep_at <= now {
                self.sweep(1);
                sweep_at = now + SWEEP_INTERVAL;
            }
        }
    }

    fn wait(
        &self,
        connections: &BTreeMap<u64, Connection>,
        accepts: bool,
        wake: Option<Duration>,
    ) -> io::Result<Ready> {
        let mut requests = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let listens = if accepts { PollFlags::POLLIN } else { PollFlags::empty() };
        requests.push(PollFd::new(self.listener.as_fd(), listens));
        let mut ids = vec![];
        for (id, connection) in connections {
            let pidfd = connection.peer.pidfd.iter();
            for descriptor in pidfd.chain([&connection.peer.socket]) {
                requests.push(PollFd::new(descriptor.as_fd(), PollFlags::POLLIN));
                ids.push(*id);
            }
        }
        requests.extend(self.exiting_holders.iter().map(|holder| PollFd::new(holder.pidfd.as_fd(), PollFlags::POLLIN)));
        // poll always reports errors.
        requests.extend(
            self.groups.error_descriptors().map(|error_descriptor| PollFd::new(error_descriptor, PollFlags::empty())),
        );
        // Rounded up, or the last millisecond would be a busy loop.
        let timeout = wake.map_or(PollTimeout::NONE, |wake| {
            PollTimeout::try_from(wake + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut requests, timeout) {
            Err(Errno::EINTR) => return Ok(Ready { listener: false, connections: vec![] }),
            polled => polled?,
        };
        let is_ready = |request: &PollFd<'_>| request.revents().is_some_and(|events| !events.is_empty());
        let mut connections: Vec<u64> =
            requests[2..].iter().zip(ids).filter(|(request, _)| is_ready(request)).map(|(_, id)| id).collect();
        connections.dedup();
        Ok(Ready { listener: is_ready(&requests[1]), connections })
    }

    /// Accepts pending connections. Returns the time before which not to accept again.
    fn accept_some(&mut self, connections: &mut BTreeMap<u64, Connection>, next_id: &mut u64, now: Instant) -> Instant {
        let named = |policy: &Policy, user| policy.names(user).then_some(user);
        // All users that the policy does not name share one count.
        let mut counts: BTreeMap<Option<u32>, usize> = BTreeMap::new();
        for connection in connections.values() {
            *counts.entry(named(&self.policy, connection.peer.user)).or_default() += 1;
        }
        for _ in 0..ACCEPTS_PER_ITERATION {
            let peer = match accept(&self.listener) {
                Ok(Accepted::Peer(peer)) => peer,
                Ok(Accepted::HungUp) => continue,
                Ok(Accepted::None) => break,
                Err(error) => {
                    self.audit.note("accept failed", json!({ "reason": error.to_string() }));
                    return now + ACCEPT_PAUSE;
                }
            };
            let user = named(&self.policy, peer.user);
            let share = if user.is_some() { CONNECTIONS_OF_USER } else { CONNECTIONS_OF_UNLISTED_USERS };
            let same = counts.entry(user).or_default();
            // With a lower total the shares shrink as well, or one user's share could be all.
            if *same >= share * self.connections_max / CONNECTIONS || connections.len() >= self.connections_max {
                let text = format!("too many connections ({same} of this user); try again later");
                // The reply is best effort; the connection is closed in any case.
                let refused = Reply::Refused { status: Status::TooMany, text: text.clone() };
                let _ = reply(&peer.socket, &refused, &[]);
                let fields =
                    json!({ "user": peer.user, "process": peer.process, "status": "too many", "reason": text });
                self.audit.refuse(user, fields);
                continue;
            }
            *same += 1;
            connections.insert(*next_id, Connection { peer, state: State::Waiting(now + REQUEST_TIMEOUT) });
            *next_id += 1;
        }
        now
    }

    /// Serves one ready connection of each user: a grant takes tens of milliseconds, in which other users and signals
    /// wait. Drops connections that were closed before they were served.
    fn serve_users_fairly(&mut self, ready: &[u64], connections: &mut BTreeMap<u64, Connection>) {
        let mut served = BTreeSet::new();
        for id in ready {
            let Some(connection) = connections.get(id) else { continue };
            if matches!(connection.state, State::Waiting(_)) && has_hung_up(&connection.peer.socket) {
                connections.remove(id);
            } else if served.insert(connection.peer.user) {
                self.serve(*id, connections);
            }
        }
    }

    /// Handles a ready connection: a request, its end, or the end of its process.
    fn serve(&mut self, id: u64, connections: &mut BTreeMap<u64, Connection>) {
        let Some(connection) = connections.get_mut(&id) else { return };
        let (received, state) = (receive(&connection.peer.socket), &connection.state);
        match (received, state) {
            (Received::Message(bytes), State::Waiting(_)) => {
                let request = Request::decode(&bytes);
                let request_fields = request.as_ref().map_or(Value::Null, describe);
                match request.map_err(Refusal::from).and_then(|request| self.grant(&connection.peer, &request)) {
                    Ok(key) => connection.state = State::Holding(key),
                    Err(refusal) => self.refuse(id, connections, &refusal, request_fields),
                }
            }
            // One connection, one request.
            (Received::Message(_), State::Holding(_)) | (Received::End, _) => self.close(id, connections),
            // The process has ended, but another one holds its connection open.
            (Received::Nothing, _) if has_ended(&connection.peer) => self.close(id, connections),
            (Received::Nothing, _) => {}
        }
    }

    /// Opens the requested socket and hands it over.
    fn grant(&mut self, peer: &Peer, request: &Request) -> Result<Key, Refusal> {
        let (user, name, sap) = (peer.user, &request.interface, request.sap.byte());
        let at_most = self.policy.at_most(user, request).ok_or_else(|| {
            let kind = if request.station { " as a station" } else { "" };
            let path = self.policy_path.display();
            refusal(
                Status::NotAllowed,
                format!("no rule allows user {user} SAP {sap:#04x}{kind} on {name}: see {path}"),
            )
        })?;
        let interface = Interface::by_name(name)?;
        let key = (interface.index, sap);
        if self.ledger.owner(key).is_some() || self.ledger.count(user) >= at_most {
            // The client waits. If one of these sockets is still open, its group becomes inconsistent, which affects
            // only later grants.
            self.finish_exiting_holders(|_| true);
        }
        if self.ledger.has_orphans() {
            self.sweep(2);
        }
        if let Some(owner) = self.ledger.owner(key) {
            let whose = if owner.user == user { format!(", by your process {}", owner.process) } else { String::new() };
            return Err(refusal(Status::Taken, format!("SAP {sap:#04x} on {name} is taken{whose}; choose another")));
        }
        let held = self.ledger.count(user);
        if held >= at_most {
            return Err(refusal(
                Status::TooMany,
                format!("user {user} holds {held} descriptors, of at most {at_most}"),
            ));
        }
        let claim = match Claim::take(interface.address, sap).map_err(|error| system("claiming the SAP", error))? {
            Claimed::Acquired(claim) => Some(claim),
            // Opening the socket fails for the same reason.
            Claimed::NotPermitted => None,
            Claimed::Taken => {
                let text = format!("SAP {sap:#04x} on {name} is taken by a program without the broker; choose another");
                return Err(refusal(Status::Taken, text));
            }
        };
        let (socket, ring) = self.open(&interface, request)?;
        let inode = fstat(&socket).map_err(|error| system("fstat", error))?.st_ino;
        self.ledger.insert(Entry::new(name, key, user, peer.process, inode));
        let handed = self.hand_over(peer, request, inode, (&socket, ring));
        if handed.is_ok() {
            self.claims.extend(claim.map(|claim| (key, claim)));
        } else {
            drop(socket);
            self.groups.release(key);
            self.ledger.remove(key);
            self.save_grants();
        }
        handed.map(|()| key)
    }

    /// Opens a socket in its interface's group, or in a private group if it receives frames that other sockets receive
    /// as well, or cannot join the group.
    fn open(&mut self, interface: &Interface, request: &Request) -> Result<(OwnedFd, RingGeometry), LinkError> {
        let filter = if request.station { station_filter(request.sap) } else { sap_filter(request.sap) };
        let mark = mark_of(request.sap);
        let open = || Restricted::open(interface, PROTOCOL, &filter, mark, PacketConfig::DEFAULT_RING_BYTES);
        if !request.station {
            match self.groups.admit(interface, PROTOCOL, request.sap.byte(), open) {
                Ok(admitted) => return Ok(admitted),
                Err(error) => {
                    let consequence =
                        "each frame of the interface costs some 40 ns more for every socket outside a group";
                    let mut fields = describe(request);
                    merge(&mut fields, json!({ "reason": error.to_string(), "means": consequence }));
                    self.audit.note("not in a group", fields);
                }
            }
        }
        open()?.join_private_group()
    }

    /// Records the grant, then hands the socket over: an unrecorded grant could be made twice.
    fn hand_over(
        &mut self,
        peer: &Peer,
        request: &Request,
        inode: u64,
        (socket, ring): (&OwnedFd, RingGeometry),
    ) -> Result<(), Refusal> {
        self.grant_file.write(&self.ledger).map_err(|error| system("writing down the grant", error))?;
        let mut fields = describe(request);
        merge(&mut fields, json!({ "user": peer.user, "process": peer.process, "inode": inode }));
        self.audit.write("grant", fields).map_err(|error| system("the audit log", error))?;
        reply(&peer.socket, &Reply::Granted(ring), &[socket.as_fd()]).map_err(|error| system("handing over", error))
    }

    fn refuse(
        &mut self,
        id: u64,
        connections: &mut BTreeMap<u64, Connection>,
        refusal: &Refusal,
        request_fields: Value,
    ) {
        let Some(connection) = connections.remove(&id) else { return };
        let peer = &connection.peer;
        let mut fields = if request_fields.is_null() { json!({}) } else { request_fields };
        let status = refusal.status;
        merge(
            &mut fields,
            json!({ "user": peer.user, "process": peer.process, "status": status.name(), "reason": refusal.text }),
        );
        self.audit.refuse(self.policy.names(peer.user).then_some(peer.user), fields);
        // Ignored: the peer may have closed its end.
        let _ = reply(&peer.socket, &Reply::Refused { status, text: refusal.text.clone() }, &[]);
    }

    fn close(&mut self, id: u64, connections: &mut BTreeMap<u64, Connection>) {
        let Some(connection) = connections.remove(&id) else { return };
        let State::Holding(key) = connection.state else { return };
        match connection.peer.pidfd {
            // The kernel closes the connection of a killed process some time before its socket.
            Some(pidfd) if self.groups.holds(key) && !is_readable(&pidfd) => {
                self.exiting_holders.push(ExitingHolder { key, pidfd, until: Instant::now() + EXIT_TIMEOUT });
            }
            _ => self.end(key),
        }
    }

    fn finish_exiting_holders(&mut self, is_over: impl Fn(&ExitingHolder) -> bool) {
        let (over, others) = std::mem::take(&mut self.exiting_holders).into_iter().partition(is_over);
        self.exiting_holders = others;
        let over: Vec<ExitingHolder> = over;
        for holder in over {
            self.end(holder.key);
        }
    }

    /// Ends a grant whose holder is gone, once its socket is closed everywhere.
    fn end(&mut self, key: Key) {
        self.groups.release(key);
        self.ledger.orphan(key);
        self.sweep(2);
    }

    /// Sends the holders placeholders that keep their sockets at their positions in the group. They stay in the queues
    /// of their connections.
    fn leave_placeholders(&mut self, connections: &BTreeMap<u64, Connection>) {
        let mut failures = vec![];
        for (members, placeholders) in self.groups.placeholders() {
            let placeholders: Vec<BorrowedFd<'_>> = match placeholders {
                Ok(placeholders) => placeholders,
                Err(error) => {
                    failures.push(error.to_string());
                    continue;
                }
            };
            for connection in connections.values() {
                if matches!(connection.state, State::Holding(key) if members.include(key)) {
                    for chunk in placeholders.chunks(SOCKETS_PER_MESSAGE) {
                        match reply(&connection.peer.socket, &Reply::Shutdown, chunk) {
                            // The holder is gone.
                            Ok(()) | Err(Errno::EPIPE | Errno::ECONNRESET) => {}
                            Err(error) => failures.push(error.to_string()),
                        }
                    }
                }
            }
        }
        if !failures.is_empty() {
            self.audit.note("sockets may lose their frames when others are closed", json!({ "reasons": failures }));
        }
    }

    /// Lists the open sockets `times` times, and ends the grants of closed ones.
    fn sweep(&mut self, times: usize) {
        let mut gone = vec![];
        for _ in 0..times {
            match open_packet_sockets() {
                Ok(open) => gone.extend(self.ledger.sweep(&open)),
                // Then nothing is freed: a SAP must not be granted twice.
                Err(error) => self.audit.note("sweep failed", json!({ "reason": error.to_string() })),
            }
        }
        if !gone.is_empty() {
            self.save_grants();
        }
        for entry in gone {
            self.claims.remove(&(entry.index, entry.sap));
            self.audit.note("return", serde_json::to_value(&entry).unwrap_or_default());
        }
    }

    /// Saves the grants after one was returned. After a failure, the next broker detects the closed sockets itself.
    fn save_grants(&mut self) {
        if let Err(error) = self.grant_file.write(&self.ledger) {
            self.audit.note("grants not written", json!({ "reason": error.to_string() }));
        }
    }

    fn reload(&mut self) {
        if let Err(error) = self.audit.reopen() {
            self.audit.note("audit log not opened anew", json!({ "reason": error.to_string() }));
        }
        match (self.reload)() {
            Ok(policy) => {
                self.policy = policy;
                self.audit.note("policy", json!({ "path": self.policy_path.display().to_string() }));
            }
            Err(reason) => self.audit.note("policy refused, the old one stays", json!({ "reason": reason })),
        }
    }
}

/// Claims the service access points granted by a previous broker, as far as their interfaces exist and they are free.
pub fn claims_of(ledger: &Ledger) -> BTreeMap<Key, Claim> {
    let claim = |entry: &Entry| {
        let interface = Interface::by_name(&entry.interface).ok().filter(|found| found.index == entry.index)?;
        match Claim::take(interface.address, entry.sap) {
            Ok(Claimed::Acquired(claim)) => Some(((entry.index, entry.sap), claim)),
            _ => None,
        }
    };
    ledger.entries().filter_map(claim).collect()
}

struct Ready {
    listener: bool,
    connections: Vec<u64>,
}

fn has_ended(peer: &Peer) -> bool {
    peer.pidfd.as_ref().is_some_and(is_readable)
}

fn is_readable(pidfd: &OwnedFd) -> bool {
    let mut request = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    poll(&mut request, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

fn describe(request: &Request) -> Value {
    json!({ "interface": request.interface, "sap": request.sap.byte(), "station": request.station })
}

fn merge(fields: &mut Value, more: Value) {
    if let (Value::Object(fields), Value::Object(more)) = (fields, more) {
        fields.extend(more);
    }
}

fn refusal(status: Status, text: String) -> Refusal {
    Refusal { status, text }
}

fn system(operation: &str, error: impl std::fmt::Display) -> Refusal {
    refusal(Status::System, format!("{operation}: {error}"))
}

impl From<MessageError> for Refusal {
    fn from(error: MessageError) -> Self {
        refusal(Status::Malformed, error.to_string())
    }
}

impl From<LinkError> for Refusal {
    fn from(error: LinkError) -> Self {
        let status = match error {
            LinkError::NoSuchInterface(_) | LinkError::NotEthernet { .. } => Status::NoInterface,
            _ => Status::System,
        };
        let text = match error {
            LinkError::NotPermitted => "the kernel refuses: it needs Linux 5.17 or later, and CAP_NET_RAW".to_owned(),
            error => error.to_string(),
        };
        refusal(status, text)
    }
}

/// The largest number of connections with this limit of descriptors.
pub fn connections_max(descriptors: u64) -> usize {
    use crate::bounds::{CONNECTIONS, DESCRIPTORS_OF_CONNECTION, DESCRIPTORS_RESERVED};
    let free = usize::try_from(descriptors).unwrap_or(usize::MAX).saturating_sub(DESCRIPTORS_RESERVED);
    (free / DESCRIPTORS_OF_CONNECTION).min(CONNECTIONS)
}
