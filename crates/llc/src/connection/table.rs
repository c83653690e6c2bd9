// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transition table of the connection component (IEEE 802.2, clause 7.9). A [`Row`] applies to a set of
//! states and a set of events, under its qualifiers. Of several rows for a state and event, the first
//! whose qualifiers hold applies; if there is none, the event is ignored.
//!
//! Deviations from the standard, all for networks that lose and duplicate frames:
//! - An unexpected UA is ignored, not rejected: it answers a duplicate SABME.
//! - A SABME before any data was exchanged is a duplicate, and answered with UA again. To make this certain, an end
//!   that sent UA and received none holds its data until it receives an I or S PDU, and polls for one after T1; an end
//!   that received UA sends RR at once. (Otherwise a duplicate SABME could reset only one end.)
//! - A SABME after data was exchanged resets the connection only once the peer has left several polls unanswered: it
//!   can be a delayed duplicate, or spoofed. A peer that is resetting or connecting anew does not answer polls.
//! - A reset's SABME has the P bit opposite to that of the previous SABME, so that a late UA to the previous one does
//!   not complete the reset: its F bit differs.
//! - A duplicate I PDU is acknowledged again, and neither rejected nor answered with REJ.
//! - The ack timer keeps running while a poll is outstanding.
//! - A busy station discards I PDUs; the standard allows it to keep them.
//! - On a request for acknowledgement the last PDU is sent with P = 1, or a poll if that PDU has left.
//! - The stall, delay, gap and inactivity timers and the abort are additions.
//! - Between extended stations ([`crate::extension`]) a duplicate SABME is recognised by its nonce and answered at any
//!   time; a gap that reordering may close is answered with REJ only if it persists; REJ, which lists the kept PDUs, is
//!   repeated as more arrive; and a second poll with REJ retransmits whatever the peer does not keep. A SABME with a
//!   new nonce that meets a DISC confirms it without DM: the peer has left the connection and asks for another.

use super::state::Action::*;
use super::state::Event;
use super::state::Qualifier::{self, *};
use super::state::State;

/// Next state of a transition.
#[derive(Clone, Copy)]
pub(crate) enum Next {
    To(State),
    Same,
}

pub(crate) struct Row {
    /// In any of these states …
    pub states: u16,
    /// … on any of these events …
    pub events: u64,
    /// … if all of these hold, …
    pub qualifiers: &'static [Qualifier],
    /// … do this, in order …
    pub actions: &'static [super::state::Action],
    /// … and go there.
    pub next: Next,
}

/// The row that applies; `holds` says whether a qualifier does.
pub(crate) fn find(state: State, event: Event, mut holds: impl FnMut(Qualifier) -> bool) -> Option<&'static Row> {
    let candidates = &INDEX[state as usize][event as usize];
    candidates
        .iter()
        .take_while(|number| **number != NONE)
        .map(|number| &TABLE[usize::from(*number)])
        .find(|row| row.qualifiers.iter().all(|qualifier| holds(*qualifier)))
}

macro_rules! rows {
    ($($states:ident: $($event:ident)|+ $(, if $($qualifier:ident)&&+)? => [$($action:ident),*] $($to:ident)?;)*) => {
        &[$(Row {
            states: set::$states,
            events: 0 $(| set::$event)+,
            qualifiers: &[$($($qualifier),+)?],
            actions: &[$($action),*],
            next: rows!(@next $($to)?),
        },)*]
    };
    (@next) => { Next::Same };
    (@next $to:ident) => { Next::To(State::$to) };
}

