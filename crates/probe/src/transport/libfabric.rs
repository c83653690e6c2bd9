// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transport `libfabric`: tagged messages through libfabric's own interface, over whichever provider, as an MPI library
//! sends them: short ones injected, the completion queue asked again and again.

use std::env;
use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use barewire_libfabric::{Completions, FabricError, Hints, SendStatus};

use super::{Counters, Endpoint, Place, Transport, borrowed_messages, sleep_of};
use crate::protocol::Session;
use barewire_recorder::LaunchError;
use barewire_recorder::clock::now_ns;

/// Our own provider, which is the default.
pub const OWN_PROVIDER: &str = "barewire";
/// How long the first message there and back may take.
const CONNECT_PATIENCE_NS: u64 = 10_000_000_000;
/// Where the build puts our provider, beside the probe.
const PROVIDER_FOLDER: &str = "libfabric";
const HELLO: [u8; 1] = [0];

/// An endpoint that is open before its peer is known.
pub struct Listening {
    endpoint: barewire_libfabric::Endpoint,
}

impl Listening {
    pub fn new(session: &Session, place: &Place) -> Result<(Self, Endpoint), LaunchError> {
        static OPENING: Mutex<()> = Mutex::new(());
        let _alone = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        let provider = session.provider.as_deref().unwrap_or(OWN_PROVIDER);
        let is_own = provider == OWN_PROVIDER;
        if is_own {
            tell_provider(session, place);
        }
        let hints = Hints {
            provider,
            domain: if is_own { place.interface.as_deref() } else { None },
            source: if is_own { None } else { place.ip },
            has_wait_object: sleep_of(session.wait).is_some(),
        };
        let endpoint = barewire_libfabric::Endpoint::open(&hints).map_err(launch_error)?;
        let name = endpoint.address().map_err(launch_error)?;
        Ok((Self { endpoint }, Endpoint::Fabric { name }))
    }

    pub fn accept(self, peer: &[u8], is_active: bool) -> Result<Fabric, LaunchError> {
        let Self { mut endpoint } = self;
        endpoint.connect(peer).map_err(launch_error)?;
        Ok(Fabric { endpoint, is_active, is_posted: false, received: None, under_way: 0, received_messages: 0 })
    }
}

