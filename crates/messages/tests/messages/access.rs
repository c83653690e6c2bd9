// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Peers' memory written, read and changed, on a wire, on one host, and by a process of its own.

use barewire_link::Faults;
use barewire_llc::ConnectionConfig;
use barewire_messages::{
    Access, AtomicOperation as Op, AtomicParts, AtomicType as Type, Completion, Config, Failure, Operation, Outcome,
    Part, PeerId, PostError, Refusal, Remote, RemoteWrite, SendOptions,
};

use crate::common::*;

fn options(context: u64) -> SendOptions {
    SendOptions { context, ..SendOptions::default() }
}

fn done(context: u64, operation: Operation) -> Completion {
    Completion { context, note: 0, outcome: Outcome::Done(operation) }
}

fn refused(context: u64, operation: Operation, peer: PeerId, refusal: Refusal) -> Completion {
    let failure = Failure::Refused { peer, refusal };
    Completion { context, note: 0, outcome: Outcome::Failed { operation, failure, message: None } }
}

/// Registers memory, which the tests leave alone while peers access it.
fn register(one: &mut Tested, memory: &mut [u8], access: Access, key: u64) {
    // SAFETY: as above.
    unsafe { one.register(&[Part::into(memory)], access, Some(key)) }.unwrap();
}

/// Posts an access, however often it takes.
fn post(all: &mut [Tested], mut access: impl FnMut(&mut Tested) -> Result<(), PostError>) {
    drive(all, |all| match access(&mut all[0]) {
        Ok(()) => true,
        Err(PostError::Full) => false,
        Err(error) => panic!("{error}"),
    });
}

fn write(all: &mut [Tested], to: PeerId, at: Remote, parts: &[Part], data: Option<u64>, context: u64) {
    // SAFETY: the tests keep what they write until it is completed.
    post(all, |one| unsafe { one.write(to, at, parts, data, options(context)) });
}

fn read(all: &mut [Tested], from: PeerId, at: Remote, parts: &[Part], context: u64) {
    // SAFETY: the tests do not look at the memory before it is completed.
    post(all, |one| unsafe { one.read(from, at, parts, options(context)) });
}

