// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Posting of accesses to peers' memory.

use std::ffi::c_void;

use barewire_messages::{PeerId, RemoteAddress, SendOptions};

use super::EndpointFid;
use super::messages::Flags;
use crate::bindings::*;
use crate::edge::Result;
use crate::endpoint::{Reliable, reliable};

/// A location in a peer's memory.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub peer: fi_addr_t,
    pub remote: RemoteAddress,
}

pub(super) fn target(peer: fi_addr_t, offset: u64, key: u64) -> Target {
    Target { peer, remote: RemoteAddress { key, offset } }
}

impl EndpointFid {
    /// Posts an access; `kind` becomes the flags of its completion.
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
        let flags = endpoint.effective_transmit_flags(flags);
        let is_silent = flags & FI_COMPLETION == 0;
        // The failure of a silent or injected access is reported, too: a flush of MPICH waits for injected ones.
        let options = SendOptions { context: context as u64, note: kind as u32, is_silent, ..SendOptions::default() };
        let messenger = reliable(&mut endpoint.wire)?;
        let posted = post(messenger, peer, options, flags);
        state.finish_post(self.number, posted)
    }
}
