// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `fi_getinfo`: what there is, and which of the wishes in the hints cannot be met.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{self, NonNull};

use barewire_link::Interface;
use barewire_messages::Config;

use crate::address::FORMAT;
use crate::bindings::*;
use crate::edge::{Errno, guard_status};
use crate::libfabric::{Libfabric, libfabric};
use crate::log::{info, warning};
use crate::parameters::{Parameters, Progress};
use crate::{PROVIDER_VERSION, dead_end, device};

/// What an endpoint can do: the choices that cost something.
const PRIMARY: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
/// Which way.
const DIRECTIONS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
/// And what comes along.
const SECONDARY: u64 = FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_RMA_EVENT;
const DOMAIN: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;

/// A type of endpoint: what there is of it.
struct Kind {
    type_: fi_ep_type,
    protocol: u32,
    capabilities: u64,
    transmit: u64,
    receive: u64,
    /// What an operation's flags may be.
    transmit_flags: u64,
    receive_flags: u64,
    order: u64,
    /// Bytes of remote CQ data.
    data_bytes: usize,
    /// Bytes of the longest message, on frames of this MTU.
    longest: fn(usize) -> usize,
    /// Of the longest that can be injected.
    injected: fn(usize) -> usize,
}

const RELIABLE: Kind = Kind {
    type_: FI_EP_RDM,
    protocol: FI_PROV_SPECIFIC as u32 | 0xba4e,
    capabilities: PRIMARY | DIRECTIONS | SECONDARY,
    transmit: PRIMARY | FI_SEND | FI_READ | FI_WRITE,
    receive: PRIMARY | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE,
    transmit_flags: FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE,
    receive_flags: FI_COMPLETION | FI_MULTI_RECV,
    // Messages to a peer, and what is done to its memory, take effect in the order in which they were posted; only what
    // is read may be changed by a write that was posted after it.
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
    longest: |_| usize::MAX,
    injected: |mtu| frame_bytes(mtu).max(Config::INJECT_BYTES),
};

/// A frame each, which may be lost.
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
    longest: |mtu| mtu.saturating_sub(DATAGRAM_OVERHEAD),
    injected: frame_bytes,
};

/// Operations under way of one endpoint, either way; more are refused until some are done.
pub(crate) const DEPTH: usize = 4096;
/// Parts that an operation may have.
pub(crate) const PARTS: usize = 16;
const NAME: &CStr = c"barewire";
const FABRIC: &CStr = c"ethernet";
/// Bytes of a frame that are not the message's: LLC 4, extension 14, fragment and head.
const OVERHEAD: usize = 64;
/// LLC and extension, of the longer kind of frames.
const DATAGRAM_OVERHEAD: usize = 18;

/// Bytes of the longest message that goes in one frame, on frames of this MTU.
const fn frame_bytes(mtu: usize) -> usize {
    mtu.saturating_sub(OVERHEAD)
}

/// Bytes of the elements of the longest atomic operation, on frames of this MTU.
pub(crate) const fn atomic_bytes(mtu: usize) -> usize {
    frame_bytes(mtu) / 2
}