/// Memory in parts of random lengths.
fn in_parts<'a>(memory: &'a mut [u8], longest: usize, generator: &mut fastrand::Rng) -> Vec<Part> {
    let (mut parts, mut rest): (_, &'a mut [u8]) = (Vec::new(), memory);
    while !rest.is_empty() {
        let (part, others) = rest.split_at_mut(generator.usize(0..=longest).min(rest.len()));
        parts.push(Part::into(part));
        rest = others;
    }
    parts
}

/// Proves that what is written lies where it should and nowhere else, and that reading it gives the same, whatever the
/// length and in however many parts it lies on either side.
#[test]
fn memory_is_written_and_read_in_all_lengths() {
    let config = Config { cut_bytes: 300_000, ..Config::default() };
    let lossy = Faults { loss: 0.01, duplication: 0.01, reordering: 0.02, ..Faults::default() };
    let lossy = ("lossy wire", wire(config, &ConnectionConfig::default(), lossy, 7));
    for (carrier, mut pair) in carriers(config).into_iter().chain([lossy]) {
        let [to, _] = introduce(&mut pair);
        let mut generator = fastrand::Rng::with_seed(1);
        let frame = pair[0].endpoint().copied_max() - 25;
        for length in [0, 1, 8, frame - 20, frame, frame + 1, 5000, 300_001, 1_000_000] {
            for longest in [usize::MAX / 2, 1 + length / 3, 1 + length / 50] {
                let (mut message, guard) = (bytes(length, 1), bytes(length + 20, 2));
                let (mut memory, mut back) = (guard.clone(), vec![0; length]);
                let parts = in_parts(&mut memory, longest.max(length / 7), &mut generator);
                // SAFETY: nobody looks at `memory` before it is deregistered.
                let key = unsafe { pair[1].register(&parts, Access::ALL, None) }.unwrap();
                let at = Remote { key, offset: 10 };
                let parts = in_parts(&mut message, longest, &mut generator);
                write(&mut pair, to, at, &parts, None, 1);
                assert_eq!(completion(&mut pair, 0), done(1, Operation::Write), "{carrier} {length}");
                let parts = in_parts(&mut back, longest, &mut generator);
                read(&mut pair, to, at, &parts, 2);
                assert_eq!(completion(&mut pair, 0), done(2, Operation::Read), "{carrier} {length}");
                pair[1].deregister(key).unwrap();
                assert!(back == message && memory[10..10 + length] == message, "{carrier} {length} {longest}");
                assert!(memory[..10] == guard[..10] && memory[10 + length..] == guard[10 + length..]);
            }
        }
    }
}

#[test]
fn data_is_told_to_whose_memory_it_is_and_both_sides_count() {
    for (_, mut pair) in carriers(Config { inject_bytes: Config::INJECT_BYTES, ..Config::default() }) {
        let [to, from] = introduce(&mut pair);
        let mut memory = vec![0; 100_000];
        register(&mut pair[1], &mut memory, Access::ALL, 3);
        let at = Remote { key: 3, offset: 0 };
        for length in [0, 10, 100_000] {
            let message = bytes(length, 1);
            write(&mut pair, to, at, &[Part::of(&message)], Some(length as u64), 1);
            assert_eq!(completion(&mut pair, 0), done(1, Operation::Write));
            let told = RemoteWrite { source: from, data: length as u64, length: length as u64 };
            assert_eq!(completion(&mut pair, 1), Completion { context: 0, note: 0, outcome: Outcome::Written(told) });
        }
        let mut long = bytes(pair[0].inject_write_max(), 2);
        assert!(long.len() > 2 * pair[0].endpoint().copied_max());
        post(&mut pair, |one| one.inject_write(to, at, &long, Some(8)));
        let sent = long.clone();
        long.fill(0);
        assert!(matches!(completion(&mut pair, 1).outcome, Outcome::Written(RemoteWrite { data: 8, .. })));
        assert!(memory[..sent.len()] == sent);
        post(&mut pair, |one| one.inject_write(to, at, b"short", Some(9)));
        assert!(matches!(completion(&mut pair, 1).outcome, Outcome::Written(RemoteWrite { data: 9, length: 5, .. })));
        let mut back = [0; 5];
        read(&mut pair, to, at, &[Part::into(&mut back)], 2);
        assert_eq!((completion(&mut pair, 0), &back), (done(2, Operation::Read), b"short"));
        drive(&mut pair, |pair| pair[0].counts().written == 5);
        let (here, there) = (pair[0].counts(), pair[1].counts());
        assert_eq!((here.read, there.written_by_peers, there.read_by_peers), (1, 5, 1));
        assert_eq!((pair[0].poll(), pair[1].poll()), (None, None), "an injected write tells nothing");
    }
}

/// Proves that what is refused touches nothing, says why, and leaves everything else as it was.
#[test]
fn what_is_not_registered_like_that_is_refused() {
    for (_, mut pair) in carriers(Config::default()) {
        let [to, _] = introduce(&mut pair);
        let (mut memory, mut hidden) = (vec![7; 50_000], vec![8; 50_000]);
        register(&mut pair[1], &mut memory, Access { read: true, write: false }, 1);
        register(&mut pair[1], &mut hidden, Access { read: false, write: true }, 2);
        let (message, mut back) = (bytes(40_000, 1), vec![0; 40_000]);
        let cases = [
            (3, 0, Refusal::Key, Refusal::Key),
            (1, 0, Refusal::Access, Refusal::Range),
            (2, 20_000, Refusal::Range, Refusal::Access),
            (2, u64::MAX, Refusal::Range, Refusal::Access),
            (2, u64::MAX - 20_000, Refusal::Range, Refusal::Access),
            (1, 20_000, Refusal::Access, Refusal::Range),
            (1, u64::MAX - 100, Refusal::Access, Refusal::Range),
        ];
        for (key, offset, of_write, of_read) in cases {
            let at = Remote { key, offset };
            write(&mut pair, to, at, &[Part::of(&message)], Some(1), 1);
            assert_eq!(completion(&mut pair, 0), refused(1, Operation::Write, to, of_write));
            if of_read != Refusal::Range || offset > 0 {
                read(&mut pair, to, at, &[Part::into(&mut back)], 2);
                assert_eq!(completion(&mut pair, 0), refused(2, Operation::Read, to, of_read));
            }
            let (operand, mut result) = (1u64.to_ne_bytes(), [0; 8]);
            let parts =
                AtomicParts { operand: &[Part::of(&operand)], compare: &[], result: &[Part::into(&mut result)] };
            let at = Remote { key, offset: offset.max(49_993) };
            // SAFETY: the memory stays to the end of the turn.
            post(&mut pair, |one| unsafe { one.atomic(to, at, Op::Sum, Type::U64, parts, options(3)) });
            let Outcome::Failed { operation: Operation::FetchAtomic, failure, .. } = completion(&mut pair, 0).outcome
            else {
                panic!("it is refused");
            };
            assert!(matches!(failure, Failure::Refused { .. }));
        }
        // The connection is as good as ever.
        write(&mut pair, to, Remote { key: 2, offset: 10_000 }, &[Part::of(&message)], None, 1);
        assert_eq!(completion(&mut pair, 0), done(1, Operation::Write));
        assert!(memory.iter().all(|byte| *byte == 7) && hidden[..10_000] == [8; 10_000] && hidden[10_000..] == message);
        assert_eq!(pair[1].poll(), None, "a refused write's data is told to nobody");
        assert_eq!(pair[0].counts().writes_failed, 7);
    }
}

/// Proves that writes and messages take effect in the order in which they were posted, also where a write is in many
/// short parts and has to wait for room.
#[test]
fn a_message_comes_after_the_writes_before_it() {
    let config = Config { descriptors_per_peer: 3, ..Config::default() };
    for (carrier, mut pair) in carriers(config) {
        let [to, from] = introduce(&mut pair);
        let mut generator = fastrand::Rng::with_seed(5);
        for round in 0..50 {
            let mut memory = vec![0; 60_000];
            register(&mut pair[1], &mut memory, Access::ALL, 1);
            let (mut first, second) = (bytes(60_000, round), bytes(30_000, round + 1));
            let parts = in_parts(&mut first, 3000, &mut generator);
            let mut note = [0; 4];
            receive(&mut pair[1], exactly(from, 1), &mut note, 9);
            write(&mut pair, to, Remote { key: 1, offset: 0 }, &parts, None, 1);
            write(&mut pair, to, Remote { key: 1, offset: 30_000 }, &[Part::of(&second)], None, 2);
            send(&mut pair, 0, to, tagged(1), b"done", options(3));
            drive(&mut pair, |pair| pair[1].poll().is_some());
            pair[1].deregister(1).unwrap();
            assert!(memory[..30_000] == first[..30_000] && memory[30_000..] == second, "{carrier} {round}");
            let mut contexts = [0; 3].map(|_: i32| completion(&mut pair, 0).context);
            contexts.sort_unstable();
            assert_eq!(contexts, [1, 2, 3]);
        }
    }
}

/// Proves, with random accesses to overlapping places, that memory ends as if each had been done when it was posted, and
/// that whoever fetches or reads finds what was there at that moment.
#[test]
fn random_accesses_do_what_they_would_one_after_the_other() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut generator = fastrand::Rng::with_seed(seed);
        let config =
            Config { cut_bytes: 3000, descriptors_per_peer: [2, 64][generator.usize(..2)], ..Config::default() };
        let faults = Faults { loss: 0.01, duplication: 0.01, reordering: 0.02, ..Faults::default() };
        let mut pair = match seed % 2 {
            0 => host(config),
            _ => wire(config, &ConnectionConfig::default(), faults, seed),
        };
        let [to, _] = introduce(&mut pair);
        let (mut memory, mut model) = (vec![0; 20_000], vec![0; 20_000]);
        register(&mut pair[1], &mut memory, Access::ALL, 1);
        // What each needs until the end, and what it is to find.
        let [mut kept, mut expected, mut found] = [const { Vec::<Vec<u8>>::new() }; 3];
        for context in 0..150 {
            let length = [1, 8, 100, 1400, 5000, 10_000][generator.usize(..6)];
            let offset = generator.usize(..=model.len() - length);
            let at = Remote { key: 1, offset: offset as u64 };
            let place = offset..offset + length;
            let mut message = bytes(length, generator.u64(..));
            expected.push(Vec::new());
            found.push(Vec::new());
            match generator.u8(..4) {
                0 if length <= pair[0].atomic_max() => {
                    expected[context] = model[place.clone()].to_vec();
                    found[context] = vec![0; length];
                    let result = [Part::into(&mut found[context])];
                    let parts = AtomicParts { operand: &[Part::of(&message)], compare: &[], result: &result };
                    // SAFETY: `kept` and `found` stay to the end.
                    post(&mut pair, |one| unsafe {
                        one.atomic(to, at, Op::Sum, Type::U8, parts, options(context as u64))
                    });
                    model[place].iter_mut().zip(&message).for_each(|(old, new)| *old = old.wrapping_add(*new));
                }
                1 => {
                    // What is written behind it may be read already, so it is waited for.
                    expected[context] = model[place].to_vec();
                    found[context] = vec![0; length];
                    let parts = [Part::into(&mut found[context])];
                    read(&mut pair, to, at, &parts, context as u64);
                    while completion(&mut pair, 0).context != context as u64 {}
                }
                _ => {
                    let parts = in_parts(&mut message, 1 + length / 3, &mut generator);
                    write(&mut pair, to, at, &parts, None, context as u64);
                    model[place].copy_from_slice(&message);
                }
            }
            kept.push(message);
        }
        drive(&mut pair, |pair| {
            while pair[0].poll().is_some() {}
            let counts = pair[0].counts();
            counts.written + counts.read == 150
        });
        pair[1].deregister(1).unwrap();
        assert!(memory == model && found == expected);
    }
}

