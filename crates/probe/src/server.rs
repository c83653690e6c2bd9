// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The passive side: serves any number of sessions, each on its own thread or in its own process.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::client::Failure;
use crate::control::{Address, Channel, Listener};
use crate::measure::{Side, bidirectional, pingpong, stream};
use crate::member;
use crate::pattern::Sender;
use crate::protocol::{Block, Host, Outcome, Reply, Request, Test, VERSION};
use crate::transport::llc::SAP_COUNT;
use crate::transport::{Listening, LocalConfig};
use barewire_recorder::{LaunchError, cpu};

/// Delay after a session that could not be started.
const RETRY: Duration = Duration::from_millis(100);

/// Options of the passive side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    pub listen: Address,
    pub local: LocalConfig,
    pub cpus: Option<Vec<usize>>,
    /// Each session has its own process.
    pub processes: bool,
}

/// Serves forever. Calls `ready` with the address once it listens.
pub fn serve(config: &Config, ready: impl FnOnce(&str)) -> Result<(), LaunchError> {
    let listener = Listener::bind(&config.listen)?;
    ready(&listener.address().map_err(|error| LaunchError::system("getsockname", error))?);
    loop {
        if let Err(error) = start_session(config, &listener) {
            // Too many at once, for instance: running sessions continue, and end.
            eprintln!("barewire-probe: a session could not be started: {error}");
            std::thread::sleep(RETRY);
        }
    }
}

fn start_session(config: &Config, listener: &Listener) -> Result<(), LaunchError> {
    let channel = listener.accept().map_err(|error| LaunchError::system("accept", error))?;
    if config.processes {
        return member::serve(config, channel);
    }
    let config = config.clone();
    let thread = std::thread::Builder::new().name("session".to_owned()).spawn(move || serve_session(&config, channel));
    thread.map(drop).map_err(|error| LaunchError::system("thread", error))
}

/// Serves one session. Errors go to the peer, where the user sees them, and to standard error.
pub fn serve_session(config: &Config, mut channel: Channel) {
    let result = open_session(config, &mut channel).and_then(|side| match side {
        Some(mut side) => run_blocks(&mut side, &mut channel),
        None => Ok(()),
    });
    if let Err(error) = result {
        let refusal = Failure { reason: format!("at the passive side: {error}"), exit_code: error.exit_code() };
        // Fails if the peer has closed the channel.
        let _ = channel.send(&Reply::Refused(refusal));
        eprintln!("barewire-probe: a session ended early: {error}");
    }
}

fn open_session(config: &Config, channel: &mut Channel) -> Result<Option<Side>, LaunchError> {
    let Some(request) = channel.receive()? else { return Ok(None) };
    let Request::Open(session) = request else { return Err(unexpected_request()) };
    if session.version != VERSION {
        return Err(LaunchError::WrongUse(format!(
            "this probe has protocol version {VERSION}, the other {}; install the same on both hosts",
            session.version
        )));
    }
    if session.processes && !config.processes {
        return Err(LaunchError::WrongUse("this probe serves with threads: start it with --processes".to_owned()));
    }
    if session.pair >= SAP_COUNT {
        return Err(LaunchError::WrongUse(format!("there is no pair {}: a session has {SAP_COUNT}", session.pair)));
    }
    let cpu = config.cpus.as_ref().map(|cpus| cpus[usize::from(session.pair) % cpus.len()]);
    cpu.map_or(Ok(()), cpu::pin)?;
    let ip = config.local.ip.or(channel.local_ip);
    let local = LocalConfig { ip, scope_id: channel.scope_id, ..config.local.clone() };
    let (listening, endpoint) = Listening::new(&session, &local)?;
    channel.send(&Reply::Ready { endpoint, host: describe_host(cpu, &local) })?;
    let Some(Request::Connect { endpoint }) = channel.receive()? else { return Err(unexpected_request()) };
    let mut transport = listening.accept(&session, endpoint.within(local.scope_id)?)?;
    transport.establish()?;
    channel.send(&Reply::Connected)?;
    Ok(Some(Side::new(transport, &session)))
}

fn run_blocks(side: &mut Side, channel: &mut Channel) -> Result<(), LaunchError> {
    loop {
        side.wait_readable(channel)?;
        let Some(request) = channel.receive()? else { return Ok(()) };
        let Request::Block(block) = request else { return Err(unexpected_request()) };
        block.check()?;
        side.prepare(&block, Sender::Passive)?;
        channel.send(&Reply::Started)?;
        let outcome = if block.is_timed() && block.test == Test::Stream {
            receive_timed(side, &block, channel)?
        } else {
            let outcome = run_block(side, &block, channel)?;
            end_of_block(side, channel)?.map(|_| outcome)
        };
        // The active side may have closed the channel during the block.
        let Some(mut outcome) = outcome else { return Ok(()) };
        outcome.counters = side.transport.counters()?;
        channel.send(&Reply::Done(outcome))?;
    }
}

/// A timed stream: only the active side knows its length, and reports it at the end.
fn receive_timed(side: &mut Side, block: &Block, channel: &mut Channel) -> Result<Option<Outcome>, LaunchError> {
    let mut reception = stream::Reception::new(side, block)?;
    while reception.receive(side, || channel.is_readable())? || !channel.is_readable() {}
    let Some(sent) = end_of_block(side, channel)? else { return Ok(None) };
    while !side.transport.is_lossy() && reception.arrived < sent {
        reception.receive(side, || false)?;
    }
    Ok(Some(reception.end(side)))
}

/// Number of messages that the active side has sent; `None` if it has closed the channel.
fn end_of_block(side: &mut Side, channel: &mut Channel) -> Result<Option<u32>, LaunchError> {
    side.settle()?;
    side.wait_readable(channel)?;
    match channel.receive()? {
        Some(Request::EndBlock { sent }) => Ok(Some(sent)),
        None => Ok(None),
        Some(_) => Err(unexpected_request()),
    }
}

fn run_block(side: &mut Side, block: &Block, channel: &Channel) -> Result<Outcome, LaunchError> {
    let stop = || channel.is_readable();
    match block.test {
        Test::Pingpong => pingpong::passive(side, block, stop),
        Test::Stream => stream::passive(side, block, stop),
        Test::Bidirectional => bidirectional::passive(side, block, stop),
    }
}

fn unexpected_request() -> LaunchError {
    LaunchError::Failed("unexpected control message from the active side".to_owned())
}

/// This side's environment, for the records.
pub fn describe_host(cpu: Option<usize>, local: &LocalConfig) -> Host {
    let system = nix::sys::utsname::uname().ok();
    let text =
        |text: Option<&std::ffi::OsStr>| text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    Host {
        name: text(system.as_ref().map(nix::sys::utsname::UtsName::nodename)),
        kernel: text(system.as_ref().map(nix::sys::utsname::UtsName::release)),
        cpu,
        interface: local.interface.clone(),
        ip: local.ip.map(|ip: IpAddr| ip.to_string()),
    }
}
