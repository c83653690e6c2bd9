// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The active side of one pair, on a thread of its own: sets up the session and runs the blocks that
//! the schedule hands it.

use std::sync::mpsc::{Receiver, Sender as ToSchedule};

use crate::control::{Address, Channel};
use crate::measure::{Samples, Side, bidirectional, pingpong, stream};
use crate::pattern::Sender;
use crate::protocol::{Block, Host, Outcome, Reply, Request, Session, Test};
use crate::transport::{Counters, Place, connect};
use barewire_recorder::{LaunchError, cpu};

/// What one pair reports to the schedule.
pub enum Event {
    Open(Opened),
    Block(BlockResult),
    Failed(LaunchError),
}

/// A session that is ready.
pub struct Opened {
    pub peer: Host,
    pub mtu: Option<usize>,
    pub lossy: bool,
}

/// Both sides' view of one block.
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
    place: &Place,
    cpu: Option<usize>,
    blocks: &Receiver<Block>,
    events: &ToSchedule<(u8, Event)>,
) {
    let report = |event| events.send((session.pair, event)).is_ok();
    let run = || -> Result<(), LaunchError> {
        cpu.map_or(Ok(()), cpu::pin)?;
        let mut channel = Channel::connect(peer)?;
        let (mut side, opened) = open(&mut channel, session, place)?;
        if !report(Event::Open(opened)) {
            return Ok(());
        }
        while let Ok(block) = blocks.recv() {
            if !report(Event::Block(run_block(&mut channel, &mut side, &block)?)) {
                break;
            }
        }
        Ok(())
    };
    if let Err(error) = run() {
        // With no schedule left to hear it, the process is ending already.
        report(Event::Failed(error));
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
    let opened = Opened { peer: host, mtu: transport.mtu(), lossy: transport.is_lossy() };
    Ok((Side::new(transport, session), opened))
}

fn run_block(channel: &mut Channel, side: &mut Side, block: &Block) -> Result<BlockResult, LaunchError> {
    side.prepare(block, Sender::Active)?;
    channel.send(&Request::Block(*block))?;
    side.wait_for_news(channel)?;
    match expect(channel)? {
        Reply::Started => {}
        other => return Err(out_of_turn(&other)),
    }
    let samples = match block.test {
        Test::Pingpong => pingpong::active(side, block),
        Test::Stream => stream::active(side, block),
        Test::Bidirectional => bidirectional::active(side, block),
    };
    let samples = samples.and_then(|samples| side.settle().map(|()| samples));
    // If the passive side failed first, its reason says more than our own silence.
    let samples =
        samples.or_else(|error| if channel.has_news() { expect(channel).and(Err(error)) } else { Err(error) })?;
    channel.send(&Request::EndBlock)?;
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
        Some(Reply::Refused { reason, exit_code }) => Err(match exit_code {
            2 => LaunchError::WrongUse(reason),
            3 => LaunchError::MachineCannot(reason),
            _ => LaunchError::Failed(reason),
        }),
        Some(reply) => Ok(reply),
        None => Err(LaunchError::Failed("the passive side closed the control channel; did its probe end?".to_owned())),
    }
}

fn out_of_turn(reply: &Reply) -> LaunchError {
    LaunchError::Failed(format!("the passive side left the order of control messages: {reply:?}"))
}
