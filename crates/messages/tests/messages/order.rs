// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random schedules of both sides against MPI's rule of matching.
//!
//! Messages of one sender are in order, and so are the receives of one process: then who gets what does not depend on
//! time. Each message in its turn gets the oldest receive that fits and has none, and that is the whole model.

use std::collections::HashMap;

use barewire_link::Faults;
use barewire_llc::ConnectionConfig;
use barewire_messages::{
    Config, Failure, Label, Outcome, Part, Pattern, PeerId, PostError, Reaches, ReceiveOptions, ReceivedNext,
    SendOptions, Wanted,
};

use crate::common::*;

const STEPS: usize = 300;
const LENGTHS: [usize; 9] = [0, 1, 8, 100, 1400, 1500, 4000, 4001, 30_000];

#[derive(Clone)]
struct Sent {
    label: Label,
    message: Vec<u8>,
    reaches: Reaches,
    in_parts: bool,
}

struct Posted {
    wanted: Wanted,
    /// Stays where it is when this moves.
    memory: Vec<u8>,
    /// Of a receive that takes many: less free memory ends it.
    least: Option<usize>,
    is_cancelled: bool,
}

/// What one side sends and receives.
#[derive(Default)]
struct Side {
    sent: Vec<Sent>,
    /// Of `sent`, those that were taken: a peer whose memory is full lets us wait.
    sends_posted: usize,
    sends_completed: usize,
    posted: Vec<Posted>,
    /// By receive: offset, length, whether it was cut, tag and data, in the order of completion.
    received: HashMap<usize, Vec<(usize, usize, bool, Label)>>,
    cancelled: usize,
}

fn fits(wanted: &Wanted, label: Label) -> bool {
    match (wanted, label.tag) {
        (Wanted::Tagged(pattern), Some(tag)) => (pattern.tag ^ tag) & !pattern.ignore == 0,
        (Wanted::Untagged(_), None) => true,
        _ => false,
    }
}

/// The rule: of each receive, its messages with their offsets; and how many messages have none.
fn model(sent: &[Sent], posted: &[Posted]) -> (HashMap<usize, Vec<(usize, usize)>>, usize) {
    let mut used = vec![0; posted.len()];
    let mut is_open: Vec<bool> = posted.iter().map(|receive| !receive.is_cancelled).collect();
    let (mut matched, mut left): (HashMap<usize, Vec<_>>, _) = (HashMap::new(), 0);
    for (number, Sent { label, message, .. }) in sent.iter().enumerate() {
        let Some(receive) = (0..posted.len()).find(|r| is_open[*r] && fits(&posted[*r].wanted, *label)) else {
            left += 1;
            continue;
        };
        matched.entry(receive).or_default().push((number, used[receive]));
        let room = posted[receive].memory.len();
        used[receive] += message.len().min(room - used[receive]);
        is_open[receive] = posted[receive].least.is_some_and(|least| room - used[receive] >= least);
    }
    (matched, left)
}

impl Side {
    fn take(&mut self, one: &mut Tested, generator: &mut fastrand::Rng) {
        while generator.bool()
            && let Some(ReceivedNext { context, envelope, .. }) = one.receive_next()
        {
            let told = (0, envelope.length as usize, false, envelope.label);
            self.received.entry(context as usize).or_default().push(told);
        }
        while let Some(completion) = one.poll() {
            let receive = completion.context as usize;
            match completion.outcome {
                Outcome::Sent => self.sends_completed += 1,
                Outcome::Received(m) | Outcome::Failed { failure: Failure::Truncated { .. }, message: Some(m), .. } => {
                    let is_cut = !matches!(completion.outcome, Outcome::Received(_));
                    let told = (m.offset as usize, m.envelope.length as usize, is_cut, m.envelope.label);
                    self.received.entry(receive).or_default().push(told);
                }
                Outcome::Failed { failure: Failure::Cancelled, .. } => self.cancelled += 1,
                Outcome::Failed { failure, .. } => panic!("{failure}"),
                Outcome::Done(_) | Outcome::Written(_) => panic!("nobody accesses memory"),
            }
        }
    }

