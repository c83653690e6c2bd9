// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to peers' memory: `fi_write`, `fi_read`, `fi_atomic` and their families.

use std::ffi::{c_int, c_void};
use std::ptr;

use barewire_messages::{AtomicOperation, AtomicParts, AtomicType, Part, PeerId, Remote, SendOptions};

use super::messages::{Flags, bytes, data_if, part, with_parts};
use super::object::{EndpointFid, of};
use crate::bindings::*;
use crate::edge::{Errno, Result, guard, guard_status};
use crate::info::{PARTS, atomic_bytes};
use crate::queue::Entry;

pub(super) static RMA_OPS: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject_write),
    writedata: Some(writedata),
    injectdata: Some(inject_writedata),
};
pub(super) static ATOMIC_OPS: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write: Some(atomic),
    writev: Some(atomicv),
    writemsg: Some(atomicmsg),
    inject: Some(inject_atomic),
    readwrite: Some(fetch_atomic),
    readwritev: Some(fetch_atomicv),
    readwritemsg: Some(fetch_atomicmsg),
    compwrite: Some(compare_atomic),
    compwritev: Some(compare_atomicv),
    compwritemsg: Some(compare_atomicmsg),
    writevalid: Some(atomic_valid),
    readwritevalid: Some(fetch_valid),
    compwritevalid: Some(compare_valid),
};

/// Where in whose memory.
#[derive(Clone, Copy)]
struct Place {
    peer: fi_addr_t,
    at: Remote,
}

fn place(peer: fi_addr_t, offset: u64, key: u64) -> Place {
    Place { peer, at: Remote { key, offset } }
}

/// An atomic operation on elements.
#[derive(Clone, Copy)]
struct Atomic {
    operation: AtomicOperation,
    of: AtomicType,
}

impl Atomic {
    fn new(datatype: fi_datatype, op: fi_op) -> Result<Self> {
        let (Some(of), Some(operation)) = (type_of(datatype), operation_of(op)) else {
            return Err(Errno(FI_EOPNOTSUPP));
        };
        if of.has(operation) { Ok(Self { operation, of }) } else { Err(Errno(FI_EOPNOTSUPP)) }
    }
}

impl EndpointFid {
    /// Posts an access; `kind` is what its completion says.
    #[inline]
    fn access(
        &self,
        peer: fi_addr_t,
        kind: u64,
        context: *mut c_void,
        flags: Flags,
        post: impl FnOnce(&mut super::Reliable, PeerId, SendOptions, u64) -> std::result::Result<Posted, Errno>,
    ) -> Result<isize> {
        let mut state = self.shared.state.lock();
        let state = &mut *state;
        let endpoint = &mut state.endpoints[self.number];
        let peer = endpoint.peer(&state.vectors, peer)?;
        let is_injected = matches!(flags, Flags::Injected);
        let flags = endpoint.flags_to_send(flags);
        let is_silent = flags & FI_COMPLETION == 0;
        // Of what is injected nobody is told, not even that it failed.
        let note = if is_injected { 0 } else { kind as u32 };
        let options = SendOptions { context: context as u64, note, is_silent, ..SendOptions::default() };
        let messenger = super::reliable(&mut endpoint.wire)?;
        match post(messenger, peer, options, flags) {
            Ok(Posted::Begun) => {}
            Ok(Posted::Copied) => {
                if let (Some(bound), false) = (endpoint.transmit, is_silent) {
                    state.queues[bound.queue].push(Entry::new(context, kind));
                }
            }
            Err(Errno::AGAIN) => {
                endpoint.progress(&mut state.queues, &state.vectors)?;
                return Err(Errno::AGAIN);
            }
            Err(error) => return Err(error),
        }
        Ok(0)
    }

