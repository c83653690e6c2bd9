// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Full queues: senders are refused until there is room, nothing is lost, no peer starves, and memory is bounded.

use std::time::Duration;

use barewire_endpoint::{
    ChannelId, Config, ConnectError, Ending, Inbox, InboxConfig, Piece, Priority, Report, SendError, Sink, Tuning,
};

use crate::common::*;

#[test]
fn a_full_send_queue_refuses_messages_and_recovers() {
    for is_local in [false, true] {
        let (segment, mac) = (Segment::default(), new_mac());
        let small = Config { send_descriptors: 4, slots: 8, ..config(0x20) };
        let mut a = side_at(&segment, mac, small);
        let mut b = side_at(&segment, if is_local { mac } else { new_mac() }, config(0x24));
        let (to_b, to_a) = open_channel(&mut a, &mut b);
        let (mut context, mut refused) = (0, 0);
        until(&mut [&mut a, &mut b], "all are sent", |sides| {
            while context < 200 {
                let body = pattern(context, if context % 3 == 0 { 60_000 } else { 500 });
                let sent = if context % 3 == 0 {
                    sides[0].lend(to_b, &[], body, context)
                } else {
                    sides[0].endpoint.send(to_b, &[], &body, context)
                };
                match sent {
                    Ok(()) => context += 1,
                    Err(error) => {
                        assert_eq!(error, SendError::Full);
                        refused += 1;
                        break;
                    }
                }
            }
            sides[0].all_sent(0..200)
        });
        until(&mut [&mut a, &mut b], "all arrive", |sides| sides[1].received.len() == 200);
        assert!(refused > 10, "{refused}, local {is_local}");
        for (context, received) in (0..).zip(b.from(to_a)) {
            assert!(received == pattern(context, if context % 3 == 0 { 60_000 } else { 500 }));
        }
    }
}

/// Later messages wait only for the part that was submitted, and for what the engine or the ring of a local peer holds.
#[test]
fn normal_messages_overtake_background_messages() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let (to_b, to_a) = open_channel(&mut a, &mut b);
        let part = a.endpoint.body_of_frames(None, 64, 0);
        // Several times what is submitted at once.
        let parts = if is_local { 64 } else { 20 };
        for context in 0..parts {
            a.lend_in_background(to_b, pattern(context, part), context).unwrap();
        }
        a.endpoint.send(to_b, &[], b"first", 100).unwrap();
        a.lend(to_b, &[], b"second".to_vec(), 101).unwrap();
        a.endpoint.post(to_b, &[], b"last", Priority::Background, Report::Acknowledged(102)).unwrap();
        until(&mut [&mut a, &mut b], "all arrive", |sides| sides[1].received.len() == parts as usize + 3);
        let received = b.from(to_a);
        let position = |text: &[u8]| received.iter().position(|received| *received == text).unwrap();
        assert!(position(b"first") < parts as usize - 5, "{} of {parts}, local {is_local}", position(b"first"));
        assert_eq!(position(b"second"), position(b"first") + 1);
        assert_eq!(position(b"last"), parts as usize + 2);
        let long = received.iter().filter(|received| received.len() == part);
        assert!(long.zip(0..).all(|(received, context)| *received == pattern(context, part)));
        until(&mut [&mut a, &mut b], "all are reported", |sides| sides[0].outcomes.len() == parts as usize + 3);
        assert!(a.nothing_is_lent());
    }
}

