// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fragmentation and reassembly for unreliable datagram transports.
//!
//! ```text
//! | session 4 | sequence 4 | fragment 4 | payload …      all big endian
//! ```
//! All fragments of a message but the last have the maximum length, so a fragment's number gives its offset. Nothing is
//! retransmitted.

use super::Counters;

pub const HEADER_BYTES: usize = 12;

/// Header of every fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Identifies this pair of this run.
    pub session: u32,
    pub sequence: u32,
    pub fragment: u32,
}

impl Header {
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        for (to, from) in bytes.chunks_exact_mut(4).zip([self.session, self.sequence, self.fragment]) {
            to.copy_from_slice(&from.to_be_bytes());
        }
        bytes
    }

    /// The header and the payload; `None` if `bytes` is too short.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (header, payload) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let field = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        Some((Self { session: field(0), sequence: field(4), fragment: field(8) }, payload))
    }
}

/// Result of [`Reassembly::accept`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// A new fragment: its range in the message.
    New { offset: usize, bytes: usize },
    /// Stale, malformed or duplicate, and counted as such.
    Ignored,
}

/// Reassembles one message at a time.
#[derive(Debug)]
pub struct Reassembly {
    fragment_bytes: usize,
    /// The message being received; earlier ones are done or given up.
    sequence: u32,
    seen: Vec<u64>,
    received: usize,
}

impl Reassembly {
    pub fn new(fragment_bytes: usize) -> Self {
        Self { fragment_bytes, sequence: 0, seen: Vec::new(), received: 0 }
    }

    /// Classifies a fragment with `payload_bytes` after its header, for a message of `message_bytes`. `padded`: the
    /// frame may have been padded to the minimum length.
    #[inline]
    pub fn accept(
        &mut self,
        header: Header,
        payload_bytes: usize,
        padded: bool,
        message_bytes: usize,
        counters: &mut Counters,
    ) -> Accepted {
        let offset = header.fragment as usize * self.fragment_bytes;
        let bytes = self.fragment_bytes.min(message_bytes.saturating_sub(offset));
        // Serial-number arithmetic: half of all numbers are ahead, half behind.
        let ahead = header.sequence.wrapping_sub(self.sequence);
        if ahead > u32::MAX / 2 {
            counters.stale += 1;
            return Accepted::Ignored;
        }
        if bytes == 0 || payload_bytes < bytes || (payload_bytes > bytes && !padded) {
            counters.malformed += 1;
            return Accepted::Ignored;
        }
        if ahead > 0 {
            counters.incomplete += u64::from(self.received > 0);
            self.begin(header.sequence);
        }
        if self.seen.is_empty() {
            self.seen.resize(message_bytes.div_ceil(self.fragment_bytes).div_ceil(64), 0);
        }
        let (word, bit) = (header.fragment as usize / 64, 1 << (header.fragment % 64));
        if self.seen[word] & bit != 0 {
            counters.duplicate += 1;
            return Accepted::Ignored;
        }
        self.seen[word] |= bit;
        self.received += 1;
        Accepted::New { offset, bytes }
    }

    /// The message's sequence number once all its fragments are received; then begins the next message.
    #[inline]
    pub fn complete(&mut self, message_bytes: usize) -> Option<u32> {
        let sequence = self.sequence;
        if self.received * self.fragment_bytes < message_bytes {
            return None;
        }
        self.begin(sequence.wrapping_add(1));
        Some(sequence)
    }

