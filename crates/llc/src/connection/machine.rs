// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The variables of a connection, and what the table's actions do to them.

use alloc::boxed::Box;
use alloc::vec;

use super::identity::Identity;
use super::polls::Polls;
use super::reordering::Reordering;
use super::round_trip::RoundTrip;
use super::state::{Event, State};
use super::table::{self, Next};
use super::{Cause, ConnectionCounters, Taken};
use crate::bounds;
use crate::config::{AfterLoss, Parameters};
use crate::extension::{self, Extension};
use crate::pdu::{Body, FrmrInformation, Pdu, Role, SequenceNumber, Supervisory};
use crate::time::Instant;
pub(crate) use indications::{Indication, Indications};
use transmit::Pending;

/// Everything of a connection except the user's tokens, which lie in the send queue under the same
/// absolute indices: `acknowledged <= next <= sent <= queued`, each wrapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub parameters: Parameters,
    /// DSAP and SSAP of this end's commands.
    addresses: [u8; 2],
    pub state: State,
    /// I PDUs received in order: modulo 128, V(R).
    received: u32,
    /// Bit i: the I PDU after i others, counted from V(R), came early and is kept by the user. Extended connections only,
    /// as everything up to `order`.
    kept: u128,
    /// Likewise, counted from V(A): what the peer keeps, and what is to be sent again.
    peer_kept: u128,
    to_resend: u128,
    /// Of each PDU under way, by its index: how many I PDUs had been sent when it was sent last.
    order: Box<[u32]>,
    reordering: Reordering,
    pub identity: Identity,
    /// The next REJ says that all is missing that is not kept.
    lacks_the_rest: bool,
    /// The index that had N(S) = 0.
    base: u32,
    /// V(A): all before it are acknowledged.
    pub acknowledged: u32,
    /// V(S): the next to be sent, perhaps again.
    pub next: u32,
    /// One after the last that was ever sent.
    sent: u32,
    /// One after the last in the queue.
    pub queued: u32,
    /// The window now, 1 to k; smaller than k after loss.
    pub window: u8,
    /// PDUs acknowledged since the window last changed.
    grown: u16,
    /// Loss before this index has been paid for with a smaller window.
    recovered: u32,
    /// I PDUs received and not yet acknowledged.
    unacknowledged: u8,
    retry_count: u8,
    reject_count: u8,
    data_flag: u8,
    p_flag: bool,
    /// P of this end's SABME.
    sabme_poll: bool,
    s_flag: bool,
    pub remote_busy: bool,
    /// Whether data has been received or acknowledged since the connection was set up.
    touched: bool,
    /// Data is held until the peer has been heard: it may still repeat its SABME.
    is_held: bool,
    /// The user waits for the acknowledgement of all before this index …
    wanted: u32,
    /// … and the peer was not asked for it yet.
    is_answer_wanted: bool,
    /// The user wants to end once all is acknowledged.
    pub finishing: bool,
    /// P of a SABME that waits for the user, or for a poll's answer.
    held_poll: bool,
    /// Polls since a SABME that may be none of the peer's now, and one more; 0 without doubt: whoever sends I or S PDUs
    /// is connected.
    doubts: u8,
    /// What is to be sent: [`Pending`] bits.
    pending: u16,
    timers: [Instant; Timer::COUNT],
    /// Not later than the earliest of the timers: they are often put off, and only looked at when this has come.
    wake: Instant,
    last_heard: Instant,
    /// When the peer was last asked whether it is there.
    last_asked: Instant,
    /// Since when the peer has said nothing but that it lacks what it was taken to have; never, usually.
    contradicted: Instant,
    frmr: FrmrInformation,
    pub round_trip: RoundTrip,
    polls: Polls,
    pub indications: Indications,
    /// From where to where tokens were dropped; equal if none were.
    pub dropped: (u32, u32),
    pub counters: ConnectionCounters,
}

/// The PDU, or the user's wish, that an event came with.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub now: Instant,
    pub poll_final: bool,
    /// I PDUs that are acknowledged and were not before.
    pub progress: u32,
    pub cause: Cause,
    /// What else the PDU said.
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

/// Whether this connection is to have a fault; never without the feature `mutants`.
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

