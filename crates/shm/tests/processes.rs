// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pipes between processes: one that is killed, and such as are another user's. The other process is this program once
//! more, running `other_process` alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use barewire_shm::{Awaited, Listener, Pipe, PipeConfig, Refused, ShmError, connect};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect as connect_socket, listen, socket,
};
use nix::unistd::{ForkResult, Pid, Uid, fork, pause, setuid};

/// The user of those who have nothing.
const NOBODY: u32 = 65_534;
const PATIENCE: Duration = Duration::from_secs(20);

fn name(test: &str) -> String {
    format!("barewire-shm {test} {}", std::process::id())
}

/// A process that plays a role; ended with this value.
struct Other {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Other {
    fn start(role: &str, name: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "other_process", "--ignored", "--nocapture"])
            .envs([("SHM_ROLE", role), ("SHM_NAME", name)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        Self { process, said }
    }

    /// What it says next; the test harness around it talks as well.
    fn says(&mut self) -> String {
        let lines = self.said.by_ref().lines().map(Result::unwrap);
        lines.filter_map(|line| Some(line.split_once("says: ")?.1.to_owned())).next().expect("it says something")
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
#[ignore = "the other side of the other tests"]
fn other_process() {
    let (role, name) = (std::env::var("SHM_ROLE").unwrap(), std::env::var("SHM_NAME").unwrap());
    let name = name.as_bytes();
    let say = |what: &str| {
        println!("says: {what}");
        std::io::stdout().flush().unwrap();
    };
    match &*role {
        "floods" => flood(connect(name, b"flood", &PipeConfig::default()).unwrap().unwrap()),
        "echoes" => echo(connect(name, b"echo", &PipeConfig::default()).unwrap().unwrap()),
        "forks" => {
            let _pipe = connect(name, b"forks", &PipeConfig::default()).unwrap().unwrap();
            say(&child_that_lives().to_string());
            pause();
        }
        "connects as nobody" => match setuid(Uid::from_raw(NOBODY)) {
            Err(error) => say(&format!("cannot be nobody: {error}")),
            Ok(()) => {
                let connected = connect(name, b"nobody", &PipeConfig::default());
                assert!(matches!(connected, Err(ShmError::OtherUser { user: 0, .. })), "{connected:?}");
                // One that does not look whose listener it is.
                let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None).unwrap();
                connect_socket(socket.as_raw_fd(), &UnixAddr::new_abstract(name).unwrap()).unwrap();
                say("connected");
                std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            }
        },
        "listens as nobody" => match setuid(Uid::from_raw(NOBODY)) {
            Err(error) => say(&format!("cannot be nobody: {error}")),
            Ok(()) => {
                let mut listener = Listener::open(name).unwrap();
                say("listens");
                std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
                assert!(listener.accept().unwrap().is_none());
            }
        },
        "drops after a fork" => {
            let pipe = connect(name, b"drops", &PipeConfig::default()).unwrap().unwrap();
            say(&child_that_lives().to_string());
            drop(pipe);
            pause();
        }
        "listens and forks" => {
            let listener = Listener::open(name).unwrap();
            say(&child_that_lives().to_string());
            std::io::stdin().read_exact(&mut [0]).unwrap();
            drop(listener);
            say("dropped");
            pause();
        }
        "has no descriptors" => {
            let mut listener = Listener::open(name).unwrap();
            say("listens");
            std::io::stdin().read_exact(&mut [0]).unwrap();
            let (next, hard) = (first_free_descriptor(), getrlimit(Resource::RLIMIT_NOFILE).unwrap().1);
            for left in 0..3 {
                setrlimit(Resource::RLIMIT_NOFILE, next + left, hard).unwrap();
                assert!(listener.accept().unwrap().is_none());
                assert_eq!(listener.refused(), Refused { exhausted: left + 1, ..Default::default() });
                say("refused");
                std::io::stdin().read_exact(&mut [0]).unwrap();
            }
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
            accept(&mut listener).send([b"at last"]);
            pause();
        }
        "may have no memory" => {
            let _listener = Listener::open(name).unwrap();
            let connected = || connect(name, b"me", &PipeConfig::default());
            let address_space = {
                let status = std::fs::read_to_string("/proc/self/statm").unwrap();
                status.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
            };
            for (resource, least) in
                [(Resource::RLIMIT_FSIZE, 1 << 16), (Resource::RLIMIT_AS, address_space), (Resource::RLIMIT_NOFILE, 0)]
            {
                let (soft, hard) = getrlimit(resource).unwrap();
                let least = if resource == Resource::RLIMIT_NOFILE { first_free_descriptor() } else { least };
                // Of descriptors: without the socket, the process, the memory.
                for more in if resource == Resource::RLIMIT_NOFILE { 0..3 } else { 0..1 } {
                    setrlimit(resource, least + more, hard).unwrap();
                    let refused = connected();
                    setrlimit(resource, soft, hard).unwrap();
                    let is_exhaustion = refused.as_ref().is_err_and(ShmError::is_exhaustion);
                    assert!(is_exhaustion, "{resource:?} {more}: {refused:?}");
                }
                assert!(connected().unwrap().is_some(), "{resource:?}: it may again");
            }
            say("told");
        }
        "takes names as nobody" => match setuid(Uid::from_raw(NOBODY)) {
            Err(error) => say(&format!("cannot be nobody: {error}")),
            Ok(()) => {
                // It listens at the first, and has the second.
                let all = [&b" 1"[..], b" 2"].map(|which| {
                    let at = UnixAddr::new_abstract(&[name, which].concat()).unwrap();
                    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None).unwrap();
                    bind(socket.as_raw_fd(), &at).unwrap();
                    socket
                });
                listen(&all[0], Backlog::MAXCONN).unwrap();
                say("took");
                std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            }
        },
        role => panic!("unknown role {role}"),
    }
}

/// A child that has all descriptors of this process, until somebody kills it.
fn child_that_lives() -> Pid {
    // SAFETY: the child calls nothing but `pause`.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => loop {
            pause();
        },
        ForkResult::Parent { child } => child,
    }
}

