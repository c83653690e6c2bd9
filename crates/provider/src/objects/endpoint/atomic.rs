// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Atomic operations on peers' memory: `fi_atomic`, `fi_fetch_atomic`, `fi_compare_atomic` and their families.

use std::ffi::{c_int, c_void};
use std::ptr;

use barewire_messages::{AtomicOperation, AtomicParts, AtomicType, Part};

use super::access::{Target, target};
use super::messages::{Flags, part};
use super::{EndpointFid, endpoint_of};
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

/// An atomic operation and the type of its elements.
#[derive(Clone, Copy)]
struct Atomic {
    operation: AtomicOperation,
    element: AtomicType,
}

impl Atomic {
    /// `Errno(FI_EOPNOTSUPP)` if the type does not have the operation, or the class of calls.
    fn new(class: AtomicClass, datatype: fi_datatype, op: fi_op) -> Result<Self> {
        let (Some(element), Some(operation)) = (type_of(datatype), operation_of(op)) else {
            return Err(Errno(FI_EOPNOTSUPP));
        };
        let is_in_class = match class {
            AtomicClass::Base => !operation.compares() && operation != AtomicOperation::Read,
            AtomicClass::Fetch => !operation.compares(),
            AtomicClass::Compare => operation.compares(),
        };
        if is_in_class && element.supports(operation) {
            Ok(Self { operation, element })
        } else {
            Err(Errno(FI_EOPNOTSUPP))
        }
    }
}

impl EndpointFid {
    /// # Safety
    /// Operand and comparison must be valid now, the result until the operation has ended.
    unsafe fn atomic(
        &self,
        to: Target,
        atomic: Atomic,
        parts: AtomicParts<'_>,
        flags: Flags,
        context: *mut c_void,
    ) -> Result<isize> {
        let direction = if parts.result.is_empty() { FI_WRITE } else { FI_READ };
        self.access(to.peer, FI_ATOMIC | direction, context, flags, |messenger, peer, options, _| {
            let Atomic { operation, element } = atomic;
            // SAFETY: the caller's promise.
            Ok(unsafe { messenger.atomic(peer, to.remote, operation, element, parts, options) }?)
        })
    }
}

/// Converts a vector of elements to parts and passes them to `run`.
///
/// # Safety
/// The vector must have `count` entries.
unsafe fn with_elements<T>(
    ioc: *const fi_ioc,
    count: usize,
    element: AtomicType,
    run: impl FnOnce(&[Part]) -> Result<T>,
) -> Result<T> {
    if count > PARTS {
        return Err(Errno::INVALID);
    }
    let mut parts = [part(ptr::null(), 0); PARTS];
    for (index, part) in parts.iter_mut().enumerate().take(count) {
        // SAFETY: the caller's promise.
        let entry = unsafe { &*ioc.add(index) };
        *part = self::part(entry.addr, elements_bytes(entry.count, element)?);
    }
    run(&parts[..count])
}