// After the macro that it uses.
mod actions;
mod gaps;
mod indications;
mod transmit;

const SENDING: u16 = State::Normal.bit() | State::Busy.bit() | State::Reject.bit();
const BUSY: u16 = State::Busy.bit() | State::AwaitBusy.bit();
const REJECTING: u16 = State::Reject.bit() | State::AwaitReject.bit();

impl Machine {
    pub fn new(parameters: Parameters, addresses: [u8; 2], identity: Identity, now: Instant) -> Self {
        let under_way = if parameters.is_extended { usize::from(parameters.window).next_power_of_two() } else { 0 };
        Self {
            parameters,
            addresses,
            state: State::Adm,
            received: 0,
            kept: 0,
            peer_kept: 0,
            to_resend: 0,
            order: vec![0; under_way].into_boxed_slice(),
            reordering: Reordering::default(),
            identity,
            lacks_the_rest: false,
            base: 0,
            acknowledged: 0,
            next: 0,
            sent: 0,
            queued: 0,
            window: parameters.window,
            grown: 0,
            recovered: 0,
            unacknowledged: 0,
            retry_count: 0,
            reject_count: 0,
            data_flag: 0,
            p_flag: false,
            sabme_poll: true,
            s_flag: false,
            remote_busy: false,
            touched: false,
            is_held: false,
            wanted: 0,
            is_answer_wanted: false,
            finishing: false,
            held_poll: false,
            doubts: 0,
            pending: 0,
            timers: [Instant::NEVER; Timer::COUNT],
            wake: Instant::NEVER,
            last_heard: now,
            last_asked: now,
            contradicted: Instant::NEVER,
            frmr: FrmrInformation([0; 5]),
            round_trip: RoundTrip::new(&parameters),
            polls: Polls::NONE,
            indications: Indications::default(),
            dropped: (0, 0),
            counters: ConnectionCounters::default(),
        }
    }

    /// Takes a type 2 PDU.
    #[inline]
    pub fn handle(&mut self, pdu: &Pdu<'_>, extension: &Extension, now: Instant) -> Taken {
        if let Body::I { role, poll_final, information, .. } = pdu.body {
            let outstanding = self.sent.wrapping_sub(self.acknowledged);
            let progress = self.ahead_of(extension.nr, self.acknowledged.wrapping_sub(self.base));
            let plain = !poll_final || (role as u8 == Role::Response as u8 && !self.p_flag);
            if self.state == State::Normal
                && plain
                && self.ahead_of(extension.ns, self.received) == 0
                && u32::from(progress) <= outstanding
                && information.len() <= usize::from(self.parameters.information_max)
                && self.is_believed(pdu, extension)
            {
                (self.last_heard, self.contradicted) = (now, Instant::NEVER);
                self.heard();
                self.deliver();
                self.update_nr(u32::from(progress), now);
                self.acknowledge_later(now);
                self.finish(now);
                return Taken::InOrder;
            }
        }
        self.handle_by_table(pdu, extension, now)
    }