/// All below are in use, once this has returned.
fn first_free_descriptor() -> u64 {
    let probe = std::fs::File::open("/dev/null").unwrap();
    probe.as_raw_fd() as u64
}

/// Sends numbered messages of all sizes until somebody ends it.
fn flood(mut pipe: Pipe) {
    for number in 0_u64.. {
        let payload = vec![number as u8; (number * 37 % 20_000) as usize];
        while !pipe.send([&number.to_ne_bytes(), &payload]) {
            assert!(!pipe.is_gone());
            yield_now();
        }
    }
}

/// Sends back what comes, and sleeps meanwhile.
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
    let patience = PollTimeout::try_from(PATIENCE).unwrap();
    assert!(poll(&mut descriptors, patience).unwrap() > 0, "nothing happened");
}

fn accept(listener: &mut Listener) -> Pipe {
    loop {
        wait_for(listener);
        if let Some(pipe) = listener.accept().unwrap() {
            return pipe;
        }
    }
}

/// What was sent whole is received, in order; then, and not before, it is gone.
#[test]
fn a_process_that_is_killed_in_the_middle_of_sending_leaves_whole_messages_and_is_gone() {
    for times in 1..=10 {
        // Another each time: a test beside this one that has just forked keeps the last listener open until it calls
        // exec.
        let name = name(&format!("killed {times}"));
        let mut listener = Listener::open(name.as_bytes()).unwrap();
        let mut other = Other::start("floods", &name);
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
                other.process.kill().unwrap();
                killed = true;
            }
            assert!(began.elapsed() < PATIENCE);
        }
        assert!(killed && pipe.fault().is_none());
    }
}

