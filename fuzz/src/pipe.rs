// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pipe with a hostile peer: it connects with memory of its own making, and overwrites indices, lengths and bytes in it
//! at any time. The peer is implemented independently of `barewire-shm`, from the hello and the memory layout.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};

use barewire_shm::{Awaited, Listener};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, send, sendmsg, socket,
};
use nix::sys::uio::pwrite;
use nix::unistd::ftruncate;

use crate::input::Input;

const RING: usize = 4096;
const CONTROLS: usize = 2 * RING;
/// Control words of a direction: the receiver's position and two sleep flags, each on its own pair of cache lines.
const CONTROL_BYTES: usize = 3 * 128;

/// The correct end never panics, never lends more than the longest message, and stays faulty once a fault is detected.
pub fn pipe(data: &[u8]) {
    let mut input = Input::new(data);
    let name = format!("barewire-fuzz {} {:?}", std::process::id(), std::thread::current().id());
    let mut listener = Listener::open(name.as_bytes()).expect("the name is free");
    let (memory, other) = connect_hostile(&name, &mut input);
    let Ok(Some(mut pipe)) = listener.accept() else { return };
    let room = pipe.message_max();
    while !input.is_empty() {
        match input.byte() % 12 {
            0..=3 => overwrite(&memory, &mut input),
            4..=6 => {
                let was_faulty = pipe.fault().is_some();
                let message = pipe.receive().map(<[u8]>::len);
                assert!(message.is_none_or(|bytes| bytes <= room && !was_faulty));
            }
            7 => {
                let bytes = vec![3; usize::from(input.byte()).min(room)];
                let sent = pipe.send([&bytes]);
                assert!(!(sent && pipe.fault().is_some()));
            }
            8 => drop(pipe.arm(input.of(&[Awaited::Message, Awaited::Room(room), Awaited::MessageOrRoom(100)]))),
            9 => pipe.put_back(),
            10 => {
                pipe.release_memory();
                // Unsolicited wake-ups; fails if the socket is full or closed.
                let _ = send(other.as_raw_fd(), &[0; 3], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
            }
            _ => drop((pipe.is_gone(), pipe.activity())),
        }
        assert!(pipe.fault().is_none() || pipe.is_gone());
    }
    assert!(pipe.fault().is_none() || !pipe.send([b"no more"]));
}

/// Connects as an initiator, possibly with a wrong hello or wrong memory.
fn connect_hostile(name: &str, input: &mut Input<'_>) -> (OwnedFd, OwnedFd) {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let other = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).expect("a socket");
    connect(other.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes()).expect("a name"))
        .expect("the listener is open");
    let memory = memfd_create(c"hostile", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).expect("memory");
    let (mut bytes, mut ring, mut hello) = (CONTROLS + 2 * CONTROL_BYTES, RING, &b"it is me"[..]);
    let mut seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    match input.byte() {
        0 => seals.remove(SealFlag::F_SEAL_SHRINK),
        1 => bytes -= 1 + usize::from(input.byte()),
        2 => ring = input.of(&[0, 1, 4095, 8192, 1 << 20, u32::MAX as usize]),
        3 => seals.insert(SealFlag::F_SEAL_WRITE),
        4 => {
            let length = usize::from(input.byte());
            hello = input.take(length);
        }
        _ => {}
    }
    ftruncate(&memory, bytes as i64).expect("a valid size");
    fcntl(&memory, FcntlArg::F_ADD_SEALS(seals)).expect("seals");
    let parts = [&b"bws1"[..], &(ring as u32).to_ne_bytes(), hello];
    let descriptors = [memory.as_raw_fd()];
    // The receiver truncates a hello that is too long.
    sendmsg::<()>(
        other.as_raw_fd(),
        &parts.map(IoSlice::new),
        &[ControlMessage::ScmRights(&descriptors)],
        MsgFlags::MSG_DONTWAIT,
        None,
    )
    .expect("there is room for it");
    (memory, other)
}

/// Overwrites a control word, a word before a message, or any bytes.
fn overwrite(memory: &OwnedFd, input: &mut Input<'_>) {
    let line = u64::from(input.byte());
    let at = match input.byte() % 4 {
        0 => CONTROLS + usize::from(input.byte() % 6) * 128,
        1 | 2 => (line as usize % 64) * 64,
        _ => (usize::from(input.byte()) << 8 | usize::from(input.byte())) % (CONTROLS - 8),
    };
    // Often a plausible value: a message's word, or a position.
    let value = match input.byte() % 4 {
        0 => line << 32 | 1 << 31 | u64::from(input.byte()) << 3,
        1 => u64::from(input.byte()) * 64,
        2 => u64::MAX >> (input.byte() % 64),
        _ => 0,
    };
    pwrite(memory, &value.to_ne_bytes(), at as i64).expect("inside the memory");
}
