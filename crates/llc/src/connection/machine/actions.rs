// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Implementation of the table's qualifiers and actions.

use super::transmit::Pending;
use super::{BUSY, Context, Indication, Machine, Timer};
use crate::connection::state::{Action, Qualifier};
use crate::time::Instant;

impl Machine {
    pub(super) fn holds(&self, qualifier: Qualifier, context: &Context) -> bool {
        match qualifier {
            Qualifier::PollOutstanding => self.p_flag,
            Qualifier::NoPollOutstanding => !self.p_flag,
            Qualifier::FinalMatches => self.p_flag == context.poll_final,
            Qualifier::RetryBelow => !self.is_peer_lost(context.now),
            Qualifier::RetryReached => self.is_peer_lost(context.now),
            Qualifier::RejectsReached => self.is_gap_lasting(context.now),
            Qualifier::SabmeSeen => self.s_flag,
            Qualifier::DataFlag1 => self.data_flag == 1,
            Qualifier::DataFlag2 => self.data_flag == 2,
            Qualifier::RemoteReady => !self.remote_busy,
            Qualifier::PeerHeard => !self.is_data_held,
            Qualifier::PollDue => self.is_poll_due(),
            Qualifier::VerificationFailed => self.has_verification_failed(),
            Qualifier::HoldsSuccessor => self.parameters.is_extended && self.identity.holds_successor(),
            Qualifier::NewNonce => self.parameters.is_extended && !self.identity.is_peer_nonce(context.extension.nonce),
            // An extended connection recognises a duplicate by its nonce.
            Qualifier::NothingExchanged => {
                !self.parameters.is_extended && !self.has_exchanged && self.sent == self.base
            }
        }
    }

