// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Labels of frames, as the link gets them.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barewire_endpoint::Config;
use barewire_link::{Counters, Incoming, Link, LinkError, MacAddress, Outgoing};

use crate::common::sealing::authentication;
use crate::common::*;

/// A link that records the label and the length of each frame sent.
struct Recorded(SegmentLink, Arc<Mutex<Vec<(u16, usize)>>>);

impl Link for Recorded {
    fn address(&self) -> MacAddress {
        self.0.address()
    }

    fn mtu(&self) -> usize {
        self.0.mtu()
    }

    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        self.1.lock().unwrap().extend(frames.iter().map(|frame| (frame.label, frame.len())));
        self.0.send(frames)
    }

    fn receive(&mut self) -> Option<Incoming<'_>> {
        self.0.receive()
    }

    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        self.0.wait_to_receive_or(others, timeout)
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        self.0.wait_to_send(timeout)
    }

    fn check(&mut self) -> Result<(), LinkError> {
        self.0.check()
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        self.0.counters()
    }
}

/// Labels of the frames of at least `bytes_min` bytes that were sent since the last call.
fn take(sent: &Mutex<Vec<(u16, usize)>>, bytes_min: usize) -> BTreeSet<u16> {
    let sent = std::mem::take(&mut *sent.lock().unwrap());
    sent.into_iter().filter(|(_, bytes)| *bytes >= bytes_min).map(|(label, _)| label).collect()
}

/// Plain, authenticated and encrypted frames are built in different places.
#[test]
fn long_messages_take_all_labels_short_ones_one_and_without_labels_none_has_one() {
    for (labels, auth) in [(true, None), (true, Some(false)), (true, Some(true)), (false, None)] {
        let segment = Segment::default();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let side = |byte| {
            let labels = labels.then(|| "3840-3843".parse().unwrap());
            let config = Config { labels, local: None, authentication: auth.map(authentication), ..config(byte) };
            Side::new(Recorded(segment.link(new_mac(), byte, MTU), Arc::clone(&sent)), config)
        };
        let (mut a, mut b) = (side(0x20), side(0x24));
        let (to_b, _) = open_channel(&mut a, &mut b);
        assert!(take(&sent, 0).contains(&0), "set-up has no label");
        // A message that is retransmitted, because a busy machine was late, takes another label.
        let is_at_one = (0..20).any(|tried| {
            for number in 5 * tried..5 * tried + 5 {
                a.endpoint.send(to_b, &[], &[7; 200], number).unwrap();
                until(&mut [&mut a, &mut b], "it arrives", |sides| sides[0].all_sent(number..number + 1));
            }
            let homes = take(&sent, 200);
            homes.len() == 1 && homes.contains(&0) != labels
        });
        assert!(is_at_one);
        let message = pattern(6, 300_000);
        a.lend(to_b, &[], message.clone(), 999).unwrap();
        until(&mut [&mut a, &mut b], "it arrives", |sides| sides[0].all_sent(999..1000));
        assert!(b.received.last().unwrap().1 == message);
        let all = if labels { (3840..=3843).collect() } else { BTreeSet::from([0]) };
        assert_eq!(take(&sent, 1000), all);
    }
}
