// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The passive side: answers any number of sessions, each on a thread or in a process of its own.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::client::Failure;
use crate::control::{Address, Channel, Listener};
use crate::measure::{Side, bidirectional, pingpong, stream};
use crate::member;
use crate::pattern::Sender;
use crate::protocol::{Block, Host, Outcome, Reply, Request, Test, VERSION};
use crate::transport::{Listening, Place};
use barewire_recorder::{LaunchError, cpu};

/// How the passive side was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    pub listen: Address,
    pub place: Place,
    pub cpus: Option<Vec<usize>>,
    /// Each session is a process of its own.
    pub processes: bool,
}

/// Serves until the process is ended. Calls `ready` with the address once connections are accepted.
pub fn serve(config: &Config, ready: impl FnOnce(&str)) -> Result<(), LaunchError> {
    let listener = Listener::bind(&config.listen)?;
    ready(&listener.address().map_err(|error| LaunchError::system("getsockname", error))?);
    loop {
        let channel = listener.accept().map_err(|error| LaunchError::system("accept", error))?;
        if config.processes {
            member::serve(config, channel)?;
            continue;
        }
        let config = config.clone();
        std::thread::Builder::new()
            .name("session".to_owned())
            .spawn(move || {
                serve_session(&config, channel);
            })
            .map_err(|error| LaunchError::system("thread", error))?;
    }
}

/// One session; a refusal goes to the peer, which is the one that a person watches.
pub fn serve_session(config: &Config, mut channel: Channel) {
    let result = open_session(config, &mut channel).and_then(|side| match side {
        Some(mut side) => run_blocks(&mut side, &mut channel),
        None => Ok(()),
    });
    if let Err(error) = result {
        let refusal = Failure { reason: format!("at the passive side: {error}"), exit_code: error.exit_code() };
        // The peer may have gone first; then there is nobody to tell.
        let _ = channel.send(&Reply::Refused(refusal));
        eprintln!("barewire-probe: a session ended early: {error}");
    }
}

fn open_session(config: &Config, channel: &mut Channel) -> Result<Option<Side>, LaunchError> {
    let Some(request) = channel.receive()? else { return Ok(None) };
    let Request::Open(session) = request else { return Err(out_of_turn()) };
    if session.version != VERSION {
        return Err(LaunchError::WrongUse(format!(
            "this probe speaks version {VERSION}, the other one {}; install the same on both",
            session.version
        )));
    }
    if session.processes && !config.processes {
        return Err(LaunchError::WrongUse("this probe serves with threads: start it with --processes".to_owned()));
    }
    let cpu = config.cpus.as_ref().map(|cpus| cpus[usize::from(session.pair) % cpus.len()]);
    cpu.map_or(Ok(()), cpu::pin)?;
    let place = Place { ip: config.place.ip.or(channel.local_ip), ..config.place.clone() };
    let (listening, endpoint) = Listening::new(&session, &place)?;
    channel.send(&Reply::Ready { endpoint, host: describe_host(cpu, &place) })?;
    let Some(Request::Connect { endpoint }) = channel.receive()? else { return Err(out_of_turn()) };
    let mut transport = listening.accept(&session, endpoint)?;
    transport.establish()?;
    channel.send(&Reply::Connected)?;
    Ok(Some(Side::new(transport, &session)))
}

fn run_blocks(side: &mut Side, channel: &mut Channel) -> Result<(), LaunchError> {
    loop {
        side.wait_for_news(channel)?;
        let Some(request) = channel.receive()? else { return Ok(()) };
        let Request::Block(block) = request else { return Err(out_of_turn()) };
        side.prepare(&block, Sender::Passive)?;
        channel.send(&Reply::Started)?;
        let outcome = if block.is_by_time() && block.test == Test::Stream {
            receive_by_time(side, &block, channel)?
        } else {
            let outcome = run_block(side, &block, channel)?;
            end_of_block(side, channel)?.map(|_| outcome)
        };
        // The active side may have gone in the middle of the block.
        let Some(mut outcome) = outcome else { return Ok(()) };
        outcome.counters = side.transport.counters()?;
        channel.send(&Reply::Done(outcome))?;
    }
}

/// A stream whose length only the active side knows; it tells when it has sent all.
fn receive_by_time(side: &mut Side, block: &Block, channel: &mut Channel) -> Result<Option<Outcome>, LaunchError> {
    let mut reception = stream::Reception::new(side, block)?;
    while reception.take(side, || channel.has_news())? || !channel.has_news() {}
    let Some(sent) = end_of_block(side, channel)? else { return Ok(None) };
    while !side.transport.is_lossy() && reception.arrived < sent {
        reception.take(side, || false)?;
    }
    Ok(Some(reception.end(side)))
}

/// How much the active side has sent; `None` if it has gone.
fn end_of_block(side: &mut Side, channel: &mut Channel) -> Result<Option<u32>, LaunchError> {
    side.settle()?;
    side.wait_for_news(channel)?;
    match channel.receive()? {
        Some(Request::EndBlock { sent }) => Ok(Some(sent)),
        None => Ok(None),
        Some(_) => Err(out_of_turn()),
    }
}

fn run_block(side: &mut Side, block: &Block, channel: &Channel) -> Result<Outcome, LaunchError> {
    let stop = || channel.has_news();
    match block.test {
        Test::Pingpong => pingpong::passive(side, block, stop),
        Test::Stream => stream::passive(side, block, stop),
        Test::Bidirectional => bidirectional::passive(side, block, stop),
    }
}

fn out_of_turn() -> LaunchError {
    LaunchError::Failed("the active side left the order of control messages".to_owned())
}

/// What a reader of the results wants to know of the machine on this side.
pub fn describe_host(cpu: Option<usize>, place: &Place) -> Host {
    let system = nix::sys::utsname::uname().ok();
    let text =
        |text: Option<&std::ffi::OsStr>| text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    Host {
        name: text(system.as_ref().map(nix::sys::utsname::UtsName::nodename)),
        kernel: text(system.as_ref().map(nix::sys::utsname::UtsName::release)),
        cpu,
        interface: place.interface.clone(),
        ip: place.ip.map(|ip: IpAddr| ip.to_string()),
    }
}
