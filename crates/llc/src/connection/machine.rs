// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State variables of a connection and the processing of its events.

use alloc::boxed::Box;
use alloc::vec;

use super::identity::Identity;
use super::numbered_polls::NumberedPolls;
use super::polls::Polls;
use super::reordering::Reordering;
use super::round_trip::RoundTrip;
use super::spray::Spray;
use super::state::{Event, State};
use super::table::{self, Next};
use super::{Cause, ConnectionCounters, Disposition};
use crate::bounds;
use crate::config::{AfterLoss, Parameters};
use crate::extension::{self, Extension};
use crate::pdu::{Body, FrmrInformation, Pdu, Role, SequenceNumber, Supervisory};
use crate::time::Instant;
pub(crate) use indications::{Indication, Indications};
use transmit::Pending;

/// State of a connection except the user's tokens, which are in the send queue under the same
/// absolute, wrapping indices: `acknowledged <= next <= sent <= queued`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub parameters: Parameters,
    /// DSAP and SSAP of this end's commands.
    addresses: [u8; 2],
    pub state: State,
    /// Number of I PDUs received in sequence; modulo 128 it is V(R).
    received: u32,
    /// Bit i: the user keeps I PDU V(R) + i, received early. This field up to `order`: extended connections only.
    kept: u128,
    /// Bit i: the peer keeps I PDU V(A) + i.
    peer_kept: u128,
    /// Bit i: I PDU V(A) + i is to be retransmitted.
    to_resend: u128,
    /// For each I PDU in flight, by index: value of `information_sent` at its last transmission.
    order: Box<[u32]>,
    reordering: Reordering,
    /// Where PDUs have labels.
    pub spray: Option<Box<Spray>>,
    pub identity: Identity,
    /// Value of `information_sent` when the peer last sent REJ with P or F.
    sent_at_rej: u32,
    /// The next REJ reports every PDU that is not kept as missing.
    lacks_the_rest: bool,
    /// The index that had N(S) = 0.
    base: u32,
    /// V(A): one after the last acknowledged PDU.
    pub acknowledged: u32,
    /// V(S): the next PDU to transmit or retransmit.
    pub next: u32,
    /// One after the last PDU ever transmitted.
    sent: u32,
    /// One after the last PDU in the queue.
    pub queued: u32,
    /// The current window, 1 to k; smaller than k after loss.
    pub window: u8,
    /// PDUs acknowledged since the window last changed.
    growth_credit: u16,
    /// The window was already reduced for losses before this index.
    recovery_point: u32,
    /// I PDUs received since the last acknowledgement was sent.
    unacknowledged: u8,
    retry_count: u8,
    reject_count: u8,
    data_flag: u8,
    p_flag: bool,
    /// P bit of this end's SABME.
    sabme_poll: bool,
    s_flag: bool,
    pub remote_busy: bool,
    /// Whether data has been received or acknowledged since set-up.
    has_exchanged: bool,
    /// Data is held back until an I or S PDU of the peer arrives: it may still repeat its SABME.
    is_data_held: bool,
    /// The user requested the acknowledgement of all PDUs before this index …
    ack_requested_to: u32,
    /// … and the request was not sent yet.
    is_ack_requested: bool,
    /// The connection ends once all data is acknowledged.
    pub is_finishing: bool,
    /// P bit of a SABME that waits for the user's answer or for verification polls.
    held_poll: bool,
    /// 1 + the number of polls sent to verify whether a SABME received during data transfer is a reset; 0 if none is in
    /// question. An I or S PDU proves that the peer is connected.
    verification_polls: u8,
    /// Nonce of a SABME of another station at the peer's address during set-up, and `retry_count` when it first came.
    rival: Option<(u64, u8)>,
    /// PDUs to transmit: [`Pending`] bits.
    pending: u16,
    timers: [Instant; Timer::COUNT],
    /// Lower bound of the earliest timer. Timers are often postponed; they are checked only when this time has passed.
    wake: Instant,
    last_heard: Instant,
    /// Since when the PDU that is expected next has been missing.
    rejecting_since: Instant,
    /// Time of the last poll because of inactivity.
    last_polled: Instant,
    /// Since when every N(R) was outside the window; `NEVER` if the last one was valid.
    nr_invalid_since: Instant,
    frmr: FrmrInformation,
    pub round_trip: RoundTrip,
    /// Without the extension.
    polls: Polls,
    /// With it.
    numbered_polls: NumberedPolls,
    /// Number of the peer's last poll, which the next final response has.
    answered_poll: u16,
    /// Number of the last I PDU that polled ahead of sequence: its answer told what was missing.
    polled_early: Option<u16>,
    pub indications: Indications,
    /// Range of indices of dropped tokens that the user has not polled; empty if both are equal.
    pub dropped: (u32, u32),
    pub counters: ConnectionCounters,
}

