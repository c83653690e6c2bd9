// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of a channel that wait to be handed to its carrier: one after the other, but those in the background let the
//! others pass.

use std::collections::VecDeque;

use crate::descriptors::DescriptorId;

/// Frames of messages that may pass one in the background: as many as that has, usually.
const PASSING_MAX: u32 = 64;

/// How a message is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// In its order, with so many frames.
    Usual { frames: u32 },
    /// Behind all that is usual.
    Background,
}

/// See the module.
#[derive(Default)]
pub(crate) struct WaitingMessages {
    /// With how many frames each has.
    usual: VecDeque<(DescriptorId, u32)>,
    background: VecDeque<DescriptorId>,
    /// The one of which a part was handed on: the rest follows before anything else.
    begun: Option<DescriptorId>,
    /// Frames that have passed the first in the background.
    passed: u32,
}

impl WaitingMessages {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.usual.is_empty() && self.background.is_empty()
    }

    /// Whether a message that comes now is the next.
    #[inline]
    pub fn lets_pass(&self, order: Order) -> bool {
        let may_pass = order != Order::Background && self.begun.is_none() && self.passed < PASSING_MAX;
        self.usual.is_empty() && (self.background.is_empty() || may_pass)
    }

    /// Lets a message wait. A part of it may have been handed on already, if it was let pass.
    #[inline]
    pub fn push(&mut self, message: DescriptorId, order: Order, is_begun: bool) {
        match order {
            Order::Usual { frames } if is_begun => self.usual.push_front((message, frames)),
            Order::Usual { frames } => self.usual.push_back((message, frames)),
            Order::Background => self.background.push_back(message),
        }
        if is_begun {
            self.begun = Some(message);
        }
    }

    /// A message has passed those that wait.
    #[inline]
    pub fn note_passing(&mut self, order: Order) {
        if let (Order::Usual { frames }, false) = (order, self.background.is_empty()) {
            self.passed = self.passed.saturating_add(frames);
        }
    }

    /// The message to be handed on now.
    #[inline]
    pub fn next(&self) -> Option<DescriptorId> {
        let is_passing = self.background.is_empty() || self.passed < PASSING_MAX;
        let usual = self.usual.front().filter(|_| is_passing).map(|(message, _)| *message);
        self.begun.or(usual).or(self.background.front().copied())
    }

    /// All of the next one was handed on.
    #[inline]
    pub fn pop(&mut self) {
        let Some(message) = self.next() else { return };
        self.begun = None;
        if self.background.front() == Some(&message) {
            self.background.pop_front();
            self.passed = 0;
        } else if let Some((_, frames)) = self.usual.pop_front() {
            self.note_passing(Order::Usual { frames });
        }
    }

    /// A part of the next one was handed on.
    #[inline]
    pub fn begin(&mut self) {
        self.begun = self.next();
    }

    /// Takes one out of which nothing was handed on.
    pub fn take_back(&mut self, message: DescriptorId) {
        self.usual.retain(|(waiting, _)| *waiting != message);
        self.background.retain(|waiting| *waiting != message);
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Order = Order::Usual { frames: 1 };

    fn all(mut waiting: WaitingMessages) -> Vec<DescriptorId> {
        let mut messages = Vec::new();
        while let Some(message) = waiting.next() {
            messages.push(message);
            waiting.pop();
        }
        messages
    }

    #[test]
    fn the_background_lets_others_pass_but_not_in_its_midst() {
        let mut waiting = WaitingMessages::default();
        assert!(waiting.lets_pass(Order::Background) && waiting.lets_pass(USUAL));
        waiting.push(1, Order::Background, false);
        waiting.push(2, Order::Background, false);
        assert!(!waiting.lets_pass(Order::Background) && waiting.lets_pass(USUAL));
        waiting.begin();
        assert!(!waiting.lets_pass(USUAL));
        waiting.push(3, USUAL, false);
        waiting.push(4, USUAL, false);
        assert_eq!(all(waiting), [1, 3, 4, 2]);
    }

    #[test]
    fn the_background_is_not_forgotten() {
        let mut waiting = WaitingMessages::default();
        waiting.push(1000, Order::Background, false);
        (0..100).for_each(|number| waiting.push(number, USUAL, false));
        let messages = all(waiting);
        assert_eq!(messages.iter().position(|message| *message == 1000), Some(PASSING_MAX as usize));
        assert_eq!(messages.len(), 101);
    }

    #[test]
    fn long_messages_use_up_the_right_to_pass() {
        let mut waiting = WaitingMessages::default();
        waiting.push(1000, Order::Background, false);
        waiting.push(1001, Order::Background, false);
        (0..4).for_each(|number| waiting.push(number, Order::Usual { frames: 60 }, false));
        assert_eq!(all(waiting), [0, 1, 1000, 2, 3, 1001]);
    }

    #[test]
    fn what_was_begun_at_once_is_finished_first() {
        let mut waiting = WaitingMessages::default();
        waiting.push(1, Order::Background, false);
        waiting.push(2, USUAL, true);
        waiting.push(3, USUAL, false);
        waiting.take_back(1);
        assert_eq!(all(waiting), [2, 3]);
    }
}
