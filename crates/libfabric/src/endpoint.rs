// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reliable endpoint for tagged messages, opened as Open MPI and MPICH open theirs: one completion queue for both ways,
//! an address vector as a table, selective completion, manual progress.

use std::ffi::{CStr, CString, c_char, c_int};
use std::net::IpAddr;
use std::ptr::{self, NonNull};

use crate::bindings::*;
use crate::error::FabricError;
use crate::library::Library;
use crate::tagged::Contexts;

/// Calls a function of a table, which may not have it.
macro_rules! called {
    ($function:expr, $($argument:expr),*) => {
        match $function {
            Some(function) => function($($argument),*),
            None => -(libc::ENOSYS as i32) as _,
        }
    };
}
pub(crate) use called;

/// What a caller wants of an endpoint.
#[derive(Clone, Debug, Default)]
pub struct Wishes<'a> {
    /// As libfabric writes it, with what is layered over it: `barewire`, `tcp;ofi_rxm`.
    pub provider: &'a str,
    /// The provider's domain, of several.
    pub domain: Option<&'a str>,
    /// The address to bind to, of providers over IP.
    pub source: Option<IpAddr>,
    /// Whether [`Endpoint::wait`] is to sleep; some providers cost more then.
    pub sleeps: bool,
}

/// An endpoint and all that it needs, closed in this order.
pub struct Endpoint {
    pub(crate) endpoint: Object<fid_ep>,
    pub(crate) queue: Object<fid_cq>,
    vector: Object<fid_av>,
    _domain: Object<fid_domain>,
    _fabric: Object<fid_fabric>,
    info: Info,
    pub(crate) library: &'static Library,
    pub(crate) peer: fi_addr_t,
    pub(crate) contexts: Contexts,
    pub(crate) inject_bytes: usize,
}

impl Endpoint {
    /// On the provider's first offer.
    ///
    /// # Errors
    /// [`FabricError`].
    pub fn open(wishes: &Wishes<'_>) -> Result<Self, FabricError> {
        let library = Library::load()?;
        let info = Info::find(library, wishes)?;
        let at = info.at.as_ptr();
        // SAFETY: an offer of the library's has all attributes; each function takes what the one before it has made, and
        // writes where the object belongs.
        unsafe {
            let fabric = opened(library, "fi_fabric", |to| (library.fabric)((*at).fabric_attr, to, ptr::null_mut()))?;
            let (from, ops) = (fabric.get(), (*fabric.get()).ops);
            let domain = opened(library, "fi_domain", |to| called!((*ops).domain, from, at, to, ptr::null_mut()))?;
            let (from, ops) = (domain.get(), (*domain.get()).ops);
            let mut attributes = fi_av_attr { type_: FI_AV_TABLE, ..fi_av_attr::default() };
            let vector = opened(library, "fi_av_open", |to| {
                called!((*ops).av_open, from, &raw mut attributes, to, ptr::null_mut())
            })?;
            let wait_obj = if wishes.sleeps { FI_WAIT_UNSPEC } else { FI_WAIT_NONE };
            let mut attributes = fi_cq_attr { format: FI_CQ_FORMAT_TAGGED, wait_obj, ..fi_cq_attr::default() };
            let queue = opened(library, "fi_cq_open", |to| {
                called!((*ops).cq_open, from, &raw mut attributes, to, ptr::null_mut())
            })?;
            let endpoint =
                opened(library, "fi_endpoint", |to| called!((*ops).endpoint, from, at, to, ptr::null_mut()))?;
            endpoint.bind(library, vector.fid(), 0)?;
            endpoint.bind(library, queue.fid(), FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION)?;
            let (fid, ops) = (endpoint.fid(), (*endpoint.fid()).ops);
            let status = called!((*ops).control, fid, FI_ENABLE as c_int, ptr::null_mut());
            succeeded(library, "fi_enable", status)?;
            let inject_bytes = (*(*at).tx_attr).inject_size;
            let peer = fi_addr_t::MAX;
            let contexts = Contexts::new();
            let (_domain, _fabric) = (domain, fabric);
            Ok(Self { endpoint, queue, vector, _domain, _fabric, info, library, peer, contexts, inject_bytes })
        }
    }

