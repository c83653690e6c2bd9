// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The active side of one pair, on its own thread or in its own process: sets up the session and runs the schedule's
//! blocks.

use serde::{Deserialize, Serialize};

use crate::control::{Address, Channel};
use crate::measure::{Samples, Side, bidirectional, pingpong, stream};
use crate::pattern::Sender;
use crate::protocol::{Block, Host, Outcome, Reply, Request, Session, Test};
use crate::transport::{Counters, LocalConfig, connect};
use barewire_recorder::{LaunchError, cpu};

/// From the schedule to a pair.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum Command {
    Block(Block),
    /// Starts a timed block once all pairs are ready.
    Go,
}

/// From a pair to the schedule.
#[derive(Serialize, Deserialize)]
pub enum Event {
    Open(Opened),
    /// Both sides are prepared for a timed block.
    Ready,
    Block(BlockResult),
    Failed(Failure),
    /// The pair's process ended without reporting a reason.
    Lost,
}

/// Why a pair ended, in serialisable form.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failure {
    pub reason: String,
    pub exit_code: u8,
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Self {
        Self { reason: error.to_string(), exit_code: error.exit_code() }
    }
}

impl From<Failure> for LaunchError {
    fn from(Failure { reason, exit_code }: Failure) -> Self {
        match exit_code {
            2 => Self::WrongUse(reason),
            3 => Self::MachineCannot(reason),
            130 => Self::Interrupted,
            _ => Self::Failed(reason),
        }
    }
}

/// A pair's connection to the schedule.
pub trait ScheduleHandle {
    /// The next command; `None` when there are no more.
    fn next(&mut self) -> Option<Command>;

    /// Sends `event`; false once the schedule has ended.
    fn report(&mut self, event: Event) -> bool;
}

/// An open session.
#[derive(Serialize, Deserialize)]
pub struct Opened {
    pub peer: Host,
    pub mtu: Option<usize>,
    /// The path that messages take, where a library selects it.
    pub path: Option<String>,
}

/// Both sides' view of one block.
#[derive(Serialize, Deserialize)]
pub struct BlockResult {
    pub samples: Samples,
    pub outcome: Outcome,
    pub counters: Counters,
    /// Bytes of one message on the wire.
    pub wire_bytes: usize,
}

/// Runs one pair until the schedule has no more blocks.
pub fn run_pair(
    peer: &Address,
    session: &Session,
    local: &LocalConfig,
    cpu: Option<usize>,
    schedule: &mut impl ScheduleHandle,
) {
    let mut run = || -> Result<(), LaunchError> {
        cpu.map_or(Ok(()), cpu::pin)?;
        let mut channel = Channel::connect(peer)?;
        let (mut side, opened) = open(&mut channel, session, local)?;
        let mut has_schedule = schedule.report(Event::Open(opened));
        while has_schedule && let Some(command) = schedule.next() {
            let Command::Block(block) = command else { continue };
            start_block(&mut channel, &mut side, &block)?;
            if block.is_timed() && !(schedule.report(Event::Ready) && matches!(schedule.next(), Some(Command::Go))) {
                break;
            }
            has_schedule = schedule.report(Event::Block(run_block(&mut channel, &mut side, &block)?));
        }
        Ok(())
    };
    if let Err(error) = run() {
        // If the schedule has ended, so will this process.
        schedule.report(Event::Failed(error.into()));
    }
}

fn open(channel: &mut Channel, session: &Session, local: &LocalConfig) -> Result<(Side, Opened), LaunchError> {
    channel.send(&Request::Open(session.clone()))?;
    let (endpoint, host) = match expect(channel)? {
        Reply::Ready { endpoint, host } => (endpoint, host),
        other => return Err(unexpected_reply(&other)),
    };
    let local = LocalConfig { scope_id: channel.scope_id, ..local.clone() };
    let (mut transport, own) = connect(session, &local, endpoint.within(local.scope_id)?)?;
    channel.send(&Request::Connect { endpoint: own })?;
    transport.establish()?;
    match expect(channel)? {
        Reply::Connected => {}
        other => return Err(unexpected_reply(&other)),
    }
    let opened = Opened { peer: host, mtu: transport.mtu(), path: transport.path() };
    Ok((Side::new(transport, session), opened))
}

fn start_block(channel: &mut Channel, side: &mut Side, block: &Block) -> Result<(), LaunchError> {
    side.prepare(block, Sender::Active)?;
    channel.send(&Request::Block(*block))?;
    side.wait_readable(channel)?;
    match expect(channel)? {
        Reply::Started => Ok(()),
        other => Err(unexpected_reply(&other)),
    }
}

fn run_block(channel: &mut Channel, side: &mut Side, block: &Block) -> Result<BlockResult, LaunchError> {
    let samples = match block.test {
        Test::Pingpong => pingpong::active(side, block),
        Test::Stream => stream::active(side, block),
        Test::Bidirectional => bidirectional::active(side, block),
    };
    let samples = samples.and_then(|samples| side.settle().map(|()| samples));
    // If the passive side failed first, report its reason instead of our timeout.
    let samples =
        samples.or_else(|error| if channel.is_readable() { expect(channel).and(Err(error)) } else { Err(error) })?;
    channel.send(&Request::EndBlock { sent: samples.sent })?;
    side.wait_readable(channel)?;
    match expect(channel)? {
        Reply::Done(outcome) => Ok(BlockResult {
            samples,
            outcome,
            counters: side.transport.counters()?,
            wire_bytes: side.transport.wire_bytes(block.message_bytes as usize),
        }),
        other => Err(unexpected_reply(&other)),
    }
}

/// The next reply; a refusal becomes an error with the peer's exit code.
fn expect(channel: &mut Channel) -> Result<Reply, LaunchError> {
    match channel.receive()? {
        Some(Reply::Refused(failure)) => Err(failure.into()),
        Some(reply) => Ok(reply),
        None => Err(LaunchError::Failed("the passive side closed the control channel; did its probe end?".to_owned())),
    }
}

fn unexpected_reply(reply: &Reply) -> LaunchError {
    LaunchError::Failed(format!("unexpected control message from the passive side: {reply:?}"))
}
