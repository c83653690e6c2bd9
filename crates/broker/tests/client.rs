// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client, with a server of the test's own.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::thread::JoinHandleExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, io};

use barewire_broker::{Grant, MESSAGE_BYTES_MAX, Reply, Request, RequestError, Status, request_grant};
use barewire_link::RingGeometry;
use barewire_llc::Lsap;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind, listen, recv,
    sendmsg, socket,
};

/// One test at a time: they change what the whole process has.
static PROCESS: Mutex<()> = Mutex::new(());

/// A server that receives one request and lets `answer` have the connection.
struct Server {
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
    _process: MutexGuard<'static, ()>,
}

impl Server {
    fn new(name: &str, answer: impl FnOnce(&OwnedFd) + Send + 'static) -> Self {
        let process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        let path = std::env::temp_dir().join(format!("barewire-client-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&listener, Backlog::new(1).unwrap()).unwrap();
        let thread = thread::spawn(move || {
            // SAFETY: the kernel has just created this descriptor in this process; nothing else owns it.
            let connection = unsafe { OwnedFd::from_raw_fd(accept(listener.as_raw_fd()).unwrap()) };
            recv(connection.as_raw_fd(), &mut [0; MESSAGE_BYTES_MAX], MsgFlags::empty()).unwrap();
            answer(&connection);
        });
        Self { path, thread: Some(thread), _process: process }
    }

    fn ask(&self) -> Result<Grant, RequestError> {
        ask(&self.path)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

fn ask(path: &std::path::Path) -> Result<Grant, RequestError> {
    request_grant(path, &Request { interface: "lo".to_owned(), sap: Lsap::new(0x20).unwrap(), station: false })
}

fn reply(connection: &OwnedFd, reply: &Reply, rights: &[ControlMessage<'_>]) {
    let bytes = reply.encode();
    sendmsg::<()>(connection.as_raw_fd(), &[IoSlice::new(&bytes)], rights, MsgFlags::MSG_NOSIGNAL, None).unwrap();
}

extern "C" fn ignore(_: libc::c_int) {}

#[test]
fn signals_do_not_end_a_request() {
    let action = SigAction::new(SigHandler::Handler(ignore), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.unwrap();
    let server = Server::new("signals", |connection| {
        thread::sleep(Duration::from_millis(200));
        reply(connection, &Reply::Refused { status: Status::Taken, text: "taken".to_owned() }, &[]);
    });
    let path = server.path.clone();
    let client = thread::spawn(move || ask(&path));
    while !client.is_finished() {
        // SAFETY: the thread has not been joined.
        unsafe { libc::pthread_kill(client.as_pthread_t(), libc::SIGUSR1) };
        thread::sleep(Duration::from_millis(10));
    }
    let answer = client.join().unwrap();
    assert!(matches!(answer, Err(RequestError::Refused { status: Status::Taken, .. })), "{answer:?}");
}

#[test]
fn a_grant_without_room_for_its_socket_says_so() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let server = Server::new("descriptors", move |connection| {
        let descriptors = [io::stdin().as_raw_fd()];
        setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
        let ring = RingGeometry::from_words([1600, 1 << 20, 2]).unwrap();
        reply(connection, &Reply::Granted(ring), &[ControlMessage::ScmRights(&descriptors)]);
    });
    let answer = server.ask();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    let Err(RequestError::Broken { reason, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(reason, "the grant came without a socket: too many open files here?");
}

/// A library opens several endpoints; each would wait for a broker that is gone.
#[test]
fn a_broker_that_stays_away_is_waited_for_once() {
    let _process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let path = std::env::temp_dir().join(format!("barewire-client-{}-gone", std::process::id()));
    let _ = fs::remove_file(&path);
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    drop(listener);
    let began = Instant::now();
    assert!(matches!(ask(&path), Err(RequestError::Unreachable { .. })));
    let first = began.elapsed();
    assert!(matches!(ask(&path), Err(RequestError::Unreachable { .. })));
    let second = began.elapsed() - first;
    fs::remove_file(&path).unwrap();
    assert!(first >= Duration::from_secs(3) && second < first / 2, "{first:?}, {second:?}");
}
