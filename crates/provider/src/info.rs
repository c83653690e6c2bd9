// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fi_getinfo`: the endpoints offered, and why hints cannot be met.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{self, NonNull};

use barewire_endpoint::LOCAL_PIECE_MAX;
use barewire_messages::Config;

use crate::address::FORMAT;
use crate::bindings::*;
use crate::device::Device;
use crate::edge::{Errno, guard_status};
use crate::libfabric::{Libfabric, libfabric};
use crate::log::{info, warning};
use crate::parameters::{Parameters, Progress};
use crate::{PROVIDER_VERSION, device, diagnostics};

/// Primary capabilities, enabled only on request.
const PRIMARY: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
/// Primary modifiers.
const DIRECTIONS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// Secondary capabilities.
const SECONDARY: u64 = FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_RMA_EVENT;
const DOMAIN: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;

/// Attributes of an endpoint type.
struct Kind {
    type_: fi_ep_type,
    protocol: u32,
    capabilities: u64,
    transmit: u64,
    receive: u64,
    /// Supported operation flags.
    transmit_flags: u64,
    receive_flags: u64,
    order: u64,
    /// Bytes of remote CQ data.
    data_bytes: usize,
    /// Maximum bytes of a message, by the MTU.
    max_message: fn(usize) -> usize,
    /// Maximum bytes of an injected message, by the MTU.
    max_inject: fn(usize) -> usize,
}

/// The remedy for hints that ask for libfabric's authentication keys.
const OTHER_KEYS: &str =
    "an authentication key; set FI_BAREWIRE_TOKEN, and FI_BAREWIRE_AUTH with FI_BAREWIRE_SECRET, instead";

const RELIABLE: Kind = Kind {
    type_: FI_EP_RDM,
    protocol: FI_PROV_SPECIFIC as u32 | 0xba4e,
    capabilities: PRIMARY | DIRECTIONS | SECONDARY,
    transmit: PRIMARY | FI_SEND | FI_READ | FI_WRITE,
    receive: PRIMARY | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE,
    transmit_flags: FI_COMPLETION
        | FI_INJECT
        | FI_INJECT_COMPLETE
        | FI_TRANSMIT_COMPLETE
        | FI_DELIVERY_COMPLETE
        | FI_MATCH_COMPLETE,
    receive_flags: FI_COMPLETION | FI_MULTI_RECV,
    // Messages to a peer and accesses to its memory take effect in the order in which they were posted, except that a
    // read may return the data of a write posted after it.
    order: FI_ORDER_SAS
        | FI_ORDER_SAW
        | FI_ORDER_WAS
        | FI_ORDER_WAW
        | FI_ORDER_RAW
        | FI_ORDER_RAR
        | FI_ORDER_RMA_WAW
        | FI_ORDER_RMA_RAW
        | FI_ORDER_RMA_RAR
        | FI_ORDER_ATOMIC_WAW
        | FI_ORDER_ATOMIC_RAW
        | FI_ORDER_ATOMIC_WAR
        | FI_ORDER_ATOMIC_RAR,
    data_bytes: 8,
    max_message: |_| usize::MAX,
    max_inject: |mtu| frame_bytes(mtu).max(Config::INJECT_BYTES),
};

/// One frame per message, without retransmission.
const UNRELIABLE: Kind = Kind {
    type_: FI_EP_DGRAM,
    protocol: FI_PROV_SPECIFIC as u32 | 0xba4d,
    capabilities: FI_MSG | FI_SEND | FI_RECV | FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM,
    transmit: FI_MSG | FI_SEND,
    receive: FI_MSG | FI_RECV | FI_SOURCE,
    transmit_flags: FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE,
    receive_flags: FI_COMPLETION,
    order: 0,
    data_bytes: 0,
    max_message: |mtu| mtu.saturating_sub(DATAGRAM_OVERHEAD),
    max_inject: frame_bytes,
};

/// Maximum sends, and maximum receives, pending on one endpoint.
pub(crate) const DEPTH: usize = 4096;
/// Maximum entries of an operation's I/O vector.
pub(crate) const PARTS: usize = 16;
const NAME: &CStr = c"barewire";
const FABRIC: &CStr = c"ethernet";
/// Header bytes of a frame: LLC 4, extension 14, fragment and message headers.
const OVERHEAD: usize = 64;
/// Header bytes of a datagram: LLC and extension, of the longer kind.
const DATAGRAM_OVERHEAD: usize = 18;

