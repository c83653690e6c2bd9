// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cost of a message without a kernel: two endpoints on an in-memory link, in one thread. Times repeat within 2 %,
//! while those over an interface have modes that differ by 20 %. To compare two trees, run it in both alternately.
//!
//! `cargo bench -p barewire-endpoint` prints the minimum time in nanoseconds of a burst of messages and a short reply:
//! without authentication, with it, and with encryption.

use std::time::Instant;

use barewire_endpoint::{
    Authentication, ChannelId, Config, Encapsulation, Endpoint, Event, Framing, Inbox, InboxConfig, JobToken, Priority,
    Report, Secret,
};
use barewire_link::{Faults, MemoryLink};
use barewire_llc::Lsap;

const MTU: usize = 1500;
const HEAD: [u8; 30] = [1; 30];
const ROUNDS: u32 = 2000;
const REPETITIONS: u32 = 40;

struct Side {
    endpoint: Endpoint<MemoryLink>,
    inbox: Inbox,
    /// The channel that the peer has opened.
    opened: Option<ChannelId>,
}

impl Side {
    fn new(link: MemoryLink, sap: u8, encrypts: Option<bool>) -> Self {
        let framing = Framing { encapsulation: Encapsulation::EtherType, token: Some(JobToken::new(7)) };
        let mut config = Config { local: None, ..Config::new(Lsap::new(sap).expect("an individual SAP"), framing) };
        let secret = Secret::new(&[7; 32]).expect("of 256 bits");
        config.authentication = encrypts.map(|encrypts| Authentication { secret, encrypts });
        let endpoint = Endpoint::open(link, config, None).expect("an endpoint");
        let buffers = InboxConfig { receive_descriptors: 64, buffers: 64, buffer_bytes: 1 << 17, ..Default::default() };
        Self { endpoint, inbox: Inbox::new(&buffers), opened: None }
    }

    /// Makes progress; returns the number of messages received.
    fn poll(&mut self) -> u32 {
        self.endpoint.progress(&mut self.inbox).expect("the link works");
        while let Some(event) = self.endpoint.poll_event() {
            if let Event::Opened { channel, .. } = event {
                self.opened = Some(channel);
            }
        }
        let mut messages = 0;
        while let Some(message) = self.inbox.receive() {
            messages += 1;
            self.inbox.done(message);
        }
        messages
    }
}

fn receive(messages: u32, receiver: &mut Side, sender: &mut Side) {
    let mut received = receiver.poll();
    while received < messages {
        sender.poll();
        received += receiver.poll();
    }
}

fn main() {
    let workloads = [(8, 1), (1024, 1), (8, 16), (60_000, 1), (60_000, 4)];
    let modes = [("none", None), ("job", Some(false)), ("encrypt", Some(true))];
    let all = workloads.iter().flat_map(|workload| modes.iter().map(move |mode| (*workload, *mode)));
    for ((bytes, burst), (name, encrypts)) in all {
        let body = vec![7; bytes];
        let (left, right) = MemoryLink::pair(MTU, Faults::default(), 1);
        let (mut left, mut right) = (Side::new(left, 0x20, encrypts), Side::new(right, 0x22, encrypts));
        let to_right = left.endpoint.connect(right.endpoint.address()).expect("a channel");
        let mut best = f64::MAX;
        for _ in 0..REPETITIONS {
            let began = Instant::now();
            for _ in 0..ROUNDS / burst {
                for _ in 0..burst {
                    let sent = if bytes + HEAD.len() <= left.endpoint.copied_max() {
                        left.endpoint.send(to_right, &HEAD, &body, 0)
                    } else {
                        // SAFETY: the body is dropped after the endpoint.
                        unsafe {
                            left.endpoint
                                .post_lent(to_right, &HEAD, &body, Priority::Normal, Report::Acknowledged(0))
                                .map(|_| ())
                        }
                    };
                    sent.expect("a descriptor");
                }
                receive(burst, &mut right, &mut left);
                let to_left = right.opened.expect("the peer has opened it");
                right.endpoint.send(to_left, &HEAD, &[], 0).expect("a descriptor");
                receive(1, &mut left, &mut right);
            }
            best = best.min(began.elapsed().as_nanos() as f64 / f64::from(ROUNDS / burst));
        }
        println!("{burst:2} × {bytes:5} B, {name}: {best:8.0} ns");
    }
}
