// SPDX-License-Identifier: Apache-2.0 OR MIT
extern crate std;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::connection::Cause;
use crate::pdu::AcStatus;

mod extended;

const A: Mac = [2, 0, 0, 0, 0, 1];
const B: Mac = [2, 0, 0, 0, 0, 2];
const BROADCAST: Mac = [0xff; 6];

fn sap(byte: u8) -> Lsap {
    Lsap::new(byte).unwrap()
}

fn at(microseconds: u64) -> Instant {
    Instant::from_nanos(microseconds * 1000)
}

fn station(config: &StationConfig) -> Station<u32> {
    let mut station = Station::new(config, at(0)).unwrap();
    station.activate(sap(0x40));
    station.listen(sap(0x40), true);
    station
}

fn frame(body: Body<'_>, dsap: u8, ssap: u8) -> Vec<u8> {
    let pdu = Pdu { destination: dsap.into(), source: Source::from_byte(ssap), body };
    let mut bytes = std::vec![0; pdu.encoded_len()];
    pdu.emit(&mut bytes).unwrap();
    bytes
}

/// LLC data and trailer of a frame. Its check is not computed: the engine skips it.
fn encode(transmit: &StationTransmit<'_, u32>) -> (Vec<u8>, Vec<u8>) {
    let (mut llc, mut trailer) = (transmit.header.as_bytes().to_vec(), guarded(&transmit.extra));
    if let Some(token) = transmit.token {
        llc.append(&mut trailer);
        llc.extend(token.to_be_bytes());
    }
    (llc, trailer)
}

fn guarded(extra: &Extra) -> Vec<u8> {
    if extra.is_none() { Vec::new() } else { [&[0; extension::CHECK], extra.as_bytes()].concat() }
}

/// Moves frames between two stations until neither has any. Returns the data delivered to each.
fn exchange(stations: &mut [Station<u32>; 2], now: Instant) -> [Vec<Vec<u8>>; 2] {
    let mut delivered: [Vec<Vec<u8>>; 2] = Default::default();
    loop {
        let mut is_idle = true;
        for end in 0..2 {
            let mut frames = Vec::new();
            while let Some(transmit) = stations[end].poll_transmit(now) {
                frames.push((transmit.destination, encode(&transmit)));
            }
            for (destination, (llc, trailer)) in frames {
                is_idle = false;
                let (from, to) = if end == 0 { (A, 1) } else { (B, 0) };
                let handled = stations[to].handle_frame(from, destination, &llc, &trailer, now);
                if let Some(Delivery::Data { information, .. } | Delivery::AcknowledgedDatagram { information, .. }) =
                    handled.delivery
                {
                    delivered[to].push(information.to_vec());
                }
                if let Some(reply) = handled.reply {
                    let bytes = [reply.header.as_bytes(), reply.information].concat();
                    let back = if to == 0 { A } else { B };
                    stations[end].handle_frame(back, reply.destination, &bytes, &guarded(&reply.extra), now);
                }
            }
        }
        if is_idle {
            return delivered;
        }
    }
}

fn events(station: &mut Station<u32>) -> Vec<StationEvent<u32>> {
    core::iter::from_fn(|| station.poll_event()).collect()
}

fn pair() -> [Station<u32>; 2] {
    [station(&StationConfig::default()), station(&StationConfig::default())]
}

const TO_B: Peer = Peer { local: Lsap::SNAP, mac: B, remote: Lsap::SNAP };

fn connected() -> ([Station<u32>; 2], [ConnectionHandle; 2]) {
    connect(pair())
}

fn connect(mut stations: [Station<u32>; 2]) -> ([Station<u32>; 2], [ConnectionHandle; 2]) {
    let a = stations[0].connect(Peer { local: sap(0x40), mac: B, remote: sap(0x40) }, 0, at(0)).unwrap();
    exchange(&mut stations, at(0));
    let StationEvent::Connection(b, ConnectionEvent::Incoming) = stations[1].poll_event().unwrap() else { panic!() };
    assert!(stations[1].accept(b, at(0)));
    exchange(&mut stations, at(0));
    assert_eq!(events(&mut stations[0]), [StationEvent::Connection(a, ConnectionEvent::Connected)]);
    (stations, [a, b])
}

