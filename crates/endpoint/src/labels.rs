// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Labels: VLAN identifiers by which a network chooses among its paths (`docs/protocol.md`).

use std::str::FromStr;

use barewire_llc::bounds::LABELS_MAX;
use thiserror::Error;

/// The labels that a network offers: consecutive VLAN identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Labels {
    first: u16,
    count: u8,
}

/// The largest VLAN identifier; 0 and 4095 are reserved (IEEE 802.1Q, table 9-2).
const IDENTIFIER_MAX: u16 = 4094;

/// The text is not a range of labels.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' are not labels; write 2 to {LABELS_MAX} consecutive VLAN identifiers of 1 to {IDENTIFIER_MAX} as in \
     3840-3843"
)]
pub struct ParseLabelsError(String);

impl Labels {
    /// Their number.
    #[must_use]
    pub const fn count(self) -> u8 {
        self.count
    }

    /// The VLAN identifier of a label.
    #[inline]
    #[must_use]
    pub const fn tag(self, number: u8) -> u16 {
        self.first + number as u16
    }
}

impl FromStr for Labels {
    type Err = ParseLabelsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let range = || {
            let (first, last) = text.split_once('-')?;
            let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
            let count = u8::try_from(last.checked_sub(first)? + 1).ok()?;
            let is_valid = first > 0 && last <= IDENTIFIER_MAX && (2..=LABELS_MAX).contains(&count);
            is_valid.then_some(Self { first, count })
        };
        range().ok_or_else(|| ParseLabelsError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_a_range_of_vlan_identifiers() {
        let labels: Labels = "3840-3843".parse().unwrap();
        assert_eq!((labels.count(), labels.tag(0), labels.tag(3)), (4, 3840, 3843));
        assert_eq!("1-64".parse::<Labels>().unwrap().count(), 64);
        for text in ["", "3840", "3840-3840", "3843-3840", "0-3", "4090-4095", "1-65", "1-300", "a-b", "-1-3", "1-2-3"]
        {
            assert!(text.parse::<Labels>().unwrap_err().to_string().contains("3840-3843"), "{text} was accepted");
        }
    }
}