/// Parameters of an event: the received PDU, or the user's request.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub now: Instant,
    pub poll_final: bool,
    /// Number of newly acknowledged I PDUs.
    pub progress: u32,
    pub cause: Cause,
    pub extension: Extension,
}

#[derive(Clone, Copy)]
enum Timer {
    Ack,
    Poll,
    Reject,
    Busy,
    Stall,
    Delay,
    Gap,
}

impl Timer {
    const COUNT: usize = 7;
    const EVENTS: [Event; Self::COUNT] = [
        Event::AckTimer,
        Event::PollTimer,
        Event::RejectTimer,
        Event::BusyTimer,
        Event::StallTimer,
        Event::DelayTimer,
        Event::GapTimer,
    ];
}

/// Whether this fault is injected; always false without the feature `mutants`.
#[cfg(feature = "mutants")]
macro_rules! mutant {
    ($machine:expr, $fault:ident) => {
        $machine.parameters.mutant == Some(crate::config::Mutant::$fault)
    };
}
#[cfg(not(feature = "mutants"))]
macro_rules! mutant {
    ($machine:expr, $fault:ident) => {
        false
    };
}

// After `mutant!`, which these modules use.
mod actions;
mod gaps;
mod indications;
mod labels;
mod polling;
mod transmit;

/// SABMEs that stay unanswered while another station at the peer's address repeats its own.
const RIVAL_RETRIES: u8 = 2;
/// After more unanswered polls than these, the peer was silent, rather than a frame lost.
const POLLS_OF_SILENCE: u8 = 3;
const SENDING: u16 = State::Normal.bit() | State::Busy.bit() | State::Reject.bit();
const BUSY: u16 = State::Busy.bit() | State::AwaitBusy.bit();
const REJECTING: u16 = State::Reject.bit() | State::AwaitReject.bit();

impl Machine {
    pub fn new(parameters: Parameters, addresses: [u8; 2], identity: Identity, now: Instant) -> Self {
        let has_labels = parameters.labels > 1;
        let in_flight = if parameters.is_extended { usize::from(parameters.window).next_power_of_two() } else { 0 };
        Self {
            parameters,
            addresses,
            state: State::Adm,
            received: 0,
            kept: 0,
            peer_kept: 0,
            to_resend: 0,
            order: vec![0; in_flight].into_boxed_slice(),
            reordering: Reordering::default(),
            spray: has_labels.then(|| Box::new(Spray::new(parameters.labels, in_flight, identity.nonce()))),
            identity,
            sent_at_rej: 0,
            lacks_the_rest: false,
            base: 0,
            acknowledged: 0,
            next: 0,
            sent: 0,
            queued: 0,
            window: parameters.window,
            growth_credit: 0,
            recovery_point: 0,
            unacknowledged: 0,
            retry_count: 0,
            reject_count: 0,
            data_flag: 0,
            p_flag: false,
            sabme_poll: true,
            s_flag: false,
            remote_busy: false,
            has_exchanged: false,
            is_data_held: false,
            ack_requested_to: 0,
            is_ack_requested: false,
            is_finishing: false,
            held_poll: false,
            verification_polls: 0,
            rival: None,
            pending: 0,
            timers: [Instant::NEVER; Timer::COUNT],
            wake: Instant::NEVER,
            last_heard: now,
            rejecting_since: now,
            last_polled: now,
            nr_invalid_since: Instant::NEVER,
            frmr: FrmrInformation([0; 5]),
            round_trip: RoundTrip::new(&parameters),
            polls: Polls::NONE,
            numbered_polls: NumberedPolls::NONE,
            answered_poll: 0,
            polled_early: None,
            indications: Indications::default(),
            dropped: (0, 0),
            counters: ConnectionCounters::default(),
        }
    }

    /// Processes a type 2 PDU. An in-sequence I PDU in state NORMAL takes a fast path.
    #[inline]
    pub fn handle(&mut self, pdu: &Pdu<'_>, extension: &Extension, now: Instant) -> Disposition {
        if let Body::I { role, poll_final, information, .. } = pdu.body {
            let outstanding = self.sent.wrapping_sub(self.acknowledged);
            let progress = self.ahead_of(extension.nr, self.acknowledged.wrapping_sub(self.base));
            let needs_no_answer = !poll_final || (role as u8 == Role::Response as u8 && !self.p_flag);
            if self.state == State::Normal
                && needs_no_answer
                && self.ahead_of(extension.ns, self.received) == 0
                && u32::from(progress) <= outstanding
                && information.len() <= usize::from(self.parameters.information_max)
                && self.is_authentic(pdu, extension)
            {
                (self.last_heard, self.nr_invalid_since) = (now, Instant::NEVER);
                self.confirm_peer();
                self.deliver();
                self.update_nr(u32::from(progress), now);
                self.delay_ack(now);
                self.finish(now);
                return Disposition::InOrder;
            }
        }
        self.handle_by_table(pdu, extension, now)
    }

