// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mends wrong data of Open MPI 4.1.0 to 4.1.5 ([0065](../../docs/decisions/0065-open-mpis-persistent-sends-are-mended.md)).
//!
//! Over any libfabric provider, a persistent send there ignores the offset of a contiguous datatype that does not begin
//! at its buffer's address, and sends what is at that address (open-mpi/ompi#11751). Its own collective operations, such
//! as `MPI_Alltoallw`, use persistent sends.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::log::warning;

/// Starts of Open MPI's structures, as in all of 4.1: `mca_pml_base_module_t` …
#[repr(C)]
struct PointToPointLayer {
    others: [*mut c_void; 9],
    isend_init: AtomicPtr<c_void>,
}

/// … and `opal_datatype_t`.
#[repr(C)]
struct Datatype {
    class: *const c_void,
    references: i32,
    padding: i32,
    flags: u16,
    id: u16,
    used: u32,
    size: usize,
    true_lower_bound: isize,
}

const CONTIGUOUS: u16 = 0x10;
const NO_GAPS_BETWEEN: u16 = 0x20;
/// The mode of a buffered send, whose packing observes the offset.
const BUFFERED: c_int = 2;

type IsendInit =
    unsafe extern "C" fn(*const c_char, usize, *const Datatype, c_int, c_int, c_int, *mut c_void, *mut c_void) -> c_int;
type LibraryVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;

static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Called when the program adds addresses, which Open MPI does once it has selected its layers.
pub(crate) fn mend() {
    static MENDED: Once = Once::new();
    MENDED.call_once(|| {
        if mend_now().is_some() {
            warning!(FI_LOG_CORE, "mended Open MPI's persistent sends (open-mpi/ompi#11751)");
        }
    });
}

fn mend_now() -> Option<()> {
    // SAFETY: a library that is loaded already; the reference is kept, so that what is found in it stays valid.
    let library = unsafe { libc::dlopen(c"libmpi.so.40".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    let symbol = |name: &CStr| {
        // SAFETY: a valid handle and string.
        ptr::NonNull::new(unsafe { libc::dlsym(library, name.as_ptr()) })
    };
    if library.is_null() || !has_defect(&version(symbol(c"MPI_Get_library_version")?.as_ptr())?) {
        return None;
    }
    // A build for debugging has another layout.
    // SAFETY: a static of at least this size; integers of any value are valid.
    let Datatype { flags, size, true_lower_bound, .. } = unsafe { symbol(c"ompi_mpi_int")?.cast().as_ref() };
    if (*size, *true_lower_bound) != (size_of::<c_int>(), 0) || flags & CONTIGUOUS == 0 || flags & NO_GAPS_BETWEEN == 0
    {
        return None;
    }
    // SAFETY: these versions define it so; it is a static.
    let layer = unsafe { symbol(c"mca_pml")?.cast::<PointToPointLayer>().as_ref() };
    let original = layer.isend_init.load(Ordering::Relaxed);
    // Another layer than that for libfabric has no such defect.
    if !is_in(original, b"mca_pml_cm.so") {
        return None;
    }
    ORIGINAL.store(original, Ordering::Release);
    layer.isend_init.store(isend_init as *mut c_void, Ordering::Release);
    Some(())
}

/// What the library says of itself.
fn version(function: *mut c_void) -> Option<String> {
    /// MPI_MAX_LIBRARY_VERSION_STRING is 256 in Open MPI.
    const BYTES: usize = 8192;
    let (mut text, mut length) = ([0_u8; BYTES], 0);
    // SAFETY: the function has this type, may be called at any time, and writes a string of 256 bytes at most.
    let status = unsafe {
        std::mem::transmute::<*mut c_void, LibraryVersion>(function)(text.as_mut_ptr().cast(), &raw mut length)
    };
    let text = CStr::from_bytes_until_nul(&text).ok()?.to_str().ok()?;
    (status == 0).then(|| text.to_owned())
}

/// Whether this is one of 4.1.0 to 4.1.5.
fn has_defect(version: &str) -> bool {
    let Some((_, rest)) = version.split_once("Open MPI v4.1.") else { return false };
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse::<u32>().is_ok_and(|release| release <= 5)
}

fn is_in(address: *mut c_void, library: &[u8]) -> bool {
    // SAFETY: zeroed, it is valid.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: writes to `found` only.
    if unsafe { libc::dladdr(address, &raw mut found) } == 0 || found.dli_fname.is_null() {
        return false;
    }
    // SAFETY: a string of the dynamic linker.
    unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes().ends_with(library)
}

unsafe extern "C" fn isend_init(
    buffer: *const c_char,
    count: usize,
    datatype: *const Datatype,
    peer: c_int,
    tag: c_int,
    mode: c_int,
    communicator: *mut c_void,
    request: *mut c_void,
) -> c_int {
    // SAFETY: Open MPI passes a valid datatype.
    let Datatype { flags, true_lower_bound, .. } = unsafe { &*datatype };
    let is_contiguous = flags & CONTIGUOUS != 0 && (count < 2 || flags & NO_GAPS_BETWEEN != 0);
    let offset = if is_contiguous && mode != BUFFERED { *true_lower_bound } else { 0 };
    // SAFETY: set before this function was, from a pointer of this type.
    let original = unsafe { std::mem::transmute::<*mut c_void, IsendInit>(ORIGINAL.load(Ordering::Acquire)) };
    // SAFETY: as Open MPI passed them; the offset is that of the data.
    unsafe { original(buffer.wrapping_offset(offset), count, datatype, peer, tag, mode, communicator, request) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_up_to_4_1_5_have_the_defect() {
        let said = |version: &str| format!("Open MPI v{version}, package: Debian OpenMPI, ident: {version}, repo rev");
        for (version, expected) in
            [("4.1.0", true), ("4.1.4", true), ("4.1.5", true), ("4.1.6", false), ("4.1.50", false), ("5.0.5", false)]
        {
            assert_eq!(has_defect(&said(version)), expected, "{version}");
        }
        assert!(!has_defect("MPICH Version: 5.0.0") && !has_defect("Open MPI v4.1."));
    }
}
