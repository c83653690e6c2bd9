// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `UdpLink` on the loopback interface. Needs no privileges.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use barewire_link::{Link, LinkError, MacAddress, Outgoing, UdpConfig, UdpLink};

fn open() -> UdpLink {
    UdpLink::open(&UdpConfig { interface: "lo".to_owned(), others: Vec::new(), ports: None, sources: 1 }).unwrap()
}

/// The Ethernet header of a frame between two links.
fn header(from: &UdpLink, to: MacAddress) -> [u8; 14] {
    let mut header = [0; 14];
    header[..6].copy_from_slice(&to.0);
    header[6..12].copy_from_slice(&from.address().0);
    header[12..].copy_from_slice(&[0x88, 0x70]);
    header
}

/// The UDP port of a link.
fn port(link: &UdpLink) -> u16 {
    let [p0, p1, ..] = link.address().0;
    u16::from_be_bytes([p0, p1])
}

fn receive(link: &mut UdpLink) -> Option<Vec<u8>> {
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        if let Some(frame) = link.receive() {
            assert!(!frame.is_truncated());
            return Some(frame.bytes.to_vec());
        }
    }
    None
}

#[test]
fn a_frame_arrives_with_both_station_addresses() {
    let (mut a, mut b) = (open(), open());
    let header = header(&a, b.address());
    for payload in [&b""[..], b"x", &[7; 1400], &[9; 60_000]] {
        // The kernel gathers the parts of the longest.
        assert_eq!(a.send(&[Outgoing { header: &header, payload, label: 0 }]).unwrap(), 1);
        assert_eq!(receive(&mut b).unwrap(), [&header[..], payload].concat());
    }
    assert!(b.is_local(a.address()) && a.address() != b.address());
    assert_eq!((a.counters().unwrap().sent, b.counters().unwrap().received), (4, 4));
}

/// Proves that frames of a batch arrive one by one and in order, however they are grouped into sends and coalesced by
/// the receiving kernel.
#[test]
fn a_batch_arrives_frame_by_frame_in_order() {
    let (mut a, mut b, mut c) = (open(), open(), open());
    let lengths = [1400; 20].iter().chain(&[600, 1400, 1400, 1, 1, 1, 0, 1400, 1401, 1401, 9]);
    let frames: Vec<(bool, Vec<u8>)> = lengths.enumerate().map(|(n, len)| (n % 7 == 6, vec![n as u8; *len])).collect();
    let headers = [header(&a, b.address()), header(&a, c.address())];
    let batch: Vec<Outgoing<'_>> = frames
        .iter()
        .map(|(to_c, payload)| Outgoing { header: &headers[usize::from(*to_c)], payload, label: 0 })
        .collect();
    for _ in 0..50 {
        let mut sent = 0;
        while sent < batch.len() {
            sent += a.send(&batch[sent..]).unwrap();
        }
        for (to_c, payload) in &frames {
            let frame = receive(if *to_c { &mut c } else { &mut b }).unwrap();
            assert_eq!(frame[..14], headers[usize::from(*to_c)]);
            assert!(frame[14..] == *payload, "{} bytes instead of {}", frame.len() - 14, payload.len());
        }
    }
    assert!(b.receive().is_none() && c.receive().is_none());
}

/// Proves that a caller does not sleep while coalesced datagrams are left from an earlier receive.
#[test]
fn frames_that_were_taken_from_the_system_prevent_sleep() {
    let (mut a, mut b) = (open(), open());
    let header = header(&a, b.address());
    let frame = Outgoing { header: &header, payload: &[1; 100], label: 0 };
    assert_eq!(a.send(&[frame; 30]).unwrap(), 30);
    assert!(b.wait_to_receive(Duration::from_secs(2)).unwrap());
    for left in (0..30).rev() {
        assert!(b.receive().is_some());
        assert_eq!(b.wait_to_receive(Duration::ZERO).unwrap(), left > 0);
        assert!(!b.has_pending() || left > 0);
    }
}

#[test]
fn anybodys_datagrams_are_frames_only_if_they_have_a_length_or_ethertype() {
    let mut link = open();
    let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for datagram in [&b""[..], b"1", b"", b"22"] {
        other.send_to(datagram, (Ipv4Addr::LOCALHOST, port(&link))).unwrap();
    }
    let frame = receive(&mut link).unwrap();
    let from = other.local_addr().unwrap().port().to_be_bytes();
    assert_eq!(frame[..6], link.address().0);
    assert_eq!(frame[6..], [from[0], from[1], 127, 0, 0, 1, b'2', b'2']);
    assert!(link.receive().is_none());
}