/// Proves that every operation on every type gives what it gives here, and returns what was there before.
#[test]
fn elements_are_changed_atomically() {
    for (carrier, mut pair) in carriers(Config::default()) {
        let [to, _] = introduce(&mut pair);
        let most = pair[0].atomic_max();
        for of in Type::all() {
            for operation in Op::all().iter().filter(|operation| of.has(**operation)) {
                for (count, fetches) in [(1, true), (1, *operation == Op::Read), (most / of.bytes(), true), (0, true)] {
                    let length = count * of.bytes();
                    // Small whole numbers of any type: their sums and products are exact.
                    let numbers = |seed| {
                        let mut generator = fastrand::Rng::with_seed(seed);
                        (0..length).map(|_| generator.u8(..) & 0x40).collect::<Vec<u8>>()
                    };
                    let (mut memory, operand, compare) = (numbers(1), numbers(2), numbers(3));
                    let (before, mut result) = (memory.clone(), vec![0; length]);
                    let parts_of = |bytes: &[u8], is_there| if is_there { vec![Part::of(bytes)] } else { vec![] };
                    let operand = parts_of(&operand, *operation != Op::Read);
                    let compare = parts_of(&compare, operation.compares());
                    let into = if fetches { vec![Part::into(&mut result)] } else { vec![] };
                    let parts = AtomicParts { operand: &operand, compare: &compare, result: &into };
                    // At the peer's memory; on a host also at this side's own, by way of itself.
                    let mut changed = Vec::new();
                    for at_peer in [true, carrier == "wire"] {
                        let address = pair[usize::from(at_peer)].address();
                        let whose = pair[0].peer(address);
                        memory.copy_from_slice(&before);
                        register(&mut pair[usize::from(at_peer)], &mut memory, Access::ALL, 1);
                        let at = Remote { key: 1, offset: 0 };
                        // SAFETY: the memory stays to the end of the turn.
                        post(&mut pair, |one| unsafe { one.atomic(whose, at, *operation, *of, parts, options(1)) });
                        let what = if fetches { Operation::FetchAtomic } else { Operation::Atomic };
                        assert_eq!(completion(&mut pair, 0), done(1, what), "{operation:?} {of:?}");
                        pair[usize::from(at_peer)].deregister(1).unwrap();
                        changed.push(memory.clone());
                        assert_eq!(whose == to, at_peer);
                    }
                    assert!(changed[0] == changed[1] && (!fetches || result == before), "{operation:?} {of:?}");
                    assert!(*operation != Op::Write || count < 10 || memory != before);
                }
            }
        }
        let parts = AtomicParts { operand: &[Part::of(&[0; 12])], compare: &[], result: &[] };
        for (operation, of) in [(Op::BitOr, Type::F32), (Op::Sum, Type::F64), (Op::CompareSwap, Type::I32)] {
            // SAFETY: it is refused.
            let refused = unsafe { pair[0].atomic(to, Remote { key: 1, offset: 0 }, operation, of, parts, options(1)) };
            assert_eq!(refused, Err(PostError::NoSuchAtomic));
        }
    }
}

