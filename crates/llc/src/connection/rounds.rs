// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often N(S) has come round: seven bits tell a PDU from one that is 128 later only together with six more, which
//! the users of both ends put into every information field.

use crate::pdu::SequenceNumber;

/// The bits of an octet of the information field that tell the round of N(S); the others are the user's.
pub const ROUND_BITS: u8 = 0xfc;
const SHIFT: u32 = ROUND_BITS.trailing_zeros();
const MODULUS: u16 = SequenceNumber::MODULUS as u16 * (ROUND_BITS as u16 / (1 << SHIFT) + 1);

/// The round of the PDU that `count` others were sent before, in the place of [`ROUND_BITS`].
#[inline]
pub(super) const fn of(count: u32) -> u8 {
    ((count / SequenceNumber::MODULUS as u32) << SHIFT) as u8
}

/// The round of the next PDU that is expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expected(u8);

/// Steps to an N(S) from V(R): ahead, or back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Distance {
    pub ahead: u16,
    pub behind: u16,
    /// It is outside of the window, which only lateness explains: known only where rounds are counted.
    pub is_late: bool,
}

/// The octet of an information field that tells the round, if both ends count them.
#[inline]
pub(super) fn octet(information: &[u8], place: Option<u16>) -> Option<u8> {
    information.get(usize::from(place?)).copied()
}

impl Expected {
    /// V(R) is another now.
    #[inline]
    pub fn advance(&mut self, vr: SequenceNumber) {
        self.0 = self.0.wrapping_add(u8::from(vr.value() == 0) << SHIFT);
    }

    /// Whether a PDU with N(S) = V(R) is of the round that is expected.
    #[inline]
    pub const fn is(self, octet: Option<u8>) -> bool {
        match octet {
            Some(octet) => octet & ROUND_BITS == self.0,
            None => true,
        }
    }

    /// How far an I PDU is from the expected one, with a receive window of so many PDUs.
    pub fn distance(self, ns: SequenceNumber, vr: SequenceNumber, octet: Option<u8>, window: u8) -> Distance {
        let Some(octet) = octet else {
            let ahead = u16::from(ns.distance_from(vr));
            return Distance { ahead, behind: u16::from(SequenceNumber::MODULUS) - ahead, is_late: false };
        };
        let number = |round: u8, number: SequenceNumber| {
            u16::from(round >> SHIFT) * u16::from(SequenceNumber::MODULUS) + u16::from(number.value())
        };
        let ahead = number(octet, ns).wrapping_sub(number(self.0, vr)) % MODULUS;
        let behind = MODULUS - ahead;
        Distance { ahead, behind, is_late: ahead >= u16::from(window) && behind > u16::from(window) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_comes_round_after_8192() {
        assert_eq!(MODULUS, 8192);
        assert_eq!([0, 127, 128, 8191, 8192].map(of), [0, 0, 4, 252, 0]);
        let mut expected = Expected::default();
        for count in 0..20_000u32 {
            let vr = SequenceNumber::wrapping(count);
            assert!(expected.is(Some(of(count) | 3)) && expected.is(None));
            assert!(!expected.is(Some(of(count + 128))) && !expected.is(Some(of(count + 8192 - 128))));
            for (back, is_late) in
                [(1, false), (63, false), (64, true), (128, true), (4096, true), (8128, true), (8130, false)]
            {
                let Some(other) = count.checked_sub(back) else { continue };
                let found = expected.distance(SequenceNumber::wrapping(other), vr, Some(of(other)), 63);
                assert_eq!((u32::from(found.behind), found.is_late), (back, is_late), "{count} and {other}");
            }
            let ahead = expected.distance(SequenceNumber::wrapping(count + 62), vr, Some(of(count + 62)), 63);
            assert_eq!((ahead.ahead, ahead.is_late), (62, false));
            expected.advance(vr.next());
        }
    }

    #[test]
    fn without_rounds_seven_bits_must_do() {
        let (vr, ns) = (SequenceNumber::wrapping(3), SequenceNumber::wrapping(1));
        let found = Expected::default().distance(ns, vr, None, 63);
        assert_eq!(found, Distance { ahead: 126, behind: 2, is_late: false });
    }
}
