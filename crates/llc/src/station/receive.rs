// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processing of received frames, except I and S PDUs of existing connections.

use super::{Delivery, Handled, Reply, Station};
use crate::acknowledged::Peer;
use crate::address::{self, Destination, Mac, Source};
use crate::connection::State;
use crate::extension::{self, Extension, Extra};
use crate::pdu::{AcStatus, Body, Pdu, Role};
use crate::time::Instant;

impl<T> Station<T> {
    /// Processes everything but I and S PDUs of existing connections.
    pub(super) fn handle_other<'a>(
        &mut self,
        from: Mac,
        to: Mac,
        pdu: &Pdu<'a>,
        extension: &Extension,
        now: Instant,
    ) -> Handled<'a> {
        if address::is_group_mac(from) {
            self.counters.group_source += 1;
            return Handled::default();
        }
        let is_known = match pdu.destination {
            Destination::Null => true,
            Destination::Individual(sap) => self.is_active(sap),
            // No service access point is a member of a group.
            Destination::Group(_) => false,
            Destination::Global => self.saps.iter().any(Option::is_some),
        };
        if !is_known {
            self.counters.unknown_sap += 1;
            return Handled::default();
        }
        match pdu.body {
            Body::Ui { .. } | Body::Xid { .. } | Body::Test { .. } => {
                if !self.is_datagram_authentic(extension) {
                    return Handled::default();
                }
                self.handle_type_1(from, pdu)
            }
            _ => {
                let (Destination::Individual(local), Source::Individual(remote), false) =
                    (pdu.destination, pdu.source, address::is_group_mac(to))
                else {
                    self.counters.not_applicable += 1;
                    return Handled::default();
                };
                let peer = Peer { local, mac: from, remote };
                match pdu.body {
                    Body::AcCommand { poll, sequence, information } => {
                        if !self.is_datagram_authentic(extension) {
                            return Handled::default();
                        }
                        self.handle_datagram(peer, poll, sequence, information, now)
                    }
                    Body::AcResponse { sequence, status, .. } => {
                        let mark = self.parameters.is_extended.then_some(extension.mark);
                        let is_expected = self.datagrams_out.handle_response(peer, sequence, status, mark, now);
                        self.counters.stray_acknowledgements += u64::from(!is_expected);
                        Handled::default()
                    }
                    _ => self.handle_type_2(peer, pdu, extension, now),
                }
            }
        }
    }

    fn handle_type_1<'a>(&mut self, from: Mac, pdu: &Pdu<'a>) -> Handled<'a> {
        let (source, destination) = (pdu.source, pdu.destination);
        let deliver = |delivery| Handled { delivery: Some(delivery), reply: None };
        // A response to a group address has the null SAP as source.
        let answering = if let Destination::Individual(sap) = destination { sap.into() } else { Source::Null };
        let extra = self.extra(self.datagram_mark);
        let answer = |header, information| {
            let reply = Reply { destination: from, header, information, extra };
            Handled { delivery: None, reply: Some(reply) }
        };
        match pdu.body {
            Body::Ui { .. } if destination == Destination::Null => {
                self.counters.not_applicable += 1;
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
            Body::Xid { identification, .. } => deliver(Delivery::Identification { from, source, identification }),
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
            self.counters.not_applicable += 1;
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
            reply: Some(Reply {
                destination: peer.mac,
                header,
                information: &[],
                extra: self.extra(self.datagram_mark),
            }),
        }
    }

    fn handle_type_2<'a>(&mut self, peer: Peer, pdu: &Pdu<'a>, extension: &Extension, now: Instant) -> Handled<'a> {
        if !self.class.has_type_2() {
            self.counters.not_applicable += 1;
            return Handled::default();
        }
        let is_set_up = matches!(pdu.body, Body::Sabme { .. });
        let expected = extension::set_up_mark(self.parameters.key, extension.nonce);
        if is_set_up && self.parameters.is_extended && (extension.nonce == 0 || extension.mark != expected) {
            self.counters.unauthenticated += 1;
            return Handled::default();
        }
        let known = self.by_peer.get(peer.key());
        let slot = if is_set_up {
            let key = self.parameters.key_to(extension.cookie);
            if let Some(slot) = known
                && self.is_with_another(slot, key)
            {
                self.counters.refused += 1;
                let handle = self.handle_of(slot);
                self.with_connection(handle, |connection| connection.handle_rival(extension.nonce, now));
                return Handled::default();
            }
            known.or_else(|| self.add_incoming(peer, key, now))
        } else {
            known
        };
        if let Some(slot) = slot {
            return self.handle_connected(slot, pdu, extension, now);
        }
        *(if is_set_up { &mut self.counters.refused } else { &mut self.counters.no_connection }) += 1;
        self.reply_dm(peer, pdu, extension)
    }

    /// Replies DM to a SABME, DISC or poll for a connection that does not exist.
    pub(super) fn reply_dm<'a>(&self, peer: Peer, pdu: &Pdu<'a>, extension: &Extension) -> Handled<'a> {
        let is_set_up = matches!(pdu.body, Body::Sabme { .. });
        let is_polled = pdu.role() == Role::Command && pdu.poll_final();
        if !is_set_up && !is_polled && !matches!(pdu.body, Body::Disc { .. }) {
            return Handled::default();
        }
        let body = Body::Dm { final_bit: pdu.poll_final() };
        let header = Pdu { destination: peer.remote.into(), source: peer.local.into(), body }.header();
        let extra = self.extra(if is_set_up { extension.nonce } else { extension.mark });
        Handled { delivery: None, reply: Some(Reply { destination: peer.mac, header, information: &[], extra }) }
    }

    /// Whether a connection is being set up with a station at the same address that has another key: the process that
    /// sent this one is its successor, or its predecessor. An established one finds out itself, and one that is being
    /// ended does so at once.
    fn is_with_another(&self, slot: u16, key: u64) -> bool {
        let connection = self.entries[usize::from(slot)].connection.as_ref();
        self.parameters.is_extended
            && connection.is_some_and(|connection| {
                let state = connection.state();
                !state.is_connected() && state != State::DConn && connection.peer_key() != key
            })
    }

    fn is_datagram_authentic(&mut self, extension: &Extension) -> bool {
        let is_authentic = !self.parameters.is_extended || extension.mark == self.datagram_mark;
        self.counters.unauthenticated += u64::from(!is_authentic);
        is_authentic
    }

    /// An extension that consists of a mark.
    pub(super) fn extra(&self, mark: u64) -> Extra {
        if self.parameters.is_extended { Extra::datagram(mark) } else { Extra::NONE }
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
        if let Some(slot) = self.by_peer.get(Peer { local, mac: from, remote }.key())
            && !address::is_group_mac(to)
            && let Some(connection) = &mut self.entries[usize::from(slot)].connection
        {
            connection.handle_malformed(bytes, malformed, now);
            self.update_queues(slot);
        }
    }
}
