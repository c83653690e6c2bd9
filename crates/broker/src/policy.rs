// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy file. No I/O: the caller passes a function that resolves names of users and groups.

use std::ops::RangeInclusive;

use barewire_broker::Request;
use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

/// A policy. Whatever no rule allows is forbidden.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    users: Vec<u32>,
    interfaces: Vec<String>,
    saps: Vec<RangeInclusive<u8>>,
    at_most: usize,
    station: bool,
}

/// An error in the policy file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{line}: {reason}")]
pub struct PolicyError {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl Policy {
    /// Parses the file's text; `members` resolves a user's name, or a group's after an @, to IDs of users.
    ///
    /// # Errors
    /// The first error in the file.
    pub fn parse(text: &str, members: impl Fn(&str) -> Option<Vec<u32>>) -> Result<Self, PolicyError> {
        let at = |offset: usize, reason: String| PolicyError {
            line: text.get(..offset).unwrap_or(text).matches('\n').count() + 1,
            reason,
        };
        let file: FileText = toml::from_str(text).map_err(|error| {
            at(error.span().map_or(text.len(), |span| span.start), error.message().trim().replace('\n', "; "))
        })?;
        let mut rules = Vec::new();
        for rule in file.allow {
            let start = rule.span().start;
            let rule = rule.into_inner();
            if rule.users.is_empty() || rule.interfaces.is_empty() || rule.saps.is_empty() {
                return Err(at(start, "a rule without users, interfaces or saps allows nothing".to_owned()));
            }
            let users = rule.users.into_iter().map(|text| {
                let offset = text.span().start;
                match text.into_inner() {
                    User::Number(number) => Ok(vec![number]),
                    User::Name(name) => members(&name).ok_or_else(|| {
                        let (kind, name) = name.strip_prefix('@').map_or(("user", &*name), |group| ("group", group));
                        at(offset, format!("there is no {kind} '{name}' on this machine"))
                    }),
                }
            });
            let saps = rule.saps.into_iter().map(|text| {
                let offset = text.span().start;
                parse_saps(text.get_ref()).map_err(|reason| at(offset, reason))
            });
            rules.push(Rule {
                users: users.collect::<Result<Vec<_>, _>>()?.concat(),
                interfaces: rule.interfaces,
                saps: saps.collect::<Result<_, _>>()?,
                at_most: rule.at_most,
                station: rule.station,
            });
        }
        Ok(Self { rules })
    }

    /// Whether any rule names the user.
    #[must_use]
    pub fn names(&self, user: u32) -> bool {
        self.rules.iter().any(|rule| rule.users.contains(&user))
    }

    /// How many descriptors the user may hold, including the requested one; `None` if no rule allows the request.
    #[must_use]
    pub fn at_most(&self, user: u32, request: &Request) -> Option<usize> {
        let allowing = self.rules.iter().filter(|rule| {
            rule.users.contains(&user)
                && rule.interfaces.contains(&request.interface)
                && rule.saps.iter().any(|range| range.contains(&request.sap.byte()))
                && (rule.station || !request.station)
        });
        allowing.map(|rule| rule.at_most).max()
    }

