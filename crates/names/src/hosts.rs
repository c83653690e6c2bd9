// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hosts file: who has which name, and through which of this host's interfaces frames reach them.
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

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: Name,
    /// Its address on the segment.
    pub mac: MacAddress,
    /// The interface of *this* host through which frames reach it.
    pub interface: String,
}

/// As a line of the file.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<15} {} {}", self.name, self.mac, self.interface)
    }
}

/// A hosts file that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<(u32, Host)>);

/// A line that is not understood; `Display` begins with its number.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{line}: {error}")]
pub struct HostsError {
    /// Its number; the first is 1.
    pub line: u32,
    /// Why.
    pub error: LineError,
}

/// What is wrong with a line, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// Not three words.
    #[error("a line is 'name MAC interface', such as 'h2 02:00:00:00:00:02 eth0'; this one has {0} word(s)")]
    Words(usize),
    /// The first word.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The second word.
    #[error("'{0}' is no MAC address; write it as 02:00:00:00:00:02")]
    Mac(String),
    /// The second word is a group's address, or nobody's.
    #[error("{0} is the address of no single host; write the one that `ip link` shows there")]
    NotOneHost(MacAddress),
    /// The third word.
    #[error("'{0}' is no name of an interface; `ip link` lists those of this host")]
    Interface(String),
    /// The name has been there.
    #[error("'{0}' is also in line {1}; give each of the host's interfaces a name of its own, or remove one line")]
    NameAgain(Name, u32),
    /// The address has been there.
    #[error("{0} on {1} is also in line {2}; correct the address, or remove one line")]
    MacAgain(MacAddress, String, u32),
}

impl Hosts {
    /// Reads a file's text.
    ///
    /// # Errors
    /// The first line that is not understood.
    pub fn parse(text: &str) -> Result<Self, HostsError> {
        let (mut hosts, mut names, mut stations) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        for (line, text) in (1..).zip(text.lines()) {
            let failed = |error| HostsError { line, error };
            let Some(host) = parse_line(text).map_err(failed)? else { continue };
            match names.entry(host.name.clone()) {
                Entry::Occupied(first) => return Err(failed(LineError::NameAgain(host.name, *first.get()))),
                Entry::Vacant(place) => place.insert(line),
            };
            match stations.entry((host.mac, host.interface.clone())) {
                Entry::Occupied(first) => {
                    return Err(failed(LineError::MacAgain(host.mac, host.interface, *first.get())));
                }
                Entry::Vacant(place) => place.insert(line),
            };
            hosts.push((line, host));
        }
        Ok(Self(hosts))
    }

    /// All hosts, each with the number of its line.
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
        return Err(LineError::NotOneHost(mac));
    }
    check_interface(interface)?;
    Ok(Some(Host { name, mac, interface: interface.to_owned() }))
}

/// Whether an interface can have this name.
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
    fn comments_blank_lines_and_any_spaces_are_taken() {
        let text = "# all\n\n  \t\nH1 02:00:00:00:00:01 eth0\r\n\t h2\t02:00:00:00:00:02   eth0.7 # that one\n#x";
        let hosts = Hosts::parse(text).unwrap();
        let seen: Vec<_> = hosts.iter().map(|(line, host)| (line, host.to_string())).collect();
        let h1 = "h1              02:00:00:00:00:01 eth0".to_owned();
        let h2 = "h2              02:00:00:00:00:02 eth0.7".to_owned();
        assert_eq!(seen, [(4, h1), (5, h2)]);
        assert_eq!(Hosts::parse("").unwrap(), Hosts::default());
    }

    #[test]
    fn each_mistake_is_named_with_its_line_and_what_to_do() {
        for (line, said) in [
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
            let said_so = error(&format!("h1 02:00:00:00:00:01 eth0\n\n{line}\n"));
            assert!(said_so.starts_with("3: ") && said_so.contains(said), "{line}: {said_so}");
        }
    }

    #[test]
    fn one_address_may_be_on_two_interfaces_under_two_names() {
        let text = "h2 02:00:00:00:00:02 eth0.1\nh2-b 02:00:00:00:00:02 eth0.2\n";
        assert_eq!(Hosts::parse(text).unwrap().iter().count(), 2);
    }

    /// Any bytes are hosts or a named line; hosts that are written are read as the same.
    #[test]
    fn any_text_is_read_or_refused_and_what_is_written_is_read() {
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