/// Size in bytes of `count` elements.
fn elements_bytes(count: usize, element: AtomicType) -> Result<usize> {
    count.checked_mul(element.bytes()).ok_or(Errno::INVALID)
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
    // SAFETY: as in `read`.
    guard("fi_atomic", || unsafe {
        let atomic = Atomic::new(AtomicClass::Base, datatype, op)?;
        let operand = &[part(buf, elements_bytes(count, atomic.element)?)];
        endpoint_of(ep).atomic(
            target(to, addr, key),
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
    // SAFETY: as in `read`.
    guard("fi_atomicv", || unsafe {
        let atomic = Atomic::new(AtomicClass::Base, datatype, op)?;
        with_elements(ioc, count, atomic.element, |operand| {
            let parts = AtomicParts { operand, ..Default::default() };
            endpoint_of(ep).atomic(target(to, addr, key), atomic, parts, Flags::Default, context)
        })
    })
}

/// The target and the operation of an atomic message.
///
/// # Safety
/// The message must be valid.
unsafe fn atomic_of(class: AtomicClass, msg: &fi_msg_atomic) -> Result<(Target, Atomic)> {
    if msg.rma_iov_count != 1 {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    let remote = unsafe { &*msg.rma_iov };
    Ok((target(msg.addr, remote.addr, remote.key), Atomic::new(class, msg.datatype, msg.op)?))
}

unsafe extern "C" fn atomicmsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize {
    // SAFETY: as in `readmsg`.
    guard("fi_atomicmsg", || unsafe {
        let msg = &*msg;
        let (to, atomic) = atomic_of(AtomicClass::Base, msg)?;
        with_elements(msg.msg_iov, msg.iov_count, atomic.element, |operand| {
            endpoint_of(ep).atomic(
                to,
                atomic,
                AtomicParts { operand, ..Default::default() },
                Flags::Given(flags),
                msg.context,
            )
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
    // SAFETY: as in `read`.
    guard("fi_inject_atomic", || unsafe {
        let atomic = Atomic::new(AtomicClass::Base, datatype, op)?;
        let operand = &[part(buf, elements_bytes(count, atomic.element)?)];
        let parts = AtomicParts { operand, ..Default::default() };
        endpoint_of(ep).atomic(target(to, addr, key), atomic, parts, Flags::Injected, ptr::null_mut())
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
    // SAFETY: as in `read`.
    guard("fi_fetch_atomic", || unsafe {
        let atomic = Atomic::new(AtomicClass::Fetch, datatype, op)?;
        let length = elements_bytes(count, atomic.element)?;
        let (operand, result) = (&[part(buf, length)][..], &[part(result, length)][..]);
        let operand = operand_of(atomic, operand);
        endpoint_of(ep).atomic(
            target(to, addr, key),
            atomic,
            AtomicParts { operand, compare: &[], result },
            Flags::Default,
            context,
        )
    })
}

/// An atomic read has no operand; the one that the call passes is ignored.
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
    // SAFETY: as in `read`.
    guard("fi_fetch_atomicv", || unsafe {
        let atomic = Atomic::new(AtomicClass::Fetch, datatype, op)?;
        fetch(
            endpoint_of(ep),
            target(to, addr, key),
            atomic,
            (ioc, count),
            (results, result_count),
            Flags::Default,
            context,
        )
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
    // SAFETY: as in `readmsg`.
    guard("fi_fetch_atomicmsg", || unsafe {
        let msg = &*msg;
        let (to, atomic) = atomic_of(AtomicClass::Fetch, msg)?;
        let operand = (msg.msg_iov, msg.iov_count);
        fetch(endpoint_of(ep), to, atomic, operand, (results, result_count), Flags::Given(flags), msg.context)
    })
}

/// # Safety
/// The vectors must have as many entries as their counts say.
unsafe fn fetch(
    ep: &EndpointFid,
    to: Target,
    atomic: Atomic,
    operand: (*const fi_ioc, usize),
    result: (*mut fi_ioc, usize),
    flags: Flags,
    context: *mut c_void,
) -> Result<isize> {
    // A read has no operand, whatever the vector contains.
    let operands = if atomic.operation == AtomicOperation::Read { 0 } else { operand.1 };
    // SAFETY: the caller's promise.
    unsafe {
        with_elements(operand.0, operands, atomic.element, |operand| {
            with_elements(result.0, result.1, atomic.element, |result| {
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
    // SAFETY: as in `read`.
    guard("fi_compare_atomic", || unsafe {
        let atomic = Atomic::new(AtomicClass::Compare, datatype, op)?;
        let length = elements_bytes(count, atomic.element)?;
        let [operand, compare, result] = [buf, compare, result.cast_const()].map(|at| [part(at, length)]);
        let parts = AtomicParts { operand: &operand, compare: &compare, result: &result };
        endpoint_of(ep).atomic(target(to, addr, key), atomic, parts, Flags::Default, context)
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
    // SAFETY: as in `read`.
    guard("fi_compare_atomicv", || unsafe {
        let atomic = Atomic::new(AtomicClass::Compare, datatype, op)?;
        let vectors = [(ioc, count), (compares, compare_count), (results.cast_const(), result_count)];
        compare(endpoint_of(ep), target(to, addr, key), atomic, vectors, Flags::Default, context)
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
    // SAFETY: as in `readmsg`.
    guard("fi_compare_atomicmsg", || unsafe {
        let msg = &*msg;
        let (to, atomic) = atomic_of(AtomicClass::Compare, msg)?;
        let vectors = [(msg.msg_iov, msg.iov_count), (compares, compare_count), (results.cast_const(), result_count)];
        compare(endpoint_of(ep), to, atomic, vectors, Flags::Given(flags), msg.context)
    })
}

/// # Safety
/// The vectors must have as many entries as their counts say.
unsafe fn compare(
    ep: &EndpointFid,
    to: Target,
    atomic: Atomic,
    vectors: [(*const fi_ioc, usize); 3],
    flags: Flags,
    context: *mut c_void,
) -> Result<isize> {
    let [operand, compare, result] = vectors;
    // SAFETY: the caller's promise.
    unsafe {
        with_elements(operand.0, operand.1, atomic.element, |operand| {
            with_elements(compare.0, compare.1, atomic.element, |compare| {
                with_elements(result.0, result.1, atomic.element, |result| {
                    ep.atomic(to, atomic, AtomicParts { operand, compare, result }, flags, context)
                })
            })
        })
    }
}

/// The class of an atomic call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtomicClass {
    Base,
    Fetch,
    Compare,
}

/// The maximum number of elements of an operation at this MTU, and the size of each.
pub(crate) fn atomic_limits(
    class: AtomicClass,
    datatype: fi_datatype,
    op: fi_op,
    mtu: usize,
) -> Result<(usize, usize)> {
    let Atomic { element, .. } = Atomic::new(class, datatype, op)?;
    Ok((atomic_bytes(mtu) / element.bytes(), element.bytes()))
}

/// # Safety
/// `ep` must be an open endpoint of ours, `count` valid or null.
unsafe fn write_limit(
    ep: *mut fid_ep,
    class: AtomicClass,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    guard_status("fi_atomicvalid", || {
        // SAFETY: the caller's promise.
        let (max_count, _) = atomic_limits(class, datatype, op, unsafe { endpoint_of(ep) }.shared.carried_mtu())?;
        // SAFETY: as above.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = max_count;
        }
        Ok(())
    })
}

unsafe extern "C" fn atomic_valid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int {
    // SAFETY: libfabric's promise.
    unsafe { write_limit(ep, AtomicClass::Base, datatype, op, count) }
}

unsafe extern "C" fn fetch_valid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int {
    // SAFETY: libfabric's promise.
    unsafe { write_limit(ep, AtomicClass::Fetch, datatype, op, count) }
}

unsafe extern "C" fn compare_valid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int {
    // SAFETY: libfabric's promise.
    unsafe { write_limit(ep, AtomicClass::Compare, datatype, op, count) }
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
