// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A short message that is expected costs no allocation, at neither side.

#[path = "messages/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use barewire_link::Faults;
use barewire_llc::ConnectionConfig;
use barewire_messages::{Config, Reaches, SendOptions};
use common::*;

thread_local! {
    /// Of this thread: the test's harness has one of its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; `alloc` had it from there.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_short_expected_message_allocates_nothing() {
    // Nothing is repeated when the test loses its core: the wire would hold more frames at once than ever before.
    let patient = ConnectionConfig {
        t1_min: Duration::from_secs(1),
        t1_initial: Duration::from_secs(1),
        ..ConnectionConfig::default()
    };
    let wire = wire(Config::default(), &patient, Faults::default(), 1);
    for (carrier, mut pair) in [("wire", wire), ("host", host(Config::default()))] {
        let [to, from] = introduce(&mut pair);
        let (message, mut memory) = ([7; 8], [0; 8]);
        let mut exchange = |reaches| {
            receive(&mut pair[1], exactly(from, 1), &mut memory, 1);
            send(&mut pair, 0, to, tagged(1), &message, SendOptions { reaches, ..SendOptions::default() });
            completion(&mut pair, 1);
            completion(&mut pair, 0);
        };
        for reaches in [Reaches::Nowhere, Reaches::Endpoint, Reaches::Receive] {
            (0..2000).for_each(|_| exchange(reaches));
            let before = ALLOCATIONS.get();
            (0..2000).for_each(|_| exchange(reaches));
            assert_eq!(ALLOCATIONS.get() - before, 0, "{carrier}, {reaches:?}");
        }
    }
}