/// Maximum bytes of a message in one frame.
const fn frame_bytes(mtu: usize) -> usize {
    mtu.saturating_sub(OVERHEAD)
}

/// Maximum bytes of an atomic operation's operand.
pub(crate) const fn atomic_bytes(mtu: usize) -> usize {
    let (frame, local) = (frame_bytes(mtu), LOCAL_PIECE_MAX - OVERHEAD);
    if frame < local { frame / 2 } else { local / 2 }
}

/// `fi_getinfo`, as libfabric calls it.
///
/// # Safety
/// As fi_getinfo(3) says: `hints` null or valid, `found` valid.
pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    _service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    found: *mut *mut fi_info,
) -> c_int {
    guard_status("fi_getinfo", || {
        let libfabric = libfabric().ok_or(Errno::OTHER)?;
        // SAFETY: libfabric passes null or a structure that does not change during the call.
        let hints = unsafe { hints.as_ref() };
        if !node.is_null() && flags & FI_SOURCE == 0 {
            info!(FI_LOG_FABRIC, "hosts are not resolved: exchange addresses out of band (fabtests: -b)");
            return Err(Errno::NO_DATA);
        }
        let parameters = Parameters::load(libfabric).map_err(|error| no_data(&error.to_string()))?;
        let mut devices = device::devices(&parameters).map_err(|error| no_data(&error.to_string()))?;
        // Open MPI would distribute a host's ranks over all that are offered, though each reaches the other hosts.
        if !names_domain(hints) {
            devices.truncate(1);
        }
        if devices.is_empty() {
            let needs_right = parameters.link.may_use_frames() && !device::may_open_frames(&parameters);
            return Err(no_data(&if needs_right { not_permitted(&parameters) } else { nothing_is_up(&parameters) }));
        }
        let mut list: *mut fi_info = ptr::null_mut();
        let kinds = wanted_kinds(hints, flags);
        if kinds.is_empty() {
            info!(
                FI_LOG_FABRIC,
                "the hints ask for an endpoint type other than FI_EP_RDM, or FI_EP_DGRAM without a layer"
            );
        }
        // From here on the MTU only determines the payload of a frame.
        let carried = |device: &Device| Device { mtu: parameters.mtu_without_seal(device.mtu), ..device.clone() };
        let devices: Vec<Device> = devices.iter().map(carried).collect();
        let offers = kinds.iter().flat_map(|kind| devices.iter().map(move |device| (kind, device)));
        for (kind, device) in offers.rev() {
            match offer(libfabric, kind, device, version, hints, parameters.progress) {
                Ok(mut info) => {
                    // SAFETY: just allocated, and not shared.
                    unsafe { info.as_mut() }.next = list;
                    list = info.as_ptr();
                }
                Err(Unmet(hint)) => info!(FI_LOG_FABRIC, "{}: the hints ask for {hint}", device.name),
            }
        }
        if list.is_null() {
            return Err(Errno::NO_DATA);
        }
        // SAFETY: libfabric passes a valid pointer for the result.
        unsafe { *found = list };
        Ok(())
    })
}

/// Reports why nothing is offered regardless of the hints, for a reason that the user can remove.
fn no_data(reason: &str) -> Errno {
    warning!(FI_LOG_FABRIC, "{reason}");
    diagnostics::report(reason);
    Errno::NO_DATA
}

/// Whether the hints ask for a certain interface.
fn names_domain(hints: Option<&fi_info>) -> bool {
    // SAFETY: null or valid, as libfabric demands of hints.
    let domain = hints.and_then(|hints| unsafe { hints.domain_attr.as_ref() });
    domain.is_some_and(|domain| !domain.name.is_null())
}

fn nothing_is_up(parameters: &Parameters) -> String {
    let kind = if parameters.link.may_use_frames() { "Ethernet interface" } else { "interface with an IP address" };
    format!("no {kind} of this host is up, nor lo: ip link set NAME up")
}

fn not_permitted(parameters: &Parameters) -> String {
    let on = parameters.interface.as_ref().map_or_else(String::new, |name| format!(" on {name}"));
    format!(
        "no right to raw Ethernet frames{on}: give the program CAP_NET_RAW, start barewire-broker on this host, or set \
         FI_BAREWIRE_LINK=udp for all processes; `barewire doctor` checks"
    )
}

