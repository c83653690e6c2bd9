// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Listeners and initiators in one process, including misbehaving initiators.

use std::fs::metadata;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use barewire_shm::{HELLO_BYTES_MAX, Listener, PipeConfig, Refused, ShmError, connect};
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect as connect_socket, sendmsg, socket,
};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::ftruncate;

const RING_BYTES: usize = 64 << 10;
/// Two rings, with three pairs of cache lines for each.
const FILE_BYTES: i64 = 2 * (RING_BYTES as i64 + 3 * 128);

fn name(test: &str) -> Vec<u8> {
    format!("barewire-shm {test} {}", std::process::id()).into_bytes()
}

/// Connects without sending a greeting.
fn connected(name: &[u8]) -> OwnedFd {
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    connect_socket(socket.as_raw_fd(), &UnixAddr::new_abstract(name).unwrap()).unwrap();
    socket
}

fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[RawFd]) {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let control = if descriptors.is_empty() { &[][..] } else { &rights[..] };
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(bytes)], control, MsgFlags::MSG_NOSIGNAL, None).unwrap();
}

fn greeting(ring_bytes: usize) -> Vec<u8> {
    [b"bws1", &u32::try_from(ring_bytes).unwrap().to_ne_bytes()[..]].concat()
}

fn memory(bytes: i64, seals: SealFlag) -> OwnedFd {
    let file = memfd_create(c"test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes).unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    file
}

fn seals() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL
}

fn is_readable(descriptor: &impl AsFd) -> bool {
    let mut descriptors = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
    poll(&mut descriptors, PollTimeout::ZERO).unwrap() > 0
}

#[test]
fn messages_sent_before_accept_are_received_after_the_initiator_has_closed() {
    let name = name("early");
    let mut listener = Listener::open(&name).unwrap();
    assert!(!is_readable(&listener) && listener.accept().unwrap().is_none());
    let mut initiator = connect(&name, b"who", &PipeConfig::default()).unwrap().unwrap();
    assert!(initiator.send([b"early"]) && initiator.hello().is_empty() && initiator.receive().is_none());
    drop(initiator);
    assert!(is_readable(&listener));
    let mut acceptor = listener.accept().unwrap().unwrap();
    assert_eq!(acceptor.hello(), b"who");
    assert!(!acceptor.is_gone(), "something is left to receive");
    assert_eq!(acceptor.receive(), Some(&b"early"[..]));
    assert!(acceptor.is_gone() && acceptor.receive().is_none());
    assert!(!is_readable(&listener) && listener.accept().unwrap().is_none());
}

#[test]
fn directions_and_pipes_of_one_listener_are_independent() {
    let name = name("several");
    let mut listener = Listener::open(&name).unwrap();
    let mut initiators: Vec<_> =
        (0..5).map(|number| connect(&name, &[number], &PipeConfig::default()).unwrap().unwrap()).collect();
    let mut acceptors: Vec<_> = (0..5).map(|_| listener.accept().unwrap().unwrap()).collect();
    for number in 0..5 {
        assert_eq!(acceptors[number].hello(), [number as u8], "in the order of connecting");
        assert!(initiators[number].send([&[number as u8], b" to acceptor"]));
        assert!(acceptors[number].send([&[number as u8], b" to initiator"]));
    }
    for number in 0..5_u8 {
        let (initiator, acceptor) = (&mut initiators[usize::from(number)], &mut acceptors[usize::from(number)]);
        assert_eq!(acceptor.receive().unwrap(), [&[number], &b" to acceptor"[..]].concat());
        assert_eq!(initiator.receive().unwrap(), [&[number], &b" to initiator"[..]].concat());
        assert!(
            acceptor.receive().is_none()
                && initiator.receive().is_none()
                && !acceptor.is_gone()
                && !initiator.is_gone()
        );
    }
}

#[test]
fn a_name_has_one_listener_and_is_free_after_it() {
    let name = name("taken");
    assert!(connect(&name, &[], &PipeConfig::default()).unwrap().is_none(), "there is no listener");
    let listener = Listener::open(&name).unwrap();
    assert!(
        matches!(Listener::open(&name), Err(ShmError::NameTaken(taken)) if taken.starts_with("barewire-shm taken"))
    );
    let mut pending = connect(&name, &[], &PipeConfig::default()).unwrap().unwrap();
    assert!(!pending.is_gone());
    drop(listener);
    assert!(pending.is_gone(), "it was not accepted");
    assert!(connect(&name, &[], &PipeConfig::default()).unwrap().is_none());
    Listener::open(&name).unwrap();
}

#[test]
fn invalid_arguments_are_refused() {
    let name = name("arguments");
    let _listener = Listener::open(&name).unwrap();
    assert!(matches!(Listener::open(&[]), Err(ShmError::NameLength(0))));
    assert!(matches!(Listener::open(&[1; 91]), Err(ShmError::NameLength(91))));
    Listener::open(&[1; 90]).unwrap();
    let hello = [0; HELLO_BYTES_MAX + 1];
    assert!(matches!(connect(&name, &hello, &PipeConfig::default()), Err(ShmError::HelloLength(65))));
    for ring_bytes in [0, 2048, 100_000, 32 << 20] {
        let refused = connect(&name, &[], &PipeConfig { ring_bytes });
        assert!(matches!(refused, Err(ShmError::RingBytes { .. })), "{ring_bytes}");
    }
}

