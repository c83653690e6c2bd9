// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames and local peers without the token, and peers that violate the protocol, are counted and change nothing.

use std::time::Duration;

use barewire_endpoint::{Address, Config, Ending, Framing, JobToken, Port};
use barewire_link::{Link, Outgoing};
use barewire_llc::{ConnectionConfig, ConnectionEvent, ConnectionHandle, Peer, StationConfig, StationEvent};
use barewire_shm::{Pipe, PipeConfig, connect};

use crate::common::*;

const KEY: u64 = 0x0123_4567_89ab_cdef;
const WRONG: JobToken = JobToken::new(KEY ^ 1);

/// SABME, DISC, UA, DM, FRMR, RR, RNR, REJ, I, UI, XID, TEST, AC0, AC1; polls and finals.
const CONTROLS: [&[u8]; 14] = [
    &[0x7f],
    &[0x53],
    &[0x73],
    &[0x1f],
    &[0x97, 0, 0, 0, 0, 0],
    &[0x01, 0x01],
    &[0x05, 0x01],
    &[0x09, 0x01],
    &[0x00, 0x01],
    &[0x13],
    &[0xbf, 0x81, 0x0f, 0x7e],
    &[0xf3],
    &[0x77],
    &[0xf7],
];

/// A frame between two endpoints; `information` follows the control field, and `behind` follows the PDU.
fn frame(from: Address, to: Address, response: u8, control: &[u8], information: &[u8], behind: &[u8]) -> Vec<u8> {
    let llc = [&[to.sap.byte(), from.sap.byte() | response][..], control, information].concat();
    let length = (llc.len() as u16).to_be_bytes();
    [&to.mac[..], &from.mac, &length, &llc, behind].concat()
}

/// The same from a sender that knows all but the token: with a valid check, this mark, and the rest of the extension.
fn checked_frame(from: Address, to: Address, response: u8, control: &[u8], mark: u64) -> Vec<u8> {
    let head = [&[to.sap.byte(), from.sap.byte() | response][..], control].concat();
    let rest: &[u8] = match control[0] & 3 {
        0 | 2 => &[0, 0, 3, 0, 0, 0, 1, 7],
        1 => &[0; 17],
        _ if [0x6f, 0x63].contains(&(control[0] & !0x10)) => &[3, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2],
        _ => &[],
    };
    let is_information = control[0] & 1 == 0;
    let is_behind = !(is_information || control[0] & !0x10 == 3 || control[0] & 0x6f == 0x67 && response == 0);
    let (first, more) = head.split_at(if is_information { 4 } else { 3 });
    let mut register = [0xff; 4];
    register.iter_mut().zip(first).for_each(|(byte, first)| *byte ^= first);
    let register = u64::from(u32::from_le_bytes(register));
    let mut digest = crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32Iscsi, register);
    [&to.mac[..], &from.mac, more, &mark.to_be_bytes(), rest].into_iter().for_each(|piece| digest.update(piece));
    let extension = [&(digest.finalize() as u32).to_be_bytes()[..], &mark.to_be_bytes(), rest].concat();
    match is_behind {
        true => frame(from, to, response, control, &[], &extension),
        false => frame(from, to, response, control, &extension, &[]),
    }
}

fn inject(link: &mut impl Link, frame: &[u8]) {
    link.send(&[Outgoing { header: frame, payload: &[], label: 0 }]).unwrap();
}

#[test]
fn the_token_is_not_shown() {
    let shown = format!("{:?}", config(0x20));
    assert!(shown.contains("JobToken(…)"), "{shown}");
    for part in ["81985529216486895", "0x01234567", "123456789abcdef", "35, 69, 103"] {
        assert!(!shown.to_lowercase().contains(part), "{shown}");
    }
}

