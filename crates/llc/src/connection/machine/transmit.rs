// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transmission, in order of priority: U PDUs, final responses and polls, data, plain acknowledgements.

use super::{BUSY, Machine, REJECTING, SENDING, Timer};
use crate::address::Source;
use crate::connection::spray::Supervision;
use crate::extension::{self, Extra};
use crate::pdu::{self, Body, Header, Pdu, Role, Supervisory};
use crate::time::Instant;

/// Bits of the PDUs to transmit. The state at transmission decides whether an S PDU is RR, RNR or REJ.
pub(super) struct Pending;

impl Pending {
    /// The lowest bit is sent first. If both ends set up or reset at once, SABME must precede the UA to the peer's
    /// SABME: after it, the peer would treat SABME as another set-up.
    pub const SABME: u16 = 1;
    pub const UA: u16 = 1 << 1;
    pub const DM: u16 = 1 << 2;
    pub const FRMR: u16 = 1 << 3;
    pub const DISC: u16 = 1 << 4;
    /// An S response with F = 1.
    pub const FINAL: u16 = 1 << 5;
    /// An S command with P = 1.
    pub const POLL: u16 = 1 << 6;
    /// An S response with F = 0, unless an I PDU piggybacks it.
    pub const PLAIN: u16 = 1 << 7;
    /// The next S PDU is REJ.
    pub const REJ: u16 = 1 << 8;
    /// F bits of UA, DM and FRMR.
    pub const UA_FINAL: u16 = 1 << 9;
    pub const DM_FINAL: u16 = 1 << 10;
    pub const FRMR_FINAL: u16 = 1 << 11;
    /// PLAIN must not be piggybacked: only an S PDU ends this end's busy condition at the peer.
    pub const READY: u16 = 1 << 12;
    pub const SUPERVISORY: u16 = Self::FINAL | Self::POLL | Self::PLAIN | Self::REJ | Self::READY;
    pub const ANY: u16 = Self::UA | Self::DM | Self::FRMR | Self::SABME | Self::DISC | Self::SUPERVISORY;
}

impl Machine {
    /// Whether `poll_transmit` would return a PDU.
    #[inline]
    pub fn has_pdu(&self) -> bool {
        self.pending & Pending::ANY != 0 || self.may_send_data()
    }

    /// Whether an S response with F = 1 is pending, for which the peer waits.
    #[inline]
    pub fn is_answer_due(&self) -> bool {
        self.pending & Pending::FINAL != 0
    }