/// Proves that no change is lost where several peers change the same element: each counts, and each takes a number of
/// its own by fetching.
#[test]
fn changes_of_several_peers_are_all_there() {
    const EACH: u64 = 300;
    let on = new_host();
    let mut all: Vec<Tested> = (0..4).map(|n| on_host(on, 0x20 + 4 * n, Config::default())).collect();
    let mut memory = vec![0; 16];
    register(&mut all[3], &mut memory, Access::ALL, 1);
    let address = all[3].address();
    let target = all.each_peer(address);
    let (one, mut found) = (1u64.to_ne_bytes(), vec![[0; 8]; 3 * EACH as usize]);
    let (mut posted, mut completed) = ([0; 3], 0);
    drive(&mut all, |all| {
        for (number, posted) in posted.iter_mut().enumerate() {
            while *posted < EACH {
                let result = Part::into(&mut found[number * EACH as usize + *posted as usize]);
                let parts = AtomicParts { operand: &[Part::of(&one)], compare: &[], result: &[result] };
                let at = Remote { key: 1, offset: 4 };
                // SAFETY: `one` and `found` stay to the end.
                let asked =
                    unsafe { all[number].atomic(target[number], at, Op::Sum, Type::U64, parts, options(*posted)) };
                if asked.is_err() {
                    break;
                }
                *posted += 1;
            }
            completed += std::iter::from_fn(|| all[number].poll()).count() as u64;
        }
        completed == 3 * EACH
    });
    let mut numbers: Vec<u64> = found.into_iter().map(u64::from_ne_bytes).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..3 * EACH));
    all[3].deregister(1).unwrap();
    assert_eq!(memory[4..12], (3 * EACH).to_ne_bytes());
}