/// No event reports such a message, and it overtakes nothing.
#[test]
fn send_now_sends_all_or_refuses() {
    for is_local in [false, true] {
        let (mut a, mut b, to_b, to_a) = open_pair(is_local);
        assert!(!a.endpoint.send_now(to_b, &[], &vec![0; 1 << 20]));
        let (mut sent, message) = (0, |number| pattern(number, if number % 3 == 0 { 4000 } else { 500 }));
        while a.endpoint.send_now(to_b, &message(sent)[..7], &message(sent)[7..]) {
            sent += 1;
        }
        assert!(sent > 30, "{sent}");
        a.endpoint.post(to_b, &[], &message(sent), Priority::Normal, Report::Acknowledged(7)).unwrap();
        // There is room now, but a message is queued for it.
        (0..20).for_each(|_| _ = b.poll());
        assert!(!a.endpoint.send_now(to_b, &[], b"too early"));
        until(&mut [&mut a, &mut b], "all arrive", |sides| sides[1].received.len() as u64 == sent + 1);
        assert!((0..).zip(b.from(to_a)).all(|(number, received)| received == message(number)));
        until(&mut [&mut a, &mut b], "it is reported", |sides| sides[0].outcomes.contains_key(&7));
        assert_eq!(a.outcomes.len(), 1, "{:?}", a.outcomes);
    }
}

/// Also a message that is partly submitted, and those queued behind it.
#[test]
fn messages_of_all_priorities_are_reported_when_their_channel_ends() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let (to_b, _) = open_channel(&mut a, &mut b);
        let part = a.endpoint.body_of_frames(None, 64, 0);
        for context in 0..20 {
            a.lend_in_background(to_b, pattern(context, part), context).unwrap();
        }
        for context in 20..30 {
            a.endpoint.send(to_b, &[], b"behind the first part", context).unwrap();
        }
        a.poll();
        a.endpoint.abort(to_b, Ending::Violation);
        until(&mut [&mut a, &mut b], "all are reported", |sides| sides[0].outcomes.len() == 30);
        assert!(a.outcomes.values().any(|ending| *ending == Some(Ending::Violation)), "local {is_local}");
        assert!(a.nothing_is_lent() && a.endpoint.send(to_b, &[], b"", 99) == Err(SendError::Ended));
        until(&mut [&mut a, &mut b], "it ends", |sides| sides[0].ended.len() == 1);
    }
}

/// The memory of a caller that never takes events must not grow without bound.
#[test]
fn the_event_queue_is_bounded() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let (to_b, _) = open_channel(&mut a, &mut b);
        let max = Tuning::SEND_DESCRIPTORS as u64;
        let mut sent = 0;
        for _ in 0..20 * max {
            sent += u64::from(a.endpoint.send(to_b, &[], &[1; 8], sent).is_ok());
            a.endpoint.progress(&mut a.inbox).unwrap();
            b.poll();
        }
        // Messages that were outstanding when the event queue became full are reported as well.
        assert!((max..=2 * max).contains(&sent), "{sent}, local {is_local}");
        until(&mut [&mut a, &mut b], "all are sent", |sides| sides[0].all_sent(0..sent));
        assert_eq!(a.endpoint.send(to_b, &[], &[], sent), Ok(()));
    }
}

/// Without descriptors or without buffers the peer waits for as long as necessary: nothing is lost, and the peer does
/// not retransmit all the time.
#[test]
fn a_full_receive_queue_makes_the_peer_wait() {
    for is_local in [false, true] {
        for (inbox, bytes) in [
            (InboxConfig { receive_descriptors: 5, buffers: 100, buffer_bytes: 1000, ..InboxConfig::default() }, 100),
            (InboxConfig { receive_descriptors: 500, buffers: 3, buffer_bytes: 1000, ..InboxConfig::default() }, 1000),
            (
                InboxConfig { receive_descriptors: 2, buffers: 1, buffer_bytes: 100_000, ..InboxConfig::default() },
                100_000,
            ),
        ] {
            let (mut a, mut b) = pair(is_local);
            b.inbox = Inbox::new(&inbox);
            let (to_b, to_a) = open_channel(&mut a, &mut b);
            b.takes = false;
            for context in 0..40 {
                a.lend(to_b, &[], pattern(context, bytes), context).unwrap();
            }
            run_for(&mut [&mut a, &mut b], Duration::from_millis(50));
            assert!(!a.outcomes.contains_key(&39) || is_local, "all are sent, {inbox:?}");
            // Messages are taken one at a time.
            for taken in 0..10 {
                until(&mut [&mut a, &mut b], "there is one", |sides| !sides[1].inbox.is_empty());
                let message = b.inbox.receive().unwrap();
                assert_eq!((message.total, message.bytes().len()), (bytes, bytes));
                assert!(message.bytes() == pattern(taken, bytes));
                b.inbox.done(message);
            }
            b.takes = true;
            until(&mut [&mut a, &mut b], "all arrive", |sides| sides[1].received.len() == 30);
            until(&mut [&mut a, &mut b], "all are reported", |sides| sides[0].all_sent(0..40));
            for (seed, received) in (10..).zip(b.from(to_a)) {
                assert!(received == pattern(seed, bytes));
            }
            assert!(a.ended.is_empty() && b.ended.is_empty());
        }
    }
}

