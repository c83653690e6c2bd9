// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of information fields that were received out of order, kept until they are next.

use std::collections::HashMap;

use barewire_llc::ConnectionHandle;

/// Maximum number of fields, of all connections: four windows. Other fields are dropped; the peer retransmits them.
const FIELDS_MAX: usize = 256;

/// Allocates on the first field out of order; on most networks there is none.
#[derive(Default)]
pub(crate) struct ReorderBuffer {
    fields: HashMap<(ConnectionHandle, u16), Vec<u8>>,
    /// Buffers of delivered fields, for reuse.
    spare: Vec<Vec<u8>>,
}

impl ReorderBuffer {
    /// Keeps a copy if there is room. `is_wanted` tells whether a connection still needs a field.
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
        // Replaces a field of the same number from before a reset of the connection.
        self.fields.insert((connection, number), copy);
        true
    }

    /// Takes out a field that is next in order. Return its memory with [`reuse`](Self::reuse).
    pub fn take(&mut self, connection: ConnectionHandle, number: u16) -> Option<Vec<u8>> {
        self.fields.remove(&(connection, number))
    }

    pub fn reuse(&mut self, memory: Vec<u8>) {
        if self.spare.len() < FIELDS_MAX {
            self.spare.push(memory);
        }
    }
}
