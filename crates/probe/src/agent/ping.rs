// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Round trips, one after the other; pure.

use barewire_link::MacAddress;

/// A series of echo requests to one peer.
pub struct Ping {
    pub number: u32,
    pub peer: MacAddress,
    /// Payloads of request and reply.
    pub bytes: usize,
    pub reply_bytes: usize,
    count: u32,
    /// Ends after this many replies.
    enough: u32,
    timeout_ns: u64,
    /// Sequence number and time of the outstanding request.
    asked: Option<(u32, u64)>,
    next: u32,
    pub round_trips_ns: Vec<u64>,
    pub lost: u32,
}

/// What a ping does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Ask { sequence: u32 },
    Wait { until_ns: u64 },
    Over,
}

impl Ping {
    pub fn new(number: u32, peer: MacAddress, sizes: (usize, usize), count: u32, enough: u32, timeout_ns: u64) -> Self {
        let (bytes, reply_bytes) = sizes;
        let round_trips_ns = Vec::new();
        Self {
            number,
            peer,
            bytes,
            reply_bytes,
            count,
            enough,
            timeout_ns,
            asked: None,
            next: 0,
            round_trips_ns,
            lost: 0,
        }
    }

    pub fn step(&mut self, now_ns: u64) -> Step {
        if let Some((_, asked_ns)) = self.asked {
            let until_ns = asked_ns + self.timeout_ns;
            if now_ns < until_ns {
                return Step::Wait { until_ns };
            }
            self.asked = None;
            self.lost += 1;
        }
        if self.next == self.count || self.round_trips_ns.len() >= self.enough as usize {
            return Step::Over;
        }
        Step::Ask { sequence: self.next }
    }

    /// The request was sent.
    pub fn asked(&mut self, now_ns: u64) {
        self.asked = Some((self.next, now_ns));
        self.next += 1;
    }

    /// A reply; one that comes after its timeout is lost.
    pub fn reply(&mut self, sequence: u32, now_ns: u64) {
        if let Some((asked, asked_ns)) = self.asked
            && asked == sequence
        {
            self.asked = None;
            self.round_trips_ns.push(now_ns - asked_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_losses_are_counted_until_there_are_enough() {
        let mut ping = Ping::new(1, MacAddress([2; 6]), (64, 64), 5, 2, 100);
        assert_eq!(ping.step(0), Step::Ask { sequence: 0 });
        ping.asked(0);
        assert_eq!(ping.step(10), Step::Wait { until_ns: 100 });
        assert_eq!(ping.step(100), Step::Ask { sequence: 1 });
        ping.asked(100);
        ping.reply(0, 105); // too late
        ping.reply(1, 110);
        assert_eq!(ping.step(110), Step::Ask { sequence: 2 });
        ping.asked(110);
        ping.reply(2, 130);
        assert_eq!(ping.step(130), Step::Over);
        assert_eq!((ping.round_trips_ns, ping.lost), (vec![10, 20], 1));
    }
}
