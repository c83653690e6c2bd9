// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A channel's messages that are not submitted to its carrier yet. Normal messages overtake background messages.

use std::collections::VecDeque;

use crate::descriptors::DescriptorId;

/// Frames of normal messages that may overtake a background message: as many as it usually has itself.
const OVERTAKING_MAX: u32 = 64;

/// Priority of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// In order, with this number of frames.
    Normal { frames: u32 },
    /// After all normal messages, within the bound on overtaking.
    Background,
}

/// Queued messages of one channel.
#[derive(Default)]
pub(crate) struct MessageQueue {
    /// Each with its number of frames.
    normal: VecDeque<(DescriptorId, u32)>,
    background: VecDeque<DescriptorId>,
    /// Message of which a part was submitted: the rest comes next.
    started: Option<DescriptorId>,
    /// Frames that have overtaken the first background message.
    overtaking_frames: u32,
}

impl MessageQueue {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.normal.is_empty() && self.background.is_empty()
    }

    /// Whether a new message of this priority would be next.
    #[inline]
    pub fn would_be_next(&self, priority: Priority) -> bool {
        let may_overtake =
            priority != Priority::Background && self.started.is_none() && self.overtaking_frames < OVERTAKING_MAX;
        self.normal.is_empty() && (self.background.is_empty() || may_overtake)
    }

    /// Queues a message, of which a part may have been submitted already if it was next.
    #[inline]
    pub fn push(&mut self, message: DescriptorId, priority: Priority, is_started: bool) {
        match priority {
            Priority::Normal { frames } if is_started => self.normal.push_front((message, frames)),
            Priority::Normal { frames } => self.normal.push_back((message, frames)),
            Priority::Background => self.background.push_back(message),
        }
        if is_started {
            self.started = Some(message);
        }
    }

    /// Counts the frames of a message that overtakes background messages.
    #[inline]
    pub fn count_overtaking(&mut self, priority: Priority) {
        if let (Priority::Normal { frames }, false) = (priority, self.background.is_empty()) {
            self.overtaking_frames = self.overtaking_frames.saturating_add(frames);
        }
    }

    /// The message to submit next.
    #[inline]
    pub fn next(&self) -> Option<DescriptorId> {
        let may_overtake = self.background.is_empty() || self.overtaking_frames < OVERTAKING_MAX;
        let normal = self.normal.front().filter(|_| may_overtake).map(|(message, _)| *message);
        self.started.or(normal).or(self.background.front().copied())
    }

    /// Removes the next message, which was submitted completely.
    #[inline]
    pub fn pop(&mut self) {
        let Some(message) = self.next() else { return };
        self.started = None;
        if self.background.front() == Some(&message) {
            self.background.pop_front();
            self.overtaking_frames = 0;
        } else if let Some((_, frames)) = self.normal.pop_front() {
            self.count_overtaking(Priority::Normal { frames });
        }
    }

    /// Marks the next message as partly submitted.
    #[inline]
    pub fn start_next(&mut self) {
        self.started = self.next();
    }

    /// Removes a message of which nothing was submitted.
    pub fn remove(&mut self, message: DescriptorId) {
        self.normal.retain(|(queued, _)| *queued != message);
        self.background.retain(|queued| *queued != message);
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORMAL: Priority = Priority::Normal { frames: 1 };

    fn drain(mut queue: MessageQueue) -> Vec<DescriptorId> {
        let mut messages = Vec::new();
        while let Some(message) = queue.next() {
            messages.push(message);
            queue.pop();
        }
        messages
    }

    #[test]
    fn normal_messages_overtake_background_messages_that_are_not_started() {
        let mut queue = MessageQueue::default();
        assert!(queue.would_be_next(Priority::Background) && queue.would_be_next(NORMAL));
        queue.push(1, Priority::Background, false);
        queue.push(2, Priority::Background, false);
        assert!(!queue.would_be_next(Priority::Background) && queue.would_be_next(NORMAL));
        queue.start_next();
        assert!(!queue.would_be_next(NORMAL));
        queue.push(3, NORMAL, false);
        queue.push(4, NORMAL, false);
        assert_eq!(drain(queue), [1, 3, 4, 2]);
    }

    #[test]
    fn overtaking_is_bounded() {
        let mut queue = MessageQueue::default();
        queue.push(1000, Priority::Background, false);
        (0..100).for_each(|number| queue.push(number, NORMAL, false));
        let messages = drain(queue);
        assert_eq!(messages.iter().position(|message| *message == 1000), Some(OVERTAKING_MAX as usize));
        assert_eq!(messages.len(), 101);
    }

    #[test]
    fn overtaking_is_bounded_by_frames_not_messages() {
        let mut queue = MessageQueue::default();
        queue.push(1000, Priority::Background, false);
        queue.push(1001, Priority::Background, false);
        (0..4).for_each(|number| queue.push(number, Priority::Normal { frames: 60 }, false));
        assert_eq!(drain(queue), [0, 1, 1000, 2, 3, 1001]);
    }

    #[test]
    fn a_partly_submitted_message_is_completed_first() {
        let mut queue = MessageQueue::default();
        queue.push(1, Priority::Background, false);
        queue.push(2, NORMAL, true);
        queue.push(3, NORMAL, false);
        queue.remove(1);
        assert_eq!(drain(queue), [2, 3]);
    }
}
