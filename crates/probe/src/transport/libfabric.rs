// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transport `libfabric`: tagged messages through the libfabric API, over any provider, used as an MPI library uses
//! it: short messages are injected, the completion queue is polled.

use std::env;
use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use barewire_libfabric::{Completions, FabricError, Hints, SendStatus};

use super::{Counters, Endpoint, LocalConfig, Transport, borrowed_messages, socket_timeout};
use crate::protocol::Session;
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// Our own provider, the default.
pub const OWN_PROVIDER: &str = "barewire";
/// How long the first round trip may take.
const CONNECT_PATIENCE_NS: u64 = 10_000_000_000;
/// Directory of our provider, beside the probe.
const PROVIDER_FOLDER: &str = "libfabric";
const HELLO: [u8; 1] = [0];

/// An endpoint that is open before its peer is known.
pub struct Listening {
    endpoint: barewire_libfabric::Endpoint,
}

impl Listening {
    pub fn new(session: &Session, local: &LocalConfig) -> Result<(Self, Endpoint), LaunchError> {
        static OPENING: Mutex<()> = Mutex::new(());
        let _alone = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        let provider = session.provider.as_deref().unwrap_or(OWN_PROVIDER);
        let is_own = provider == OWN_PROVIDER;
        if is_own {
            configure_provider(session, local);
        }
        let hints = Hints {
            provider,
            domain: if is_own { local.interface.as_deref() } else { None },
            source: if is_own { None } else { local.ip },
            has_wait_object: socket_timeout(session.wait).is_some(),
        };
        let endpoint = barewire_libfabric::Endpoint::open(&hints).map_err(launch_error)?;
        let name = endpoint.address().map_err(launch_error)?;
        Ok((Self { endpoint }, Endpoint::Fabric { name }))
    }

    pub fn accept(self, peer: &[u8], is_active: bool) -> Result<Fabric, LaunchError> {
        let Self { mut endpoint } = self;
        endpoint.connect(peer).map_err(launch_error)?;
        Ok(Fabric { endpoint, is_active, is_posted: false, received: None, in_flight: 0, received_messages: 0 })
    }
}

/// Sets the environment for our own provider as `barewire run` does, unless the user has set it.
fn configure_provider(session: &Session, local: &LocalConfig) {
    let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.join(PROVIDER_FOLDER)));
    let broker = local.broker.as_ref().map(|broker| broker.clone().into_os_string());
    let settings = [
        ("FI_PROVIDER_PATH", beside.map(std::path::PathBuf::into_os_string)),
        ("FI_BAREWIRE_TOKEN", Some(OsString::from(format!("{:016x}", session.token)))),
        ("FI_BAREWIRE_BROKER", broker),
    ];
    for (name, value) in settings {
        let Some(value) = value else { continue };
        if env::var_os(name).is_none() {
            // SAFETY: the only C code that reads the environment is libfabric and its providers, under the lock of
            // `Listening::new`; no host name is resolved while sessions open (addresses are numeric).
            unsafe { env::set_var(name, value) };
        }
    }
}

fn launch_error(error: FabricError) -> LaunchError {
    let mut text = error.to_string();
    if let FabricError::NoProvider { provider, .. } = &error
        && provider == OWN_PROVIDER
    {
        let folder = env::var("FI_PROVIDER_PATH").unwrap_or_else(|_| "libfabric's own folder".to_owned());
        text += &format!(
            "; it is searched in FI_PROVIDER_PATH, which is {folder}: `make build` builds it, and raw \
                          frames need CAP_NET_RAW or a broker"
        );
    }
    match error {
        FabricError::NoLibrary { .. } | FabricError::NoProvider { .. } => LaunchError::MachineCannot(text),
        FabricError::TooLong { .. } => LaunchError::WrongUse(text),
        FabricError::Call { .. } => LaunchError::Failed(text),
    }
}

/// An endpoint with one peer. One receive is posted at a time, in the memory that [`Transport::receive`] was given.
pub struct Fabric {
    endpoint: barewire_libfabric::Endpoint,
    is_active: bool,
    is_posted: bool,
    /// Length of the received message.
    received: Option<usize>,
    /// Sends whose buffers the endpoint still reads.
    in_flight: usize,
    received_messages: u32,
}

impl Fabric {
    #[inline]
    fn apply(&mut self, done: Completions) {
        self.in_flight -= done.sent;
        if done.received.is_some() || done.cancelled {
            (self.is_posted, self.received) = (false, done.received);
        }
    }

    #[inline]
    fn make_progress(&mut self) -> Result<(), LaunchError> {
        let done = self.endpoint.poll().map_err(launch_error)?;
        self.apply(done);
        Ok(())
    }

    /// Posts the receive unless it is posted.
    ///
    /// # Safety
    /// `message` must stay allocated and unused by others until `received` is set or the receive is cancelled.
    #[inline]
    unsafe fn post(&mut self, message: &mut [u8]) -> Result<(), LaunchError> {
        if !self.is_posted && self.received.is_none() {
            // SAFETY: the caller's promise.
            self.is_posted = unsafe { self.endpoint.receive(message) }.map_err(launch_error)?;
        }
        Ok(())
    }

