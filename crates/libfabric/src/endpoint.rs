// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reliable endpoint for tagged messages, opened as Open MPI and MPICH do: one completion queue for both directions,
//! an address vector of type table, selective completion, manual progress.

use std::ffi::{CStr, CString, c_char, c_int};
use std::net::IpAddr;
use std::ptr::{self, NonNull};

use crate::bindings::*;
use crate::error::FabricError;
use crate::library::Library;
use crate::tagged::Contexts;

/// Calls a function of an ops table; -ENOSYS if it is null.
macro_rules! call_op {
    ($function:expr, $($argument:expr),*) => {
        match $function {
            Some(function) => function($($argument),*),
            None => -(libc::ENOSYS as i32) as _,
        }
    };
}
pub(crate) use call_op;

/// What to open.
#[derive(Clone, Debug, Default)]
pub struct Hints<'a> {
    /// Provider as libfabric names it, with layers: `barewire`, `tcp;ofi_rxm`.
    pub provider: &'a str,
    /// The provider's domain, if there are several.
    pub domain: Option<&'a str>,
    /// Source address, for providers over IP.
    pub source: Option<IpAddr>,
    /// Whether the completion queue has a wait object, which [`Endpoint::wait`] needs; it slows some providers down.
    pub has_wait_object: bool,
}

/// An endpoint and its resources, closed in this order.
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
    /// Opens an endpoint on the provider's first match.
    ///
    /// # Errors
    /// [`FabricError`].
    pub fn open(hints: &Hints<'_>) -> Result<Self, FabricError> {
        let library = Library::load()?;
        let info = Info::find(library, hints)?;
        let info_ptr = info.ptr.as_ptr();
        // SAFETY: a result of `fi_getinfo` has all attributes; each function takes the object before it, and writes its
        // own to `to`.
        unsafe {
            let fabric =
                open_object(library, "fi_fabric", |to| (library.fabric)((*info_ptr).fabric_attr, to, ptr::null_mut()))?;
            let (from, ops) = (fabric.get(), (*fabric.get()).ops);
            let domain =
                open_object(library, "fi_domain", |to| call_op!((*ops).domain, from, info_ptr, to, ptr::null_mut()))?;
            let (from, ops) = (domain.get(), (*domain.get()).ops);
            let mut attributes = fi_av_attr { type_: FI_AV_TABLE, ..fi_av_attr::default() };
            let vector = open_object(library, "fi_av_open", |to| {
                call_op!((*ops).av_open, from, &raw mut attributes, to, ptr::null_mut())
            })?;
            let wait_obj = if hints.has_wait_object { FI_WAIT_UNSPEC } else { FI_WAIT_NONE };
            let mut attributes = fi_cq_attr { format: FI_CQ_FORMAT_TAGGED, wait_obj, ..fi_cq_attr::default() };
            let queue = open_object(library, "fi_cq_open", |to| {
                call_op!((*ops).cq_open, from, &raw mut attributes, to, ptr::null_mut())
            })?;
            let endpoint = open_object(library, "fi_endpoint", |to| {
                call_op!((*ops).endpoint, from, info_ptr, to, ptr::null_mut())
            })?;
            endpoint.bind(library, vector.fid(), 0)?;
            endpoint.bind(library, queue.fid(), FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION)?;
            let (fid, ops) = (endpoint.fid(), (*endpoint.fid()).ops);
            let status = call_op!((*ops).control, fid, FI_ENABLE as c_int, ptr::null_mut());
            check(library, "fi_enable", status)?;
            let inject_bytes = (*(*info_ptr).tx_attr).inject_size;
            let peer = fi_addr_t::MAX;
            let contexts = Contexts::new();
            let (_domain, _fabric) = (domain, fabric);
            Ok(Self { endpoint, queue, vector, _domain, _fabric, info, library, peer, contexts, inject_bytes })
        }
    }

    /// The endpoint's address, opaque.
    ///
    /// # Errors
    /// [`FabricError::Call`].
    pub fn address(&self) -> Result<Vec<u8>, FabricError> {
        // Longer than any libfabric address.
        let mut name = vec![0_u8; 4 * FI_NAME_MAX as usize];
        let mut bytes = name.len();
        let (fid, endpoint) = (self.endpoint.fid(), self.endpoint.get());
        // SAFETY: the endpoint is open; the pointers are to a buffer of this length, and to the length.
        let status = unsafe { call_op!((*(*endpoint).cm).getname, fid, name.as_mut_ptr().cast(), &raw mut bytes) };
        check(self.library, "fi_getname", status)?;
        name.truncate(bytes);
        Ok(name)
    }

    /// Sets the peer for all messages.
    ///
    /// # Errors
    /// [`FabricError::Call`], also for an address that is not this provider's.
    pub fn connect(&mut self, address: &[u8]) -> Result<(), FabricError> {
        let vector = self.vector.get();
        let to = &raw mut self.peer;
        // SAFETY: the vector is open; a provider reads as many bytes as its address format has, and the buffer is
        // longer than any.
        let inserted = unsafe {
            let mut padded = vec![0_u8; address.len().max(4 * FI_NAME_MAX as usize)];
            padded[..address.len()].copy_from_slice(address);
            call_op!((*(*vector).ops).insert, vector, padded.as_ptr().cast(), 1, to, 0, ptr::null_mut())
        };
        match inserted {
            1 => Ok(()),
            0 => Err(self.library.call_failed("fi_av_insert", -(libc::EINVAL as isize))),
            status => Err(self.library.call_failed("fi_av_insert", status as isize)),
        }
    }

    /// Size up to which messages are injected: without a completion, and the buffer can be reused at once.
    #[must_use]
    pub fn inject_bytes(&self) -> usize {
        self.inject_bytes
    }

    /// Limit of a message, in bytes.
    #[must_use]
    pub fn message_bytes_max(&self) -> usize {
        // SAFETY: a result of `fi_getinfo` has all attributes.
        unsafe { (*(*self.info.ptr.as_ptr()).ep_attr).max_msg_size }
    }

    /// The path that messages take: library, provider, fabric and domain.
    #[must_use]
    pub fn path(&self) -> String {
        let provider = self.provider();
        // SAFETY: a result of `fi_getinfo` has all attributes; their strings are null or NUL-terminated.
        let (fabric, domain) = unsafe {
            let info = self.info.ptr.as_ref();
            (text((*info.fabric_attr).name), text((*info.domain_attr).name))
        };
        format!("{}, provider {provider}, fabric {fabric}, domain {domain}", self.library)
    }

    pub(crate) fn provider(&self) -> String {
        // SAFETY: as in `path`.
        unsafe { text((*(*self.info.ptr.as_ptr()).fabric_attr).prov_name) }
    }
}

