// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fault injection: a link that drops frames in both directions.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use barewire_link::{Clock, Counters, Incoming, Link, LinkError, MacAddress, Outgoing};

/// Drops each frame with probability `loss`, from a seeded generator.
pub struct Lossy<L> {
    link: L,
    loss: f64,
    generator: fastrand::Rng,
    /// Dropped outgoing frames. Dropped incoming frames are not counted.
    pub dropped: u64,
}

impl<L: Link> Lossy<L> {
    pub fn new(link: L, loss: f64, seed: u64) -> Self {
        Self { link, loss, generator: fastrand::Rng::with_seed(seed), dropped: 0 }
    }

    fn is_lost(&mut self) -> bool {
        self.loss > 0.0 && self.generator.f64() < self.loss
    }
}

impl<L: Link> Link for Lossy<L> {
    fn address(&self) -> MacAddress {
        self.link.address()
    }

    fn mtu(&self) -> usize {
        self.link.mtu()
    }

    /// A dropped frame counts as sent.
    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        if self.loss == 0.0 {
            return self.link.send(frames);
        }
        for (taken, frame) in frames.iter().enumerate() {
            if self.is_lost() {
                self.dropped += 1;
            } else if self.link.send(std::slice::from_ref(frame))? == 0 {
                return Ok(taken);
            }
        }
        Ok(frames.len())
    }

    fn receive(&mut self) -> Option<Incoming<'_>> {
        // Drawn before it is known whether a frame is there; each frame is still dropped with the same probability.
        while self.is_lost() {
            self.link.receive()?;
        }
        self.link.receive()
    }

    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        self.link.wait_to_receive_or(others, timeout)
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        self.link.wait_to_send(timeout)
    }

    fn check(&mut self) -> Result<(), LinkError> {
        self.link.check()
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        self.link.counters()
    }

    fn clock(&self) -> Clock {
        self.link.clock()
    }

    fn random_bits(&mut self) -> u64 {
        self.link.random_bits()
    }
}

#[cfg(test)]
mod tests {
    use barewire_link::{Faults, MemoryLink};

    use super::*;

    /// How many of 1000 frames arrive.
    fn arrived(sender_loss: f64, receiver_loss: f64, seed: u64) -> usize {
        let (a, b) = MemoryLink::pair(1500, Faults::default(), 0);
        let (mut a, mut b) = (Lossy::new(a, sender_loss, seed), Lossy::new(b, receiver_loss, seed));
        let frames = vec![Outgoing { header: &[0; 60], payload: &[], label: 0 }; 1000];
        assert_eq!(a.send(&frames).unwrap(), 1000);
        std::iter::from_fn(|| b.receive().map(|_| ())).count()
    }

    #[test]
    fn frames_are_dropped_on_send_and_on_receive() {
        for (out, back) in [(0.1, 0.0), (0.0, 0.1)] {
            assert!((850..950).contains(&arrived(out, back, 7)), "{}", arrived(out, back, 7));
            assert_eq!(arrived(out, back, 7), arrived(out, back, 7));
        }
        assert_eq!(arrived(0.0, 0.0, 7), 1000);
    }
}