/// Sets, for our own provider, what `barewire run` sets for an MPI library, as far as the user has not.
fn tell_provider(session: &Session, place: &Place) {
    let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.join(PROVIDER_FOLDER)));
    let broker = place.broker.as_ref().map(|broker| broker.clone().into_os_string());
    let settings = [
        ("FI_PROVIDER_PATH", beside.map(std::path::PathBuf::into_os_string)),
        ("FI_BAREWIRE_TOKEN", Some(OsString::from(format!("{:016x}", session.token)))),
        ("FI_BAREWIRE_BROKER", broker),
    ];
    for (name, value) in settings {
        let Some(value) = value else { continue };
        if env::var_os(name).is_none() {
            // SAFETY: the only C code here that reads the environment is libfabric's and its providers', which runs
            // behind the lock of `Listening::new`; a name is not looked up while sessions open (addresses are numbers).
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
            "; it is looked for in FI_PROVIDER_PATH, which is {folder}: `make build` makes it, and raw \
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
    /// The message of the receive has come: its length.
    received: Option<usize>,
    /// Messages that are still read from the caller's memory.
    under_way: usize,
    received_messages: u32,
}

impl Fabric {
    #[inline]
    fn take(&mut self, done: Completions) {
        self.under_way -= done.sent;
        if done.received.is_some() || done.cancelled {
            (self.is_posted, self.received) = (false, done.received);
        }
    }

    #[inline]
    fn go_on(&mut self) -> Result<(), LaunchError> {
        let done = self.endpoint.poll().map_err(launch_error)?;
        self.take(done);
        Ok(())
    }

    /// Posts the receive if it is not.
    ///
    /// # Safety
    /// The memory must stay in place, and be used by nothing else, until `received` tells of it, or it was taken back.
    #[inline]
    unsafe fn post(&mut self, message: &mut [u8]) -> Result<(), LaunchError> {
        if !self.is_posted && self.received.is_none() {
            // SAFETY: the caller's promise.
            self.is_posted = unsafe { self.endpoint.receive(message) }.map_err(launch_error)?;
        }
        Ok(())
    }

    fn wait_for_hello(&mut self, deadline_ns: u64) -> Result<(), LaunchError> {
        // Left behind if nothing comes: the endpoint may still write to it.
        let place = Box::leak(Box::new(HELLO));
        while self.received.is_none() {
            // SAFETY: leaked memory stays for good, and nothing else uses it.
            unsafe { self.post(place) }?;
            self.before(deadline_ns)?;
        }
        self.received = None;
        Ok(())
    }

    fn say_hello(&mut self, deadline_ns: u64) -> Result<(), LaunchError> {
        // SAFETY: a constant stays in place and unchanged.
        while unsafe { self.endpoint.send(const { &HELLO }) }.map_err(launch_error)? == SendStatus::Busy {
            self.before(deadline_ns)?;
        }
        Ok(())
    }

    /// One turn of waiting for the peer.
    fn before(&mut self, deadline_ns: u64) -> Result<(), LaunchError> {
        if now_ns() > deadline_ns {
            let text = "no message came there and back through libfabric within 10 s";
            return Err(LaunchError::Failed(text.to_owned()));
        }
        self.go_on()?;
        std::thread::yield_now();
        Ok(())
    }
}

impl Transport for Fabric {
    /// Providers connect with the first message: one there, and one back.
    fn establish(&mut self) -> Result<(), LaunchError> {
        let deadline_ns = now_ns() + CONNECT_PATIENCE_NS;
        if self.is_active {
            self.say_hello(deadline_ns)?;
            return self.wait_for_hello(deadline_ns);
        }
        self.wait_for_hello(deadline_ns)?;
        self.say_hello(deadline_ns)
    }

    #[inline]
    unsafe fn try_send(&mut self, _sequence: u32, message: &[u8], done: &mut usize) -> Result<bool, LaunchError> {
        if *done == message.len() {
            return Ok(true);
        }
        for attempt in 0..2 {
            let has_room =
                message.len() <= self.endpoint.inject_bytes() || self.under_way < borrowed_messages(message.len());
            // SAFETY: the caller keeps the message as it is until `under_way`, which the completions bring down, has made
            // room for so many others.
            let posted = if has_room { unsafe { self.endpoint.send(message) } } else { Ok(SendStatus::Busy) };
            match posted.map_err(launch_error)? {
                SendStatus::Busy if attempt == 0 => self.go_on()?,
                SendStatus::Busy => {}
                posted => {
                    self.under_way += usize::from(posted == SendStatus::InFlight);
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
        self.go_on()?;
        if self.received.is_none() && !patience.is_zero() {
            let done = self.endpoint.wait(patience).map_err(launch_error)?;
            self.take(done);
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
        self.take(done);
        Ok(())
    }

    fn settle(&mut self) -> Result<bool, LaunchError> {
        if self.is_posted {
            // One that has matched a message ends with that.
            self.endpoint.cancel().map_err(launch_error)?;
        }
        self.go_on()?;
        Ok(!self.is_posted && self.under_way == 0)
    }

    /// Progress is made in calls only.
    fn is_lazy(&self) -> bool {
        true
    }

    fn set_pace(&mut self, _bit_s: Option<f64>) {}

    /// What a provider puts around a message is its own affair, and nothing is lost that would need the number.
    fn wire_bytes(&self, message_bytes: usize) -> usize {
        message_bytes
    }

    fn is_lossy(&self) -> bool {
        false
    }

    /// A provider that no longer works says so when it is asked.
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