/// Data that the sink refused was acknowledged, so it must not be lost when the peer closes.
#[test]
fn parked_data_outlives_its_channel() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        b.inbox =
            Inbox::new(&InboxConfig { receive_descriptors: 3, buffers: 0, buffer_bytes: 0, ..InboxConfig::default() });
        let (to_b, from_a) = open_channel(&mut a, &mut b);
        b.takes = false;
        for context in 0..4 {
            a.endpoint.send(to_b, b"number", &[context as u8], context).unwrap();
        }
        until(&mut [&mut a, &mut b], "all are sent", |sides| sides[0].all_sent(0..4));
        a.endpoint.close(to_b);
        until(&mut [&mut a, &mut b], "it ends at the sender", |sides| !sides[0].ended.is_empty());
        run_for(&mut [&mut b], Duration::from_millis(50));
        assert!(b.ended.is_empty(), "local {is_local}");
        assert_eq!(b.endpoint.send(from_a, &[], &[], 1), Err(SendError::Ended));
        // The peer may reconnect meanwhile. This side reports the new channel when the previous one has ended, and
        // cannot connect itself until then.
        a.connect(b.address());
        run_for(&mut [&mut a, &mut b], Duration::from_millis(20));
        assert_eq!(b.endpoint.connect(a.address()), Err(ConnectError::Ending(a.address())));
        assert_eq!(b.opened.len(), 1, "local {is_local}");
        b.takes = true;
        until(&mut [&mut a, &mut b], "it reconnects", |sides| sides[1].opened.len() == 2);
        assert_eq!(b.ended, [(from_a, a.address(), Ending::PeerClosed)]);
        let (reconnected, _) = b.opened[1];
        assert_ne!(from_a, reconnected);
        assert_eq!(b.from(from_a), [b"number\0", b"number\x01", b"number\x02", b"number\x03"]);
        b.endpoint.send(reconnected, &[], b"still here", 2).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| !sides[0].received.is_empty());
    }
}

#[test]
fn a_message_longer_than_any_buffer_reports_its_length() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        b.inbox = Inbox::new(&InboxConfig {
            receive_descriptors: 8,
            buffers: 2,
            buffer_bytes: 1000,
            ..InboxConfig::default()
        });
        let (to_b, _) = open_channel(&mut a, &mut b);
        b.takes = false;
        a.lend(to_b, b"head", pattern(1, 50_000), 1).unwrap();
        a.lend(to_b, &[], pattern(2, 1000), 2).unwrap();
        until(&mut [&mut a, &mut b], "they arrive", |sides| sides[0].all_sent(1..3));
        run_for(&mut [&mut a, &mut b], Duration::from_millis(2));
        let (truncated, whole) = (b.inbox.receive().unwrap(), b.inbox.receive().unwrap());
        assert_eq!((truncated.total, truncated.bytes().len()), (50_004, 1000));
        assert!(truncated.bytes() == [&b"head"[..], &pattern(1, 50_000)[..996]].concat());
        assert!(whole.bytes() == pattern(2, 1000));
    }
}