    /// The interfaces of all rules, without duplicates.
    #[must_use]
    pub fn interfaces(&self) -> Vec<&str> {
        let mut all: Vec<_> = self.rules.iter().flat_map(|rule| &rule.interfaces).map(String::as_str).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    allow: Vec<Spanned<RuleText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    users: Vec<Spanned<User>>,
    interfaces: Vec<String>,
    saps: Vec<Spanned<String>>,
    at_most: usize,
    #[serde(default)]
    station: bool,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a user is a name or a number")]
enum User {
    Number(u32),
    Name(String),
}

/// Parses `0x20` or `0x20-0x3e`. Odd numbers are group addresses and refused, also as bounds.
fn parse_saps(text: &str) -> Result<RangeInclusive<u8>, String> {
    let number = |part: &str| {
        let digits = part.trim().strip_prefix("0x").and_then(|digits| u8::from_str_radix(digits, 16).ok());
        digits.or_else(|| part.trim().parse().ok()).filter(|number| *number != 0 && number % 2 == 0)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(format!(
            "'{text}' is not a service access point or range: write \"0x20\" or \"0x20-0x3e\", even, from 0x02"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barewire_llc::Lsap;

    const GOOD: &str = r#"
[[allow]]
users = ["alice", 1002]
interfaces = ["eth1"]
saps = ["0x20-0x3e", "66"]
at_most = 4

[[allow]]
users = [1002]
interfaces = ["eth1", "eth2"]
saps = ["0x10"]
at_most = 9
station = true
"#;

    fn parse(text: &str) -> Result<Policy, PolicyError> {
        Policy::parse(text, |name| match name {
            "alice" => Some(vec![1001]),
            "@mpi" => Some(vec![1003, 1004]),
            _ => None,
        })
    }

    fn request(interface: &str, sap: u8, station: bool) -> Request {
        Request { interface: interface.to_owned(), sap: Lsap::new(sap).unwrap(), station }
    }

    #[test]
    fn only_what_a_rule_allows_is_allowed() {
        let policy = parse(GOOD).unwrap();
        for (user, interface, sap, station, expected) in [
            (1001, "eth1", 0x20, false, Some(4)),
            (1001, "eth1", 0x3e, false, Some(4)),
            (1001, "eth1", 66, false, Some(4)),
            (1001, "eth1", 0x40, false, None),
            (1001, "eth1", 0x20, true, None),
            (1001, "eth2", 0x20, false, None),
            (1002, "eth2", 0x10, true, Some(9)),
            (0, "eth1", 0x20, false, None),
        ] {
            let allowed = policy.at_most(user, &request(interface, sap, station));
            assert_eq!(allowed, expected, "{user} {interface} {sap} {station}");
        }
        assert!(policy.names(1001) && !policy.names(0));
        assert_eq!(policy.interfaces(), ["eth1", "eth2"]);
        assert_eq!(parse("").unwrap(), Policy::default());
    }

    #[test]
    fn a_group_stands_for_its_members() {
        let policy = parse(&GOOD.replacen("\"alice\"", "\"@mpi\"", 1)).unwrap();
        assert!(policy.names(1003) && policy.names(1004) && !policy.names(1001));
    }

    #[test]
    fn example_file_is_valid() {
        let policy = Policy::parse(include_str!("../broker.toml"), |name| (name == "root").then(|| vec![0])).unwrap();
        assert_eq!(policy.at_most(1000, &request("eth1", 0x10, false)), Some(8));
    }

    #[test]
    fn errors_name_line_and_reason() {
        for (from, to, line, reason) in [
            ("\"alice\"", "\"bob\"", 3, "no user 'bob'"),
            ("\"alice\"", "\"@nobody\"", 3, "no group 'nobody'"),
            ("\"alice\"", "-1", 3, "a user is a name or a number"),
            ("0x20-0x3e", "0x00-0x3e", 5, "is not a service access point"),
            ("0x20-0x3e", "0x21", 5, "is not a service access point"),
            ("0x20-0x3e", "0x3e-0x20", 5, "is not a service access point"),
            ("at_most = 4", "at_most = \"many\"", 6, "invalid type"),
            ("at_most = 4", "atmost = 4", 6, "unknown field"),
            ("at_most = 4", "", 2, "missing field"),
            ("[\"eth1\"]", "[]", 2, "allows nothing"),
            ("[\"eth1\"]", "[\"eth1\"", 5, ""),
            ("station = true", "station = true\nmore = [", 14, ""),
        ] {
            let error = parse(&GOOD.replacen(from, to, 1)).unwrap_err();
            assert!(error.line == line && error.reason.contains(reason), "{to}: {error}");
        }
    }
}
