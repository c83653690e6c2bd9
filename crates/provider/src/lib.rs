// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `libbarewire-fi.so`: a libfabric provider that carries messages over Ethernet frames.
//!
//! libfabric loads it from a folder that `FI_PROVIDER_PATH` names, and calls [`fi_prov_ini`]. From then on everything
//! goes through the tables of functions that its `objects` carry: fabric → domain → endpoint, queue, counter, address
//! vector, region; event queue. What they do is done to a domain's `state`, behind one lock: the endpoints, each a
//! messenger (`barewire-messages`), and what has ended, in queues and counters.

mod address;
mod attention;
mod backoff;
mod counter;
mod dead_end;
mod device;
mod domains;
mod edge;
mod endpoint;
mod event;
mod info;
mod job;
mod libfabric;
mod link;
mod lock;
mod log;
mod notifier;
mod objects;
mod parameters;
mod poison;
mod progress;
mod queue;
mod region;
mod state;
mod sync;
mod table;
mod vector;
mod wait_set;

use std::sync::OnceLock;

use barewire_libfabric::bindings;
use bindings::{fi_context, fi_provider};

/// Version 0.1, as libfabric writes it.
const PROVIDER_VERSION: u32 = 1;

/// libfabric writes into it (its `context`), and nobody else does.
struct Provider(std::cell::UnsafeCell<fi_provider>);

// SAFETY: we write it once, before libfabric knows it; its pointers are to constants.
unsafe impl Send for Provider {}
// SAFETY: as above.
unsafe impl Sync for Provider {}

static PROVIDER: OnceLock<Provider> = OnceLock::new();

/// What we are, for calls of libfabric's.
fn provider() -> *const fi_provider {
    PROVIDER.get().map_or(std::ptr::null(), |provider| provider.0.get())
}

/// libfabric's way in: called once after it has loaded the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    let found = std::panic::catch_unwind(libfabric::find);
    let (Ok(true), Some(libfabric)) = (found, libfabric::libfabric()) else { return std::ptr::null_mut() };
    let provider = PROVIDER.get_or_init(|| {
        Provider(std::cell::UnsafeCell::new(fi_provider {
            version: PROVIDER_VERSION,
            // Whoever asks for more than 1.17 refuses a provider that was made for less. We use what 1.17 has.
            fi_version: libfabric.version(),
            context: fi_context::default(),
            name: c"barewire".as_ptr(),
            getinfo: Some(info::getinfo),
            fabric: Some(objects::fabric::open),
            cleanup: Some(cleanup),
        }))
    });
    parameters::define(libfabric);
    provider.0.get()
}

/// libfabric's last call, before it unloads the library.
extern "C" fn cleanup() {
    progress::end_all();
}