    /// Performs an action; true if the PDU's information field is to be delivered.
    pub(super) fn perform(&mut self, action: Action, context: &Context) -> bool {
        let now = context.now;
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        match action {
            Action::SendSabme => self.command(Pending::SABME, self.sabme_poll),
            Action::FlipSabmePoll => {
                self.sabme_poll = !self.sabme_poll;
                self.identity.renew_nonce();
            }
            Action::SendDisc => self.command(Pending::DISC, true),
            Action::SendUa => {
                match context.extension.nonce {
                    0 => self.identity.respond_to(&context.extension),
                    nonce => self.identity.accept(nonce),
                }
                self.answer(Pending::UA | bit(context.poll_final, Pending::UA_FINAL));
            }
            Action::SendUaHeld => {
                self.identity.accept_held();
                self.answer(Pending::UA | bit(self.held_poll, Pending::UA_FINAL));
            }
            Action::SendDm => {
                self.identity.respond_to(&context.extension);
                self.answer(Pending::DM | bit(context.poll_final, Pending::DM_FINAL));
            }
            Action::SendDmHeld => {
                self.identity.refuse_held();
                self.answer(Pending::DM | bit(self.held_poll, Pending::DM_FINAL));
            }
            Action::SendDmUnsolicited => {
                self.identity.abandon();
                self.answer(Pending::DM);
            }
            Action::SendFrmr | Action::ResendFrmr => {
                self.answer(Pending::FRMR | bit(context.poll_final, Pending::FRMR_FINAL));
            }
            Action::SendRr | Action::SendRnr => self.pending |= Pending::PLAIN,
            Action::SendReady => self.pending |= Pending::PLAIN | Pending::READY,
            Action::SendRej => {
                self.lacks_the_rest = self.state.is_in(BUSY);
                self.pending |= Pending::PLAIN | Pending::REJ;
            }
            Action::SendRejIfGapLasts => {
                if !self.defer_rej(now) {
                    self.pending |= Pending::PLAIN | Pending::REJ;
                }
            }
            Action::SendRrFinal | Action::SendRnrFinal => self.pending |= Pending::FINAL,
            Action::SendRejFinal => {
                self.pending |= Pending::FINAL | bit(!self.defer_rej(now), Pending::REJ);
            }
            Action::SendRrPoll | Action::SendRnrPoll => self.pending |= Pending::POLL,
            Action::SendRejPoll => self.pending |= Pending::POLL | Pending::REJ,
            // `poll_transmit` transmits, since that needs the token.
            Action::SendI | Action::SendIPoll => {}
            Action::SendAckLater => self.delay_ack(now),
            Action::SendRejLaterIfExtended => {
                if self.parameters.is_extended {
                    self.delay_ack(now);
                }
            }
            Action::Deliver => {
                self.deliver();
                return true;
            }
            Action::UpdateNr => {
                self.update_nr(context.progress, now);
                if context.extension.kept != 0 {
                    self.set_peer_kept(context.extension.kept, now);
                }
            }
            Action::Rewind => self.rewind(),
            Action::Resend => self.resend(context),
            Action::ClearPoll => {
                self.p_flag = false;
                self.stop(Timer::Poll);
                self.polls.clear();
                // A queued poll is no longer needed; a REJ in it still is.
                if self.pending & Pending::POLL != 0 {
                    let rejects = self.pending & Pending::REJ != 0;
                    self.pending = self.pending & !Pending::POLL | bit(rejects, Pending::PLAIN);
                }
            }
            Action::HoldData => {
                self.is_data_held = true;
                self.start_ack_timer(now);
            }
            Action::HoldPoll => {
                self.held_poll = context.poll_final;
                let key = self.parameters.key_to(context.extension.cookie);
                self.identity.hold(context.extension.nonce, key);
            }
            Action::VerifyPeer => self.verification_polls = self.verification_polls.max(1),
            Action::StartAckTimer => self.start_ack_timer(now),
            Action::StartAckTimerIfNot => {
                if !self.timer_runs(Timer::Ack) {
                    self.start_ack_timer(now);
                }
            }
            Action::StopAckTimer => self.stop(Timer::Ack),
            Action::StartPollTimer => self.start_poll_timer(now),
            Action::StartRejectTimer => {
                if self.reject_count == 0 {
                    self.rejecting_since = now;
                }
                let t1 = self.round_trip.timeout_ns(&self.parameters, self.reject_count);
                self.set_timer(Timer::Reject, now.after(t1));
            }
            Action::StopRejectTimer => {
                self.pending &= !Pending::REJ;
                self.stop(Timer::Reject);
                self.stop(Timer::Gap);
            }
            Action::StopOtherTimers => {
                let ack = self.timers[Timer::Ack as usize];
                self.timers = [Instant::NEVER; Timer::COUNT];
                self.timers[Timer::Ack as usize] = ack;
            }
            Action::StopAllTimers => {
                self.timers = [Instant::NEVER; Timer::COUNT];
                if self.queued != self.acknowledged {
                    self.set_timer(Timer::Stall, now.after(self.parameters.stall_limit_ns));
                }
            }
            Action::CountRetry => self.retry_count = self.parameters.retries.min(self.retry_count + 1),
            Action::ZeroRetry => self.retry_count = 0,
            Action::CountReject => self.reject_count = self.reject_count.saturating_add(1),
            Action::SetRemoteBusy => {
                self.remote_busy = true;
                self.stop(Timer::Ack);
                self.set_timer(Timer::Busy, now.after(self.parameters.busy_poll_ns));
            }
            Action::ClearRemoteBusy => {
                if self.remote_busy {
                    self.forget_remote_busy();
                    self.rewind();
                }
            }
            Action::ForgetRemoteBusy => self.forget_remote_busy(),
            Action::SetDataFlag0 => self.data_flag = 0,
            Action::SetDataFlag1 => self.data_flag = 1,
            Action::SetDataFlag1If0 => self.data_flag = self.data_flag.max(1),
            Action::SetDataFlag2 => self.data_flag = 2,
            Action::SetSabmeSeen => self.s_flag = true,
            Action::ClearSabmeSeen => self.s_flag = false,
            Action::ResetVariables => self.reset_variables(now),
            Action::DropData => self.drop_data(),
            Action::ConnectIndication => self.indications.push(Indication::Incoming),
            Action::ConnectConfirm => self.indications.push(Indication::Connected),
            Action::ResetIndication => self.indications.push(Indication::Reset(context.cause)),
            Action::ResetConfirm => self.indications.push(Indication::ResetDone),
            Action::DisconnectIndication | Action::DisconnectConfirm => {
                self.indications.push(Indication::Disconnected(context.cause));
            }
        }
        false
    }

    /// Whether a gap may close by itself. Starts the gap timer if so; REJ then waits for its expiry.
    fn defer_rej(&mut self, now: Instant) -> bool {
        let wait_ns = self.reordering.wait_ns();
        if wait_ns > 0 && self.parameters.is_extended {
            self.set_timer(Timer::Gap, now.after(wait_ns));
        }
        wait_ns > 0 && self.parameters.is_extended
    }
}