#[rustfmt::skip]
pub(crate) const TABLE: &[Row] = rows! {
    // No connection.
    ADM: CONNECT_REQUEST => [SendSabme, ResetVariables, StartAckTimer, ZeroRetry, ClearSabmeSeen] Setup;
    ADM: SABME => [HoldPoll, ConnectIndication] Conn;
    ADM: DISC | COMMAND_P1 => [SendDm];

    // Incoming connection, waiting for the user.
    CONN: CONNECT_RESPONSE => [SendUaHeld, ResetVariables, ClearPoll, ZeroRetry, ForgetRemoteBusy, HoldData] Normal;
    CONN: DISCONNECT_REQUEST | ABORT_REQUEST => [SendDmHeld, DisconnectConfirm] Adm;
    CONN: SABME => [HoldPoll];
    CONN: DISC => [SendDm, DisconnectIndication] Adm;
    CONN: DM => [DisconnectIndication] Adm;

    // Outgoing connection.
    SETUP: SABME => [SendUa, ResetVariables, SetSabmeSeen];
    SETUP: UA, if FinalMatches => [StopAckTimer, ResetVariables, ClearPoll, ZeroRetry, ForgetRemoteBusy, ConnectConfirm, SendRr] Normal;
    SETUP: ACK_TIMER, if SabmeSeen => [ClearPoll, ZeroRetry, ForgetRemoteBusy, ConnectConfirm, SendRr, HoldData] Normal;
    SETUP: ACK_TIMER, if RetryBelow => [SendSabme, StartAckTimer, CountRetry];
    SETUP: ACK_TIMER => [DisconnectIndication] Adm;
    SETUP: DISC => [SendDm, StopAckTimer, DisconnectIndication] Adm;
    SETUP: DM => [StopAckTimer, DisconnectIndication] Adm;
    SETUP: DISCONNECT_REQUEST | ABORT_REQUEST => [SendDmUnsolicited, StopAckTimer, DisconnectConfirm] Adm;

    // Disconnection and reset during data transfer.
    DATA: DISCONNECT_REQUEST => [SendDisc, StartAckTimer, StopOtherTimers, ZeroRetry, DropData] DConn;
    DATA: ABORT_REQUEST => [SendDmUnsolicited, StopAllTimers, DropData, DisconnectConfirm] Adm;
    DATA: RESET_REQUEST => [FlipSabmePoll, SendSabme, StartAckTimer, StopOtherTimers, ZeroRetry, ClearSabmeSeen, DropData] Reset;
    DATA: SABME_DUP => [SendUa];
    DATA: SABME, if NothingExchanged => [SendUa, StopAllTimers, ClearPoll, ForgetRemoteBusy, HoldData] Normal;
    SENDING: SABME, if NoPollOutstanding => [HoldPoll, VerifyPeer, SendRrPoll, StartPollTimer];
    DATA: SABME => [HoldPoll, VerifyPeer];
    AWAITING: P_TIMER, if VerificationFailed => [StopAllTimers, DropData, ResetIndication] ResetCheck;
    DATA: DISC => [SendUa, StopAllTimers, DropData, DisconnectIndication] Adm;
    DATA: DM => [StopAllTimers, DropData, DisconnectIndication] Adm;
    DATA: FRMR => [StopAllTimers, ClearSabmeSeen, DropData, ResetIndication] ResetWait;
    DATA: BAD => [SendFrmr, StartAckTimer, StopOtherTimers, ZeroRetry, DropData] Error;
    DATA: STALL_TIMER => [StopAllTimers, ClearSabmeSeen, DropData, ResetIndication] ResetWait;
    SENDING: ACK_TIMER | P_TIMER | BUSY_TIMER, if RetryReached => [StopAllTimers, ClearSabmeSeen, DropData, ResetIndication] ResetWait;
    AWAITING: P_TIMER, if RetryReached => [StopAllTimers, ClearSabmeSeen, DropData, ResetIndication] ResetWait;
    DATA: REJ_TIMER, if RejectsReached => [StopAllTimers, ClearSabmeSeen, DropData, ResetIndication] ResetWait;

    // Transmission of data.
    SENDING: DATA_REQUEST, if RemoteReady && PeerHeard && PollDue => [SendIPoll, StartAckTimerIfNot, StartPollTimer];
    SENDING: DATA_REQUEST, if RemoteReady && PeerHeard => [SendI, StartAckTimerIfNot];
    DATA: DELAY_TIMER => [SendRr];
    SENDING: INACTIVITY_TIMER | ACK_REQUESTED, if NoPollOutstanding => [SendRrPoll, StartPollTimer];

    // S PDUs and timers, in the three states that may send data.
    SENDING: RR_0 => [UpdateNr, ClearRemoteBusy];
    SENDING: RR_R1 => [ClearPoll, UpdateNr, ClearRemoteBusy];
    SENDING: RNR_0 => [UpdateNr, SetRemoteBusy];
    SENDING: RNR_R1 => [ClearPoll, UpdateNr, SetRemoteBusy];
    SENDING: REJ_0 => [UpdateNr, ClearRemoteBusy, Resend];
    SENDING: REJ_R1 => [ClearPoll, UpdateNr, ClearRemoteBusy, Resend];
    NOT_BUSY: RR_C1 => [SendRrFinal, UpdateNr, ClearRemoteBusy];
    NOT_BUSY: RNR_C1 => [SendRrFinal, UpdateNr, SetRemoteBusy];
    NOT_BUSY: REJ_C1 => [SendRrFinal, UpdateNr, ClearRemoteBusy, Resend];
    BUSY: RR_C1 => [SendRnrFinal, UpdateNr, ClearRemoteBusy];
    BUSY: RNR_C1 => [SendRnrFinal, UpdateNr, SetRemoteBusy];
    BUSY: REJ_C1 => [SendRnrFinal, UpdateNr, ClearRemoteBusy, Resend];
    SENDING: ACK_TIMER, if PollOutstanding => [StartAckTimer];
    NORMAL: ACK_TIMER | P_TIMER => [SendRrPoll, Rewind, StartPollTimer, CountRetry] Await;
    NORMAL: BUSY_TIMER, if NoPollOutstanding => [SendRrPoll, Rewind, StartPollTimer] Await;
    BUSY: ACK_TIMER | P_TIMER => [SendRnrPoll, Rewind, StartPollTimer, CountRetry] AwaitBusy;
    BUSY: BUSY_TIMER, if NoPollOutstanding => [SendRnrPoll, Rewind, StartPollTimer] AwaitBusy;
    REJECT: ACK_TIMER | P_TIMER => [SendRrPoll, Rewind, StartPollTimer, StartRejectTimer, CountRetry] AwaitReject;
    REJECT: BUSY_TIMER, if NoPollOutstanding => [SendRrPoll, Rewind, StartPollTimer, StartRejectTimer] AwaitReject;

    // Receiving data.
    NORMAL: I_0 => [Deliver, UpdateNr, SendAckLater];
    NORMAL: I_R1 => [Deliver, ClearPoll, UpdateNr, ClearRemoteBusy, SendAckLater];
    NORMAL: I_C1 => [Deliver, UpdateNr, SendRrFinal];
    NORMAL: AHEAD_0 => [SendRejIfGapLasts, UpdateNr, StartRejectTimer] Reject;
    NORMAL: AHEAD_R1 => [SendRejIfGapLasts, ClearPoll, UpdateNr, ClearRemoteBusy, StartRejectTimer] Reject;
    NORMAL: AHEAD_C1 => [SendRejFinal, UpdateNr, StartRejectTimer] Reject;
    NOT_BUSY: DUP_0 => [UpdateNr, SendAckLater];
    NOT_BUSY: DUP_R1 => [ClearPoll, UpdateNr, ClearRemoteBusy, SendAckLater];
    NOT_BUSY: DUP_C1 => [UpdateNr, SendRrFinal];
    NORMAL: LOCAL_BUSY => [SendRnr, SetDataFlag0] Busy;

    // A PDU is missing.
    REJECT: I_0 => [Deliver, UpdateNr, StopRejectTimer, SendAckLater] Normal;
    REJECT: I_R1 => [Deliver, ClearPoll, UpdateNr, ClearRemoteBusy, StopRejectTimer, SendAckLater] Normal;
    REJECT: I_C1 => [Deliver, UpdateNr, StopRejectTimer, SendRrFinal] Normal;
    REJECT: AHEAD_0 => [UpdateNr, SendRejLaterIfExtended];
    REJECT: AHEAD_R1 => [ClearPoll, UpdateNr, ClearRemoteBusy, SendRejLaterIfExtended];
    REJECT: AHEAD_C1 => [SendRrFinal, UpdateNr];
    REJECT: REJ_TIMER, if NoPollOutstanding => [SendRejPoll, StartPollTimer, StartRejectTimer, CountReject];
    REJECT: REJ_TIMER => [SendRej, StartRejectTimer, CountReject];
    REJECT: GAP_TIMER => [SendRej];
    REJECT: LOCAL_BUSY => [SendRnr, SetDataFlag2] Busy;

    // This end is busy: it discards data, and remembers whether it did.
    BUSY: I_0 => [SendRnr, UpdateNr, SetDataFlag1];
    BUSY: I_R1 => [SendRnr, ClearPoll, UpdateNr, ClearRemoteBusy, SetDataFlag1];
    BUSY: I_C1 => [SendRnrFinal, UpdateNr, SetDataFlag1];
    BUSY: AHEAD_0 => [SendRnr, UpdateNr, SetDataFlag1If0];
    BUSY: AHEAD_R1 => [SendRnr, ClearPoll, UpdateNr, ClearRemoteBusy, SetDataFlag1If0];
    BUSY: AHEAD_C1 => [SendRnrFinal, UpdateNr, SetDataFlag1If0];
    BUSY: DUP_0 => [SendRnr, UpdateNr];
    BUSY: DUP_R1 => [SendRnr, ClearPoll, UpdateNr, ClearRemoteBusy];
    BUSY: DUP_C1 => [SendRnrFinal, UpdateNr];
    BUSY: LOCAL_BUSY_CLEARED, if DataFlag1 => [SendRej, StartRejectTimer] Reject;
    BUSY: LOCAL_BUSY_CLEARED, if DataFlag2 => [SendReady] Reject;
    BUSY: LOCAL_BUSY_CLEARED => [SendReady] Normal;
    ANY_BUSY: REJ_TIMER => [SetDataFlag1];

    // A poll is outstanding after a timeout.
    AWAIT: RR_R1 | REJ_R1 => [ClearPoll, UpdateNr, ClearRemoteBusy, Resend] Normal;
    AWAIT: RNR_R1 => [ClearPoll, UpdateNr, SetRemoteBusy] Normal;
    AWAIT_BUSY: RR_R1 | REJ_R1 => [ClearPoll, UpdateNr, ClearRemoteBusy, Resend] Busy;
    AWAIT_BUSY: RNR_R1 => [ClearPoll, UpdateNr, SetRemoteBusy] Busy;
    AWAIT_REJECT: RR_R1 | REJ_R1 => [ClearPoll, UpdateNr, ClearRemoteBusy, Resend] Reject;
    AWAIT_REJECT: RNR_R1 => [ClearPoll, UpdateNr, SetRemoteBusy] Reject;
    AWAITING: RR_0 | REJ_0 => [UpdateNr, ClearRemoteBusy];
    AWAITING: RNR_0 => [UpdateNr, SetRemoteBusy];
    AWAIT_READY: RR_C1 | REJ_C1 => [SendRrFinal, UpdateNr, ClearRemoteBusy];
    AWAIT_READY: RNR_C1 => [SendRrFinal, UpdateNr, SetRemoteBusy];
    AWAIT_BUSY: RR_C1 | REJ_C1 => [SendRnrFinal, UpdateNr, ClearRemoteBusy];
    AWAIT_BUSY: RNR_C1 => [SendRnrFinal, UpdateNr, SetRemoteBusy];
    AWAIT_READY: P_TIMER => [SendRrPoll, StartPollTimer, CountRetry];
    AWAIT_BUSY: P_TIMER => [SendRnrPoll, StartPollTimer, CountRetry];
    AWAIT_REJECT: REJ_TIMER => [StartRejectTimer, CountReject];

    AWAIT: I_0 => [Deliver, UpdateNr, SendAckLater];
    AWAIT: I_R1 => [Deliver, ClearPoll, UpdateNr, ClearRemoteBusy, Resend, SendAckLater] Normal;
    AWAIT: I_C1 => [Deliver, UpdateNr, SendRrFinal];
    AWAIT: AHEAD_0 => [SendRejIfGapLasts, UpdateNr, StartRejectTimer] AwaitReject;
    AWAIT: AHEAD_R1 => [SendRejIfGapLasts, ClearPoll, UpdateNr, ClearRemoteBusy, Resend, StartRejectTimer] Reject;
    AWAIT: AHEAD_C1 => [SendRejFinal, UpdateNr, StartRejectTimer] AwaitReject;
    AWAIT: DUP_R1 => [ClearPoll, UpdateNr, ClearRemoteBusy, Resend, SendAckLater] Normal;
    AWAIT_REJECT: DUP_R1 => [ClearPoll, UpdateNr, ClearRemoteBusy, Resend, SendAckLater] Reject;
    AWAIT_READY: DUP_0 => [UpdateNr, SendAckLater];
    AWAIT_READY: DUP_C1 => [UpdateNr, SendRrFinal];
    AWAIT: LOCAL_BUSY => [SendRnr, SetDataFlag0] AwaitBusy;

    AWAIT_REJECT: I_0 => [Deliver, UpdateNr, StopRejectTimer, SendAckLater] Await;
    AWAIT_REJECT: I_R1 => [Deliver, ClearPoll, UpdateNr, ClearRemoteBusy, Resend, StopRejectTimer, SendAckLater] Normal;
    AWAIT_REJECT: I_C1 => [Deliver, UpdateNr, StopRejectTimer, SendRrFinal] Await;
    AWAIT_REJECT: AHEAD_0 => [UpdateNr, SendRejLaterIfExtended];
    AWAIT_REJECT: AHEAD_R1 => [ClearPoll, UpdateNr, ClearRemoteBusy, Resend] Reject;
    AWAIT_REJECT: AHEAD_C1 => [SendRrFinal, UpdateNr];
    AWAIT_REJECT: GAP_TIMER => [SendRej];
    AWAIT_REJECT: LOCAL_BUSY => [SendRnr, SetDataFlag2] AwaitBusy;

    AWAIT_BUSY: I_0 => [SendRnr, UpdateNr, SetDataFlag1];
    AWAIT_BUSY: I_R1 => [SendRnr, ClearPoll, UpdateNr, ClearRemoteBusy, Resend, SetDataFlag1] Busy;
    AWAIT_BUSY: I_C1 => [SendRnrFinal, UpdateNr, SetDataFlag1];
    AWAIT_BUSY: AHEAD_0 => [SendRnr, UpdateNr, SetDataFlag1If0];
    AWAIT_BUSY: AHEAD_R1 => [SendRnr, ClearPoll, UpdateNr, ClearRemoteBusy, Resend, SetDataFlag1If0] Busy;
    AWAIT_BUSY: AHEAD_C1 => [SendRnrFinal, UpdateNr, SetDataFlag1If0];
    AWAIT_BUSY: DUP_0 => [SendRnr, UpdateNr];
    AWAIT_BUSY: DUP_R1 => [SendRnr, ClearPoll, UpdateNr, ClearRemoteBusy, Resend] Busy;
    AWAIT_BUSY: DUP_C1 => [SendRnrFinal, UpdateNr];
    AWAIT_BUSY: LOCAL_BUSY_CLEARED, if DataFlag1 => [SendRej, StartRejectTimer] AwaitReject;
    AWAIT_BUSY: LOCAL_BUSY_CLEARED, if DataFlag2 => [SendReady] AwaitReject;
    AWAIT_BUSY: LOCAL_BUSY_CLEARED => [SendReady] Await;

    // Disconnecting.
    D_CONN: SABME, if NewNonce => [StopAckTimer, DisconnectConfirm] Adm;
    D_CONN: SABME => [SendDm, StopAckTimer, DisconnectConfirm] Adm;
    D_CONN: UA, if FinalMatches => [StopAckTimer, DisconnectConfirm] Adm;
    D_CONN: DISC => [SendUa];
    D_CONN: DM => [StopAckTimer, DisconnectConfirm] Adm;
    D_CONN: ACK_TIMER, if RetryBelow => [SendDisc, StartAckTimer, CountRetry];
    D_CONN: ACK_TIMER => [DisconnectConfirm] Adm;
    D_CONN: ABORT_REQUEST => [SendDmUnsolicited, StopAckTimer, DisconnectConfirm] Adm;

    // Resetting.
    RESET: SABME => [SendUa, ResetVariables, SetSabmeSeen];
    RESET: UA, if FinalMatches => [StopAckTimer, ResetVariables, ClearPoll, ZeroRetry, ForgetRemoteBusy, ResetConfirm, SendRr] Normal;
    RESET: ACK_TIMER, if SabmeSeen => [ClearPoll, ZeroRetry, ForgetRemoteBusy, ResetConfirm, SendRr, HoldData] Normal;
    RESET: ACK_TIMER, if RetryBelow => [SendSabme, StartAckTimer, CountRetry];
    RESET: ACK_TIMER => [DisconnectIndication] Adm;
    RESET: DISC => [SendDm, StopAckTimer, DisconnectIndication] Adm;
    RESET: DM => [StopAckTimer, DisconnectIndication] Adm;
    RESET: DISCONNECT_REQUEST => [SendDisc, StartAckTimer, ZeroRetry] DConn;
    RESET: ABORT_REQUEST => [SendDmUnsolicited, StopAckTimer, DisconnectConfirm] Adm;
    RESET_CHECK: RESET_RESPONSE => [SendUaHeld, ResetVariables, ZeroRetry, ClearPoll, ForgetRemoteBusy, HoldData] Normal;
    RESET_CHECK: ABORT_REQUEST, if HoldsSuccessor => [DisconnectConfirm] Adm;
    RESET_CHECK: DISCONNECT_REQUEST | ABORT_REQUEST => [SendDmHeld, DisconnectConfirm] Adm;
    RESET_CHECK: SABME => [HoldPoll];
    RESET_CHECK: DISC => [SendDm, DisconnectIndication] Adm;
    RESET_CHECK: DM => [DisconnectIndication] Adm;
    RESET_WAIT: RESET_REQUEST, if SabmeSeen => [SendUaHeld, ResetVariables, ClearPoll, ZeroRetry, ForgetRemoteBusy, HoldData, ResetConfirm] Normal;
    RESET_WAIT: RESET_REQUEST => [FlipSabmePoll, SendSabme, StartAckTimer, ZeroRetry] Reset;
    RESET_WAIT: DISCONNECT_REQUEST, if SabmeSeen => [SendDmHeld, DisconnectConfirm] Adm;
    RESET_WAIT: DISCONNECT_REQUEST => [SendDisc, StartAckTimer, ZeroRetry] DConn;
    RESET_WAIT: ABORT_REQUEST => [SendDmUnsolicited, DisconnectConfirm] Adm;
    RESET_WAIT: SABME => [HoldPoll, SetSabmeSeen];
    RESET_WAIT: DISC => [SendDm, DisconnectIndication] Adm;
    RESET_WAIT: DM => [DisconnectIndication] Adm;

    // The peer violated the protocol; it must reset or disconnect.
    ERROR: SABME => [HoldPoll, StopAckTimer, ResetIndication] ResetCheck;
    ERROR: DISC => [SendUa, StopAckTimer, DisconnectIndication] Adm;
    ERROR: DM => [StopAckTimer, DisconnectIndication] Adm;
    ERROR: FRMR => [StopAckTimer, ClearSabmeSeen, ResetIndication] ResetWait;
    ERROR: ANY_COMMAND => [ResendFrmr];
    ERROR: ACK_TIMER, if RetryBelow => [ResendFrmr, StartAckTimer, CountRetry];
    ERROR: ACK_TIMER => [ClearSabmeSeen, ResetIndication] ResetWait;
    ERROR: DISCONNECT_REQUEST => [SendDisc, StartAckTimer, ZeroRetry] DConn;
    ERROR: RESET_REQUEST => [FlipSabmePoll, SendSabme, StartAckTimer, ZeroRetry, ClearSabmeSeen] Reset;
    ERROR: ABORT_REQUEST => [SendDmUnsolicited, StopAckTimer, DisconnectConfirm] Adm;
};