#[test]
fn a_sleeper_wakes_up_when_the_other_process_is_killed() {
    let name = name("sleeper");
    let mut listener = Listener::open(name.as_bytes()).unwrap();
    let mut other = Other::start("echoes", &name);
    let mut pipe = accept(&mut listener);
    for round in 0..1000_u32 {
        assert!(pipe.send([&round.to_ne_bytes(), &vec![1; round as usize * 60]]));
        while pipe.receive().is_none_or(|message| message[..4] != round.to_ne_bytes()) {
            sleep(&mut pipe, Awaited::Message);
        }
    }
    assert!(!pipe.is_gone() && !pipe.arm(Awaited::Message));
    other.process.kill().unwrap();
    wait_for(&pipe);
    while !pipe.is_gone() {
        assert!(pipe.receive().is_none());
    }
    assert!(pipe.arm(Awaited::Message), "the end is there already");
}

/// The child has all descriptors of its parent, and keeps them open.
#[test]
fn a_process_that_is_killed_is_gone_though_its_child_lives() {
    let name = name("forks");
    let mut listener = Listener::open(name.as_bytes()).unwrap();
    let mut other = Other::start("forks", &name);
    let mut pipe = accept(&mut listener);
    let child = Pid::from_raw(other.says().parse().unwrap());
    let mut end = PollFd::new(pipe.process().expect("Linux 5.3 or later"), PollFlags::POLLIN);
    assert_eq!(poll(std::slice::from_mut(&mut end), PollTimeout::ZERO), Ok(0));
    assert!(!pipe.is_gone());
    other.process.kill().unwrap();
    let mut end = PollFd::new(pipe.process().unwrap(), PollFlags::POLLIN);
    assert_eq!(poll(std::slice::from_mut(&mut end), PollTimeout::try_from(PATIENCE).unwrap()), Ok(1));
    let is_gone = pipe.is_gone();
    kill(child, Signal::SIGKILL).expect("the child lives");
    assert!(is_gone);
}

/// Ends a child of another process that is not ours to wait for.
struct Killed(Pid);

impl Killed {
    fn new(said: &str) -> Self {
        Self(Pid::from_raw(said.parse().unwrap()))
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        kill(self.0, Signal::SIGKILL).expect("the child lives");
    }
}

#[test]
fn an_end_that_is_dropped_is_gone_though_a_child_of_its_process_has_the_socket() {
    let name = name("drops");
    let mut listener = Listener::open(name.as_bytes()).unwrap();
    let mut other = Other::start("drops after a fork", &name);
    let mut pipe = accept(&mut listener);
    let _child = Killed::new(&other.says());
    let until = Instant::now() + PATIENCE;
    while !pipe.is_gone() {
        assert!(Instant::now() < until, "the child keeps it");
        yield_now();
    }
}

#[test]
fn a_listener_that_is_dropped_or_whose_process_has_ended_is_none_though_a_child_has_it() {
    for is_killed in [false, true] {
        let name = name(&format!("left to a child {is_killed}"));
        let connected = |hello: &[u8]| connect(name.as_bytes(), hello, &PipeConfig::default()).unwrap();
        let mut other = Other::start("listens and forks", &name);
        let _child = Killed::new(&other.says());
        let mut waits = connected(b"early").expect("it listens");
        assert!(!waits.is_gone());
        if is_killed {
            other.process.kill().unwrap();
            other.process.wait().unwrap();
        } else {
            other.process.stdin.as_mut().unwrap().write_all(b"!").unwrap();
            assert_eq!(other.says(), "dropped");
        }
        assert!(waits.is_gone(), "nobody will accept it");
        assert!(connected(b"late").is_none());
        // The child has the name still.
        let mut listener = Listener::open(name.as_bytes()).unwrap();
        let until = Instant::now() + PATIENCE;
        while connected(b"found").is_none() {
            assert!(Instant::now() < until, "it is not found beside its name");
        }
        assert_eq!(accept(&mut listener).hello(), b"found");
    }
}

