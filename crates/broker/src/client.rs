// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program's side: connect, ask once, keep the connection.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect, recvmsg, send, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeVal;
use thiserror::Error;

use barewire_link::RingGeometry;

use crate::message::{MESSAGE_BYTES_MAX, MessageError, Reply, Request, Status};

/// How long a broker that is there may take to answer.
const ANSWER_PATIENCE_S: i64 = 10;
/// How long a broker that was there may be away, since it is started anew.
const RESTART_PATIENCE: Duration = Duration::from_secs(3);
/// Time between two attempts meanwhile.
const RETRY: Duration = Duration::from_millis(50);

/// What the broker gave.
#[derive(Debug)]
pub struct Grant {
    /// Bound to the interface, filtered for the service access point, with a receive ring.
    pub socket: OwnedFd,
    /// To be mapped as it is: a socket whose ring is set up anew hears nothing any more.
    pub ring: RingGeometry,
    /// Keep it open as long as the socket; give both back by closing the socket first.
    pub lease: OwnedFd,
}

/// Why there is no socket.
#[derive(Debug, Error)]
pub enum AskError {
    /// The broker says no, and why.
    #[error("the broker refused: {text}")]
    Refused {
        /// Sorted.
        status: Status,
        /// For a person.
        text: String,
    },
    /// The request cannot be one.
    #[error(transparent)]
    Request(#[from] MessageError),
    /// Nobody listens there.
    #[error("no broker at {}: {source}; is barewire-broker running?", path.display())]
    Nobody {
        /// Where it should be.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no broker, or one that broke down.
    #[error("the broker at {} does not answer as it should: {reason}", path.display())]
    Broken {
        /// Where it is.
        path: PathBuf,
        /// What came instead.
        reason: String,
    },
}

/// Asks the broker for a socket. Where a broker ends in the middle of it, the next one is asked.
///
/// # Errors
/// [`AskError`].
pub fn ask(path: &Path, request: &Request) -> Result<Grant, AskError> {
    let request = request.encode()?;
    let began = Instant::now();
    loop {
        match attempt(path, &request) {
            Ok(answer) => return granted(path, answer),
            Err(error) if is_restart(error) && began.elapsed() < RESTART_PATIENCE => std::thread::sleep(RETRY),
            Err(Errno::EAGAIN) => {
                let reason = format!("nothing came within {ANSWER_PATIENCE_S} s");
                return Err(AskError::Broken { path: path.to_owned(), reason });
            }
            Err(error) => return Err(AskError::Nobody { path: path.to_owned(), source: error.into() }),
        }
    }
}

/// What a broker that has just ended, and left its address behind, looks like.
fn is_restart(error: Errno) -> bool {
    matches!(error, Errno::ECONNREFUSED | Errno::ECONNRESET | Errno::EPIPE)
}

struct Answer {
    bytes: Vec<u8>,
    socket: Option<OwnedFd>,
    lease: OwnedFd,
}

fn attempt(path: &Path, request: &[u8]) -> Result<Answer, Errno> {
    let lease = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    let patience = TimeVal::new(ANSWER_PATIENCE_S, 0);
    setsockopt(&lease, sockopt::ReceiveTimeout, &patience)?;
    setsockopt(&lease, sockopt::SendTimeout, &patience)?;
    connect(lease.as_raw_fd(), &UnixAddr::new(path)?)?;
    // A broker that refuses before it reads has closed its end; its reply is there all the same.
    let sent = send(lease.as_raw_fd(), request, MsgFlags::MSG_NOSIGNAL);
    let (bytes, socket) = match receive(&lease) {
        // Says once that the request was not read; behind it is the reply.
        Err(Errno::ECONNRESET) => receive(&lease)?,
        received => received?,
    };
    if bytes.is_empty() {
        return Err(sent.err().unwrap_or(Errno::ECONNRESET));
    }
    Ok(Answer { bytes, socket, lease })
}

fn receive(lease: &OwnedFd) -> Result<(Vec<u8>, Option<OwnedFd>), Errno> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut space = nix::cmsg_space!(RawFd);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<()>(lease.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let length = message.bytes;
    let mut sockets = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = part {
            // SAFETY: the kernel has just made these descriptors for us and nobody else knows them.
            sockets.extend(descriptors.into_iter().map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) }));
        }
    }
    bytes.truncate(length);
    Ok((bytes, sockets.pop()))
}

fn granted(path: &Path, answer: Answer) -> Result<Grant, AskError> {
    let broken = |reason: String| AskError::Broken { path: path.to_owned(), reason };
    let reply = Reply::decode(&answer.bytes).map_err(|error| broken(error.to_string()))?;
    match (reply, answer.socket) {
        (Reply::Granted(ring), Some(socket)) => Ok(Grant { socket, ring, lease: answer.lease }),
        (Reply::Granted(_), None) => {
            Err(broken("it granted, and no socket came: too many open files here?".to_owned()))
        }
        (Reply::Refused { status, text }, _) => Err(AskError::Refused { status, text }),
        (Reply::Farewell, _) => Err(broken("it took its leave unasked".to_owned())),
    }
}
