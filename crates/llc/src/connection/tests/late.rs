// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PDUs that arrive late, after their sequence numbers were reused.

use super::*;

/// Sends `count` PDUs one way, then delivers a copy of the first. Returns the tokens delivered after that.
fn late_by(count: u32, is_extended: bool) -> (Pair, Vec<u32>) {
    let mut pair = Pair::connected(&ConnectionConfig { is_extended, ..Default::default() });
    pair.send(0, [0]);
    pair.transmit(0, 1);
    let first = pair.wires[0][0].clone();
    pair.exchange();
    pair.send_one_by_one(1..count);
    let before = pair.received[1].len();
    pair.wires[0].push_back(first);
    pair.receive(1);
    let delivered = pair.received[1].split_off(before);
    (pair, delivered)
}

#[test]
fn late_pdu_with_a_wrapped_number_is_recognised_as_duplicate() {
    for count in [64, 100, 127, 128, 129, 256, 1280, 4096, 8192] {
        let (mut pair, delivered) = late_by(count, true);
        assert_eq!((delivered, pair.ends[1].counters().received_late), (std::vec![], 1), "{count}");
        pair.transmit(1, 99);
        assert!(pair.wires[1].iter().all(|frame| frame[2] & 3 == 1), "no FRMR");
        pair.send(0, [count]);
        pair.exchange();
        assert_eq!(pair.received[1].last(), Some(&count), "the connection continues");
    }
    let (pair, delivered) = late_by(63, true);
    assert_eq!((delivered, pair.ends[1].counters().received_again), (std::vec![], 1), "a duplicate within the window");
    let (_, delivered) = late_by(128, false);
    assert_eq!(delivered, [0], "seven bits are ambiguous");
}

/// With seven bits, an acknowledgement overtaken by 64 to 127 later ones would acknowledge lost PDUs.
#[test]
fn late_acknowledgement_with_a_wrapped_number_is_stale() {
    for count in [64, 100, 127, 128, 200] {
        let mut pair = extended();
        pair.send(0, [0]);
        pair.exchange();
        pair.sleep();
        pair.transmit(1, 99);
        let late = pair.wires[1].back().expect("an RR").clone();
        pair.exchange();
        pair.send_one_by_one(1..count);
        pair.sleep();
        pair.exchange();
        pair.send(0, count..count + 60);
        pair.transmit(0, 99);
        let in_flight = pair.ends[0].outstanding();
        pair.wires[1].push_back(late);
        pair.receive(0);
        assert_eq!((pair.ends[0].outstanding(), pair.ends[0].counters().overtaken), (in_flight, 1), "{count}");
        pair.exchange();
        assert_eq!(pair.states(), [State::Normal; 2]);
    }
}

/// Proves that what was delayed until all transmitted bits of its numbers came round, in a queue of a path that was
/// down, is ignored: it is not delivered, acknowledges nothing, and is not rejected.
#[test]
fn pdus_that_are_older_than_their_numbers_are_ignored() {
    for count in [8193, 12_000, 16_384, 16_385, 16_400, 3 * 16_384 + 1] {
        let (mut pair, delivered) = late_by(count, true);
        assert_eq!(delivered, std::vec![], "{count}");
        pair.transmit(1, 99);
        assert!(pair.wires[1].iter().all(|frame| frame[2] & 3 == 1), "no FRMR");
        pair.send(0, [count]);
        pair.exchange();
        assert_eq!(pair.received[1].last(), Some(&count), "the connection continues");
    }
    for count in [8193, 12_000, 16_384 - 30, 16_384, 2 * 16_384 + 30] {
        let mut pair = extended();
        pair.send(0, [0]);
        pair.exchange();
        pair.sleep();
        pair.transmit(1, 99);
        let late = pair.wires[1].back().expect("an RR").clone();
        pair.exchange();
        pair.send_one_by_one(1..count);
        pair.sleep();
        pair.exchange();
        pair.send(0, count..count + 60);
        pair.transmit(0, 99);
        let in_flight = pair.ends[0].outstanding();
        pair.wires[1].push_back(late);
        pair.receive(0);
        assert_eq!(pair.ends[0].outstanding(), in_flight, "{count}");
        pair.exchange();
        assert_eq!(pair.states(), [State::Normal; 2]);
        assert_eq!(pair.ends[0].counters().frmr_causes, [0; 5], "{count}");
    }
}

/// Proves that the DM of a station that lost the connection is accepted, whatever the numbers of the PDU that it
/// answers.
#[test]
fn dm_ends_a_connection_after_its_numbers_have_come_round() {
    let mut pair = extended();
    pair.send_one_by_one(0..20_000);
    pair.send(0, [20_000]);
    pair.transmit(0, 99);
    let frame = pair.wires[0].pop_back().expect("an I PDU");
    let mark = &frame[4 + extension::CHECK..][..extension::MARK];
    let dm = [&[frame[0], frame[1] | 1, 0x0f], &[0; extension::CHECK][..], mark].concat();
    pair.wires[1].push_back(dm);
    pair.receive(0);
    assert_eq!(pair.states()[0], State::Adm);
}
