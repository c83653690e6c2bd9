// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table of objects by number.

use std::ops::{Index, IndexMut};

/// The numbers of removed objects are reused.
pub(crate) struct Table<T>(Vec<Option<Box<T>>>);

impl<T> Table<T> {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn add(&mut self, value: T) -> usize {
        let free = self.0.iter().position(Option::is_none).unwrap_or_else(|| {
            self.0.push(None);
            self.0.len() - 1
        });
        self.0[free] = Some(Box::new(value));
        free
    }

    pub fn remove(&mut self, number: usize) -> Option<Box<T>> {
        self.0.get_mut(number)?.take()
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten().map(|value| &**value)
    }

    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flatten().map(|value| &mut **value)
    }
}

impl<T> Index<usize> for Table<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: usize) -> &T {
        self.0[number].as_ref().expect("an object has its number until it is closed")
    }
}

impl<T> IndexMut<usize> for Table<T> {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut T {
        self.0[number].as_mut().expect("an object has its number until it is closed")
    }
}
