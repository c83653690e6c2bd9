// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How messages are reported, and how a caller is notified of room for the next one.

use std::time::{Duration, Instant};

use barewire_endpoint::{ChannelId, Config, Ending, Event, Priority, Report};

use crate::common::*;

/// The end of a side's only channel: its reason, and whether a message was lost that no event of its own reports.
fn end_of(side: &mut Side, others: &mut [&mut Side]) -> (Ending, bool) {
    let began = Instant::now();
    loop {
        side.endpoint.progress(&mut side.inbox).unwrap();
        while let Some(event) = side.endpoint.poll_event() {
            if let Event::Ended { ending, has_lost, .. } = event {
                return (ending, has_lost);
            }
        }
        others.iter_mut().for_each(|other| _ = other.poll());
        assert!(began.elapsed() < TIMEOUT);
    }
}

/// Queues messages behind one that the carrier cannot take now: to a peer that is not driven.
fn fill(side: &mut Side, to: ChannelId) {
    let big = pattern(1, 1 << 20);
    side.endpoint.post(to, b"", &big, Priority::Normal, Report::Never).unwrap();
    assert!(!side.endpoint.post(to, b"", b"queued", Priority::Normal, Report::Never).unwrap());
}

#[test]
fn a_message_is_reported_as_it_was_posted() {
    for is_local in [false, true] {
        let (mut a, mut b, to_b, _) = open_pair(is_local);
        let copied = |context| Report::Copied { context, counts_loss: true };
        for length in [10, 5000] {
            let body = pattern(3, length);
            for (report, is_silent) in [(Report::Never, true), (Report::Loss, true), (copied(1), true)] {
                assert!(a.endpoint.post(to_b, b"head", &body, Priority::Normal, report).unwrap());
                assert_eq!(a.endpoint.poll_event().is_none(), is_silent, "{report:?}, local {is_local}");
            }
        }
        // What waits is reported later, `Copied` before the peer has all that precedes it.
        fill(&mut a, to_b);
        for (context, report) in [(2, copied(2)), (3, Report::Acknowledged(3)), (4, Report::AcknowledgedAtOnce(4))] {
            assert!(!a.endpoint.post(to_b, b"", &[context], Priority::Normal, report).unwrap());
        }
        until(&mut [&mut a, &mut b], "all are reported", |sides| sides[0].all_sent(2..5));
        assert_eq!(a.reported, [2, 3, 4], "local {is_local}");
        until(&mut [&mut a, &mut b], "nothing is under way", |sides| !sides[0].endpoint.has_messages());
        assert!(a.ended.is_empty());
    }
}

/// A message that only its loss reports is lost if the peer dies before it has acknowledged it, or before it was sent.
#[test]
fn the_loss_of_a_message_is_reported_with_the_end_of_its_channel() {
    for (report, is_queued, expected) in [
        (Report::Loss, false, true),
        (Report::Loss, true, true),
        (Report::Copied { context: 1, counts_loss: true }, false, true),
        (Report::Copied { context: 1, counts_loss: false }, false, false),
        (Report::Never, false, false),
        (Report::Never, true, false),
    ] {
        let segment = Segment::default();
        let mut a = side_at(&segment, new_mac(), impatient(0x20));
        let mut b = side_at(&segment, new_mac(), config(0x24));
        let (to_b, _) = open_channel(&mut a, &mut b);
        until(&mut [&mut a, &mut b], "it is open", |sides| sides[0].endpoint.is_open(to_b));
        if is_queued {
            fill(&mut a, to_b);
        }
        assert_eq!(a.endpoint.post(to_b, b"", b"lost", Priority::Normal, report), Ok(!is_queued));
        drop(b);
        assert_eq!(end_of(&mut a, &mut []), (Ending::NoAnswer, expected), "{report:?}, queued {is_queued}");
        assert!(!a.endpoint.has_messages(), "nothing stays under way");
    }
    // What was acknowledged is not lost.
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let (to_b, from_a) = open_channel(&mut a, &mut b);
        a.endpoint.post(to_b, b"", b"arrives", Priority::Normal, Report::Loss).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| sides[1].received.len() == 1);
        until(&mut [&mut a, &mut b], "it is acknowledged", |sides| !sides[0].endpoint.has_messages());
        b.endpoint.close(from_a);
        assert_eq!(end_of(&mut a, &mut [&mut b]), (Ending::PeerClosed, false), "local {is_local}");
    }
}

/// A queued message that was reported as copied, or not yet, is not reported twice when its channel ends.
#[test]
fn a_queued_message_fails_once() {
    for is_local in [false, true] {
        let (mut a, mut b) = pair(is_local);
        let (to_b, _) = open_channel(&mut a, &mut b);
        fill(&mut a, to_b);
        let report = Report::Copied { context: 7, counts_loss: true };
        a.endpoint.post(to_b, b"", b"queued", Priority::Normal, report).unwrap();
        a.endpoint.abort(to_b, Ending::Closed);
        until(&mut [&mut a, &mut b], "it ends", |sides| sides[0].ended.len() == 1);
        assert_eq!(a.outcomes.into_iter().collect::<Vec<_>>(), [(7, Some(Ending::Closed))], "local {is_local}");
    }
}