    /// # Safety
    /// The parts must be valid until the operation has ended.
    unsafe fn write(
        &self,
        to: Place,
        parts: &[Part],
        data: Option<u64>,
        flags: Flags,
        context: *mut c_void,
    ) -> Result<isize> {
        self.access(to.peer, FI_RMA | FI_WRITE, context, flags, |messenger, peer, options, flags| {
            if flags & FI_INJECT != 0 && parts.len() <= 1 {
                let part = parts.first().copied().unwrap_or(part(ptr::null(), 0));
                // SAFETY: the caller's promise.
                let bytes = unsafe { bytes(part.address.cast(), part.bytes) };
                messenger.inject_write(peer, to.at, bytes, data)?;
                return Ok(Posted::Copied);
            }
            // SAFETY: the caller's promise.
            unsafe { messenger.write(peer, to.at, parts, data, options) }?;
            Ok(Posted::Begun)
        })
    }

    fn inject_write(&self, to: Place, bytes: &[u8], data: Option<u64>) -> Result<isize> {
        self.access(to.peer, FI_RMA | FI_WRITE, ptr::null_mut(), Flags::Injected, |messenger, peer, _, _| {
            messenger.inject_write(peer, to.at, bytes, data)?;
            Ok(Posted::Copied)
        })
    }

    /// # Safety
    /// The parts must be valid, and used by nothing else, until the operation has ended.
    unsafe fn read(&self, from: Place, parts: &[Part], flags: Flags, context: *mut c_void) -> Result<isize> {
        self.access(from.peer, FI_RMA | FI_READ, context, flags, |messenger, peer, options, _| {
            // SAFETY: the caller's promise.
            unsafe { messenger.read(peer, from.at, parts, options) }?;
            Ok(Posted::Begun)
        })
    }

    /// # Safety
    /// Operand and comparison must be valid now, the result until the operation has ended.
    unsafe fn atomic(
        &self,
        to: Place,
        atomic: Atomic,
        parts: AtomicParts<'_>,
        flags: Flags,
        context: *mut c_void,
    ) -> Result<isize> {
        let way = if parts.result.is_empty() { FI_WRITE } else { FI_READ };
        self.access(to.peer, FI_ATOMIC | way, context, flags, |messenger, peer, options, _| {
            let Atomic { operation, of } = atomic;
            // SAFETY: the caller's promise.
            unsafe { messenger.atomic(peer, to.at, operation, of, parts, options) }?;
            Ok(Posted::Begun)
        })
    }
}

/// How far an access got in its call.
enum Posted {
    /// A completion tells when it has ended.
    Begun,
    /// The program's memory is not needed any more, and that is all that it waits for.
    Copied,
}

/// Runs with vectors of elements as parts.
///
/// # Safety
/// The vector must have `count` entries.
unsafe fn with_elements<T>(
    ioc: *const fi_ioc,
    count: usize,
    of: AtomicType,
    run: impl FnOnce(&[Part]) -> Result<T>,
) -> Result<T> {
    if count > PARTS {
        return Err(Errno::INVALID);
    }
    let mut parts = [part(ptr::null(), 0); PARTS];
    for (place, to) in parts.iter_mut().enumerate().take(count) {
        // SAFETY: the caller's promise.
        let entry = unsafe { &*ioc.add(place) };
        *to = part(entry.addr, elements(entry.count, of)?);
    }
    run(&parts[..count])
}

/// Bytes of so many elements.
fn elements(count: usize, of: AtomicType) -> Result<usize> {
    count.checked_mul(of.bytes()).ok_or(Errno::INVALID)
}

unsafe extern "C" fn read(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: libfabric's promise: an endpoint that is open, memory that is valid until the operation ends.
    guard("fi_read", || unsafe { of(ep).read(place(from, addr, key), &[part(buf, len)], Flags::Default, context) })
}

unsafe extern "C" fn readv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as of `read`.
    guard("fi_readv", || unsafe {
        with_parts(iov, count, |parts| of(ep).read(place(from, addr, key), parts, Flags::Default, context))
    })
}

/// Where a message with a vector of remote places goes: one is as many as there may be.
///
/// # Safety
/// The message must be valid.
unsafe fn place_of(msg: &fi_msg_rma) -> Result<Place> {
    if msg.rma_iov_count != 1 {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    let remote = unsafe { &*msg.rma_iov };
    Ok(place(msg.addr, remote.addr, remote.key))
}

unsafe extern "C" fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: as of `read`; and a message that is valid.
    guard("fi_readmsg", || unsafe {
        let msg = &*msg;
        let from = place_of(msg)?;
        with_parts(msg.msg_iov, msg.iov_count, |parts| of(ep).read(from, parts, Flags::Given(flags), msg.context))
    })
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as of `read`.
    guard("fi_write", || unsafe {
        of(ep).write(place(to, addr, key), &[part(buf, len)], None, Flags::Default, context)
    })
}

