// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An in-memory link with faults, between two ends in one process: for tests, and for two threads of a program.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::{Counters, ETHERNET_HEADER_BYTES, Incoming, Link, LinkError, MacAddress, Outgoing};

/// Faults injected into a link, drawn from a seeded generator: the same seed and the same
/// calls give the same faults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame arrives twice.
    pub duplication: f64,
    /// Probability that a frame overtakes the previous one.
    pub reordering: f64,
    /// Probability that one bit of a frame is flipped.
    pub corruption: f64,
    /// Delay of each frame, in calls of `receive`.
    pub delay_calls: u64,
}

/// One end of an in-memory link.
pub struct MemoryLink {
    address: MacAddress,
    mtu: usize,
    outbound: Arc<Direction>,
    inbound: Arc<Direction>,
    /// The frame lent to the caller; its buffer is reused.
    lent: Vec<u8>,
    counters: Counters,
}

/// Capacity of one direction in frames; more are refused, as by a full transmit queue.
const QUEUE_FRAMES: usize = 4096;

struct Direction {
    wire: Mutex<Wire>,
    changed: Condvar,
}

struct Wire {
    frames: VecDeque<InFlight>,
    /// Buffers for reuse, so that a running link does not allocate.
    spare: Vec<Vec<u8>>,
    calls: u64,
    generator: fastrand::Rng,
    faults: Faults,
    closed: bool,
}

struct InFlight {
    bytes: Vec<u8>,
    due_call: u64,
}

impl MemoryLink {
    /// Both ends of a link, with addresses 02:00:00:00:00:01 and :02.
    #[must_use]
    pub fn pair(mtu: usize, faults: Faults, seed: u64) -> (Self, Self) {
        let forward = Arc::new(Direction::new(faults, seed));
        let backward = Arc::new(Direction::new(faults, seed.wrapping_add(1)));
        let end = |last, outbound: &Arc<Direction>, inbound: &Arc<Direction>| Self {
            address: MacAddress([0x02, 0, 0, 0, 0, last]),
            mtu,
            outbound: Arc::clone(outbound),
            inbound: Arc::clone(inbound),
            lent: Vec::new(),
            counters: Counters::default(),
        };
        (end(1, &forward, &backward), end(2, &backward, &forward))
    }

    fn wait_until(direction: &Direction, timeout: Duration, ready: impl Fn(&Wire) -> bool) -> Result<bool, LinkError> {
        let (wire, _) = direction
            .changed
            .wait_timeout_while(direction.lock(), timeout, |wire| !ready(wire) && !wire.closed)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        // Frames on the wire can still be received after the other end is dropped.
        if ready(&wire) { Ok(true) } else { wire.check().map(|()| false) }
    }
}

impl Link for MemoryLink {
    fn address(&self) -> MacAddress {
        self.address
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn send(&mut self, frames: &[Outgoing<'_>]) -> Result<usize, LinkError> {
        let mut wire = self.outbound.lock();
        wire.check()?;
        let mut accepted = 0;
        for frame in frames {
            if frame.len() > self.mtu + ETHERNET_HEADER_BYTES {
                if accepted > 0 {
                    break;
                }
                return Err(LinkError::FrameTooLong { frame_bytes: frame.len(), mtu: self.mtu });
            }
            if wire.frames.len() >= QUEUE_FRAMES {
                self.counters.send_busy += 1;
                break;
            }
            wire.transmit(frame);
            accepted += 1;
        }
        self.counters.sent += accepted as u64;
        drop(wire);
        self.outbound.changed.notify_all();
        Ok(accepted)
    }

    fn receive(&mut self) -> Option<Incoming<'_>> {
        let mut wire = self.inbound.lock();
        wire.calls += 1;
        if wire.frames.front()?.due_call > wire.calls {
            return None;
        }
        let arrived = wire.frames.pop_front()?;
        let used = std::mem::replace(&mut self.lent, arrived.bytes);
        wire.spare.push(used);
        drop(wire);
        self.inbound.changed.notify_all();
        self.counters.received += 1;
        Some(Incoming { bytes: &self.lent, frame_bytes: self.lent.len(), vlan: None })
    }

    /// The link has no descriptor, so with `others` this sleeps only briefly.
    fn wait_to_receive_or(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, LinkError> {
        let timeout = if others.is_empty() { timeout } else { timeout.min(Duration::from_millis(1)) };
        Self::wait_until(&self.inbound, timeout, |wire| !wire.frames.is_empty())
    }

    fn wait_to_send(&mut self, timeout: Duration) -> Result<bool, LinkError> {
        Self::wait_until(&self.outbound, timeout, |wire| wire.frames.len() < QUEUE_FRAMES)
    }

    fn check(&mut self) -> Result<(), LinkError> {
        self.inbound.lock().check()
    }

    fn counters(&mut self) -> Result<Counters, LinkError> {
        Ok(self.counters)
    }
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        for direction in [&self.outbound, &self.inbound] {
            direction.lock().closed = true;
            direction.changed.notify_all();
        }
    }
}

impl Direction {
    fn new(faults: Faults, seed: u64) -> Self {
        let wire = Wire {
            frames: VecDeque::with_capacity(QUEUE_FRAMES + 1),
            spare: Vec::new(),
            calls: 0,
            generator: fastrand::Rng::with_seed(seed),
            faults,
            closed: false,
        };
        Self { wire: Mutex::new(wire), changed: Condvar::new() }
    }