    /// The next PDU to transmit, the index of its token, and its extension.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Header, Option<u32>, Extra)> {
        if self.pending & (Pending::ANY & !Pending::PLAIN) != 0 {
            let (header, extra) = self.transmit_pending(now);
            return Some((header, None, extra));
        }
        if self.pending & Pending::PLAIN != 0 && (self.state.is_in(BUSY) || !self.may_send_data()) {
            let (header, extra) = self.transmit_supervisory(Pending::PLAIN, now);
            return Some((header, None, extra));
        }
        if self.may_send_data() {
            let poll = self.is_poll_due();
            let (header, index, extra) = self.transmit_information(poll, now);
            if !self.timer_runs(Timer::Ack) {
                self.start_ack_timer(now);
            }
            if poll {
                self.is_ack_requested &= (self.next.wrapping_sub(self.ack_requested_to) as i32) < 0;
                self.poll_sent(Some(index.wrapping_sub(self.base) as u16 % extension::NUMBERS), now);
                self.start_poll_timer(now);
            }
            return Some((header, Some(index), extra));
        }
        None
    }

    pub(super) fn command(&mut self, command: u16, poll: bool) {
        self.pending = self.pending & !(Pending::SUPERVISORY | Pending::SABME | Pending::DISC) | command;
        self.p_flag = poll;
    }

    /// Queues a U response, which replaces an older one. DM replaces everything.
    pub(super) fn answer(&mut self, response: u16) {
        let kept = if response & Pending::DM != 0 { 0 } else { Pending::SUPERVISORY | Pending::SABME | Pending::DISC };
        self.pending = response | self.pending & kept;
    }

    fn transmit_pending(&mut self, now: Instant) -> (Header, Extra) {
        const UNNUMBERED: u16 = Pending::UA | Pending::DM | Pending::FRMR | Pending::SABME | Pending::DISC;
        if self.pending & UNNUMBERED == 0 {
            // REJ precedes a poll, so that the answer to the poll follows the retransmissions.
            let is_urgent = self.pending & (Pending::REJ | Pending::READY) != 0;
            let order = [Pending::FINAL, if is_urgent { Pending::PLAIN } else { 0 }, Pending::POLL];
            let kind = order.into_iter().find(|kind| self.pending & kind != 0).unwrap_or(Pending::PLAIN);
            return self.transmit_supervisory(kind, now);
        }
        self.label_unnumbered();
        let bits = self.pending;
        let lowest = 1 << (bits & UNNUMBERED).trailing_zeros();
        self.pending &= !lowest;
        let body = match lowest {
            Pending::UA => Body::Ua { final_bit: bits & Pending::UA_FINAL != 0 },
            Pending::DM => Body::Dm { final_bit: bits & Pending::DM_FINAL != 0 },
            Pending::FRMR => Body::Frmr { final_bit: bits & Pending::FRMR_FINAL != 0, reason: self.frmr },
            Pending::SABME => Body::Sabme { poll: self.sabme_poll },
            _ => Body::Disc { poll: true },
        };
        let [destination, source] = self.addresses;
        let source = Source::from_byte(source);
        let extra = match body {
            _ if !self.parameters.is_extended => Extra::NONE,
            Body::Sabme { .. } => self.set_up(self.identity.set_up_mark()),
            Body::Ua { .. } => self.set_up(self.identity.response_mark()),
            Body::Dm { .. } => Extra::datagram(self.identity.response_mark()),
            _ => Extra::datagram(self.identity.send_mark()),
        };
        (Pdu { destination: destination.into(), source, body }.header(), extra)
    }

    fn set_up(&self, mark: u64) -> Extra {
        Extra::set_up(mark, self.identity.nonce(), self.parameters.cookie)
    }

    fn transmit_supervisory(&mut self, kind: u16, now: Instant) -> (Header, Extra) {
        // Repeating REJ with the kept PDUs reveals retransmissions that were lost as well.
        let repeats_rej = self.parameters.is_extended && self.kept != 0 && !self.timer_runs(Timer::Gap);
        let is_rej_due = self.pending & Pending::REJ != 0 || repeats_rej;
        let rejects = is_rej_due && self.state.is_in(REJECTING) && !mutant!(self, NoRej);
        let function = if self.state.is_in(BUSY) {
            Supervisory::Rnr
        } else if rejects {
            Supervisory::Rej
        } else {
            Supervisory::Rr
        };
        let supervision = match kind {
            Pending::POLL => Supervision::Poll,
            Pending::FINAL => Supervision::Answer,
            _ => Supervision::Plain,
        };
        let is_copied = self.label_supervisory(supervision, now);
        // Whatever its kind, this S PDU also serves a pending acknowledgement and REJ.
        self.pending &= !(if is_copied { 0 } else { kind } | Pending::PLAIN | Pending::REJ | Pending::READY);
        self.ack_sent();
        let (role, poll) = match supervision {
            Supervision::Poll => (Role::Command, self.poll_sent(None, now)),
            Supervision::Answer => (Role::Response, self.answered_poll),
            Supervision::Plain => (Role::Response, 0),
        };
        let control = pdu::supervisory_control(function, self.vr(), kind != Pending::PLAIN);
        let extra = if self.parameters.is_extended {
            let lacks_the_rest = rejects && core::mem::take(&mut self.lacks_the_rest);
            Extra::supervisory(self.identity.send_mark(), self.received, self.kept, lacks_the_rest, poll)
        } else {
            Extra::NONE
        };
        (Header::numbered([self.addresses[0], self.addresses[1] | role as u8], control), extra)
    }

    #[inline]
    fn transmit_information(&mut self, poll: bool, now: Instant) -> (Header, u32, Extra) {
        let index = if self.to_resend == 0 {
            let index = self.next;
            self.next = self.skip_peer_kept(index.wrapping_add(1));
            index
        } else {
            let first = self.to_resend.trailing_zeros();
            self.to_resend &= self.to_resend - 1;
            self.acknowledged.wrapping_add(first)
        };
        let is_retransmission = index != self.sent;
        if !is_retransmission {
            self.sent = index.wrapping_add(1);
            self.round_trip.sent(index, now);
        } else {
            self.counters.information_repeated += 1;
        }
        self.counters.information_sent += 1;
        let control = pdu::information_control(self.sequence(index), self.vr(), poll);
        if !self.state.is_in(BUSY) {
            self.pending &= !Pending::PLAIN;
        }
        self.ack_sent();
        let extra = if self.parameters.is_extended {
            let slot = self.order_slot(index);
            self.order[slot] = self.counters.information_sent as u32;
            if self.spray.is_some() {
                self.label_information(slot, is_retransmission, now);
            }
            let ns = index.wrapping_sub(self.base);
            Extra::information(self.identity.send_mark(), ns, self.received, is_retransmission)
        } else {
            Extra::NONE
        };
        (Header::numbered(self.addresses, control), index, extra)
    }

    /// The PDU being transmitted carries V(R): no acknowledgement is pending any more.
    #[inline]
    fn ack_sent(&mut self) {
        self.unacknowledged = 0;
        self.stop(Timer::Delay);
    }

    #[inline]
    fn may_send_data(&self) -> bool {
        let is_open = self.next != self.queued
            && self.next.wrapping_sub(self.acknowledged)
                < u32::from(self.window) + u32::from(mutant!(self, WindowOffByOne));
        (is_open || self.to_resend != 0) && !self.remote_busy && !self.is_data_held && self.state.is_in(SENDING)
    }

    /// Whether the next I PDU should poll for an immediate acknowledgement: it is the last in a window shrunk by loss,
    /// or the last of an acknowledgement request. The latter also while a poll is outstanding, if answers tell which
    /// poll they answer: later, the peer may no longer receive.
    #[inline]
    pub(super) fn is_poll_due(&self) -> bool {
        if self.to_resend != 0 {
            return false;
        }
        let closes_shrunk_window = !self.p_flag
            && self.window < self.parameters.window
            && self.next.wrapping_sub(self.acknowledged) + 1 == u32::from(self.window);
        closes_shrunk_window
            || self.is_ack_requested
                && (!self.p_flag || self.parameters.is_extended)
                && (self.next.wrapping_sub(self.ack_requested_to) as i32) < 0
                && (self.skip_peer_kept(self.next.wrapping_add(1)).wrapping_sub(self.ack_requested_to) as i32) >= 0
    }
}