/// A station without the token cannot end or disturb a channel, even under the peer's address.
#[test]
fn frames_without_the_token_change_nothing() {
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), config(0x20));
    let mut b = side_at(&segment, new_mac(), config(0x24));
    let (to_b, from_a) = open_channel(&mut a, &mut b);
    run_for(&mut [&mut a, &mut b], Duration::from_millis(5));
    let mut attacker = segment.link(new_mac(), 0x28, MTU);
    let (mut injected, mut marked) = (0, 0);
    let sent = a.endpoint.link().frames_sent();
    for control in CONTROLS {
        for response in [0, 1] {
            for (information, behind) in [(&[][..], &[][..]), (&[7; 12], &[7; 12]), (&[0; 40], &[0; 40])] {
                inject(&mut attacker, &frame(b.address(), a.address(), response, control, information, behind));
                injected += 1;
            }
            // A poll or a DISC for an unknown connection is answered with its own mark.
            let is_answered = control == [0x53] || control[0] & 3 != 3 && control[1] & 1 == 1;
            for mark in [0, KEY, KEY ^ 1, u64::MAX] {
                if !is_answered {
                    inject(&mut attacker, &checked_frame(b.address(), a.address(), response, control, mark));
                    marked += 1;
                }
            }
        }
    }
    until(&mut [&mut a], "all are counted", |sides| {
        let counters = sides[0].endpoint.counters().unwrap();
        counters.damaged == injected && counters.unauthenticated > 0 && counters.unauthenticated <= marked
    });
    assert_eq!(a.endpoint.link().frames_sent(), sent, "no frame is answered");
    assert!(a.received.is_empty() && a.ended.is_empty());
    // The channel is not affected.
    a.endpoint.send(to_b, &[], b"still", 1).unwrap();
    b.endpoint.send(from_a, &[], b"there", 1).unwrap();
    until(&mut [&mut a, &mut b], "they arrive", |sides| sides.iter().all(|side| side.received.len() == 1));
    let counters = a.endpoint.counters().unwrap();
    assert_eq!((counters.malformed, counters.repeated, counters.duplicate), (0, 0, 0), "{counters:?}");
}

/// Sends more requests than there is room for channels.
#[test]
fn a_flood_of_connection_requests_with_a_wrong_token_leaves_no_state() {
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), Config { channels: 2, ..config(0x20) });
    let mut attacker = segment.link(new_mac(), 0x28, MTU);
    let sent = a.endpoint.link().frames_sent();
    for number in 0..5000_u16 {
        let [x, y] = number.to_be_bytes();
        let from = Address::new([6, 0, 0, 0, x, y], sap((number as u8 & 0x7e) + 2));
        inject(&mut attacker, &checked_frame(from, a.address(), 0, &[0x7f], KEY ^ 1));
        if number % 500 == 499 {
            until(&mut [&mut a], "they are counted", |sides| {
                sides[0].endpoint.counters().unwrap().unauthenticated == u64::from(number) + 1
            });
        }
    }
    assert_eq!(a.endpoint.link().frames_sent(), sent);
    assert!(a.opened.is_empty() && a.ended.is_empty());
    for byte in [0x30, 0x34] {
        open_channel(&mut side_at(&segment, new_mac(), config(byte)), &mut a);
    }
}

/// With the token, but with an invalid source address, or truncated.
#[test]
fn frames_with_invalid_addresses_or_lengths_change_nothing() {
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), config(0x20));
    let mut attacker = segment.link(new_mac(), 0x28, MTU);
    let good = Address::new(new_mac(), sap(0x24));
    for control in CONTROLS {
        let mut frame = checked_frame(good, a.address(), 0, control, KEY);
        // From the null SAP, and from a group address.
        frame[15] = 0;
        inject(&mut attacker, &frame);
        frame[6] |= 1;
        inject(&mut attacker, &frame);
        frame[15] = 0x24;
        inject(&mut attacker, &frame);
        // Shorter than its length field, and not LLC.
        frame[6] &= !1;
        frame[12..14].copy_from_slice(&1000_u16.to_be_bytes());
        inject(&mut attacker, &frame);
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        inject(&mut attacker, &frame);
    }
    run_for(&mut [&mut a], Duration::from_millis(10));
    assert!(a.opened.is_empty() && a.ended.is_empty() && a.received.is_empty());
    assert_eq!(a.endpoint.counters().unwrap().foreign, 2 * CONTROLS.len() as u64);
}