/// Set by libfabric's utility providers, which would layer over this one. Not part of its public interface, but the
/// same in all versions so far. Otherwise `ofi_rxd` over our datagrams would be offered for `FI_EP_RDM` before our own.
const OFI_CORE_PROV_ONLY: u64 = 1 << 59;

/// The endpoint types that the hints allow, the best first.
fn wanted_kinds(hints: Option<&fi_info>, flags: u64) -> Vec<Kind> {
    // SAFETY: null or valid, as libfabric demands of hints.
    let hint = hints.and_then(|hints| unsafe { hints.ep_attr.as_ref() }).map_or(FI_EP_UNSPEC, |hint| hint.type_);
    let is_wanted = |kind: &Kind| hint == FI_EP_UNSPEC || hint == kind.type_;
    let all = if flags & OFI_CORE_PROV_ONLY == 0 { vec![RELIABLE, UNRELIABLE] } else { vec![RELIABLE] };
    all.into_iter().filter(is_wanted).collect()
}

/// A hint that cannot be met.
struct Unmet(String);

/// The `fi_info` of an endpoint on an interface, following the hints where there is a choice.
fn offer(
    libfabric: &Libfabric,
    kind: &Kind,
    device: &Device,
    version: u32,
    hints: Option<&fi_info>,
    progress: Option<Progress>,
) -> std::result::Result<NonNull<fi_info>, Unmet> {
    if let Some(hints) = hints {
        // SAFETY: what hints point to is null or valid, as libfabric demands.
        unsafe { check_hints(hints, kind, device) }?;
    }
    let mut info = libfabric.new_info().ok_or_else(|| Unmet("more memory than available".to_owned()))?;
    // SAFETY: a new structure of libfabric's, with all its attributes, and not shared.
    unsafe { fill(info.as_mut(), kind, device, version) };
    if let Some(hints) = hints {
        // SAFETY: as above.
        unsafe { apply_hints(info.as_mut(), kind, device, hints) };
    }
    // SAFETY: as above.
    if let (Some(progress), Some(domain)) = (progress, unsafe { info.as_mut().domain_attr.as_mut() }) {
        domain.data_progress = match progress {
            Progress::Auto => FI_PROGRESS_AUTO,
            Progress::Manual => FI_PROGRESS_MANUAL,
        };
    }
    Ok(info)
}

/// # Safety
/// All pointers to attributes in the structure must be valid.
unsafe fn fill(info: &mut fi_info, kind: &Kind, device: &Device, version: u32) {
    info.caps = kind.capabilities;
    info.addr_format = FORMAT;
    // SAFETY: the caller's promise; no two pointers are equal.
    let (transmit, receive, endpoint, domain, fabric) = unsafe {
        (&mut *info.tx_attr, &mut *info.rx_attr, &mut *info.ep_attr, &mut *info.domain_attr, &mut *info.fabric_attr)
    };
    transmit.caps = kind.transmit;
    transmit.msg_order = kind.order;
    transmit.inject_size = frame_bytes(device.mtu);
    transmit.size = DEPTH;
    transmit.iov_limit = PARTS;
    transmit.rma_iov_limit = 1;
    receive.caps = kind.receive;
    receive.msg_order = kind.order;
    receive.size = DEPTH;
    receive.iov_limit = PARTS;
    endpoint.type_ = kind.type_;
    endpoint.protocol = kind.protocol;
    endpoint.protocol_version = u32::from(crate::address::VERSION);
    endpoint.max_msg_size = (kind.max_message)(device.mtu);
    let ordered = |order: u64| if kind.order & order != 0 { usize::MAX } else { 0 };
    endpoint.max_order_waw_size = ordered(FI_ORDER_WAW);
    endpoint.max_order_raw_size = ordered(FI_ORDER_RAW);
    endpoint.mem_tag_format = u64::MAX >> 1 & 0xaaaa_aaaa_aaaa_aaaa | 1 << 63;
    endpoint.tx_ctx_cnt = 1;
    endpoint.rx_ctx_cnt = 1;
    domain.name = duplicate(&device.name);
    domain.threading = FI_THREAD_SAFE;
    domain.control_progress = FI_PROGRESS_AUTO;
    domain.data_progress = FI_PROGRESS_MANUAL;
    domain.resource_mgmt = FI_RM_ENABLED;
    domain.av_type = FI_AV_TABLE;
    // API versions before 1.5 have no mode without requirements; scalable comes nearest.
    domain.mr_mode = if version < api(1, 5) { FI_MR_SCALABLE as c_int } else { 0 };
    domain.mr_key_size = 8;
    domain.cq_data_size = kind.data_bytes;
    domain.cq_cnt = 256;
    domain.ep_cnt = 64;
    domain.tx_ctx_cnt = 64;
    domain.rx_ctx_cnt = 64;
    domain.max_ep_tx_ctx = 1;
    domain.max_ep_rx_ctx = 1;
    domain.cntr_cnt = 256;
    domain.mr_iov_limit = 1;
    domain.mr_cnt = 1 << 16;
    domain.caps = DOMAIN;
    fabric.name = duplicate(&FABRIC.to_string_lossy());
    fabric.prov_version = PROVIDER_VERSION;
    fabric.api_version = version;
}

