// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Endpoints through their public interface. One program: each further one takes seconds to link.

mod authentication;
mod closing;
mod common;
mod connecting;
mod crowds;
mod datagrams;
mod integrity;
mod labels;
mod lifecycles;
mod links;
mod messages;
mod processes;
mod queues;
mod reports;
mod sleeping;
mod unauthenticated;
