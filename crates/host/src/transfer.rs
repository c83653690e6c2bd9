// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bandwidth between two processes of this machine: pipe, Unix socket, TCP; on the same core and across cores.
//!
//! This process asks for a number of blocks, another one writes them, and the time ends when all have been read.

use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use clap::ValueEnum;

use crate::peer::{self, Peer, Place};
use crate::record::Quantity;
use crate::stretch::{Effort, Repeat, Subject, measure};
use barewire_recorder::LaunchError;

/// Bytes per write and read.
const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
/// A stretch is some hundred times longer than the wake-up by which it begins.
const STRETCH_NS_MIN: u64 = 2_000_000;
/// A request: bytes of a block, and number of blocks.
const REQUEST_BYTES: usize = 16;

/// Where the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Channel {
    /// Requests on standard input, data on standard output.
    Pipe,
    /// Both on standard input.
    Socket,
}

pub fn run(
    own: usize,
    other: Option<usize>,
    random: &mut fastrand::Rng,
    effort: Effort,
    output: &mut dyn Write,
) -> Result<(), LaunchError> {
    let mut readers = Vec::new();
    for (location, core) in [("same", Some(own)), ("across", other)] {
        let Some(core) = core else { continue };
        readers.push((format!("pipe/{location}"), Reader::pipe(core)?));
        readers.push((format!("unix/{location}"), Reader::unix(core)?));
        readers.push((format!("tcp/{location}"), Reader::tcp(core)?));
    }
    let effort = Effort { stretch_ns: effort.stretch_ns.max(STRETCH_NS_MIN), ..effort };
    let mut sizes = SIZES;
    random.shuffle(&mut sizes);
    for bytes in sizes {
        let mut subjects: Vec<Subject<'_>> = readers
            .iter_mut()
            .map(|(name, reader)| Subject { name, operations: 1, repeat: reader.blocks(bytes) })
            .collect();
        measure(&mut subjects, bytes, Quantity::Bandwidth, effort, output)?;
    }
    Ok(())
}

/// The reading side, with the process that writes.
struct Reader {
    requests: File,
    data: File,
    block: Vec<u8>,
    _peer: Peer,
}

impl Reader {
    fn pipe(core: usize) -> Result<Self, LaunchError> {
        let failed = |error| LaunchError::system("pipe", error);
        let (their_requests, requests) = std::io::pipe().map_err(failed)?;
        let (data, their_data) = std::io::pipe().map_err(failed)?;
        let peer = Peer::start(&["source", "pipe"], core, their_requests.into(), their_data.into())?;
        Ok(Self::new(OwnedFd::from(requests), OwnedFd::from(data), peer))
    }

    fn unix(core: usize) -> Result<Self, LaunchError> {
        let (own, theirs) = UnixStream::pair().map_err(|error| LaunchError::system("socketpair", error))?;
        Self::socket(own.into(), theirs.into(), core)
    }

    fn tcp(core: usize) -> Result<Self, LaunchError> {
        let (own, theirs) = peer::tcp_pair()?;
        Self::socket(own.into(), theirs.into(), core)
    }

    fn socket(own: OwnedFd, theirs: OwnedFd, core: usize) -> Result<Self, LaunchError> {
        let peer = Peer::start(&["source", "socket"], core, theirs.into(), Stdio::null())?;
        let requests = own.try_clone().map_err(|error| LaunchError::system("dup", error))?;
        Ok(Self::new(requests, own, peer))
    }

    fn new(requests: OwnedFd, data: OwnedFd, peer: Peer) -> Self {
        let largest = SIZES.into_iter().max().expect("there are sizes");
        Self { requests: requests.into(), data: data.into(), block: vec![0; largest], _peer: peer }
    }

    /// Asks for blocks, and reads them.
    fn blocks(&mut self, bytes: usize) -> Repeat<'_> {
        Box::new(move |times| {
            let mut request = [0; REQUEST_BYTES];
            request[..8].copy_from_slice(&(bytes as u64).to_ne_bytes());
            request[8..].copy_from_slice(&times.to_ne_bytes());
            self.requests.write_all(&request).map_err(lost)?;
            let mut missing = bytes as u64 * times;
            while missing > 0 {
                let wanted = usize::try_from(missing).unwrap_or(bytes).min(bytes);
                let got = self.data.read(&mut self.block[..wanted]).map_err(lost)?;
                if got == 0 {
                    return Err(lost("its end of the channel is closed"));
                }
                missing -= got as u64;
            }
            black_box(&self.block);
            Ok(())
        })
    }
}

fn lost(error: impl std::fmt::Display) -> LaunchError {
    LaunchError::Failed(format!("the writing process is gone: {error}"))
}

/// The writing side: runs until its standard input is closed or its parent ends.
pub fn source(channel: Channel, place: &Place) -> Result<(), LaunchError> {
    place.settle()?;
    // SAFETY: standard input and output are open, and nothing else in this process uses them.
    let (mut requests, output) =
        unsafe { (File::from_raw_fd(libc::STDIN_FILENO), File::from_raw_fd(libc::STDOUT_FILENO)) };
    let descriptor = if channel == Channel::Pipe { output.as_raw_fd() } else { requests.as_raw_fd() };
    let block = vec![0x5A_u8; SIZES.into_iter().max().expect("there are sizes")];
    let mut request = [0; REQUEST_BYTES];
    while requests.read_exact(&mut request).is_ok() {
        let number = |half: &[u8]| u64::from_ne_bytes(half.try_into().expect("eight bytes"));
        let (bytes, times) = (number(&request[..8]), number(&request[8..]));
        for _ in 0..times {
            let mut rest = &block[..bytes as usize];
            while !rest.is_empty() {
                // SAFETY: pointer and length describe `rest`.
                let sent = unsafe { libc::write(descriptor, rest.as_ptr().cast(), rest.len()) };
                // The reader is gone: so is the reason to write.
                let Ok(sent) = usize::try_from(sent) else { return Ok(()) };
                rest = &rest[sent..];
            }
        }
    }
    Ok(())
}
