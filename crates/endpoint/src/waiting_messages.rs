// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of a channel that wait to be handed to its way: one after the other, but those in the background let the
//! others pass.

use std::collections::VecDeque;

use crate::descriptors::DescriptorId;

/// Messages that may pass one in the background.
const PASSING_MAX: u32 = 64;

/// See the module.
#[derive(Default)]
pub(crate) struct WaitingMessages {
    usual: VecDeque<DescriptorId>,
    background: VecDeque<DescriptorId>,
    /// The one of which a part was handed on: the rest follows before anything else.
    begun: Option<DescriptorId>,
    /// Messages that have passed the first in the background.
    passed: u32,
}

impl WaitingMessages {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.usual.is_empty() && self.background.is_empty()
    }

    /// Whether a message that comes now is the next.
    #[inline]
    pub fn lets_pass(&self, is_background: bool) -> bool {
        self.usual.is_empty()
            && (self.background.is_empty() || (!is_background && self.begun.is_none() && self.passed < PASSING_MAX))
    }

    #[inline]
    pub fn push(&mut self, message: DescriptorId, is_background: bool, is_begun: bool) {
        let queue = if is_background { &mut self.background } else { &mut self.usual };
        if is_begun {
            queue.push_front(message);
            self.begun = Some(message);
        } else {
            queue.push_back(message);
        }
    }

    /// A message has passed those that wait.
    #[inline]
    pub fn has_passed(&mut self) {
        self.passed += u32::from(!self.background.is_empty());
    }

    /// The message to be handed on now.
    #[inline]
    pub fn next(&self) -> Option<DescriptorId> {
        let is_passing = self.background.is_empty() || self.passed < PASSING_MAX;
        let first = self.usual.front().filter(|_| is_passing).or(self.background.front());
        self.begun.or(first.copied())
    }

    /// All of the next one was handed on.
    #[inline]
    pub fn pop(&mut self) {
        let Some(message) = self.next() else { return };
        self.begun = None;
        if self.background.front() == Some(&message) {
            self.background.pop_front();
            self.passed = 0;
        } else {
            self.usual.pop_front();
            self.has_passed();
        }
    }

    /// A part of the next one was handed on.
    #[inline]
    pub fn begin(&mut self) {
        self.begun = self.next();
    }

    /// Takes one out of which nothing was handed on.
    pub fn take_back(&mut self, message: DescriptorId) {
        self.usual.retain(|waiting| *waiting != message);
        self.background.retain(|waiting| *waiting != message);
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(waiting.lets_pass(true) && waiting.lets_pass(false));
        waiting.push(1, true, false);
        waiting.push(2, true, false);
        assert!(!waiting.lets_pass(true) && waiting.lets_pass(false));
        waiting.begin();
        assert!(!waiting.lets_pass(false));
        waiting.push(3, false, false);
        waiting.push(4, false, false);
        assert_eq!(all(waiting), [1, 3, 4, 2]);
    }

    #[test]
    fn the_background_is_not_forgotten() {
        let mut waiting = WaitingMessages::default();
        waiting.push(1000, true, false);
        (0..100).for_each(|number| waiting.push(number, false, false));
        let messages = all(waiting);
        assert_eq!(messages.iter().position(|message| *message == 1000), Some(PASSING_MAX as usize));
        assert_eq!(messages.len(), 101);
    }

    #[test]
    fn what_was_begun_at_once_is_finished_first() {
        let mut waiting = WaitingMessages::default();
        waiting.push(1, true, false);
        waiting.push(2, false, true);
        waiting.push(3, false, false);
        waiting.take_back(1);
        assert_eq!(all(waiting), [2, 3]);
    }
}