unsafe extern "C" fn writedata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as of `read`.
    guard("fi_writedata", || unsafe {
        of(ep).write(place(to, addr, key), &[part(buf, len)], Some(data), Flags::Default, context)
    })
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as of `read`.
    guard("fi_writev", || unsafe {
        with_parts(iov, count, |parts| of(ep).write(place(to, addr, key), parts, None, Flags::Default, context))
    })
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: as of `readmsg`.
    guard("fi_writemsg", || unsafe {
        let msg = &*msg;
        let (to, data) = (place_of(msg)?, data_if(flags, msg.data));
        with_parts(msg.msg_iov, msg.iov_count, |parts| of(ep).write(to, parts, data, Flags::Given(flags), msg.context))
    })
}

unsafe extern "C" fn inject_write(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: as of `read`.
    guard("fi_inject_write", || unsafe { of(ep).inject_write(place(to, addr, key), bytes(buf, len), None) })
}

unsafe extern "C" fn inject_writedata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: as of `read`.
    guard("fi_inject_writedata", || unsafe { of(ep).inject_write(place(to, addr, key), bytes(buf, len), Some(data)) })
}

unsafe extern "C" fn atomic(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _: *mut c_void,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: as of `read`.
    guard("fi_atomic", || unsafe {
        let atomic = Atomic::new(datatype, op)?;
        let operand = &[part(buf, elements(count, atomic.of)?)];
        of(ep).atomic(
            place(to, addr, key),
            atomic,
            AtomicParts { operand, ..Default::default() },
            Flags::Default,
            context,
        )
    })
}

unsafe extern "C" fn atomicv(
    ep: *mut fid_ep,
    ioc: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: as of `read`.
    guard("fi_atomicv", || unsafe {
        let atomic = Atomic::new(datatype, op)?;
        with_elements(ioc, count, atomic.of, |operand| {
            let parts = AtomicParts { operand, ..Default::default() };
            of(ep).atomic(place(to, addr, key), atomic, parts, Flags::Default, context)
        })
    })
}

/// Where and what an atomic message does.
///
/// # Safety
/// The message must be valid.
unsafe fn atomic_of(msg: &fi_msg_atomic) -> Result<(Place, Atomic)> {
    if msg.rma_iov_count != 1 {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    let remote = unsafe { &*msg.rma_iov };
    Ok((place(msg.addr, remote.addr, remote.key), Atomic::new(msg.datatype, msg.op)?))
}

unsafe extern "C" fn atomicmsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize {
    // SAFETY: as of `readmsg`.
    guard("fi_atomicmsg", || unsafe {
        let msg = &*msg;
        let (to, atomic) = atomic_of(msg)?;
        with_elements(msg.msg_iov, msg.iov_count, atomic.of, |operand| {
            of(ep).atomic(to, atomic, AtomicParts { operand, ..Default::default() }, Flags::Given(flags), msg.context)
        })
    })
}

unsafe extern "C" fn inject_atomic(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
) -> isize {
    // SAFETY: as of `read`.
    guard("fi_inject_atomic", || unsafe {
        let atomic = Atomic::new(datatype, op)?;
        let operand = &[part(buf, elements(count, atomic.of)?)];
        let parts = AtomicParts { operand, ..Default::default() };
        of(ep).atomic(place(to, addr, key), atomic, parts, Flags::Injected, ptr::null_mut())
    })
}

unsafe extern "C" fn fetch_atomic(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: as of `read`.
    guard("fi_fetch_atomic", || unsafe {
        let atomic = Atomic::new(datatype, op)?;
        let length = elements(count, atomic.of)?;
        let (operand, result) = (&[part(buf, length)][..], &[part(result, length)][..]);
        let operand = operand_of(atomic, operand);
        of(ep).atomic(
            place(to, addr, key),
            atomic,
            AtomicParts { operand, compare: &[], result },
            Flags::Default,
            context,
        )
    })
}

/// What is only fetched has no operand, whatever the call names.
fn operand_of(atomic: Atomic, operand: &[Part]) -> &[Part] {
    if atomic.operation == AtomicOperation::Read { &[] } else { operand }
}

unsafe extern "C" fn fetch_atomicv(
    ep: *mut fid_ep,
    ioc: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    results: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: as of `read`.
    guard("fi_fetch_atomicv", || unsafe {
        let atomic = Atomic::new(datatype, op)?;
        fetch(of(ep), place(to, addr, key), atomic, (ioc, count), (results, result_count), Flags::Default, context)
    })
}

unsafe extern "C" fn fetch_atomicmsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    results: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: as of `readmsg`.
    guard("fi_fetch_atomicmsg", || unsafe {
        let msg = &*msg;
        let (to, atomic) = atomic_of(msg)?;
        let operand = (msg.msg_iov, msg.iov_count);
        fetch(of(ep), to, atomic, operand, (results, result_count), Flags::Given(flags), msg.context)
    })
}

