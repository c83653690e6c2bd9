// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names: queries and answers on the segment, and the hosts file.

use std::time::Duration;

use barewire_llc::{Instant, Pdu};
use barewire_names::bounds::{ANSWERS_MAX, ANSWERS_WINDOW, QUERIES};
use barewire_names::{Census, Hosts, Message, Responder};

use crate::input::Input;

const OWN_NAME: &str = "h1";
const PATIENCE: Duration = Duration::from_millis(400);
/// The first query's nonce, which the input can guess.
const NONCE: u32 = 0;

/// The first byte selects the rest: one message, a hosts file, or frames to a station that queries and answers.
pub fn names(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind % 3 {
        0 => message(rest),
        1 => hosts(rest),
        _ => frames(rest),
    }
}

/// Any bytes decode to a message or an error; a message encodes to the same bytes.
fn message(data: &[u8]) {
    if let Ok(message) = Message::decode(data) {
        assert_eq!(message.encode(), data);
    }
}

/// Any text parses, or the wrong line is reported; parsed hosts round-trip.
fn hosts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Hosts::parse(&text) {
        Ok(hosts) => {
            let written: String = hosts.iter().map(|(_, host)| format!("{host}\n")).collect();
            let read = Hosts::parse(&written).unwrap_or_else(|error| panic!("{written:?} is refused: {error}"));
            assert!(hosts.iter().map(|(_, host)| host).eq(read.iter().map(|(_, host)| host)));
        }
        Err(error) => assert!((1..=text.lines().count()).contains(&(error.line as usize))),
    }
}

/// Any frames: a census ends in time and finds no more stations than frames; a responder answers only queries, with its
/// own name, within its rate limit.
fn frames(data: &[u8]) {
    let mut input = Input::new(data);
    let mut now = Instant::from_nanos(0);
    let wanted = input.flag().then(|| OWN_NAME.parse().expect("a name"));
    let mut census = match &wanted {
        Some(name) => Census::of_name(Clone::clone(name), NONCE, PATIENCE, now),
        None => Census::of_all(NONCE, PATIENCE, now),
    };
    let mut responder = Responder::new(OWN_NAME.parse().expect("a name"), None);
    let (mut queries, mut received) = (0, 0);
    while !input.is_empty() {
        now = now + Duration::from_millis(u64::from(input.byte()));
        while let Some((_, query)) = census.poll_transmit(now) {
            assert!(!census.is_over(now) && Pdu::decode(&query).is_ok());
            queries += 1;
        }
        let source = [input.byte() & 3, 0, 0, 0, 0, input.byte()];
        let length = usize::from(input.byte());
        let llc = input.take(length);
        census.handle_pdu(source, llc, now);
        received += 1;
        for _ in 0..if input.flag() { ANSWERS_MAX + 1 } else { 1 } {
            let Some(answer) = responder.handle_pdu(source, llc, now) else { continue };
            let Ok(Message::Answer { name, .. }) = Message::decode(&answer[3..]) else {
                panic!("not an answer: {answer:02x?}")
            };
            assert_eq!((name.as_str(), source[0] & 1), (OWN_NAME, 0));
            assert_eq!(responder.handle_pdu(source, &answer, now), None, "an answer was answered");
        }
    }
    let found = census.found();
    assert!(queries <= QUERIES * 2 && found.len() <= received);
    assert!(found.iter().all(|station| wanted.is_none() || station.name == wanted));
    assert!(census.is_over(Instant::from_nanos(0) + PATIENCE));
    let windows = now.as_nanos() / ANSWERS_WINDOW.as_nanos() as u64 + 1;
    assert!(responder.counters().answered <= windows * u64::from(ANSWERS_MAX));
}
