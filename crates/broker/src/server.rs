// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker's loop: one thread, one poll, nothing that waits for a client.

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
    ACCEPT_PAUSE, ACCEPTED_AT_ONCE, BEQUEATHED_AT_ONCE, CONNECTIONS, CONNECTIONS_OF_STRANGERS, CONNECTIONS_OF_USER,
    ENDING_PATIENCE, LOOK, REQUEST_PATIENCE,
};
use crate::egress::mark_of;
use crate::groups::Groups;
use crate::ledger::{Entry, Key, Ledger};
use crate::notebook::{Notebook, open_packet_sockets};
use crate::peer::{Accepted, Peer, Received, accept, has_hung_up, receive, reply};
use crate::policy::Policy;
use crate::signals::{Signal, Signals};

/// What the broker is made of; see [`run`](Server::run).
pub struct Server {
    pub listener: OwnedFd,
    pub signals: Signals,
    pub policy: Policy,
    /// Reads the policy file anew, or says what is wrong with it.
    pub reload: Box<dyn Fn() -> Result<Policy, String>>,
    pub audit: Audit,
    pub notebook: Notebook,
    pub ledger: Ledger,
    pub groups: Groups,
    /// Of what is in the ledger: keeps programs that need no broker from it.
    pub claims: BTreeMap<Key, Claim>,
    pub endings: Vec<Ending>,
    pub connections_max: usize,
    pub policy_path: PathBuf,
}

struct Connection {
    peer: Peer,
    state: State,
}

enum State {
    /// Nothing has been asked yet; until then.
    Waiting(Instant),
    Holding(Key),
}

/// A socket in a group whose connection has ended before its process: it is ours alone when that has ended as well.
pub struct Ending {
    key: Key,
    pidfd: OwnedFd,
    until: Instant,
}

/// All of them, since who listens to one alone comes behind the kernel's own handler of length frames.
const PROTOCOL: u16 = libc::ETH_P_ALL as u16;

/// Why not, for the client and for the log.
struct Refusal {
    status: Status,
    text: String,
}

