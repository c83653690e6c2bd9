// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random schedules of both sides against MPI's matching rule.
//!
//! Messages of one sender are ordered, and so are the receives of one process, so matching does not depend on time. The
//! model: each message in order gets the oldest receive that fits and has none.

use std::collections::HashMap;

use barewire_link::Faults;
use barewire_llc::ConnectionConfig;
use barewire_messages::{
    CompletionLevel, Config, Failure, Label, Outcome, Part, Pattern, PeerId, PostError, ReceiveOptions, ReceivedNext,
    Selector, SendOptions,
};

use crate::common::*;

const STEPS: usize = 300;
const LENGTHS: [usize; 9] = [0, 1, 8, 100, 1400, 1500, 4000, 4001, 30_000];

#[derive(Clone)]
struct Sent {
    label: Label,
    message: Vec<u8>,
    level: CompletionLevel,
    is_split: bool,
}

struct Posted {
    selector: Selector,
    /// Heap memory: its address is stable when this moves.
    memory: Vec<u8>,
    /// For multi-receives: ends when less memory than this is free.
    min_free: Option<usize>,
    is_cancelled: bool,
}

/// State of one side.
#[derive(Default)]
struct Side {
    sent: Vec<Sent>,
    /// Number of `sent` that were accepted: a peer without memory makes us wait.
    sends_posted: usize,
    sends_completed: usize,
    posted: Vec<Posted>,
    /// By receive: offset, length, whether it was truncated, and label, in order of completion.
    received: HashMap<usize, Vec<(usize, usize, bool, Label)>>,
    cancelled: usize,
}

fn fits(selector: &Selector, label: Label) -> bool {
    match (selector, label.tag) {
        (Selector::Tagged(pattern), Some(tag)) => (pattern.tag ^ tag) & !pattern.ignore == 0,
        (Selector::Untagged(_), None) => true,
        _ => false,
    }
}

/// The rule: each receive's messages with their offsets, and the number of messages without a receive.
fn model(sent: &[Sent], posted: &[Posted]) -> (HashMap<usize, Vec<(usize, usize)>>, usize) {
    let mut used = vec![0; posted.len()];
    let mut is_open: Vec<bool> = posted.iter().map(|receive| !receive.is_cancelled).collect();
    let (mut matched, mut unmatched): (HashMap<usize, Vec<_>>, _) = (HashMap::new(), 0);
    for (number, Sent { label, message, .. }) in sent.iter().enumerate() {
        let Some(receive) = (0..posted.len()).find(|r| is_open[*r] && fits(&posted[*r].selector, *label)) else {
            unmatched += 1;
            continue;
        };
        matched.entry(receive).or_default().push((number, used[receive]));
        let room = posted[receive].memory.len();
        used[receive] += message.len().min(room - used[receive]);
        is_open[receive] = posted[receive].min_free.is_some_and(|min_free| room - used[receive] >= min_free);
    }
    (matched, unmatched)
}

impl Side {
    fn take(&mut self, messenger: &mut Tested, generator: &mut fastrand::Rng) {
        while generator.bool()
            && let Some(ReceivedNext { context, envelope, .. }) = messenger.receive_next()
        {
            let reported = (0, envelope.length as usize, false, envelope.label);
            self.received.entry(context as usize).or_default().push(reported);
        }
        while let Some(completion) = messenger.poll() {
            let receive = completion.context as usize;
            match completion.outcome {
                Outcome::Sent => self.sends_completed += 1,
                Outcome::Received(m) | Outcome::Failed { failure: Failure::Truncated { .. }, message: Some(m), .. } => {
                    let is_truncated = !matches!(completion.outcome, Outcome::Received(_));
                    let reported = (m.offset as usize, m.envelope.length as usize, is_truncated, m.envelope.label);
                    self.received.entry(receive).or_default().push(reported);
                }
                Outcome::Failed { failure: Failure::Cancelled, .. } => self.cancelled += 1,
                Outcome::Failed { failure, .. } => panic!("{failure}"),
                Outcome::Done(_) | Outcome::Written(_) => panic!("no remote accesses"),
            }
        }
    }

