// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Information fields that came before others of their connection: copies, until it is their turn.

use std::collections::HashMap;

use barewire_llc::ConnectionHandle;

/// Fields at most, of all connections: four windows. What finds no room is sent again by its peer.
const FIELDS_MAX: usize = 256;

/// Memory is taken when the first field comes early, which on most networks none does.
#[derive(Default)]
pub(crate) struct Early {
    fields: HashMap<(ConnectionHandle, u16), Vec<u8>>,
    /// Memory of fields that were delivered.
    spare: Vec<Vec<u8>>,
}

impl Early {
    /// Keeps a copy, if there is room; `is_wanted` says whether a connection still waits for a field's turn.
    pub fn keep(
        &mut self,
        connection: ConnectionHandle,
        number: u16,
        information: &[u8],
        is_wanted: impl Fn(ConnectionHandle, u16) -> bool,
    ) -> bool {
        if self.fields.len() == FIELDS_MAX {
            self.fields.retain(|(connection, number), _| is_wanted(*connection, *number));
        }
        if self.fields.len() == FIELDS_MAX {
            return false;
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(information);
        // One of a set-up before may have had the same number.
        self.fields.insert((connection, number), copy);
        true
    }

    /// A field whose turn it is, which goes back to [`reuse`](Self::reuse).
    pub fn take(&mut self, connection: ConnectionHandle, number: u16) -> Option<Vec<u8>> {
        self.fields.remove(&(connection, number))
    }

    pub fn reuse(&mut self, memory: Vec<u8>) {
        if self.spare.len() < FIELDS_MAX {
            self.spare.push(memory);
        }
    }
}
