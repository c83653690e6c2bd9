// SPDX-License-Identifier: Apache-2.0 OR MIT
//! States, events, qualifiers and actions of the connection component (IEEE 802.2, clause 7.9).

/// Defines a fieldless enum whose variants have a printed name and a bit in a bit set.
macro_rules! named_enum {
    ($(#[$about:meta])* $visible:vis enum $name:ident as $set:ty { $($(#[$doc:meta])* $item:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visible enum $name { $($(#[$doc])* $item,)* }

        #[allow(dead_code)] // Not every enum uses each function outside tests.
        impl $name {
            pub(crate) const ALL: &[Self] = &[$(Self::$item,)*];

            /// The name in the printed table.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$item => $text,)* }
            }

            pub(crate) const fn bit(self) -> $set {
                1 << self as u8
            }
        }
    };
}

named_enum! {
    /// State of a connection.
    pub enum State as u16 {
        /// Asynchronous disconnected mode: there is no connection.
        Adm = "ADM",
        /// SABME sent, UA awaited.
        Setup = "SETUP",
        /// SABME received, user's answer awaited.
        Conn = "CONN",
        /// Data transfer.
        Normal = "NORMAL",
        /// Local busy condition.
        Busy = "BUSY",
        /// A PDU is missing; REJ was sent or is deferred.
        Reject = "REJECT",
        /// A poll is outstanding after a timeout; data waits for its answer.
        Await = "AWAIT",
        /// AWAIT and BUSY.
        AwaitBusy = "AWAIT_BUSY",
        /// AWAIT and REJECT.
        AwaitReject = "AWAIT_REJECT",
        /// DISC sent, UA awaited.
        DConn = "D_CONN",
        /// SABME sent to reset, UA awaited.
        Reset = "RESET",
        /// The peer reset the connection; user's answer awaited.
        ResetCheck = "RESET_CHECK",
        /// Data transfer failed; the user must reset or disconnect.
        ResetWait = "RESET_WAIT",
        /// FRMR sent, SABME or DISC awaited.
        Error = "ERROR",
    }
}

impl State {
    /// The states of data transfer.
    pub(crate) const DATA: u16 = Self::Normal.bit()
        | Self::Busy.bit()
        | Self::Reject.bit()
        | Self::Await.bit()
        | Self::AwaitBusy.bit()
        | Self::AwaitReject.bit();

    /// Whether the connection is in data transfer.
    #[must_use]
    pub const fn is_connected(self) -> bool {
        self.bit() & Self::DATA != 0
    }

    pub(crate) const fn is_in(self, set: u16) -> bool {
        self.bit() & set != 0
    }
}

named_enum! {
    /// Events of a connection. C0 and C1 are commands with P = 0 and 1; R0 and R1 are responses with
    /// F = 0 and 1. A response with F = 1 that answers no outstanding poll counts as R0.
    pub(crate) enum Event as u64 {
        ConnectRequest = "CONNECT_REQUEST",
        ConnectResponse = "CONNECT_RESPONSE",
        DisconnectRequest = "DISCONNECT_REQUEST",
        AbortRequest = "ABORT_REQUEST",
        ResetRequest = "RESET_REQUEST",
        ResetResponse = "RESET_RESPONSE",
        DataRequest = "DATA_REQUEST",
        LocalBusy = "LOCAL_BUSY_DETECTED",
        LocalBusyCleared = "LOCAL_BUSY_CLEARED",
        AckTimer = "ACK_TIMER_EXPIRED",
        PollTimer = "P_TIMER_EXPIRED",
        RejectTimer = "REJ_TIMER_EXPIRED",
        BusyTimer = "BUSY_TIMER_EXPIRED",
        StallTimer = "STALL_TIMER_EXPIRED",
        DelayTimer = "DELAY_TIMER_EXPIRED",
        GapTimer = "GAP_TIMER_EXPIRED",
        InactivityTimer = "INACTIVITY_TIMER_EXPIRED",
        AckRequested = "ACK_REQUESTED",
        Sabme = "RX SABME",
        SabmeDup = "RX SABME_DUP",
        Disc = "RX DISC",
        Ua = "RX UA",
        Dm = "RX DM",
        Frmr = "RX FRMR",
        Bad = "RX BAD_PDU",
        IC0 = "RX I C0",
        IC1 = "RX I C1",
        IR0 = "RX I R0",
        IR1 = "RX I R1",
        AheadC0 = "RX I_AHEAD C0",
        AheadC1 = "RX I_AHEAD C1",
        AheadR0 = "RX I_AHEAD R0",
        AheadR1 = "RX I_AHEAD R1",
        DupC0 = "RX I_DUP C0",
        DupC1 = "RX I_DUP C1",
        DupR0 = "RX I_DUP R0",
        DupR1 = "RX I_DUP R1",
        RrC0 = "RX RR C0",
        RrC1 = "RX RR C1",
        RrR0 = "RX RR R0",
        RrR1 = "RX RR R1",
        RnrC0 = "RX RNR C0",
        RnrC1 = "RX RNR C1",
        RnrR0 = "RX RNR R0",
        RnrR1 = "RX RNR R1",
        RejC0 = "RX REJ C0",
        RejC1 = "RX REJ C1",
        RejR0 = "RX REJ R0",
        RejR1 = "RX REJ R1",
    }
}

