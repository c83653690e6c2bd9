// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue of indications for the user of a connection.

use crate::connection::Cause;

/// Pending events other than those of tokens. At most four are pending, since the fourth is a disconnection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Indications {
    waiting: [Option<Indication>; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Indication {
    Incoming,
    Connected,
    Reset(Cause),
    ResetDone,
    Disconnected(Cause),
}

impl Indications {
    pub fn push(&mut self, indication: Indication) {
        let free = self.waiting.iter().position(Option::is_none);
        self.waiting[free.unwrap_or(self.waiting.len() - 1)] = Some(indication);
    }

    pub fn pop(&mut self) -> Option<Indication> {
        let first = self.waiting[0].take();
        self.waiting.rotate_left(1);
        first
    }

    pub fn is_empty(&self) -> bool {
        self.waiting[0].is_none()
    }
}
