// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The library, loaded on first use and never unloaded, because providers have threads.

use std::env;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fmt;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use crate::bindings::{FI_MAJOR_VERSION, FI_MINOR_VERSION, fi_fabric_attr, fi_info, fid_fabric};

use crate::error::FabricError;

/// Environment variable with the library file to load instead of the system's.
pub const LIBRARY_VARIABLE: &str = "BAREWIRE_LIBFABRIC";
/// Soname of all versions from 1.0 to 2.
const LIBRARY: &str = "libfabric.so.1";

/// A loaded libfabric. All other functions are reached through the objects that these create.
pub struct Library {
    pub(crate) getinfo: GetInfo,
    pub(crate) freeinfo: unsafe extern "C" fn(*mut fi_info),
    dupinfo: unsafe extern "C" fn(*const fi_info) -> *mut fi_info,
    pub(crate) fabric: unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
    version: u32,
}

type GetInfo = unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;

static LOADED: OnceLock<Result<Library, FabricError>> = OnceLock::new();

impl Library {
    /// Loads the library in [`LIBRARY_VARIABLE`], or the system's.
    ///
    /// # Errors
    /// [`FabricError::NoLibrary`].
    pub fn load() -> Result<&'static Self, FabricError> {
        let named = || env::var_os(LIBRARY_VARIABLE);
        LOADED.get_or_init(|| Self::open(&named().unwrap_or_else(|| LIBRARY.into()))).as_ref().map_err(Clone::clone)
    }

    /// API version to request: that of the bindings, or the library's if older.
    pub(crate) fn version(&self) -> u32 {
        self.version.min((FI_MAJOR_VERSION << 16 | FI_MINOR_VERSION) as u32)
    }

    /// Allocates a zeroed `fi_info` with all attributes.
    pub(crate) fn new_info(&self) -> Option<NonNull<fi_info>> {
        // SAFETY: a null pointer requests a new structure.
        NonNull::new(unsafe { (self.dupinfo)(ptr::null()) })
    }

    /// Error of a failed call; `status` is negative, as the function returned it.
    pub(crate) fn call_failed(&self, call: &'static str, status: isize) -> FabricError {
        let number = status.unsigned_abs() as c_int;
        FabricError::Call { call, number, reason: self.reason(number) }
    }

    pub(crate) fn reason(&self, number: c_int) -> String {
        // SAFETY: accepts any number; the string is static.
        let reason = unsafe { CStr::from_ptr((self.strerror)(number)) };
        reason.to_string_lossy().into_owned()
    }

    fn open(file: &OsStr) -> Result<Self, FabricError> {
        let missing = |reason: String| FabricError::NoLibrary { reason };
        let name = CString::new(file.as_bytes()).map_err(|error| missing(error.to_string()))?;
        // SAFETY: the name is NUL-terminated. The library's initialisers run, as for any linked library.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(missing(last_error()));
        }
        let no = |what: &str| missing(format!("{} has no {what}", file.to_string_lossy()));
        // SAFETY: the handle is valid and never closed; each function has had this type since libfabric 1.0, and takes
        // structures that only grew at their ends.
        unsafe {
            let version: unsafe extern "C" fn() -> u32 =
                symbol(handle, c"fi_version").ok_or_else(|| no("fi_version"))?;
            Ok(Self {
                getinfo: symbol(handle, c"fi_getinfo").ok_or_else(|| no("fi_getinfo"))?,
                freeinfo: symbol(handle, c"fi_freeinfo").ok_or_else(|| no("fi_freeinfo"))?,
                dupinfo: symbol(handle, c"fi_dupinfo").ok_or_else(|| no("fi_dupinfo"))?,
                fabric: symbol(handle, c"fi_fabric").ok_or_else(|| no("fi_fabric"))?,
                strerror: symbol(handle, c"fi_strerror").ok_or_else(|| no("fi_strerror"))?,
                version: version(),
            })
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "libfabric {}.{}", self.version >> 16, self.version & 0xffff)
    }
}

/// # Safety
/// The handle must be from `dlopen`, and `F` the type of the function of this name.
unsafe fn symbol<F: Copy>(handle: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the caller's promise; the name is NUL-terminated.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    // SAFETY: as above; the sizes are equal.
    (!address.is_null()).then(|| unsafe { mem::transmute_copy::<*mut c_void, F>(&address) })
}

fn last_error() -> String {
    // SAFETY: the loader's per-thread string, valid until the next call.
    let error = unsafe { libc::dlerror() };
    if error.is_null() {
        return "the loader gives no reason".to_owned();
    }
    // SAFETY: not null, and NUL-terminated.
    unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_libfabric_is_reported_with_a_remedy() {
        for file in ["/nonexistent/libfabric.so.1", "/dev/null", "libc.so.6"] {
            let error = Library::open(OsStr::new(file)).err().expect("no libfabric").to_string();
            assert!(error.contains("apt install libfabric1") && error.contains(LIBRARY_VARIABLE), "{error}");
        }
    }
}
