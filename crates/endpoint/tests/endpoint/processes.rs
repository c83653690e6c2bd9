// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes of one host: one that is killed, and eight that all exchange messages. The other processes run this
//! program's test `child_process`.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use barewire_endpoint::{Address, ChannelId, Config, Ending, Origin, SendError};

use crate::common::*;

const PROCESSES: u8 = 8;
const MESSAGES: u64 = 40;

/// A child process with a role; killed on drop.
struct ChildProcess(Child);

impl ChildProcess {
    fn start(role: &str, mac: [u8; 6], number: u8) -> Self {
        let mac: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        let command = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::child_process", "--ignored", "--nocapture"])
            .envs([("ENDPOINT_ROLE", role), ("ENDPOINT_MAC", &mac), ("ENDPOINT_NUMBER", &number.to_string())])
            .stdout(Stdio::null())
            .spawn();
        Self(command.unwrap())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn at(mac: [u8; 6], number: u8) -> Address {
    Address::new(mac, sap(0x20 + 4 * number))
}

fn side_of(mac: [u8; 6], number: u8) -> Side {
    side_at(&Segment::default(), mac, Config { connect_timeout: TIMEOUT, ..config(at(mac, number).sap.byte()) })
}

#[test]
#[ignore = "child process of the other tests"]
fn child_process() {
    let variable = |name| std::env::var(name).unwrap();
    let mac = u64::from_str_radix(&variable("ENDPOINT_MAC"), 16).unwrap().to_be_bytes();
    let mac = [mac[2], mac[3], mac[4], mac[5], mac[6], mac[7]];
    let number = variable("ENDPOINT_NUMBER").parse().unwrap();
    let mut side = side_of(mac, number);
    match &*variable("ENDPOINT_ROLE") {
        "floods" => {
            let to = side.connect(at(mac, 0));
            for context in 0.. {
                let _ = side.lend(to, b"flood", pattern(context, 4_000_000), context);
                while !side.outcomes.contains_key(&context) {
                    side.poll();
                }
            }
        }
        "exchanges" => exchange_with_all(&mut side, number),
        role => panic!("unknown role {role}"),
    }
}

/// Sends messages to all processes, and returns when all messages from all processes have arrived.
fn exchange_with_all(side: &mut Side, number: u8) {
    let mac = side.address().mac;
    let message = |from: u8, to: u8, count: u64| {
        let seed = u64::from(from) << 32 | u64::from(to) << 16 | count;
        let mut message = pattern(seed, [8, 300, 5_000, 100_000][(count % 4) as usize]);
        message[0] = from;
        message
    };
    let channels: Vec<ChannelId> = (0..PROCESSES).map(|to| side.connect(at(mac, to))).collect();
    let mut next = vec![0; channels.len()];
    let all = u64::from(PROCESSES) * MESSAGES;
    let began = Instant::now();
    while (side.received.len() as u64) < all || (side.outcomes.len() as u64) < all {
        for (to, channel) in (0..).zip(&channels) {
            let count = next[usize::from(to)];
            if count == MESSAGES {
                continue;
            }
            let (body, context) = (message(number, to, count), u64::from(to) * MESSAGES + count);
            let sent = if body.len() < 1000 {
                side.endpoint.send(*channel, &[], &body, context)
            } else {
                side.lend(*channel, &[], body, context)
            };
            match sent {
                Ok(()) => next[usize::from(to)] += 1,
                Err(SendError::Full) => {}
                Err(error) => panic!("{error}"),
            }
        }
        // There may be fewer processors than processes: sleep when there is nothing to do.
        if !side.poll() {
            side.endpoint.sleep(Duration::from_millis(100)).unwrap();
        }
        assert!(began.elapsed() < TIMEOUT, "{} received, {} sent", side.received.len(), side.outcomes.len());
    }
    let mut counts = HashMap::new();
    for (origin, bytes) in &side.received {
        let count = counts.entry(bytes[0]).or_insert(0);
        assert!(*bytes == message(bytes[0], number, *count), "message {count} of {}", bytes[0]);
        assert!(matches!(origin, Origin::Channel(_)));
        *count += 1;
    }
    assert_eq!(counts.len(), usize::from(PROCESSES));
    assert!(side.all_sent(0..all));
}

#[test]
fn eight_processes_of_one_host_exchange_messages() {
    let mac = new_mac();
    let mut children: Vec<ChildProcess> =
        (1..PROCESSES).map(|number| ChildProcess::start("exchanges", mac, number)).collect();
    let mut side = side_of(mac, 0);
    exchange_with_all(&mut side, 0);
    for child in &mut children {
        assert!(child.0.wait().unwrap().success());
    }
}

/// Its incomplete message is never delivered, its end is noticed soon, and another channel is not affected.
#[test]
fn a_process_killed_in_the_middle_of_a_message_ends_only_its_channel() {
    let mac = new_mac();
    let mut side = side_of(mac, 0);
    let mut bystander = side_of(mac, 2);
    let (_, from_bystander) = open_channel(&mut bystander, &mut side);
    let (to_side, _) = (bystander.connect(side.address()), ());
    for round in 1..=5 {
        let mut child = ChildProcess::start("floods", mac, 1);
        until(&mut [&mut side, &mut bystander], "it connects", |sides| sides[0].opened.len() == 1 + round);
        let (channel, peer) = side.opened[round];
        assert_eq!(peer, at(mac, 1));
        until(&mut [&mut side, &mut bystander], "it floods", |sides| sides[0].from(channel).len() >= round);
        // In the other direction more than its ring holds: it stops receiving when it is killed.
        for context in 0..3 {
            side.lend(channel, &[], pattern(context, 1_000_000), 10 * round as u64 + context).unwrap();
        }
        child.0.kill().unwrap();
        let killed = Instant::now();
        bystander.endpoint.send(to_side, &[], b"meanwhile", round as u64).unwrap();
        until(&mut [&mut side, &mut bystander], "its end is noticed", |sides| sides[0].ended.len() == round);
        assert!(killed.elapsed() < Duration::from_secs(5));
        assert_eq!(side.ended[round - 1], (channel, peer, Ending::PeerClosed));
        let expected: Vec<Vec<u8>> = (0..side.from(channel).len() as u64)
            .map(|seed| [&b"flood"[..], &pattern(seed, 4_000_000)].concat())
            .collect();
        assert!(side.from(channel) == expected);
        assert!((0..3).all(|context| side.outcomes.contains_key(&(10 * round as u64 + context))));
        until(&mut [&mut side, &mut bystander], "the other channel continues", |sides| {
            sides[0].from(from_bystander).len() == round
        });
        side.received.retain(|(origin, _)| *origin == Origin::Channel(from_bystander));
    }
}