#[test]
#[should_panic(expected = "a message is no longer than message_max()")]
fn a_message_that_is_too_long_panics() {
    let name = name("too long");
    let _listener = Listener::open(&name).unwrap();
    let mut pipe = connect(&name, &[], &PipeConfig::default()).unwrap().unwrap();
    assert!(pipe.send([&vec![0; pipe.message_max()]]));
    pipe.send([&vec![0; pipe.message_max()], &[0]]);
}

#[test]
fn silent_initiators_do_not_block_others() {
    let name = name("silent");
    let mut listener = Listener::open(&name).unwrap();
    let silent: Vec<_> = (0..3).map(|_| connected(&name)).collect();
    assert!(listener.accept().unwrap().is_none());
    assert!(!is_readable(&listener), "silent initiators do not keep the listener readable");
    let _there = connect(&name, b"hello", &PipeConfig::default()).unwrap().unwrap();
    assert_eq!(listener.accept().unwrap().unwrap().hello(), b"hello");
    send(&silent[0], &greeting(RING_BYTES), &[memory(FILE_BYTES, seals()).as_raw_fd()]);
    assert!(is_readable(&listener), "one of them sends its greeting");
    assert!(listener.accept().unwrap().is_some() && listener.accept().unwrap().is_none());
    drop(silent);
    assert!(is_readable(&listener) && listener.accept().unwrap().is_none() && !is_readable(&listener));
    assert_eq!(listener.refused(), Refused { silent: 2, ..Default::default() });
}

#[test]
fn too_many_silent_initiators_replace_each_other() {
    let name = name("flood");
    let mut listener = Listener::open(&name).unwrap();
    let _silent: Vec<_> = (0..100).map(|_| connected(&name)).collect();
    let _there = connect(&name, b"hello", &PipeConfig::default()).unwrap().unwrap();
    assert_eq!(listener.accept().unwrap().unwrap().hello(), b"hello");
    assert!(listener.accept().unwrap().is_none());
    assert!((37..=38).contains(&listener.refused().silent), "{:?}", listener.refused());
}

#[test]
fn malformed_greetings_are_refused_and_their_descriptors_closed() {
    let name = name("noise");
    let mut listener = Listener::open(&name).unwrap();
    let file = memory(FILE_BYTES, seals());
    let (good, number) = (file.as_raw_fd(), fstat(&file).unwrap().st_ino);
    let valid = greeting(RING_BYTES);
    let mut other_version = valid.clone();
    other_version[3] = b'2';
    let too_long = [&valid[..], &[0; HELLO_BYTES_MAX + 1]].concat();
    let wrong: [(&[u8], &[RawFd]); 7] = [
        (&valid, &[]),
        (&valid, &[good, good]),
        (&valid, &[good; 20]),
        (&other_version, &[good]),
        (&valid[..7], &[good]),
        (b"x", &[good]),
        (&too_long, &[good]),
    ];
    for (count, (bytes, descriptors)) in (1..).zip(wrong) {
        let socket = connected(&name);
        send(&socket, bytes, descriptors);
        assert!(listener.accept().unwrap().is_none());
        assert_eq!(listener.refused(), Refused { malformed: count, ..Default::default() });
    }
    assert_eq!(descriptors_of(number), 1);
}

/// Number of this process's descriptors that refer to a file.
fn descriptors_of(file: u64) -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    descriptors.filter(|entry| metadata(entry.as_ref().unwrap().path()).is_ok_and(|found| found.ino() == file)).count()
}

#[test]
fn memory_that_is_not_sealed_as_expected_is_refused() {
    let name = name("memory");
    let mut listener = Listener::open(&name).unwrap();
    let offer = |listener: &mut Listener, ring_bytes, file: &OwnedFd| {
        let socket = connected(&name);
        send(&socket, &greeting(ring_bytes), &[file.as_raw_fd()]);
        listener.accept().unwrap()
    };
    let accepted = offer(&mut listener, RING_BYTES, &memory(FILE_BYTES, seals()));
    assert!(accepted.is_some(), "the valid memory that the others are variants of");
    let sealed = memory(FILE_BYTES, seals());
    let read_only = open(&*format!("/proc/self/fd/{}", sealed.as_raw_fd()), OFlag::O_RDONLY, Mode::empty()).unwrap();
    let wrong = [
        ("not sealed", RING_BYTES, memory(FILE_BYTES, SealFlag::empty())),
        ("may shrink", RING_BYTES, memory(FILE_BYTES, SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL)),
        ("may be sealed", RING_BYTES, memory(FILE_BYTES, SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK)),
        ("may not be written", RING_BYTES, memory(FILE_BYTES, seals() | SealFlag::F_SEAL_WRITE)),
        ("too short", RING_BYTES, memory(FILE_BYTES - 4096, seals())),
        ("a byte too long", RING_BYTES, memory(FILE_BYTES + 1, seals())),
        ("of another size", 2 * RING_BYTES, memory(FILE_BYTES, seals())),
        ("of no size", 0, memory(2 * 3 * 128, seals())),
        ("of an odd size", 3 << 12, memory(2 * ((3 << 12) + 3 * 128), seals())),
        ("huge", 1 << 31, memory(2 * ((1 << 31) + 3 * 128), seals())),
        ("for reading only", RING_BYTES, read_only),
        ("no memory", RING_BYTES, open("/dev/zero", OFlag::O_RDWR, Mode::empty()).unwrap()),
    ];
    for (count, (what, ring_bytes, file)) in (1..).zip(wrong) {
        assert!(offer(&mut listener, ring_bytes, &file).is_none(), "{what}");
        assert_eq!(listener.refused(), Refused { invalid_memory: count, ..Default::default() }, "{what}");
    }
}