    fn begin(&mut self, sequence: u32) {
        self.sequence = sequence;
        self.received = 0;
        self.seen.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAGMENT: usize = 100;

    struct Receiver {
        reassembly: Reassembly,
        counters: Counters,
        message: Vec<u8>,
    }

    impl Receiver {
        fn new(message_bytes: usize) -> Self {
            Self {
                reassembly: Reassembly::new(FRAGMENT),
                counters: Counters::default(),
                message: vec![0; message_bytes],
            }
        }

        fn take(&mut self, sequence: u32, fragment: u32, payload: &[u8]) -> Option<u32> {
            let header = Header { session: 1, sequence, fragment };
            let bytes = self.message.len();
            if let Accepted::New { offset, bytes } =
                self.reassembly.accept(header, payload.len(), false, bytes, &mut self.counters)
            {
                self.message[offset..offset + bytes].copy_from_slice(&payload[..bytes]);
            }
            self.reassembly.complete(bytes)
        }
    }

    #[test]
    fn a_header_round_trips() {
        let header = Header { session: 1 << 31, sequence: 2, fragment: 3 };
        let bytes = [&header.to_bytes()[..], b"rest"].concat();
        assert_eq!(Header::parse(&bytes), Some((header, &b"rest"[..])));
        assert_eq!(Header::parse(&bytes[..11]), None);
    }

    #[test]
    fn fragments_are_reassembled_in_any_order() {
        let message: Vec<u8> = (0..=255).collect();
        let mut fragments: Vec<(u32, &[u8])> = (0..).zip(message.chunks(FRAGMENT)).collect();
        for seed in 0..20 {
            fastrand::Rng::with_seed(seed).shuffle(&mut fragments);
            let mut receiver = Receiver::new(256);
            let done: Vec<_> = fragments.iter().filter_map(|(i, part)| receiver.take(0, *i, part)).collect();
            assert_eq!(done, [0]);
            assert_eq!(receiver.message, message);
        }
    }

    #[test]
    fn an_incomplete_message_is_counted_and_the_next_is_complete() {
        let mut receiver = Receiver::new(200);
        assert_eq!(receiver.take(0, 0, &[1; 100]), None);
        assert_eq!(receiver.take(1, 0, &[2; 100]), None);
        assert_eq!(receiver.take(0, 1, &[1; 100]), None);
        assert_eq!(receiver.take(1, 1, &[2; 100]), Some(1));
        assert_eq!(receiver.message, [2; 200]);
        assert_eq!((receiver.counters.incomplete, receiver.counters.stale), (1, 1));
    }

    #[test]
    fn duplicates_and_wrong_lengths_change_nothing() {
        let mut receiver = Receiver::new(150);
        assert_eq!(receiver.take(0, 0, &[1; 100]), None);
        assert_eq!(receiver.take(0, 0, &[9; 100]), None);
        for (fragment, bytes) in [(1, 49), (1, 51), (2, 10), (u32::MAX, 100), (0, 0)] {
            assert_eq!(receiver.take(0, fragment, &vec![9; bytes]), None);
        }
        assert_eq!(receiver.take(0, 1, &[2; 50]), Some(0));
        assert!(receiver.message[..100].iter().all(|b| *b == 1) && receiver.message[100..].iter().all(|b| *b == 2));
        assert_eq!((receiver.counters.duplicate, receiver.counters.malformed), (1, 5));
    }

    #[test]
    fn sequence_numbers_wrap() {
        let mut receiver = Receiver::new(100);
        receiver.reassembly.begin(u32::MAX);
        assert_eq!(receiver.take(u32::MAX, 0, &[1; 100]), Some(u32::MAX));
        assert_eq!(receiver.take(0, 0, &[1; 100]), Some(0));
        assert_eq!(receiver.take(u32::MAX, 0, &[1; 100]), None);
        assert_eq!(receiver.counters.stale, 1);
    }

    #[test]
    fn no_fragment_is_accepted_outside_the_message() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut receiver = Receiver::new(1234);
        for _ in 0..200_000 {
            let header =
                Header { session: 0, sequence: random.u32(0..50), fragment: random.u32(..) >> random.u32(0..32) };
            let payload_bytes = random.usize(0..150);
            let accepted =
                receiver.reassembly.accept(header, payload_bytes, random.bool(), 1234, &mut receiver.counters);
            if let Accepted::New { offset, bytes } = accepted {
                assert!(offset + bytes <= 1234 && bytes <= payload_bytes);
            }
            receiver.reassembly.complete(1234);
        }
    }
}
