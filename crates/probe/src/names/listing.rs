// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists the hosts on the segment: as a table, as JSON, or as a hosts file.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use barewire_link::MacAddress;
use barewire_names::{Census, Host, Ignored, Name};
use clap::Args;
use serde_json::{Map, Value, json};

use super::announce::own_name;
use super::segment::{Segment, now};
use barewire_recorder::LaunchError;

/// Interfaces and output format.
#[derive(Args)]
pub struct HostsCommand {
    /// Interfaces whose segments to query, such as eth0,eth1
    #[arg(long, required = true, value_delimiter = ',')]
    interface: Vec<String>,
    /// Time to wait for answers on each interface, in seconds
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Print a hosts file
    #[arg(long, conflicts_with = "json")]
    as_file: bool,
}

/// Entry of the list.
struct Entry {
    name: Option<Name>,
    mac: MacAddress,
    interface: String,
    /// `None` for this host.
    round_trip: Option<Duration>,
    control: Option<SocketAddr>,
}

/// Queries the segments, and prints the hosts.
///
/// # Errors
/// If an interface cannot be opened.
pub fn run(command: &HostsCommand) -> Result<(), LaunchError> {
    if !(0.01..=3600.0).contains(&command.seconds) {
        return Err(LaunchError::WrongUse("--seconds must be 0.01 to 3600".to_owned()));
    }
    let (mut lines, mut ignored) = (Vec::new(), Ignored::default());
    for interface in &command.interface {
        let mut segment = Segment::open(interface)?;
        let mut census = Census::of_all(fastrand::u32(..), Duration::from_secs_f64(command.seconds), now());
        segment.run_census(&mut census)?;
        let (mac, name) = (segment.interface().address, own_name(None).ok());
        lines.push(Entry { name, mac, interface: interface.clone(), round_trip: None, control: None });
        lines.extend(census.found().into_iter().map(|found| Entry {
            name: found.name,
            mac: found.mac,
            interface: interface.clone(),
            round_trip: Some(found.round_trip),
            control: found.control,
        }));
        ignored.add(census.ignored());
    }
    if command.json {
        println!("{}", document(&lines, &ignored));
        return Ok(());
    }
    print!("{}", if command.as_file { file(&lines) } else { table(&lines) });
    let counts: Vec<String> =
        ignored.iter().filter(|(_, count)| *count > 0).map(|(reason, count)| format!("{reason} {count}")).collect();
    if !counts.is_empty() {
        eprintln!("barewire-probe: ignored frames that are no answers: {}", counts.join(", "));
    }
    Ok(())
}

fn document(lines: &[Entry], ignored: &Ignored) -> Value {
    let hosts: Vec<Value> = lines
        .iter()
        .map(|line| {
            json!({
                "name": line.name.as_ref().map(Name::as_str), "mac": line.mac.to_string(), "interface": line.interface,
                "round_trip_ns": line.round_trip.map(|time| time.as_nanos() as u64),
                "is_this_host": line.round_trip.is_none(), "control": line.control.map(|at| at.to_string()),
            })
        })
        .collect();
    let ignored: Map<String, Value> = ignored.iter().map(|(reason, count)| (reason.into(), count.into())).collect();
    json!({"schema": "barewire-names/1", "hosts": hosts, "ignored": ignored})
}

fn table(lines: &[Entry]) -> String {
    let mut text = format!("{:<15} {:<17} {:<15} {:>10}  probe\n", "name", "MAC", "interface", "round trip");
    for line in lines {
        let name = line.name.as_ref().map_or("-", Name::as_str);
        let time = line.round_trip.map_or("this host".to_owned(), |time| format!("{} µs", time.as_micros()));
        let control = line.control.map_or("-".to_owned(), |at| at.to_string());
        text += &format!("{name:<15} {} {:<15} {time:>10}  {control}\n", line.mac, line.interface);
    }
    text
}

/// Entries that are invalid in a hosts file become comments with the reason.
fn file(lines: &[Entry]) -> String {
    let (mut names, mut stations) = (BTreeSet::new(), BTreeSet::new());
    let mut text = "# name          MAC               interface\n".to_owned();
    for line in lines {
        let Some(name) = line.name.clone() else {
            text += &format!("# no name:      {} {}\n", line.mac, line.interface);
            continue;
        };
        let is_first = names.insert(name.clone()) && stations.insert((line.mac, line.interface.clone()));
        let host = Host { name, mac: line.mac, interface: line.interface.clone() };
        text += &if is_first { format!("{host}\n") } else { format!("# again: {host}\n") };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use barewire_names::Hosts;

    fn line(name: Option<&str>, last: u8, interface: &str) -> Entry {
        let name = name.map(|name| name.parse().unwrap());
        let mac = MacAddress([2, 0, 0, 0, 0, last]);
        Entry { name, mac, interface: interface.to_owned(), round_trip: None, control: None }
    }

    #[test]
    fn the_printed_hosts_file_is_valid() {
        let lines = [
            line(Some("h1"), 1, "eth0"),
            line(Some("h2"), 2, "eth0"),
            line(Some("h2"), 3, "eth0"),
            line(Some("h4"), 1, "eth0"),
            line(None, 5, "eth0"),
            line(Some("h5"), 1, "eth1"),
        ];
        let text = file(&lines);
        let hosts = Hosts::parse(&text).unwrap();
        let names: Vec<&str> = hosts.iter().map(|(_, host)| host.name.as_str()).collect();
        assert_eq!((names, text.lines().count()), (vec!["h1", "h2", "h5"], 7), "{text}");
    }
}
