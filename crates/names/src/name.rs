// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Host names. Invalid ones cannot be constructed.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

use crate::bounds::NAME_BYTES_MAX;

/// A host name: letters, digits, `-`, `_` and `.`, the first a letter or digit; not an IP address. Converted to lower
/// case: host names are case-insensitive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// The text is not a host name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' is no host name: 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.', the first a letter or digit, \
     and no IP address"
)]
pub struct NameError(pub String);

impl Name {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = text.len() <= NAME_BYTES_MAX
            && text.bytes().all(is_plain)
            && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
            && text.parse::<IpAddr>().is_err();
        if is_name { Ok(Self(text.to_ascii_lowercase())) } else { Err(NameError(text.to_owned())) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_case_insensitive() {
        assert_eq!("Node-1.Rack_2".parse::<Name>().unwrap(), "node-1.rack_2".parse().unwrap());
        assert_eq!("1h".parse::<Name>().unwrap().as_str(), "1h");
        assert!("x".repeat(NAME_BYTES_MAX).parse::<Name>().is_ok());
    }

    #[test]
    fn invalid_names_are_refused() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for text in ["", "-h", ".h", "a b", "a:b", "h/1", "über", "10.0.0.1", "a\0", "#h", &long] {
            assert!(text.parse::<Name>().is_err(), "{text}");
        }
    }
}