trait EachPeer {
    fn each_peer(&mut self, address: barewire_endpoint::Address) -> Vec<PeerId>;
}

impl EachPeer for Vec<Tested> {
    fn each_peer(&mut self, address: barewire_endpoint::Address) -> Vec<PeerId> {
        self.iter_mut().map(|one| one.peer(address)).collect()
    }
}

/// Proves that nothing touches memory that was taken back, however much of it is under way at any moment: what is read
/// from it afterwards is what it held before, and what is not done says so.
#[test]
fn memory_that_is_taken_back_is_left_alone() {
    for (carrier, seed) in ["wire", "host"].into_iter().flat_map(|carrier| (0..60).map(move |seed| (carrier, seed))) {
        println!("{carrier}, seed {seed}");
        let faults = Faults { loss: 0.02, ..Faults::default() };
        let config = Config { cut_bytes: 100_000, ..Config::default() };
        let mut pair =
            if carrier == "wire" { wire(config, &ConnectionConfig::default(), faults, seed) } else { host(config) };
        let [to, _] = introduce(&mut pair);
        let mut generator = fastrand::Rng::with_seed(seed);
        // More than the endpoint is given at once, and much more.
        let length = [500_000, 3_000_000][generator.usize(..2)];
        let (held, message) = (bytes(length, 1), bytes(length, 2));
        let (mut readable, mut writable) = (held.clone(), vec![0; length]);
        register(&mut pair[1], &mut readable, Access::ALL, 1);
        register(&mut pair[1], &mut writable, Access::ALL, 2);
        let mut back = vec![0; length];
        read(&mut pair, to, Remote { key: 1, offset: 0 }, &[Part::into(&mut back)], 1);
        write(&mut pair, to, Remote { key: 2, offset: 0 }, &[Part::of(&message)], None, 2);
        for _ in 0..generator.usize(..300) {
            let which = generator.usize(..2);
            pair[which].progress().unwrap();
        }
        pair[1].deregister(1).unwrap();
        pair[1].deregister(2).unwrap();
        assert_eq!(pair[1].deregister(2), Err(PostError::NoSuchKey(2)));
        // Whoever reads it now reads this.
        readable.fill(0xee);
        let now = writable.clone();
        let mut outcomes = [completion(&mut pair, 0), completion(&mut pair, 0)];
        outcomes.sort_unstable_by_key(|completion| completion.context);
        idle(&mut pair);
        assert!(writable == now);
        let end = |operation, context: usize| {
            let completion = outcomes[context - 1];
            let is_done = completion == done(context as u64, operation);
            let is_refused = [Refusal::Key, Refusal::Deregistered]
                .iter()
                .any(|refusal| completion == refused(context as u64, operation, to, *refusal));
            assert!(is_done || is_refused, "{completion:?}");
            is_done
        };
        if end(Operation::Read, 1) {
            assert!(back == held);
        }
        assert!(!end(Operation::Write, 2) || writable == message);
        let garbage = back.iter().zip(&held).filter(|(got, held)| got != held && **got == 0xee).count();
        // Nothing of what lies there now has come.
        assert!(garbage < 100, "{garbage} bytes");
    }
}