/// # Safety
/// The vectors must have as many entries as said.
unsafe fn fetch(
    ep: &EndpointFid,
    to: Place,
    atomic: Atomic,
    operand: (*const fi_ioc, usize),
    result: (*mut fi_ioc, usize),
    flags: Flags,
    context: *mut c_void,
) -> Result<isize> {
    // SAFETY: the caller's promise.
    unsafe {
        with_elements(operand.0, operand.1, atomic.of, |operand| {
            with_elements(result.0, result.1, atomic.of, |result| {
                let operand = operand_of(atomic, operand);
                ep.atomic(to, atomic, AtomicParts { operand, compare: &[], result }, flags, context)
            })
        })
    }
}

unsafe extern "C" fn compare_atomic(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    _: *mut c_void,
    compare: *const c_void,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: as of `read`.
    guard("fi_compare_atomic", || unsafe {
        let atomic = Atomic::new(datatype, op)?;
        let length = elements(count, atomic.of)?;
        let [operand, compare, result] = [buf, compare, result.cast_const()].map(|at| [part(at, length)]);
        let parts = AtomicParts { operand: &operand, compare: &compare, result: &result };
        of(ep).atomic(place(to, addr, key), atomic, parts, Flags::Default, context)
    })
}

unsafe extern "C" fn compare_atomicv(
    ep: *mut fid_ep,
    ioc: *const fi_ioc,
    _: *mut *mut c_void,
    count: usize,
    compares: *const fi_ioc,
    _: *mut *mut c_void,
    compare_count: usize,
    results: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    to: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: as of `read`.
    guard("fi_compare_atomicv", || unsafe {
        let atomic = Atomic::new(datatype, op)?;
        let vectors = [(ioc, count), (compares, compare_count), (results.cast_const(), result_count)];
        compare(of(ep), place(to, addr, key), atomic, vectors, Flags::Default, context)
    })
}

unsafe extern "C" fn compare_atomicmsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    compares: *const fi_ioc,
    _: *mut *mut c_void,
    compare_count: usize,
    results: *mut fi_ioc,
    _: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: as of `readmsg`.
    guard("fi_compare_atomicmsg", || unsafe {
        let msg = &*msg;
        let (to, atomic) = atomic_of(msg)?;
        let vectors = [(msg.msg_iov, msg.iov_count), (compares, compare_count), (results.cast_const(), result_count)];
        compare(of(ep), to, atomic, vectors, Flags::Given(flags), msg.context)
    })
}

/// # Safety
/// The vectors must have as many entries as said.
unsafe fn compare(
    ep: &EndpointFid,
    to: Place,
    atomic: Atomic,
    vectors: [(*const fi_ioc, usize); 3],
    flags: Flags,
    context: *mut c_void,
) -> Result<isize> {
    let [operand, compare, result] = vectors;
    // SAFETY: the caller's promise.
    unsafe {
        with_elements(operand.0, operand.1, atomic.of, |operand| {
            with_elements(compare.0, compare.1, atomic.of, |compare| {
                with_elements(result.0, result.1, atomic.of, |result| {
                    ep.atomic(to, atomic, AtomicParts { operand, compare, result }, flags, context)
                })
            })
        })
    }
}