/// Follows the hints where several values are supported.
///
/// # Safety
/// As for [`check_hints`] and [`fill`].
unsafe fn apply_hints(info: &mut fi_info, kind: &Kind, device: &Device, hints: &fi_info) {
    // SAFETY: the caller's promise.
    let (transmit, receive, domain) = unsafe { (&mut *info.tx_attr, &mut *info.rx_attr, &mut *info.domain_attr) };
    if hints.caps != 0 {
        let mut chosen = hints.caps | FI_LOCAL_COMM | FI_REMOTE_COMM;
        if chosen & (FI_MSG | FI_TAGGED) != 0 && chosen & (FI_SEND | FI_RECV) == 0 {
            chosen |= FI_SEND | FI_RECV;
        }
        let remote = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        if chosen & (FI_RMA | FI_ATOMIC) != 0 && chosen & remote == 0 {
            chosen |= remote;
        }
        if chosen & PRIMARY == 0 {
            chosen |= kind.capabilities & (FI_MSG | FI_TAGGED | FI_SEND | FI_RECV);
        }
        info.caps = chosen;
        transmit.caps &= chosen;
        receive.caps &= chosen;
    }
    info.handle = hints.handle;
    // SAFETY: null or valid, as libfabric demands of hints.
    let (tx_hint, rx_hint, domain_hint) =
        unsafe { (hints.tx_attr.as_ref(), hints.rx_attr.as_ref(), hints.domain_attr.as_ref()) };
    if let Some(hint) = tx_hint {
        transmit.op_flags = hint.op_flags;
        // If sends that are not injected complete on delivery, as MPICH's do, a copy is cheaper.
        if hint.op_flags & FI_DELIVERY_COMPLETE != 0 || hint.inject_size > transmit.inject_size {
            transmit.inject_size = (kind.max_inject)(device.mtu);
        }
        transmit.msg_order = if hint.msg_order != 0 { hint.msg_order } else { kind.order };
        transmit.caps = if hint.caps != 0 { hint.caps } else { transmit.caps };
    }
    if let Some(hint) = rx_hint {
        receive.op_flags = hint.op_flags;
        receive.msg_order = if hint.msg_order != 0 { hint.msg_order } else { kind.order };
        receive.caps = if hint.caps != 0 { hint.caps } else { receive.caps };
    }
    if let Some(hint) = domain_hint {
        let or = |hint: u32, ours: u32| if hint == 0 { ours } else { hint };
        domain.threading = or(hint.threading, domain.threading);
        domain.control_progress = or(hint.control_progress, domain.control_progress);
        domain.data_progress = or(hint.data_progress, domain.data_progress);
        domain.resource_mgmt = or(hint.resource_mgmt, domain.resource_mgmt);
        domain.av_type = or(hint.av_type, domain.av_type);
        // A program that requests it by this name compares the result with it.
        if hint.mr_mode == FI_MR_SCALABLE as c_int {
            domain.mr_mode = hint.mr_mode;
        }
    }
}

