// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker itself, on the loopback interface: who is granted what, which socket receives which frames, and what
//! remains when the broker ends. Needs CAP_NET_RAW; `make test` provides it in a user namespace.

use std::fs;
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use barewire_broker::{Grant, MESSAGE_BYTES_MAX, Reply, Request, RequestError, Status, request_grant};
use barewire_link::{Filter, Link, LinkError, Outgoing, PacketConfig, PacketLink};
use barewire_llc::Lsap;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, sendmsg, setsockopt,
    socket, sockopt,
};
use nix::unistd::{Pid, geteuid};
use serde_json::{Value, json};

const BROKER: &str = env!("CARGO_BIN_EXE_barewire-broker");
/// In the environment of the process that `sockets_given_on…` starts: the broker's socket.
const HOLDER: &str = "BAREWIRE_TEST_HOLDER";
const NULL_SAP: u8 = 0;
const GLOBAL_SAP: u8 = 0xff;

/// A broker with its own directory. Tests have service access points of their own: they share the interface.
struct Site {
    directory: PathBuf,
    first_sap: u8,
    broker: Option<Child>,
}

impl Site {
    /// Allows this user three of the eight service access points from `first_sap` on; the last two as a station.
    fn new(first_sap: u8) -> Option<Self> {
        let config =
            PacketConfig { interface: "lo".to_owned(), protocol: 0x88b7, filter: Filter::default(), ring_bytes: 1 };
        match PacketLink::open(&config) {
            Ok(_) => {}
            Err(LinkError::NotPermitted) => {
                skip("raw frames need CAP_NET_RAW: run `make test`, which gives it in a user namespace, or as root");
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        let directory = std::env::temp_dir().join(format!("barewire-broker-{}-{first_sap}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let mut site = Self { directory, first_sap, broker: None };
        site.write_policy(3);
        site.start();
        Some(site)
    }

    fn write_policy(&self, at_most: usize) {
        let (user, first) = (geteuid(), self.first_sap);
        let rule = |first: u8, last: u8, more: &str| {
            format!(
                "[[allow]]\nusers = [{user}]\ninterfaces = [\"lo\", \"none0\"]\nsaps = [\"{first:#04x}-{last:#04x}\"]\n\
                 at_most = {at_most}\n{more}\n"
            )
        };
        let text = rule(first, first + 14, "") + &rule(first + 12, first + 14, "station = true");
        fs::write(self.directory.join("policy.toml"), text).unwrap();
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(BROKER);
        command.arg(subcommand).arg("--policy").arg(self.directory.join("policy.toml"));
        if subcommand == "serve" {
            command.arg("--socket").arg(self.socket()).arg("--audit").arg(self.directory.join("audit"));
        }
        command
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    fn start(&mut self) {
        let mut command = self.command("serve");
        // SAFETY: prctl may be called between fork and exec. A broker ends with its test, however that ends.
        unsafe { command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
        let mut broker = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(broker.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("ready"), "{line}");
        self.broker = Some(broker);
    }

    fn signal(&self, signal: Signal) {
        let broker = self.broker.as_ref().expect("a broker is running");
        kill(Pid::from_raw(i32::try_from(broker.id()).unwrap()), signal).unwrap();
    }

    fn end(&mut self, by: Signal) -> ExitStatus {
        self.signal(by);
        self.broker.take().unwrap().wait().unwrap()
    }

    /// Asks for the service access point `2 * number` after the first.
    fn ask(&self, number: u8) -> Result<Grant, RequestError> {
        self.ask_with(number, |_| {})
    }

    fn ask_with(&self, number: u8, change: impl Fn(&mut Request)) -> Result<Grant, RequestError> {
        let mut request = Request { interface: "lo".to_owned(), sap: self.sap(number), station: false };
        change(&mut request);
        request_grant(&self.socket(), &request)
    }

    fn sap(&self, number: u8) -> Lsap {
        Lsap::new(self.first_sap + 2 * number).unwrap()
    }

    /// Asks until it is granted: the broker learns of returned sockets from the kernel, with a delay.
    fn ask_until_granted(&self, number: u8) -> Grant {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            match self.ask(number) {
                Ok(grant) => return grant,
                Err(error) if Instant::now() > until => panic!("{error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn member(&self, number: u8) -> Member {
        Member::new(self.sap(number), self.ask(number).unwrap())
    }

    fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.directory.join("audit")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The last audit record of this kind.
    fn last(&self, event: &str) -> Value {
        self.audit().into_iter().rev().find(|record| record["event"] == event).unwrap_or_default()
    }

    /// Waits for an audit record of this kind with this reason.
    fn wait_for(&self, event: &str, reason: &str) {
        let until = Instant::now() + Duration::from_secs(5);
        while !self.audit().iter().any(|record| record["event"] == event && record.to_string().contains(reason)) {
            assert!(Instant::now() < until, "no record '{event}' with '{reason}': {:?}", self.audit());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn connect(&self) -> OwnedFd {
        let connection = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        connect(connection.as_raw_fd(), &UnixAddr::new(&self.socket()).unwrap()).unwrap();
        connection
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut broker) = self.broker.take() {
            let _ = broker.kill();
            let _ = broker.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The holder of a service access point.
struct Member {
    sap: u8,
    // Closed before the connection to the broker.
    link: PacketLink,
    _lease: OwnedFd,
}

impl Member {
    fn new(sap: Lsap, grant: Grant) -> Self {
        let link = PacketLink::adopt(grant.socket, "lo", grant.ring, None).unwrap();
        Self { sap: sap.byte(), link, _lease: grant.lease }
    }

    /// The DSAPs of the frames that have arrived; waits for the first.
    fn received(&mut self, number: u8) -> Vec<u8> {
        let mut saps = vec![];
        let mut wait = Duration::from_secs(1);
        while self.link.wait_to_receive(wait).unwrap() {
            while let Some(frame) = self.link.receive() {
                if frame.bytes.get(17) == Some(&number) {
                    saps.push(frame.bytes[14]);
                }
            }
            wait = Duration::ZERO;
        }
        saps
    }
}

/// Sends a frame to each service access point; each member receives its own and no other.
fn check(members: &mut [&mut Member]) {
    send_frames(&members.iter().map(|member| member.sap).chain([0xfc]).collect::<Vec<_>>(), 1);
    for member in members {
        assert_eq!(member.received(1), [member.sap]);
    }
}

fn send_frames(saps: &[u8], number: u8) {
    let config =
        PacketConfig { interface: "lo".to_owned(), protocol: 0x88b7, filter: Filter::default(), ring_bytes: 1 };
    let mut sender = PacketLink::open(&config).unwrap();
    for sap in saps {
        let header = [&[0; 12][..], &4_u16.to_be_bytes(), &[*sap, 0xfc, 0x03]].concat();
        assert_eq!(sender.send(&[Outgoing { header: &header, payload: &[number], label: 0 }]).unwrap(), 1);
    }
}

fn status_of(asked: Result<Grant, RequestError>) -> (Status, String) {
    match asked {
        Err(RequestError::Refused { status, text }) => (status, text),
        other => panic!("{other:?}"),
    }
}

/// Reports a skip, and records it where `make test` counts skips.
fn skip(reason: &str) {
    let line = format!("SKIPPED {}: {reason}\n", std::thread::current().name().unwrap_or("?"));
    eprint!("{line}");
    if let Some(path) = std::env::var_os("BAREWIRE_SKIP_LOG") {
        let log = fs::File::options().create(true).append(true).open(path);
        log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the skip log can be written");
    }
}

#[test]
fn grants_are_exclusive_bounded_and_returned() {
    let Some(site) = Site::new(0x10) else { return };
    let first = site.ask(0).unwrap();
    let (status, text) = status_of(site.ask(0));
    assert_eq!((status, text.contains(&format!("by your process {}", std::process::id()))), (Status::Taken, true));
    for number in 8..=9 {
        let (status, text) = status_of(site.ask(number));
        assert_eq!((status, text.contains("policy.toml")), (Status::NotAllowed, true), "{text}");
    }
    assert_eq!(status_of(site.ask_with(1, |request| request.station = true)).0, Status::NotAllowed);
    assert_eq!(status_of(site.ask_with(1, |request| "eth7".clone_into(&mut request.interface))).0, Status::NotAllowed);
    assert_eq!(
        status_of(site.ask_with(1, |request| "none0".clone_into(&mut request.interface))).0,
        Status::NoInterface
    );
    let second = site.ask(1).unwrap();
    let _third = site.ask(2).unwrap();
    let (status, text) = status_of(site.ask(3));
    assert_eq!((status, text.contains("holds 3 descriptors, of at most 3")), (Status::TooMany, true), "{text}");
    // The grant lasts as long as the socket, whatever becomes of the connection.
    drop(second.lease);
    assert_eq!(status_of(site.ask(3)).0, Status::TooMany);
    assert_eq!(status_of(site.ask(1)).0, Status::Taken);
    drop(second.socket);
    let again = site.ask_until_granted(1);
    drop((first.socket, first.lease));
    let _fourth = site.ask_until_granted(3);
    drop(again);
    let grant = site.last("grant");
    assert_eq!(
        [&grant["user"], &grant["process"], &grant["interface"], &grant["sap"], &grant["station"]],
        [&json!(geteuid().as_raw()), &json!(std::process::id()), &json!("lo"), &json!(0x16), &json!(false)]
    );
    assert_eq!((site.last("return")["sap"].as_u64(), site.last("refusal")["user"].is_u64()), (Some(0x10), true));
}

#[test]
fn each_holder_receives_its_own_frames_while_others_come_and_go() {
    let Some(site) = Site::new(0x30) else { return };
    let (mut first, mut second) = (site.member(0), site.member(1));
    check(&mut [&mut first, &mut second]);
    let mut third = site.member(2);
    check(&mut [&mut first, &mut second, &mut third]);
    drop(second);
    check(&mut [&mut first, &mut third]);
    let mut fourth = Member::new(site.sap(3), site.ask_until_granted(3));
    check(&mut [&mut fourth, &mut first, &mut third]);
    drop(first);
    check(&mut [&mut fourth, &mut third]);
    assert!(site.last("not in a group").is_null(), "{:?}", site.audit());
}

#[test]
fn a_station_receives_frames_to_all() {
    let Some(site) = Site::new(0x50) else { return };
    let mut member = site.member(0);
    let grant = site.ask_with(6, |request| request.station = true).unwrap();
    let mut station = Member::new(site.sap(6), grant);
    send_frames(&[NULL_SAP, member.sap, GLOBAL_SAP, station.sap], 5);
    assert_eq!(station.received(5), [NULL_SAP, GLOBAL_SAP, station.sap]);
    assert_eq!(member.received(5), [member.sap]);
}

/// What a killed broker granted is known to the next one; so is what was returned in the meantime.
#[test]
fn grants_outlive_a_killed_broker() {
    let Some(mut site) = Site::new(0x70) else { return };
    let (mut first, second) = (site.member(0), site.member(1));
    assert!(!site.end(Signal::SIGKILL).success());
    drop(second);
    check(&mut [&mut first]);
    site.start();
    assert_eq!(site.last("start")["held"], 2);
    assert_eq!(status_of(site.ask(0)).0, Status::Taken);
    let mut second = site.member(1);
    check(&mut [&mut first, &mut second]);
    drop(first);
    let mut first = Member::new(site.sap(0), site.ask_until_granted(0));
    check(&mut [&mut first, &mut second]);
}

/// Numbers of interfaces and sockets have another meaning after a boot; a list that cannot be read may hide a grant.
#[test]
fn grants_of_another_boot_are_ignored_and_an_unreadable_list_is_an_error() {
    let Some(mut site) = Site::new(0x04) else { return };
    let held = site.ask(0).unwrap();
    let list = site.directory.join("socket.grants");
    let text = fs::read_to_string(&list).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let (head, entries) = text.split_once('\n').unwrap();
    assert!(head.contains(boot.trim()), "{head}");
    assert!(!site.end(Signal::SIGKILL).success());
    fs::write(&list, format!("{{\"boot\":\"another\"}}\n{entries}")).unwrap();
    site.start();
    assert_eq!(site.last("start")["held"], 0);
    drop(held);
    drop(site.ask(0).unwrap());
    assert!(site.end(Signal::SIGTERM).success());
    fs::remove_file(&list).unwrap();
    fs::create_dir(&list).unwrap();
    let output = site.command("serve").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.contains("the list of grants")), (Some(1), true), "{text}");
}

/// The sockets of a group stay where they are when the broker ends, so that one that is closed moves no other.
#[test]
fn sockets_work_after_a_terminated_broker() {
    let Some(mut site) = Site::new(0x90) else { return };
    let (mut first, second, mut third) = (site.member(0), site.member(1), site.member(2));
    assert!(site.end(Signal::SIGTERM).success());
    assert_eq!(site.last("end")["held"], 3);
    assert!(matches!(site.ask(3), Err(RequestError::Unreachable { .. })));
    check(&mut [&mut first, &mut third]);
    // Its slot, in the middle, must stay taken: the kernel would move the third one there.
    drop(second);
    check(&mut [&mut first, &mut third]);
    drop(first);
    check(&mut [&mut third]);
}

#[test]
fn a_policy_is_reloaded_and_a_wrong_one_refused() {
    let Some(site) = Site::new(0xb0) else { return };
    let _held = [site.ask(0).unwrap(), site.ask(1).unwrap(), site.ask(2).unwrap()];
    assert_eq!(status_of(site.ask(3)).0, Status::TooMany);
    fs::rename(site.directory.join("audit"), site.directory.join("audit.1")).unwrap();
    fs::write(site.directory.join("policy.toml"), "[[allow]]\nusers = \"all\"\n").unwrap();
    site.signal(Signal::SIGHUP);
    site.wait_for("policy refused, the old one stays", "policy.toml:2");
    assert_eq!(status_of(site.ask(3)).0, Status::TooMany);
    site.write_policy(4);
    site.signal(Signal::SIGHUP);
    site.wait_for("policy", "policy.toml");
    let _fourth = site.ask(3).unwrap();
    assert_eq!(status_of(site.ask(4)).0, Status::TooMany);
}

/// Invalid requests are refused, a second message on a connection ends it, and a silent connection is not waited for.
#[test]
fn connections_have_one_request_and_bounds() {
    let Some(site) = Site::new(0xd0) else { return };
    let answer = |connection: &OwnedFd| {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        let length = recv(connection.as_raw_fd(), &mut bytes, MsgFlags::empty()).unwrap();
        Reply::decode(&bytes[..length])
    };
    let silent = site.connect();
    let wrong = site.connect();
    send(wrong.as_raw_fd(), b"hello", MsgFlags::MSG_NOSIGNAL).unwrap();
    assert!(matches!(answer(&wrong), Ok(Reply::Refused { status: Status::Malformed, .. })));
    let grant = site.ask(0).unwrap();
    let request = Request { interface: "lo".to_owned(), sap: site.sap(1), station: false }.encode().unwrap();
    send(grant.lease.as_raw_fd(), &request, MsgFlags::MSG_NOSIGNAL).unwrap();
    drop(grant.socket);
    let again = site.ask_until_granted(0);
    // 256 of a user in all, two of which are there.
    let mut connections: Vec<OwnedFd> = (0..254).map(|_| site.connect()).collect();
    let (status, text) = status_of(site.ask(2));
    assert_eq!((status, text.contains("256 of this user")), (Status::TooMany, true), "{text}");
    connections.pop();
    drop(site.ask_until_granted(2));
    let Ok(Reply::Refused { status: Status::Malformed, text }) = answer(&silent) else { panic!("not refused") };
    assert_eq!(text, "no request within 5 s");
    drop(again);
}

/// A message with a TCP socket that sleeps when it is closed: its send buffer is full, its peer does not read, and
/// SO_LINGER is set.
#[test]
fn a_descriptor_with_a_message_does_not_stop_the_broker() {
    let Some(site) = Site::new(0x20) else { return };
    let connection = site.connect();
    if !has_passrights(&connection) {
        return skip("refusing descriptors needs SO_PASSRIGHTS: Linux 6.16 or later");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut lingering = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _never_reads = listener.accept().unwrap();
    lingering.set_nonblocking(true).unwrap();
    while lingering.write(&[0; 65536]).is_ok() {}
    setsockopt(&lingering, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 30 }).unwrap();
    let descriptors = [lingering.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let sent = sendmsg::<()>(connection.as_raw_fd(), &[IoSlice::new(b"hello")], &rights, MsgFlags::MSG_NOSIGNAL, None);
    if sent.is_err() {
        // Nobody else has the socket: closing it here would sleep.
        setsockopt(&lingering, sockopt::Linger, &libc::linger { l_onoff: 0, l_linger: 0 }).unwrap();
    }
    drop((lingering, connection));
    let began = Instant::now();
    let answer = site.ask(0);
    assert!(began.elapsed() < Duration::from_secs(1), "{answer:?} after {:?}", began.elapsed());
    answer.unwrap();
    assert_eq!(sent, Err(Errno::EPERM));
}

fn has_passrights(socket: &OwnedFd) -> bool {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let (mut value, mut size) = (0_i32, 4);
    let (value, length) = ((&raw mut value).cast(), &raw mut size);
    // SAFETY: both pointers are valid, and `length` is the size of `value`.
    unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, value, length) == 0 }
}

/// A process that ends while another one has its socket and connection, or its socket only.
#[test]
fn sockets_given_on_are_held_until_they_are_closed() {
    let Some(site) = Site::new(0xf0) else { return };
    let holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holder", "--include-ignored", "--nocapture"])
        .env(HOLDER, site.socket())
        .env("BAREWIRE_TEST_SAP", site.sap(0).byte().to_string())
        .status();
    assert!(holder.unwrap().success());
    let grant = site.last("grant");
    assert_ne!(grant["process"], std::process::id());
    let (status, text) = status_of(site.ask(0));
    assert_eq!((status, text.contains("taken")), (Status::Taken, true), "{text}");
    let began = Instant::now();
    site.ask_until_granted(0);
    assert!(began.elapsed() > Duration::from_millis(300));
    assert_eq!(site.last("return")["inode"], grant["inode"]);
}

/// Started by the test above: passes its socket to another process, and ends.
#[test]
#[ignore = "child process of the other tests"]
fn holder() {
    let Some(path) = std::env::var_os(HOLDER) else { return };
    let sap = Lsap::new(std::env::var("BAREWIRE_TEST_SAP").unwrap().parse().unwrap()).unwrap();
    let grant = request_grant(path.as_ref(), &Request { interface: "lo".to_owned(), sap, station: false }).unwrap();
    fcntl(&grant.socket, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let sleep = Command::new("sleep").arg("0.7").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    drop(sleep.unwrap());
}

/// Moves this thread and the processes that it starts to a network namespace of their own, whose interface it may set
/// down. Returns whether it may.
fn move_to_own_namespace() -> bool {
    match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => set_loopback(true),
        Err(Errno::EPERM) => {
            skip("a network namespace of its own needs CAP_SYS_ADMIN: run `make test`, or as root");
            return false;
        }
        Err(error) => panic!("{error}"),
    }
    true
}

fn set_loopback(up: bool) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // SAFETY: zeros are a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    let up = if up { libc::IFF_UP } else { 0 };
    request.ifr_ifru.ifru_flags = (up | libc::IFF_LOOPBACK) as libc::c_short;
    // SAFETY: the request is the kernel's structure and outlives the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &raw const request) };
    Errno::result(done).unwrap();
}

/// The kernel adds such a socket to the group again as well.
#[test]
fn a_socket_kept_without_its_connection_misleads_no_frames_after_the_interface_was_down() {
    if !move_to_own_namespace() {
        return;
    }
    let Some(site) = Site::new(0x60) else { return };
    let kept = site.ask(0).unwrap();
    let mut members = [site.member(1), site.member(2)];
    drop(kept.lease);
    // The broker checks at once whether the socket is closed.
    assert_eq!(status_of(site.ask(3)).0, Status::TooMany);
    let mut kept = Some(kept.socket);
    for keeps in [true, false] {
        set_loopback(false);
        for member in &mut members {
            assert!(matches!(member.link.check(), Err(LinkError::InterfaceDown(_))));
        }
        // In the second turn it is closed once the broker knows that the interface is down.
        std::thread::sleep(Duration::from_millis(200));
        if !keeps {
            kept = None;
            std::thread::sleep(Duration::from_millis(200));
        }
        set_loopback(true);
        std::thread::sleep(Duration::from_millis(200));
        let [first, second] = &mut members;
        check(&mut [first, second]);
    }
    drop(kept);
    assert!(site.last("sockets may lose their frames since their interface went down").is_null(), "{:?}", site.audit());
}

/// Whoever may open the lock file can lock it, and keep the next broker from starting.
#[test]
fn the_lock_file_is_the_brokers_own() {
    let Some(mut site) = Site::new(0x40) else { return };
    let lock = site.directory.join("socket.lock");
    let mode = || fs::metadata(&lock).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    assert!(site.end(Signal::SIGTERM).success());
    // As earlier versions left it.
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o644)).unwrap();
    site.start();
    assert_eq!(mode(), 0o600);
}

#[test]
fn wrong_use_is_refused_at_the_start() {
    let Some(site) = Site::new(0xe0) else { return };
    let run = |mut command: Command| {
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    assert_eq!(run(site.command("check")), (Some(0), String::new()));
    let (code, text) = run(site.command("serve"));
    assert_eq!((code, text.contains("another broker serves")), (Some(2), true), "{text}");
    let mut elsewhere = site.command("serve");
    elsewhere.arg("--user").arg("nobody-of-this-name");
    let (code, text) = run(elsewhere);
    assert_eq!((code, text.contains("there is no user 'nobody-of-this-name'")), (Some(2), true), "{text}");
    // A rule names an interface that does not exist.
    let (code, text) = run(site.command("egress"));
    assert_eq!((code, text.contains("there is no interface none0")), (Some(2), true), "{text}");
    fs::write(site.directory.join("policy.toml"), "allow = 1").unwrap();
    for subcommand in ["check", "serve"] {
        let (code, text) = run(site.command(subcommand));
        assert_eq!((code, text.contains("policy.toml:1: ")), (Some(2), true), "{text}");
    }
}
