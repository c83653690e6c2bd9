// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The libfabric that has loaded this provider. A process may have several copies, under names unknown to the linker,
//! so its functions are looked up in the calling library itself; and only that library knows the size of its
//! structures.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use crate::bindings::{fi_info, fi_log_level, fi_log_subsys, fi_param_type, fi_provider};

type Provider = *const fi_provider;

/// The functions used here.
pub(crate) struct Libfabric {
    duplicate_info: unsafe extern "C" fn(*const fi_info) -> *mut fi_info,
    version: unsafe extern "C" fn() -> u32,
    define_parameter: unsafe extern "C" fn(Provider, *const c_char, fi_param_type, *const c_char, ...) -> c_int,
    get_parameter: unsafe extern "C" fn(Provider, *const c_char, *mut c_void) -> c_int,
    log_enabled: unsafe extern "C" fn(Provider, fi_log_level, fi_log_subsys) -> c_int,
    log: unsafe extern "C" fn(Provider, fi_log_level, fi_log_subsys, *const c_char, c_int, *const c_char, ...),
}

static FOUND: OnceLock<Libfabric> = OnceLock::new();

/// The library that has loaded this provider; `None` before [`find`] has found it.
#[inline]
pub(crate) fn libfabric() -> Option<&'static Libfabric> {
    FOUND.get()
}

/// Finds libfabric on the call stack. Call it from `fi_prov_ini` only, whose caller is libfabric.
pub(crate) fn find() -> bool {
    FOUND.get().is_some() || caller().is_some_and(|found| FOUND.set(found).is_ok() || FOUND.get().is_some())
}

impl Libfabric {
    /// A zeroed structure with all attributes, allocated by libfabric.
    pub fn new_info(&self) -> Option<NonNull<fi_info>> {
        // SAFETY: a null pointer requests a new structure.
        NonNull::new(unsafe { (self.duplicate_info)(ptr::null()) })
    }

    /// Its version, which the provider also claims as its own API version.
    pub fn version(&self) -> u32 {
        // SAFETY: takes no arguments.
        unsafe { (self.version)() }
    }

    /// Defines a parameter, which `fi_info -e` then lists.
    pub fn define_parameter(&self, name: &CStr, kind: fi_param_type, help: &str) {
        let Ok(help) = CString::new(help) else { return };
        // SAFETY: the provider lives as long as the process; all strings are null-terminated. `%s` takes the one
        // string.
        unsafe { (self.define_parameter)(crate::provider(), name.as_ptr(), kind, c"%s".as_ptr(), help.as_ptr()) };
    }

    /// The value of a string parameter, if it is set.
    pub fn parameter(&self, name: &CStr) -> Option<String> {
        let mut value: *mut c_char = ptr::null_mut();
        // SAFETY: the value of a parameter defined as a string is returned as a pointer to one.
        let status = unsafe { (self.get_parameter)(crate::provider(), name.as_ptr(), (&raw mut value).cast()) };
        if status != 0 || value.is_null() {
            return None;
        }
        // SAFETY: libfabric's own string, which lives as long as the parameter.
        Some(unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
    }

    pub fn is_log_enabled(&self, level: fi_log_level, subsystem: fi_log_subsys) -> bool {
        // SAFETY: the provider lives as long as the process.
        unsafe { (self.log_enabled)(crate::provider(), level, subsystem) != 0 }
    }

    pub fn log(&self, level: fi_log_level, subsystem: fi_log_subsys, function: &CStr, line: u32, text: &str) {
        let Ok(text) = CString::new(text) else { return };
        let (provider, line) = (crate::provider(), line as c_int);
        // SAFETY: all strings are null-terminated and outlive the call. `%s\n` takes the one string.
        unsafe { (self.log)(provider, level, subsystem, function.as_ptr(), line, c"%s\n".as_ptr(), text.as_ptr()) }
    }

    /// Looks up the functions in a loaded library; `None` if it is no libfabric.
    fn from_library(library: &CStr) -> Option<Self> {
        // SAFETY: the library is already loaded, so no code of it runs. The handle is never closed, because its
        // functions are kept: neither libfabric nor this library is unloaded.
        let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        if handle.is_null() {
            return None;
        }
        // SAFETY: the handle is valid; each function has had this type since libfabric 1.0.
        unsafe {
            Some(Self {
                duplicate_info: symbol(handle, c"fi_dupinfo")?,
                version: symbol(handle, c"fi_version")?,
                define_parameter: symbol(handle, c"fi_param_define")?,
                get_parameter: symbol(handle, c"fi_param_get")?,
                log_enabled: symbol(handle, c"fi_log_enabled")?,
                log: symbol(handle, c"fi_log")?,
            })
        }
    }
}

/// # Safety
/// The handle must come from `dlopen`, and `F` be the type of the function of this name.
unsafe fn symbol<F: Copy>(handle: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the caller's promise; the name is null-terminated.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    // SAFETY: as above; all pointers have the same size.
    (!address.is_null()).then(|| unsafe { mem::transmute_copy::<*mut c_void, F>(&address) })
}

unsafe extern "C" {
    /// From the compiler's runtime, which Rust's own runtime also links.
    fn _Unwind_Backtrace(visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int, found: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// The innermost caller that belongs to a libfabric.
fn caller() -> Option<Libfabric> {
    extern "C" fn visit(context: *mut c_void, found: *mut c_void) -> c_int {
        /// `_URC_NO_REASON` and `_URC_END_OF_STACK` of the unwinder.
        const CONTINUE: c_int = 0;
        const STOP: c_int = 5;
        // SAFETY: `found` is the option below, which nothing else uses during the call; `context` is the unwinder's.
        let (found, address) = unsafe { (&mut *found.cast::<Option<Libfabric>>(), _Unwind_GetIP(context)) };
        let mut library: libc::Dl_info = libc::Dl_info {
            dli_fname: ptr::null(),
            dli_fbase: ptr::null_mut(),
            dli_sname: ptr::null(),
            dli_saddr: ptr::null_mut(),
        };
        // SAFETY: accepts any address; the result is written to `library`.
        let is_known = unsafe { libc::dladdr(address as *const c_void, &raw mut library) } != 0;
        if is_known && !library.dli_fname.is_null() {
            // SAFETY: the loader's string, which lives while the library is loaded; the library is on the call stack.
            *found = Libfabric::from_library(unsafe { CStr::from_ptr(library.dli_fname) });
        }
        if found.is_some() { STOP } else { CONTINUE }
    }
    let mut found: Option<Libfabric> = None;
    // SAFETY: `visit` takes this option, and does not unwind.
    unsafe { _Unwind_Backtrace(visit, (&raw mut found).cast()) };
    found
}
