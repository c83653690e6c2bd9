// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A channel's messages that are not submitted to its carrier yet. Urgent messages overtake normal ones, and both
//! overtake background messages.

use std::collections::VecDeque;

use crate::descriptors::DescriptorId;

/// Frames of normal messages that may overtake background messages, and frames of these that are sent then, whole
/// messages.
const OVERTAKING_MAX: u32 = 64;

/// Class of a message, by which the messages to one peer overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Before all others: the peer waits for it.
    Urgent,
    /// In order.
    Normal,
    /// After all others, within a bound on overtaking. It is not interrupted: send a long message in parts of
    /// [`body_of_frames`](crate::Endpoint::body_of_frames).
    Background,
}

/// Queued messages of one channel.
#[derive(Default)]
pub(crate) struct MessageQueue {
    /// Number of messages in the three queues.
    len: usize,
    /// Each with its number of frames.
    urgent: VecDeque<(DescriptorId, u32)>,
    normal: VecDeque<(DescriptorId, u32)>,
    background: VecDeque<(DescriptorId, u32)>,
    /// Message of which a part was submitted: the rest comes next.
    started: Option<DescriptorId>,
    /// Frames that have overtaken background messages, and frames of these that were sent since.
    overtaking_frames: u32,
    background_frames: u32,
}

impl MessageQueue {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a new message of this priority would be next.
    #[inline(always)]
    pub fn would_be_next(&self, priority: Priority) -> bool {
        self.is_empty() || self.would_overtake(priority)
    }

    #[cold]
    fn would_overtake(&self, priority: Priority) -> bool {
        let may_overtake =
            priority != Priority::Background && self.started.is_none() && self.overtaking_frames < OVERTAKING_MAX;
        let is_first =
            self.urgent.is_empty() && (self.normal.is_empty() || priority == Priority::Urgent && may_overtake);
        is_first && (self.background.is_empty() || may_overtake)
    }

    /// Queues a message of `frames` frames.
    #[inline]
    pub fn push(&mut self, message: DescriptorId, priority: Priority, frames: u32) {
        self.len += 1;
        match priority {
            Priority::Urgent => self.urgent.push_back((message, frames)),
            Priority::Normal => self.normal.push_back((message, frames)),
            Priority::Background => self.background.push_back((message, frames)),
        }
    }

    /// Counts the frames of a message that overtakes background messages.
    #[inline]
    pub fn count_overtaking(&mut self, priority: Priority, frames: u32) {
        if priority != Priority::Background && !self.background.is_empty() {
            self.overtaking_frames = self.overtaking_frames.saturating_add(frames);
        }
    }

    /// The message to submit next.
    #[inline]
    pub fn next(&self) -> Option<DescriptorId> {
        let may_overtake = self.background.is_empty() || self.overtaking_frames < OVERTAKING_MAX;
        let overtaking = self.urgent.front().or(self.normal.front()).filter(|_| may_overtake);
        self.started
            .or(overtaking.map(|(message, _)| *message))
            .or(self.background.front().map(|(message, _)| *message))
    }

    /// Removes the next message, which was submitted completely.
    #[inline]
    pub fn pop(&mut self) {
        let Some(message) = self.next() else { return };
        self.started = None;
        self.len -= 1;
        if let Some((_, frames)) = self.background.front().filter(|(background, _)| *background == message).copied() {
            self.background.pop_front();
            self.background_frames = self.background_frames.saturating_add(frames);
            if self.background_frames >= OVERTAKING_MAX {
                (self.overtaking_frames, self.background_frames) = (0, 0);
            }
            return;
        }
        let is_urgent = self.urgent.front().is_some_and(|(urgent, _)| *urgent == message);
        let queue = if is_urgent { &mut self.urgent } else { &mut self.normal };
        if let Some((_, frames)) = queue.pop_front() {
            self.count_overtaking(Priority::Normal, frames);
        }
    }