    fn post(&mut self, one: &mut Tested, wanted: Wanted, bytes: usize, least: Option<usize>) {
        let mut memory = vec![0; bytes];
        let context = self.posted.len() as u64;
        // Sometimes in two parts.
        let (a, b) = memory.split_at_mut(bytes / 3);
        let parts = [Part::into(a), Part::into(b)];
        let parts = if context.is_multiple_of(2) { &parts[..] } else { &[Part::into(&mut memory)][..] };
        let options = ReceiveOptions { context, ..ReceiveOptions::default() };
        let posted = if let Some(least) = least {
            // SAFETY: the vector's bytes stay until the end, and nobody looks at them before.
            unsafe { one.receive_many(wanted, parts, least as u64, options) }
        } else {
            // SAFETY: as above.
            unsafe { one.receive(wanted, parts, options) }
        };
        posted.unwrap();
        self.posted.push(Posted { wanted, memory, least, is_cancelled: false });
    }

    /// Posts the sends that are not, in their order, as far as they are taken.
    fn send(&mut self, one: &mut Tested, to: PeerId) {
        while let Some(Sent { label, message, reaches, in_parts }) = self.sent.get(self.sends_posted) {
            let (first, second) = message.split_at(message.len() / 2);
            let parts = [Part::of(first), Part::of(second)];
            let parts = if *in_parts { &parts[..] } else { &[Part::of(message)][..] };
            let options = SendOptions { reaches: *reaches, ..SendOptions::default() };
            // SAFETY: messages stay where they are until the end.
            match unsafe { one.send(to, *label, parts, options) } {
                Ok(()) => self.sends_posted += 1,
                Err(PostError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn cancel(&mut self, one: &mut Tested, generator: &mut fastrand::Rng) {
        if let Some(last) = self.posted.len().checked_sub(1) {
            let receive = generator.usize(last.saturating_sub(5)..=last);
            // One of many may have messages already, which the model does not divide.
            if self.posted[receive].least.is_none() {
                self.posted[receive].is_cancelled |= one.cancel(receive as u64);
            }
        }
    }

    /// Compares what came from `sent` with the rule.
    fn check(&mut self, sent: &[Sent]) {
        let (matched, left) = model(sent, &self.posted);
        assert_eq!(left, 0, "receives for all were posted");
        let (told, expected): (usize, usize) =
            (self.received.values().map(Vec::len).sum(), matched.values().map(Vec::len).sum());
        assert_eq!(told, expected);
        for (receive, messages) in matched {
            let mut told = self.received.remove(&receive).expect("the receive is completed");
            // What is announced may be overtaken by what is not.
            told.sort_unstable_by_key(|(offset, length, _, label)| (*offset, *length, label.tag, label.data));
            let mut expected = messages;
            expected.sort_unstable_by_key(|(number, offset)| {
                let Sent { label, message, .. } = &sent[*number];
                (*offset, message.len(), label.tag, label.data)
            });
            for ((number, offset), told) in expected.iter().zip(told) {
                let Sent { label, message, .. } = &sent[*number];
                let memory = &self.posted[receive].memory[*offset..];
                let kept = message.len().min(memory.len());
                assert_eq!(told.3, *label);
                assert_eq!((told.0, told.1, told.2), (*offset, message.len(), kept < message.len()));
                assert!(memory[..kept] == message[..kept], "receive {receive} has message {number}");
            }
        }
    }
}

fn random_wanted(generator: &mut fastrand::Rng, peer: PeerId) -> Wanted {
    let source = generator.bool().then_some(peer);
    if generator.u8(..6) == 0 {
        return Wanted::Untagged(source);
    }
    let ignore = [0, 0, 0, 1, u64::MAX][generator.usize(..5)];
    Wanted::Tagged(Pattern { source, tag: generator.u64(..4), ignore })
}

fn run(mut pair: [Tested; 2], seed: u64) {
    let mut generator = fastrand::Rng::with_seed(seed);
    let peers = introduce(&mut pair);
    let mut sides = [Side::default(), Side::default()];
    for step in 0..STEPS {
        let at = generator.usize(..2);
        match generator.u8(..10) {
            0..4 => {
                let tag = (generator.u8(..6) > 0).then(|| generator.u64(..4));
                let label = Label { tag, data: generator.bool().then_some(step as u64) };
                let message = bytes(LENGTHS[generator.usize(..LENGTHS.len())], generator.u64(..));
                let reaches = [Reaches::Nowhere, Reaches::Endpoint, Reaches::Receive][generator.usize(..3)];
                sides[at].sent.push(Sent { label, message, reaches, in_parts: generator.bool() });
                sides[at].send(&mut pair[at], peers[at]);
            }
            4..8 => {
                let wanted = random_wanted(&mut generator, peers[at]);
                let room = LENGTHS[generator.usize(..LENGTHS.len())] + generator.usize(..2);
                let least = (generator.u8(..4) == 0 && room > 100).then(|| generator.usize(1..100));
                sides[at].post(&mut pair[at], wanted, room, least);
            }
            8 if generator.bool() => sides[at].take(&mut pair[at], &mut generator),
            8 => sides[at].cancel(&mut pair[at], &mut generator),
            _ => {
                for _ in 0..generator.usize(..20) {
                    for at in 0..2 {
                        pair[at].progress().unwrap();
                        sides[at].send(&mut pair[at], peers[at]);
                        if generator.u8(..4) == 0 {
                            sides[at].take(&mut pair[at], &mut generator);
                        }
                    }
                }
            }
        }
    }
    // Receives for all that has none.
    for at in 0..2 {
        let sent = sides[1 - at].sent.clone();
        while model(&sent, &sides[at].posted).1 > 0 {
            let wanted = if sides[at].posted.len() % 2 == 0 { any_tagged() } else { Wanted::Untagged(None) };
            sides[at].post(&mut pair[at], wanted, 30_000, None);
            let [a, b] = &mut sides;
            a.take(&mut pair[0], &mut generator);
            b.take(&mut pair[1], &mut generator);
        }
    }
    drive(&mut pair, |pair| {
        let mut is_done = true;
        for at in 0..2 {
            sides[at].send(&mut pair[at], peers[at]);
            sides[at].take(&mut pair[at], &mut generator);
            let received: usize = sides[at].received.values().map(Vec::len).sum();
            is_done &= sides[at].sends_completed == sides[at].sent.len() && received == sides[1 - at].sent.len();
        }
        is_done
    });
    let sent = [sides[1].sent.clone(), sides[0].sent.clone()];
    for (side, sent) in sides.iter_mut().zip(&sent) {
        side.check(sent);
    }
    assert_eq!(pair.iter().map(Tested::unexpected_bytes).sum::<usize>(), 0);
}

/// Small bounds, so that all of them are met: two eager messages more than are unexpected at once make peers announce.
fn config(generator: &mut fastrand::Rng) -> Config {
    Config {
        eager_bytes: 4000,
        unexpected_bytes: [5_000, 50_000, 1 << 20][generator.usize(..3)],
        cut_frames: generator.usize(1..8),
        descriptors_per_peer: [2, 64][generator.usize(..2)],
        ..Config::default()
    }
}

/// Two messages of one tag, and two receives.
fn two_of_a_tag(got: [usize; 2]) {
    let sent = [1, 2].map(|seed| Sent {
        label: tagged(1),
        message: bytes(10, seed),
        reaches: Reaches::Nowhere,
        in_parts: false,
    });
    let memory = got.map(|number| sent[number].message.clone());
    let posted = |memory| Posted { wanted: any_tagged(), memory, least: None, is_cancelled: false };
    let received = (0..2).map(|receive| (receive, vec![(0, 10, false, tagged(1))])).collect();
    let mut side = Side { posted: memory.map(posted).into(), received, ..Side::default() };
    side.check(&sent);
}

#[test]
fn the_check_takes_the_right_order() {
    two_of_a_tag([0, 1]);
}

#[test]
#[should_panic(expected = "receive 0 has message 0")]
fn the_check_notices_a_wrong_order() {
    two_of_a_tag([1, 1]);
}

#[test]
fn on_a_wire_with_faults_messages_match_in_the_order_of_mpi() {
    for seed in 0..150 {
        println!("seed {seed}");
        let faults = Faults { loss: 0.01, duplication: 0.01, reordering: 0.02, ..Faults::default() };
        let faults = if seed % 3 == 0 { Faults::default() } else { faults };
        run(wire(config(&mut fastrand::Rng::with_seed(seed)), &ConnectionConfig::default(), faults, seed), seed);
    }
}

#[test]
fn on_one_host_messages_match_in_the_order_of_mpi() {
    for seed in 0..150 {
        println!("seed {seed}");
        run(host(config(&mut fastrand::Rng::with_seed(seed))), seed);
    }
}