    /// As [`handle`](Self::handle), without the fast path.
    pub fn handle_by_table(&mut self, pdu: &Pdu<'_>, extension: &Extension, now: Instant) -> Disposition {
        if !self.is_authentic(pdu, extension) {
            self.counters.unauthenticated += 1;
            return Disposition::Foreign;
        }
        self.last_heard = now;
        let (role, bit) = (pdu.role(), pdu.poll_final());
        let is_response = role == Role::Response;
        let is_poll = bit && !is_response;
        let poll_final = is_poll || bit && self.answers_poll(pdu, extension, now);
        let mut context = Context { now, poll_final: bit, progress: 0, cause: Cause::Requested, extension: *extension };
        let event = match pdu.body {
            Body::I { information, .. } => {
                let kind = match self.classify(information, &mut context) {
                    Ok(Some(kind)) => kind,
                    Ok(None) => {
                        self.counters.received_again += 1;
                        self.counters.received_late += 1;
                        return Disposition::NoData;
                    }
                    Err(flags) => return self.reject(pdu.header().as_bytes(), role, bit, flags, now),
                };
                self.confirm_peer();
                if is_poll {
                    self.answered_poll = extension.ns;
                }
                match kind {
                    Event::IC0 if self.state.is_in(REJECTING) => {
                        self.reordering.gap_closed(extension.is_flagged, now);
                    }
                    Event::AheadC0 => {
                        self.counters.received_ahead += 1;
                        if is_poll {
                            self.polled_early = Some(extension.ns);
                        }
                        self.reordering.gap_detected(self.state.is_in(REJECTING), now);
                        let is_delivered = self.dispatch(Event::numbered(kind, is_response, poll_final), context);
                        debug_assert!(!is_delivered || cfg!(feature = "mutants"));
                        let can_keep = self.parameters.is_extended && !self.state.is_in(BUSY);
                        let ahead = self.ahead_of(extension.ns, self.received);
                        return match is_delivered {
                            true => Disposition::InOrder,
                            false if can_keep && self.kept >> ahead & 1 == 0 => Disposition::Early,
                            false => Disposition::NoData,
                        };
                    }
                    Event::DupC0 => {
                        self.counters.received_again += 1;
                        self.reordering.duplicate_received(extension.is_flagged, now);
                    }
                    _ => {}
                }
                Event::numbered(kind, is_response, poll_final)
            }
            Body::S { function, .. } => {
                let is_fresh = match self.check_nr(&mut context) {
                    Ok(is_fresh) => is_fresh,
                    Err(flags) => return self.reject(pdu.header().as_bytes(), role, bit, flags, now),
                };
                self.confirm_peer();
                self.counters.overtaken += u64::from(!is_fresh);
                if is_poll {
                    self.answered_poll = extension.poll;
                    self.label_polled(now);
                }
                let kind = match function {
                    Supervisory::Rr => Event::RrC0,
                    Supervisory::Rnr => Event::RnrC0,
                    // A stale REJ requests PDUs that have since been acknowledged.
                    Supervisory::Rej if is_fresh => Event::RejC0,
                    Supervisory::Rej => Event::RrC0,
                };
                Event::numbered(kind, is_response, poll_final)
            }
            Body::Sabme { .. } => {
                context.cause = match self.state {
                    // It has disconnected, and its UA was lost.
                    State::DConn => Cause::Requested,
                    _ => Cause::PeerReset,
                };
                // It may be a repetition, because the answer was lost.
                self.leave_home(now);
                let is_known = self.parameters.is_extended && self.identity.is_peer_nonce(extension.nonce);
                if is_known && self.state.is_connected() { Event::SabmeDup } else { Event::Sabme }
            }
            Body::Disc { .. } => {
                context.cause = Cause::PeerDisconnected;
                Event::Disc
            }
            Body::Ua { .. } => {
                if self.state.is_in(State::Setup.bit() | State::Reset.bit()) {
                    self.identity.handle_ua(extension);
                }
                Event::Ua
            }
            Body::Dm { .. } => {
                context.cause = match self.state {
                    State::Setup => Cause::PeerRefused,
                    // It has disconnected, and its UA was lost.
                    State::DConn => Cause::Requested,
                    _ => Cause::PeerNotConnected,
                };
                Event::Dm
            }
            Body::Frmr { reason, .. } => {
                context.cause = Cause::PeerRejected(reason);
                self.counters.frmr_received += u64::from(self.state.is_connected());
                Event::Frmr
            }
            // Types 1 and 3 are handled by the station.
            Body::Ui { .. }
            | Body::Xid { .. }
            | Body::Test { .. }
            | Body::AcCommand { .. }
            | Body::AcResponse { .. } => {
                return Disposition::NoData;
            }
        };
        if self.dispatch(event, context) { Disposition::InOrder } else { Disposition::NoData }
    }