    /// Marks the next message as partly submitted.
    #[inline]
    pub fn start_next(&mut self) {
        self.started = self.next();
    }

    /// Removes a message of which nothing was submitted.
    pub fn remove(&mut self, message: DescriptorId) {
        self.urgent.retain(|(queued, _)| *queued != message);
        self.normal.retain(|(queued, _)| *queued != message);
        self.background.retain(|(queued, _)| *queued != message);
        self.len = self.urgent.len() + self.normal.len() + self.background.len();
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Priority::{Background, Normal, Urgent};

    fn drain(mut queue: MessageQueue) -> Vec<DescriptorId> {
        let mut messages = Vec::new();
        while let Some(message) = queue.next() {
            messages.push(message);
            queue.pop();
        }
        messages
    }

    #[test]
    fn urgent_and_normal_messages_overtake_background_messages_that_are_not_started() {
        let mut queue = MessageQueue::default();
        assert!([Urgent, Normal, Background].iter().all(|priority| queue.would_be_next(*priority)));
        queue.push(1, Background, 1);
        queue.push(2, Background, 1);
        assert!(!queue.would_be_next(Background) && queue.would_be_next(Normal));
        queue.start_next();
        assert!(!queue.would_be_next(Normal) && !queue.would_be_next(Urgent));
        queue.push(3, Normal, 1);
        queue.push(4, Normal, 1);
        queue.push(5, Urgent, 1);
        assert_eq!(drain(queue), [1, 5, 3, 4, 2]);
    }

    #[test]
    fn an_urgent_message_overtakes_normal_ones_that_are_not_started() {
        let mut queue = MessageQueue::default();
        queue.push(1, Normal, 9);
        queue.push(2, Normal, 1);
        assert!(queue.would_be_next(Urgent) && !queue.would_be_next(Normal));
        queue.start_next();
        assert!(!queue.would_be_next(Urgent));
        queue.push(3, Urgent, 1);
        assert_eq!(drain(queue), [1, 3, 2]);
    }

    #[test]
    fn overtaking_is_bounded() {
        let mut queue = MessageQueue::default();
        queue.push(1000, Background, 1);
        (0..100).for_each(|number| queue.push(number, if number % 2 == 0 { Normal } else { Urgent }, 1));
        let messages = drain(queue);
        assert_eq!(messages.iter().position(|message| *message == 1000), Some(OVERTAKING_MAX as usize));
        assert_eq!(messages.len(), 101);
    }

    #[test]
    fn overtaking_is_bounded_by_frames_not_messages() {
        for (frames, expected) in [(64, [0, 1, 1000, 2, 3, 1001]), (1, [0, 1, 1000, 1001, 2, 3])] {
            let mut queue = MessageQueue::default();
            queue.push(1000, Background, frames);
            queue.push(1001, Background, frames);
            (0..4).for_each(|number| queue.push(number, Normal, 60));
            assert_eq!(drain(queue), expected);
        }
    }

    /// Proves that short background messages get as many frames as those that overtake them.
    #[test]
    fn background_messages_have_their_share() {
        let mut queue = MessageQueue::default();
        (1000..1200).for_each(|number| queue.push(number, Background, 1));
        (0..200).for_each(|number| queue.push(number, Normal, 1));
        let is_background: Vec<bool> = drain(queue).iter().map(|message| *message >= 1000).collect();
        let turns: Vec<(bool, usize)> =
            is_background.chunk_by(|one, next| one == next).map(|turn| (turn[0], turn.len())).collect();
        assert_eq!(turns[..6], [false, true].repeat(3).into_iter().map(|turn| (turn, 64)).collect::<Vec<_>>());
    }

    #[test]
    fn a_partly_submitted_message_is_completed_first() {
        let mut queue = MessageQueue::default();
        queue.push(2, Normal, 1);
        queue.start_next();
        queue.push(1, Background, 1);
        queue.push(3, Normal, 1);
        queue.remove(1);
        assert_eq!(drain(queue), [2, 3]);
    }
}
