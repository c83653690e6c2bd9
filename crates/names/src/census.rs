// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Census: finds all stations on a segment, or the station with a name.
//!
//! Hosts that speak this protocol answer a query. The census also sends TEST, to which every LLC station
//! responds, and so finds other stations as well, without their names.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use barewire_link::MacAddress;
use barewire_llc::{Body, Destination, Instant, Mac, Pdu, Role, Source};

use crate::bounds::{CONTRADICTION, QUERIES, QUERY_INTERVALS, STATIONS_MAX};
use crate::ignored::Ignored;
use crate::name::Name;
use crate::wire::{Message, SAP};

/// A station that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its MAC address.
    pub mac: MacAddress,
    /// Its name, if it announces one.
    pub name: Option<Name>,
    /// The shortest round trip of a query and its answer.
    pub round_trip: Duration,
    /// Control address of a probe on this host, if announced.
    pub control: Option<SocketAddr>,
}

/// A lookup on one segment.
pub struct Census {
    wanted: Option<Name>,
    target: MacAddress,
    /// Nonce of the first query; query n has `nonce + n`.
    nonce: u32,
    began: Instant,
    timeout: Duration,
    /// When each query was sent.
    sent: Vec<Instant>,
    found: BTreeMap<(MacAddress, Option<Name>), (Duration, Option<SocketAddr>)>,
    answered: Option<Instant>,
    ignored: Ignored,
}

impl Census {
    /// Looks up all stations, for `timeout`.
    #[must_use]
    pub fn of_all(nonce: u32, timeout: Duration, now: Instant) -> Self {
        Self {
            wanted: None,
            target: MacAddress::BROADCAST,
            nonce,
            began: now,
            timeout,
            sent: Vec::new(),
            found: BTreeMap::new(),
            answered: None,
            ignored: Ignored::default(),
        }
    }

    /// Looks up the station with a name. Ends [`CONTRADICTION`] after the first answer, to find duplicates.
    #[must_use]
    pub fn of_name(wanted: Name, nonce: u32, timeout: Duration, now: Instant) -> Self {
        Self { wanted: Some(wanted), ..Self::of_all(nonce, timeout, now) }
    }

    /// Looks up the names of one station. Ends [`CONTRADICTION`] after the first answer.
    #[must_use]
    pub fn of_station(station: MacAddress, nonce: u32, timeout: Duration, now: Instant) -> Self {
        Self { target: station, ..Self::of_all(nonce, timeout, now) }
    }

