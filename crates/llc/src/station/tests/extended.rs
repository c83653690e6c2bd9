// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Extended stations.

use super::*;
use crate::config::ConnectionConfig;

fn extended() -> [Station<u32>; 2] {
    let connection = ConnectionConfig { is_extended: true, ..Default::default() };
    [1, 2].map(|hash_seed| station(&StationConfig { connection: connection.clone(), hash_seed, ..Default::default() }))
}

fn states(stations: &[Station<u32>; 2], handles: [ConnectionHandle; 2]) -> [Option<State>; 2] {
    [0, 1].map(|end| stations[end].connection(handles[end]).map(Connection::state))
}

/// Proves that a poll that was delayed until its numbers came round, in a queue of a path that was down, does not end
/// its own connection, and that a poll of another connection is answered with DM.
#[test]
fn late_poll_is_ignored_and_one_of_another_connection_is_answered() {
    for (count, is_information) in [8193, 16_384, 20_000].into_iter().flat_map(|count| [(count, true), (count, false)])
    {
        let (mut stations, handles @ [a, b]) = connect(extended());
        stations[0].send(a, 0, at(0)).unwrap();
        if !is_information {
            exchange(&mut stations, at(0));
        }
        stations[0].request_ack(a, at(0));
        let (mut llc, mut trailer) = encode(&stations[0].poll_transmit(at(0)).unwrap());
        let poll = Pdu::decode(&llc).unwrap();
        assert_eq!((poll.role(), poll.poll_final()), (Role::Command, true));
        assert_eq!(matches!(poll.body, Body::I { .. }), is_information);
        stations[1].handle_frame(A, B, &llc, &trailer, at(0));
        for number in 1..=count {
            stations[0].send(a, number, at(0)).unwrap();
            stations[1].send(b, number, at(0)).unwrap();
            if number == count {
                stations[1].request_ack(b, at(0));
            }
            exchange(&mut stations, at(0));
            stations.iter_mut().for_each(|station| drop(events(station)));
        }

        let handled = stations[1].handle_frame(A, B, &llc, &trailer, at(0));
        assert_eq!(handled, Handled::default(), "{count}, {is_information}");
        assert_eq!(stations[1].connection(b).unwrap().counters().unauthenticated, 1, "{count}, {is_information}");

        let mark = if is_information { &mut llc[4 + extension::CHECK] } else { &mut trailer[extension::CHECK] };
        *mark ^= 0x80;
        let reply = stations[1].handle_frame(A, B, &llc, &trailer, at(0)).reply.unwrap();
        assert_eq!(reply.header.as_bytes(), [0x40, 0x41, 0x1f]);
        stations[0].handle_frame(B, A, reply.header.as_bytes(), &guarded(&reply.extra), at(0));
        assert_eq!(states(&stations, handles), [Some(State::Normal); 2], "{count}, {is_information}");
        stations[0].send(a, 7, at(0)).unwrap();
        assert_eq!(exchange(&mut stations, at(0))[1], [7u32.to_be_bytes()]);
    }
}

/// Of two extended stations: a SABME with a new nonce shows that the peer has left the connection.
#[test]
fn peer_connects_again_although_its_answer_to_disc_was_lost() {
    for is_extended in [true, false] {
        let (mut stations, [a, _]) = connect(if is_extended { extended() } else { pair() });
        assert!(stations[0].disconnect(a, at(1)));
        let (llc, trailer) = encode(&stations[0].poll_transmit(at(1)).unwrap());
        stations[1].handle_frame(A, B, &llc, &trailer, at(1));
        assert_eq!(stations[1].poll_transmit(at(1)).unwrap().header.as_bytes()[2], 0x73, "UA");
        events(&mut stations[1]);

        let again = stations[1].connect(Peer { local: sap(0x40), mac: A, remote: sap(0x40) }, 0, at(2)).unwrap();
        exchange(&mut stations, at(2));
        let disconnected = |handle, cause| [StationEvent::Connection(handle, ConnectionEvent::Disconnected(cause))];
        assert_eq!(events(&mut stations[0]), disconnected(a, Cause::Requested));
        if !is_extended {
            assert_eq!(events(&mut stations[1]), disconnected(again, Cause::PeerRefused), "as IEEE 802.2 requires");
            continue;
        }
        assert_eq!(events(&mut stations[1]), []);
        let now = stations[1].exact_deadline().unwrap();
        stations[1].handle_timeout(now);
        exchange(&mut stations, now);
        let [StationEvent::Connection(incoming, ConnectionEvent::Incoming)] = events(&mut stations[0])[..] else {
            panic!("no request")
        };
        assert!(stations[0].accept(incoming, now));
        exchange(&mut stations, now);
        assert_eq!(events(&mut stations[1]), [StationEvent::Connection(again, ConnectionEvent::Connected)]);
        assert_eq!(states(&stations, [incoming, again]), [Some(State::Normal); 2]);
    }
}

