// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link that is one of several kinds, known at run time.

/// Implements [`Link`](crate::Link) for an enum of links by the calls of whichever link it is:
/// `link_by_kind!(AnyLink: Packet | Udp)`.
///
/// Code that is generic over links is then compiled once for all of them; the dispatch has no measurable cost
/// (`docs/performance.md`).
#[macro_export]
macro_rules! link_by_kind {
    ($type:ident: $($kind:ident)|+) => {
        impl $crate::Link for $type {
            fn address(&self) -> $crate::MacAddress {
                match self { $(Self::$kind(link) => link.address()),+ }
            }

            fn mtu(&self) -> usize {
                match self { $(Self::$kind(link) => link.mtu()),+ }
            }

            #[inline]
            fn send(&mut self, frames: &[$crate::Outgoing<'_>]) -> Result<usize, $crate::LinkError> {
                match self { $(Self::$kind(link) => link.send(frames)),+ }
            }

            #[inline]
            fn receive(&mut self) -> Option<$crate::Incoming<'_>> {
                match self { $(Self::$kind(link) => link.receive()),+ }
            }

            fn wait_to_receive_or(
                &mut self,
                others: &[::std::os::fd::BorrowedFd<'_>],
                timeout: ::std::time::Duration,
            ) -> Result<bool, $crate::LinkError> {
                match self { $(Self::$kind(link) => link.wait_to_receive_or(others, timeout)),+ }
            }

            fn wait_to_send(&mut self, timeout: ::std::time::Duration) -> Result<bool, $crate::LinkError> {
                match self { $(Self::$kind(link) => link.wait_to_send(timeout)),+ }
            }

            fn check(&mut self) -> Result<(), $crate::LinkError> {
                match self { $(Self::$kind(link) => link.check()),+ }
            }

            fn counters(&mut self) -> Result<$crate::Counters, $crate::LinkError> {
                match self { $(Self::$kind(link) => link.counters()),+ }
            }

            fn is_local(&self, peer: $crate::MacAddress) -> bool {
                match self { $(Self::$kind(link) => link.is_local(peer)),+ }
            }

            fn locator(&self) -> $crate::Locator {
                match self { $(Self::$kind(link) => link.locator()),+ }
            }

            fn set_station(&mut self, sap: u8, key: u64) {
                match self { $(Self::$kind(link) => link.set_station(sap, key)),+ }
            }

            fn add_peer(&mut self, peer: &$crate::PeerAddress) {
                match self { $(Self::$kind(link) => link.add_peer(peer)),+ }
            }

            #[inline]
            fn mtu_to(&mut self, mac: $crate::MacAddress, sap: u8) -> usize {
                match self { $(Self::$kind(link) => link.mtu_to(mac, sap)),+ }
            }

            fn mtu_min(&self) -> usize {
                match self { $(Self::$kind(link) => link.mtu_min()),+ }
            }

            #[inline]
            fn note_time(&mut self, nanoseconds: u64) {
                match self { $(Self::$kind(link) => link.note_time(nanoseconds)),+ }
            }

            fn next_deadline(&self) -> Option<u64> {
                match self { $(Self::$kind(link) => link.next_deadline()),+ }
            }

            fn send_due(&mut self) {
                match self { $(Self::$kind(link) => link.send_due()),+ }
            }

            fn has_pending(&self) -> bool {
                match self { $(Self::$kind(link) => link.has_pending()),+ }
            }

            fn clock(&self) -> $crate::Clock {
                match self { $(Self::$kind(link) => link.clock()),+ }
            }

            fn random_bits(&mut self) -> u64 {
                match self { $(Self::$kind(link) => link.random_bits()),+ }
            }
        }
    };
}
