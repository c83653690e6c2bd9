// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits the rate of a sender without flow control.

use barewire_recorder::clock::now_ns;

/// Rate limiter with a small burst allowance.
#[derive(Debug, Default)]
pub struct Pacer {
    ns_per_byte: f64,
    due_ns: f64,
}

/// Burst allowance after a stall: what the queue of a shaped link holds.
const CATCH_UP_NS: f64 = 500_000.0;

impl Pacer {
    pub fn set(&mut self, bit_s: Option<f64>) {
        *self = Self { ns_per_byte: bit_s.map_or(0.0, |rate| 8e9 / rate), due_ns: 0.0 };
    }

    pub fn is_off(&self) -> bool {
        self.ns_per_byte == 0.0
    }

    /// Whether the next frame may be sent.
    #[inline]
    pub fn allows(&self) -> bool {
        self.is_off() || now_ns() as f64 >= self.due_ns
    }

    /// Accounts for `wire_bytes` sent.
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
    fn a_paced_sender_keeps_the_rate() {
        let mut pacer = Pacer::default();
        pacer.set(Some(1e9));
        let began = now_ns();
        for _ in 0..1000 {
            while !pacer.allows() {}
            pacer.sent(1538);
        }
        while !pacer.allows() {}
        let took_ns = now_ns() - began;
        // 1000 full frames take 12.304 ms at 1 Gb/s, less the burst allowance at the start.
        assert!(took_ns >= 12_304_000 - 500_000 - 13_000, "{took_ns}");
    }

    #[test]
    fn without_a_rate_nothing_is_delayed() {
        let mut pacer = Pacer::default();
        pacer.sent(1 << 30);
        assert!(pacer.allows());
    }
}