    /// The next due query: its destination and LLC PDU. Send it at once: `now` counts as its time of transmission.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Mac, Vec<u8>)> {
        let number = self.sent.len() as u32;
        if self.is_over(now) || self.next_query().is_none_or(|due| due > now) {
            return None;
        }
        self.sent.push(now);
        let query = Message::Query { nonce: self.nonce.wrapping_add(number), wanted: self.wanted.clone() }.encode();
        let (destination, body) = if self.is_test(number) {
            (Destination::Null, Body::Test { role: Role::Command, poll_final: true, information: &query })
        } else {
            (SAP.into(), Body::Ui { information: &query })
        };
        let pdu = Pdu { destination, source: SAP.into(), body };
        Some((self.target.0, [pdu.header().as_bytes(), &query].concat()))
    }

    /// Time of the next query, or of the end.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        self.next_query().map_or(self.end(), |due| due.min(self.end()))
    }

    /// Whether the census has ended.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.end()
    }

    /// Processes a received LLC PDU from `source`.
    pub fn handle_pdu(&mut self, source: Mac, llc: &[u8], now: Instant) {
        let Some(pdu) = self.ignored.pdu(source, llc) else { return };
        let from_names = pdu.source == Source::Individual(SAP);
        match pdu.body {
            _ if pdu.destination != Destination::Individual(SAP) => self.ignored.unexpected += 1,
            Body::Ui { information } if from_names => match self.ignored.message(information) {
                Some(Message::Answer { nonce, name, control }) => {
                    let is_wanted = self.wanted.as_ref().is_none_or(|wanted| *wanted == name);
                    let is_ours = is_wanted && self.add(source, nonce, false, Some(name), control, now);
                    self.ignored.stray += u64::from(!is_ours);
                }
                // Another station's census.
                Some(Message::Query { .. }) | None => {}
            },
            Body::Test { role: Role::Response, information, .. } => {
                if let Some(Message::Query { nonce, .. }) = self.ignored.message(information) {
                    let is_ours = self.add(source, nonce, true, None, None, now);
                    self.ignored.stray += u64::from(!is_ours);
                }
            }
            _ => self.ignored.unexpected += 1,
        }
    }

    /// The stations found so far: by name, then those without a name. A station with a name is not listed without one.
    #[must_use]
    pub fn found(&self) -> Vec<Found> {
        let has_name = |mac: MacAddress| {
            let rest = self.found.range((mac, None)..).skip(1);
            rest.take_while(|((other, _), _)| *other == mac).next().is_some()
        };
        let listed = self.found.iter().filter(|((mac, name), _)| name.is_some() || !has_name(*mac));
        let mut found: Vec<Found> = listed
            .map(|((mac, name), (round_trip, control))| Found {
                mac: *mac,
                name: name.clone(),
                round_trip: *round_trip,
                control: *control,
            })
            .collect();
        found.sort_by(|a, b| (a.name.is_none(), &a.name, a.mac).cmp(&(b.name.is_none(), &b.name, b.mac)));
        found
    }

    /// Counts of ignored PDUs.
    #[must_use]
    pub fn ignored(&self) -> &Ignored {
        &self.ignored
    }

    /// Whether a query is a TEST command: every other one, unless the census is for a name.
    fn is_test(&self, number: u32) -> bool {
        self.wanted.is_none() && number % 2 == 1
    }

    fn next_query(&self) -> Option<Instant> {
        let kinds = if self.wanted.is_none() { 2 } else { 1 };
        let round = self.sent.len() as u32 / kinds;
        (round < QUERIES).then(|| self.began + self.timeout * round / QUERY_INTERVALS)
    }

    fn end(&self) -> Instant {
        let timeout = self.began + self.timeout;
        let is_single = self.wanted.is_some() || self.target != MacAddress::BROADCAST;
        self.answered.filter(|_| is_single).map_or(timeout, |first| timeout.min(first + CONTRADICTION))
    }

    /// Records an answer; false if it answers no query of this kind, or comes from a station that was not queried.
    fn add(
        &mut self,
        source: Mac,
        nonce: u32,
        is_test: bool,
        name: Option<Name>,
        control: Option<SocketAddr>,
        now: Instant,
    ) -> bool {
        let mac = MacAddress(source);
        let number = nonce.wrapping_sub(self.nonce);
        let Some(sent) = self.sent.get(number as usize).filter(|_| self.is_test(number) == is_test) else {
            return false;
        };
        if self.target != MacAddress::BROADCAST && self.target != mac {
            return false;
        }
        let round_trip = Duration::from_nanos(now.as_nanos().saturating_sub(sent.as_nanos()));
        let has_room = self.found.len() < STATIONS_MAX;
        match self.found.get_mut(&(mac, name.clone())) {
            Some((shortest, known)) => {
                *shortest = round_trip.min(*shortest);
                *known = known.or(control);
            }
            None if has_room => {
                self.found.insert((mac, name), (round_trip, control));
            }
            None => self.ignored.no_room += 1,
        }
        self.answered.get_or_insert(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responder::Responder;
    use barewire_llc::{Station, StationConfig};

    const A: Mac = [2, 0, 0, 0, 0, 1];
    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * MS)
    }

    fn named(name: &str) -> Responder {
        Responder::new(name.parse().unwrap(), Some("10.0.0.9:5288".parse().unwrap()))
    }

    fn of_all() -> Census {
        Census::of_all(u32::MAX - 1, Duration::from_millis(400), at(0))
    }

    /// Sends all due queries, which these stations answer a millisecond later. Returns the number of queries.
    fn query(census: &mut Census, stations: &mut [(Mac, Responder)], now: u64) -> usize {
        let mut queries = 0;
        while let Some((to, query)) = census.poll_transmit(at(now)) {
            queries += 1;
            for (mac, station) in &mut *stations {
                if [*mac, MacAddress::BROADCAST.0].contains(&to)
                    && let Some(answer) = station.handle_pdu(A, &query, at(now))
                {
                    census.handle_pdu(*mac, &answer, at(now + 1));
                }
            }
        }
        queries
    }

    #[test]
    fn all_stations_are_found_by_name_and_queried_three_times() {
        let mut stations = [([2, 0, 0, 0, 0, 3], named("h3")), ([2, 0, 0, 0, 0, 2], named("h2"))];
        let mut census = of_all();
        let queries: Vec<usize> = (0..=400).map(|now| query(&mut census, &mut stations, now)).collect();
        let when: Vec<usize> = (0..=400).filter(|now| queries[*now] > 0).collect();
        assert_eq!((queries.iter().sum::<usize>(), when), (6, vec![0, 100, 200]));
        assert!(!census.is_over(at(399)) && census.is_over(at(400)));
        let found = census.found();
        let names: Vec<&str> = found.iter().map(|station| station.name.as_ref().unwrap().as_str()).collect();
        assert_eq!((names, found[0].mac), (vec!["h2", "h3"], MacAddress([2, 0, 0, 0, 0, 2])));
        assert_eq!(found[0].round_trip, Duration::from_millis(1));
        assert_eq!(found[0].control, Some("10.0.0.9:5288".parse().unwrap()));
        assert!(census.ignored().iter().all(|(_, count)| count == 0));
    }

    /// A station that only answers TEST is found without a name; one with a name is found once.
    #[test]
    fn stations_without_a_name_are_found_by_test() {
        let other: Mac = [2, 0, 0, 0, 0, 9];
        let mut plain: Station<()> = Station::new(&StationConfig::default(), at(0)).unwrap();
        let mut both = [(other, named("h9"))];
        for has_name in [false, true] {
            let mut census = of_all();
            if has_name {
                query(&mut census, &mut both, 0);
            }
            for now in [0, 150] {
                while let Some((to, query)) = census.poll_transmit(at(now)) {
                    let handled = plain.handle_frame(A, to, &query, &[], at(now));
                    let Some(reply) = handled.reply else { continue };
                    let answer = [reply.header.as_bytes(), reply.information].concat();
                    census.handle_pdu(other, &answer, at(now + 1));
                }
            }
            let found = census.found();
            assert_eq!((found.len(), found[0].mac, found[0].name.is_some()), (1, MacAddress(other), has_name));
        }
    }

    #[test]
    fn name_is_found_soon_and_duplicates_are_reported() {
        let mut stations = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]].map(|mac| (mac, named("h2")));
        let mut census = Census::of_name("H2".parse().unwrap(), 7, Duration::from_millis(400), at(0));
        assert_eq!(query(&mut census, &mut stations[..1], 0), 1);
        assert!(!census.is_over(at(50)) && census.is_over(at(51)));
        assert_eq!(census.found().len(), 1);
        let mut census = Census::of_name("h2".parse().unwrap(), 7, Duration::from_millis(400), at(0));
        query(&mut census, &mut stations, 0);
        assert_eq!(census.found().len(), 2);
        let mut census = Census::of_name("h4".parse().unwrap(), 7, Duration::from_millis(400), at(0));
        query(&mut census, &mut stations, 0);
        assert_eq!((census.found().len(), census.is_over(at(399))), (0, false));
    }

    #[test]
    fn answers_of_other_stations_are_ignored() {
        let mut stations = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]].map(|mac| (mac, named("h2")));
        let mut census = Census::of_station(MacAddress(stations[0].0), 7, Duration::from_millis(400), at(0));
        query(&mut census, &mut stations, 0);
        let answer = Message::Answer { nonce: 7, name: "h2".parse().unwrap(), control: None }.encode();
        let pdu = Pdu { destination: SAP.into(), source: SAP.into(), body: Body::Ui { information: &answer } };
        let bytes = [pdu.header().as_bytes(), &answer].concat();
        census.handle_pdu(stations[1].0, &bytes, at(1));
        assert_eq!((census.found().len(), census.ignored().stray), (1, 1));
        assert!(!census.is_over(at(50)) && census.is_over(at(51)));
    }

    #[test]
    fn unexpected_answers_and_garbage_are_counted() {
        let mut census = of_all();
        let ui = |information: &[u8]| [&[0xba, 0xba, 0x03], information].concat();
        let answer = |nonce| Message::Answer { nonce, name: "h2".parse().unwrap(), control: None }.encode();
        let from = [2, 0, 0, 0, 0, 2];
        census.handle_pdu(from, &ui(&answer(u32::MAX - 1)), at(0)); // before it was sent
        while census.poll_transmit(at(0)).is_some() {}
        census.handle_pdu(from, &ui(&answer(u32::MAX)), at(0)); // the nonce of a TEST
        census.handle_pdu(from, &ui(&answer(5)), at(0));
        census.handle_pdu([3, 0, 0, 0, 0, 2], &ui(&answer(u32::MAX - 1)), at(0));
        census.handle_pdu(from, &ui(b"BWN"), at(0));
        census.handle_pdu(from, &ui(&[0; 40]), at(0));
        census.handle_pdu(from, &[0xba], at(0));
        census.handle_pdu(from, &[0x20, 0xba, 0x03], at(0));
        census.handle_pdu(from, &[0xba, 0xba, 0x7f], at(0));
        let counted: Vec<_> = census.ignored().iter().filter(|(_, count)| *count > 0).collect();
        let expected = [("too_short", 1), ("not_ours", 1), ("not_llc", 1), ("unexpected", 2)];
        assert_eq!(counted[..4], expected);
        assert_eq!(counted[4..], [("group_source", 1), ("stray", 3)]);
        assert!(census.found().is_empty());
    }

    #[test]
    fn number_of_stations_is_bounded() {
        let mut census = of_all();
        while census.poll_transmit(at(0)).is_some() {}
        for number in 0..STATIONS_MAX as u32 + 100 {
            let name = format!("h{number}").parse().unwrap();
            let answer = Message::Answer { nonce: u32::MAX - 1, name, control: None }.encode();
            let [_, a, b, c] = number.to_be_bytes();
            census.handle_pdu([2, 0, 0, a, b, c], &[&[0xba, 0xba, 0x03], &answer[..]].concat(), at(1));
        }
        assert_eq!((census.found().len(), census.ignored().no_room), (STATIONS_MAX, 100));
    }
}