#[test]
fn two_thousand_connections_of_one_service_access_point() {
    let mut stations = pair();
    let mut handles = Vec::new();
    for number in 0..2000u16 {
        let [high, low] = number.to_be_bytes();
        let mac = [2, 1, 0, 0, high, low];
        let sabme = frame(Body::Sabme { poll: true }, 0x40, 0x42);
        assert!(stations[1].handle_frame(mac, B, &sabme, &[], at(0)).reply.is_none());
        let Some(StationEvent::Connection(handle, ConnectionEvent::Incoming)) = stations[1].poll_event() else {
            panic!("{number}")
        };
        assert_eq!(stations[1].peer(handle).unwrap().mac, mac);
        assert!(stations[1].accept(handle, at(0)));
        let answer = stations[1].poll_transmit(at(0)).unwrap();
        assert_eq!((answer.destination, answer.header.as_bytes()[2]), (mac, 0x73));
        // It sends data only after a PDU from the peer.
        stations[1].handle_frame(mac, B, &[0x40, 0x43, 0x01, 0x00], &[], at(0));
        handles.push(handle);
    }
    assert_eq!(stations[1].connections(), 2000);
    handles.iter().for_each(|handle| stations[1].send(*handle, 7, at(0)).unwrap());
    let sent = core::iter::from_fn(|| stations[1].poll_transmit(at(0)).map(|transmit| transmit.destination));
    assert_eq!(sent.count(), 2000);
}

#[test]
fn idle_connection_takes_less_than_a_kib_besides_its_queue() {
    let window = usize::from(bounds::QUEUE) * size_of::<Option<u32>>();
    let index = 2 * size_of::<Option<(crate::peer_table::Key, u16)>>() + 2 * size_of::<u16>() + 16 + 2 + 2;
    let bytes = size_of::<Entry<u32>>() + index;
    assert!(bytes < 1024, "{bytes} and {window} for the queue");
}

#[test]
fn data_reaches_its_connection_and_stale_handles_are_refused() {
    let (mut stations, [a, b]) = connected();
    stations[0].send(a, 1, at(0)).unwrap();
    assert_eq!(exchange(&mut stations, at(0))[1], [1u32.to_be_bytes()]);
    assert!(stations[0].disconnect(a, at(1)));
    exchange(&mut stations, at(1));
    assert!(matches!(
        events(&mut stations[1])[..],
        [StationEvent::Connection(_, ConnectionEvent::Disconnected(Cause::PeerDisconnected))]
    ));
    events(&mut stations[0]);
    assert_eq!([stations[0].connections(), stations[1].connections()], [0, 0]);
    assert_eq!(stations[0].send(a, 2, at(2)), Err(Refused { token: 2, reason: RefusedReason::Stale }));
    assert!(!stations[1].accept(b, at(2)) && stations[1].connection(b).is_none());
    let again = stations[0].connect(Peer { local: sap(0x40), mac: B, remote: sap(0x40) }, 0, at(3)).unwrap();
    assert_ne!(again, a);
}

/// The delay timer of a piggybacked acknowledgement must not wake a sleeping caller.
#[test]
fn exact_deadline_ignores_stopped_timers() {
    let (mut stations, [a, b]) = connected();
    stations[0].send(a, 1, at(1000)).unwrap();
    exchange(&mut stations, at(1000));
    stations[1].send(b, 2, at(1010)).unwrap();
    exchange(&mut stations, at(1010));
    let [_, b] = &mut stations;
    let lower_bound = b.next_deadline().unwrap();
    let exact = b.exact_deadline().unwrap();
    assert!(lower_bound < exact, "{lower_bound:?}, {exact:?}");
    // No timer expires before the deadline, one does at it.
    b.handle_timeout(Instant::from_nanos(exact.as_nanos() - 1));
    assert!(b.poll_transmit(at(1010)).is_none());
    b.handle_timeout(exact);
    assert!(b.poll_transmit(exact).is_some());
    assert!(b.exact_deadline().is_some_and(|next| next > exact));
}