const TO_A: Peer = Peer { local: Lsap::SNAP, mac: A, remote: Lsap::SNAP };

/// Two stations with keys of their own, of which the first has connected to the second; then a successor replaces the
/// second and connects with another key.
fn with_successor(disconnects: bool) -> ([Station<u32>; 2], [ConnectionHandle; 2]) {
    let connection = ConnectionConfig { is_extended: true, ..Default::default() };
    let keyed = |key| {
        let config = StationConfig {
            connection: connection.clone(),
            hash_seed: key,
            key,
            sends_key: true,
            ..Default::default()
        };
        let mut station: Station<u32> = Station::new(&config, at(0)).unwrap();
        station.activate(Lsap::SNAP);
        station.listen(Lsap::SNAP, true);
        station
    };
    let mut stations = [keyed(10), keyed(20)];
    let a = stations[0].connect(TO_B, 20, at(0)).unwrap();
    exchange(&mut stations, at(0));
    let Some(StationEvent::Connection(b, ConnectionEvent::Incoming)) = stations[1].poll_event() else { panic!() };
    assert!(stations[1].accept(b, at(0)));
    exchange(&mut stations, at(0));
    events(&mut stations[0]);
    if disconnects {
        assert!(stations[0].disconnect(a, at(1)));
        while stations[0].poll_transmit(at(1)).is_some() {}
    }
    stations[1] = keyed(30);
    let b = stations[1].connect(TO_A, 10, at(2)).unwrap();
    (stations, [a, b])
}

/// Lets time pass until the first station has an event; returns it and its time. The second one has none.
fn first_event(stations: &mut [Station<u32>; 2], mut now: Instant) -> (StationEvent<u32>, Instant) {
    for _ in 0..1000 {
        exchange(stations, now);
        assert_eq!(events(&mut stations[1]), []);
        if let Some(event) = stations[0].poll_event() {
            return (event, now);
        }
        now = stations.iter_mut().filter_map(Station::exact_deadline).min().unwrap().max(now);
        stations.iter_mut().for_each(|station| station.handle_timeout(now));
    }
    panic!("nothing happens");
}

/// Proves that a set-up with a station whose successor has its address ends soon after the successor repeats its SABME,
/// which is then accepted.
#[test]
fn successor_is_accepted_during_set_up() {
    let (mut stations, [_, b]) = with_successor(false);
    // The first station begins anew with the one that is gone.
    let connection = ConnectionConfig { is_extended: true, ..Default::default() };
    let config = StationConfig { connection, hash_seed: 11, key: 10, sends_key: true, ..Default::default() };
    stations[0] = Station::new(&config, at(2)).unwrap();
    stations[0].activate(Lsap::SNAP);
    stations[0].listen(Lsap::SNAP, true);
    let a = stations[0].connect(TO_B, 20, at(2)).unwrap();
    let (event, now) = first_event(&mut stations, at(2));
    assert_eq!(event, StationEvent::Connection(a, ConnectionEvent::Disconnected(Cause::PeerReset)));
    assert!(at(10_000) < now && now < at(1_000_000), "{now:?}");
    let (event, now) = first_event(&mut stations, now);
    let StationEvent::Connection(incoming, ConnectionEvent::Incoming) = event else { panic!("{event:?}") };
    assert!(stations[0].accept(incoming, now));
    exchange(&mut stations, now);
    assert_eq!(events(&mut stations[1]), [StationEvent::Connection(b, ConnectionEvent::Connected)]);
    assert_eq!(states(&stations, [incoming, b]), [Some(State::Normal); 2]);
}

/// Proves that a successor at a peer's address is accepted soon, whether its predecessor's connection is established or
/// being ended, and that it is not refused meanwhile.
#[test]
fn successor_is_accepted() {
    for disconnects in [false, true] {
        let (mut stations, [a, b]) = with_successor(disconnects);
        let (mut event, mut now) = first_event(&mut stations, at(2));
        if !disconnects {
            assert_eq!(event, StationEvent::Connection(a, ConnectionEvent::Reset(Cause::PeerReset)));
            assert!(stations[0].connection(a).unwrap().is_reset_by_successor());
            assert!(stations[0].abort(a, now));
            (event, now) = first_event(&mut stations, now);
        }
        assert_eq!(event, StationEvent::Connection(a, ConnectionEvent::Disconnected(Cause::Requested)));
        let (event, now) = first_event(&mut stations, now);
        let StationEvent::Connection(incoming, ConnectionEvent::Incoming) = event else { panic!("{event:?}") };
        assert!(now < at(1_000_000), "{now:?}");
        assert!(stations[0].accept(incoming, now));
        exchange(&mut stations, now);
        assert_eq!(events(&mut stations[1]), [StationEvent::Connection(b, ConnectionEvent::Connected)]);
        assert_eq!(states(&stations, [incoming, b]), [Some(State::Normal); 2]);
    }
}
