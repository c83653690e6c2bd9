// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replays every target's corpus and seeded mutations of it: a short form of `tools/fuzz.sh` without coverage guidance. A
//! failure prints its input, to be added to `corpus/TARGET/` once it is understood.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use barewire_fuzz::{TARGETS, target};
use fastrand::Rng;

const SEED: u64 = 0x1EC5_8022;
const MUTATIONS: usize = 20_000;
/// For targets that open endpoints or pipes.
const MUTATIONS_SLOW: usize = 2_000;
/// Bound of each corpus, since it is in the repository (below 1 MB together).
const CORPUS_BYTES_MAX: usize = 200_000;

#[test]
fn decode_survives() {
    survives("decode");
}

#[test]
fn identity_survives() {
    survives("identity");
}

#[test]
fn extension_survives() {
    survives("extension");
}

#[test]
fn station_survives() {
    survives("station");
}

#[test]
fn pair_survives() {
    survives("pair");
}

#[test]
fn message_survives() {
    survives("message");
}

#[test]
fn names_survives() {
    survives("names");
}

#[test]
fn broker_survives() {
    survives("broker");
}

#[test]
fn carriers_survives() {
    survives("carriers");
}

#[test]
fn messenger_survives() {
    survives("messenger");
}

#[test]
fn pipe_survives() {
    survives("pipe");
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let mut folders: Vec<_> = fs::read_dir(corpus_folder())
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
        .collect();
    folders.sort();
    let mut names: Vec<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    names.sort();
    assert_eq!(folders, names);
}

/// Replays the corpus, then mutations of it, reproducible by the seed.
fn survives(name: &str) {
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "no corpus of {name}");
    assert!(corpus.iter().map(Vec::len).sum::<usize>() <= CORPUS_BYTES_MAX, "minimise the corpus of {name}");
    let mutations = if ["messenger", "pipe"].contains(&name) { MUTATIONS_SLOW } else { MUTATIONS };
    println!("{name}: {} inputs, {mutations} mutations, seed {SEED:#x}", corpus.len());
    corpus.iter().for_each(|input| run(name, input));
    let mut random = Rng::with_seed(SEED);
    for _ in 0..mutations {
        run(name, &mutated(&corpus, &mut random));
    }
}

fn run(name: &str, input: &[u8]) {
    let target = target(name).expect("a target");
    if catch_unwind(|| target(input)).is_err() {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("{name} fails with (hex) {hex}");
    }
}

fn mutated(corpus: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut input = corpus[random.usize(..corpus.len())].clone();
    for _ in 0..random.usize(1..5) {
        let at = random.usize(..=input.len());
        match random.u8(..6) {
            0 => input.truncate(at),
            1 => input.insert(at, random.u8(..)),
            2 => {
                let other = &corpus[random.usize(..corpus.len())];
                input.truncate(at);
                input.extend(&other[random.usize(..=other.len())..]);
            }
            3 if at < input.len() => drop(input.remove(at)),
            4 if at < input.len() => input[at] ^= 1 << random.u8(..8),
            _ if at < input.len() => input[at] = random.u8(..),
            _ => input.push(random.u8(..)),
        }
    }
    input
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = fs::read_dir(corpus_folder().join(name))
        .expect("a folder for each target")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("an input")).collect()
}

fn corpus_folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))
}
