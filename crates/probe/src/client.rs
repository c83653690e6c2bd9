// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The active side of one pair, on a thread or in a process of its own: sets up the session and runs the blocks that
//! the schedule hands it.

use serde::{Deserialize, Serialize};

use crate::control::{Address, Channel};
use crate::measure::{Samples, Side, bidirectional, pingpong, stream};
use crate::pattern::Sender;
use crate::protocol::{Block, Host, Outcome, Reply, Request, Session, Test};
use crate::transport::{Counters, Place, connect};
use barewire_recorder::{LaunchError, cpu};

/// What the schedule tells a pair.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum Command {
    Block(Block),
    /// All pairs are ready for the block, which is one by time: begin.
    Go,
}

/// What one pair reports to the schedule.
#[derive(Serialize, Deserialize)]
pub enum Event {
    Open(Opened),
    /// Both sides are prepared for a block by time.
    Ready,
    Block(BlockResult),
    Failed(Failure),
    /// It is gone and has not said why.
    Lost,
}

/// Why a pair ended, in a form that passes between processes.
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

/// A pair's way to the schedule.
pub trait Orders {
    /// The next command; `None` when there are no more.
    fn next(&mut self) -> Option<Command>;

    /// Tells the schedule; false when it no longer listens.
    fn report(&mut self, event: Event) -> bool;
}

/// A session that is ready.
#[derive(Serialize, Deserialize)]
pub struct Opened {
    pub peer: Host,
    pub mtu: Option<usize>,
    pub lossy: bool,
    /// Which way messages really take, where a library decides that.
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
pub fn run_pair(peer: &Address, session: &Session, place: &Place, cpu: Option<usize>, orders: &mut impl Orders) {
    let mut run = || -> Result<(), LaunchError> {
        cpu.map_or(Ok(()), cpu::pin)?;
        let mut channel = Channel::connect(peer)?;
        let (mut side, opened) = open(&mut channel, session, place)?;
        let mut is_heard = orders.report(Event::Open(opened));
        while is_heard && let Some(command) = orders.next() {
            let Command::Block(block) = command else { continue };
            start_block(&mut channel, &mut side, &block)?;
            if block.is_by_time() && !(orders.report(Event::Ready) && matches!(orders.next(), Some(Command::Go))) {
                break;
            }
            is_heard = orders.report(Event::Block(run_block(&mut channel, &mut side, &block)?));
        }
        Ok(())
    };
    if let Err(error) = run() {
        // With no schedule left to hear it, the process is ending already.
        orders.report(Event::Failed(error.into()));
    }
}

fn open(channel: &mut Channel, session: &Session, place: &Place) -> Result<(Side, Opened), LaunchError> {
    channel.send(&Request::Open(session.clone()))?;
    let (endpoint, host) = match expect(channel)? {
        Reply::Ready { endpoint, host } => (endpoint, host),
        other => return Err(out_of_turn(&other)),
    };
    let (mut transport, own) = connect(session, place, endpoint)?;
    channel.send(&Request::Connect { endpoint: own })?;
    transport.establish()?;
    match expect(channel)? {
        Reply::Connected => {}
        other => return Err(out_of_turn(&other)),
    }
    let opened = Opened { peer: host, mtu: transport.mtu(), lossy: transport.is_lossy(), path: transport.path() };
    Ok((Side::new(transport, session), opened))
}

fn start_block(channel: &mut Channel, side: &mut Side, block: &Block) -> Result<(), LaunchError> {
    side.prepare(block, Sender::Active)?;
    channel.send(&Request::Block(*block))?;
    side.wait_for_news(channel)?;
    match expect(channel)? {
        Reply::Started => Ok(()),
        other => Err(out_of_turn(&other)),
    }
}

fn run_block(channel: &mut Channel, side: &mut Side, block: &Block) -> Result<BlockResult, LaunchError> {
    let samples = match block.test {
        Test::Pingpong => pingpong::active(side, block),
        Test::Stream => stream::active(side, block),
        Test::Bidirectional => bidirectional::active(side, block),
    };
    let samples = samples.and_then(|samples| side.settle().map(|()| samples));
    // If the passive side failed first, its reason says more than our own silence.
    let samples =
        samples.or_else(|error| if channel.has_news() { expect(channel).and(Err(error)) } else { Err(error) })?;
    channel.send(&Request::EndBlock { sent: samples.sent })?;
    side.wait_for_news(channel)?;
    match expect(channel)? {
        Reply::Done(outcome) => Ok(BlockResult {
            samples,
            outcome,
            counters: side.transport.counters()?,
            wire_bytes: side.transport.wire_bytes(block.message_bytes as usize),
        }),
        other => Err(out_of_turn(&other)),
    }
}

/// The next reply; a refusal is the peer's error, with the peer's exit code.
fn expect(channel: &mut Channel) -> Result<Reply, LaunchError> {
    match channel.receive()? {
        Some(Reply::Refused(failure)) => Err(failure.into()),
        Some(reply) => Ok(reply),
        None => Err(LaunchError::Failed("the passive side closed the control channel; did its probe end?".to_owned())),
    }
}

fn out_of_turn(reply: &Reply) -> LaunchError {
    LaunchError::Failed(format!("the passive side left the order of control messages: {reply:?}"))
}