    /// The same for every PDU, without the short way for the usual one.
    pub fn handle_by_table(&mut self, pdu: &Pdu<'_>, extension: &Extension, now: Instant) -> Taken {
        if !self.is_believed(pdu, extension) {
            self.counters.unauthenticated += 1;
            return Taken::Foreign;
        }
        self.last_heard = now;
        let (role, bit) = (pdu.role(), pdu.poll_final());
        let is_response = role == Role::Response;
        let poll_final = bit && (!is_response || self.is_awaited(pdu, extension, now));
        let mut context = Context { now, poll_final: bit, progress: 0, cause: Cause::Requested, extension: *extension };
        let event = match pdu.body {
            Body::I { information, .. } => {
                let kind = match self.classify(information, &mut context) {
                    Ok(Some(kind)) => kind,
                    Ok(None) => {
                        self.counters.received_again += 1;
                        self.counters.received_late += 1;
                        return Taken::Not;
                    }
                    Err(flags) => return self.reject(pdu.header().as_bytes(), role, bit, flags, now),
                };
                self.heard();
                match kind {
                    Event::IC0 if self.state.is_in(REJECTING) => {
                        self.reordering.gap_closed(extension.is_flagged, now);
                    }
                    Event::AheadC0 => {
                        self.counters.received_ahead += 1;
                        self.reordering.gap_seen(self.state.is_in(REJECTING), now);
                        let is_taken = self.dispatch(Event::numbered(kind, is_response, poll_final), context);
                        debug_assert!(!is_taken || cfg!(feature = "mutants"));
                        let can_keep = self.parameters.is_extended && !self.state.is_in(BUSY);
                        let ahead = self.ahead_of(extension.ns, self.received);
                        return match is_taken {
                            true => Taken::InOrder,
                            false if can_keep && self.kept >> ahead & 1 == 0 => Taken::Early,
                            false => Taken::Not,
                        };
                    }
                    Event::AgainC0 => {
                        self.counters.received_again += 1;
                        self.reordering.came_after_all(extension.is_flagged, now);
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
                self.heard();
                self.counters.overtaken += u64::from(!is_fresh);
                let kind = match function {
                    Supervisory::Rr => Event::RrC0,
                    Supervisory::Rnr => Event::RnrC0,
                    // An overtaken REJ asks for what has arrived since.
                    Supervisory::Rej if is_fresh => Event::RejC0,
                    Supervisory::Rej => Event::RrC0,
                };
                Event::numbered(kind, is_response, poll_final)
            }
            Body::Sabme { .. } => {
                context.cause = Cause::PeerReset;
                let is_known = self.parameters.is_extended && self.identity.is_known(extension.nonce);
                if is_known && self.state.is_connected() { Event::SabmeAgain } else { Event::Sabme }
            }
            Body::Disc { .. } => {
                context.cause = Cause::PeerDisconnected;
                Event::Disc
            }
            Body::Ua { .. } => {
                if self.state.is_in(State::Setup.bit() | State::Reset.bit()) {
                    self.identity.answered(extension);
                }
                Event::Ua
            }
            Body::Dm { .. } => {
                context.cause = if self.state == State::Setup { Cause::PeerRefused } else { Cause::PeerNotConnected };
                Event::Dm
            }
            Body::Frmr { reason, .. } => {
                context.cause = Cause::PeerRejected(reason);
                self.counters.frmr_received += u64::from(self.state.is_connected());
                Event::Frmr
            }
            // Types 1 and 3 are not the connection's.
            Body::Ui { .. }
            | Body::Xid { .. }
            | Body::Test { .. }
            | Body::AcCommand { .. }
            | Body::AcResponse { .. } => {
                return Taken::Not;
            }
        };
        if self.dispatch(event, context) { Taken::InOrder } else { Taken::Not }
    }

    #[inline]
    fn is_believed(&self, pdu: &Pdu<'_>, extension: &Extension) -> bool {
        !self.parameters.is_extended
            || match pdu.body {
                Body::I { .. } | Body::S { .. } => self.identity.is_of_connection(extension.mark),
                _ => self.identity.believes(pdu, extension.mark),
            }
    }

    /// A number's distance from a count, modulo 128 or what rounds make of it.
    #[inline]
    fn ahead_of(&self, number: u16, count: u32) -> u16 {
        number.wrapping_sub(count as u16) & self.number_mask()
    }

    #[inline]
    fn number_mask(&self) -> u16 {
        if self.parameters.is_extended { extension::NUMBERS - 1 } else { SequenceNumber::MODULUS as u16 - 1 }
    }

    /// Whether a response with F = 1 answers the poll that is under way; then that took a round trip.
    fn is_awaited(&mut self, pdu: &Pdu<'_>, extension: &Extension, now: Instant) -> bool {
        let is_complete = match pdu.body {
            Body::S { .. } | Body::I { .. } => self.ahead_of(extension.nr, self.sent.wrapping_sub(self.base)) == 0,
            _ => return self.p_flag,
        };
        if self.polls.is_late(is_complete, now) {
            // None of the polls was lost: the peer was late, and they followed each other in vain.
            self.round_trip.was_impatient(None, &self.parameters);
            return false;
        }
        if !self.p_flag {
            return false;
        }
        let is_one = self.polls.is_one_awaited();
        let round_trip_ns = self.polls.answered(is_complete, self.round_trip.smoothed_ns(), now);
        // It asked because T1 was over.
        if self.retry_count > 0 && is_complete && is_one {
            self.round_trip.was_impatient(round_trip_ns, &self.parameters);
        }
        if let Some(round_trip_ns) = round_trip_ns {
            self.round_trip.measure(round_trip_ns, &self.parameters);
        }
        true
    }

    /// Answers a PDU that breaks the protocol with FRMR. `header`: from DSAP to the control field.
    pub fn reject(&mut self, header: &[u8], role: Role, poll_final: bool, flags: u8, now: Instant) -> Taken {
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
        Taken::Not
    }

    /// A wish of the user; false if it makes no sense in this state.
    pub fn request(&mut self, event: Event, now: Instant) -> bool {
        let before = self.state;
        self.dispatch(event, self.context(now, Cause::Requested));
        before != self.state
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        for (number, event) in Timer::EVENTS.into_iter().enumerate() {
            if self.timers[number] <= now {
                self.timers[number] = Instant::NEVER;
                let cause = match event {
                    Event::StallTimer => Cause::Stalled,
                    Event::PollTimer if self.is_doubt_confirmed() => Cause::PeerReset,
                    _ => Cause::NoAnswer,
                };
                self.counters.timeouts += u64::from(!matches!(event, Event::DelayTimer));
                self.dispatch(event, self.context(now, cause));
            }
        }
        if self.silence_deadline() <= now {
            self.last_asked = now;
            self.dispatch(Event::SilenceTimer, self.context(now, Cause::NoAnswer));
        }
        self.wake = self.next_deadline();
    }

    pub fn next_deadline(&self) -> Instant {
        self.timers.iter().fold(self.silence_deadline(), |earliest, timer| earliest.min(*timer))
    }

    /// As [`wake`](Self::wake), but not earlier than a timer runs out.
    pub fn exact_wake(&mut self) -> Instant {
        self.wake = self.next_deadline();
        self.wake
    }

    /// When to look at the timers: not later than [`next_deadline`](Self::next_deadline), perhaps earlier.
    #[inline]
    pub fn wake(&self) -> Instant {
        self.wake
    }

    /// A token went into the queue.
    #[inline]
    pub fn enqueue(&mut self, now: Instant) {
        if self.queued == self.acknowledged {
            self.set_timer(Timer::Stall, now.after(self.parameters.stall_limit_ns));
        }
        self.queued = self.queued.wrapping_add(1);
    }

    /// The user waits for the acknowledgement of all that is queued: the peer is asked for it, once, with the last PDU.
    #[inline]
    pub fn want_answer(&mut self, now: Instant) {
        let is_asked = self.wanted == self.queued && !self.is_answer_wanted;
        if self.queued == self.acknowledged || is_asked {
            return;
        }
        (self.wanted, self.is_answer_wanted) = (self.queued, true);
        self.ask_for_answer(now);
    }

    /// Polls the peer if the last PDU for whose acknowledgement the user waits has left without P = 1.
    #[inline]
    fn ask_for_answer(&mut self, now: Instant) {
        if !self.is_answer_wanted || self.p_flag || self.remote_busy || !self.state.is_in(SENDING) {
            return;
        }
        let left = self.next.wrapping_sub(self.wanted) as i32 >= 0;
        if left {
            self.is_answer_wanted = false;
            self.dispatch(Event::AnswerWanted, self.context(now, Cause::Requested));
        }
    }

    /// Ends the connection if the user asked for that and nothing is left to do.
    #[inline]
    pub fn finish(&mut self, now: Instant) {
        if self.finishing && self.acknowledged == self.queued && self.state.is_connected() {
            self.dispatch(Event::DisconnectRequest, self.context(now, Cause::Requested));
        }
    }

    /// I PDUs sent and not acknowledged.
    pub fn outstanding(&self) -> u32 {
        self.sent.wrapping_sub(self.acknowledged)
    }

    /// What must hold at any time, whatever the peer did.
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
        assert!(self.wake <= self.next_deadline(), "sleeps too long: {self:?}");
        if self.state.is_connected() && self.queued != self.acknowledged {
            assert!(self.timer_runs(Timer::Stall));
            let supervised =
                self.timer_runs(Timer::Ack) || self.timer_runs(Timer::Poll) || self.timer_runs(Timer::Busy);
            assert!(supervised || self.wants_transmit(), "nothing drives {self:?}");
        }
        if self.state.is_in(State::Await.bit() | BUSY & !State::Busy.bit() | State::AwaitReject.bit()) {
            assert!(self.timer_runs(Timer::Poll), "nothing ends the wait of {self:?}");
        }
        if !self.state.is_connected() {
            assert!(self.acknowledged == self.queued);
        }
        let under_way = self.outstanding();
        assert!(self.to_resend == 0 || u128::BITS - self.to_resend.leading_zeros() <= under_way);
        assert!(self.peer_kept & 1 == 0 && u128::BITS - self.peer_kept.leading_zeros() <= under_way);
    }

    /// With the one variable left out that two equal histories need not agree about.
    #[cfg(test)]
    pub fn with_exact_wake(mut self) -> Self {
        self.wake = self.next_deadline();
        self
    }

    /// What the table says of data that waits: send it, and with which P bit, or not.
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
        // An action may look at the state it came from, never at the one it leads to.
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
        self.ask_for_answer(context.now);
        deliver
    }

