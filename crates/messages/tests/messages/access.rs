// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Remote writes, reads and atomic operations, on a wire, on one host, and within one process.

use std::time::{Duration, Instant};

use barewire_link::Faults;
use barewire_llc::ConnectionConfig;
use barewire_messages::{
    Access, AtomicOperation as Op, AtomicParts, AtomicType as Type, Completion, Config, Failure, Operation, Outcome,
    Part, PeerId, PostError, Refusal, RemoteAddress, RemoteWrite, SendOptions,
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

/// Registers memory, which the tests do not access while peers do.
fn register(messenger: &mut Tested, memory: &mut [u8], access: Access, key: u64) {
    // SAFETY: as above.
    unsafe { messenger.register(&[Part::into(memory)], access, Some(key)) }.unwrap();
}

/// Posts an access, retrying while resources are short.
fn post(all: &mut [Tested], mut access: impl FnMut(&mut Tested) -> Result<(), PostError>) {
    drive(all, |all| match access(&mut all[0]) {
        Ok(()) => true,
        Err(PostError::Full) => false,
        Err(error) => panic!("{error}"),
    });
}

fn write(all: &mut [Tested], to: PeerId, at: RemoteAddress, parts: &[Part], data: Option<u64>, context: u64) {
    // SAFETY: the tests keep the data until the write completes.
    post(all, |messenger| unsafe { messenger.write(to, at, parts, data, options(context)) });
}

fn read(all: &mut [Tested], from: PeerId, at: RemoteAddress, parts: &[Part], context: u64) {
    // SAFETY: the tests do not access the memory until the read completes.
    post(all, |messenger| unsafe { messenger.read(from, at, parts, options(context)) });
}

/// Splits memory into parts of random lengths.
fn in_parts<'a>(memory: &'a mut [u8], longest: usize, generator: &mut fastrand::Rng) -> Vec<Part> {
    let (mut parts, mut rest): (_, &'a mut [u8]) = (Vec::new(), memory);
    while !rest.is_empty() {
        let (part, others) = rest.split_at_mut(generator.usize(0..=longest).min(rest.len()));
        parts.push(Part::into(part));
        rest = others;
    }
    parts
}

/// Proves that writes go where they should and nowhere else, and that reads return the same data, for all lengths and
/// numbers of parts on either side.
#[test]
fn memory_is_written_and_read_in_all_lengths() {
    let config = Config { write_chunk_bytes: 300_000, ..Config::default() };
    let lossy = Faults { loss: 0.01, duplication: 0.01, reordering: 0.02, ..Faults::default() };
    let lossy = ("lossy wire", wire(config, &ConnectionConfig::default(), lossy, 7));
    for (carrier, mut pair) in carriers(config).into_iter().chain([lossy]) {
        let [to, _] = add_peers(&mut pair);
        let mut generator = fastrand::Rng::with_seed(1);
        let frame = pair[0].endpoint().copied_max() - 25;
        for length in [0, 1, 8, frame - 20, frame, frame + 1, 5000, 300_001, 1_000_000] {
            for longest in [usize::MAX / 2, 1 + length / 3, 1 + length / 50] {
                let (mut message, guard) = (bytes(length, 1), bytes(length + 20, 2));
                let (mut memory, mut back) = (guard.clone(), vec![0; length]);
                let parts = in_parts(&mut memory, longest.max(length / 7), &mut generator);
                // SAFETY: `memory` is not accessed until it is deregistered.
                let key = unsafe { pair[1].register(&parts, Access::ALL, None) }.unwrap();
                let at = RemoteAddress { key, offset: 10 };
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
fn write_data_reaches_the_target_and_both_sides_count() {
    for (_, mut pair) in carriers(Config { inject_bytes: Config::INJECT_BYTES, ..Config::default() }) {
        let [to, from] = add_peers(&mut pair);
        let mut memory = vec![0; 100_000];
        register(&mut pair[1], &mut memory, Access::ALL, 3);
        let at = RemoteAddress { key: 3, offset: 0 };
        for length in [0, 10, 100_000] {
            let message = bytes(length, 1);
            write(&mut pair, to, at, &[Part::of(&message)], Some(length as u64), 1);
            assert_eq!(completion(&mut pair, 0), done(1, Operation::Write));
            let reported = RemoteWrite { source: from, data: length as u64, length: length as u64 };
            assert_eq!(
                completion(&mut pair, 1),
                Completion { context: 0, note: 0, outcome: Outcome::Written(reported) }
            );
        }
        let mut long = bytes(pair[0].inject_write_max(), 2);
        assert!(long.len() > 2 * pair[0].endpoint().copied_max());
        post(&mut pair, |messenger| messenger.inject_write(to, at, &long, Some(8)));
        let sent = long.clone();
        long.fill(0);
        assert!(matches!(completion(&mut pair, 1).outcome, Outcome::Written(RemoteWrite { data: 8, .. })));
        assert!(memory[..sent.len()] == sent);
        post(&mut pair, |messenger| messenger.inject_write(to, at, b"short", Some(9)));
        assert!(matches!(completion(&mut pair, 1).outcome, Outcome::Written(RemoteWrite { data: 9, length: 5, .. })));
        let mut back = [0; 5];
        read(&mut pair, to, at, &[Part::into(&mut back)], 2);
        assert_eq!((completion(&mut pair, 0), &back), (done(2, Operation::Read), b"short"));
        drive(&mut pair, |pair| pair[0].counts().written == 5);
        let (here, there) = (pair[0].counts(), pair[1].counts());
        assert_eq!((here.read, there.written_by_peers, there.read_by_peers), (1, 5, 1));
        assert_eq!((pair[0].poll(), pair[1].poll()), (None, None), "an injected write has no completion");
    }
}

/// Proves that refused accesses touch nothing, report the reason, and affect nothing else.
#[test]
fn accesses_without_a_matching_registration_are_refused() {
    for (_, mut pair) in carriers(Config::default()) {
        let [to, _] = add_peers(&mut pair);
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
        for (key, offset, write_refusal, read_refusal) in cases {
            let at = RemoteAddress { key, offset };
            write(&mut pair, to, at, &[Part::of(&message)], Some(1), 1);
            assert_eq!(completion(&mut pair, 0), refused(1, Operation::Write, to, write_refusal));
            if read_refusal != Refusal::Range || offset > 0 {
                read(&mut pair, to, at, &[Part::into(&mut back)], 2);
                assert_eq!(completion(&mut pair, 0), refused(2, Operation::Read, to, read_refusal));
            }
            let (operand, mut result) = (1u64.to_ne_bytes(), [0; 8]);
            let parts =
                AtomicParts { operand: &[Part::of(&operand)], compare: &[], result: &[Part::into(&mut result)] };
            let at = RemoteAddress { key, offset: offset.max(49_993) };
            // SAFETY: the memory lives until the end of the loop.
            post(&mut pair, |messenger| unsafe { messenger.atomic(to, at, Op::Sum, Type::U64, parts, options(3)) });
            let Outcome::Failed { operation: Operation::FetchAtomic, failure, .. } = completion(&mut pair, 0).outcome
            else {
                panic!("expected a refusal");
            };
            assert!(matches!(failure, Failure::Refused { .. }));
        }
        // The connection is unaffected.
        write(&mut pair, to, RemoteAddress { key: 2, offset: 10_000 }, &[Part::of(&message)], None, 1);
        assert_eq!(completion(&mut pair, 0), done(1, Operation::Write));
        assert!(memory.iter().all(|byte| *byte == 7) && hidden[..10_000] == [8; 10_000] && hidden[10_000..] == message);
        assert_eq!(pair[1].poll(), None, "a refused write's data is not reported");
        assert_eq!(pair[0].counts().writes_failed, 7);
    }
}

/// Proves that writes and messages take effect in the order in which they were posted, even when a write has many short
/// parts and waits for room.
#[test]
fn messages_stay_behind_earlier_writes() {
    for (carrier, mut pair) in carriers(Config::default()) {
        let [to, from] = add_peers(&mut pair);
        let mut generator = fastrand::Rng::with_seed(5);
        for round in 0..50 {
            let mut memory = vec![0; 60_000];
            register(&mut pair[1], &mut memory, Access::ALL, 1);
            let (mut first, second) = (bytes(60_000, round), bytes(30_000, round + 1));
            let parts = in_parts(&mut first, 3000, &mut generator);
            let mut note = [0; 4];
            receive(&mut pair[1], exactly(from, 1), &mut note, 9);
            write(&mut pair, to, RemoteAddress { key: 1, offset: 0 }, &parts, None, 1);
            write(&mut pair, to, RemoteAddress { key: 1, offset: 30_000 }, &[Part::of(&second)], None, 2);
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

/// Proves, with random accesses to overlapping ranges, that the memory ends as if each access had been applied when it
/// was posted, and that reads and fetches return the data of that moment.
#[test]
fn random_accesses_are_sequentially_consistent() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut generator = fastrand::Rng::with_seed(seed);
        let config = Config { write_chunk_bytes: 3000, ..Config::default() };
        let faults = Faults { loss: 0.01, duplication: 0.01, reordering: 0.02, ..Faults::default() };
        let mut pair = match seed % 2 {
            0 => host(config),
            _ => wire(config, &ConnectionConfig::default(), faults, seed),
        };
        let [to, _] = add_peers(&mut pair);
        let (mut memory, mut model) = (vec![0; 20_000], vec![0; 20_000]);
        register(&mut pair[1], &mut memory, Access::ALL, 1);
        // Buffers that are needed until the end, and expected and fetched data.
        let [mut kept, mut expected, mut found] = [const { Vec::<Vec<u8>>::new() }; 3];
        for context in 0..150 {
            let length = [1, 8, 100, 1400, 5000, 10_000][generator.usize(..6)];
            let offset = generator.usize(..=model.len() - length);
            let at = RemoteAddress { key: 1, offset: offset as u64 };
            let range = offset..offset + length;
            let mut message = bytes(length, generator.u64(..));
            expected.push(Vec::new());
            found.push(Vec::new());
            match generator.u8(..4) {
                0 if length <= pair[0].atomic_max() => {
                    expected[context] = model[range.clone()].to_vec();
                    found[context] = vec![0; length];
                    let result = [Part::into(&mut found[context])];
                    let parts = AtomicParts { operand: &[Part::of(&message)], compare: &[], result: &result };
                    // SAFETY: `kept` and `found` live until the end.
                    post(&mut pair, |messenger| unsafe {
                        messenger.atomic(to, at, Op::Sum, Type::U8, parts, options(context as u64))
                    });
                    model[range].iter_mut().zip(&message).for_each(|(old, new)| *old = old.wrapping_add(*new));
                }
                1 => {
                    // A later write may overtake the read's data, so wait for it.
                    expected[context] = model[range].to_vec();
                    found[context] = vec![0; length];
                    let parts = [Part::into(&mut found[context])];
                    read(&mut pair, to, at, &parts, context as u64);
                    while completion(&mut pair, 0).context != context as u64 {}
                }
                _ => {
                    let parts = in_parts(&mut message, 1 + length / 3, &mut generator);
                    write(&mut pair, to, at, &parts, None, context as u64);
                    model[range].copy_from_slice(&message);
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

/// Proves that each operation on each type has the same result through a peer as through this process itself, and
/// returns the previous values.
#[test]
fn atomic_operations_match_local_ones() {
    for (carrier, mut pair) in carriers(Config::default()) {
        let [to, _] = add_peers(&mut pair);
        let limit = pair[0].atomic_max();
        for datatype in Type::all() {
            for operation in Op::all().iter().filter(|operation| datatype.supports(**operation)) {
                for (count, fetches) in
                    [(1, true), (1, *operation == Op::Read), (limit / datatype.bytes(), true), (0, true)]
                {
                    let length = count * datatype.bytes();
                    // Small integers in any type: their sums and products are exact.
                    let numbers = |seed| {
                        let mut generator = fastrand::Rng::with_seed(seed);
                        (0..length).map(|_| generator.u8(..) & 0x40).collect::<Vec<u8>>()
                    };
                    let (mut memory, operand, compare) = (numbers(1), numbers(2), numbers(3));
                    let (before, mut result) = (memory.clone(), vec![0; length]);
                    let parts_of = |bytes: &[u8], is_used| if is_used { vec![Part::of(bytes)] } else { vec![] };
                    let operand = parts_of(&operand, *operation != Op::Read);
                    let compare = parts_of(&compare, operation.compares());
                    let into = if fetches { vec![Part::into(&mut result)] } else { vec![] };
                    let parts = AtomicParts { operand: &operand, compare: &compare, result: &into };
                    // In the peer's memory, and in this side's own, where the carrier can reach itself.
                    let mut changed = Vec::new();
                    for at_peer in [true, carrier == "wire"] {
                        let address = pair[usize::from(at_peer)].address();
                        let target = pair[0].peer(address);
                        memory.copy_from_slice(&before);
                        register(&mut pair[usize::from(at_peer)], &mut memory, Access::ALL, 1);
                        let at = RemoteAddress { key: 1, offset: 0 };
                        // SAFETY: the memory lives until the end of the loop.
                        post(&mut pair, |messenger| unsafe {
                            messenger.atomic(target, at, *operation, *datatype, parts, options(1))
                        });
                        let kind = if fetches { Operation::FetchAtomic } else { Operation::Atomic };
                        assert_eq!(completion(&mut pair, 0), done(1, kind), "{operation:?} {datatype:?}");
                        pair[usize::from(at_peer)].deregister(1).unwrap();
                        changed.push(memory.clone());
                        assert_eq!(target == to, at_peer);
                    }
                    assert!(changed[0] == changed[1] && (!fetches || result == before), "{operation:?} {datatype:?}");
                    assert!(*operation != Op::Write || count < 10 || memory != before);
                }
            }
        }
        let parts = AtomicParts { operand: &[Part::of(&[0; 12])], compare: &[], result: &[] };
        for (operation, datatype) in [(Op::BitOr, Type::F32), (Op::Sum, Type::F64), (Op::CompareSwap, Type::I32)] {
            // SAFETY: refused, so not accessed.
            let refused = unsafe {
                pair[0].atomic(to, RemoteAddress { key: 1, offset: 0 }, operation, datatype, parts, options(1))
            };
            assert_eq!(refused, Err(PostError::UnsupportedAtomic));
        }
    }
}

/// Proves that no update is lost when several peers update one element: each counts, and each fetches a different
/// value.
#[test]
fn concurrent_atomics_lose_no_update() {
    const EACH: u64 = 300;
    let on = new_host();
    let mut all: Vec<Tested> = (0..4).map(|n| on_host(on, 0x20 + 4 * n, Config::default())).collect();
    let mut memory = vec![0; 16];
    register(&mut all[3], &mut memory, Access::ALL, 1);
    let address = all[3].address();
    let target = all.each_peer(address);
    let (increment, mut found) = (1u64.to_ne_bytes(), vec![[0; 8]; 3 * EACH as usize]);
    let (mut posted, mut completed) = ([0; 3], 0);
    drive(&mut all, |all| {
        for (number, posted) in posted.iter_mut().enumerate() {
            while *posted < EACH {
                let result = Part::into(&mut found[number * EACH as usize + *posted as usize]);
                let parts = AtomicParts { operand: &[Part::of(&increment)], compare: &[], result: &[result] };
                let at = RemoteAddress { key: 1, offset: 4 };
                // SAFETY: `increment` and `found` live until the end.
                let result =
                    unsafe { all[number].atomic(target[number], at, Op::Sum, Type::U64, parts, options(*posted)) };
                if result.is_err() {
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
        self.iter_mut().map(|messenger| messenger.peer(address)).collect()
    }
}

/// Proves that deregistered memory is not accessed, whatever is in flight: data read from it is what it held before,
/// and unfinished accesses fail.
#[test]
fn deregistered_memory_is_not_accessed() {
    for (carrier, seed) in ["wire", "host"].into_iter().flat_map(|carrier| (0..60).map(move |seed| (carrier, seed))) {
        println!("{carrier}, seed {seed}");
        let faults = Faults { loss: 0.02, ..Faults::default() };
        let config = Config { write_chunk_bytes: 100_000, ..Config::default() };
        let mut pair =
            if carrier == "wire" { wire(config, &ConnectionConfig::default(), faults, seed) } else { host(config) };
        let [to, _] = add_peers(&mut pair);
        let mut generator = fastrand::Rng::with_seed(seed);
        // More than the endpoint gets at once, and much more.
        let length = [500_000, 3_000_000][generator.usize(..2)];
        let (original, message) = (bytes(length, 1), bytes(length, 2));
        let (mut readable, mut writable) = (original.clone(), vec![0; length]);
        register(&mut pair[1], &mut readable, Access::ALL, 1);
        register(&mut pair[1], &mut writable, Access::ALL, 2);
        let mut back = vec![0; length];
        read(&mut pair, to, RemoteAddress { key: 1, offset: 0 }, &[Part::into(&mut back)], 1);
        write(&mut pair, to, RemoteAddress { key: 2, offset: 0 }, &[Part::of(&message)], None, 2);
        for _ in 0..generator.usize(..300) {
            let which = generator.usize(..2);
            pair[which].progress().unwrap();
        }
        pair[1].deregister(1).unwrap();
        pair[1].deregister(2).unwrap();
        assert_eq!(pair[1].deregister(2), Err(PostError::NoSuchKey(2)));
        // Marks data that is read from now on.
        readable.fill(0xee);
        let now = writable.clone();
        let mut outcomes = [completion(&mut pair, 0), completion(&mut pair, 0)];
        outcomes.sort_unstable_by_key(|completion| completion.context);
        idle(&mut pair);
        assert!(writable == now);
        let is_done = |operation, context: usize| {
            let completion = outcomes[context - 1];
            let is_done = completion == done(context as u64, operation);
            let is_refused = [Refusal::Key, Refusal::Deregistered]
                .iter()
                .any(|refusal| completion == refused(context as u64, operation, to, *refusal));
            assert!(is_done || is_refused, "{completion:?}");
            is_done
        };
        if is_done(Operation::Read, 1) {
            assert!(back == original);
        }
        assert!(!is_done(Operation::Write, 2) || writable == message);
        let garbage = back.iter().zip(&original).filter(|(got, original)| got != original && **got == 0xee).count();
        // Nothing was read after the deregistration.
        assert!(garbage < 100, "{garbage} bytes");
    }
}

/// Proves that reads beyond a peer's limit are refused at the initiator, and that two sides that read more from each
/// other than all queues hold both make progress.
#[test]
fn mutual_reads_make_progress() {
    for (_, mut pair) in carriers(Config::default()) {
        let peers = add_peers(&mut pair);
        let mut memory = [bytes(20_000, 1), bytes(20_000, 2)];
        for (messenger, memory) in pair.iter_mut().zip(&mut memory) {
            register(messenger, memory, Access::ALL, 1);
        }
        let mut back = vec![vec![0; 20_000]; 2000];
        let (mut posted, mut completed, mut was_full) = ([0; 2], [0; 2], [false; 2]);
        drive(&mut pair, |pair| {
            for (side, messenger) in pair.iter_mut().enumerate() {
                while posted[side] < 1000 {
                    let into = [Part::into(&mut back[side * 1000 + posted[side]])];
                    let at = RemoteAddress { key: 1, offset: 0 };
                    // SAFETY: `back` is not accessed until all reads complete.
                    match unsafe { messenger.read(peers[side], at, &into, options(0)) } {
                        Ok(()) => posted[side] += 1,
                        Err(error) => {
                            assert_eq!(error, PostError::Full);
                            was_full[side] = true;
                            break;
                        }
                    }
                }
                while let Some(completion) = messenger.poll() {
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

/// Proves that the answer to a read does not wait for the acknowledgement of earlier answers, if all fit the window.
#[test]
fn reads_of_a_few_frames_do_not_wait_for_acknowledgements() {
    const DELAY: Duration = Duration::from_millis(300);
    let connection = ConnectionConfig {
        acknowledge_every: 31,
        acknowledge_delay: DELAY,
        t1_min: DELAY * 2,
        t1_initial: DELAY * 2,
        ..ConnectionConfig::default()
    };
    let mut pair = wire(Config::default(), &connection, Faults::default(), 1);
    let [peer, _] = add_peers(&mut pair);
    let mut memory = bytes(2048, 1);
    register(&mut pair[1], &mut memory, Access::ALL, 1);
    let mut back = vec![vec![0; 2048]; 12];
    // Connected by the first one.
    for round in [0..1, 1..12] {
        let (began, mut left) = (Instant::now(), round.len());
        for number in round {
            read(&mut pair, peer, RemoteAddress { key: 1, offset: 0 }, &[Part::into(&mut back[number])], 0);
        }
        drive(&mut pair, |pair| {
            while let Some(completion) = pair[0].poll() {
                assert_eq!(completion, done(0, Operation::Read));
                left -= 1;
            }
            left == 0
        });
        assert!(began.elapsed() < DELAY, "{:?}", began.elapsed());
    }
    assert!(back.iter().all(|back| *back == memory));
}

/// Proves that a read is answered while a long message to the same peer is on its way.
#[test]
fn a_read_does_not_wait_for_a_long_message() {
    for (carrier, mut pair) in carriers(Config::default()) {
        let [to_b, to_a] = add_peers(&mut pair);
        let (long, mut received, mut memory, mut back) =
            (bytes(32 << 20, 1), vec![0; 32 << 20], bytes(8, 2), vec![0; 8]);
        register(&mut pair[1], &mut memory, Access::ALL, 1);
        receive(&mut pair[0], exactly(to_b, 1), &mut received, 1);
        send(&mut pair, 1, to_a, tagged(1), &long, options(2));
        let (mut completed, mut rounds) = (Vec::new(), 0);
        drive(&mut pair, |_| {
            rounds += 1;
            rounds > 20
        });
        read(&mut pair, to_b, RemoteAddress { key: 1, offset: 0 }, &[Part::into(&mut back)], 3);
        drive(&mut pair, |pair| {
            completed.extend(std::iter::from_fn(|| pair[0].poll()).map(|completion| completion.context));
            completed.len() == 2
        });
        assert_eq!(completed, [3, 1], "{carrier}");
        assert_eq!((back, received), (memory, long));
    }
}

/// Proves that accesses to a dead peer fail with that reason.
#[test]
fn accesses_to_a_dead_peer_fail() {
    for is_local in [false, true] {
        let mut pair = if is_local {
            host(Config::default())
        } else {
            wire(Config::default(), &impatient(), Faults::default(), 1)
        };
        let [to, _] = add_peers(&mut pair);
        let (message, mut back, mut memory) = (bytes(300_000, 1), vec![0; 300_000], vec![0; 300_000]);
        register(&mut pair[1], &mut memory, Access::ALL, 1);
        let at = RemoteAddress { key: 1, offset: 0 };
        let operand = [0; 8];
        let parts = AtomicParts { operand: &[Part::of(&operand)], ..AtomicParts::default() };
        write(&mut pair, to, at, &[Part::of(&message[..8])], None, 0);
        completion(&mut pair, 0);
        // SAFETY: all memory outlives the messengers.
        unsafe {
            pair[0].read(to, at, &[Part::into(&mut back)], options(1)).unwrap();
            pair[0].write(to, at, &[Part::of(&message)], None, options(2)).unwrap();
            pair[0].atomic(to, at, Op::Sum, Type::I64, parts, options(3)).unwrap();
        }
        let [alive, dead] = pair;
        let mut alive = [alive];
        // On a wire it stays silent; on one host its process ends.
        let _silent = (!is_local).then_some(dead);
        let mut contexts = [0; 3].map(|_: i32| {
            let Completion { context, outcome: Outcome::Failed { failure, .. }, .. } = completion(&mut alive, 0) else {
                panic!("expected a failure");
            };
            assert!(matches!(failure, Failure::Peer { peer, .. } if peer == to));
            context
        });
        contexts.sort_unstable();
        assert_eq!(contexts, [1, 2, 3]);
    }
}
