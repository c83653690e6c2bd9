// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client side: connects, sends one request, and keeps the connection.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
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

/// Timeout of a running broker's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to retry while a broker restarts.
const RESTART_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval between attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// The last broker that did not come back: this process's next requests do not wait for it again.
static GONE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// A granted socket.
#[derive(Debug)]
pub struct Grant {
    /// Bound to the interface, filtered for the service access point, with a receive ring.
    pub socket: OwnedFd,
    /// Geometry of the receive ring. Map it as it is: a socket whose ring is set up again receives nothing.
    pub ring: RingGeometry,
    /// The connection to the broker. Keep it open as long as the socket; close the socket first.
    pub lease: OwnedFd,
}

/// Why no socket was granted.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The broker refused the request.
    #[error("the broker refused: {text}")]
    Refused {
        /// The kind of refusal.
        status: Status,
        /// Human-readable reason.
        text: String,
    },
    /// The request is invalid.
    #[error(transparent)]
    Request(#[from] MessageError),
    /// No broker is listening.
    #[error("no broker at {}: {source}; is barewire-broker running?", path.display())]
    Unreachable {
        /// Path of its socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The server violates the protocol.
    #[error("the broker at {} does not answer correctly: {reason}", path.display())]
    Broken {
        /// Path of its socket.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// Requests a socket from the broker. Retries while the broker restarts, unless it has already stayed away for so long.
///
/// # Errors
/// [`RequestError`].
pub fn request_grant(path: &Path, request: &Request) -> Result<Grant, RequestError> {
    let request = request.encode()?;
    let gone = || GONE.lock().unwrap_or_else(PoisonError::into_inner);
    let timeout = if gone().as_deref() == Some(path) { Duration::ZERO } else { RESTART_TIMEOUT };
    let began = Instant::now();
    loop {
        match attempt(path, &request) {
            Ok(answer) => {
                gone().take_if(|gone| gone == path);
                return granted(path, answer);
            }
            Err(error) if is_restart(error) && began.elapsed() < timeout => std::thread::sleep(RETRY_INTERVAL),
            Err(Errno::EAGAIN) => {
                let reason = format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
                return Err(RequestError::Broken { path: path.to_owned(), reason });
            }
            Err(error) => {
                if is_restart(error) {
                    *gone() = Some(path.to_owned());
                }
                return Err(RequestError::Unreachable { path: path.to_owned(), source: error.into() });
            }
        }
    }
}

/// Whether the error indicates that the broker has just ended.
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
    let address = UnixAddr::new(path)?;
    // An interrupted connect of a Unix socket has changed nothing.
    despite_signals(&lease, || connect(lease.as_raw_fd(), &address))?;
    // A broker that refuses before it reads has closed its end; its reply can still be received.
    let sent = despite_signals(&lease, || send(lease.as_raw_fd(), request, MsgFlags::MSG_NOSIGNAL));
    let (bytes, socket) = match despite_signals(&lease, || receive(&lease)) {
        // Reported once if the request was not read; the reply follows.
        Err(Errno::ECONNRESET) => despite_signals(&lease, || receive(&lease))?,
        received => received?,
    };
    if bytes.is_empty() {
        return Err(sent.err().unwrap_or(Errno::ECONNRESET));
    }
    Ok(Answer { bytes, socket, lease })
}

/// Repeats a call that a signal interrupts; the kernel does not do so on a socket with a timeout.
fn despite_signals<T>(lease: &OwnedFd, mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let until = Instant::now() + ANSWER_TIMEOUT;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // Not 0, which would be no timeout.
        let timeout = TimeVal::new(left.as_secs().cast_signed(), i64::from(left.subsec_micros().max(1)));
        setsockopt(lease, sockopt::ReceiveTimeout, &timeout)?;
        setsockopt(lease, sockopt::SendTimeout, &timeout)?;
        match call() {
            Err(Errno::EINTR) if left.is_zero() => return Err(Errno::EAGAIN),
            Err(Errno::EINTR) => {}
            done => return done,
        }
    }
}

fn receive(lease: &OwnedFd) -> Result<(Vec<u8>, Option<OwnedFd>), Errno> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let mut space = nix::cmsg_space!(RawFd);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<()>(lease.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let length = message.bytes;
    let mut sockets = Vec::new();
    // An error if the kernel could not create the descriptor: the reply then comes without a socket.
    for part in message.cmsgs().into_iter().flatten() {
        if let ControlMessageOwned::ScmRights(descriptors) = part {
            // SAFETY: the kernel has just created these descriptors in this process; nothing else owns them.
            sockets.extend(descriptors.into_iter().map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) }));
        }
    }
    bytes.truncate(length);
    Ok((bytes, sockets.pop()))
}

fn granted(path: &Path, answer: Answer) -> Result<Grant, RequestError> {
    let broken = |reason: String| RequestError::Broken { path: path.to_owned(), reason };
    let reply = Reply::decode(&answer.bytes).map_err(|error| broken(error.to_string()))?;
    match (reply, answer.socket) {
        (Reply::Granted(ring), Some(socket)) => Ok(Grant { socket, ring, lease: answer.lease }),
        (Reply::Granted(_), None) => {
            Err(broken("the grant came without a socket: too many open files here?".to_owned()))
        }
        (Reply::Refused { status, text }, _) => Err(RequestError::Refused { status, text }),
        (Reply::Shutdown, _) => Err(broken("shutdown message without a grant".to_owned())),
    }
}
