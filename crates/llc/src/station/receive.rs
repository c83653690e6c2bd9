// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that come in, other than the I and S PDUs of a connection.

use super::{AddressCheck, Delivery, Handled, Reply, Station};
use crate::acknowledged::Peer;
use crate::address::{self, Destination, Mac, Source};
use crate::pdu::{AcStatus, Body, Pdu, Role};
use crate::time::Instant;

impl<T> Station<T> {
    /// Everything but I and S PDUs of a connection.
    pub(super) fn handle_unusual<'a>(&mut self, from: Mac, to: Mac, pdu: &Pdu<'a>, now: Instant) -> Handled<'a> {
        if address::is_group_mac(from) {
            self.counters.group_source += 1;
            return Handled::default();
        }
        let is_known = match pdu.destination {
            Destination::Null => true,
            Destination::Individual(sap) => self.is_active(sap),
            Destination::Group(_) | Destination::Global => self.members(pdu.destination).next().is_some(),
        };
        if !is_known {
            self.counters.unknown_sap += 1;
            return Handled::default();
        }
        match pdu.body {
            Body::Ui { .. } | Body::Xid { .. } | Body::Test { .. } => self.handle_type_1(from, pdu),
            _ => {
                let (Destination::Individual(local), Source::Individual(remote), false) =
                    (pdu.destination, pdu.source, address::is_group_mac(to))
                else {
                    self.counters.out_of_place += 1;
                    return Handled::default();
                };
                let peer = Peer { local, mac: from, remote };
                match pdu.body {
                    Body::AcCommand { poll, sequence, information } => {
                        self.handle_datagram(peer, poll, sequence, information, now)
                    }
                    Body::AcResponse { sequence, status, .. } => {
                        let is_expected = self.datagrams_out.handle_response(peer, sequence, status, now);
                        self.counters.stray_acknowledgements += u64::from(!is_expected);
                        Handled::default()
                    }
                    _ => self.handle_type_2(peer, pdu, now),
                }
            }
        }
    }

    fn handle_type_1<'a>(&mut self, from: Mac, pdu: &Pdu<'a>) -> Handled<'a> {
        let (source, destination) = (pdu.source, pdu.destination);
        let deliver = |delivery| Handled { delivery: Some(delivery), reply: None };
        // A group answers as its station.
        let answering = if let Destination::Individual(sap) = destination { sap.into() } else { Source::Null };
        let answer = |header, information| {
            let reply = Reply { destination: from, header, information };
            Handled { delivery: None, reply: Some(reply) }
        };
        match pdu.body {
            Body::Ui { .. } if destination == Destination::Null => {
                self.counters.out_of_place += 1;
                Handled::default()
            }
            Body::Ui { information } => {
                self.counters.datagrams += 1;
                deliver(Delivery::Datagram { from, source, destination, information })
            }
            Body::Xid { role: Role::Command, poll_final, .. } => {
                self.counters.answered += 1;
                answer(self.identification(source.into(), answering, Role::Response, poll_final), &[])
            }
            Body::Test { role: Role::Command, poll_final, information } => {
                self.counters.answered += 1;
                let body = Body::Test { role: Role::Response, poll_final, information: &[] };
                answer(Pdu { destination: source.into(), source: answering, body }.header(), information)
            }
            Body::Xid { identification, .. } => {
                if from == self.mac && matches!(self.address_check, AddressCheck::Running { .. }) {
                    self.address_check = AddressCheck::Done { is_duplicate: true };
                }
                deliver(Delivery::Identification { from, source, identification })
            }
            Body::Test { information, .. } => deliver(Delivery::Test { from, source, information }),
            _ => Handled::default(),
        }
    }

    fn handle_datagram<'a>(
        &mut self,
        peer: Peer,
        poll: bool,
        sequence: bool,
        information: &'a [u8],
        now: Instant,
    ) -> Handled<'a> {
        let (status, is_new) = if !self.class.has_type_3() {
            self.counters.out_of_place += 1;
            (AcStatus::NOT_ACTIVATED, false)
        } else {
            let is_new = self.datagrams_in.is_new(peer, sequence, now);
            let counters = &mut self.counters;
            *(if is_new { &mut counters.acknowledged_datagrams } else { &mut counters.repeated_datagrams }) += 1;
            (if poll { AcStatus::ACCEPTED_WITHOUT_ANSWER } else { AcStatus::ACCEPTED }, is_new)
        };
        let body = Body::AcResponse { final_bit: poll, sequence: !sequence, status, information: &[] };
        let header = Pdu { destination: peer.remote.into(), source: peer.local.into(), body }.header();
        Handled {
            delivery: is_new.then_some(Delivery::AcknowledgedDatagram { peer, information }),
            reply: Some(Reply { destination: peer.mac, header, information: &[] }),
        }
    }

    fn handle_type_2<'a>(&mut self, peer: Peer, pdu: &Pdu<'a>, now: Instant) -> Handled<'a> {
        if !self.class.has_type_2() {
            self.counters.out_of_place += 1;
            return Handled::default();
        }
        let known = self.keyed.get(peer.key());
        let slot = match pdu.body {
            Body::Sabme { .. } => known.or_else(|| self.add_incoming(peer, now)),
            _ => known,
        };
        if let Some(slot) = slot {
            return Handled { delivery: self.handle_connected(slot, pdu, now), reply: None };
        }
        let is_sabme = matches!(pdu.body, Body::Sabme { .. });
        let is_disc = matches!(pdu.body, Body::Disc { .. });
        *(if is_sabme { &mut self.counters.refused } else { &mut self.counters.no_connection }) += 1;
        if is_sabme || is_disc || (pdu.role() == Role::Command && pdu.poll_final()) {
            let body = Body::Dm { final_bit: pdu.poll_final() };
            let header = Pdu { destination: peer.remote.into(), source: peer.local.into(), body }.header();
            return Handled { delivery: None, reply: Some(Reply { destination: peer.mac, header, information: &[] }) };
        }
        Handled::default()
    }

    pub(super) fn handle_malformed(
        &mut self,
        from: Mac,
        to: Mac,
        bytes: &[u8],
        malformed: crate::Malformed,
        now: Instant,
    ) {
        let [dsap, ssap, ..] = bytes else { return };
        let (Destination::Individual(local), Source::Individual(remote)) =
            (Destination::from(*dsap), Source::from_byte(*ssap))
        else {
            return;
        };
        if let Some(slot) = self.keyed.get(Peer { local, mac: from, remote }.key())
            && !address::is_group_mac(to)
            && let Some(connection) = &mut self.entries[usize::from(slot)].connection
        {
            connection.handle_malformed(bytes, malformed, now);
            self.settle(slot);
        }
    }
}
