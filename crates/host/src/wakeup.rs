// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What it takes one process to wake another: through a pipe, a Unix socket, a futex; on its own core and on another.
//!
//! A round trip is two hops. The answering side is this program once more, with the other end as standard input.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::ValueEnum;

use crate::record::Quantity;
use crate::region::Shared;
use crate::stretch::{Contender, Effort, Repeat, measure};
use barewire_recorder::LaunchError;
use barewire_recorder::cpu;

/// What the two processes talk through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Means {
    Pipe,
    Unix,
    Futex,
}

/// Whose turn it is, in the word that both sides of a futex see.
const ASKING: u32 = 0;
const ANSWERING: u32 = 1;

pub fn run(own: usize, other: Option<usize>, effort: Effort, output: &mut dyn Write) -> Result<(), LaunchError> {
    // The answering sides live as long as these.
    let mut peers = Vec::new();
    let mut contenders = vec![to_itself()?];
    for (place, core) in [("same", Some(own)), ("across", other)] {
        let Some(core) = core else { continue };
        for (means, name) in [(Means::Pipe, "pipe"), (Means::Unix, "unix"), (Means::Futex, "futex")] {
            let (peer, repeat) = ask(means, core)?;
            peers.push(peer);
            contenders.push((format!("{name}/{place}"), repeat));
        }
    }
    let mut contenders: Vec<Contender<'_>> = contenders
        .iter_mut()
        .map(|(subject, repeat)| {
            // A byte to itself is one write and one read: as many as a hop has, without the hop.
            let operations = if subject == "pipe/self" { 1 } else { 2 };
            Contender { subject, operations, repeat: Box::new(repeat) }
        })
        .collect();
    measure(&mut contenders, 0, Quantity::Time, effort, output)
}

/// A pipe of which both ends are ours.
fn to_itself() -> Result<(String, Repeat<'static>), LaunchError> {
    let (mut reader, mut writer) = std::io::pipe().map_err(|error| LaunchError::system("pipe", error))?;
    let repeat = move |times| (0..times).try_for_each(|_| exchange(&mut writer, &mut reader));
    Ok(("pipe/self".to_owned(), Box::new(repeat)))
}

/// Starts who answers on that core.
fn ask(means: Means, core: usize) -> Result<(Peer, Repeat<'static>), LaunchError> {
    let failed = |error| LaunchError::system("making a channel", error);
    match means {
        Means::Pipe => {
            let (there, mut writer) = std::io::pipe().map_err(failed)?;
            let (mut reader, back) = std::io::pipe().map_err(failed)?;
            let peer = Peer::start("pipe", core, there.into(), back.into())?;
            Ok((peer, Box::new(move |times| (0..times).try_for_each(|_| exchange(&mut writer, &mut reader)))))
        }
        Means::Unix => {
            let (mut own, theirs) = UnixStream::pair().map_err(failed)?;
            let peer = Peer::start("unix", core, OwnedFd::from(theirs).into(), Stdio::null())?;
            let repeat = move |times| {
                (0..times).try_for_each(|_| {
                    let mut byte = [1];
                    own.write_all(&byte).and_then(|()| own.read_exact(&mut byte)).map_err(lost)
                })
            };
            Ok((peer, Box::new(repeat)))
        }
        Means::Futex => {
            // SAFETY: the name is a C string, and the descriptor that comes back is new.
            let descriptor = unsafe { libc::memfd_create(c"barewire-host".as_ptr(), libc::MFD_CLOEXEC) };
            if descriptor < 0 {
                return Err(LaunchError::last("memfd_create"));
            }
            // SAFETY: just made, and nobody else knows it.
            let file = unsafe { File::from_raw_fd(descriptor) };
            file.set_len(Shared::BYTES as u64).map_err(failed)?;
            let shared = Shared::new(&file)?;
            let peer = Peer::start("futex", core, file.into(), Stdio::null())?;
            let repeat = move |times| {
                for _ in 0..times {
                    pass(shared.word(), ANSWERING);
                    if !wait_for(shared.word(), ASKING) {
                        return Err(LaunchError::Failed("nobody answers a futex for a second".to_owned()));
                    }
                }
                Ok(())
            };
            Ok((peer, Box::new(repeat)))
        }
    }
}

fn exchange(writer: &mut PipeWriter, reader: &mut PipeReader) -> Result<(), LaunchError> {
    let mut byte = [1];
    writer.write_all(&byte).and_then(|()| reader.read_exact(&mut byte)).map_err(lost)
}

fn lost(error: std::io::Error) -> LaunchError {
    LaunchError::Failed(format!("the answering process is gone: {error}"))
}

/// The answering process, ended with this value.
struct Peer(Child);

impl Peer {
    fn start(means: &str, core: usize, input: Stdio, output: Stdio) -> Result<Self, LaunchError> {
        let program = std::env::current_exe().map_err(|error| LaunchError::system("finding this program", error))?;
        let mut command = Command::new(program);
        command.args(["answer", means, "--cpu", &core.to_string()]).stdin(input).stdout(output);
        command.spawn().map(Self).map_err(|error| LaunchError::system("starting the answering process", error))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The answering side: until its standard input ends, or whoever started it.
pub fn answer(means: Means, core: usize) -> Result<(), LaunchError> {
    cpu::pin(core)?;
    // SAFETY: asks for a signal when the parent ends; no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let descriptor = libc::STDIN_FILENO;
    // SAFETY: standard input is open, and nothing else in this process uses it.
    let input = unsafe { File::from_raw_fd(descriptor) };
    match means {
        // A Unix socket is answered where it came in.
        Means::Unix => echo(&input, &input),
        // SAFETY: as for standard input.
        Means::Pipe => echo(&input, &unsafe { File::from_raw_fd(libc::STDOUT_FILENO) }),
        Means::Futex => {
            let shared = Shared::new(&input)?;
            loop {
                if wait_for(shared.word(), ANSWERING) {
                    pass(shared.word(), ASKING);
                }
            }
        }
    }
}

/// By plain system calls: the asking side's own are as plain.
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

/// Gives the turn to the other side and wakes it.
fn pass(word: &AtomicU32, to: u32) {
    word.store(to, Ordering::Release);
    // SAFETY: the address of a word that outlives the call; no other pointers are used for this operation.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Sleeps until the turn is `mine`; `false` after a second.
fn wait_for(word: &AtomicU32, mine: u32) -> bool {
    let second = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    loop {
        let seen = word.load(Ordering::Acquire);
        if seen == mine {
            return true;
        }
        let (address, timeout) = (word.as_ptr(), &raw const second);
        // SAFETY: a word and a timespec that outlive the call.
        let result = unsafe {
            libc::syscall(libc::SYS_futex, address, libc::FUTEX_WAIT, seen, timeout, ptr::null::<u32>(), 0_u32)
        };
        let timed_out = result < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT);
        if timed_out && word.load(Ordering::Acquire) != mine {
            return false;
        }
    }
}