#[test]
fn who_comes_when_no_descriptors_are_left_is_told_and_the_listener_works_when_there_are() {
    let name = name("no descriptors");
    let mut other = Other::start("has no descriptors", &name);
    assert_eq!(other.says(), "listens");
    let go_on = |other: &mut Other| other.process.stdin.as_mut().unwrap().write_all(b"!").unwrap();
    for _ in 0..3 {
        let mut pipe = connect(name.as_bytes(), b"me", &PipeConfig::default()).unwrap().unwrap();
        go_on(&mut other);
        assert_eq!(other.says(), "refused");
        assert!(pipe.is_gone() && pipe.is_refused());
    }
    let mut pipe = connect(name.as_bytes(), b"me", &PipeConfig::default()).unwrap().unwrap();
    go_on(&mut other);
    while pipe.receive().is_none() {
        sleep(&mut pipe, Awaited::Message);
        assert!(!pipe.is_refused());
    }
}

/// Of memory, a file's length, descriptors; in a process of its own, since the limits are the process's.
#[test]
fn where_a_limit_leaves_nothing_for_a_pipe_that_is_an_error_and_passes() {
    let mut other = Other::start("may have no memory", &name("limits"));
    assert_eq!(other.says(), "told");
}

#[test]
fn another_user_who_has_taken_a_name_keeps_nobody_from_it() {
    if !Uid::effective().is_root() {
        return skip("being another user needs root");
    }
    let name = name("taken by nobody");
    let mut other = Other::start("takes names as nobody", &name);
    let said = other.says();
    if said.starts_with("cannot be nobody") {
        return skip(&format!("{said}: needs root of the system itself, not of a user namespace"));
    }
    for which in [" 1", " 2"] {
        let name = format!("{name}{which}");
        let mut listener = Listener::open(name.as_bytes()).unwrap();
        // At a name that is only bound nobody seems to be, as mostly when a peer has not come yet.
        let until = Instant::now() + PATIENCE;
        while connect(name.as_bytes(), b"me", &PipeConfig::default()).unwrap().is_none() {
            assert!(Instant::now() < until, "{which}: it is not found beside its name");
        }
        assert_eq!(accept(&mut listener).hello(), b"me");
    }
}

#[test]
fn a_pipe_does_not_lead_to_another_user() {
    if !Uid::effective().is_root() {
        return skip("being another user needs root");
    }
    {
        let name = name("other user");
        let mut listener = Listener::open(name.as_bytes()).unwrap();
        let mut other = Other::start("connects as nobody", &name);
        let said = other.says();
        if said.starts_with("cannot be nobody") {
            return skip(&format!("{said}: needs root of the system itself, not of a user namespace"));
        }
        assert_eq!(said, "connected");
        wait_for(&listener);
        assert!(listener.accept().unwrap().is_none());
        // Its first connection saw whose listener it is, and went away; it was another user's as well.
        assert_eq!(listener.refused(), Refused { other_users: 2, ..Default::default() });
    }
    let name = name("strange listener");
    let mut other = Other::start("listens as nobody", &name);
    assert_eq!(other.says(), "listens");
    let connected = connect(name.as_bytes(), b"secret", &PipeConfig::default());
    assert!(matches!(connected, Err(ShmError::OtherUser { user: NOBODY, .. })), "{connected:?}");
}

/// A skip is loud: it goes where `make test` counts it.
fn skip(reason: &str) {
    let line = format!("SKIPPED {}: {reason}\n", std::thread::current().name().unwrap_or("?"));
    eprint!("{line}");
    if let Some(path) = std::env::var_os("BAREWIRE_SKIP_LOG") {
        let log = std::fs::File::options().create(true).append(true).open(path);
        log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the skip log can be written");
    }
}
