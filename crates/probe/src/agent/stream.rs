// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stream of frames with a window: the sender never has more frames in flight than the window holds, so no queue
//! overflows, and what is lost was lost by the network. No I/O and no clock here.

use barewire_link::MacAddress;

/// Frames received between two acknowledgements.
const ACK_EVERY: u32 = 8;
/// Without any acknowledgement for this long, a full window or the end counts as unanswered: more than a window takes
/// at 10 Mb/s, and more than the scheduler lets an agent on a shared core wait.
const STALL_NS: u64 = 120_000_000;
/// The end is repeated after this long.
const END_REPEAT_NS: u64 = 30_000_000;

/// The sending side.
pub struct Outbound {
    pub number: u32,
    pub peer: MacAddress,
    pub bytes: usize,
    window: u32,
    began_ns: u64,
    ends_ns: u64,
    next: u32,
    acknowledged: u32,
    /// Time of the last acknowledgement, or since when one is awaited.
    progress_ns: u64,
    end_sent_ns: Option<u64>,
    pub stalls: u32,
    is_over: bool,
}

/// What an outbound stream does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send up to this many frames, numbered from `sequence`.
    Data { sequence: u32, count: u32 },
    /// Send the end, with the number of frames sent.
    End { sequence: u32 },
    /// Nothing before this time.
    Wait { until_ns: u64 },
    /// It is over.
    Over { sent: u32, nanoseconds: u64 },
}

impl Outbound {
    pub fn new(number: u32, peer: MacAddress, bytes: usize, window: u32, now_ns: u64, duration_ns: u64) -> Self {
        Self {
            number,
            peer,
            bytes,
            window,
            began_ns: now_ns,
            ends_ns: now_ns + duration_ns,
            next: 0,
            acknowledged: 0,
            progress_ns: now_ns,
            end_sent_ns: None,
            stalls: 0,
            is_over: false,
        }
    }

    pub fn step(&mut self, now_ns: u64) -> Step {
        if self.is_over {
            return Step::Over { sent: self.next, nanoseconds: now_ns.min(self.ends_ns) - self.began_ns };
        }
        let is_stalled = now_ns >= self.progress_ns + STALL_NS;
        if now_ns >= self.ends_ns {
            self.is_over |= self.end_sent_ns.is_some() && is_stalled;
            return match self.end_sent_ns {
                _ if self.is_over => self.step(now_ns),
                Some(sent_ns) if now_ns < sent_ns + END_REPEAT_NS => Step::Wait { until_ns: sent_ns + END_REPEAT_NS },
                Some(_) => Step::End { sequence: self.next },
                None => {
                    self.progress_ns = now_ns;
                    Step::End { sequence: self.next }
                }
            };
        }
        let mut in_flight = self.next - self.acknowledged;
        if in_flight >= self.window {
            if !is_stalled {
                return Step::Wait { until_ns: self.ends_ns.min(self.progress_ns + STALL_NS) };
            }
            self.stalls += 1;
            self.acknowledged = self.next;
            self.progress_ns = now_ns;
            in_flight = 0;
        }
        Step::Data { sequence: self.next, count: self.window - in_flight }
    }

    /// The link has accepted this many frames of the last step.
    pub fn sent(&mut self, count: u32) {
        self.next += count;
    }

    pub fn end_sent(&mut self, now_ns: u64) {
        self.end_sent_ns = Some(now_ns);
    }

    /// An acknowledgement of all frames before `expected`. A faulty peer may acknowledge what was never sent.
    pub fn acknowledge(&mut self, expected: u32, is_end: bool, now_ns: u64) {
        if is_end {
            self.is_over |= self.end_sent_ns.is_some();
        } else if expected > self.acknowledged && expected <= self.next {
            self.acknowledged = expected;
            self.progress_ns = now_ns;
        }
    }
}

/// The receiving side.
pub struct Inbound {
    pub received: u32,
    pub reordered: u32,
    pub first_ns: u64,
    pub last_ns: u64,
    /// Frames that this host's ring had dropped before the stream.
    pub dropped_before: u64,
    expected: u32,
}

impl Inbound {
    pub fn new(dropped_before: u64) -> Self {
        Self { received: 0, reordered: 0, first_ns: 0, last_ns: 0, dropped_before, expected: 0 }
    }

    /// Takes a frame; returns the acknowledgement that is due.
    pub fn take(&mut self, sequence: u32, now_ns: u64) -> Option<u32> {
        if self.received == 0 {
            self.first_ns = now_ns;
        }
        self.last_ns = now_ns;
        self.received += 1;
        if sequence < self.expected {
            self.reordered += 1;
        } else {
            self.expected = sequence.saturating_add(1);
        }
        self.received.is_multiple_of(ACK_EVERY).then_some(self.expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn stream(window: u32) -> Outbound {
        Outbound::new(1, MacAddress([2; 6]), 1000, window, 0, 50 * MS)
    }

    #[test]
    fn no_more_than_a_window_is_on_the_way() {
        let mut out = stream(16);
        assert_eq!(out.step(0), Step::Data { sequence: 0, count: 16 });
        out.sent(10);
        assert_eq!(out.step(1), Step::Data { sequence: 10, count: 6 });
        out.sent(6);
        assert_eq!(out.step(2), Step::Wait { until_ns: 50 * MS });
        out.acknowledge(8, false, 3);
        assert_eq!(out.step(3), Step::Data { sequence: 16, count: 8 });
        // Of frames never sent, and of old ones.
        out.acknowledge(40, false, 4);
        out.acknowledge(3, false, 4);
        assert_eq!(out.step(4), Step::Data { sequence: 16, count: 8 });
    }

    #[test]
    fn the_end_is_repeated_until_it_is_answered() {
        let mut out = stream(4);
        out.sent(4);
        assert_eq!(out.step(50 * MS), Step::End { sequence: 4 });
        out.end_sent(50 * MS);
        assert_eq!(out.step(51 * MS), Step::Wait { until_ns: 80 * MS });
        assert_eq!(out.step(80 * MS), Step::End { sequence: 4 });
        out.end_sent(80 * MS);
        out.acknowledge(4, true, 81 * MS);
        assert_eq!(out.step(81 * MS), Step::Over { sent: 4, nanoseconds: 50 * MS });
    }

    #[test]
    fn a_peer_that_never_answers_ends_the_stream() {
        let mut out = stream(4);
        out.sent(4);
        let mut now_ns = 0;
        let sent = loop {
            match out.step(now_ns) {
                Step::Data { .. } => panic!("the window is full"),
                Step::End { .. } => out.end_sent(now_ns),
                Step::Wait { until_ns } => now_ns = until_ns,
                Step::Over { sent, .. } => break sent,
            }
        };
        assert_eq!((sent, now_ns), (4, 170 * MS));
    }

    #[test]
    fn a_lost_frame_is_not_a_reordered_one() {
        let mut inbound = Inbound::new(0);
        for sequence in [0, 1, 3, 4] {
            assert_eq!(inbound.take(sequence, 10), None);
        }
        assert_eq!((inbound.received, inbound.reordered), (4, 0));
        let due: Vec<_> = [6, 5, 7, 8].map(|sequence| inbound.take(sequence, 20)).into_iter().flatten().collect();
        assert_eq!((due, inbound.reordered, inbound.first_ns, inbound.last_ns), (vec![9], 1, 10, 20));
    }
}