    /// Ignores poisoning: no operation panics while the queue is inconsistent.
    fn lock(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Wire {
    fn check(&self) -> Result<(), LinkError> {
        if self.closed { Err(LinkError::InterfaceGone("memory".to_owned())) } else { Ok(()) }
    }

    fn draw(&mut self, probability: f64) -> bool {
        // Drawn also at probability 0, so that enabling one fault does not shift the others.
        self.generator.f64() < probability
    }

    fn transmit(&mut self, frame: &Outgoing<'_>) {
        let lost = self.draw(self.faults.loss);
        let duplicated = self.draw(self.faults.duplication);
        let overtakes = self.draw(self.faults.reordering);
        let corrupted = self.draw(self.faults.corruption);
        if lost {
            return;
        }
        for _ in 0..1 + u32::from(duplicated) {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(frame.header);
            bytes.extend_from_slice(frame.payload);
            if corrupted {
                let bit = self.generator.usize(0..bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            self.frames.push_back(InFlight { bytes, due_call: self.calls + self.faults.delay_calls + 1 });
        }
        let last = self.frames.len() - 1;
        if overtakes && last >= 1 {
            let due_call = self.frames[last].due_call;
            self.frames.swap(last - 1, last);
            self.frames[last - 1].due_call = self.frames[last].due_call.min(due_call);
            self.frames[last].due_call = due_call;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [u8; 14] = [0; 14];

    fn send_numbered(link: &mut MemoryLink, numbers: std::ops::Range<u16>) {
        for number in numbers {
            let payload = number.to_be_bytes();
            assert_eq!(link.send(&[Outgoing { header: &HEADER, payload: &payload, label: 0 }]).unwrap(), 1);
        }
    }

    fn received(link: &mut MemoryLink) -> Vec<u16> {
        std::iter::from_fn(|| link.receive().map(|f| u16::from_be_bytes([f.bytes[14], f.bytes[15]]))).collect()
    }

    /// Sends 1000 frames; returns the received ones.
    fn transfer(faults: Faults, seed: u64) -> Vec<u16> {
        let (mut a, mut b) = MemoryLink::pair(1500, faults, seed);
        send_numbered(&mut a, 0..1000);
        received(&mut b)
    }

    #[test]
    fn without_faults_frames_arrive_in_order_both_ways() {
        let (mut a, mut b) = MemoryLink::pair(1500, Faults::default(), 1);
        send_numbered(&mut a, 0..100);
        send_numbered(&mut b, 100..200);
        assert_eq!(received(&mut b), (0..100).collect::<Vec<_>>());
        assert_eq!(received(&mut a), (100..200).collect::<Vec<_>>());
    }

    #[test]
    fn loss_has_its_rate_and_is_reproducible_by_seed() {
        let faults = Faults { loss: 0.1, ..Faults::default() };
        let first = transfer(faults, 7);
        assert!((850..950).contains(&first.len()), "{} of 1000 frames arrived", first.len());
        assert_eq!(first, transfer(faults, 7));
        assert_ne!(first, transfer(faults, 8));
    }

    #[test]
    fn duplication_and_reordering_lose_nothing() {
        let got = transfer(Faults { duplication: 0.1, reordering: 0.1, ..Faults::default() }, 3);
        let mut distinct = got.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 1000);
        assert!(got.len() > 1050, "10 % of 1000 frames should arrive twice, {} arrived in all", got.len());
        assert!(!got.is_sorted());
    }

    #[test]
    fn corruption_flips_one_bit() {
        let (mut a, mut b) = MemoryLink::pair(1500, Faults { corruption: 1.0, ..Faults::default() }, 5);
        a.send(&[Outgoing { header: &HEADER, payload: &[0; 50], label: 0 }]).unwrap();
        let frame = b.receive().unwrap();
        assert_eq!(frame.bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    }

    #[test]
    fn delay_is_counted_in_receive_calls() {
        let (mut a, mut b) = MemoryLink::pair(1500, Faults { delay_calls: 2, ..Faults::default() }, 5);
        send_numbered(&mut a, 0..1);
        assert!(b.receive().is_none() && b.receive().is_none());
        assert!(b.receive().is_some());
    }

    #[test]
    fn frame_longer_than_the_mtu_is_refused() {
        let (mut a, _b) = MemoryLink::pair(100, Faults::default(), 1);
        let result = a.send(&[Outgoing { header: &HEADER, payload: &[0; 101], label: 0 }]);
        assert!(matches!(result, Err(LinkError::FrameTooLong { frame_bytes: 115, mtu: 100 })));
    }

    #[test]
    fn full_wire_refuses_frames_and_counts_it() {
        let (mut a, mut b) = MemoryLink::pair(1500, Faults::default(), 1);
        let frames = vec![Outgoing { header: &HEADER, payload: &[0; 2], label: 0 }; QUEUE_FRAMES + 10];
        assert_eq!(a.send(&frames).unwrap(), QUEUE_FRAMES);
        assert!(!a.wait_to_send(Duration::ZERO).unwrap());
        assert!(b.receive().is_some());
        assert!(a.wait_to_send(Duration::ZERO).unwrap());
        assert_eq!(a.counters().unwrap().send_busy, 1);
    }

    #[test]
    fn waiting_end_wakes_for_a_frame_and_when_its_peer_is_dropped() {
        let (mut a, mut b) = MemoryLink::pair(1500, Faults::default(), 1);
        let waiter = std::thread::spawn(move || {
            assert!(b.wait_to_receive(Duration::from_secs(10)).unwrap());
            assert!(b.receive().is_some());
            b.wait_to_receive(Duration::from_secs(10))
        });
        send_numbered(&mut a, 0..1);
        drop(a);
        assert!(matches!(waiter.join().unwrap(), Err(LinkError::InterfaceGone(_))));
    }
}