#[test]
fn service_access_point_refuses_when_not_listening_or_full() {
    let config = StationConfig { backlog: 2, ..Default::default() };
    let mut station = station(&config);
    let sabme = frame(Body::Sabme { poll: true }, 0x40, 0x42);
    let mut refuses = |mac, now| station.handle_frame(mac, B, &sabme, &[], now).reply.map(|reply| reply.header);
    assert_eq!([refuses([2; 6], at(0)), refuses([4; 6], at(0))], [None, None]);
    assert_eq!(refuses([6; 6], at(0)).unwrap().as_bytes(), [0x42, 0x41, 0x1f]);
    assert_eq!(refuses([2; 6], at(0)), None, "a duplicate is not a second request");
    station.listen(sap(0x40), false);
    assert!(station.handle_frame([8; 6], B, &sabme, &[], at(0)).reply.is_some());
    assert_eq!((station.counters().refused, station.connections()), (2, 2));
    let Some(StationEvent::Connection(first, ConnectionEvent::Incoming)) = station.poll_event() else { panic!() };
    assert!(station.disconnect(first, at(0)), "refuses the request");
    assert_eq!(station.poll_transmit(at(0)).unwrap().header.as_bytes(), [0x42, 0x41, 0x1f]);
}

#[test]
fn sabme_flood_takes_bounded_memory() {
    let mut station = station(&StationConfig::default());
    for number in 0..100_000u32 {
        let [_, a, b, c] = number.to_be_bytes();
        let sabme = frame(Body::Sabme { poll: true }, 0x40, 0x42);
        station.handle_frame([2, 2, 2, a, b, c], B, &sabme, &[], at(u64::from(number)));
    }
    assert_eq!(station.connections(), usize::from(bounds::BACKLOG));
}

#[test]
fn xid_and_test_are_answered_from_the_frame() {
    let mut station = station(&StationConfig::default());
    let xid = frame(
        Body::Xid { role: Role::Command, poll_final: true, identification: Identification::Other(&[]) },
        0x40,
        0x42,
    );
    let reply = station.handle_frame(A, BROADCAST, &xid, &[], at(0)).reply.unwrap();
    assert_eq!((reply.destination, reply.header.as_bytes()), (A, &[0x42, 0x41, 0xbf, 0x81, 7, 126][..]));
    let test = frame(Body::Test { role: Role::Command, poll_final: false, information: b"echo" }, 0x00, 0x00);
    let reply = station.handle_frame(A, B, &test, &[], at(0)).reply.unwrap();
    assert_eq!((reply.header.as_bytes(), reply.information), (&[0x00, 0x01, 0xe3][..], &b"echo"[..]));
    let to_inactive = frame(Body::Test { role: Role::Command, poll_final: false, information: b"echo" }, 0x44, 0x42);
    assert_eq!(station.handle_frame(A, B, &to_inactive, &[], at(0)), Handled::default());
    assert_eq!(station.counters().unknown_sap, 1);
}

#[test]
fn responses_are_delivered_and_never_answered() {
    let mut station = station(&StationConfig::default());
    let test = frame(Body::Test { role: Role::Response, poll_final: true, information: b"echo" }, 0x40, 0x42);
    let handled = station.handle_frame(A, B, &test, &[], at(0));
    assert!(handled.reply.is_none() && matches!(handled.delivery, Some(Delivery::Test { information: b"echo", .. })));
}

#[test]
fn datagrams_reach_individual_and_global_addresses() {
    let mut station = station(&StationConfig::default());
    for (dsap, expected) in [(0x40, true), (0x41, false), (0xff, true), (0x46, false), (0x00, false)] {
        let bytes = frame(Body::Ui { information: b"hello" }, dsap, 0x10);
        let handled = station.handle_frame(A, BROADCAST, &bytes, &[], at(0));
        assert_eq!(handled.delivery.is_some(), expected, "{dsap:02x}");
        assert!(handled.reply.is_none());
    }
}