    fn receive_hello(&mut self, deadline_ns: u64) -> Result<(), LaunchError> {
        // Leaked, because the endpoint may still write to it after a timeout.
        let buffer = Box::leak(Box::new(HELLO));
        while self.received.is_none() {
            // SAFETY: leaked memory is never freed, and nothing else uses it.
            unsafe { self.post(buffer) }?;
            self.poll_before(deadline_ns)?;
        }
        self.received = None;
        Ok(())
    }

    fn send_hello(&mut self, deadline_ns: u64) -> Result<(), LaunchError> {
        // SAFETY: a constant is never freed or changed.
        while unsafe { self.endpoint.send(const { &HELLO }) }.map_err(launch_error)? == SendStatus::Busy {
            self.poll_before(deadline_ns)?;
        }
        Ok(())
    }

    /// One iteration of waiting for the peer; an error after the deadline.
    fn poll_before(&mut self, deadline_ns: u64) -> Result<(), LaunchError> {
        if now_ns() > deadline_ns {
            let text = "no round trip through libfabric completed within 10 s";
            return Err(LaunchError::Failed(text.to_owned()));
        }
        self.make_progress()?;
        std::thread::yield_now();
        Ok(())
    }
}

impl Transport for Fabric {
    /// Providers connect on the first message: exchanges one in each direction.
    fn establish(&mut self) -> Result<(), LaunchError> {
        let deadline_ns = now_ns() + CONNECT_PATIENCE_NS;
        if self.is_active {
            self.send_hello(deadline_ns)?;
            return self.receive_hello(deadline_ns);
        }
        self.receive_hello(deadline_ns)?;
        self.send_hello(deadline_ns)
    }

    #[inline]
    unsafe fn try_send(&mut self, _sequence: u32, message: &[u8], done: &mut usize) -> Result<bool, LaunchError> {
        if *done == message.len() {
            return Ok(true);
        }
        for attempt in 0..2 {
            let has_room =
                message.len() <= self.endpoint.inject_bytes() || self.in_flight < borrowed_messages(message.len());
            // SAFETY: the caller keeps the message unchanged until `borrows` later messages are sent; `in_flight`,
            // which completions decrement, allows no more.
            let posted = if has_room { unsafe { self.endpoint.send(message) } } else { Ok(SendStatus::Busy) };
            match posted.map_err(launch_error)? {
                SendStatus::Busy if attempt == 0 => self.make_progress()?,
                SendStatus::Busy => {}
                posted => {
                    self.in_flight += usize::from(posted == SendStatus::InFlight);
                    *done = message.len();
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn borrows(&self, message_bytes: usize) -> usize {
        if message_bytes > self.endpoint.inject_bytes() { borrowed_messages(message_bytes) } else { 0 }
    }

    #[inline]
    unsafe fn receive(&mut self, message: &mut [u8], patience: Duration) -> Result<Option<u32>, LaunchError> {
        // SAFETY: the caller's promise.
        unsafe { self.post(message) }?;
        self.make_progress()?;
        if self.received.is_none() && !patience.is_zero() {
            let done = self.endpoint.wait(patience).map_err(launch_error)?;
            self.apply(done);
        }
        let Some(bytes) = self.received.take() else { return Ok(None) };
        if bytes != message.len() {
            let text = format!("a message of {bytes} bytes came instead of {}", message.len());
            return Err(LaunchError::Failed(text));
        }
        self.received_messages = self.received_messages.wrapping_add(1);
        Ok(Some(self.received_messages.wrapping_sub(1)))
    }

    fn wait_to_send(&mut self, patience: Duration) -> Result<(), LaunchError> {
        let done = self.endpoint.wait(patience).map_err(launch_error)?;
        self.apply(done);
        Ok(())
    }

    fn settle(&mut self) -> Result<bool, LaunchError> {
        if self.is_posted {
            // A receive that has already matched completes instead.
            self.endpoint.cancel().map_err(launch_error)?;
        }
        self.make_progress()?;
        Ok(!self.is_posted && self.in_flight == 0)
    }

    /// The endpoint makes progress only in calls.
    fn is_lazy(&self) -> bool {
        true
    }

    fn set_pace(&mut self, _bit_s: Option<f64>) {}

    /// The provider's headers are unknown. Only lossy transports need the exact number, for pacing.
    fn wire_bytes(&self, message_bytes: usize) -> usize {
        message_bytes
    }

    fn is_lossy(&self) -> bool {
        false
    }

    /// Calls of a failed provider return its errors.
    fn check(&mut self) -> Result<(), LaunchError> {
        Ok(())
    }

    fn counters(&mut self) -> Result<Counters, LaunchError> {
        Ok(Counters::default())
    }

    fn mtu(&self) -> Option<usize> {
        None
    }

    fn path(&self) -> Option<String> {
        Some(self.endpoint.path())
    }
}
