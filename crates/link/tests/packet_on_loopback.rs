// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `PacketLink` on the loopback interface, which receives every frame it sends: two links with
//! different filters act as two stations. Needs CAP_NET_RAW.

use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use barewire_link::{
    Field, Filter, Interface, Link, LinkError, MacAddress, Outgoing, PacketConfig, PacketLink, Restricted,
    RingGeometry, VlanTag,
};

const ETHER_TYPE: u16 = 0x88b5;

/// Each test has its own byte after the EtherType, so that tests do not receive each other's frames.
fn open(test: u8, ring_bytes: usize) -> Option<PacketLink> {
    open_for(ETHER_TYPE, test, ring_bytes)
}

fn open_for(protocol: u16, test: u8, ring_bytes: usize) -> Option<PacketLink> {
    let config = PacketConfig {
        interface: "lo".to_owned(),
        protocol,
        filter: Filter::all_of(&[Field::word(12, ETHER_TYPE), Field::byte(14, test)]),
        ring_bytes,
    };
    match PacketLink::open(&config) {
        Ok(link) => Some(link),
        Err(LinkError::NotPermitted) => {
            skip("raw frames need CAP_NET_RAW: run `make test`, which gives it in a user namespace, or as root");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Reports a skip, and records it where `make test` counts skips.
fn skip(reason: &str) {
    let line = format!("SKIPPED {}: {reason}\n", std::thread::current().name().unwrap_or("?"));
    eprint!("{line}");
    if let Some(path) = std::env::var_os("BAREWIRE_SKIP_LOG") {
        let log = std::fs::File::options().create(true).append(true).open(path);
        log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the skip log can be written");
    }
}

fn header(test: u8) -> [u8; 15] {
    let mut header = [0; 15];
    header[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
    header[14] = test;
    header
}

fn send_all(link: &mut PacketLink, frames: &[Outgoing<'_>]) {
    let mut sent = 0;
    while sent < frames.len() {
        sent += link.send(&frames[sent..]).unwrap();
    }
}

/// As on a port to which a switch floods frames: the link refuses those to other hosts, although the interface receives
/// them.
#[test]
fn frames_to_other_hosts_are_not_received() {
    const TEST: u8 = 60;
    let Some(mut link) = open(TEST, 1 << 20) else { return };
    let mut to = |first: &[u8], number: u8| {
        let mut header = header(TEST);
        header[..first.len()].copy_from_slice(first);
        send_all(&mut link, &[Outgoing { header: &header, payload: &[number], label: 0 }]);
    };
    to(&[2, 0, 0, 0, 0, 1], 1);
    to(&[0xff; 6], 2);
    to(&[0, 0, 0, 0, 0, 4], 3);
    to(&[3, 0, 0, 0, 0, 1], 4);
    to(&[0; 6], 5);
    for wanted in [2, 4, 5] {
        assert!(link.wait_to_receive(Duration::from_secs(1)).unwrap());
        assert_eq!(link.receive().unwrap().bytes[15], wanted);
    }
}

#[test]
fn frames_of_all_lengths_arrive_in_order_and_intact() {
    let Some(mut link) = open(1, 16 << 20) else { return };
    let header = header(1);
    let payloads: Vec<Vec<u8>> = (0..200u16).map(|i| vec![i as u8; usize::from(i) * 40]).collect();
    for round in 0..20 {
        // One by one, in short batches, and in batches longer than a system call takes.
        for payloads in payloads.chunks([1, 7, 100][round % 3]) {
            let frames: Vec<_> =
                payloads.iter().map(|payload| Outgoing { header: &header, payload, label: 0 }).collect();
            send_all(&mut link, &frames);
            for payload in payloads {
                assert!(link.wait_to_receive(Duration::from_secs(1)).unwrap());
                let frame = link.receive().unwrap();
                assert_eq!((&frame.bytes[15..], frame.frame_bytes), (&payload[..], 15 + payload.len()));
                assert!(!frame.is_truncated() && frame.vlan.is_none());
            }
        }
    }
    assert!(link.receive().is_none());
    let counters = link.counters().unwrap();
    assert_eq!((counters.sent, counters.received, counters.receive_dropped), (4000, 4000, 0));
}

#[test]
fn frames_to_an_address_have_it_and_the_links_own_whatever_their_headers_say() {
    let Some(mut link) = open(9, 16 << 20) else { return };
    // A group, to which every station belongs.
    let (to, own) = (MacAddress([3, 0, 0, 0, 0, 9]), link.address());
    let header = header(9);
    for bytes in [0, 1000, 9000] {
        for count in [1, 2, 40] {
            let payload = vec![7; bytes];
            let frames = vec![Outgoing { header: &header, payload: &payload, label: 0 }; count];
            let mut sent = 0;
            while sent < count {
                sent += link.send_to(to, &frames[sent..]).unwrap();
            }
            for _ in 0..count {
                assert!(link.wait_to_receive(Duration::from_secs(1)).unwrap());
                let frame = link.receive().unwrap();
                assert_eq!(frame.bytes, [&to.0[..], &own.0, &header[12..], &payload].concat());
            }
        }
    }
}

#[test]
fn filter_refuses_frames_of_other_stations() {
    let (Some(mut a), Some(mut b)) = (open(2, 1 << 20), open(3, 1 << 20)) else { return };
    send_all(&mut a, &[Outgoing { header: &header(3), payload: b"for b", label: 0 }]);
    assert!(b.wait_to_receive(Duration::from_secs(1)).unwrap());
    assert_eq!(&b.receive().unwrap().bytes[15..], b"for b");
    assert!(a.receive().is_none());
    assert_eq!(a.counters().unwrap().received, 0);
}

#[test]
fn wait_ends_at_the_timeout_or_with_a_frame() {
    let Some(mut link) = open(4, 1 << 20) else { return };
    let began = Instant::now();
    assert!(!link.wait_to_receive(Duration::from_millis(50)).unwrap());
    assert!(began.elapsed() >= Duration::from_millis(50));
    // A received frame whose slot is not released yet must not count as new.
    send_all(&mut link, &[Outgoing { header: &header(4), payload: &[], label: 0 }]);
    assert!(link.wait_to_receive(Duration::from_secs(1)).unwrap());
    assert!(link.receive().is_some());
    assert!(!link.wait_to_receive(Duration::from_millis(20)).unwrap());
    assert!(link.wait_to_send(Duration::from_secs(1)).unwrap());
}

#[test]
fn overflowing_ring_counts_dropped_frames() {
    let Some(mut link) = open(5, 1) else { return };
    let header = header(5);
    send_all(&mut link, &vec![Outgoing { header: &header, payload: &[0; 1000], label: 0 }; 5000]);
    let mut received = 0;
    while link.receive().is_some() {
        received += 1;
    }
    let counters = link.counters().unwrap();
    assert!(counters.receive_dropped > 0);
    assert_eq!((counters.received, counters.receive_dropped), (received, 5000 - received));
    // Counters are cumulative, also over several readings.
    assert_eq!(link.counters().unwrap(), counters);
}

#[test]
fn vlan_tag_is_stripped_and_reported_to_a_link_of_all_protocols() {
    let all = u16::try_from(libc::ETH_P_ALL).unwrap();
    for (protocol, vlan) in [(ETHER_TYPE, None), (all, Some(VlanTag { protocol: 0x8100, control: 0x6007 }))] {
        let Some(mut link) = open_for(protocol, 6, 1 << 20) else { return };
        let plain = header(6);
        let tagged = [&plain[..12], &[0x81, 0x00, 0x60, 0x07], &plain[12..], b"tagged"].concat();
        send_all(&mut link, &[Outgoing { header: &tagged, payload: &[], label: 0 }]);
        assert!(link.wait_to_receive(Duration::from_secs(1)).unwrap());
        let frame = link.receive().unwrap();
        assert_eq!(frame.vlan, vlan);
        assert_eq!(frame.bytes, [&plain[..], b"tagged"].concat());
    }
}

/// Alone and in batches, copied and gathered, with the header's addresses and with others.
#[test]
fn labels_become_vlan_tags() {
    let all = u16::try_from(libc::ETH_P_ALL).unwrap();
    let Some(mut link) = open_for(all, 10, 16 << 20) else { return };
    let (to, own) = (MacAddress([3, 0, 0, 0, 0, 10]), link.address());
    let header = header(10);
    // The kernel drops a tagged frame with less than two bytes behind its EtherType; the header has one of them.
    for bytes in [1, 1000, 9000] {
        for count in [1, 2, 40] {
            let payload = vec![7; bytes];
            let frames: Vec<_> = (0..count)
                .map(|label| Outgoing {
                    header: &header,
                    payload: &payload,
                    label: if label == 1 { 0 } else { 3840 + label },
                })
                .collect();
            for is_addressed in [false, true] {
                let mut sent = 0;
                while sent < frames.len() {
                    let rest = &frames[sent..];
                    sent += if is_addressed { link.send_to(to, rest) } else { link.send(rest) }.unwrap();
                }
                for frame in &frames {
                    assert!(link.wait_to_receive(Duration::from_secs(1)).unwrap());
                    let received = link.receive().unwrap();
                    assert_eq!(received.vlan.map_or(0, |tag| tag.control), frame.label);
                    let addresses = if is_addressed { [to.0, own.0].concat() } else { header[..12].to_vec() };
                    assert_eq!(received.bytes, [&addresses[..], &header[12..], &payload].concat());
                }
            }
        }
    }
}

#[test]
fn frame_longer_than_the_mtu_is_refused_and_the_link_stays_usable() {
    let Some(mut link) = open(7, 1 << 20) else { return };
    let (header, mtu) = (header(7), link.mtu());
    let long = vec![0; mtu + 100];
    let result = link.send(&[Outgoing { header: &header, payload: &long, label: 0 }]);
    assert!(matches!(result, Err(LinkError::FrameTooLong { mtu: m, .. }) if m == mtu), "{result:?}");
    send_all(&mut link, &[Outgoing { header: &header, payload: &long[..mtu - 1], label: 0 }]);
    assert!(link.wait_to_receive(Duration::from_secs(1)).unwrap());
    assert_eq!(link.receive().unwrap().bytes.len(), mtu + 14);
}

#[test]
fn missing_interface_is_named_in_the_error() {
    let config = PacketConfig {
        interface: "nosuch0".to_owned(),
        protocol: ETHER_TYPE,
        filter: Filter::default(),
        ring_bytes: 1,
    };
    assert!(matches!(PacketLink::open(&config), Err(LinkError::NoSuchInterface(name)) if name == "nosuch0"));
}

/// An adopted socket works like one that the link opened, and the lease is closed with the link, not before.
#[test]
fn restricted_socket_is_adopted_and_its_lease_ends_with_the_link() {
    let Some(mut sender) = open(40, 1 << 20) else { return };
    let lo = Interface::by_name("lo").unwrap();
    let filter = Filter::all_of(&[Field::word(12, ETHER_TYPE), Field::byte(14, 41)]);
    let (socket, ring) =
        Restricted::open(&lo, libc::ETH_P_ALL as u16, &filter, 7, 1 << 20).unwrap().join_private_group().unwrap();
    let (lease, mut other_end) = std::os::unix::net::UnixStream::pair().unwrap();
    other_end.set_nonblocking(true).unwrap();
    let mut link = PacketLink::adopt(socket, "lo", ring, Some(lease.into())).unwrap();
    for (test, expected) in [(40, false), (41, true)] {
        send_all(&mut sender, &[Outgoing { header: &header(test), payload: &[5; 50], label: 0 }]);
        assert_eq!(link.wait_to_receive(Duration::from_millis(100)).unwrap(), expected);
    }
    assert_eq!(link.receive().unwrap().bytes[15..], [5; 50]);
    assert_eq!(other_end.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop(link);
    assert_eq!(other_end.read(&mut [0]).unwrap(), 0);
}

#[test]
fn socket_of_another_kind_or_interface_is_not_adopted() {
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let ring = RingGeometry::from_words([2048, 1 << 20, 1]).unwrap();
    for (foreign, reason) in [(udp.into(), "domain 2"), (file.into(), "Socket operation on non-socket")] {
        let Err(error) = PacketLink::adopt(foreign, "lo", ring, None) else { panic!("adopted") };
        assert!(matches!(error, LinkError::ForeignSocket { .. }) && error.to_string().contains(reason), "{error}");
    }
    if open(42, 1 << 20).is_none() {
        return;
    }
    // SAFETY: socket() takes no pointers.
    let descriptor = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    assert!(descriptor >= 0);
    // SAFETY: the descriptor is new; nothing else owns it.
    let unbound = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let Err(error) = PacketLink::adopt(unbound, "lo", ring, None) else { panic!("adopted") };
    assert!(error.to_string().contains("its interface has index 0"), "{error}");
}
