// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interfaces of a station.

use barewire_link::MacAddress;

/// Maximum number of interfaces by which a station sends frames.
pub const INTERFACES_MAX: usize = 4;

/// An interface of a station, as listed in its probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its MAC address.
    pub mac: MacAddress,
    /// Its speed in Mbit/s; 0 if unknown.
    pub speed: u32,
}

/// Whether an interface or path may share the frames of the fastest one: a slow one delays what goes by the others,
/// because messages are delivered in order.
#[must_use]
pub const fn is_fast_enough(speed: u32, fastest: u32) -> bool {
    const SLOWEST_FRACTION: u32 = 4;
    speed >= fastest.div_ceil(SLOWEST_FRACTION)
}

/// Speed of a path between two interfaces in Mbit/s, where an unknown one is as fast as the other end; 0 if both are
/// unknown.
pub(crate) fn speed_between(own: u32, peer: u32) -> u32 {
    let [own, peer] = [own, peer].map(|speed| if speed == 0 { u32::MAX } else { speed });
    match own.min(peer) {
        u32::MAX => 0,
        speed => speed,
    }
}