/// # Safety
/// `string` must be null or NUL-terminated.
unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return "?".to_owned();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}

fn check(library: &Library, call: &'static str, status: c_int) -> Result<(), FabricError> {
    if status == 0 { Ok(()) } else { Err(library.call_failed(call, status as isize)) }
}

/// A libfabric object, closed on drop. Each kind begins with its `fid`.
pub(crate) struct Object<T>(NonNull<T>);

fn open_object<T>(
    library: &Library,
    call: &'static str,
    open: impl FnOnce(*mut *mut T) -> c_int,
) -> Result<Object<T>, FabricError> {
    let mut object = ptr::null_mut();
    check(library, call, open(&raw mut object))?;
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
        let status = unsafe { call_op!((*(*fid).ops).bind, fid, other, flags) };
        check(library, "fi_ep_bind", status)
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        let fid = self.fid();
        // SAFETY: open, and objects that depend on it are closed before. An error of closing has no remedy.
        let _: c_int = unsafe { call_op!((*(*fid).ops).close, fid) };
    }
}

/// A list of `fi_info`, freed on drop.
struct Info {
    ptr: NonNull<fi_info>,
    free: unsafe extern "C" fn(*mut fi_info),
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: from the library that frees it, with strings from `strdup`, as it requires.
        unsafe { (self.free)(self.ptr.as_ptr()) }
    }
}

impl Info {
    /// Queries the provider: with the source address if it accepts that, else without.
    fn find(library: &'static Library, hints: &Hints<'_>) -> Result<Self, FabricError> {
        let refused = |reason: String| FabricError::NoProvider {
            library: library.to_string(),
            provider: hints.provider.to_owned(),
            reason,
        };
        if hints.provider.is_empty() || hints.provider.contains('\0') {
            return Err(refused("no provider has such a name".to_owned()));
        }
        let requested = Self::with_hints(library, hints)?;
        let source = hints.source.and_then(|ip| CString::new(ip.to_string()).ok());
        let sources = source.iter().map(|ip| (ip.as_ptr(), FI_SOURCE | FI_NUMERICHOST));
        let mut status = 0;
        for (node, flags) in sources.chain([(ptr::null(), 0)]) {
            let mut found = ptr::null_mut();
            // SAFETY: `node` is null or NUL-terminated, the hints are complete, and the list is written to `found`.
            status = unsafe {
                (library.getinfo)(library.version(), node, ptr::null(), flags, requested.ptr.as_ptr(), &raw mut found)
            };
            if let (0, Some(ptr)) = (status, NonNull::new(found)) {
                return Ok(Self { ptr, free: library.freeinfo });
            }
        }
        Err(refused(library.reason(-status)))
    }

    fn with_hints(library: &'static Library, hints: &Hints<'_>) -> Result<Self, FabricError> {
        let no_memory = || library.call_failed("fi_dupinfo", -(libc::ENOMEM as isize));
        let result = Self { ptr: library.new_info().ok_or_else(no_memory)?, free: library.freeinfo };
        // SAFETY: a new `fi_info` has all attributes, and nothing else refers to it.
        unsafe {
            let info = &mut *result.ptr.as_ptr();
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
            domain.name = hints.domain.map_or(ptr::null_mut(), duplicate);
            (*info.fabric_attr).prov_name = duplicate(hints.provider);
        }
        Ok(result)
    }
}

/// Duplicates a string for the library to free; null if it contains a NUL.
fn duplicate(text: &str) -> *mut c_char {
    let Ok(text) = CString::new(text) else { return ptr::null_mut() };
    // SAFETY: NUL-terminated.
    unsafe { libc::strdup(text.as_ptr()) }
}