#[test]
fn frames_from_group_addresses_and_broadcast_sabmes_are_dropped() {
    let mut station = station(&StationConfig::default());
    let ui = frame(Body::Ui { information: b"" }, 0x40, 0x42);
    assert_eq!(station.handle_frame([3; 6], B, &ui, &[], at(0)), Handled::default());
    let sabme = frame(Body::Sabme { poll: true }, 0x40, 0x42);
    assert_eq!(station.handle_frame(A, BROADCAST, &sabme, &[], at(0)), Handled::default());
    assert_eq!((station.counters().group_source, station.counters().not_applicable), (1, 1));
}

#[test]
fn class_one_station_neither_connects_nor_acknowledges() {
    let mut station = station(&StationConfig { class: Class::I, ..Default::default() });
    let sabme = frame(Body::Sabme { poll: true }, 0x40, 0x42);
    assert_eq!(station.handle_frame(A, B, &sabme, &[], at(0)), Handled::default());
    let peer = Peer { local: sap(0x40), mac: A, remote: sap(0x40) };
    assert_eq!(station.connect(peer, 0, at(0)), Err(ConnectError::NotActive));
    assert_eq!(station.send_datagram(peer, 0, 1, at(0)), Err((1, DatagramRefused::NotActive)));
    let ac = frame(Body::AcCommand { poll: false, sequence: false, information: b"x" }, 0x40, 0x42);
    let handled = station.handle_frame(A, B, &ac, &[], at(0));
    assert!(handled.delivery.is_none());
    assert_eq!(handled.reply.unwrap().header.as_bytes()[3], AcStatus::NOT_ACTIVATED.0);
}

#[test]
fn command_without_connection_is_answered_with_dm_only_if_polled() {
    let mut station = station(&StationConfig::default());
    let rr = |poll_final| {
        let nr = SequenceNumber::default();
        frame(Body::S { role: Role::Command, poll_final, function: crate::Supervisory::Rr, nr }, 0x40, 0x42)
    };
    assert_eq!(station.handle_frame(A, B, &rr(false), &[], at(0)).reply, None);
    assert_eq!(station.handle_frame(A, B, &rr(true), &[], at(0)).reply.unwrap().header.as_bytes(), [0x42, 0x41, 0x1f]);
    assert_eq!(station.counters().no_connection, 2);
}

#[test]
fn acknowledged_datagram_arrives_once_and_is_reported() {
    let mut stations = pair();
    let peer = Peer { local: sap(0x40), mac: B, remote: sap(0x40) };
    let start = 250_001;
    for number in 0..3 {
        let now = at(start + number);
        stations[0].send_datagram(peer, 0, number as u32, now).unwrap();
        assert_eq!(stations[0].send_datagram(peer, 0, 9, now), Err((9, DatagramRefused::Busy)));
        assert_eq!(exchange(&mut stations, now)[1], [(number as u32).to_be_bytes()]);
        let outcome = DatagramOutcome::Answered(AcStatus::ACCEPTED);
        assert_eq!(events(&mut stations[0]), [StationEvent::Datagram(peer, number as u32, outcome)]);
    }
}

#[test]
fn datagram_with_lost_acknowledgement_is_retransmitted_but_delivered_once() {
    let mut stations = pair();
    let peer = Peer { local: sap(0x40), mac: B, remote: sap(0x40) };
    let mut now = at(300_000);
    stations[0].send_datagram(peer, 0, 5, now).unwrap();
    let mut deliveries = 0;
    for attempt in 0..4 {
        now = stations[0].next_deadline().unwrap().max(now);
        stations[0].handle_timeout(now);
        let Some(transmit) = stations[0].poll_transmit(now) else { continue };
        let bytes = [transmit.header.as_bytes(), &[5]].concat();
        let handled = stations[1].handle_frame(A, B, &bytes, &[], now);
        deliveries += usize::from(handled.delivery.is_some());
        if attempt == 3 {
            stations[0].handle_frame(B, A, handled.reply.unwrap().header.as_bytes(), &[], now);
        }
    }
    assert_eq!((deliveries, stations[1].counters().repeated_datagrams), (1, 3));
    assert!(matches!(events(&mut stations[0])[..], [StationEvent::Datagram(_, 5, DatagramOutcome::Answered(_))]));
}