    #[inline]
    fn is_authentic(&self, pdu: &Pdu<'_>, extension: &Extension) -> bool {
        !self.parameters.is_extended
            || match pdu.body {
                Body::I { .. } | Body::S { .. } if mutant!(self, MultipleUnchecked) => {
                    self.identity.may_be_of_connection(extension.mark)
                }
                Body::I { .. } | Body::S { .. } => {
                    let is_i = matches!(pdu.body, Body::I { .. });
                    let ns = if is_i { self.whole(extension.ns, self.received) } else { 0 };
                    let nr = self.whole(extension.nr, self.acknowledged.wrapping_sub(self.base));
                    self.identity.is_of_connection(extension::numbered_mark(extension.mark, ns, nr))
                }
                _ => self.identity.is_authentic(pdu, extension.mark),
            }
    }

    /// Distance of a received number from `count`, modulo 128 or, extended, 2^14.
    #[inline]
    fn ahead_of(&self, number: u16, count: u32) -> u16 {
        number.wrapping_sub(count as u16) & self.number_mask()
    }

    /// The whole number of which 14 bits were received: the one nearest to `count`.
    #[inline]
    fn whole(&self, number: u16, count: u32) -> u32 {
        const HALF: u32 = extension::NUMBERS as u32 / 2;
        count.wrapping_add(u32::from(self.ahead_of(number, count.wrapping_sub(HALF)))).wrapping_sub(HALF)
    }

    #[inline]
    fn number_mask(&self) -> u16 {
        if self.parameters.is_extended { extension::NUMBERS - 1 } else { SequenceNumber::MODULUS as u16 - 1 }
    }

    /// Answers a PDU that violates the protocol with FRMR. `header`: from DSAP to the control field.
    pub fn reject(&mut self, header: &[u8], role: Role, poll_final: bool, flags: u8, now: Instant) -> Disposition {
        if self.state.is_connected() {
            let control = [header.get(2).copied().unwrap_or(0), header.get(3).copied().unwrap_or(0)];
            let (vs, vr) = (self.sequence(self.next), self.vr());
            self.frmr = FrmrInformation::new(control, role, vs, vr, flags);
            self.counters.frmr_sent += 1;
            for (number, count) in self.counters.frmr_causes.iter_mut().enumerate() {
                *count += u64::from(flags >> number & 1);
            }
            let poll_final = poll_final && role == Role::Command;
            self.dispatch(Event::Bad, Context { poll_final, ..self.context(now, Cause::Requested) });
        }
        Disposition::NoData
    }

    /// Processes a request of the user. False if the state does not change.
    pub fn request(&mut self, event: Event, now: Instant) -> bool {
        let before = self.state;
        self.dispatch(event, self.context(now, Cause::Requested));
        before != self.state
    }