/// Proves that more reads than a peer may have under way wait at whoever asks, also if two ask each other for more than
/// all queues hold.
#[test]
fn two_that_read_from_each_other_without_end_both_get_on() {
    for (_, mut pair) in carriers(Config::default()) {
        let peers = introduce(&mut pair);
        let mut memory = [bytes(20_000, 1), bytes(20_000, 2)];
        for (one, memory) in pair.iter_mut().zip(&mut memory) {
            register(one, memory, Access::ALL, 1);
        }
        let mut back = vec![vec![0; 20_000]; 2000];
        let (mut posted, mut completed, mut was_full) = ([0; 2], [0; 2], [false; 2]);
        drive(&mut pair, |pair| {
            for (side, one) in pair.iter_mut().enumerate() {
                while posted[side] < 1000 {
                    let into = [Part::into(&mut back[side * 1000 + posted[side]])];
                    let at = Remote { key: 1, offset: 0 };
                    // SAFETY: `back` is not looked at before all is completed.
                    match unsafe { one.read(peers[side], at, &into, options(0)) } {
                        Ok(()) => posted[side] += 1,
                        Err(error) => {
                            assert_eq!(error, PostError::Full);
                            was_full[side] = true;
                            break;
                        }
                    }
                }
                while let Some(completion) = one.poll() {
                    assert_eq!(completion, done(0, Operation::Read));
                    completed[side] += 1;
                }
            }
            completed == [1000, 1000]
        });
        assert_eq!(was_full, [true; 2]);
        assert!(back[..1000].iter().all(|back| *back == memory[1]) && back[1000..].iter().all(|b| *b == memory[0]));
    }
}

/// Proves that accesses to a peer that is gone fail and say that it is.
#[test]
fn accesses_to_a_peer_that_is_gone_fail() {
    for is_local in [false, true] {
        let mut pair = if is_local {
            host(Config::default())
        } else {
            wire(Config::default(), &impatient(), Faults::default(), 1)
        };
        let [to, _] = introduce(&mut pair);
        let (message, mut back, mut memory) = (bytes(300_000, 1), vec![0; 300_000], vec![0; 300_000]);
        register(&mut pair[1], &mut memory, Access::ALL, 1);
        let at = Remote { key: 1, offset: 0 };
        let operand = [0; 8];
        let parts = AtomicParts { operand: &[Part::of(&operand)], ..AtomicParts::default() };
        write(&mut pair, to, at, &[Part::of(&message[..8])], None, 0);
        completion(&mut pair, 0);
        // SAFETY: all memory outlives the test's messengers.
        unsafe {
            pair[0].read(to, at, &[Part::into(&mut back)], options(1)).unwrap();
            pair[0].write(to, at, &[Part::of(&message)], None, options(2)).unwrap();
            pair[0].atomic(to, at, Op::Sum, Type::I64, parts, options(3)).unwrap();
        }
        let [alive, dead] = pair;
        let mut alive = [alive];
        // On a wire it is silent; on one host its process ends.
        let _silent = (!is_local).then_some(dead);
        let mut contexts = [0; 3].map(|_: i32| {
            let Completion { context, outcome: Outcome::Failed { failure, .. }, .. } = completion(&mut alive, 0) else {
                panic!("it fails");
            };
            assert!(matches!(failure, Failure::Peer { peer, .. } if peer == to));
            context
        });
        contexts.sort_unstable();
        assert_eq!(contexts, [1, 2, 3]);
    }
}
