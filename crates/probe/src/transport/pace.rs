// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps a sender without flow control from sending faster than a link carries.

use barewire_recorder::clock::now_ns;

/// Allows wire bits at a rate, with little memory of unused time.
#[derive(Debug, Default)]
pub struct Pacer {
    ns_per_byte: f64,
    due_ns: f64,
}

/// A sender that was held up may catch up on this much: what the queue of a shaped link takes at once.
const CATCH_UP_NS: f64 = 500_000.0;

impl Pacer {
    pub fn set(&mut self, bit_s: Option<f64>) {
        *self = Self { ns_per_byte: bit_s.map_or(0.0, |rate| 8e9 / rate), due_ns: 0.0 };
    }

    pub fn is_off(&self) -> bool {
        self.ns_per_byte == 0.0
    }

    /// Whether the next part may go.
    #[inline]
    pub fn allows(&self) -> bool {
        self.is_off() || now_ns() as f64 >= self.due_ns
    }

    /// Notes that `wire_bytes` went.
    #[inline]
    pub fn sent(&mut self, wire_bytes: usize) {
        if !self.is_off() {
            self.due_ns = self.due_ns.max(now_ns() as f64 - CATCH_UP_NS) + wire_bytes as f64 * self.ns_per_byte;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paced_sender_gets_the_rate_that_was_set() {
        let mut pacer = Pacer::default();
        pacer.set(Some(1e9));
        let began = now_ns();
        for _ in 0..1000 {
            while !pacer.allows() {}
            pacer.sent(1538);
        }
        while !pacer.allows() {}
        let took_ns = now_ns() - began;
        // 1000 full frames last 12.304 ms at 1 Gb/s, less what may be caught up on at the start.
        assert!(took_ns >= 12_304_000 - 500_000 - 13_000, "{took_ns}");
    }

    #[test]
    fn without_a_rate_everything_goes_at_once() {
        let mut pacer = Pacer::default();
        pacer.sent(1 << 30);
        assert!(pacer.allows());
    }
}