/// Proves that more datagrams than a socket holds are lost, counted, and do not disturb those that come later.
#[test]
fn a_flood_is_bounded_and_counted() {
    let mut link = open();
    let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for _ in 0..20_000 {
        // Fails once the receiver's buffer is full on some kernels.
        let _ = other.send_to(&[0; 1400], (Ipv4Addr::LOCALHOST, port(&link)));
    }
    let (mut received, mut empty) = (0, 0);
    // Between two system calls the link may find nothing once.
    while empty < 2 {
        let is_frame = link.receive().is_some();
        (received, empty) = if is_frame { (received + 1, 0) } else { (received, empty + 1) };
    }
    assert!((1..20_000).contains(&received), "{received}");
    assert_eq!(link.counters().unwrap().receive_dropped, 20_000 - received as u64);
    other.send_to(b"later", (Ipv4Addr::LOCALHOST, port(&link))).unwrap();
    assert_eq!(receive(&mut link).unwrap()[12..], *b"later");
}

#[test]
fn frames_to_nobody_are_lost_as_on_a_wire_and_too_long_ones_are_refused() {
    let mut link = open();
    let nobody = MacAddress([0xfe, 0xff, 127, 0, 0, 1]);
    let [to_nobody, to_all] = [nobody, MacAddress::BROADCAST].map(|to| header(&link, to));
    let frames = [to_nobody, to_all, to_nobody, to_nobody].map(|header| (header, [5; 50]));
    let frames: Vec<Outgoing<'_>> =
        frames.iter().map(|(header, payload)| Outgoing { header, payload, label: 0 }).collect();
    for _ in 0..3 {
        assert_eq!(link.send(&frames).unwrap(), 4);
    }
    link.check().unwrap();
    let payload = vec![0; link.mtu() + 1];
    let refused = link.send(&[Outgoing { header: &to_nobody, payload: &payload, label: 0 }]);
    assert!(matches!(refused, Err(LinkError::FrameTooLong { .. })));
}

#[test]
fn ports_are_chosen_from_a_range_until_all_are_taken() {
    let range = 48_128..=48_131;
    let config = UdpConfig { interface: "lo".to_owned(), others: Vec::new(), ports: Some(range.clone()), sources: 1 };
    let mut links = Vec::new();
    let refused = loop {
        match UdpLink::open(&config) {
            Ok(link) => links.push(link),
            Err(error) => break error,
        }
        assert!(links.len() <= 4);
    };
    assert!(links.iter().all(|link| range.contains(&port(link))));
    // Another program may use some of them.
    assert!(!links.is_empty());
    assert!(refused.to_string().contains("no UDP port from 48128 to 48131 is free, of 4"), "{refused}");
    // A high byte of 0xbf denotes groups.
    let groups = UdpConfig { interface: "lo".to_owned(), others: Vec::new(), ports: Some(0xbf00..=0xbf05), sources: 1 };
    assert!(matches!(UdpLink::open(&groups), Err(LinkError::NoPort { usable: 0, .. })));
}

#[test]
fn an_interface_must_exist_and_have_an_address() {
    let config = UdpConfig { interface: "nosuch0".to_owned(), others: Vec::new(), ports: None, sources: 1 };
    assert!(matches!(UdpLink::open(&config), Err(LinkError::NoSuchInterface(name)) if name == "nosuch0"));
}

/// Proves that frames are neither lost, duplicated nor reordered while the socket for one peer is opened and closed,
/// with others that interfere, and that each exchange wakes a sleeper.
#[test]
fn a_second_socket_for_the_only_partner_changes_nothing() {
    let (mut a, mut b, mut c) = (open(), open(), open());
    let [ab, ba, ca] = [header(&a, b.address()), header(&b, a.address()), header(&c, a.address())];
    let mut number = 0_u32;
    let mut exchange = |a: &mut UdpLink, other: &mut UdpLink, header: &[u8; 14], sleeps: bool| {
        number += 1;
        let payload = number.to_be_bytes();
        for _ in 0..3 {
            assert_eq!(other.send(&[Outgoing { header, payload: &payload, label: 0 }]).unwrap(), 1);
        }
        assert!(!sleeps || a.wait_to_receive(Duration::from_secs(2)).unwrap());
        for _ in 0..3 {
            assert_eq!(receive(a).unwrap()[14..], payload);
        }
    };
    let mut had_partner = [false; 2];
    for round in 0..4 {
        // Frames of both are under way when the socket opens.
        for turn in 0..1000 {
            exchange(&mut a, &mut b, &ba, turn % 5 == 0);
            assert_eq!(a.send(&[Outgoing { header: &ab, payload: &[1], label: 0 }]).unwrap(), 1);
            assert_eq!(receive(&mut b).unwrap()[14..], [1]);
            if turn % 100 == 99 {
                exchange(&mut a, &mut c, &ca, true);
            }
        }
        had_partner[0] |= a.partner_descriptor().is_some();
        assert!(a.partner_descriptor().is_some() || round > 0);
        for turn in 0..100 {
            exchange(&mut a, &mut c, &ca, turn % 5 == 0);
            exchange(&mut a, &mut b, &ba, turn % 5 == 0);
        }
        had_partner[1] |= a.partner_descriptor().is_none();
        assert_eq!(a.counters().unwrap().receive_dropped, 0);
    }
    assert_eq!(had_partner, [true, true]);
}
