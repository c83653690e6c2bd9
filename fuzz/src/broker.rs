// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker's messages: what any local user can send to it, and what a false broker can answer.

use barewire_broker::{Reply, Request};

/// A message or a reason; what is a message encodes to the very same bytes.
pub fn broker(data: &[u8]) {
    if let Ok(request) = Request::decode(data) {
        assert_eq!(request.encode().as_deref(), Ok(data));
        assert!((1..16).contains(&request.interface.len()) && request.sap.byte() & 1 == 0 && request.sap.byte() != 0);
    }
    if let Ok(reply) = Reply::decode(data) {
        assert_eq!(reply.encode(), data);
    }
}
