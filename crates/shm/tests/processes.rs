// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pipes between processes: one that is killed, and such as are another user's. The other process is this program once
//! more, running `other_process` alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use barewire_shm::{Awaited, Door, Pipe, PipeConfig, Refused, ShmError, knock};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
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
        "floods" => flood(knock(name, b"flood", &PipeConfig::default()).unwrap().unwrap()),
        "echoes" => echo(knock(name, b"echo", &PipeConfig::default()).unwrap().unwrap()),
        "forks" => {
            let _pipe = knock(name, b"forks", &PipeConfig::default()).unwrap().unwrap();
            // SAFETY: the child calls nothing but `pause`, until this program's parent kills it.
            match unsafe { fork() }.unwrap() {
                ForkResult::Child => loop {
                    pause();
                },
                ForkResult::Parent { child } => say(&child.to_string()),
            }
            pause();
        }
        "knocks as nobody" => match setuid(Uid::from_raw(NOBODY)) {
            Err(error) => say(&format!("cannot be nobody: {error}")),
            Ok(()) => {
                let knocked = knock(name, b"nobody", &PipeConfig::default());
                assert!(matches!(knocked, Err(ShmError::Stranger { user: 0, .. })), "{knocked:?}");
                // One that does not look whose door it is.
                let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None).unwrap();
                connect(socket.as_raw_fd(), &UnixAddr::new_abstract(name).unwrap()).unwrap();
                say("knocked");
                std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            }
        },
        "listens as nobody" => match setuid(Uid::from_raw(NOBODY)) {
            Err(error) => say(&format!("cannot be nobody: {error}")),
            Ok(()) => {
                let mut door = Door::open(name).unwrap();
                say("listens");
                std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
                assert!(door.accept().unwrap().is_none());
            }
        },
        role => panic!("unknown role {role}"),
    }
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

fn accept(door: &mut Door) -> Pipe {
    loop {
        wait_for(door);
        if let Some(pipe) = door.accept().unwrap() {
            return pipe;
        }
    }
}

/// What was sent whole is received, in order; then, and not before, it is gone.
#[test]
fn a_process_that_is_killed_in_the_middle_of_sending_leaves_whole_messages_and_is_gone() {
    for times in 1..=10 {
        // Another each time: a test beside this one that has just forked keeps the last door open until it calls exec.
        let name = name(&format!("killed {times}"));
        let mut door = Door::open(name.as_bytes()).unwrap();
        let mut other = Other::start("floods", &name);
        let mut pipe = accept(&mut door);
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
    let mut door = Door::open(name.as_bytes()).unwrap();
    let mut other = Other::start("echoes", &name);
    let mut pipe = accept(&mut door);
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
    let mut door = Door::open(name.as_bytes()).unwrap();
    let mut other = Other::start("forks", &name);
    let mut pipe = accept(&mut door);
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

#[test]
fn a_pipe_does_not_lead_to_another_user() {
    if !Uid::effective().is_root() {
        return skip("being another user needs root");
    }
    {
        let name = name("stranger");
        let mut door = Door::open(name.as_bytes()).unwrap();
        let mut other = Other::start("knocks as nobody", &name);
        let said = other.says();
        if said.starts_with("cannot be nobody") {
            return skip(&format!("{said}: needs root of the system itself, not of a user namespace"));
        }
        assert_eq!(said, "knocked");
        wait_for(&door);
        assert!(door.accept().unwrap().is_none());
        // Its first knock saw whose door it is, and went away; it was a stranger's as well.
        assert_eq!(door.refused(), Refused { strangers: 2, ..Default::default() });
    }
    let name = name("strange door");
    let mut other = Other::start("listens as nobody", &name);
    assert_eq!(other.says(), "listens");
    let knocked = knock(name.as_bytes(), b"secret", &PipeConfig::default());
    assert!(matches!(knocked, Err(ShmError::Stranger { user: NOBODY, .. })), "{knocked:?}");
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