/// `fi_getinfo`, as libfabric calls it.
///
/// # Safety
/// As libfabric's manual says: `hints` null or valid, `found` valid.
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
        // SAFETY: libfabric passes null or a structure that stays unchanged during the call.
        let hints = unsafe { hints.as_ref() };
        if !node.is_null() && flags & (FI_SOURCE | FI_NUMERICHOST) == 0 {
            info!(FI_LOG_FABRIC, "hosts have no names here: exchange addresses out of band (fabtests: -b)");
            return Err(Errno::NO_DATA);
        }
        let parameters = Parameters::load(libfabric).map_err(|error| nothing(&error.to_string()))?;
        let interfaces = device::interfaces(&parameters).map_err(|error| nothing(&error.to_string()))?;
        if interfaces.is_empty() {
            return Err(nothing("no Ethernet interface of this host is up, nor lo: ip link set NAME up"));
        }
        if !device::is_permitted(&parameters) {
            return Err(nothing(&not_permitted(&interfaces)));
        }
        let mut list: *mut fi_info = ptr::null_mut();
        let kinds = wanted_kinds(hints, flags);
        if kinds.is_empty() {
            info!(
                FI_LOG_FABRIC,
                "the hints ask for another type of endpoint than FI_EP_RDM, or FI_EP_DGRAM without a layer"
            );
        }
        // Nothing but what a frame carries depends on it from here on.
        let carried =
            |interface: &Interface| Interface { mtu: parameters.mtu_without_seal(interface.mtu), ..interface.clone() };
        let interfaces: Vec<Interface> = interfaces.iter().map(carried).collect();
        let offers = kinds.iter().flat_map(|kind| interfaces.iter().map(move |interface| (kind, interface)));
        for (kind, interface) in offers.rev() {
            match offer(libfabric, kind, interface, version, hints, parameters.progress) {
                Ok(mut info) => {
                    // SAFETY: made a moment ago, and nobody else knows it.
                    unsafe { info.as_mut() }.next = list;
                    list = info.as_ptr();
                }
                Err(Unmet(wish)) => info!(FI_LOG_FABRIC, "{}: the hints ask for {wish}", interface.name),
            }
        }
        if list.is_null() {
            return Err(Errno::NO_DATA);
        }
        // SAFETY: libfabric passes where the list belongs.
        unsafe { *found = list };
        Ok(())
    })
}

/// Whatever the hints are there is nothing to offer, for a reason that somebody can do something about.
fn nothing(reason: &str) -> Errno {
    warning!(FI_LOG_FABRIC, "{reason}");
    dead_end::tell(reason);
    Errno::NO_DATA
}

fn not_permitted(interfaces: &[Interface]) -> String {
    let on = if let [only] = interfaces { format!(" on {}", only.name) } else { String::new() };
    format!(
        "no right to raw Ethernet frames{on}: give the program CAP_NET_RAW, or start barewire-broker on this host \
         (docs/provider.md); `barewire doctor` checks"
    )
}

/// Set where a provider of libfabric's own asks, which would be layered over ours: no part of its interface, but the same
/// in all versions so far. A program that wants `FI_EP_RDM` would get that of `ofi_rxd` over our datagrams, before ours.
const FOR_A_LAYER: u64 = 1 << 59;

/// Types of endpoints that the hints allow, the best first.
fn wanted_kinds(hints: Option<&fi_info>, flags: u64) -> Vec<Kind> {
    // SAFETY: null or valid, as libfabric demands of hints.
    let wish = hints.and_then(|hints| unsafe { hints.ep_attr.as_ref() }).map_or(FI_EP_UNSPEC, |wish| wish.type_);
    let is_wanted = |kind: &Kind| wish == FI_EP_UNSPEC || wish == kind.type_;
    let all = if flags & FOR_A_LAYER == 0 { vec![RELIABLE, UNRELIABLE] } else { vec![RELIABLE] };
    all.into_iter().filter(is_wanted).collect()
}

/// A wish in the hints that cannot be met.
struct Unmet(String);