/// The shortest buffer that is long enough, else the longest.
#[test]
fn buffers_are_chosen_by_length() {
    let (mut a, mut b) = pair(false);
    b.inbox =
        Inbox::new(&InboxConfig { receive_descriptors: 8, buffers: 0, buffer_bytes: 0, ..InboxConfig::default() });
    let (to_b, _) = open_channel(&mut a, &mut b);
    b.takes = false;
    for bytes in [5000, 300, 1000] {
        b.inbox.offer(vec![0; bytes].into_boxed_slice());
    }
    for (context, bytes) in (0..).zip([250, 900, 9000]) {
        a.lend(to_b, &[], pattern(context, bytes), context).unwrap();
    }
    until(&mut [&mut a, &mut b], "they arrive", |sides| sides[0].all_sent(0..3));
    for expected in [250, 900, 5000] {
        let message = b.inbox.receive().unwrap();
        assert_eq!(message.bytes().len(), expected);
        b.inbox.done(message);
    }
}

/// When a sender disappears in the middle of a message, the message's buffer becomes free.
#[test]
fn an_incomplete_message_returns_its_buffer() {
    for is_local in [false, true] {
        let (segment, mac) = (Segment::default(), new_mac());
        let mut a = side_at(&segment, if is_local { mac } else { new_mac() }, config(0x20));
        let mut b = side_at(&segment, mac, impatient(0x24));
        b.inbox = Inbox::new(&InboxConfig {
            receive_descriptors: 8,
            buffers: 1,
            buffer_bytes: 1000,
            ..InboxConfig::default()
        });
        let (to_b, from_a) = open_channel(&mut a, &mut b);
        a.lend(to_b, &[], pattern(9, 3_000_000), 9).unwrap();
        for _ in 0..3 {
            b.poll();
        }
        drop(a);
        until(&mut [&mut b], "its end is noticed", |sides| !sides[0].ended.is_empty());
        assert_eq!(b.ended[0].0, from_a);
        assert!(b.received.is_empty());
        let mut c = side_at(&segment, new_mac(), config(0x28));
        let (to_b, from_c) = open_channel(&mut c, &mut b);
        c.lend(to_b, &[], pattern(1, 800), 1).unwrap();
        until(&mut [&mut c, &mut b], "it arrives", |sides| sides[1].received.len() == 1);
        assert!(b.from(from_c) == [pattern(1, 800)]);
    }
}

/// Accepts a limited number of bytes at a time, and counts refused pieces.
struct Slow {
    bytes: usize,
    budget: usize,
    refused: usize,
}

impl Sink for Slow {
    fn piece(&mut self, _: ChannelId, piece: Piece<'_>) -> bool {
        if self.budget < piece.bytes.len() {
            self.refused += 1;
            return false;
        }
        self.budget -= piece.bytes.len();
        self.bytes += piece.bytes.len();
        true
    }

    fn datagram(&mut self, _: barewire_endpoint::Address, _: barewire_endpoint::Class, _: &[u8]) {}

    fn ended(&mut self, _: ChannelId) {}
}

/// A sink may refuse any piece, not only the first of a message; the sender then stops within its window, or the ring.
#[test]
fn a_slow_receiver_buffers_a_bounded_part_of_a_message() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let (to_b, _) = open_channel(&mut a, &mut b);
        a.lend(to_b, &[], pattern(1, 4_000_000), 1).unwrap();
        let mut slow = Slow { bytes: 0, budget: 0, refused: 0 };
        let mut rounds = 0;
        while slow.bytes < 4_000_000 {
            slow.budget = 30_000;
            for _ in 0..50 {
                a.poll();
                b.endpoint.progress(&mut slow).unwrap();
            }
            rounds += 1;
            assert!(rounds < 100_000);
            // A window of frames, or a ring, and what was received.
            let frames = a.endpoint.link().frames_sent();
            assert!(
                frames < 2 * (slow.bytes as u64 / 1400 + 63 + rounds * 10),
                "{frames} frames, {} bytes",
                slow.bytes
            );
        }
        assert!(slow.refused > 100);
        let began = std::time::Instant::now();
        while !a.outcomes.contains_key(&1) {
            a.poll();
            b.endpoint.progress(&mut slow).unwrap();
            assert!(began.elapsed() < TIMEOUT);
        }
    }
}

