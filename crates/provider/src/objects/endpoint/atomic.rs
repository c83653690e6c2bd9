// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Atomic operations on peers' memory: `fi_atomic`, `fi_fetch_atomic`, `fi_compare_atomic` and their families.

use std::ffi::{c_int, c_void};
use std::ptr;

use barewire_messages::{AtomicOperation, AtomicParts, AtomicType, Part};

use super::access::{Place, place};
use super::messages::{Flags, part};
use super::{EndpointFid, of};
use crate::bindings::*;
use crate::edge::{Errno, Result, guard, guard_status};
use crate::info::{PARTS, atomic_bytes};

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
        if of.supports(operation) { Ok(Self { operation, of }) } else { Err(Errno(FI_EOPNOTSUPP)) }
    }
}

impl EndpointFid {
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
            Ok(unsafe { messenger.atomic(peer, to.at, operation, of, parts, options) }?)
        })
    }
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
        let (most, _) = valid(family, datatype, op, unsafe { of(ep) }.shared.carried_mtu())?;
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