/// Named sets of states and events.
mod set {
    use super::{Event, State};

    macro_rules! sets {
        ($kind:ident, $bits:ty: $($name:ident = $($member:ident)|+;)*) => {
            $(pub const $name: $bits = 0 $(| $kind::$member.bit())+;)*
        };
    }

    sets! { State, u16:
        ADM = Adm; SETUP = Setup; CONN = Conn; NORMAL = Normal; BUSY = Busy; REJECT = Reject; AWAIT = Await;
        AWAIT_BUSY = AwaitBusy; AWAIT_REJECT = AwaitReject; D_CONN = DConn; RESET = Reset;
        RESET_CHECK = ResetCheck; RESET_WAIT = ResetWait; ERROR = Error;
        DATA = Normal | Busy | Reject | Await | AwaitBusy | AwaitReject;
        SENDING = Normal | Busy | Reject;
        NOT_BUSY = Normal | Reject;
        ANY_BUSY = Busy | AwaitBusy;
        AWAITING = Await | AwaitBusy | AwaitReject;
        AWAIT_READY = Await | AwaitReject;
    }

    sets! { Event, u64:
        CONNECT_REQUEST = ConnectRequest; CONNECT_RESPONSE = ConnectResponse;
        DISCONNECT_REQUEST = DisconnectRequest; ABORT_REQUEST = AbortRequest; RESET_REQUEST = ResetRequest;
        RESET_RESPONSE = ResetResponse; DATA_REQUEST = DataRequest; LOCAL_BUSY = LocalBusy;
        LOCAL_BUSY_CLEARED = LocalBusyCleared; ACK_TIMER = AckTimer; P_TIMER = PollTimer;
        REJ_TIMER = RejectTimer; BUSY_TIMER = BusyTimer; STALL_TIMER = StallTimer; DELAY_TIMER = DelayTimer; GAP_TIMER = GapTimer;
        INACTIVITY_TIMER = InactivityTimer; ACK_REQUESTED = AckRequested; SABME = Sabme; SABME_DUP = SabmeDup; DISC = Disc; UA = Ua; DM = Dm; FRMR = Frmr; BAD = Bad;
        I_0 = IC0 | IR0; I_C1 = IC1; I_R1 = IR1;
        AHEAD_0 = AheadC0 | AheadR0; AHEAD_C1 = AheadC1; AHEAD_R1 = AheadR1;
        DUP_0 = DupC0 | DupR0; DUP_C1 = DupC1; DUP_R1 = DupR1;
        RR_0 = RrC0 | RrR0; RR_C1 = RrC1; RR_R1 = RrR1;
        RNR_0 = RnrC0 | RnrR0; RNR_C1 = RnrC1; RNR_R1 = RnrR1;
        REJ_0 = RejC0 | RejR0; REJ_C1 = RejC1; REJ_R1 = RejR1;
        COMMAND_P1 = IC1 | AheadC1 | DupC1 | RrC1 | RnrC1 | RejC1;
        ANY_COMMAND = IC0 | IC1 | AheadC0 | AheadC1 | DupC0 | DupC1 | RrC0 | RrC1 | RnrC0 | RnrC1 | RejC0 | RejC1;
    }
}