/// An endpoint without a token accepts any peer, but one with a token does not accept it.
#[test]
fn an_endpoint_without_the_token_gets_no_channel_to_one_with_it() {
    let segment = Segment::default();
    for framing in [Framing::default(), Framing { token: Some(WRONG), ..Framing::default() }] {
        for is_local in [false, true] {
            let mac = new_mac();
            let mut a = side_at(&segment, mac, config(0x20));
            let peer_mac = if is_local { mac } else { new_mac() };
            let mut b = side_at(&segment, peer_mac, Config { framing, ..impatient(0x24) });
            let to_a = b.connect(a.address());
            let _ = b.endpoint.send(to_a, &[], b"message", 1);
            until(&mut [&mut a, &mut b], "it ends", |sides| !sides[1].ended.is_empty());
            assert!(a.opened.is_empty() && a.received.is_empty() && a.ended.is_empty());
            assert!(a.endpoint.counters().unwrap().unauthenticated > 0);
        }
    }
}

/// A station of the job that sends arbitrary fragments.
struct RawPeer {
    port: Port<SegmentLink>,
    handle: ConnectionHandle,
    ended: bool,
}

impl RawPeer {
    fn connect(segment: &Segment, a: &mut Side) -> Self {
        let (mac, own) = (new_mac(), sap(0x30));
        let connection = ConnectionConfig { is_extended: true, ..ConnectionConfig::default() };
        let config = StationConfig { connection, key: KEY, hash_seed: 7, ..StationConfig::default() };
        let mut port = Port::new(segment.link(mac, 0x30, MTU), &config, 16, framing().encapsulation, None).unwrap();
        port.station.activate(own);
        let peer = Peer { local: own, mac: a.address().mac, remote: a.address().sap };
        let now = port.now();
        let handle = port.station.connect(peer, KEY, now).unwrap();
        let mut peer = Self { port, handle, ended: false };
        let mut connected = false;
        until(&mut [a], "it connects", |_| {
            connected |= peer.poll();
            connected
        });
        peer
    }

    fn poll(&mut self) -> bool {
        let mut connected = false;
        self.port.update_time();
        self.port.receive(|_| false).unwrap();
        while let Some(event) = self.port.station.poll_event() {
            match event {
                StationEvent::Connection(_, ConnectionEvent::Connected) => connected = true,
                StationEvent::Connection(_, ConnectionEvent::Acknowledged(slot) | ConnectionEvent::Dropped(slot)) => {
                    self.port.slots.free(slot);
                }
                StationEvent::Connection(_, ConnectionEvent::Disconnected(_)) => self.ended = true,
                _ => {}
            }
        }
        self.port.transmit().unwrap();
        connected
    }

    fn send_fragment(&mut self, fragment: &[u8]) {
        let slot = self.port.slots.fill(fragment, &[]).unwrap();
        let now = self.port.now();
        self.port.station.send(self.handle, slot, now).unwrap();
    }
}

/// Sequences of fragments of which the last is malformed.
const MALFORMED: [&[&[u8]]; 10] = [
    &[&[]],
    &[&[0x01]],
    &[&[0x03, 0, 0]],
    &[&[0x00, 1, 2]],
    &[&[0x02, 1, 2]],
    &[&[0x03, 0, 0, 0, 9, 1]],
    &[&[0x01, 0, 0, 0, 9]],
    &[&[0x01, 0, 0, 0, 9, 1], &[0x01, 0, 0, 0, 9, 1]],
    &[&[0x01, 0, 0, 0, 3, 1], &[0x02, 1, 2, 3]],
    &[&[0x01, 0xff, 0xff, 0xff, 0xff, 1], &[0x00]],
];

#[test]
fn a_peer_with_malformed_fragments_loses_its_channel_and_others_do_not() {
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), config(0x20));
    let mut b = side_at(&segment, new_mac(), config(0x24));
    let (_, from_b) = open_channel(&mut a, &mut b);
    for (number, fragments) in (1..).zip(MALFORMED) {
        let mut bad = RawPeer::connect(&segment, &mut a);
        let (channel, peer) = *a.opened.last().unwrap();
        // A valid message first.
        bad.send_fragment(&[0x03, 0, 0, 0, 2, b'o', b'k']);
        for fragment in fragments {
            bad.send_fragment(fragment);
        }
        a.endpoint.send(channel, &[], b"message", 100).unwrap();
        b.endpoint.send(from_b, &[], b"meanwhile", number).unwrap();
        until(&mut [&mut a, &mut b], "it ends", |sides| {
            bad.poll();
            !sides[0].ended.is_empty() && bad.ended && sides[1].outcomes.contains_key(&number)
        });
        assert_eq!(a.ended.pop().unwrap(), (channel, peer, Ending::Violation), "{fragments:?}");
        assert!(a.outcomes.remove(&100).is_some());
        assert_eq!(a.from(channel), [b"ok"]);
        assert_eq!(a.endpoint.counters().unwrap().malformed, number);
    }
    assert!(b.all_sent(1..11) && b.ended.is_empty());
    // Incomplete messages hold no buffer: the inbox has four.
    for context in 100..108 {
        b.lend(from_b, &[], pattern(context, 10_000), context).unwrap();
    }
    until(&mut [&mut a, &mut b], "long ones arrive", |sides| sides[1].all_sent(100..108));
}