    /// Handles a SABME of another station at the peer's address during set-up. If it is repeated while this end's stay
    /// unanswered, that station has taken the peer's place, and the set-up ends. Once may be a late one of a predecessor.
    pub fn handle_rival(&mut self, nonce: u64, now: Instant) {
        if self.state != State::Setup {
            return;
        }
        match self.rival {
            Some((known, retries)) if known == nonce => {
                if self.retry_count >= retries.saturating_add(RIVAL_RETRIES) {
                    self.dispatch(Event::Dm, self.context(now, Cause::PeerReset));
                }
            }
            _ => self.rival = Some((nonce, self.retry_count)),
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        for (number, event) in Timer::EVENTS.into_iter().enumerate() {
            if self.timers[number] <= now {
                self.timers[number] = Instant::NEVER;
                let cause = match event {
                    Event::StallTimer => Cause::Stalled,
                    Event::PollTimer if self.has_verification_failed() => Cause::PeerReset,
                    _ => Cause::NoAnswer,
                };
                self.counters.timeouts += u64::from(!matches!(event, Event::DelayTimer));
                if matches!(event, Event::AckTimer | Event::PollTimer | Event::RejectTimer) {
                    self.leave_home(now);
                    self.copy_poll(matches!(event, Event::PollTimer));
                }
                self.dispatch(event, self.context(now, cause));
            }
        }
        if self.judge_deadline() <= now {
            self.judge_labels(now);
        }
        if self.inactivity_deadline() <= now {
            self.last_polled = now;
            self.dispatch(Event::InactivityTimer, self.context(now, Cause::NoAnswer));
        }
        self.wake = self.next_deadline();
    }

    pub fn next_deadline(&self) -> Instant {
        let others = self.inactivity_deadline().min(self.judge_deadline());
        self.timers.iter().fold(others, |earliest, timer| earliest.min(*timer))
    }

    /// As [`wake`](Self::wake), but exact.
    pub fn exact_wake(&mut self) -> Instant {
        self.wake = self.next_deadline();
        self.wake
    }

    /// When to check the timers: a lower bound of [`next_deadline`](Self::next_deadline).
    #[inline]
    pub fn wake(&self) -> Instant {
        self.wake
    }

    /// Records that a token was queued.
    #[inline]
    pub fn enqueue(&mut self, now: Instant) {
        if self.queued == self.acknowledged {
            self.set_timer(Timer::Stall, now.after(self.parameters.stall_limit_ns));
        }
        self.queued = self.queued.wrapping_add(1);
    }

    /// Requests the acknowledgement of all queued PDUs, once, with the last of them.
    #[inline]
    pub fn request_ack(&mut self, now: Instant) {
        let is_request_sent = self.ack_requested_to == self.queued && !self.is_ack_requested;
        if self.queued == self.acknowledged || is_request_sent {
            return;
        }
        (self.ack_requested_to, self.is_ack_requested) = (self.queued, true);
        self.poll_for_requested_ack(now);
    }

    /// Polls the peer if the last PDU of an acknowledgement request has left with P = 0.
    #[inline]
    fn poll_for_requested_ack(&mut self, now: Instant) {
        if !self.is_ack_requested || self.p_flag || self.remote_busy || !self.state.is_in(SENDING) {
            return;
        }
        let has_left = self.next.wrapping_sub(self.ack_requested_to) as i32 >= 0;
        if has_left {
            self.is_ack_requested = false;
            self.dispatch(Event::AckRequested, self.context(now, Cause::Requested));
        }
    }

    /// Disconnects if the user requested that and all data is acknowledged.
    #[inline]
    pub fn finish(&mut self, now: Instant) {
        if self.is_finishing && self.acknowledged == self.queued && self.state.is_connected() {
            self.dispatch(Event::DisconnectRequest, self.context(now, Cause::Requested));
        }
    }

    /// I PDUs sent and not acknowledged.
    pub fn outstanding(&self) -> u32 {
        self.sent.wrapping_sub(self.acknowledged)
    }

    /// Checks the invariants, which no input from the peer may violate.
    #[cfg(any(test, debug_assertions))]
    pub fn check(&self) {
        #[cfg(feature = "mutants")]
        if self.parameters.mutant.is_some() {
            return;
        }
        let from_acknowledged = |index: u32| index.wrapping_sub(self.acknowledged);
        assert!(from_acknowledged(self.next) <= from_acknowledged(self.sent));
        assert!(from_acknowledged(self.sent) <= from_acknowledged(self.queued));
        assert!(from_acknowledged(self.sent) <= u32::from(self.parameters.window));
        assert!(from_acknowledged(self.queued) <= u32::from(self.parameters.queue));
        assert!(self.window >= 1 && self.window <= self.parameters.window);
        assert!(self.retry_count <= self.parameters.retries);
        assert!(self.wake <= self.next_deadline(), "wakes too late: {self:?}");
        if self.state.is_connected() && self.queued != self.acknowledged {
            assert!(self.timer_runs(Timer::Stall));
            let supervised =
                self.timer_runs(Timer::Ack) || self.timer_runs(Timer::Poll) || self.timer_runs(Timer::Busy);
            assert!(supervised || self.has_pdu(), "no timer runs: {self:?}");
        }
        if self.state.is_in(State::Await.bit() | BUSY & !State::Busy.bit() | State::AwaitReject.bit()) {
            assert!(self.timer_runs(Timer::Poll), "no poll timer runs: {self:?}");
        }
        if !self.state.is_connected() {
            assert!(self.acknowledged == self.queued);
        }
        let in_flight = self.outstanding();
        assert!(self.to_resend == 0 || u128::BITS - self.to_resend.leading_zeros() <= in_flight);
        assert!(self.peer_kept & 1 == 0 && u128::BITS - self.peer_kept.leading_zeros() <= in_flight);
    }

    /// Normalises `wake`, the only variable in which two equal histories may differ.
    #[cfg(test)]
    pub fn with_exact_wake(mut self) -> Self {
        self.wake = self.next_deadline();
        self
    }

    /// What the table prescribes for queued data: `None` not to send it, else the P bit to send it with.
    #[cfg(test)]
    pub fn data_request(&self) -> Option<bool> {
        let is_new = self.next != self.queued && self.next.wrapping_sub(self.acknowledged) < u32::from(self.window);
        let is_open = is_new || self.to_resend != 0;
        let context = self.context(Instant::default(), Cause::Requested);
        let row = table::find(self.state, Event::DataRequest, |qualifier| self.holds(qualifier, &context));
        row.filter(|_| is_open).map(|row| row.actions.contains(&super::state::Action::SendIPoll))
    }

    pub(super) fn dispatch(&mut self, event: Event, context: Context) -> bool {
        let Some(row) = table::find(self.state, event, |qualifier| self.holds(qualifier, &context)) else {
            self.counters.ignored += 1;
            return false;
        };
        // Actions see the old state, never the new one.
        let mut deliver = false;
        for action in row.actions {
            deliver |= self.perform(*action, &context);
        }
        if let Next::To(next) = row.next {
            self.state = next;
            if next == State::Adm {
                self.timers = [Instant::NEVER; Timer::COUNT];
                self.pending &= Pending::UA | Pending::UA_FINAL | Pending::DM | Pending::DM_FINAL;
            }
        }
        self.wake = self.next_deadline();
        self.finish(context.now);
        self.poll_for_requested_ack(context.now);
        deliver
    }

    /// The event of an I PDU, or the FRMR flags if the PDU is invalid. `Ok(None)`: a late duplicate, whose N(R) is
    /// stale.
    fn classify(&mut self, information: &[u8], context: &mut Context) -> Result<Option<Event>, u8> {
        if !self.state.is_connected() {
            return Ok(Some(Event::IC0));
        }
        if information.len() > usize::from(self.parameters.information_max) {
            return Err(FrmrInformation::Y);
        }
        let window = u16::from(self.parameters.receive_window);
        let ahead = self.ahead_of(context.extension.ns, self.received);
        let behind = self.number_mask() + 1 - ahead;
        let is_late = self.parameters.is_extended && ahead >= window && behind > window;
        if is_late && !mutant!(self, RoundUnchecked) {
            return Ok(None);
        }
        self.check_nr(context)?;
        match ahead {
            0 => Ok(Some(Event::IC0)),
            _ if mutant!(self, DeliversAgain) && behind <= window => Ok(Some(Event::IC0)),
            _ if mutant!(self, DeliversAhead) && ahead < window => Ok(Some(Event::IC0)),
            _ if mutant!(self, RoundUnchecked) && ahead.is_multiple_of(u16::from(SequenceNumber::MODULUS)) => {
                Ok(Some(Event::IC0))
            }
            _ if ahead < window => Ok(Some(Event::AheadC0)),
            _ if behind <= window => Ok(Some(Event::DupC0)),
            _ => Err(FrmrInformation::V),
        }
    }

    /// Validates N(R) and sets `progress`; the error is the FRMR flags. `Ok(false)`: N(R) is stale. Without rounds a
    /// stale N(R) that has wrapped can acknowledge PDUs that the peer lacks; all later N(R) of the peer then seem
    /// stale, and after a time are treated as invalid.
    fn check_nr(&mut self, context: &mut Context) -> Result<bool, u8> {
        let progress = self.ahead_of(context.extension.nr, self.acknowledged.wrapping_sub(self.base));
        if !self.state.is_connected() {
            return Ok(true);
        }
        if u32::from(progress) <= self.outstanding() || mutant!(self, NrUnchecked) {
            context.progress = u32::from(progress) % u32::from(SequenceNumber::MODULUS);
            self.nr_invalid_since = Instant::NEVER;
            return Ok(true);
        }
        let behind = self.number_mask() + 1 - progress;
        let is_stale = if self.parameters.is_extended {
            behind <= extension::NUMBERS / 2
        } else {
            behind <= u16::from(bounds::STALE_NR_MAX) && self.has_exchanged
        };
        context.extension.kept = 0;
        self.nr_invalid_since = self.nr_invalid_since.min(context.now);
        let limit_ns = self.parameters.stall_limit_ns.min(bounds::STALL_LIMIT.as_nanos() as u64);
        let is_persistent = self.nr_invalid_since.after(limit_ns) <= context.now;
        if is_stale && !is_persistent { Ok(false) } else { Err(FrmrInformation::Z) }
    }

    fn context(&self, now: Instant, cause: Cause) -> Context {
        Context { now, poll_final: false, progress: 0, cause, extension: Extension::default() }
    }

    #[inline]
    fn vr(&self) -> SequenceNumber {
        SequenceNumber::wrapping(self.received)
    }

    #[inline]
    fn sequence(&self, index: u32) -> SequenceNumber {
        SequenceNumber::wrapping(index.wrapping_sub(self.base))
    }

    /// An I or S PDU was received: the peer is connected.
    #[inline]
    fn confirm_peer(&mut self) {
        self.verification_polls = 0;
        if self.is_data_held && self.state.is_connected() {
            self.is_data_held = false;
            if self.next == self.acknowledged {
                self.stop(Timer::Ack);
            }
        }
    }

    #[inline]
    fn deliver(&mut self) {
        self.received = self.received.wrapping_add(1);
        self.kept >>= 1;
        self.reject_count = 0;
        self.has_exchanged = true;
        self.counters.information_received += 1;
    }

    #[inline]
    fn delay_ack(&mut self, now: Instant) {
        self.unacknowledged = self.unacknowledged.saturating_add(1);
        if self.unacknowledged >= self.parameters.acknowledge_every {
            self.pending |= Pending::PLAIN;
        } else if !self.timer_runs(Timer::Delay) {
            self.set_timer(Timer::Delay, now.after(self.parameters.acknowledge_delay_ns));
        }
    }

    #[inline]
    fn update_nr(&mut self, progress: u32, now: Instant) {
        if progress == 0 {
            if self.sent == self.acknowledged {
                self.retry_count = 0;
            }
            return;
        }
        let progress = progress + u32::from(mutant!(self, NrOffByOne) && progress < self.outstanding());
        if self.spray.is_some() {
            self.labels_arrived(((1 << progress.min(127)) - 1) & !self.peer_kept, now);
        }
        self.acknowledged = self.acknowledged.wrapping_add(progress);
        if (self.next.wrapping_sub(self.acknowledged) as i32) < 0 {
            self.next = self.acknowledged;
        }
        self.to_resend = self.to_resend.checked_shr(progress).unwrap_or(0);
        self.peer_kept = self.peer_kept.checked_shr(progress).unwrap_or(0) & !1;
        self.is_ack_requested &= (self.acknowledged.wrapping_sub(self.ack_requested_to) as i32) < 0;
        self.has_exchanged = true;
        let unanswered = core::mem::take(&mut self.retry_count);
        if unanswered > POLLS_OF_SILENCE && self.timer_runs(Timer::Poll) {
            // The peer receives again, though polls were lost: the next one need not wait as long as it was silent.
            let due = now.after(self.t1_ns(0));
            if self.timers[Timer::Poll as usize] > due {
                self.set_timer(Timer::Poll, due);
            }
        }
        self.counters.information_acknowledged += u64::from(progress);
        self.round_trip.acknowledged(self.acknowledged, now, &self.parameters);
        if self.window < self.parameters.window {
            self.grow(progress);
        }
        if self.next == self.acknowledged {
            self.stop(Timer::Ack);
        } else {
            self.start_ack_timer(now);
        }
        if self.queued == self.acknowledged {
            self.stop(Timer::Stall);
        } else {
            self.set_timer(Timer::Stall, now.after(self.parameters.stall_limit_ns));
        }
    }

    fn grow(&mut self, progress: u32) {
        self.growth_credit = self.growth_credit.saturating_add(progress as u16);
        while self.growth_credit >= self.parameters.grow_after && self.window < self.parameters.window {
            self.growth_credit -= self.parameters.grow_after;
            self.window += 1;
        }
    }

    /// V(S) := V(A).
    fn rewind(&mut self) {
        self.to_resend = 0;
        if self.next != self.acknowledged {
            self.next = self.acknowledged.wrapping_add(u32::from(mutant!(self, ResendsFromSecond)));
            self.stop(Timer::Ack);
            // An acknowledgement requested for PDUs that are retransmitted must be requested again.
            self.is_ack_requested |= (self.acknowledged.wrapping_sub(self.ack_requested_to) as i32) < 0;
        }
        self.round_trip.cancel();
    }

    /// Retransmits what the peer has not received. The window shrinks once for each loss.
    fn resend(&mut self, context: &Context) {
        // The answer to a poll after a timeout covers all PDUs sent; a REJ only those before one received early. A peer
        // that sends REJ with P or F again, while nothing was sent, has had the answer to the first time, which
        // followed these PDUs; or the network has duplicated it.
        let sent = self.counters.information_sent as u32;
        // With labels the answer may have overtaken them: T1 decides, so a repeated REJ must not restart it.
        let is_repeated =
            self.spray.is_none() && context.poll_final && core::mem::replace(&mut self.sent_at_rej, sent) == sent;
        let covers_all = context.extension.is_flagged || !self.state.is_in(SENDING) || is_repeated;
        if self.peer_kept != 0 && !covers_all {
            // With labels, what was overtaken may be on its way: `judge_labels` has retransmitted what is lost.
            if self.spray.is_none() {
                self.resend_gaps();
            }
            return;
        }
        if self.spray.is_some() {
            if covers_all && !context.extension.is_flagged {
                self.judge_labels_after_poll(context.now);
                return;
            }
            self.labels_lost(context.now);
        }
        self.rewind();
        if self.sent == self.acknowledged {
            return;
        }
        self.counters.recoveries += 1;
        self.round_trip.lost(&self.parameters);
        if (self.acknowledged.wrapping_sub(self.recovery_point) as i32) >= 0 {
            self.window = match self.parameters.after_loss {
                AfterLoss::Keep => self.window,
                AfterLoss::Halve => self.window.div_ceil(2).max(bounds::HALVED_WINDOW_MIN.min(self.parameters.window)),
                AfterLoss::One => 1,
            };
            self.growth_credit = 0;
            self.recovery_point = self.sent;
        }
    }

    fn forget_remote_busy(&mut self) {
        self.remote_busy = false;
        self.stop(Timer::Busy);
    }

    fn reset_variables(&mut self, now: Instant) {
        (self.base, self.acknowledged, self.next, self.sent) = (self.queued, self.queued, self.queued, self.queued);
        self.recovery_point = self.queued;
        (self.ack_requested_to, self.is_ack_requested) = (self.queued, false);
        self.received = 0;
        (self.kept, self.peer_kept, self.to_resend, self.lacks_the_rest) = (0, 0, 0, false);
        self.window = self.parameters.window;
        (self.growth_credit, self.unacknowledged, self.reject_count, self.data_flag) = (0, 0, 0, 0);
        (self.has_exchanged, self.is_data_held) = (false, false);
        (self.polls, self.numbered_polls) = (Polls::NONE, NumberedPolls::NONE);
        (self.verification_polls, self.polled_early) = (0, None);
        (self.last_heard, self.nr_invalid_since) = (now, Instant::NEVER);
        self.round_trip.cancel();
        if let Some(spray) = &mut self.spray {
            spray.reset();
        }
    }

    /// Leaves data transfer: unacknowledged tokens return to the user.
    fn drop_data(&mut self) {
        if self.acknowledged != self.queued {
            self.dropped = (self.acknowledged, self.queued);
        }
        (self.acknowledged, self.next, self.sent) = (self.queued, self.queued, self.queued);
        (self.kept, self.peer_kept, self.to_resend) = (0, 0, 0);
        self.base = self.queued;
        (self.ack_requested_to, self.is_ack_requested) = (self.queued, false);
        self.stop(Timer::Stall);
        self.stop(Timer::Delay);
        self.pending &= !Pending::SUPERVISORY;
        self.is_finishing = false;
    }

    #[inline]
    fn start_ack_timer(&mut self, now: Instant) {
        if mutant!(self, NoAckTimer) {
            return;
        }
        self.set_timer(Timer::Ack, now.after(self.t1_ns(self.retry_count)));
    }

    /// T1 after some retransmissions. With labels each leaves with another one, and so does its answer: some get
    /// through. Not where N2 alone ends the repetitions: they would end too early.
    #[inline]
    fn t1_ns(&self, retransmissions: u8) -> u64 {
        let is_prompt = self.state.is_connected() && self.verification_polls == 0;
        let prompt = if is_prompt { self.parameters.labels.saturating_mul(4).min(bounds::PROMPT_POLLS_MAX) } else { 0 };
        self.round_trip.timeout_ns(&self.parameters, retransmissions.saturating_sub(prompt))
    }

    fn start_poll_timer(&mut self, now: Instant) {
        self.p_flag = true;
        self.verification_polls = self.verification_polls.saturating_add(u8::from(self.verification_polls != 0));
        let repetitions = self.retry_count.max(self.verification_polls.saturating_sub(2));
        self.set_timer(Timer::Poll, now.after(self.t1_ns(repetitions)));
    }

    fn has_verification_failed(&self) -> bool {
        self.verification_polls > bounds::VERIFICATION_POLLS
    }

    #[inline]
    fn timer_runs(&self, timer: Timer) -> bool {
        self.timers[timer as usize] != Instant::NEVER
    }

    #[inline]
    fn set_timer(&mut self, timer: Timer, deadline: Instant) {
        self.timers[timer as usize] = deadline;
        self.wake = self.wake.min(deadline);
    }

    #[inline]
    fn stop(&mut self, timer: Timer) {
        self.timers[timer as usize] = Instant::NEVER;
    }

    /// Whether the peer has left N2 retransmissions unanswered, for at least the patience.
    #[inline]
    fn is_peer_lost(&self, now: Instant) -> bool {
        let is_within_patience = self.state.is_connected() && now < self.last_heard.after(self.parameters.patience_ns);
        self.retry_count >= self.parameters.retries && !is_within_patience
    }

    /// Whether N2 rejections have not brought a missing PDU, for at least the patience.
    #[inline]
    fn is_gap_lasting(&self, now: Instant) -> bool {
        let is_within_patience = now < self.rejecting_since.after(self.parameters.patience_ns);
        self.reject_count >= self.parameters.retries && !is_within_patience
    }

    /// When to look again for lost PDUs among those overtaken by PDUs with other labels.
    #[inline]
    fn judge_deadline(&self) -> Instant {
        self.spray.as_ref().map_or(Instant::NEVER, |spray| spray.judge_at)
    }

    fn inactivity_deadline(&self) -> Instant {
        match self.parameters.inactivity_ns {
            Some(inactivity) if self.state.is_connected() => self.last_heard.max(self.last_polled).after(inactivity),
            _ => Instant::NEVER,
        }
    }
}
