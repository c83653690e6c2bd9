// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to peers' memory: where it is, and how it is posted.

use std::ffi::c_void;

use barewire_messages::{PeerId, RemoteAddress, SendOptions};

use super::EndpointFid;
use super::messages::Flags;
use crate::bindings::*;
use crate::edge::Result;
use crate::endpoint::{Reliable, reliable};

/// Where in whose memory.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub peer: fi_addr_t,
    pub at: RemoteAddress,
}

pub(super) fn place(peer: fi_addr_t, offset: u64, key: u64) -> Place {
    Place { peer, at: RemoteAddress { key, offset } }
}

impl EndpointFid {
    /// Posts an access; `kind` is what its completion says.
    #[inline]
    pub(super) fn access(
        &self,
        peer: fi_addr_t,
        kind: u64,
        context: *mut c_void,
        flags: Flags,
        post: impl FnOnce(&mut Reliable, PeerId, SendOptions, u64) -> Result<()>,
    ) -> Result<isize> {
        let mut state = self.shared.lock()?;
        let state = &mut *state;
        let endpoint = &mut state.endpoints[self.number];
        let peer = endpoint.peer(&state.vectors, peer)?;
        let is_injected = matches!(flags, Flags::Injected);
        let flags = endpoint.flags_to_send(flags);
        let is_silent = flags & FI_COMPLETION == 0;
        // Of what is injected nobody is told, not even that it failed.
        let note = if is_injected { 0 } else { kind as u32 };
        let options = SendOptions { context: context as u64, note, is_silent, ..SendOptions::default() };
        let messenger = reliable(&mut endpoint.wire)?;
        let posted = post(messenger, peer, options, flags);
        state.posted(self.number, posted)
    }
}