/// Checks that the hints can be met.
///
/// # Safety
/// What `hints` points to must be null or valid.
unsafe fn check_hints(hints: &fi_info, kind: &Kind, device: &Device) -> std::result::Result<(), Unmet> {
    let unmet = |is_unmet: bool, what: &str| if is_unmet { Err(Unmet(what.to_owned())) } else { Ok(()) };
    unmet(
        hints.caps & !kind.capabilities != 0,
        &format!("unsupported capabilities: {:#x}", hints.caps & !kind.capabilities),
    )?;
    unmet(![FI_FORMAT_UNSPEC, FORMAT].contains(&hints.addr_format), "another address format")?;
    // SAFETY: the caller's promise.
    let (transmit, receive, endpoint, domain, fabric) = unsafe {
        (
            hints.tx_attr.as_ref(),
            hints.rx_attr.as_ref(),
            hints.ep_attr.as_ref(),
            hints.domain_attr.as_ref(),
            hints.fabric_attr.as_ref(),
        )
    };
    if let Some(hint) = transmit {
        unmet(hint.caps & !kind.transmit & !SECONDARY & !DIRECTIONS != 0, "unsupported transmit capabilities")?;
        unmet(hint.op_flags & !kind.transmit_flags != 0, "unsupported transmit flags")?;
        unmet(hint.msg_order & !kind.order != 0, "an unsupported message order")?;
        unmet(hint.comp_order != FI_ORDER_NONE, "an unsupported completion order")?;
        let inject = (kind.max_inject)(device.mtu);
        unmet(hint.inject_size > inject, &format!("inject_size {}, the maximum is {inject}", hint.inject_size))?;
        unmet(hint.size > DEPTH, &format!("{} pending sends, the maximum is {DEPTH}", hint.size))?;
        unmet(hint.iov_limit > PARTS || hint.rma_iov_limit > 1, "too many I/O vector entries")?;
    }
    if let Some(hint) = receive {
        unmet(hint.caps & !kind.receive & !SECONDARY & !DIRECTIONS != 0, "unsupported receive capabilities")?;
        unmet(hint.op_flags & !kind.receive_flags != 0, "unsupported receive flags")?;
        unmet(hint.msg_order & !kind.order != 0, "an unsupported message order")?;
        unmet(hint.comp_order != FI_ORDER_NONE, "an unsupported completion order")?;
        unmet(hint.size > DEPTH, &format!("{} pending receives, the maximum is {DEPTH}", hint.size))?;
        unmet(hint.iov_limit > PARTS, "too many I/O vector entries")?;
    }
    if let Some(hint) = endpoint {
        unmet(![0, kind.protocol].contains(&hint.protocol), "another protocol")?;
        let max_bytes = (kind.max_message)(device.mtu);
        let bytes = hint.max_msg_size;
        unmet(bytes > max_bytes, &format!("messages of {bytes} bytes, the maximum is {max_bytes}"))?;
        unmet(hint.tx_ctx_cnt > 1 || hint.rx_ctx_cnt > 1, "more than one transmit or receive context")?;
        unmet(hint.max_order_war_size > 0, "an unsupported order of writes after reads")?;
        unmet(hint.auth_key_size > 0, OTHER_KEYS)?;
    }
    if let Some(hint) = domain {
        // SAFETY: null, or a string, as libfabric demands.
        let name = unsafe { text(hint.name) };
        unmet(name.is_some_and(|name| name != device.name), "another domain")?;
        let bytes = kind.data_bytes;
        unmet(hint.cq_data_size > bytes, &format!("more than {bytes} bytes of remote CQ data"))?;
        unmet(hint.mr_key_size > 8, "keys of more than 8 bytes")?;
        unmet(hint.caps & !DOMAIN & !SECONDARY != 0, "unsupported domain capabilities")?;
        unmet(hint.mr_mode & FI_MR_BASIC as c_int != 0, "FI_MR_BASIC")?;
        unmet(hint.mr_iov_limit > 1, "memory regions of several parts")?;
        unmet(hint.auth_key_size > 0, OTHER_KEYS)?;
    }
    if let Some(hint) = fabric {
        // SAFETY: null, or a string, as libfabric demands.
        let (name, provider) = unsafe { (text(hint.name), text(hint.prov_name)) };
        unmet(name.is_some_and(|name| name.as_bytes() != FABRIC.to_bytes()), "another fabric")?;
        unmet(provider.is_some_and(|name| name.as_bytes() != NAME.to_bytes()), "another provider")?;
    }
    Ok(())
}

/// # Safety
/// `string` must be null, or null-terminated and valid while the result is used.
unsafe fn text<'a>(string: *const c_char) -> Option<&'a str> {
    if string.is_null() {
        return None;
    }
    // SAFETY: the caller's promise. Our names are UTF-8, so any other string matches none.
    Some(unsafe { CStr::from_ptr(string) }.to_str().unwrap_or("?"))
}

/// A string that libfabric frees.
fn duplicate(text: &str) -> *mut c_char {
    let Ok(text) = CString::new(text) else { return ptr::null_mut() };
    // SAFETY: null-terminated.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// A version of libfabric's API.
const fn api(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}
