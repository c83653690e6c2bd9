// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hosts file: names of hosts, with their MAC address and the local interface towards them.
//!
//! ```text
//! # name   MAC                 interface
//! h2       02:ba:7e:00:00:02   eth0
//! storage  02:ba:7e:00:00:07   eth1       # on the other segment
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use barewire_link::MacAddress;
use thiserror::Error;

use crate::bounds::INTERFACE_BYTES_MAX;
use crate::name::{Name, NameError};

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: Name,
    /// Its MAC address.
    pub mac: MacAddress,
    /// The interface of *this* host towards it.
    pub interface: String,
}

/// Formats a line of the file.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<15} {} {}", self.name, self.mac, self.interface)
    }
}

/// A parsed hosts file, with line numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<(u32, Host)>);

/// An invalid line; `Display` begins with its number.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{line}: {error}")]
pub struct HostsError {
    /// Line number, from 1.
    pub line: u32,
    /// What is wrong.
    pub error: LineError,
}

/// What is wrong with a line, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// The line does not have three words.
    #[error("a line is 'name MAC interface', such as 'h2 02:00:00:00:00:02 eth0'; this one has {0} word(s)")]
    Words(usize),
    /// The first word is not a host name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The second word is not a MAC address.
    #[error("'{0}' is no MAC address; write it as 02:00:00:00:00:02")]
    Mac(String),
    /// The second word is a group address or all zeros.
    #[error("{0} is the address of no single host; write the one that `ip link` shows there")]
    NotIndividual(MacAddress),
    /// The third word is not an interface name.
    #[error("'{0}' is no name of an interface; `ip link` lists those of this host")]
    Interface(String),
    /// The name occurs in an earlier line.
    #[error("'{0}' is also in line {1}; give each of the host's interfaces a name of its own, or remove one line")]
    DuplicateName(Name, u32),
    /// The address occurs on the same interface in an earlier line.
    #[error("{0} on {1} is also in line {2}; correct the address, or remove one line")]
    DuplicateMac(MacAddress, String, u32),
}

impl Hosts {
    /// Parses a file's text.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn parse(text: &str) -> Result<Self, HostsError> {
        let (mut hosts, mut names, mut stations) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        for (line, text) in (1..).zip(text.lines()) {
            let failed = |error| HostsError { line, error };
            let Some(host) = parse_line(text).map_err(failed)? else { continue };
            match names.entry(host.name.clone()) {
                Entry::Occupied(first) => return Err(failed(LineError::DuplicateName(host.name, *first.get()))),
                Entry::Vacant(vacant) => vacant.insert(line),
            };
            match stations.entry((host.mac, host.interface.clone())) {
                Entry::Occupied(first) => {
                    return Err(failed(LineError::DuplicateMac(host.mac, host.interface, *first.get())));
                }
                Entry::Vacant(vacant) => vacant.insert(line),
            };
            hosts.push((line, host));
        }
        Ok(Self(hosts))
    }

    /// All hosts with their line numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Host)> {
        self.0.iter().map(|(line, host)| (*line, host))
    }
}

fn parse_line(text: &str) -> Result<Option<Host>, LineError> {
    let content = text.split_once('#').map_or(text, |(content, _)| content);
    let words: Vec<&str> = content.split_whitespace().collect();
    let [name, mac, interface] = words[..] else {
        return if words.is_empty() { Ok(None) } else { Err(LineError::Words(words.len())) };
    };
    let name = name.parse()?;
    let mac: MacAddress = mac.parse().map_err(|_| LineError::Mac(mac.to_owned()))?;
    if mac.0[0] & 1 != 0 || mac == MacAddress::default() {
        return Err(LineError::NotIndividual(mac));
    }
    check_interface(interface)?;
    Ok(Some(Host { name, mac, interface: interface.to_owned() }))
}

