// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time for one process to wake another: through a pipe, a Unix socket, TCP, UDP or a futex; on the same core and
//! across cores.
//!
//! A round trip is two hops. The answering side is another process of this program, with its end as standard input.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clap::ValueEnum;

use crate::peer::{self, Peer, Place};
use crate::record::Quantity;
use crate::region::Shared;
use crate::stretch::{Effort, Repeat, Subject, measure};
use barewire_recorder::LaunchError;

/// How the two processes communicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Channel {
    Pipe,
    Unix,
    Tcp,
    Udp,
    Futex,
}

const CHANNELS: [(Channel, &str); 5] = [
    (Channel::Pipe, "pipe"),
    (Channel::Unix, "unix"),
    (Channel::Tcp, "tcp"),
    (Channel::Udp, "udp"),
    (Channel::Futex, "futex"),
];

/// Values of the futex word: whose turn it is.
const INITIATOR: u32 = 0;
const RESPONDER: u32 = 1;

pub fn run(own: usize, other: Option<usize>, effort: Effort, output: &mut dyn Write) -> Result<(), LaunchError> {
    // Dropping a peer ends its process.
    let mut peers = Vec::new();
    let mut subjects = vec![self_pipe()?];
    for (location, core) in [("same", Some(own)), ("across", other)] {
        let Some(core) = core else { continue };
        for (channel, name) in CHANNELS {
            let (peer, repeat) = start_peer(channel, name, core)?;
            peers.push(peer);
            subjects.push((format!("{name}/{location}"), repeat));
        }
    }
    let mut subjects: Vec<Subject<'_>> = subjects
        .iter_mut()
        .map(|(name, repeat)| {
            // `pipe/self` is one write and one read: a hop's system calls without the wake-up.
            let operations = if name == "pipe/self" { 1 } else { 2 };
            Subject { name, operations, repeat: Box::new(repeat) }
        })
        .collect();
    measure(&mut subjects, 0, Quantity::Time, effort, output)
}

/// A pipe from this process to itself.
fn self_pipe() -> Result<(String, Repeat<'static>), LaunchError> {
    let (mut reader, mut writer) = std::io::pipe().map_err(|error| LaunchError::system("pipe", error))?;
    let repeat = move |times| (0..times).try_for_each(|_| exchange(&mut writer, &mut reader));
    Ok(("pipe/self".to_owned(), Box::new(repeat)))
}

/// Starts an answering process on that core.
fn start_peer(channel: Channel, name: &str, core: usize) -> Result<(Peer, Repeat<'static>), LaunchError> {
    let failed = |error| LaunchError::system("making a channel", error);
    match channel {
        Channel::Pipe => {
            let (there, mut writer) = std::io::pipe().map_err(failed)?;
            let (mut reader, back) = std::io::pipe().map_err(failed)?;
            let peer = Peer::start(&["answer", name], core, there.into(), back.into())?;
            Ok((peer, Box::new(move |times| (0..times).try_for_each(|_| exchange(&mut writer, &mut reader)))))
        }
        Channel::Unix => {
            let (own, theirs) = UnixStream::pair().map_err(failed)?;
            socket(own.into(), theirs.into(), name, core)
        }
        Channel::Tcp => {
            let (own, theirs) = peer::tcp_pair()?;
            socket(own.into(), theirs.into(), name, core)
        }
        Channel::Udp => {
            let (own, theirs) = peer::udp_pair()?;
            // On one machine nothing is lost, but a datagram that is would never come.
            own.set_read_timeout(Some(Duration::from_secs(1))).map_err(failed)?;
            socket(own.into(), theirs.into(), name, core)
        }
        Channel::Futex => {
            let file = Shared::file()?;
            let shared = Shared::new(&file)?;
            let peer = Peer::start(&["answer", name], core, file.into(), Stdio::null())?;
            let repeat = move |times| {
                for _ in 0..times {
                    hand_over(shared.word(), RESPONDER);
                    if !wait_for(shared.word(), INITIATOR) {
                        return Err(LaunchError::Failed("no answer through the futex within a second".to_owned()));
                    }
                }
                Ok(())
            };
            Ok((peer, Box::new(repeat)))
        }
    }
}

/// A socket of either kind: one byte each way.
fn socket(own: OwnedFd, theirs: OwnedFd, name: &str, core: usize) -> Result<(Peer, Repeat<'static>), LaunchError> {
    let peer = Peer::start(&["answer", name], core, theirs.into(), Stdio::null())?;
    let mut own = File::from(own);
    let repeat = move |times| {
        (0..times).try_for_each(|_| {
            let mut byte = [1];
            own.write_all(&byte).and_then(|()| own.read_exact(&mut byte)).map_err(lost)
        })
    };
    Ok((peer, Box::new(repeat)))
}

fn exchange(writer: &mut PipeWriter, reader: &mut PipeReader) -> Result<(), LaunchError> {
    let mut byte = [1];
    writer.write_all(&byte).and_then(|()| reader.read_exact(&mut byte)).map_err(lost)
}

fn lost(error: std::io::Error) -> LaunchError {
    LaunchError::Failed(format!("the answering process is gone: {error}"))
}

/// The answering side: runs until its standard input is closed or its parent ends.
pub fn answer(channel: Channel, place: &Place) -> Result<(), LaunchError> {
    place.settle()?;
    let descriptor = libc::STDIN_FILENO;
    // SAFETY: standard input is open, and nothing else in this process uses it.
    let input = unsafe { File::from_raw_fd(descriptor) };
    match channel {
        // A socket is bidirectional.
        Channel::Unix | Channel::Tcp | Channel::Udp => echo(&input, &input),
        // SAFETY: as for standard input.
        Channel::Pipe => echo(&input, &unsafe { File::from_raw_fd(libc::STDOUT_FILENO) }),
        Channel::Futex => {
            let shared = Shared::new(&input)?;
            loop {
                if wait_for(shared.word(), RESPONDER) {
                    hand_over(shared.word(), INITIATOR);
                }
            }
        }
    }
}

/// Plain system calls, as on the initiating side.
fn echo(input: &File, output: &File) -> Result<(), LaunchError> {
    let mut byte = 0_u8;
    loop {
        // SAFETY: one byte, alive during the call.
        let got = unsafe { libc::read(input.as_raw_fd(), (&raw mut byte).cast(), 1) };
        // SAFETY: as above.
        if got != 1 || unsafe { libc::write(output.as_raw_fd(), (&raw const byte).cast(), 1) } != 1 {
            return Ok(());
        }
    }
}

/// Hands the turn over to the other side, and wakes it.
fn hand_over(word: &AtomicU32, to: u32) {
    word.store(to, Ordering::Release);
    // SAFETY: the word outlives the call; FUTEX_WAKE uses no other pointer.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Sleeps until the word is `own_turn`; `false` after a second.
fn wait_for(word: &AtomicU32, own_turn: u32) -> bool {
    let second = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    loop {
        let seen = word.load(Ordering::Acquire);
        if seen == own_turn {
            return true;
        }
        let (address, timeout) = (word.as_ptr(), &raw const second);
        // SAFETY: the word and the timespec outlive the call.
        let result = unsafe {
            libc::syscall(libc::SYS_futex, address, libc::FUTEX_WAIT, seen, timeout, ptr::null::<u32>(), 0_u32)
        };
        let timed_out = result < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT);
        if timed_out && word.load(Ordering::Acquire) != own_turn {
            return false;
        }
    }
}
