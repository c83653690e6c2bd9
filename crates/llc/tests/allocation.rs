// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processing a PDU does not allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use barewire_llc::*;

/// Counts the allocations of each thread.
struct CountingAllocator;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the allocator's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MACS: [Mac; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Moves all frames from one station to the other without allocating; drops every `lose`th.
fn transfer(stations: &mut [Station<u32>; 2], from: usize, now: Instant, count: &mut u64, lose: u64) {
    let [a, b] = stations;
    let (sender, receiver) = if from == 0 { (a, b) } else { (b, a) };
    let mut frame = [0; 12];
    while let Some(transmit) = sender.poll_transmit(now) {
        let header = transmit.header.as_bytes();
        frame[..header.len()].copy_from_slice(header);
        let length = header.len() + if transmit.token.is_some() { 4 } else { 0 };
        *count += 1;
        if !count.is_multiple_of(lose) {
            receiver.handle_frame(MACS[from], transmit.destination, &frame[..length], &[], now);
        }
    }
}

/// Counts allocations during 500,000 acknowledged I PDUs over a connection with loss.
#[test]
fn no_pdu_allocates() {
    let sap = Lsap::new(0x42).unwrap();
    let mut now = Instant::default();
    let mut stations = MACS.map(|_| Station::<u32>::new(&StationConfig::default(), now).unwrap());
    for station in &mut stations {
        station.activate(sap);
        station.listen(sap, true);
    }
    let connection = stations[0].connect(Peer { local: sap, mac: MACS[1], remote: sap }, 0, now).unwrap();
    let (mut count, mut acknowledged) = (0, 0);
    while acknowledged < 500_000 {
        for from in [0, 1] {
            transfer(&mut stations, from, now, &mut count, 997);
            while let Some(event) = stations[from].poll_event() {
                match event {
                    StationEvent::Connection(handle, ConnectionEvent::Incoming) => {
                        stations[from].accept(handle, now);
                    }
                    StationEvent::Connection(_, ConnectionEvent::Acknowledged(_)) => {
                        if acknowledged == 0 {
                            ALLOCATIONS.set(0); // set-up may allocate
                        }
                        acknowledged += 1;
                    }
                    _ => {}
                }
            }
        }
        while stations[0].send(connection, 1, now).is_ok() {}
        now = now + std::time::Duration::from_micros(20);
        stations.iter_mut().for_each(|station| station.handle_timeout(now));
    }
    assert_eq!(ALLOCATIONS.get(), 0);
    assert!(stations[0].connection(connection).unwrap().counters().recoveries > 100);
}
