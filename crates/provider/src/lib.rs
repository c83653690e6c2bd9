// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `libbarewire-fi.so`: a libfabric provider that carries messages over Ethernet frames.
//!
//! libfabric loads it from a folder in `FI_PROVIDER_PATH` and calls [`fi_prov_ini`]. All further calls arrive through
//! the function tables of its `objects`: fabric → domain → endpoint, completion queue, counter, address vector, memory
//! region; event queue. They operate on a domain's `state`, behind one lock: the endpoints, each with a messenger
//! (`barewire-messages`), and the completions in queues and counters.

mod address;
mod backoff;
mod companions;
mod counter;
mod device;
mod diagnostics;
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
mod open_mpi;
mod parameters;
mod poison;
mod progress;
mod progress_request;
mod queue;
mod reached;
mod region;
mod silence;
mod state;
mod sync;
mod table;
mod vector;
mod wait_set;

use std::sync::OnceLock;

use barewire_libfabric::bindings;
pub use objects::simulation;

use bindings::{fi_context, fi_provider};

/// Version 0.1 in libfabric's encoding.
const PROVIDER_VERSION: u32 = 1;

/// For `barewire --version`: peers must have the same one.
#[unsafe(no_mangle)]
pub static BAREWIRE_WIRE_VERSION: u8 = barewire_llc::extension::VERSION;
/// For `barewire --version`: peers must have the same one.
#[unsafe(no_mangle)]
pub static BAREWIRE_ADDRESS_VERSION: u8 = address::VERSION;
/// For `barewire --version`: the major version in the upper half.
#[unsafe(no_mangle)]
pub static BAREWIRE_PROVIDER_VERSION: u32 = PROVIDER_VERSION;

/// Only libfabric writes to it: to its `context`.
struct Provider(std::cell::UnsafeCell<fi_provider>);

// SAFETY: written once, before libfabric sees it; its pointers point to constants.
unsafe impl Send for Provider {}
// SAFETY: as above.
unsafe impl Sync for Provider {}

static PROVIDER: OnceLock<Provider> = OnceLock::new();

/// This provider, as an argument for libfabric's functions.
fn provider() -> *const fi_provider {
    PROVIDER.get().map_or(std::ptr::null(), |provider| provider.0.get())
}

/// The entry point, which libfabric calls once after it has loaded the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    let is_found = std::panic::catch_unwind(libfabric::find);
    let (Ok(true), Some(libfabric)) = (is_found, libfabric::libfabric()) else { return std::ptr::null_mut() };
    let provider = PROVIDER.get_or_init(|| {
        Provider(std::cell::UnsafeCell::new(fi_provider {
            version: PROVIDER_VERSION,
            // libfabric rejects providers older than the API version that a program requests. We need only 1.17.
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

/// libfabric's last call before it unloads the library.
extern "C" fn cleanup() {
    progress::end_all();
}