/// An urgent message passes normal ones that are queued, but not the one that is partly submitted.
#[test]
fn an_urgent_message_passes_queued_ones() {
    for is_local in [false, true] {
        let (mut a, mut b, to_b, to_a) = open_pair(is_local);
        fill(&mut a, to_b);
        a.endpoint.post(to_b, b"", b"urgent", Priority::Urgent, Report::Never).unwrap();
        until(&mut [&mut a, &mut b], "all arrive", |sides| sides[1].received.len() == 3);
        let received = b.from(to_a);
        assert!(received[0].len() == 1 << 20 && received[1..] == [b"urgent", b"queued"], "local {is_local}");
    }
}

/// A sleeper is woken when there is room, by a single event.
#[test]
fn a_caller_is_told_of_room() {
    for is_local in [false, true] {
        let (mut a, mut b, to_b, _) = open_pair(is_local);
        let mut sent = 0;
        while a.endpoint.send_now(to_b, b"", &pattern(sent, 4000)) {
            sent += 1;
        }
        assert!(!a.endpoint.has_room(to_b, 4000) && a.endpoint.is_blocked(), "local {is_local}");
        // Not before the peer has taken something.
        for _ in 0..100 {
            a.poll();
        }
        assert!(a.has_room.is_empty());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                while b.received.len() < sent as usize {
                    b.poll();
                }
                // Acknowledgements, until the sender has seen them.
                run_for(&mut [&mut b], Duration::from_millis(200));
            });
            let began = Instant::now();
            while a.has_room.is_empty() {
                a.endpoint.wait(&mut a.inbox, Duration::from_secs(5)).unwrap();
                a.take();
                assert!(began.elapsed() < Duration::from_secs(4), "woken, local {is_local}");
            }
            assert_eq!(a.has_room, [to_b]);
            assert!(a.endpoint.has_room(to_b, 4000) && a.endpoint.send_now(to_b, b"", b"fits"));
            run_for(&mut [&mut a], Duration::from_millis(50));
            assert_eq!(a.has_room.len(), 1, "told once, local {is_local}");
        });
    }
}

/// Waiting for room of a channel that ends, or is closed, neither keeps the endpoint busy nor reports room.
#[test]
fn room_of_a_closed_channel_is_not_awaited() {
    for is_local in [false, true] {
        let (segment, mac) = (Segment::default(), new_mac());
        let mut a = side_at(&segment, mac, Config { slots: 16, ..impatient(0x20) });
        let mut b = side_at(&segment, if is_local { mac } else { new_mac() }, config(0x24));
        let (to_b, _) = open_channel(&mut a, &mut b);
        fill(&mut a, to_b);
        assert!(!a.endpoint.has_room(to_b, 100));
        a.endpoint.close(to_b);
        assert!(!a.endpoint.has_room(to_b, 100), "it accepts no messages");
        until(&mut [&mut a, &mut b], "it ends", |sides| sides[0].ended.len() == 1);
        assert!(a.has_room.is_empty() && !a.endpoint.is_blocked() && a.endpoint.has_nothing_to_send());
    }
}

/// Peers that acknowledge nothing leave few slots. A long message to another starts with those.
#[test]
fn a_long_message_starts_beside_stalled_peers() {
    let segment = Segment::default();
    let mut a = side_at(&segment, new_mac(), Config { slots: 32, ..config(0x20) });
    let mut peers: Vec<Side> = (0..6).map(|number| side_at(&segment, new_mac(), config(0x24 + 4 * number))).collect();
    let channels: Vec<ChannelId> = peers
        .iter_mut()
        .map(|peer| {
            let (channel, _) = open_channel(&mut a, peer);
            until(&mut [&mut a, peer], "it is open", |sides| sides[0].endpoint.is_open(channel));
            channel
        })
        .collect();
    for stalled in &channels[..5] {
        while a.endpoint.send_now(*stalled, b"", &[1; 100]) {}
    }
    let (to, last) = (channels[5], &mut peers[5]);
    assert!(!a.endpoint.send_now(to, b"", &[2; 40_000]) && a.endpoint.has_room(to, 40_000));
    let report = Report::Copied { context: 1, counts_loss: true };
    a.endpoint.post(to, b"", &[2; 40_000], Priority::Normal, report).unwrap();
    until(&mut [&mut a, last], "it is copied and arrives", |sides| {
        sides[0].all_sent(1..2) && sides[1].received.len() == 1
    });
}

/// A message of which a part was sent fails by its event, and is not reported as lost besides.
#[test]
fn a_partly_sent_message_fails_once() {
    for drops in [false, true] {
        let segment = Segment::default();
        let mut a = side_at(&segment, new_mac(), Config { slots: 16, ..impatient(0x20) });
        let mut b = side_at(&segment, new_mac(), config(0x24));
        let (to_b, _) = open_channel(&mut a, &mut b);
        until(&mut [&mut a, &mut b], "it is open", |sides| sides[0].endpoint.is_open(to_b));
        let report = Report::Copied { context: 5, counts_loss: true };
        assert!(!a.endpoint.post(to_b, b"", &pattern(1, 100_000), Priority::Normal, report).unwrap());
        if drops {
            drop(b);
            assert_eq!(end_of(&mut a, &mut []), (Ending::NoAnswer, false));
        } else {
            a.endpoint.abort(to_b, Ending::Closed);
            assert_eq!(end_of(&mut a, &mut [&mut b]), (Ending::Closed, false));
        }
    }
}
