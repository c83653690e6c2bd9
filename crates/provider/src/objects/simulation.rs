// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects on a simulated network, for simulated worlds: a domain with an endpoint, an address vector and a completion
//! queue. The world calls their functions as libfabric does, runs the steps of the progress thread, which is no thread
//! here, and decides when a sleep ends; empty polls do not sleep. So a world depends on nothing but its seed.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use barewire_endpoint::Address;
use barewire_link::Link;
use barewire_messages::{Config, Selector};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;

use super::{counter, domain, endpoint, queue, vector};
use crate::address::{Credentials, Reach};
use crate::backoff::CoreSharing;
use crate::bindings::*;
use crate::device::Device;
use crate::edge::Errno;
use crate::endpoint::{Reliable, Wire};
use crate::link::AnyLink;
use crate::lock::Lock;
use crate::parameters::Parameters;
use crate::poison::Poison;
use crate::progress;
use crate::progress_request::ProgressRequest;
use crate::state::{Shared, State};

/// A link of a simulated world.
pub(crate) struct SimulatedLink {
    link: Box<dyn Link>,
    /// Never readable: the world itself wakes a process for which frames have arrived.
    descriptor: EventFd,
}

// SAFETY: a world, with all of its links, is used by one thread.
unsafe impl Send for SimulatedLink {}

impl Deref for SimulatedLink {
    type Target = dyn Link;

    fn deref(&self) -> &Self::Target {
        &*self.link
    }
}

impl DerefMut for SimulatedLink {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.link
    }
}

impl AsFd for SimulatedLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The open objects of one process. Dropping them is the process's end: channels are not closed, but break off.
#[expect(missing_docs, reason = "libfabric's own names")]
pub struct Objects {
    pub domain: *mut fid_domain,
    pub cq: *mut fid_cq,
    pub av: *mut fid_av,
    pub ep: *mut fid_ep,
    /// Counts accesses to peers' memory; null if there is none.
    pub cntr: *mut fid_cntr,
    shared: Arc<Shared>,
    progress_request: Arc<ProgressRequest>,
    has_worked: bool,
    /// What the process, or its progress thread, sleeps on.
    awaited: Vec<RawFd>,
}

/// The object that `open` opens.
pub(super) fn opened<T>(open: impl FnOnce(*mut *mut T) -> c_int) -> *mut T {
    let mut object = MaybeUninit::uninit();
    assert_eq!(open(object.as_mut_ptr()), 0);
    // SAFETY: initialised on success.
    unsafe { object.assume_init() }
}

impl Objects {
    /// Opens the objects, with or without a counter, and enables the endpoint. `patience` is that of `config`.
    ///
    /// # Panics
    /// The configuration is invalid, or the system has no more descriptors.
    #[must_use]
    pub fn open(
        link: Box<dyn Link>,
        config: barewire_endpoint::Config,
        messages: Config,
        patience: Duration,
        has_counter: bool,
    ) -> Self {
        let reach = Reach::of(link.locator());
        let device = Device { name: "simulated".to_owned(), mtu: link.mtu_min(), mtu_max: link.mtu(), reach };
        let progress_request = Arc::new(ProgressRequest::new(false, CoreSharing::Exclusive).expect("a descriptor"));
        let poison = Arc::new(Poison::new().expect("a descriptor"));
        let shared = Arc::new(Shared {
            state: Lock::shared(State::new(progress_request.clone(), poison.clone())),
            poison,
            device,
            parameters: Parameters {
                core_sharing: CoreSharing::Exclusive,
                patience: Some(patience),
                ..Parameters::default()
            },
            used: Arc::new(()),
            process: std::process::id(),
        });
        let domain = domain::new(shared.clone(), None, Arc::new(()), ptr::null_mut());
        let mut attributes = fi_cq_attr { format: FI_CQ_FORMAT_TAGGED, ..fi_cq_attr::default() };
        let mut addresses = fi_av_attr::default();
        let mut info = fi_info { caps: FI_DIRECTED_RECV, ..fi_info::default() };
        // SAFETY: an open domain, and valid attributes.
        let (cq, av, ep) = unsafe {
            (
                opened(|to| queue::open(domain, &raw mut attributes, to, ptr::null_mut())),
                opened(|to| vector::open(domain, &raw mut addresses, to, ptr::null_mut())),
                opened(|to| endpoint::open(domain, &raw mut info, to, ptr::null_mut())),
            )
        };
        let mut attributes = fi_cntr_attr::default();
        let cntr = match has_counter {
            // SAFETY: as above.
            true => opened(|to| unsafe { counter::open(domain, &raw mut attributes, to, ptr::null_mut()) }),
            false => ptr::null_mut(),
        };
        let bindings = [(cq.cast::<fid>(), FI_TRANSMIT | FI_RECV), (av.cast(), 0), (cntr.cast(), FI_WRITE | FI_READ)];
        for (object, flags) in bindings.into_iter().filter(|(object, _)| !object.is_null()) {
            // SAFETY: open objects.
            let status = unsafe {
                let fid = &raw mut (*ep).fid;
                (*(*fid).ops).bind.expect("ours has it")(fid, object, flags)
            };
            assert_eq!(status, 0);
        }
        let link = AnyLink::Simulated(SimulatedLink { link, descriptor: EventFd::new().expect("a descriptor") });
        let opened = barewire_endpoint::Endpoint::open(link, config, None).expect("the world's configuration is right");
        shared.lock().expect("not poisoned").endpoints[0].start(opened, messages);
        Self { domain, cq, av, ep, cntr, shared, progress_request, has_worked: true, awaited: Vec::new() }
    }