    /// What a peer must know to reach it; opaque.
    ///
    /// # Errors
    /// [`FabricError::Call`].
    pub fn address(&self) -> Result<Vec<u8>, FabricError> {
        // Longer than any name that libfabric knows of.
        let mut name = vec![0_u8; 4 * FI_NAME_MAX as usize];
        let mut bytes = name.len();
        let (fid, at) = (self.endpoint.fid(), self.endpoint.get());
        // SAFETY: the endpoint is open; the two pointers are to memory of that length, and to the length.
        let status = unsafe { called!((*(*at).cm).getname, fid, name.as_mut_ptr().cast(), &raw mut bytes) };
        succeeded(self.library, "fi_getname", status)?;
        name.truncate(bytes);
        Ok(name)
    }

    /// From now on messages go to and come from the endpoint of this address.
    ///
    /// # Errors
    /// [`FabricError::Call`], also for an address that is none of this provider's.
    pub fn connect(&mut self, address: &[u8]) -> Result<(), FabricError> {
        let vector = self.vector.get();
        let to = &raw mut self.peer;
        // SAFETY: the vector is open; a provider reads as many bytes of an address as its own are long, which its format
        // says: the buffer is longer than any.
        let inserted = unsafe {
            let mut padded = vec![0_u8; address.len().max(4 * FI_NAME_MAX as usize)];
            padded[..address.len()].copy_from_slice(address);
            called!((*(*vector).ops).insert, vector, padded.as_ptr().cast(), 1, to, 0, ptr::null_mut())
        };
        match inserted {
            1 => Ok(()),
            0 => Err(self.library.call_failed("fi_av_insert", -(libc::EINVAL as isize))),
            status => Err(self.library.call_failed("fi_av_insert", status as isize)),
        }
    }

    /// Messages of so many bytes, and none longer, are sent without a completion: their memory can be used again at once.
    #[must_use]
    pub fn inject_bytes(&self) -> usize {
        self.inject_bytes
    }

    /// Bytes of the longest message.
    #[must_use]
    pub fn message_bytes_max(&self) -> usize {
        // SAFETY: an offer of the library's has all attributes.
        unsafe { (*(*self.info.at.as_ptr()).ep_attr).max_msg_size }
    }

    /// Which way messages really take: library, provider, fabric and domain.
    #[must_use]
    pub fn path(&self) -> String {
        let provider = self.provider();
        // SAFETY: an offer of the library's has all attributes; their strings are null or end with a zero.
        let (fabric, domain) = unsafe {
            let info = self.info.at.as_ref();
            (text((*info.fabric_attr).name), text((*info.domain_attr).name))
        };
        format!("{}, provider {provider}, fabric {fabric}, domain {domain}", self.library)
    }

    pub(crate) fn provider(&self) -> String {
        // SAFETY: as in `path`.
        unsafe { text((*(*self.info.at.as_ptr()).fabric_attr).prov_name) }
    }
}

/// # Safety
/// Null, or a string that ends with a zero.
unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return "?".to_owned();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}

fn succeeded(library: &Library, call: &'static str, status: c_int) -> Result<(), FabricError> {
    if status == 0 { Ok(()) } else { Err(library.call_failed(call, status as isize)) }
}

/// An object of libfabric's, closed when it is dropped. Each kind begins with its `fid`.
pub(crate) struct Object<T>(NonNull<T>);

fn opened<T>(
    library: &Library,
    call: &'static str,
    open: impl FnOnce(*mut *mut T) -> c_int,
) -> Result<Object<T>, FabricError> {
    let mut object = ptr::null_mut();
    succeeded(library, call, open(&raw mut object))?;
    NonNull::new(object).map(Object).ok_or_else(|| library.call_failed(call, -(libc::ENOMEM as isize)))
}

impl<T> Object<T> {
    #[inline]
    pub fn get(&self) -> *mut T {
        self.0.as_ptr()
    }