    fn post(&mut self, messenger: &mut Tested, selector: Selector, bytes: usize, min_free: Option<usize>) {
        let mut memory = vec![0; bytes];
        let context = self.posted.len() as u64;
        // Sometimes in two parts.
        let (a, b) = memory.split_at_mut(bytes / 3);
        let parts = [Part::into(a), Part::into(b)];
        let parts = if context.is_multiple_of(2) { &parts[..] } else { &[Part::into(&mut memory)][..] };
        let options = ReceiveOptions { context, ..ReceiveOptions::default() };
        let posted = if let Some(min_free) = min_free {
            // SAFETY: the vector's bytes live until the end, and are not accessed before.
            unsafe { messenger.receive_multi(selector, parts, min_free as u64, options) }
        } else {
            // SAFETY: as above.
            unsafe { messenger.receive(selector, parts, options) }
        };
        posted.unwrap();
        self.posted.push(Posted { selector, memory, min_free, is_cancelled: false });
    }

    /// Posts the remaining sends in order, as far as they are accepted.
    fn send(&mut self, messenger: &mut Tested, to: PeerId) {
        while let Some(Sent { label, message, level, is_split }) = self.sent.get(self.sends_posted) {
            let (first, second) = message.split_at(message.len() / 2);
            let parts = [Part::of(first), Part::of(second)];
            let parts = if *is_split { &parts[..] } else { &[Part::of(message)][..] };
            let options = SendOptions { level: *level, ..SendOptions::default() };
            // SAFETY: messages keep their addresses until the end.
            match unsafe { messenger.send(to, *label, parts, options) } {
                Ok(()) => self.sends_posted += 1,
                Err(PostError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn cancel(&mut self, messenger: &mut Tested, generator: &mut fastrand::Rng) {
        if let Some(last) = self.posted.len().checked_sub(1) {
            let receive = generator.usize(last.saturating_sub(5)..=last);
            // A multi-receive may have messages already, which the model does not split.
            if self.posted[receive].min_free.is_none() {
                self.posted[receive].is_cancelled |= messenger.cancel(receive as u64);
            }
        }
    }

    /// Compares the messages received from `sent` with the rule.
    fn check(&mut self, sent: &[Sent]) {
        let (matched, unmatched) = model(sent, &self.posted);
        assert_eq!(unmatched, 0, "receives for all messages were posted");
        let (reported, expected): (usize, usize) =
            (self.received.values().map(Vec::len).sum(), matched.values().map(Vec::len).sum());
        assert_eq!(reported, expected);
        for (receive, messages) in matched {
            let mut reported = self.received.remove(&receive).expect("the receive is completed");
            // Eager messages may overtake rendezvous ones.
            reported.sort_unstable_by_key(|(offset, length, _, label)| (*offset, *length, label.tag, label.data));
            let mut expected = messages;
            expected.sort_unstable_by_key(|(number, offset)| {
                let Sent { label, message, .. } = &sent[*number];
                (*offset, message.len(), label.tag, label.data)
            });
            for ((number, offset), reported) in expected.iter().zip(reported) {
                let Sent { label, message, .. } = &sent[*number];
                let memory = &self.posted[receive].memory[*offset..];
                let kept = message.len().min(memory.len());
                assert_eq!(reported.3, *label);
                assert_eq!((reported.0, reported.1, reported.2), (*offset, message.len(), kept < message.len()));
                assert!(memory[..kept] == message[..kept], "receive {receive} has message {number}");
            }
        }
    }
}

fn random_selector(generator: &mut fastrand::Rng, peer: PeerId) -> Selector {
    let source = generator.bool().then_some(peer);
    if generator.u8(..6) == 0 {
        return Selector::Untagged(source);
    }
    let ignore = [0, 0, 0, 1, u64::MAX][generator.usize(..5)];
    Selector::Tagged(Pattern { source, tag: generator.u64(..4), ignore })
}

fn run(mut pair: [Tested; 2], seed: u64) {
    let mut generator = fastrand::Rng::with_seed(seed);
    let peers = add_peers(&mut pair);
    let mut sides = [Side::default(), Side::default()];
    for step in 0..STEPS {
        let at = generator.usize(..2);
        match generator.u8(..10) {
            0..4 => {
                let tag = (generator.u8(..6) > 0).then(|| generator.u64(..4));
                let label = Label { tag, data: generator.bool().then_some(step as u64) };
                let message = bytes(LENGTHS[generator.usize(..LENGTHS.len())], generator.u64(..));
                let level = [CompletionLevel::Inject, CompletionLevel::Transmit, CompletionLevel::Delivery]
                    [generator.usize(..3)];
                sides[at].sent.push(Sent { label, message, level, is_split: generator.bool() });
                sides[at].send(&mut pair[at], peers[at]);
            }
            4..8 => {
                let selector = random_selector(&mut generator, peers[at]);
                let room = LENGTHS[generator.usize(..LENGTHS.len())] + generator.usize(..2);
                let min_free = (generator.u8(..4) == 0 && room > 100).then(|| generator.usize(1..100));
                sides[at].post(&mut pair[at], selector, room, min_free);
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
    // Receives for all messages without one.
    for at in 0..2 {
        let sent = sides[1 - at].sent.clone();
        while model(&sent, &sides[at].posted).1 > 0 {
            let selector = if sides[at].posted.len() % 2 == 0 { any_tagged() } else { Selector::Untagged(None) };
            sides[at].post(&mut pair[at], selector, 30_000, None);
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

/// Small bounds, so that all are reached: with two eager messages more than that unexpected, peers must use rendezvous.
fn config(generator: &mut fastrand::Rng) -> Config {
    Config {
        eager_bytes: 4000,
        unexpected_bytes: [5_000, 50_000, 1 << 20][generator.usize(..3)],
        rendezvous_chunk_frames: generator.usize(1..8),
        ..Config::default()
    }
}

/// Two messages with one tag, and two receives.
fn check_two_of_a_tag(got: [usize; 2]) {
    let sent = [1, 2].map(|seed| Sent {
        label: tagged(1),
        message: bytes(10, seed),
        level: CompletionLevel::Inject,
        is_split: false,
    });
    let memory = got.map(|number| sent[number].message.clone());
    let posted = |memory| Posted { selector: any_tagged(), memory, min_free: None, is_cancelled: false };
    let received = (0..2).map(|receive| (receive, vec![(0, 10, false, tagged(1))])).collect();
    let mut side = Side { posted: memory.map(posted).into(), received, ..Side::default() };
    side.check(&sent);
}

#[test]
fn the_checker_accepts_the_right_order() {
    check_two_of_a_tag([0, 1]);
}

#[test]
#[should_panic(expected = "receive 0 has message 0")]
fn the_checker_rejects_a_wrong_order() {
    check_two_of_a_tag([1, 1]);
}

#[test]
fn messages_match_in_mpi_order_on_a_faulty_wire() {
    for seed in 0..150 {
        println!("seed {seed}");
        let faults = Faults { loss: 0.01, duplication: 0.01, reordering: 0.02, ..Faults::default() };
        let faults = if seed % 3 == 0 { Faults::default() } else { faults };
        run(wire(config(&mut fastrand::Rng::with_seed(seed)), &ConnectionConfig::default(), faults, seed), seed);
    }
}

#[test]
fn messages_match_in_mpi_order_on_one_host() {
    for seed in 0..150 {
        println!("seed {seed}");
        run(host(config(&mut fastrand::Rng::with_seed(seed))), seed);
    }
}