    /// An address as `fi_av_insert` takes it.
    #[must_use]
    pub fn encode(address: Address) -> [u8; crate::address::BYTES] {
        crate::address::to_bytes(address, Credentials::default())
    }

    fn messenger<R>(&self, of: impl FnOnce(&mut Reliable) -> R) -> R {
        let mut state = self.shared.lock().expect("not poisoned");
        match &mut state.endpoints[0].wire {
            Some(Wire::Reliable(messenger)) => of(messenger),
            _ => unreachable!("an endpoint for reliable messages was started"),
        }
    }

    /// As [`Messenger::unexpected_bytes`](barewire_messages::Messenger::unexpected_bytes).
    #[must_use]
    pub fn unexpected_bytes(&self) -> usize {
        self.messenger(|messenger| messenger.unexpected_bytes())
    }

    /// Whether an unexpected message matches.
    #[must_use]
    pub fn has_unexpected(&self, selector: Selector) -> bool {
        self.messenger(|messenger| messenger.peek(selector).is_some())
    }

    /// As [`Messenger::inject_max`](barewire_messages::Messenger::inject_max).
    #[must_use]
    pub fn inject_max(&self) -> usize {
        self.messenger(|messenger| messenger.inject_max())
    }

    /// As [`Messenger::inject_write_max`](barewire_messages::Messenger::inject_write_max).
    #[must_use]
    pub fn inject_write_max(&self) -> usize {
        self.messenger(|messenger| messenger.inject_write_max())
    }

    /// As [`Messenger::settle`](barewire_messages::Messenger::settle).
    ///
    /// # Errors
    /// The link fails.
    pub fn settle(&mut self) -> Result<bool, barewire_endpoint::EndpointError> {
        self.messenger(|messenger| messenger.settle())
    }

    /// Whether a completion has not been read yet.
    #[must_use]
    pub fn has_completions(&self) -> bool {
        let is_queued = self.shared.lock().is_ok_and(|state| state.queues.iter().any(|queue| !queue.is_empty()));
        is_queued || self.messenger(|messenger| messenger.has_completions())
    }

    /// Prepares for a sleep, as `fi_trywait` does. Returns the longest sleep, or `None` if there is work to do.
    ///
    /// # Errors
    /// One of libfabric's error numbers.
    pub fn prepare_to_sleep(&mut self, longest: Duration) -> Result<Option<Duration>, u32> {
        self.wake();
        let mut state = self.shared.lock().map_err(|Errno(error)| error)?;
        if state.queues.iter().any(|queue| !queue.is_empty()) {
            return Ok(None);
        }
        let left = state.prepare_to_sleep(Some(longest), &mut self.awaited).map_err(|Errno(error)| error)?;
        Ok(left.map(|left| left.unwrap_or(longest)))
    }

    /// Runs the progress thread until it sleeps, while the program computes; returns for how long it sleeps.
    pub fn run_progress_thread(&mut self) -> Duration {
        self.wake();
        progress::step(&self.shared, &self.progress_request, &mut self.awaited, &mut self.has_worked)
    }

    /// How long the progress thread may still sleep when the program begins to compute.
    #[must_use]
    pub fn progress_thread_sleeps(&self) -> Duration {
        match self.progress_request.is_requested() {
            true => self.progress_request.longest_interval(),
            false => progress::keep_alive_interval(&self.shared.parameters),
        }
    }

    /// Whether a frame ends a sleep.
    #[must_use]
    pub fn awaits_frames(&self) -> bool {
        self.messenger(|messenger| {
            let link = messenger.endpoint().link();
            link.descriptors().any(|descriptor| self.awaited.contains(&descriptor.as_raw_fd()))
        })
    }

    /// Ends a sleep.
    pub fn wake(&mut self) {
        self.awaited.clear();
    }

    /// Whether a sleep would end: one of its descriptors is readable.
    #[must_use]
    pub fn is_rung(&self) -> bool {
        // SAFETY: open until the next call for this process, which is asleep.
        let awaited = self.awaited.iter().map(|awaited| unsafe { BorrowedFd::borrow_raw(*awaited) });
        let mut awaited: Vec<_> = awaited.map(|awaited| PollFd::new(awaited, PollFlags::POLLIN)).collect();
        poll(&mut awaited, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        if let Ok(mut state) = self.shared.lock() {
            state.endpoints[0].wire = None;
        }
        let objects: [*mut fid; 5] =
            [self.ep.cast(), self.cq.cast(), self.av.cast(), self.cntr.cast(), self.domain.cast()];
        for object in objects.into_iter().filter(|object| !object.is_null()) {
            // SAFETY: open objects, which are not used any more.
            let status = unsafe { (*(*object).ops).close.expect("ours has it")(object) };
            assert_eq!(status, 0, "something is still in use");
        }
    }
}
