// SPDX-License-Identifier: Apache-2.0 OR MIT
//! I PDUs per second on one core: the engine alone, without framing and payload.

#![allow(missing_docs)] // criterion's macros

use std::hint::black_box;
use std::time::Duration;

use barewire_llc::*;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// PDUs per iteration: whole cycles of sequence numbers.
const BATCH: usize = 1280;
const MACS: [Mac; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn receiving(criterion: &mut Criterion) {
    let (sap, mut now) = (Lsap::SNAP, Instant::default());
    let config = ConnectionConfig { inactivity: None, ..Default::default() };
    let frames: Vec<[u8; 64]> = (0..128u8)
        .map(|number| {
            let mut frame = [0; 64];
            frame[..4].copy_from_slice(&[0xaa, 0xaa, number << 1, 0]);
            frame
        })
        .collect();
    let mut connection: Connection<u32> = Connection::new(&config, sap, sap, now).unwrap();
    connection.handle_pdu(&Pdu::decode(&[0xaa, 0xaa, 0x7f]).unwrap(), now);
    assert!(connection.accept(now));
    let mut group = criterion.benchmark_group("receive");
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function("connection: decode, handle, acknowledge", |bencher| {
        bencher.iter(|| {
            for frame in frames.iter().cycle().take(BATCH) {
                now = now + Duration::from_nanos(40);
                let pdu = Pdu::decode(black_box(frame)).unwrap();
                assert!(connection.handle_pdu(&pdu, now).is_some());
                black_box(connection.poll_transmit(now));
            }
        });
    });
    let mut station: Station<u32> = Station::new(&StationConfig::default(), now).unwrap();
    station.activate(sap);
    station.listen(sap, true);
    station.handle_frame(MACS[0], MACS[1], &[0xaa, 0xaa, 0x7f], &[], now);
    let Some(StationEvent::Connection(handle, ConnectionEvent::Incoming)) = station.poll_event() else { return };
    assert!(station.accept(handle, now));
    group.bench_function("station: decode, find, handle, acknowledge", |bencher| {
        bencher.iter(|| {
            for frame in frames.iter().cycle().take(BATCH) {
                now = now + Duration::from_nanos(40);
                let handled = station.handle_frame(MACS[0], MACS[1], black_box(frame), &[], now);
                assert!(handled.delivery.is_some());
                black_box(station.poll_transmit(now));
                if station.next_deadline().is_some_and(|deadline| deadline <= now) {
                    station.handle_timeout(now);
                }
            }
        });
    });
}

/// Both ends: each PDU is queued, sent, received and acknowledged, and its token returned.
fn streaming(criterion: &mut Criterion) {
    let mut now = Instant::default();
    let Pair { mut a, mut b, at_a: handle, .. } = connected(now);
    let mut group = criterion.benchmark_group("stream");
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function("two stations: send to acknowledged", |bencher| {
        bencher.iter(|| {
            let mut acknowledged = 0;
            while acknowledged < BATCH {
                now = now + Duration::from_nanos(640);
                for token in 0..16 {
                    assert!(a.send(handle, token, now).is_ok());
                }
                while let Some(transmit) = a.poll_transmit(now) {
                    black_box(b.handle_frame(MACS[0], MACS[1], transmit.header.as_bytes(), &[], now));
                }
                while let Some(transmit) = b.poll_transmit(now) {
                    a.handle_frame(MACS[1], MACS[0], transmit.header.as_bytes(), &[], now);
                }
                while let Some(event) = a.poll_event() {
                    acknowledged +=
                        usize::from(matches!(event, StationEvent::Connection(_, ConnectionEvent::Acknowledged(_))));
                }
                a.handle_timeout(now);
                b.handle_timeout(now);
            }
        });
    });
}

/// Both ends alternately: one PDU, and one back that acknowledges it, as between two programs that wait for each other.
fn pingpong(criterion: &mut Criterion) {
    let mut now = Instant::default();
    let Pair { mut a, mut b, at_a, at_b } = connected(now);
    let mut group = criterion.benchmark_group("pingpong");
    group.throughput(Throughput::Elements(2));
    group.bench_function("two stations: round trip of a PDU", |bencher| {
        bencher.iter(|| {
            now = now + Duration::from_nanos(1800);
            transfer_one(&mut a, at_a, &mut b, MACS, now);
            transfer_one(&mut b, at_b, &mut a, [MACS[1], MACS[0]], now);
        });
    });
}

#[inline]
fn transfer_one(
    from: &mut Station<u32>,
    handle: ConnectionHandle,
    to: &mut Station<u32>,
    [sender, receiver]: [Mac; 2],
    now: Instant,
) {
    assert!(from.send(handle, 1, now).is_ok());
    let transmit = from.poll_transmit(now).unwrap();
    let handled = to.handle_frame(sender, receiver, black_box(transmit.header.as_bytes()), &[], now);
    assert!(handled.delivery.is_some());
    black_box(to.poll_event());
}

struct Pair {
    a: Station<u32>,
    b: Station<u32>,
    at_a: ConnectionHandle,
    at_b: ConnectionHandle,
}

fn connected(now: Instant) -> Pair {
    let (sap, config) = (Lsap::SNAP, StationConfig::default());
    let [mut a, mut b] = MACS.map(|_| {
        let mut station: Station<u32> = Station::new(&config, now).unwrap();
        station.activate(sap);
        station.listen(sap, true);
        station
    });
    let at_a = a.connect(Peer { local: sap, mac: MACS[1], remote: sap }, 0, now).unwrap();
    let sabme = a.poll_transmit(now).unwrap().header;
    b.handle_frame(MACS[0], MACS[1], sabme.as_bytes(), &[], now);
    let Some(StationEvent::Connection(at_b, ConnectionEvent::Incoming)) = b.poll_event() else {
        panic!("no connection request")
    };
    assert!(b.accept(at_b, now));
    let ua = b.poll_transmit(now).unwrap().header;
    a.handle_frame(MACS[1], MACS[0], ua.as_bytes(), &[], now);
    assert!(matches!(a.poll_event(), Some(StationEvent::Connection(_, ConnectionEvent::Connected))));
    Pair { a, b, at_a, at_b }
}

criterion_group!(benches, receiving, streaming, pingpong);
criterion_main!(benches);