/// Which family of calls an atomic operation belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Plain,
    Fetching,
    Comparing,
}

/// How many elements an operation takes at most, on frames of this MTU, and how long each is.
pub(crate) fn valid(family: Family, datatype: fi_datatype, op: fi_op, mtu: usize) -> Result<(usize, usize)> {
    let Atomic { operation, of } = Atomic::new(datatype, op)?;
    let is_of_family = match family {
        Family::Plain => !operation.compares() && operation != AtomicOperation::Read,
        Family::Fetching => !operation.compares(),
        Family::Comparing => operation.compares(),
    };
    if is_of_family { Ok((atomic_bytes(mtu) / of.bytes(), of.bytes())) } else { Err(Errno(FI_EOPNOTSUPP)) }
}

/// # Safety
/// `ep` must be one of ours that is open, `count` valid or null.
unsafe fn answer(ep: *mut fid_ep, family: Family, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int {
    guard_status("fi_atomicvalid", || {
        // SAFETY: the caller's promise.
        let (most, _) = valid(family, datatype, op, unsafe { of(ep) }.shared.interface.mtu)?;
        // SAFETY: as above.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = most;
        }
        Ok(())
    })
}

unsafe extern "C" fn atomic_valid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int {
    // SAFETY: libfabric's promise.
    unsafe { answer(ep, Family::Plain, datatype, op, count) }
}

unsafe extern "C" fn fetch_valid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int {
    // SAFETY: libfabric's promise.
    unsafe { answer(ep, Family::Fetching, datatype, op, count) }
}

unsafe extern "C" fn compare_valid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int {
    // SAFETY: libfabric's promise.
    unsafe { answer(ep, Family::Comparing, datatype, op, count) }
}

fn type_of(datatype: fi_datatype) -> Option<AtomicType> {
    Some(match datatype {
        FI_INT8 => AtomicType::I8,
        FI_UINT8 => AtomicType::U8,
        FI_INT16 => AtomicType::I16,
        FI_UINT16 => AtomicType::U16,
        FI_INT32 => AtomicType::I32,
        FI_UINT32 => AtomicType::U32,
        FI_INT64 => AtomicType::I64,
        FI_UINT64 => AtomicType::U64,
        FI_FLOAT => AtomicType::F32,
        FI_DOUBLE => AtomicType::F64,
        FI_FLOAT_COMPLEX => AtomicType::ComplexF32,
        FI_DOUBLE_COMPLEX => AtomicType::ComplexF64,
        _ => return None,
    })
}

fn operation_of(op: fi_op) -> Option<AtomicOperation> {
    Some(match op {
        FI_MIN => AtomicOperation::Min,
        FI_MAX => AtomicOperation::Max,
        FI_SUM => AtomicOperation::Sum,
        FI_PROD => AtomicOperation::Product,
        FI_LOR => AtomicOperation::LogicalOr,
        FI_LAND => AtomicOperation::LogicalAnd,
        FI_BOR => AtomicOperation::BitOr,
        FI_BAND => AtomicOperation::BitAnd,
        FI_LXOR => AtomicOperation::LogicalXor,
        FI_BXOR => AtomicOperation::BitXor,
        FI_ATOMIC_READ => AtomicOperation::Read,
        FI_ATOMIC_WRITE => AtomicOperation::Write,
        FI_CSWAP => AtomicOperation::CompareSwap,
        FI_CSWAP_NE => AtomicOperation::CompareSwapNotEqual,
        FI_CSWAP_LE => AtomicOperation::CompareSwapLessOrEqual,
        FI_CSWAP_LT => AtomicOperation::CompareSwapLess,
        FI_CSWAP_GE => AtomicOperation::CompareSwapGreaterOrEqual,
        FI_CSWAP_GT => AtomicOperation::CompareSwapGreater,
        FI_MSWAP => AtomicOperation::MaskedSwap,
        _ => return None,
    })
}
