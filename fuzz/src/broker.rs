// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker's messages: requests from any local user, and replies of a false broker.

use barewire_broker::{Reply, Request};

/// Any bytes decode to a message or an error; a message encodes to the same bytes.
pub fn broker(data: &[u8]) {
    if let Ok(request) = Request::decode(data) {
        assert_eq!(request.encode().as_deref(), Ok(data));
        assert!((1..16).contains(&request.interface.len()) && request.sap.byte() & 1 == 0 && request.sap.byte() != 0);
    }
    if let Ok(reply) = Reply::decode(data) {
        assert_eq!(reply.encode(), data);
    }
}
