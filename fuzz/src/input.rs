// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Choices read from the fuzzer's bytes. Small choices take one byte each, so that a mutation has a local effect.

pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub const fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte; 0 after the last.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// One of `choices`.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    /// Up to `length` bytes, fewer at the end.
    pub fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
