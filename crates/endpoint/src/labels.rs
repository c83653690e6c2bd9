// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Labels: VLAN identifiers, or source ports of UDP, by which a network chooses among its paths (`docs/protocol.md`).

use std::str::FromStr;

use barewire_link::PORT_LABEL;
use barewire_llc::bounds::LABELS_MAX;
use thiserror::Error;

/// The labels that a network offers: consecutive VLAN identifiers; or, for a network that knows none, source ports.
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
     3840-3843, or a power of two of UDP's source ports as in ports:8"
)]
pub struct ParseLabelsError(String);

impl Labels {
    /// Their number.
    #[must_use]
    pub const fn count(self) -> u8 {
        self.count
    }

    /// What chooses the path of a frame with a label: [`Outgoing::label`](barewire_link::Outgoing::label).
    #[inline]
    #[must_use]
    pub const fn value(self, number: u8) -> u16 {
        self.first + number as u16
    }

    /// From how many ports datagrams leave.
    #[must_use]
    pub const fn ports(self) -> u16 {
        if self.first == PORT_LABEL { self.count as u16 } else { 1 }
    }
}

impl FromStr for Labels {
    type Err = ParseLabelsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let range = || {
            if let Some(count) = text.strip_prefix("ports:") {
                let count: u8 = count.parse().ok()?;
                let is_valid = (2..=LABELS_MAX).contains(&count) && count.is_power_of_two();
                return is_valid.then_some(Self { first: PORT_LABEL, count });
            }
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
        assert_eq!((labels.count(), labels.value(0), labels.value(3), labels.ports()), (4, 3840, 3843, 1));
        assert_eq!("1-64".parse::<Labels>().unwrap().count(), 64);
        for text in ["", "3840", "3840-3840", "3843-3840", "0-3", "4090-4095", "1-65", "1-300", "a-b", "-1-3", "1-2-3"]
        {
            assert!(text.parse::<Labels>().unwrap_err().to_string().contains("3840-3843"), "{text} was accepted");
        }
    }

    #[test]
    fn labels_are_a_power_of_two_of_ports() {
        let labels: Labels = "ports:8".parse().unwrap();
        assert_eq!(
            (labels.count(), labels.value(0), labels.value(7), labels.ports()),
            (8, PORT_LABEL, PORT_LABEL + 7, 8)
        );
        for text in ["ports", "ports:", "ports:1", "ports:3", "ports:128", "ports:-2", "ports:2-4", "8", "port:8"] {
            assert!(text.parse::<Labels>().unwrap_err().to_string().contains("ports:8"), "{text} was accepted");
        }
    }
}