impl Event {
    /// The event of a PDU kind with the given role and P/F bit; `first` is the kind's C0.
    pub(crate) const fn numbered(first: Self, is_response: bool, poll_final: bool) -> Self {
        Self::ALL[first as usize + 2 * is_response as usize + poll_final as usize]
    }
}

named_enum! {
    /// A condition on the variables of a connection.
    pub(crate) enum Qualifier as u32 {
        PollOutstanding = "P_FLAG=1",
        NoPollOutstanding = "P_FLAG=0",
        FinalMatches = "P_FLAG=F",
        RetryBelow = "RETRY_COUNT<N2",
        RetryReached = "RETRY_COUNT>=N2",
        RejectsReached = "REJECT_COUNT>=N2",
        SabmeSeen = "S_FLAG=1",
        DataFlag1 = "DATA_FLAG=1",
        DataFlag2 = "DATA_FLAG=2",
        RemoteReady = "REMOTE_BUSY=0",
        PeerHeard = "PEER_HEARD",
        PollDue = "LAST_OF_SHRUNK_WINDOW_OR_ACK_REQUESTED",
        NothingExchanged = "NOTHING_EXCHANGED",
        VerificationFailed = "VERIFICATION_POLLS_UNANSWERED",
        NewNonce = "NEW_NONCE",
        HoldsSuccessor = "HOLDS_SUCCESSOR",
    }
}

named_enum! {
    /// An action of a connection.
    pub(crate) enum Action as u64 {
        SendSabme = "SEND_SABME(P=P_SABME)",
        FlipSabmePoll = "P_SABME=1-P_SABME",
        SendDisc = "SEND_DISC(P=1)",
        SendUa = "SEND_UA(F=P)",
        SendUaHeld = "SEND_UA(F=P_HELD)",
        SendDm = "SEND_DM(F=P)",
        SendDmHeld = "SEND_DM(F=P_HELD)",
        SendDmUnsolicited = "SEND_DM(F=0)",
        SendFrmr = "SEND_FRMR(F=P)",
        ResendFrmr = "RESEND_FRMR(F=P)",
        SendRr = "SEND_RR(0)",
        SendReady = "SEND_RR(0),NOT_ON_I",
        SendRnr = "SEND_RNR(0)",
        SendRej = "SEND_REJ(0)",
        SendRejIfGapLasts = "SEND_REJ(0)_IF_GAP_LASTS",
        SendRrFinal = "SEND_RR(F=1)",
        SendRnrFinal = "SEND_RNR(F=1)",
        SendRejFinal = "SEND_REJ(F=1)",
        SendRrPoll = "SEND_RR(P=1)",
        SendRnrPoll = "SEND_RNR(P=1)",
        SendRejPoll = "SEND_REJ(P=1)",
        SendI = "SEND_I(P=0)",
        SendIPoll = "SEND_I(P=1)",
        SendAckLater = "SEND_ACK_LATER",
        SendRejLaterIfExtended = "SEND_REJ_LATER_IF_EXTENDED",
        Deliver = "V(R)+1,DATA_INDICATION",
        UpdateNr = "UPDATE_N(R)",
        Rewind = "V(S)=V(A)",
        Resend = "RESEND_FROM_N(R)",
        ClearPoll = "P_FLAG=0",
        HoldPoll = "P_HELD=P",
        VerifyPeer = "VERIFY_PEER",
        HoldData = "HOLD_DATA_UNTIL_PEER_HEARD,START_ACK_TIMER",
        StartAckTimer = "START_ACK_TIMER",
        StartAckTimerIfNot = "START_ACK_TIMER_IF_NOT_RUNNING",
        StopAckTimer = "STOP_ACK_TIMER",
        StartPollTimer = "START_P_TIMER",
        StartRejectTimer = "START_REJ_TIMER",
        StopRejectTimer = "STOP_REJ_TIMER",
        StopOtherTimers = "STOP_OTHER_TIMERS",
        StopAllTimers = "STOP_ALL_TIMERS",
        CountRetry = "RETRY_COUNT+1",
        ZeroRetry = "RETRY_COUNT=0",
        CountReject = "REJECT_COUNT+1",
        SetRemoteBusy = "REMOTE_BUSY=1",
        ClearRemoteBusy = "REMOTE_BUSY=0",
        ForgetRemoteBusy = "REMOTE_BUSY=0,NO_RESEND",
        SetDataFlag0 = "DATA_FLAG=0",
        SetDataFlag1 = "DATA_FLAG=1",
        SetDataFlag1If0 = "DATA_FLAG=1_IF_0",
        SetDataFlag2 = "DATA_FLAG=2",
        SetSabmeSeen = "S_FLAG=1",
        ClearSabmeSeen = "S_FLAG=0",
        ResetVariables = "V(S)=V(R)=0",
        DropData = "DROP_DATA",
        ConnectIndication = "CONNECT_INDICATION",
        ConnectConfirm = "CONNECT_CONFIRM",
        ResetIndication = "RESET_INDICATION",
        ResetConfirm = "RESET_CONFIRM",
        DisconnectIndication = "DISCONNECT_INDICATION",
        DisconnectConfirm = "DISCONNECT_CONFIRM",
    }
}