/// Most rows for one state and event; more do not compile.
const ROWS_PER_CELL: usize = 5;
const NONE: u8 = u8::MAX;

/// Row numbers for each state and event, in order.
static INDEX: [[[u8; ROWS_PER_CELL]; Event::ALL.len()]; State::ALL.len()] = index();

const fn index() -> [[[u8; ROWS_PER_CELL]; Event::ALL.len()]; State::ALL.len()] {
    assert!(TABLE.len() < NONE as usize && Event::ALL.len() <= 64 && State::ALL.len() <= 16);
    let mut index = [[[NONE; ROWS_PER_CELL]; Event::ALL.len()]; State::ALL.len()];
    let mut state = 0;
    while state < State::ALL.len() {
        let mut event = 0;
        while event < Event::ALL.len() {
            let (mut row, mut used) = (0, 0);
            while row < TABLE.len() {
                if TABLE[row].states >> state & 1 == 1 && TABLE[row].events >> event & 1 == 1 {
                    index[state][event][used] = row as u8;
                    used += 1;
                }
                row += 1;
            }
            event += 1;
        }
        state += 1;
    }
    index
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::fmt::Write;
    use std::string::String;
    use std::vec::Vec;
    use std::{env, fs};

    use super::*;

    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tables/connection.txt");

    /// Prints the table and its graph, and compares them with the golden file.
    #[test]
    fn table_matches_golden_file() {
        let printed = print();
        if env::var_os("BAREWIRE_UPDATE_TABLES").is_some() {
            fs::write(FILE, &printed).unwrap();
        }
        let committed = fs::read_to_string(FILE).unwrap_or_default();
        assert!(printed == committed, "the table changed: review it and run again with BAREWIRE_UPDATE_TABLES=1");
    }

    #[test]
    fn every_state_is_reachable_from_adm_and_leads_back() {
        let edges = edges();
        for state in State::ALL {
            assert!(reachable(&edges, State::Adm, *state), "{}", state.name());
            assert!(reachable(&edges, *state, State::Adm), "{}", state.name());
        }
    }

    #[test]
    fn every_row_can_apply_to_each_of_its_states_and_events() {
        for (number, row) in TABLE.iter().enumerate() {
            for state in State::ALL.iter().filter(|state| row.states & state.bit() != 0) {
                for event in Event::ALL.iter().filter(|event| row.events & event.bit() != 0) {
                    let hidden = TABLE[..number].iter().find(|earlier| {
                        let same = earlier.states & state.bit() != 0 && earlier.events & event.bit() != 0;
                        same && earlier.qualifiers.iter().all(|qualifier| row.qualifiers.contains(qualifier))
                    });
                    assert!(hidden.is_none(), "row {number} in {} on {}", state.name(), event.name());
                }
            }
        }
    }

    #[test]
    fn every_action_and_qualifier_is_used() {
        for action in super::super::state::Action::ALL {
            assert!(TABLE.iter().any(|row| row.actions.contains(action)), "{}", action.name());
        }
        for qualifier in Qualifier::ALL {
            assert!(TABLE.iter().any(|row| row.qualifiers.contains(qualifier)), "{}", qualifier.name());
        }
    }

    fn print() -> String {
        let mut text = String::from(
            "Connection component, type 2: state, event, [qualifiers], actions, next state.\n\
             Of several rows for one state and event, the first whose qualifiers hold applies.\n",
        );
        for state in State::ALL {
            for event in Event::ALL {
                for number in INDEX[*state as usize][*event as usize].iter().filter(|number| **number != NONE) {
                    let row = &TABLE[usize::from(*number)];
                    let qualifiers: Vec<_> = row.qualifiers.iter().map(|qualifier| qualifier.name()).collect();
                    let actions: Vec<_> = row.actions.iter().map(|action| action.name()).collect();
                    let (qualifiers, actions) = (qualifiers.join(" and "), actions.join("; "));
                    let next = target(row, *state).name();
                    writeln!(text, "{:12} {:19} [{qualifiers}] {actions} -> {next}", state.name(), event.name())
                        .unwrap();
                }
            }
        }
        text.push_str("\nGraph: from, to, number of rows.\n");
        for from in State::ALL {
            for to in State::ALL {
                let count = edges().iter().filter(|edge| **edge == (*from, *to)).count();
                if count > 0 {
                    writeln!(text, "{:12} {:12} {count}", from.name(), to.name()).unwrap();
                }
            }
        }
        text
    }

    fn edges() -> Vec<(State, State)> {
        let mut edges = Vec::new();
        for state in State::ALL {
            for rows in &INDEX[*state as usize] {
                let rows = rows.iter().filter(|number| **number != NONE);
                edges.extend(rows.map(|number| (*state, target(&TABLE[usize::from(*number)], *state))));
            }
        }
        edges
    }

    fn target(row: &Row, state: State) -> State {
        match row.next {
            Next::To(next) => next,
            Next::Same => state,
        }
    }

    fn reachable(edges: &[(State, State)], from: State, to: State) -> bool {
        let mut seen = from.bit();
        loop {
            let more = edges.iter().filter(|edge| edge.0.is_in(seen)).fold(seen, |seen, edge| seen | edge.1.bit());
            if more == seen {
                return to.is_in(seen);
            }
            seen = more;
        }
    }
}