/// What an endpoint on an interface would be, as near to the hints as can be.
fn offer(
    libfabric: &Libfabric,
    kind: &Kind,
    interface: &Interface,
    version: u32,
    hints: Option<&fi_info>,
    progress: Option<Progress>,
) -> std::result::Result<NonNull<fi_info>, Unmet> {
    if let Some(hints) = hints {
        // SAFETY: what hints point to is null or valid, as libfabric demands.
        unsafe { check(hints, kind, interface, version) }?;
    }
    let mut info = libfabric.new_info().ok_or_else(|| Unmet("more memory than there is".to_owned()))?;
    // SAFETY: a new structure of libfabric's, with all its attributes, which nobody else knows.
    unsafe { fill(info.as_mut(), kind, interface, version) };
    if let Some(hints) = hints {
        // SAFETY: as above.
        unsafe { follow(info.as_mut(), kind, interface, hints) };
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
/// All of the structure's pointers to attributes are valid.
unsafe fn fill(info: &mut fi_info, kind: &Kind, interface: &Interface, version: u32) {
    info.caps = kind.capabilities;
    info.addr_format = FORMAT;
    // SAFETY: the caller's promise; no two of them are the same.
    let (transmit, receive, endpoint, domain, fabric) = unsafe {
        (&mut *info.tx_attr, &mut *info.rx_attr, &mut *info.ep_attr, &mut *info.domain_attr, &mut *info.fabric_attr)
    };
    transmit.caps = kind.transmit;
    transmit.msg_order = kind.order;
    transmit.inject_size = frame_bytes(interface.mtu);
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
    endpoint.max_msg_size = (kind.longest)(interface.mtu);
    let ordered = |order: u64| if kind.order & order != 0 { usize::MAX } else { 0 };
    endpoint.max_order_waw_size = ordered(FI_ORDER_WAW);
    endpoint.max_order_raw_size = ordered(FI_ORDER_RAW);
    endpoint.mem_tag_format = u64::MAX >> 1 & 0xaaaa_aaaa_aaaa_aaaa | 1 << 63;
    endpoint.tx_ctx_cnt = 1;
    endpoint.rx_ctx_cnt = 1;
    domain.name = duplicate(&interface.name);
    domain.threading = FI_THREAD_SAFE;
    domain.control_progress = FI_PROGRESS_AUTO;
    domain.data_progress = FI_PROGRESS_MANUAL;
    domain.resource_mgmt = FI_RM_ENABLED;
    domain.av_type = FI_AV_TABLE;
    // Before 1.5 there was no way to say "neither", and scalable was what comes nearest.
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

/// What the hints say where several answers are right.
///
/// # Safety
/// As [`check`] and [`fill`].
unsafe fn follow(info: &mut fi_info, kind: &Kind, interface: &Interface, hints: &fi_info) {
    // SAFETY: the caller's promise.
    let (transmit, receive, domain) = unsafe { (&mut *info.tx_attr, &mut *info.rx_attr, &mut *info.domain_attr) };
    if hints.caps != 0 {
        let mut chosen = hints.caps | hints.caps & PRIMARY | FI_LOCAL_COMM | FI_REMOTE_COMM;
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
    let (wish_t, wish_r, wish_d) =
        unsafe { (hints.tx_attr.as_ref(), hints.rx_attr.as_ref(), hints.domain_attr.as_ref()) };
    if let Some(wish) = wish_t {
        transmit.op_flags = wish.op_flags;
        // Where what is not injected waits until the peer has it, as MPICH's does, a copy is less.
        if wish.op_flags & FI_DELIVERY_COMPLETE != 0 || wish.inject_size > transmit.inject_size {
            transmit.inject_size = (kind.injected)(interface.mtu);
        }
        transmit.msg_order = if wish.msg_order != 0 { wish.msg_order } else { kind.order };
        transmit.caps = if wish.caps != 0 { wish.caps } else { transmit.caps };
    }
    if let Some(wish) = wish_r {
        receive.op_flags = wish.op_flags;
        receive.msg_order = if wish.msg_order != 0 { wish.msg_order } else { kind.order };
        receive.caps = if wish.caps != 0 { wish.caps } else { receive.caps };
    }
    if let Some(wish) = wish_d {
        let or = |wish: u32, ours: u32| if wish == 0 { ours } else { wish };
        domain.threading = or(wish.threading, domain.threading);
        domain.control_progress = or(wish.control_progress, domain.control_progress);
        domain.data_progress = or(wish.data_progress, domain.data_progress);
        domain.resource_mgmt = or(wish.resource_mgmt, domain.resource_mgmt);
        domain.av_type = or(wish.av_type, domain.av_type);
    }
}

/// Which wish cannot be met, if any.
///
/// # Safety
/// What `hints` points to is null or valid.
unsafe fn check(hints: &fi_info, kind: &Kind, interface: &Interface, version: u32) -> std::result::Result<(), Unmet> {
    let unmet = |is_unmet: bool, what: &str| if is_unmet { Err(Unmet(what.to_owned())) } else { Ok(()) };
    unmet(
        hints.caps & !kind.capabilities != 0,
        &format!("capabilities that there are not: {:#x}", hints.caps & !kind.capabilities),
    )?;
    unmet(![FI_FORMAT_UNSPEC, FORMAT].contains(&hints.addr_format), "addresses of another format")?;
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
    if let Some(wish) = transmit {
        unmet(wish.caps & !kind.transmit & !SECONDARY & !DIRECTIONS != 0, "transmit capabilities that there are not")?;
        unmet(wish.op_flags & !kind.transmit_flags != 0, "transmit flags that there are not")?;
        unmet(wish.msg_order & !kind.order != 0, "an order of messages that is not kept")?;
        unmet(wish.comp_order != FI_ORDER_NONE, "an order of completions, which is not kept")?;
        let inject = (kind.injected)(interface.mtu);
        unmet(wish.inject_size > inject, &format!("inject_size {}, {inject} is the most", wish.inject_size))?;
        unmet(wish.size > DEPTH, &format!("{} sends at once, {DEPTH} is the most", wish.size))?;
        unmet(wish.iov_limit > PARTS || wish.rma_iov_limit > 1, "more parts than there may be")?;
    }
    if let Some(wish) = receive {
        unmet(wish.caps & !kind.receive & !SECONDARY & !DIRECTIONS != 0, "receive capabilities that there are not")?;
        unmet(wish.op_flags & !kind.receive_flags != 0, "receive flags that there are not")?;
        unmet(wish.msg_order & !kind.order != 0, "an order of messages that is not kept")?;
        unmet(wish.comp_order != FI_ORDER_NONE, "an order of completions, which is not kept")?;
        unmet(wish.size > DEPTH, &format!("{} receives at once, {DEPTH} is the most", wish.size))?;
        unmet(wish.iov_limit > PARTS, "more parts than there may be")?;
    }
    if let Some(wish) = endpoint {
        unmet(![0, kind.protocol].contains(&wish.protocol), "another protocol")?;
        let longest = (kind.longest)(interface.mtu);
        let bytes = wish.max_msg_size;
        unmet(bytes > longest, &format!("messages of {bytes} bytes, {longest} is the most"))?;
        unmet(wish.tx_ctx_cnt > 1 || wish.rx_ctx_cnt > 1, "more than one transmit or receive context")?;
        unmet(wish.max_order_war_size > 0, "an order of reads that is not kept")?;
        unmet(
            wish.auth_key_size > 0,
            "an authentication key; set FI_BAREWIRE_TOKEN, and FI_BAREWIRE_AUTH with FI_BAREWIRE_SECRET, instead",
        )?;
    }
    if let Some(wish) = domain {
        // SAFETY: null, or a string, as libfabric demands.
        let name = unsafe { text(wish.name) };
        unmet(name.is_some_and(|name| name != interface.name), "another domain")?;
        let bytes = kind.data_bytes;
        unmet(wish.cq_data_size > bytes, &format!("more than {bytes} bytes of remote CQ data"))?;
        unmet(wish.mr_key_size > 8, "keys of more than 8 bytes")?;
        unmet(wish.caps & !DOMAIN & !SECONDARY != 0, "capabilities of a domain that there are not")?;
        let basic = version < api(1, 5) && wish.mr_mode == FI_MR_BASIC as c_int;
        unmet(basic, "FI_MR_BASIC")?;
    }
    if let Some(wish) = fabric {
        // SAFETY: null, or a string, as libfabric demands.
        let (name, provider) = unsafe { (text(wish.name), text(wish.prov_name)) };
        unmet(name.is_some_and(|name| name.as_bytes() != FABRIC.to_bytes()), "another fabric")?;
        unmet(provider.is_some_and(|name| name.as_bytes() != NAME.to_bytes()), "another provider")?;
    }
    Ok(())
}

/// # Safety
/// Null, or a string that ends with a zero and stays while the result is used.
unsafe fn text<'a>(string: *const c_char) -> Option<&'a str> {
    if string.is_null() {
        return None;
    }
    // SAFETY: the caller's promise. What is no UTF-8 is no name of ours.
    Some(unsafe { CStr::from_ptr(string) }.to_str().unwrap_or("?"))
}

/// A string that libfabric frees.
fn duplicate(text: &str) -> *mut c_char {
    let Ok(text) = CString::new(text) else { return ptr::null_mut() };
    // SAFETY: ends with a zero.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// A version of libfabric's interface.
const fn api(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}