/// Checks that an interface can have this name.
///
/// # Errors
/// [`LineError::Interface`].
pub fn check_interface(text: &str) -> Result<(), LineError> {
    let is_name = (1..=INTERFACE_BYTES_MAX).contains(&text.len())
        && ![".", ".."].contains(&text)
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"/:".contains(&byte));
    if is_name { Ok(()) } else { Err(LineError::Interface(text.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Hosts::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn comments_blank_lines_and_any_spaces_are_accepted() {
        let text = "# all\n\n  \t\nH1 02:00:00:00:00:01 eth0\r\n\t h2\t02:00:00:00:00:02   eth0.7 # that one\n#x";
        let hosts = Hosts::parse(text).unwrap();
        let seen: Vec<_> = hosts.iter().map(|(line, host)| (line, host.to_string())).collect();
        let h1 = "h1              02:00:00:00:00:01 eth0".to_owned();
        let h2 = "h2              02:00:00:00:00:02 eth0.7".to_owned();
        assert_eq!(seen, [(4, h1), (5, h2)]);
        assert_eq!(Hosts::parse("").unwrap(), Hosts::default());
    }

    #[test]
    fn errors_name_line_and_remedy() {
        for (line, expected) in [
            ("h2", "'name MAC interface'"),
            ("h2 02:00:00:00:00:02 eth0 eth1", "4 word(s)"),
            ("-h 02:00:00:00:00:02 eth0", "no host name"),
            ("10.0.0.2 02:00:00:00:00:02 eth0", "no host name"),
            ("h2 02:00:00:00:00 eth0", "'02:00:00:00:00' is no MAC address"),
            ("h2 eth0 02:00:00:00:00:02", "'eth0' is no MAC address"),
            ("h2 ff:ff:ff:ff:ff:ff eth0", "of no single host"),
            ("h2 03:00:00:00:00:02 eth0", "of no single host"),
            ("h2 00:00:00:00:00:00 eth0", "of no single host"),
            ("h2 02:00:00:00:00:02 an/interface", "no name of an interface"),
            ("h2 02:00:00:00:00:02 longer-than-a-name", "no name of an interface"),
            ("H1 02:00:00:00:00:02 eth0", "'h1' is also in line 1"),
            ("h2 02:00:00:00:00:01 eth0", "02:00:00:00:00:01 on eth0 is also in line 1"),
        ] {
            let message = error(&format!("h1 02:00:00:00:00:01 eth0\n\n{line}\n"));
            assert!(message.starts_with("3: ") && message.contains(expected), "{line}: {message}");
        }
    }

    #[test]
    fn address_may_occur_on_two_interfaces_under_two_names() {
        let text = "h2 02:00:00:00:00:02 eth0.1\nh2-b 02:00:00:00:00:02 eth0.2\n";
        assert_eq!(Hosts::parse(text).unwrap().iter().count(), 2);
    }

    /// Any text is parsed or refused; parsed hosts round-trip through their text.
    #[test]
    fn any_text_is_parsed_or_refused_and_hosts_round_trip() {
        let mut random = fastrand::Rng::with_seed(5);
        let words = ["h1", "h2", "02:00:00:00:00:01", "02:00:00:00:00:02", "eth0", "eth1", "#", "\n", "\n", " ", "ü"];
        let (mut good, mut bad) = (0, 0);
        for _ in 0..20_000 {
            let count = random.usize(..9);
            let text: Vec<&str> = (0..count).map(|_| words[random.usize(..words.len())]).collect();
            let Ok(hosts) = Hosts::parse(&text.join(" ")) else {
                bad += 1;
                continue;
            };
            let written: String = hosts.iter().map(|(_, host)| format!("{host}\n")).collect();
            let read = Hosts::parse(&written).unwrap();
            assert!(hosts.iter().map(|(_, host)| host).eq(read.iter().map(|(_, host)| host)));
            good += usize::from(hosts.iter().next().is_some());
        }
        assert!(good > 10 && bad > 1000, "{good} {bad}");
    }
}