    pub fn fid(&self) -> *mut fid {
        self.0.as_ptr().cast()
    }

    fn bind(&self, library: &Library, other: *mut fid, flags: u64) -> Result<(), FabricError> {
        let fid = self.fid();
        // SAFETY: both objects are open.
        let status = unsafe { called!((*(*fid).ops).bind, fid, other, flags) };
        succeeded(library, "fi_ep_bind", status)
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        let fid = self.fid();
        // SAFETY: it is open, and those that need it are closed before it. What it says of its end helps nobody.
        let _: c_int = unsafe { called!((*(*fid).ops).close, fid) };
    }
}

/// A list of offers, or of wishes; freed when dropped.
struct Info {
    at: NonNull<fi_info>,
    free: unsafe extern "C" fn(*mut fi_info),
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: it came from the library that frees it, with strings of `strdup`, as that demands.
        unsafe { (self.free)(self.at.as_ptr()) }
    }
}

impl Info {
    /// What the provider offers: with the source address if it takes that, else without.
    fn find(library: &'static Library, wishes: &Wishes<'_>) -> Result<Self, FabricError> {
        let refused = |reason: String| FabricError::NoProvider {
            library: library.to_string(),
            provider: wishes.provider.to_owned(),
            reason,
        };
        if wishes.provider.is_empty() || wishes.provider.contains('\0') {
            return Err(refused("no provider has such a name".to_owned()));
        }
        let hints = Self::hints(library, wishes)?;
        let source = wishes.source.and_then(|ip| CString::new(ip.to_string()).ok());
        let sources = source.iter().map(|ip| (ip.as_ptr(), FI_SOURCE | FI_NUMERICHOST));
        let mut status = 0;
        for (node, flags) in sources.chain([(ptr::null(), 0)]) {
            let mut found = ptr::null_mut();
            // SAFETY: node is null or ends with a zero, the hints are whole, the list belongs into `found`.
            status = unsafe {
                (library.getinfo)(library.version(), node, ptr::null(), flags, hints.at.as_ptr(), &raw mut found)
            };
            if let (0, Some(at)) = (status, NonNull::new(found)) {
                return Ok(Self { at, free: library.freeinfo });
            }
        }
        Err(refused(library.reason(-status)))
    }

    fn hints(library: &'static Library, wishes: &Wishes<'_>) -> Result<Self, FabricError> {
        let no_memory = || library.call_failed("fi_dupinfo", -(libc::ENOMEM as isize));
        let hints = Self { at: library.new_info().ok_or_else(no_memory)?, free: library.freeinfo };
        // SAFETY: a new structure of the library's has all attributes, and nobody else knows it.
        unsafe {
            let info = &mut *hints.at.as_ptr();
            info.caps = FI_TAGGED | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_DIRECTED_RECV;
            info.mode = FI_CONTEXT | FI_CONTEXT2;
            (*info.tx_attr).op_flags = FI_COMPLETION;
            (*info.tx_attr).msg_order = FI_ORDER_SAS;
            (*info.rx_attr).op_flags = FI_COMPLETION;
            (*info.rx_attr).msg_order = FI_ORDER_SAS;
            (*info.ep_attr).type_ = FI_EP_RDM;
            let domain = &mut *info.domain_attr;
            domain.threading = FI_THREAD_DOMAIN;
            domain.control_progress = FI_PROGRESS_MANUAL;
            domain.data_progress = FI_PROGRESS_MANUAL;
            domain.resource_mgmt = FI_RM_ENABLED;
            domain.av_type = FI_AV_TABLE;
            domain.name = wishes.domain.map_or(ptr::null_mut(), duplicate);
            (*info.fabric_attr).prov_name = duplicate(wishes.provider);
        }
        Ok(hints)
    }
}

/// A string that the library frees; null for one that cannot be a name.
fn duplicate(text: &str) -> *mut c_char {
    let Ok(text) = CString::new(text) else { return ptr::null_mut() };
    // SAFETY: ends with a zero.
    unsafe { libc::strdup(text.as_ptr()) }
}