    /// Which event an I PDU is, or the FRMR bits if it is none. `Ok(None)`: what it says, N(R) too, was true once.
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
            _ if behind <= window => Ok(Some(Event::AgainC0)),
            _ => Err(FrmrInformation::V),
        }
    }

    /// Puts what a valid N(R) acknowledges into the context. `Ok(false)`: overtaken, so that it says nothing new. Without
    /// rounds one that was overtaken by so many that it came round seems to acknowledge what the peer lacks, who then says
    /// nothing else for long.
    fn check_nr(&mut self, context: &mut Context) -> Result<bool, u8> {
        let progress = self.ahead_of(context.extension.nr, self.acknowledged.wrapping_sub(self.base));
        if !self.state.is_connected() {
            return Ok(true);
        }
        if u32::from(progress) <= self.outstanding() || mutant!(self, NrUnchecked) {
            context.progress = u32::from(progress) % u32::from(SequenceNumber::MODULUS);
            self.contradicted = Instant::NEVER;
            return Ok(true);
        }
        let behind = self.number_mask() + 1 - progress;
        let is_stale = if self.parameters.is_extended {
            behind <= extension::NUMBERS / 2
        } else {
            behind <= u16::from(bounds::STALE_NR_MAX) && self.touched
        };
        context.extension.kept = 0;
        self.contradicted = self.contradicted.min(context.now);
        let limit_ns = self.parameters.stall_limit_ns.min(bounds::STALL_LIMIT.as_nanos() as u64);
        let is_for_long = self.contradicted.after(limit_ns) <= context.now;
        if is_stale && !is_for_long { Ok(false) } else { Err(FrmrInformation::Z) }
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

    /// An I or S PDU came: the peer knows that it is connected.
    #[inline]
    fn heard(&mut self) {
        self.doubts = 0;
        if self.is_held && self.state.is_connected() {
            self.is_held = false;
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
        self.touched = true;
        self.counters.information_received += 1;
    }

    #[inline]
    fn acknowledge_later(&mut self, now: Instant) {
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
        self.acknowledged = self.acknowledged.wrapping_add(progress);
        if (self.next.wrapping_sub(self.acknowledged) as i32) < 0 {
            self.next = self.acknowledged;
        }
        self.to_resend = self.to_resend.checked_shr(progress).unwrap_or(0);
        self.peer_kept = self.peer_kept.checked_shr(progress).unwrap_or(0) & !1;
        self.is_answer_wanted &= (self.acknowledged.wrapping_sub(self.wanted) as i32) < 0;
        self.touched = true;
        self.retry_count = 0;
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
        self.grown = self.grown.saturating_add(progress as u16);
        while self.grown >= self.parameters.grow_after && self.window < self.parameters.window {
            self.grown -= self.parameters.grow_after;
            self.window += 1;
        }
    }

    /// V(S) := V(A).
    fn rewind(&mut self) {
        self.to_resend = 0;
        if self.next != self.acknowledged {
            self.next = self.acknowledged.wrapping_add(u32::from(mutant!(self, ResendsFromSecond)));
            self.stop(Timer::Ack);
            // Whoever waited for the acknowledgement of what is sent again still does.
            self.is_answer_wanted |= (self.acknowledged.wrapping_sub(self.wanted) as i32) < 0;
        }
        self.round_trip.cancel();
    }

    /// What the peer has not received goes out again, with a smaller window, once for each loss.
    fn resend(&mut self, context: &Context) {
        // Whoever is asked after a timeout answers for all that was sent; who says REJ knows of what came early only.
        let knows_all = context.extension.is_flagged || !self.state.is_in(SENDING);
        if self.peer_kept != 0 && !knows_all {
            return self.resend_gaps();
        }
        self.rewind();
        if self.sent == self.acknowledged {
            return;
        }
        self.counters.recoveries += 1;
        self.round_trip.lost(&self.parameters);
        if (self.acknowledged.wrapping_sub(self.recovered) as i32) >= 0 {
            self.window = match self.parameters.after_loss {
                AfterLoss::Keep => self.window,
                AfterLoss::Halve => self.window.div_ceil(2).max(bounds::HALVED_WINDOW_MIN.min(self.parameters.window)),
                AfterLoss::One => 1,
            };
            self.grown = 0;
            self.recovered = self.sent;
        }
    }

    fn forget_remote_busy(&mut self) {
        self.remote_busy = false;
        self.stop(Timer::Busy);
    }

    fn reset_variables(&mut self, now: Instant) {
        (self.base, self.acknowledged, self.next, self.sent) = (self.queued, self.queued, self.queued, self.queued);
        self.recovered = self.queued;
        (self.wanted, self.is_answer_wanted) = (self.queued, false);
        self.received = 0;
        (self.kept, self.peer_kept, self.to_resend, self.lacks_the_rest) = (0, 0, 0, false);
        self.window = self.parameters.window;
        (self.grown, self.unacknowledged, self.reject_count, self.data_flag) = (0, 0, 0, 0);
        (self.touched, self.is_held) = (false, false);
        self.polls = Polls::NONE;
        self.doubts = 0;
        (self.last_heard, self.contradicted) = (now, Instant::NEVER);
        self.round_trip.cancel();
    }

    /// Data is no longer exchanged: what was not acknowledged goes back to the user.
    fn drop_data(&mut self) {
        if self.acknowledged != self.queued {
            self.dropped = (self.acknowledged, self.queued);
        }
        (self.acknowledged, self.next, self.sent) = (self.queued, self.queued, self.queued);
        (self.kept, self.peer_kept, self.to_resend) = (0, 0, 0);
        self.base = self.queued;
        (self.wanted, self.is_answer_wanted) = (self.queued, false);
        self.stop(Timer::Stall);
        self.stop(Timer::Delay);
        self.pending &= !Pending::SUPERVISORY;
        self.finishing = false;
    }

    #[inline]
    fn start_ack_timer(&mut self, now: Instant) {
        if mutant!(self, NoAckTimer) {
            return;
        }
        let t1 = self.round_trip.timeout_ns(&self.parameters, self.retry_count);
        self.set_timer(Timer::Ack, now.after(t1));
    }

    fn start_poll_timer(&mut self, now: Instant) {
        self.p_flag = true;
        self.doubts = self.doubts.saturating_add(u8::from(self.doubts != 0));
        let repetitions = self.retry_count.max(self.doubts.saturating_sub(2));
        let t1 = self.round_trip.timeout_ns(&self.parameters, repetitions);
        self.set_timer(Timer::Poll, now.after(t1));
    }

    fn is_doubt_confirmed(&self) -> bool {
        self.doubts > bounds::DOUBTING_POLLS
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

    #[inline]
    /// Whether the peer has left enough repetitions unanswered, and for long enough.
    fn is_given_up(&self, now: Instant) -> bool {
        let is_patient = self.state.is_connected() && now < self.last_heard.after(self.parameters.patience_ns);
        self.retry_count >= self.parameters.retries && !is_patient
    }

    fn silence_deadline(&self) -> Instant {
        match self.parameters.inactivity_ns {
            Some(silence) if self.state.is_connected() => self.last_heard.max(self.last_asked).after(silence),
            _ => Instant::NEVER,
        }
    }
}