/// Connects without an endpoint.
fn connect_as(hello: &[u8], at: Address) -> Pipe {
    let digits: String = at.to_bytes()[..7].iter().map(|byte| format!("{byte:02x}")).collect();
    connect(format!("barewire-endpoint/{digits}").as_bytes(), hello, &PipeConfig::default())
        .unwrap()
        .expect("its listener is open")
}

#[test]
fn local_peers_without_the_token_or_of_another_host_get_no_channel() {
    let mut a = side_at(&Segment::default(), new_mac(), config(0x20));
    let at = a.address();
    let own = Address { sap: sap(0x30), ..at }.to_bytes();
    let elsewhere = Address { mac: new_mac(), ..at }.to_bytes();
    let mut group = own;
    group[6] |= 1;
    let hellos = [
        vec![],
        own[..6].to_vec(),
        own.to_vec(),
        [&own[..], &(KEY ^ 1).to_be_bytes()].concat(),
        [&own[..], &KEY.to_be_bytes(), &[0]].concat(),
        [&own[..], &KEY.to_be_bytes()[..7]].concat(),
        [&elsewhere[..], &KEY.to_be_bytes()].concat(),
        [&group[..], &KEY.to_be_bytes()].concat(),
    ];
    let mut pipes: Vec<Pipe> = hellos.iter().map(|hello| connect_as(hello, at)).collect();
    for pipe in &mut pipes {
        pipe.send([&[0, 3, 0, 0, 0, 2, b'n', b'o']]);
    }
    until(&mut [&mut a], "all are closed", |_| pipes.iter_mut().all(Pipe::is_gone));
    assert_eq!(a.endpoint.counters().unwrap().unauthenticated, hellos.len() as u64);
    assert!(a.opened.is_empty() && a.received.is_empty());
}

#[test]
fn a_local_peer_with_malformed_fragments_loses_its_channel_and_others_do_not() {
    let (mut a, mut b) = pair(true);
    let (_, from_b) = open_channel(&mut a, &mut b);
    let at = a.address();
    let hello = [&Address { sap: sap(0x30), ..at }.to_bytes()[..], &KEY.to_be_bytes()].concat();
    let fragments = MALFORMED.map(|fragments| fragments.iter().map(|part| [&[0], *part].concat()).collect());
    // And messages that are no fragment: empty, or of an unknown kind.
    let malformed: [Vec<Vec<u8>>; 3] = [vec![vec![]], vec![vec![2, 3, 0, 0, 0, 0]], vec![vec![0xff]]];
    for (number, messages) in (1..).zip(fragments.into_iter().chain(malformed)) {
        let mut bad = connect_as(&hello, at);
        assert!(bad.send([&[0, 3, 0, 0, 0, 2, b'o', b'k']]));
        for message in &messages {
            assert!(bad.send([message]));
        }
        b.endpoint.send(from_b, &[], b"meanwhile", number).unwrap();
        until(&mut [&mut a, &mut b], "it ends", |sides| !sides[0].ended.is_empty() && bad.is_gone());
        let (channel, _, ending) = a.ended.pop().unwrap();
        assert_eq!((ending, &a.from(channel)[..]), (Ending::Violation, &[&b"ok"[..]][..]), "{messages:?}");
        assert_eq!(a.endpoint.counters().unwrap().malformed, number);
    }
    until(&mut [&mut a, &mut b], "the other channel continues", |sides| sides[1].all_sent(1..14));
    assert!(b.ended.is_empty());
}
