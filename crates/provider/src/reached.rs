// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which carrier reaches each peer of this process: for tools in the same process, such as the witnesses of `barewire
//! run
//! --explain`.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use barewire_carriers::{Carrier, INTERFACES_MAX};

use crate::domains;
use crate::link::AnyLink;

/// Writes a line for each endpoint of the process, `own ADDRESS`, and for each of its connected peers, `CARRIER
/// ADDRESS`. The carriers are `memory` (on this host), `frames`, `frames*N` (by N interfaces), `frames+udp` (batches by
/// UDP), `udp`, and `none` before the first answer. Returns the length of the whole text in bytes, of which at most
/// `room` bytes are written. Endpoints that another thread uses at this moment are left out.
///
/// # Safety
/// `text` must be null or have room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn barewire_reached(text: *mut u8, room: usize) -> usize {
    let Ok(all) = catch_unwind(AssertUnwindSafe(reached)) else { return 0 };
    if !text.is_null() {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(all.as_ptr(), text, all.len().min(room)) };
    }
    all.len()
}

fn reached() -> String {
    let mut text = String::new();
    for domain in domains::all() {
        let Some(mut state) = domain.try_lock() else { continue };
        for wire in state.endpoints.iter_mut().filter_map(|endpoint| endpoint.wire.as_mut()) {
            let endpoint = wire.endpoint();
            let _ = writeln!(text, "own {}", endpoint.address());
            for (peer, is_local) in endpoint.peers() {
                let carrier = if is_local { "memory" } else { name(endpoint.link(), peer) };
                let _ = writeln!(text, "{carrier} {peer}");
            }
        }
    }
    text
}

fn name(link: &AnyLink, peer: barewire_endpoint::Address) -> &'static str {
    /// By number of interfaces.
    const FRAMES: [&str; INTERFACES_MAX] = ["frames", "frames*2", "frames*3", "frames*4"];
    match link {
        AnyLink::Carriers(link) => match link.carrier_to(barewire_link::MacAddress(peer.mac), peer.sap.byte()) {
            Some((Carrier::Frames, paths)) => FRAMES[paths - 1],
            Some((Carrier::FramesAndUdp, _)) => "frames+udp",
            Some((Carrier::Udp, _)) => "udp",
            None => "none",
        },
        AnyLink::Simulated(_) => "frames",
    }
}