impl Server {
    /// Serves until a signal asks for the end. Sockets that were handed out go on.
    ///
    /// # Errors
    /// If poll fails, which means that we are broken.
    pub fn run(mut self) -> io::Result<()> {
        let mut connections: BTreeMap<u64, Connection> = BTreeMap::new();
        let (mut next_id, mut accept_after, mut look_at) = (0_u64, Instant::now(), Instant::now());
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
                wake_at(look_at);
            }
            for connection in connections.values() {
                if let State::Waiting(until) = connection.state {
                    wake_at(until);
                }
            }
            for ending in &self.endings {
                wake_at(ending.until);
            }
            let ready = self.wait(&connections, accept_after <= now, wake)?;
            for signal in self.signals.take() {
                match signal {
                    Signal::End => {
                        self.take_leave(&connections);
                        self.audit.note("end", json!({ "held": self.ledger.entries().count() }));
                        return Ok(());
                    }
                    Signal::Reload => self.reload(),
                }
            }
            // A look at each group's socket, which costs less than knowing whose descriptor it was.
            for error in self.groups.recover() {
                let fields = json!({ "reason": error.to_string() });
                self.audit.note("sockets may lose their frames since their interface went down", fields);
            }
            self.serve_each_user_once(&ready.connections, &mut connections);
            let now = Instant::now();
            self.finish_endings(|ending| ending.until <= now || is_readable(&ending.pidfd));
            let late: Vec<u64> = connections
                .iter()
                .filter(|(_, one)| matches!(one.state, State::Waiting(until) if until <= now))
                .map(|(id, _)| *id)
                // What was asked and not served yet is not late.
                .filter(|id| !ready.connections.contains(id))
                .collect();
            for id in late {
                let text = format!("nothing was asked within {} s", REQUEST_PATIENCE.as_secs());
                self.refuse(id, &mut connections, &Refusal { status: Status::Malformed, text }, Value::Null);
            }
            if ready.listener {
                accept_after = self.accept_some(&mut connections, &mut next_id, now);
            }
            if self.ledger.has_orphans() && look_at <= now {
                self.sweep(1);
                look_at = now + LOOK;
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
        requests.extend(self.endings.iter().map(|ending| PollFd::new(ending.pidfd.as_fd(), PollFlags::POLLIN)));
        // Errors are always looked for.
        requests.extend(self.groups.alarms().map(|alarm| PollFd::new(alarm, PollFlags::empty())));
        // Rounded up, or the last millisecond would be a loop.
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

    /// Takes some of those who wait at the door; the time before which not to open it again.
    fn accept_some(&mut self, connections: &mut BTreeMap<u64, Connection>, next_id: &mut u64, now: Instant) -> Instant {
        let named = |policy: &Policy, user| policy.names(user).then_some(user);
        // All whom the policy does not name share one count.
        let mut counts: BTreeMap<Option<u32>, usize> = BTreeMap::new();
        for connection in connections.values() {
            *counts.entry(named(&self.policy, connection.peer.user)).or_default() += 1;
        }
        for _ in 0..ACCEPTED_AT_ONCE {
            let peer = match accept(&self.listener) {
                Ok(Accepted::Peer(peer)) => peer,
                Ok(Accepted::Gone) => continue,
                Ok(Accepted::Nobody) => break,
                Err(error) => {
                    self.audit.note("accept failed", json!({ "reason": error.to_string() }));
                    return now + ACCEPT_PAUSE;
                }
            };
            let user = named(&self.policy, peer.user);
            let share = if user.is_some() { CONNECTIONS_OF_USER } else { CONNECTIONS_OF_STRANGERS };
            let same = counts.entry(user).or_default();
            // A broker that may have fewer connections has smaller shares, or one user's would be all.
            if *same >= share * self.connections_max / CONNECTIONS || connections.len() >= self.connections_max {
                let text = format!("too many connections ({same} of this user); try again later");
                // Told if possible; in any case it ends here.
                let refused = Reply::Refused { status: Status::TooMany, text: text.clone() };
                let _ = reply(&peer.socket, &refused, &[]);
                let fields =
                    json!({ "user": peer.user, "process": peer.process, "status": "too many", "reason": text });
                self.audit.refuse(user, fields);
                continue;
            }
            *same += 1;
            connections.insert(*next_id, Connection { peer, state: State::Waiting(now + REQUEST_PATIENCE) });
            *next_id += 1;
        }
        now
    }

    /// Serves one of those connections of each user: a grant takes tens of milliseconds, in which other users and signals
    /// wait. Who has hung up before it was served has no use for a grant.
    fn serve_each_user_once(&mut self, ready: &[u64], connections: &mut BTreeMap<u64, Connection>) {
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

    /// Something happened on a connection: a request, its end, or that of its process.
    fn serve(&mut self, id: u64, connections: &mut BTreeMap<u64, Connection>) {
        let Some(connection) = connections.get_mut(&id) else { return };
        let (received, state) = (receive(&connection.peer.socket), &connection.state);
        match (received, state) {
            (Received::Message(bytes), State::Waiting(_)) => {
                let request = Request::decode(&bytes);
                let asked = request.as_ref().map_or(Value::Null, describe);
                match request.map_err(Refusal::from).and_then(|request| self.grant(&connection.peer, &request)) {
                    Ok(key) => connection.state = State::Holding(key),
                    Err(refusal) => self.refuse(id, connections, &refusal, asked),
                }
            }
            // One connection, one request.
            (Received::Message(_), State::Holding(_)) | (Received::End, _) => self.close(id, connections),
            // Then it is the process that has ended; somebody else holds its connection.
            (Received::Nothing, _) if has_ended(&connection.peer) => self.close(id, connections),
            (Received::Nothing, _) => {}
        }
    }

    /// Opens a socket as asked and hands it over, or says why not.
    fn grant(&mut self, peer: &Peer, request: &Request) -> Result<Key, Refusal> {
        let (user, name, sap) = (peer.user, &request.interface, request.sap.byte());
        let at_most = self.policy.at_most(user, request).ok_or_else(|| {
            let what = if request.station { " as a station" } else { "" };
            let path = self.policy_path.display();
            refusal(
                Status::NotAllowed,
                format!("no rule allows user {user} SAP {sap:#04x}{what} on {name}: see {path}"),
            )
        })?;
        let interface = Interface::by_name(name)?;
        let key = (interface.index, sap);
        if self.ledger.owner(key).is_some() || self.ledger.count(user) >= at_most {
            // Somebody waits: what happens should one of these still be open is worse for the next ones only.
            self.finish_endings(|_| true);
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
            Claimed::Ours(claim) => Some(claim),
            // Then opening says so as well.
            Claimed::NotPermitted => None,
            Claimed::Taken => {
                let text =
                    format!("SAP {sap:#04x} on {name} is taken by a program that needs no broker; choose another");
                return Err(refusal(Status::Taken, text));
            }
        };
        let (socket, ring) = self.open(&interface, request)?;
        let inode = fstat(&socket).map_err(|error| system("fstat", error))?.st_ino;
        self.ledger.enter(Entry::new(name, key, user, peer.process, inode));
        let handed = self.hand_over(peer, request, inode, (&socket, ring));
        if handed.is_ok() {
            self.claims.extend(claim.map(|claim| (key, claim)));
        } else {
            drop(socket);
            self.groups.release(key, || is_closed(inode));
            self.ledger.strike(key);
            self.remember();
        }
        handed.map(|()| key)
    }

    /// A socket in its interface's group, or alone where it wants frames that others get as well, or there is no group.
    fn open(&mut self, interface: &Interface, request: &Request) -> Result<(OwnedFd, RingGeometry), LinkError> {
        let filter = if request.station { station_filter(request.sap) } else { sap_filter(request.sap) };
        let mark = mark_of(request.sap);
        let open = || Restricted::open(interface, PROTOCOL, &filter, mark, PacketConfig::DEFAULT_RING_BYTES);
        if !request.station {
            match self.groups.admit(interface, PROTOCOL, request.sap.byte(), open) {
                Ok(admitted) => return Ok(admitted),
                Err(error) => {
                    let what = "each frame of the interface costs some 40 ns more for every socket that is not shared";
                    let mut fields = describe(request);
                    merge(&mut fields, json!({ "reason": error.to_string(), "means": what }));
                    self.audit.note("not in a group", fields);
                }
            }
        }
        open()?.seclude()
    }

    /// Written down first: what is handed over and not known would be handed over twice.
    fn hand_over(
        &mut self,
        peer: &Peer,
        request: &Request,
        inode: u64,
        (socket, ring): (&OwnedFd, RingGeometry),
    ) -> Result<(), Refusal> {
        self.notebook.write(&self.ledger).map_err(|error| system("writing down the grant", error))?;
        let mut fields = describe(request);
        merge(&mut fields, json!({ "user": peer.user, "process": peer.process, "inode": inode }));
        self.audit.write("grant", fields).map_err(|error| system("the audit log", error))?;
        reply(&peer.socket, &Reply::Granted(ring), &[socket.as_fd()]).map_err(|error| system("handing over", error))
    }

    fn refuse(&mut self, id: u64, connections: &mut BTreeMap<u64, Connection>, refusal: &Refusal, asked: Value) {
        let Some(connection) = connections.remove(&id) else { return };
        let peer = &connection.peer;
        let mut fields = if asked.is_null() { json!({}) } else { asked };
        let status = refusal.status;
        merge(
            &mut fields,
            json!({ "user": peer.user, "process": peer.process, "status": status.name(), "reason": refusal.text }),
        );
        self.audit.refuse(self.policy.names(peer.user).then_some(peer.user), fields);
        // The peer may have gone; then there is nobody to tell.
        let _ = reply(&peer.socket, &Reply::Refused { status, text: refusal.text.clone() }, &[]);
    }

    fn close(&mut self, id: u64, connections: &mut BTreeMap<u64, Connection>) {
        let Some(connection) = connections.remove(&id) else { return };
        let State::Holding(key) = connection.state else { return };
        match connection.peer.pidfd {
            // A process that is killed ends its connection some time before it ends its socket.
            Some(pidfd) if self.groups.holds(key) && !is_readable(&pidfd) => {
                self.endings.push(Ending { key, pidfd, until: Instant::now() + ENDING_PATIENCE });
            }
            _ => self.end(key),
        }
    }

    fn finish_endings(&mut self, is_over: impl Fn(&Ending) -> bool) {
        let (over, others) = std::mem::take(&mut self.endings).into_iter().partition(is_over);
        self.endings = others;
        let over: Vec<Ending> = over;
        for ending in over {
            self.end(ending.key);
        }
    }

    /// Nobody says any more that the socket is in use.
    fn end(&mut self, key: Key) {
        if let Some(inode) = self.ledger.owner(key).map(|entry| entry.inode) {
            self.groups.release(key, || is_closed(inode));
        }
        self.ledger.orphan(key);
        self.sweep(2);
    }

    /// Leaves those who stay what keeps their sockets in their places, in the queues of their connections.
    fn take_leave(&mut self, connections: &BTreeMap<u64, Connection>) {
        let mut trouble = vec![];
        for (heirs, left) in self.groups.bequeath() {
            let left: Vec<BorrowedFd<'_>> = match left {
                Ok(left) => left,
                Err(error) => {
                    trouble.push(error.to_string());
                    continue;
                }
            };
            for connection in connections.values() {
                if matches!(connection.state, State::Holding(key) if heirs.include(key)) {
                    for some in left.chunks(BEQUEATHED_AT_ONCE) {
                        // Who has gone needs nothing any more.
                        match reply(&connection.peer.socket, &Reply::Farewell, some) {
                            Ok(()) | Err(Errno::EPIPE | Errno::ECONNRESET) => {}
                            Err(error) => trouble.push(error.to_string()),
                        }
                    }
                }
            }
        }
        if !trouble.is_empty() {
            self.audit.note("sockets may lose their frames when others are closed", json!({ "reasons": trouble }));
        }
    }

    /// Looks `times` which sockets are open, and frees what belonged to those that are not.
    fn sweep(&mut self, times: usize) {
        let mut gone = vec![];
        for _ in 0..times {
            match open_packet_sockets() {
                Ok(open) => gone.extend(self.ledger.sweep(&open)),
                // Nothing is freed then: better too few than one twice.
                Err(error) => self.audit.note("look failed", json!({ "reason": error.to_string() })),
            }
        }
        if !gone.is_empty() {
            self.remember();
        }
        for entry in gone {
            self.claims.remove(&(entry.index, entry.sap));
            self.audit.note("return", serde_json::to_value(&entry).unwrap_or_default());
        }
    }

    /// What was given back; a failure leaves what the next broker finds out by itself.
    fn remember(&mut self) {
        if let Err(error) = self.notebook.write(&self.ledger) {
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

/// Claims what a broker before us has granted, as far as its interfaces are there and nobody else has it meanwhile.
pub fn claims_of(ledger: &Ledger) -> BTreeMap<Key, Claim> {
    let claim = |entry: &Entry| {
        let interface = Interface::by_name(&entry.interface).ok().filter(|found| found.index == entry.index)?;
        match Claim::take(interface.address, entry.sap) {
            Ok(Claimed::Ours(claim)) => Some(((entry.index, entry.sap), claim)),
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

/// Whether no packet socket has that number, in two looks: one may be missed while others come and go.
fn is_closed(inode: u64) -> bool {
    (0..2).all(|_| open_packet_sockets().is_ok_and(|open| !open.contains(&inode)))
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

/// For a broker that may open so many descriptors.
pub fn connections_max(descriptors: u64) -> usize {
    use crate::bounds::{CONNECTIONS, DESCRIPTORS_OF_CONNECTION, DESCRIPTORS_OF_OURS};
    let free = usize::try_from(descriptors).unwrap_or(usize::MAX).saturating_sub(DESCRIPTORS_OF_OURS);
    (free / DESCRIPTORS_OF_CONNECTION).min(CONNECTIONS)
}
