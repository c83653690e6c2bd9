// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Payload of the messages, and the check that they arrived intact.
//!
//! Both sides fill the same slots with pseudo-random bytes from the same seed. Message n is slot n mod slots, with its
//! first eight bytes replaced by a stamp of seed, n and direction. So a message that is repeated, late, reflected, or
//! not written at all differs from the expected one, and no side fills a whole message between two samples.

/// Which of the two sides sent a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    Active,
    Passive,
}

const STAMP_BYTES: usize = 8;

/// At least two, so that consecutive messages differ.
const SLOTS: usize = 2;

pub struct Pattern {
    seed: u64,
    slots: Vec<u8>,
    message_bytes: usize,
}

impl Pattern {
    /// Slots for messages of `message_bytes`. A slot is reused after at least `walk_bytes` of others (0 keeps messages
    /// in the cache) and at least `borrowed` later messages.
    pub fn new(seed: u64, message_bytes: usize, walk_bytes: usize, borrowed: usize) -> Self {
        let slots = SLOTS.max(walk_bytes.div_ceil(message_bytes)).max(borrowed + 1);
        let mut bytes = vec![0; slots * message_bytes];
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        Self { seed, slots: bytes, message_bytes }
    }

    pub fn slots(&self) -> usize {
        self.slots.len() / self.message_bytes
    }

    /// Message `sequence`, ready to send.
    pub fn message(&mut self, sequence: u32, sender: Sender) -> &[u8] {
        let stamp = self.stamp(sequence, sender);
        let at = sequence as usize % self.slots() * self.message_bytes;
        let message = &mut self.slots[at..at + self.message_bytes];
        let stamped = message.len().min(STAMP_BYTES);
        message[..stamped].copy_from_slice(&stamp[..stamped]);
        message
    }

    /// Whether `received` is message `sequence` of `sender`, byte for byte.
    pub fn is_intact(&self, received: &[u8], sequence: u32, sender: Sender) -> bool {
        let at = sequence as usize % self.slots() * self.message_bytes;
        let expected = &self.slots[at..at + self.message_bytes];
        let stamped = expected.len().min(STAMP_BYTES);
        received.len() == expected.len()
            && received[..stamped] == self.stamp(sequence, sender)[..stamped]
            && received[stamped..] == expected[stamped..]
    }

    fn stamp(&self, sequence: u32, sender: Sender) -> [u8; STAMP_BYTES] {
        let direction = match sender {
            Sender::Active => 0,
            Sender::Passive => 1 << 63,
        };
        // SplitMix64's finaliser: every input bit affects the first byte, the whole of a one-byte message.
        let mut z = (self.seed ^ direction).wrapping_add(u64::from(sequence).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_generate_the_same_messages() {
        for bytes in [1, 7, 8, 9, 64, 1500] {
            let (mut here, there) = (Pattern::new(9, bytes, 0, 0), Pattern::new(9, bytes, 0, 0));
            for sequence in [0, 1, 2, 77] {
                let message = here.message(sequence, Sender::Active).to_vec();
                assert!(there.is_intact(&message, sequence, Sender::Active));
            }
        }
    }

    #[test]
    fn any_flipped_bit_is_detected() {
        let mut pattern = Pattern::new(9, 100, 0, 0);
        for bit in 0..800 {
            let mut message = pattern.message(3, Sender::Active).to_vec();
            message[bit / 8] ^= 1 << (bit % 8);
            assert!(!pattern.is_intact(&message, 3, Sender::Active), "bit {bit}");
        }
    }

    #[test]
    fn an_earlier_message_a_reflected_one_and_another_seed_are_detected() {
        let mut pattern = Pattern::new(9, 64, 0, 0);
        let message = pattern.message(3, Sender::Active).to_vec();
        assert!(!pattern.is_intact(&message, 5, Sender::Active));
        assert!(!pattern.is_intact(&message, 3, Sender::Passive));
        assert!(!Pattern::new(10, 64, 0, 0).is_intact(&message, 3, Sender::Active));
        assert!(!pattern.is_intact(&message[..63], 3, Sender::Active));
    }

    #[test]
    fn walking_uses_the_requested_memory() {
        assert_eq!(Pattern::new(1, 1000, 0, 0).slots(), 2);
        assert_eq!(Pattern::new(1, 1000, 1_000_000, 0).slots(), 1000);
    }
}
