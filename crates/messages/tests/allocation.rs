// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Short expected messages allocate nothing, on either side.

#[path = "messages/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use barewire_link::Faults;
use barewire_llc::ConnectionConfig;
use barewire_messages::{CompletionLevel, Config, SendOptions};
use common::*;

thread_local! {
    /// Per thread: the test harness has a thread of its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: forwards all calls to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; `alloc` got it from there.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_short_expected_message_allocates_nothing() {
    // No retransmissions when the test loses its core: they would put more frames on the wire than ever before.
    let patient = ConnectionConfig {
        t1_min: Duration::from_secs(1),
        t1_initial: Duration::from_secs(1),
        ..ConnectionConfig::default()
    };
    let wire = wire(Config::default(), &patient, Faults::default(), 1);
    for (carrier, mut pair) in [("wire", wire), ("host", host(Config::default()))] {
        let [to, from] = add_peers(&mut pair);
        let (message, mut memory) = ([7; 8], [0; 8]);
        let mut exchange = |level| {
            receive(&mut pair[1], exactly(from, 1), &mut memory, 1);
            send(&mut pair, 0, to, tagged(1), &message, SendOptions { level, ..SendOptions::default() });
            completion(&mut pair, 1);
            completion(&mut pair, 0);
        };
        for level in [CompletionLevel::Inject, CompletionLevel::Transmit, CompletionLevel::Delivery] {
            (0..2000).for_each(|_| exchange(level));
            let before = ALLOCATIONS.get();
            (0..2000).for_each(|_| exchange(level));
            assert_eq!(ALLOCATIONS.get() - before, 0, "{carrier}, {level:?}");
        }
    }
}
