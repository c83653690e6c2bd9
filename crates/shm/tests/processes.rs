// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pipes between processes: killed processes, other users, exhausted limits. The other process runs this program's test
//! `child_process`.

use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use barewire_shm::{Awaited, Listener, Pipe, PipeConfig, Refused, ShmError, connect};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect as connect_socket,
    listen, sendmsg, setsockopt, socket, sockopt,
};
use nix::unistd::{ForkResult, Pid, SysconfVar, Uid, fork, pause, setuid, sysconf};

/// The unprivileged user `nobody`.
const NOBODY: u32 = 65_534;
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long a lingering socket blocks the thread that closes it.
const LINGER: Duration = Duration::from_secs(10);

fn name(test: &str) -> String {
    format!("barewire-shm {test} {}", std::process::id())
}

/// A child process with a role; killed on drop.
struct ChildProcess {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl ChildProcess {
    fn start(role: &str, name: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_process", "--ignored", "--nocapture"])
            .envs([("SHM_ROLE", role), ("SHM_NAME", name)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// Next report of the child; the test harness around it also prints.
    fn next_report(&mut self) -> String {
        let lines = self.output.by_ref().lines().map(Result::unwrap);
        lines
            .filter_map(|line| Some(line.split_once("report: ")?.1.to_owned()))
            .next()
            .expect("the child reports something")
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
#[ignore = "child process of the other tests"]
fn child_process() {
    let (role, name) = (std::env::var("SHM_ROLE").unwrap(), std::env::var("SHM_NAME").unwrap());
    let name = name.as_bytes();
    let report = |what: &str| {
        println!("report: {what}");
        std::io::stdout().flush().unwrap();
    };
    match &*role {
        "floods" => flood(connect(name, b"flood", &PipeConfig::default()).unwrap().unwrap()),
        "echoes" => echo(connect(name, b"echo", &PipeConfig::default()).unwrap().unwrap()),
        "forks" => {
            let _pipe = connect(name, b"forks", &PipeConfig::default()).unwrap().unwrap();
            report(&fork_child().to_string());
            pause();
        }
        "connects as nobody" => match setuid(Uid::from_raw(NOBODY)) {
            Err(error) => report(&format!("cannot be nobody: {error}")),
            Ok(()) => {
                let connected = connect(name, b"nobody", &PipeConfig::default());
                assert!(matches!(connected, Err(ShmError::OtherUser { user: 0, .. })), "{connected:?}");
                // A client that does not check the listener's user.
                let _socket = careless_connection(name);
                report("connected");
                std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            }
        },
        "lingers as nobody" => match setuid(Uid::from_raw(NOBODY)) {
            Err(error) => report(&format!("cannot be nobody: {error}")),
            Ok(()) => {
                // The first one is closed together with the next ones, the last one later.
                let _first = send_lingering_socket(name);
                let _others = [(); 18].map(|()| careless_connection(name));
                let _last = send_lingering_socket(name);
                report("connected");
                std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            }
        },
        "listens as nobody" => match setuid(Uid::from_raw(NOBODY)) {
            Err(error) => report(&format!("cannot be nobody: {error}")),
            Ok(()) => {
                let mut listener = Listener::open(name).unwrap();
                report("listens");
                std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
                assert!(listener.accept().unwrap().is_none());
            }
        },
        "drops after a fork" => {
            let pipe = connect(name, b"drops", &PipeConfig::default()).unwrap().unwrap();
            report(&fork_child().to_string());
            drop(pipe);
            pause();
        }
        "listens and forks" => {
            let listener = Listener::open(name).unwrap();
            report(&fork_child().to_string());
            std::io::stdin().read_exact(&mut [0]).unwrap();
            drop(listener);
            report("dropped");
            pause();
        }
        "has no descriptors" => {
            let mut listener = Listener::open(name).unwrap();
            report("listens");
            std::io::stdin().read_exact(&mut [0]).unwrap();
            let (next, hard) = (first_free_descriptor(), getrlimit(Resource::RLIMIT_NOFILE).unwrap().1);
            for left in 0..3 {
                setrlimit(Resource::RLIMIT_NOFILE, next + left, hard).unwrap();
                assert!(listener.accept().unwrap().is_none());
                assert_eq!(listener.refused(), Refused { exhausted: left + 1, ..Default::default() });
                report("refused");
                std::io::stdin().read_exact(&mut [0]).unwrap();
            }
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
            accept(&mut listener).send([b"at last"]);
            pause();
        }
        "has no descriptors for other users" => {
            let mut listener = Listener::open(name).unwrap();
            report("listens");
            std::io::stdin().read_exact(&mut [0]).unwrap();
            let (next, hard) = (first_free_descriptor(), getrlimit(Resource::RLIMIT_NOFILE).unwrap().1);
            setrlimit(Resource::RLIMIT_NOFILE, next, hard).unwrap();
            let began = Instant::now();
            assert!(listener.accept().unwrap().is_none());
            assert_eq!(listener.refused(), Refused { other_users: 20, ..Default::default() });
            assert!(began.elapsed() < LINGER / 2, "{:?}", began.elapsed());
            report("refused");
            std::io::stdin().read_exact(&mut [0]).unwrap();
            assert!(listener.accept().unwrap().is_none());
            assert_eq!(listener.refused(), Refused { other_users: 20, exhausted: 1, ..Default::default() });
            report("refused");
            pause();
        }
        "may have no memory" => {
            let _listener = Listener::open(name).unwrap();
            let connected = || connect(name, b"me", &PipeConfig::default());
            let address_space = {
                let status = std::fs::read_to_string("/proc/self/statm").unwrap();
                let page_bytes = sysconf(SysconfVar::PAGE_SIZE).unwrap().unwrap() as u64;
                status.split(' ').next().unwrap().parse::<u64>().unwrap() * page_bytes
            };
            for (resource, limit) in
                [(Resource::RLIMIT_FSIZE, 1 << 16), (Resource::RLIMIT_AS, address_space), (Resource::RLIMIT_NOFILE, 0)]
            {
                let (soft, hard) = getrlimit(resource).unwrap();
                let limit = if resource == Resource::RLIMIT_NOFILE { first_free_descriptor() } else { limit };
                // Of the descriptors, one is missing each time: the socket's, the process's, the memory's.
                for more in if resource == Resource::RLIMIT_NOFILE { 0..3 } else { 0..1 } {
                    setrlimit(resource, limit + more, hard).unwrap();
                    let refused = connected();
                    setrlimit(resource, soft, hard).unwrap();
                    let is_exhaustion = refused.as_ref().is_err_and(ShmError::is_exhaustion);
                    assert!(is_exhaustion, "{resource:?} {more}: {refused:?}");
                }
                assert!(connected().unwrap().is_some(), "{resource:?}: after the limit is lifted");
            }
            report("done");
        }
        "takes names as nobody" => match setuid(Uid::from_raw(NOBODY)) {
            Err(error) => report(&format!("cannot be nobody: {error}")),
            Ok(()) => {
                // Listens at the first name and binds the second.
                let all = [&b" 1"[..], b" 2"].map(|which| {
                    let at = UnixAddr::new_abstract(&[name, which].concat()).unwrap();
                    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None).unwrap();
                    bind(socket.as_raw_fd(), &at).unwrap();
                    socket
                });
                listen(&all[0], Backlog::MAXCONN).unwrap();
                report("bound");
                std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            }
        },
        role => panic!("unknown role {role}"),
    }
}

/// A connection of a client that checks nothing.
fn careless_connection(name: &[u8]) -> OwnedFd {
    let connection = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None).unwrap();
    connect_socket(connection.as_raw_fd(), &UnixAddr::new_abstract(name).unwrap()).unwrap();
    connection
}

/// Sends the last descriptor of a TCP socket that sleeps when it is closed: its send buffer is full, its peer does not
/// read, and SO_LINGER is set. Returns the peer and the connection.
fn send_lingering_socket(name: &[u8]) -> (TcpStream, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface is up, as in `make test`");
    let mut lingering = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let never_reads = listener.accept().unwrap().0;
    lingering.set_nonblocking(true).unwrap();
    while lingering.write(&[0; 65536]).is_ok() {}
    let linger = libc::linger { l_onoff: 1, l_linger: LINGER.as_secs() as i32 };
    setsockopt(&lingering, sockopt::Linger, &linger).unwrap();
    let (connection, descriptors) = (careless_connection(name), [lingering.as_raw_fd()]);
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let flags = MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(connection.as_raw_fd(), &[IoSlice::new(b"hello")], &rights, flags, None).unwrap();
    (never_reads, connection)
}

/// A forked child that inherits all descriptors of this process and lives until it is killed.
fn fork_child() -> Pid {
    // SAFETY: the child calls nothing but `pause`.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => loop {
            pause();
        },
        ForkResult::Parent { child } => child,
    }
}

/// The lowest free descriptor; all below are in use.
fn first_free_descriptor() -> u64 {
    let probe = std::fs::File::open("/dev/null").unwrap();
    probe.as_raw_fd() as u64
}

/// Sends numbered messages of all sizes until it is killed.
fn flood(mut pipe: Pipe) {
    for number in 0_u64.. {
        let payload = vec![number as u8; (number * 37 % 20_000) as usize];
        while !pipe.send([&number.to_ne_bytes(), &payload]) {
            assert!(!pipe.is_gone());
            yield_now();
        }
    }
}

/// Echoes messages, and sleeps between them.
fn echo(mut pipe: Pipe) {
    loop {
        while let Some(message) = pipe.receive().map(<[u8]>::to_vec) {
            while !pipe.send([&message]) {
                sleep(&mut pipe, Awaited::Room(message.len()));
            }
        }
        if pipe.is_gone() {
            return;
        }
        sleep(&mut pipe, Awaited::Message);
    }
}

fn sleep(pipe: &mut Pipe, awaited: Awaited) {
    if !pipe.arm(awaited) {
        wait_for(pipe);
    }
}

fn wait_for(what: &impl AsFd) {
    let mut descriptors = [PollFd::new(what.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(TIMEOUT).unwrap();
    assert!(poll(&mut descriptors, timeout).unwrap() > 0, "nothing happened");
}

fn accept(listener: &mut Listener) -> Pipe {
    loop {
        wait_for(listener);
        if let Some(pipe) = listener.accept().unwrap() {
            return pipe;
        }
    }
}

/// All complete messages are received, in order, before the pipe is reported as gone.
#[test]
fn messages_of_a_killed_sender_are_received_whole_before_the_pipe_is_gone() {
    for times in 1..=10 {
        // A new name each time: a concurrent test that forks keeps the previous listener open until it calls exec.
        let name = name(&format!("killed {times}"));
        let mut listener = Listener::open(name.as_bytes()).unwrap();
        let mut peer = ChildProcess::start("floods", &name);
        let mut pipe = accept(&mut listener);
        let (mut expected, mut killed, began) = (0_u64, false, Instant::now());
        loop {
            if let Some(message) = pipe.receive() {
                assert_eq!(message[..8], expected.to_ne_bytes());
                assert_eq!(message.len() as u64 - 8, expected * 37 % 20_000);
                assert!(message[8..].iter().all(|byte| *byte == expected as u8));
                expected += 1;
            } else if killed && pipe.is_gone() {
                break;
            } else {
                yield_now();
            }
            if expected == 500 * times && !killed {
                peer.process.kill().unwrap();
                killed = true;
            }
            assert!(began.elapsed() < TIMEOUT);
        }
        assert!(killed && pipe.fault().is_none());
    }
}

#[test]
fn a_sleeping_end_wakes_up_when_the_other_process_is_killed() {
    let name = name("sleeper");
    let mut listener = Listener::open(name.as_bytes()).unwrap();
    let mut peer = ChildProcess::start("echoes", &name);
    let mut pipe = accept(&mut listener);
    for round in 0..1000_u32 {
        assert!(pipe.send([&round.to_ne_bytes(), &vec![1; round as usize * 60]]));
        while pipe.receive().is_none_or(|message| message[..4] != round.to_ne_bytes()) {
            sleep(&mut pipe, Awaited::Message);
        }
    }
    assert!(!pipe.is_gone() && !pipe.arm(Awaited::Message));
    peer.process.kill().unwrap();
    wait_for(&pipe);
    while !pipe.is_gone() {
        assert!(pipe.receive().is_none());
    }
    assert!(pipe.arm(Awaited::Message), "the end was already detected");
}

/// The child inherits all descriptors of its parent, and keeps them open.
#[test]
fn a_killed_process_is_gone_even_if_its_child_lives() {
    let name = name("forks");
    let mut listener = Listener::open(name.as_bytes()).unwrap();
    let mut peer = ChildProcess::start("forks", &name);
    let mut pipe = accept(&mut listener);
    let child = Pid::from_raw(peer.next_report().parse().unwrap());
    let mut end = PollFd::new(pipe.process().expect("Linux 5.3 or later"), PollFlags::POLLIN);
    assert_eq!(poll(std::slice::from_mut(&mut end), PollTimeout::ZERO), Ok(0));
    assert!(!pipe.is_gone());
    peer.process.kill().unwrap();
    let mut end = PollFd::new(pipe.process().unwrap(), PollFlags::POLLIN);
    assert_eq!(poll(std::slice::from_mut(&mut end), PollTimeout::try_from(TIMEOUT).unwrap()), Ok(1));
    let is_gone = pipe.is_gone();
    kill(child, Signal::SIGKILL).expect("the child lives");
    assert!(is_gone);
}

/// Kills a child of another process on drop.
struct Killed(Pid);

impl Killed {
    fn new(report: &str) -> Self {
        Self(Pid::from_raw(report.parse().unwrap()))
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        kill(self.0, Signal::SIGKILL).expect("the child lives");
    }
}

#[test]
fn a_dropped_end_is_gone_even_if_a_child_has_the_socket() {
    let name = name("drops");
    let mut listener = Listener::open(name.as_bytes()).unwrap();
    let mut peer = ChildProcess::start("drops after a fork", &name);
    let mut pipe = accept(&mut listener);
    let _child = Killed::new(&peer.next_report());
    let deadline = Instant::now() + TIMEOUT;
    while !pipe.is_gone() {
        assert!(Instant::now() < deadline, "the child keeps the pipe open");
        yield_now();
    }
}

#[test]
fn a_listener_that_is_dropped_or_killed_is_gone_even_if_a_child_has_the_socket() {
    for is_killed in [false, true] {
        let name = name(&format!("left to a child {is_killed}"));
        let connected = |hello: &[u8]| connect(name.as_bytes(), hello, &PipeConfig::default()).unwrap();
        let mut peer = ChildProcess::start("listens and forks", &name);
        let _child = Killed::new(&peer.next_report());
        let mut pending = connected(b"early").expect("it listens");
        assert!(!pending.is_gone());
        if is_killed {
            peer.process.kill().unwrap();
            peer.process.wait().unwrap();
        } else {
            peer.process.stdin.as_mut().unwrap().write_all(b"!").unwrap();
            assert_eq!(peer.next_report(), "dropped");
        }
        assert!(pending.is_gone(), "it was not accepted");
        assert!(connected(b"late").is_none());
        // The child still holds the name.
        let mut listener = Listener::open(name.as_bytes()).unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while connected(b"found").is_none() {
            assert!(Instant::now() < deadline, "the suffixed name is not found");
        }
        assert_eq!(accept(&mut listener).hello(), b"found");
    }
}

#[test]
fn without_descriptors_initiators_are_told_and_the_listener_recovers() {
    let name = name("no descriptors");
    let mut peer = ChildProcess::start("has no descriptors", &name);
    assert_eq!(peer.next_report(), "listens");
    let resume = |child: &mut ChildProcess| child.process.stdin.as_mut().unwrap().write_all(b"!").unwrap();
    for _ in 0..3 {
        let mut pipe = connect(name.as_bytes(), b"me", &PipeConfig::default()).unwrap().unwrap();
        resume(&mut peer);
        assert_eq!(peer.next_report(), "refused");
        assert!(pipe.is_gone() && pipe.is_refused());
    }
    let mut pipe = connect(name.as_bytes(), b"me", &PipeConfig::default()).unwrap().unwrap();
    resume(&mut peer);
    while pipe.receive().is_none() {
        sleep(&mut pipe, Awaited::Message);
        assert!(!pipe.is_refused());
    }
}

/// Limits of memory, file size and descriptors. In a child process, because limits apply to a process.
#[test]
fn exhausted_limits_are_transient_errors() {
    let mut peer = ChildProcess::start("may have no memory", &name("limits"));
    assert_eq!(peer.next_report(), "done");
}

#[test]
fn a_name_taken_by_another_user_is_still_usable() {
    if !Uid::effective().is_root() {
        return skip("being another user needs root");
    }
    let name = name("taken by nobody");
    let mut peer = ChildProcess::start("takes names as nobody", &name);
    let report = peer.next_report();
    if report.starts_with("cannot be nobody") {
        return skip(&format!("{report}: needs root of the system itself, not of a user namespace"));
    }
    for which in [" 1", " 2"] {
        let name = format!("{name}{which}");
        let mut listener = Listener::open(name.as_bytes()).unwrap();
        // A name that is only bound looks as if there were no listener, as before a peer has started.
        let deadline = Instant::now() + TIMEOUT;
        while connect(name.as_bytes(), b"me", &PipeConfig::default()).unwrap().is_none() {
            assert!(Instant::now() < deadline, "{which}: the suffixed name is not found");
        }
        assert_eq!(accept(&mut listener).hello(), b"me");
    }
}

#[test]
fn no_pipe_leads_to_another_user() {
    if !Uid::effective().is_root() {
        return skip("being another user needs root");
    }
    {
        let name = name("other user");
        let mut listener = Listener::open(name.as_bytes()).unwrap();
        let mut peer = ChildProcess::start("connects as nobody", &name);
        let report = peer.next_report();
        if report.starts_with("cannot be nobody") {
            return skip(&format!("{report}: needs root of the system itself, not of a user namespace"));
        }
        assert_eq!(report, "connected");
        while listener.refused().other_users < 2 {
            wait_for(&listener);
            assert!(listener.accept().unwrap().is_none());
        }
        // The first connection was closed after the user check; it counts as another user's as well.
        assert_eq!(listener.refused(), Refused { other_users: 2, ..Default::default() });
    }
    let name = name("listener of another user");
    let mut peer = ChildProcess::start("listens as nobody", &name);
    assert_eq!(peer.next_report(), "listens");
    let connected = connect(name.as_bytes(), b"secret", &PipeConfig::default());
    assert!(matches!(connected, Err(ShmError::OtherUser { user: NOBODY, .. })), "{connected:?}");
}

/// Connections of another user whose messages contain sockets that linger, when they are refused and when they are
/// still in the backlog as the listener is dropped.
#[test]
fn sockets_in_messages_of_other_users_hold_no_thread() {
    if !Uid::effective().is_root() {
        return skip("being another user needs root");
    }
    for is_accepting in [true, false] {
        let name = name(&format!("lingering {is_accepting}"));
        let mut listener = Listener::open(name.as_bytes()).unwrap();
        let mut peer = ChildProcess::start("lingers as nobody", &name);
        let report = peer.next_report();
        if report.starts_with("cannot be nobody") {
            return skip(&format!("{report}: needs root of the system itself, not of a user namespace"));
        }
        assert_eq!(report, "connected");
        let began = Instant::now();
        while is_accepting && listener.refused().other_users < 20 {
            assert!(listener.accept().unwrap().is_none());
        }
        drop(listener);
        assert!(began.elapsed() < LINGER / 2, "accepting {is_accepting}: {:?}", began.elapsed());
    }
}

#[test]
fn without_descriptors_sockets_in_messages_of_other_users_hold_no_thread() {
    if !Uid::effective().is_root() {
        return skip("being another user needs root");
    }
    let name = name("no descriptors for other users");
    let mut peer = ChildProcess::start("has no descriptors for other users", &name);
    assert_eq!(peer.next_report(), "listens");
    let resume = |child: &mut ChildProcess| child.process.stdin.as_mut().unwrap().write_all(b"!").unwrap();
    let mut other = ChildProcess::start("lingers as nobody", &name);
    let report = other.next_report();
    if report.starts_with("cannot be nobody") {
        return skip(&format!("{report}: needs root of the system itself, not of a user namespace"));
    }
    resume(&mut peer);
    assert_eq!(peer.next_report(), "refused");
    let pipe = connect(name.as_bytes(), b"me", &PipeConfig::default()).unwrap().unwrap();
    resume(&mut peer);
    assert_eq!(peer.next_report(), "refused");
    drop(pipe);
}

/// Reports a skip where `make test` counts it.
fn skip(reason: &str) {
    let line = format!("SKIPPED {}: {reason}\n", std::thread::current().name().unwrap_or("?"));
    eprint!("{line}");
    if let Some(path) = std::env::var_os("BAREWIRE_SKIP_LOG") {
        let log = std::fs::File::options().create(true).append(true).open(path);
        log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the skip log can be written");
    }
}