#[test]
fn unacknowledged_datagram_fails_in_bounded_time() {
    let mut station = station(&StationConfig::default());
    let peer = Peer { local: sap(0x40), mac: B, remote: sap(0x40) };
    station.send_datagram(peer, 0, 5, at(0)).unwrap();
    let (mut now, mut sent, mut outcomes) = (at(0), 0, Vec::new());
    while let Some(deadline) = station.next_deadline() {
        now = deadline.max(now);
        station.handle_timeout(now);
        sent += core::iter::from_fn(|| station.poll_transmit(now).map(drop)).count();
        outcomes.extend(events(&mut station));
    }
    assert_eq!(sent, 1 + usize::from(bounds::DATAGRAM_RETRIES));
    assert_eq!(outcomes, [StationEvent::Datagram(peer, 5, DatagramOutcome::NoAnswer)]);
    assert!(now < at(600_000), "its state expires: {now:?}");
}

#[test]
fn datagrams_from_many_peers_take_bounded_memory() {
    let mut station = station(&StationConfig { datagram_peers: 16, ..Default::default() });
    for number in 0..10_000u32 {
        let [_, a, b, c] = number.to_be_bytes();
        let ac = frame(Body::AcCommand { poll: false, sequence: number % 2 == 0, information: b"x" }, 0x40, 0x42);
        let handled = station.handle_frame([2, 2, 2, a, b, c], B, &ac, &[], at(u64::from(number)));
        assert!(handled.delivery.is_some() && handled.reply.is_some());
    }
}

#[test]
fn ended_connection_with_unpolled_events_does_not_block_the_next() {
    let (mut stations, [a, _]) = connected();
    stations[0].abort(a, at(1));
    exchange(&mut stations, at(1));
    // Station 1 has not polled its Disconnected event.
    events(&mut stations[0]);
    let again = stations[0].connect(Peer { local: sap(0x40), mac: B, remote: sap(0x40) }, 0, at(2)).unwrap();
    exchange(&mut stations, at(2));
    let reported = events(&mut stations[1]);
    let Some(StationEvent::Connection(handle, ConnectionEvent::Incoming)) = reported.last() else {
        panic!("{reported:?}")
    };
    stations[1].accept(*handle, at(2));
    exchange(&mut stations, at(2));
    assert_eq!(events(&mut stations[0]), [StationEvent::Connection(again, ConnectionEvent::Connected)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Frames of any content, some of them to open connections, with time passing in between, neither panic a station
    /// nor make it grow.
    #[test]
    fn any_frames_are_survived(
        frames in prop::collection::vec((0u8..4, prop::collection::vec(any::<u8>(), 0..12), 0u64..3000), 0..300),
    ) {
        let config = StationConfig { connections: 8, backlog: 4, datagram_peers: 4, ..Default::default() };
        let mut station = station(&config);
        let mut now = at(0);
        for (mac, mut bytes, microseconds) in frames {
            // Most frames get valid addresses, so that they reach a connection.
            if mac > 0 && bytes.len() >= 2 {
                bytes[0] = 0x40;
                bytes[1] = 0x40 | bytes[1] & 3;
            }
            now = now.after(microseconds * 1000);
            station.handle_timeout(now);
            let _ = station.handle_frame([2, 0, 0, 0, 0, mac], B, &bytes, &[], now);
            if mac == 3 {
                let peer = Peer { local: sap(0x40), mac: [2, 0, 0, 0, 0, 2], remote: sap(0x42) };
                let _ = station.connect(peer, 0, now);
                let _ = station.send_datagram(peer, 0, 1, now);
            }
            while station.poll_transmit(now).is_some() {}
            while let Some(event) = station.poll_event() {
                if let StationEvent::Connection(handle, event) = event {
                    match event {
                        ConnectionEvent::Incoming => _ = station.accept(handle, now),
                        ConnectionEvent::Reset(_) => {
                            let _ = station.accept_reset(handle, now) || station.reset(handle, now);
                        }
                        _ => _ = station.send(handle, 3, now),
                    }
                }
            }
            prop_assert!(station.connections() <= 8);
        }
    }
}