/// Channels with huge messages occupy all slots; another channel's short messages, and the huge ones, still progress.
#[test]
fn huge_messages_do_not_starve_short_ones() {
    for is_local in [false, true] {
        let (segment, mac) = (Segment::default(), new_mac());
        let mut hub = side_at(&segment, mac, config(0x20));
        let mut peers: Vec<Side> = (0..6_u8)
            .map(|number| side_at(&segment, if is_local { mac } else { new_mac() }, config(0x40 + 2 * number)))
            .collect();
        let channels: Vec<ChannelId> = peers.iter_mut().map(|peer| open_channel(&mut hub, peer).0).collect();
        for (context, channel) in (1000..).zip(&channels[..5]) {
            hub.lend(*channel, &[], pattern(context, 4_000_000), context).unwrap();
        }
        // Short messages to the last peer, each sent as soon as the previous one is reported.
        let (mut short, mut is_sent) = (0, false);
        let mut sides: Vec<&mut Side> = std::iter::once(&mut hub).chain(&mut peers).collect();
        until(&mut sides, "short messages continue", |sides| {
            if !is_sent {
                is_sent = match sides[0].endpoint.send(channels[5], &[], &[1; 100], short) {
                    Ok(()) => true,
                    Err(error) => {
                        assert_eq!(error, SendError::Full);
                        false
                    }
                };
            } else if sides[0].outcomes.contains_key(&short) {
                (short, is_sent) = (short + 1, false);
            }
            let huge = (1000..1005).filter(|context| sides[0].outcomes.contains_key(context)).count();
            // Acknowledges without delay: in one thread the clock is not read often.
            let Side { endpoint, inbox, .. } = &mut *sides[6];
            endpoint.settle(inbox).unwrap();
            assert!(huge == 0 || short >= 8, "{short} short ones while {huge} huge ones were sent, local {is_local}");
            huge == 5
        });
    }
}

/// One hub exchanges messages with remote and local peers at the same time.
#[test]
fn many_peers_exchange_messages_with_one() {
    let (segment, mac) = (Segment::default(), new_mac());
    let mut hub = side_at(&segment, mac, config(0x02));
    let mut peers: Vec<Side> = (0..60_u8)
        .map(|number| {
            let mac = if number % 2 == 0 { mac } else { new_mac() };
            side_at(&segment, mac, Config { slots: 16, ..config(0x04 + 4 * number) })
        })
        .collect();
    let channels: Vec<ChannelId> = peers.iter_mut().map(|peer| open_channel(&mut hub, peer).0).collect();
    for (number, peer) in (0..).zip(&mut peers) {
        let (to_hub, _) = peer.opened[0];
        for context in 0..10 {
            peer.lend(to_hub, &[number], pattern(u64::from(number), 5000), context).unwrap();
        }
    }
    let mut next = 0;
    let mut sides: Vec<&mut Side> = std::iter::once(&mut hub).chain(&mut peers).collect();
    until(&mut sides, "all arrive", |sides| {
        while next < 600 {
            let sent = sides[0].endpoint.send(channels[next % 60], &[(next % 60) as u8], b"from the hub", next as u64);
            if sent.is_err() {
                break;
            }
            next += 1;
        }
        sides[0].received.len() == 600
            && sides[0].all_sent(0..600)
            && sides[1..].iter().all(|side| side.all_sent(0..10))
    });
    for (number, (peer, channel)) in (0..).zip(peers.iter().zip(&channels)) {
        let (to_hub, _) = peer.opened[0];
        assert_eq!(peer.from(to_hub), vec![[&[number][..], b"from the hub"].concat(); 10]);
        assert!(hub.from(*channel) == vec![[&[number][..], &pattern(u64::from(number), 5000)].concat(); 10]);
    }
}
