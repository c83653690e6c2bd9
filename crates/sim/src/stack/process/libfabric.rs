// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A messenger's operations through libfabric's functions: what the provider adds to a messenger (flags, numbers of
//! peers, entries of completion queues, error numbers) is translated back.

mod completions;

use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::Duration;

use barewire_endpoint::{Address, Config, Ending, EndpointError};
use barewire_fi::simulation::Objects;
use barewire_libfabric::bindings::*;
use barewire_link::Link;
use barewire_messages::{
    AtomicOperation, AtomicParts, AtomicType, Completion, CompletionLevel, Envelope, Label, Operation, Part, PeerId,
    PostError, ReceiveOptions, RemoteAddress, Selector, SendOptions,
};

use completions::envelope;

use super::super::scenario::Scenario;

/// `FI_ADDR_UNSPEC`, `FI_ADDR_NOTAVAIL`: no address.
const NO_ADDRESS: fi_addr_t = u64::MAX;
/// Set in the contexts of claims, which differ from those of the program.
const CLAIM: u64 = 1 << 62;

/// A process's objects, and what it has posted.
pub struct Libfabric {
    /// By key. Declared before the objects that they belong to.
    regions: HashMap<u64, Region>,
    objects: Objects,
    addresses: HashMap<fi_addr_t, Address>,
    posted: HashMap<u64, Posted>,
    claims: u64,
    /// Accesses to peers' memory that were posted.
    accesses: u64,
    completions: VecDeque<Completion>,
}

/// An operation that has not completed, by the context that its call was given.
struct Posted {
    /// The program's own context.
    context: u64,
    operation: Operation,
    peer: Option<PeerId>,
    /// Start of a multi-receive's buffer.
    multi_buffer: Option<usize>,
}

/// A claimed message: the context of the call that claimed it, and what that searched for.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    context: u64,
    selector: Selector,
}

struct Region(*mut fid_mr);

impl Drop for Region {
    fn drop(&mut self) {
        let fid = self.0.cast::<fid>();
        // SAFETY: an open region, which is not used any more.
        assert_eq!(unsafe { (*(*fid).ops).close.expect("ours has it")(fid) }, 0);
    }
}

/// A function of an object's table.
macro_rules! function {
    ($object:expr, $table:ident, $function:ident) => {
        (*(*$object).$table).$function.expect("ours has it")
    };
}

use function;

fn iov(parts: &[Part]) -> Vec<iovec> {
    parts.iter().map(|part| iovec { iov_base: part.address.cast(), iov_len: part.bytes }).collect()
}

fn pointer(context: u64) -> *mut c_void {
    context as *mut c_void
}

fn number(peer: PeerId) -> fi_addr_t {
    u64::from(peer.number())
}

fn peer_of(number: fi_addr_t) -> PeerId {
    PeerId::from_number(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Translates the status of a posting call.
fn posted(status: isize) -> Result<(), PostError> {
    let error = status.unsigned_abs() as u32;
    match error {
        _ if status >= 0 => Ok(()),
        FI_EAGAIN => Err(PostError::Full),
        FI_EINVAL => Err(PostError::NoSuchPeer),
        _ => Err(PostError::Lost(ending(error).unwrap_or_else(|| panic!("an operation was refused: error {error}")))),
    }
}

fn ending(error: u32) -> Option<Ending> {
    Some(match error {
        FI_ECONNREFUSED => Ending::Refused,
        FI_ETIMEDOUT => Ending::Stalled,
        FI_ESHUTDOWN => Ending::Closed,
        FI_ECONNRESET => Ending::PeerClosed,
        FI_ECONNABORTED => Ending::Violation,
        FI_ENOMEM => Ending::Exhausted,
        _ if error == nix::errno::Errno::EHOSTUNREACH as u32 => Ending::NoAnswer,
        _ => return None,
    })
}

impl Libfabric {
    pub fn open(link: Box<dyn Link>, config: Config, messages: barewire_messages::Config, scenario: &Scenario) -> Self {
        Self {
            regions: HashMap::new(),
            objects: Objects::open(link, config, messages, scenario.patience, scenario.has_counters),
            addresses: HashMap::new(),
            posted: HashMap::new(),
            claims: 0,
            accesses: 0,
            completions: VecDeque::new(),
        }
    }

    pub fn peer(&mut self, address: Address) -> PeerId {
        let (bytes, mut number) = (Objects::encode(address), NO_ADDRESS);
        // SAFETY: an open vector, one address, and room for its number.
        let inserted = unsafe {
            let (av, from) = (self.objects.av, bytes.as_ptr().cast());
            function!(av, ops, insert)(av, from, 1, &raw mut number, 0, ptr::null_mut())
        };
        assert_eq!(inserted, 1);
        self.addresses.insert(number, address);
        peer_of(number)
    }

    pub fn address_of(&self, peer: PeerId) -> Option<Address> {
        self.addresses.get(&number(peer)).copied()
    }

    pub fn remove_peer(&mut self, peer: PeerId) -> Result<(), PostError> {
        let mut number = number(peer);
        self.addresses.remove(&number);
        // SAFETY: an open vector, and one number.
        let status = unsafe { function!(self.objects.av, ops, remove)(self.objects.av, &raw mut number, 1, 0) };
        posted(status as isize)
    }

    /// # Safety
    /// The memory must be valid until it is deregistered, or the objects are dropped.
    pub unsafe fn register(&mut self, part: Part, key: u64) {
        let (mut region, access) = (ptr::null_mut(), FI_REMOTE_READ | FI_REMOTE_WRITE);
        // SAFETY: the caller's promise; an open domain.
        let status = unsafe {
            let domain = self.objects.domain;
            let (from, to) = (part.address.cast_const().cast(), &raw mut region);
            function!(domain, mr, reg)(domain.cast(), from, part.bytes, access, 0, key, 0, to, ptr::null_mut())
        };
        assert_eq!(status, 0);
        self.regions.insert(key, Region(region));
    }

    pub fn deregister(&mut self, key: u64) {
        self.regions.remove(&key);
    }

    fn record(&mut self, status: isize, context: u64, operation: Operation, peer: PeerId) -> Result<(), PostError> {
        posted(status)?;
        self.accesses += u64::from(operation != Operation::Send);
        self.posted.insert(context, Posted { context, operation, peer: Some(peer), multi_buffer: None });
        Ok(())
    }

    /// # Safety
    /// The parts must be valid until the send has completed, or the objects are dropped.
    pub unsafe fn send(
        &mut self,
        to: PeerId,
        label: Label,
        parts: &[Part],
        options: SendOptions,
    ) -> Result<(), PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.post_send(to, label, parts, options, false) }
    }

    pub fn send_copy(&mut self, to: PeerId, label: Label, bytes: &[u8], options: SendOptions) -> Result<(), PostError> {
        // SAFETY: `bytes` is borrowed during the call, which copies it.
        unsafe { self.post_send(to, label, &[Part::of(bytes)], options, true) }
    }

    /// # Safety
    /// As for [`send`](Self::send), unless the message is copied.
    unsafe fn post_send(
        &mut self,
        to: PeerId,
        label: Label,
        parts: &[Part],
        options: SendOptions,
        is_copied: bool,
    ) -> Result<(), PostError> {
        let (ep, peer, context) = (self.objects.ep, number(to), pointer(options.context));
        let level = match options.level {
            CompletionLevel::Inject => 0,
            CompletionLevel::Transmit => FI_TRANSMIT_COMPLETE,
            CompletionLevel::Delivery => FI_DELIVERY_COMPLETE,
            CompletionLevel::Match => FI_MATCH_COMPLETE,
        };
        let flags =
            level | if is_copied { FI_INJECT } else { 0 } | if label.data.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
        let (iov, none) = (iov(parts), ptr::null_mut());
        let (msg_iov, iov_count, data) = (iov.as_ptr(), iov.len(), label.data.unwrap_or(0));
        // Every other operation uses a function without flags, where there is one.
        let is_plain = level == 0 && !is_copied && options.context.is_multiple_of(2);
        // SAFETY: the caller's promise; an open endpoint.
        let status = unsafe {
            let (tagged, msg) = (&*(*ep).tagged, &*(*ep).msg);
            match (label.tag, label.data, parts) {
                (Some(tag), None, [part]) if is_plain => {
                    tagged.send.expect("ours has it")(ep, part.address.cast(), part.bytes, none, peer, tag, context)
                }
                (Some(tag), Some(data), [part]) if is_plain => tagged.senddata.expect("ours has it")(
                    ep,
                    part.address.cast(),
                    part.bytes,
                    none,
                    data,
                    peer,
                    tag,
                    context,
                ),
                (Some(tag), None, _) if is_plain => {
                    tagged.sendv.expect("ours has it")(ep, msg_iov, none.cast(), iov_count, peer, tag, context)
                }
                (None, None, [part]) if is_plain => {
                    msg.send.expect("ours has it")(ep, part.address.cast(), part.bytes, none, peer, context)
                }
                (None, Some(data), [part]) if is_plain => {
                    msg.senddata.expect("ours has it")(ep, part.address.cast(), part.bytes, none, data, peer, context)
                }
                (None, None, _) if is_plain => {
                    msg.sendv.expect("ours has it")(ep, msg_iov, none.cast(), iov_count, peer, context)
                }
                (Some(tag), ..) => {
                    let message =
                        fi_msg_tagged { msg_iov, iov_count, addr: peer, tag, context, data, ..Default::default() };
                    tagged.sendmsg.expect("ours has it")(ep, &raw const message, flags)
                }
                (None, ..) => {
                    let message = fi_msg { msg_iov, iov_count, addr: peer, context, data, ..Default::default() };
                    msg.sendmsg.expect("ours has it")(ep, &raw const message, flags)
                }
            }
        };
        self.record(status, options.context, Operation::Send, to)
    }

    pub fn inject(&mut self, to: PeerId, label: Label, bytes: &[u8]) -> Result<(), PostError> {
        let (ep, peer, from, length) = (self.objects.ep, number(to), bytes.as_ptr().cast(), bytes.len());
        // SAFETY: an open endpoint, and bytes that are borrowed during the call.
        posted(unsafe {
            match (label.tag, label.data) {
                (Some(tag), None) => function!(ep, tagged, inject)(ep, from, length, peer, tag),
                (Some(tag), Some(data)) => function!(ep, tagged, injectdata)(ep, from, length, data, peer, tag),
                (None, None) => function!(ep, msg, inject)(ep, from, length, peer),
                (None, Some(data)) => function!(ep, msg, injectdata)(ep, from, length, data, peer),
            }
        })
    }

    /// Calls a function of the family of `fi_trecvmsg`.
    ///
    /// # Safety
    /// As for [`receive`](Self::receive).
    unsafe fn receive_with(&mut self, selector: Selector, parts: &[Part], context: u64, flags: u64) -> isize {
        let (ep, iov, context) = (self.objects.ep, iov(parts), pointer(context));
        let (msg_iov, iov_count) = (iov.as_ptr(), iov.len());
        // SAFETY: the caller's promise; an open endpoint.
        unsafe {
            match selector {
                Selector::Tagged(pattern) => {
                    let (tag, ignore, addr) = (pattern.tag, pattern.ignore, pattern.source.map_or(NO_ADDRESS, number));
                    let message =
                        fi_msg_tagged { msg_iov, iov_count, addr, tag, ignore, context, ..Default::default() };
                    function!(ep, tagged, recvmsg)(ep, &raw const message, flags)
                }
                Selector::Untagged(source) => {
                    let addr = source.map_or(NO_ADDRESS, number);
                    let message = fi_msg { msg_iov, iov_count, addr, context, ..Default::default() };
                    function!(ep, msg, recvmsg)(ep, &raw const message, flags)
                }
            }
        }
    }

    /// # Safety
    /// The parts must be valid, and used by nothing else, until the receive has ended or the objects are dropped.
    pub unsafe fn receive(
        &mut self,
        selector: Selector,
        parts: &[Part],
        options: ReceiveOptions,
    ) -> Result<(), PostError> {
        let (ep, context, none) = (self.objects.ep, pointer(options.context), ptr::null_mut());
        let is_plain = options.context.is_multiple_of(2);
        // SAFETY: the caller's promise; an open endpoint.
        let status = unsafe {
            match (selector, parts) {
                (Selector::Tagged(pattern), [part]) if is_plain => {
                    let (to, length, from) =
                        (part.address.cast(), part.bytes, pattern.source.map_or(NO_ADDRESS, number));
                    function!(ep, tagged, recv)(ep, to, length, none, from, pattern.tag, pattern.ignore, context)
                }
                (Selector::Untagged(source), [part]) if is_plain => {
                    let from = source.map_or(NO_ADDRESS, number);
                    function!(ep, msg, recv)(ep, part.address.cast(), part.bytes, none, from, context)
                }
                _ => self.receive_with(selector, parts, options.context, 0),
            }
        };
        self.record_receive(status, options.context, options.context, selector, None)
    }

    fn record_receive(
        &mut self,
        status: isize,
        given: u64,
        context: u64,
        selector: Selector,
        multi_buffer: Option<usize>,
    ) -> Result<(), PostError> {
        posted(status)?;
        let peer = match selector {
            Selector::Tagged(pattern) => pattern.source,
            Selector::Untagged(source) => source,
        };
        self.posted.insert(given, Posted { context, operation: Operation::Receive, peer, multi_buffer });
        Ok(())
    }

    /// # Safety
    /// As for [`receive`](Self::receive).
    pub unsafe fn receive_multi(
        &mut self,
        selector: Selector,
        parts: &[Part],
        min: u64,
        options: ReceiveOptions,
    ) -> Result<(), PostError> {
        let (ep, min) = (self.objects.ep, min as usize);
        // SAFETY: the caller's promise; an open endpoint, and an option of this size.
        let status = unsafe {
            let (level, name, value) =
                (FI_OPT_ENDPOINT as c_int, FI_OPT_MIN_MULTI_RECV as c_int, (&raw const min).cast());
            let set = function!(ep, ops, setopt)(&raw mut (*ep).fid, level, name, value, size_of::<usize>());
            assert_eq!(set, 0);
            self.receive_with(selector, parts, options.context, FI_MULTI_RECV)
        };
        self.record_receive(status, options.context, options.context, selector, Some(parts[0].address as usize))
    }

    /// Searches for a message with these flags, and reads the completion of the search.
    fn search(&mut self, selector: Selector, context: u64, flags: u64) -> Result<Option<Envelope>, PostError> {
        // SAFETY: no memory is lent.
        posted(unsafe { self.receive_with(selector, &[], context, flags) })?;
        let mut found = None;
        while found.is_none() {
            let entries = self.read_queue().map_err(|_| PostError::NoSuchClaim)?;
            assert!(!entries.is_empty(), "a search completes at once");
            for entry in entries {
                match entry.entry.op_context as u64 {
                    other if other != context => self.report(&entry),
                    _ => found = Some((entry.error == 0).then(|| envelope(&entry))),
                }
            }
        }
        Ok(found.flatten())
    }

    pub fn peek(&mut self, selector: Selector) -> Option<Envelope> {
        self.claims += 1;
        self.search(selector, CLAIM | self.claims, FI_PEEK).expect("a search is not refused")
    }

    pub fn claim(&mut self, selector: Selector) -> Option<(Claim, Envelope)> {
        self.claims += 1;
        let context = CLAIM | self.claims;
        let envelope = self.search(selector, context, FI_PEEK | FI_CLAIM).expect("a search is not refused")?;
        Some((Claim { context, selector }, envelope))
    }

    pub fn discard(&mut self, Claim { context, selector }: Claim) -> Result<(), PostError> {
        self.search(selector, context, FI_CLAIM | FI_DISCARD).map(|_| ())
    }

    /// # Safety
    /// As for [`receive`](Self::receive).
    pub unsafe fn receive_claimed(
        &mut self,
        Claim { context, selector }: Claim,
        parts: &[Part],
        options: ReceiveOptions,
    ) -> Result<(), PostError> {
        // SAFETY: the caller's promise.
        let status = unsafe { self.receive_with(selector, parts, context, FI_CLAIM) };
        self.record_receive(status, context, options.context, selector, None)
    }

    pub fn cancel(&mut self, context: u64) -> bool {
        let mut posted = self.posted.iter();
        let Some(given) = posted.find_map(|(given, posted)| (posted.context == context).then_some(*given)) else {
            return false;
        };
        let ep = self.objects.ep;
        // SAFETY: an open endpoint.
        unsafe { function!(ep, ops, cancel)(&raw mut (*ep).fid, pointer(given)) == 0 }
    }

    /// # Safety
    /// As for [`send`](Self::send).
    pub unsafe fn write(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        parts: &[Part],
        data: Option<u64>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        // SAFETY: the caller's promise.
        unsafe { self.post_write(to, at, parts, data, options, false) }
    }

    pub fn write_copy(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        bytes: &[u8],
        data: Option<u64>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        // SAFETY: `bytes` is borrowed during the call, which copies it.
        unsafe { self.post_write(to, at, &[Part::of(bytes)], data, options, true) }
    }

    /// # Safety
    /// As for [`send`](Self::send), unless the bytes are copied.
    unsafe fn post_write(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        parts: &[Part],
        data: Option<u64>,
        options: SendOptions,
        is_copied: bool,
    ) -> Result<(), PostError> {
        let (ep, iov, context) = (self.objects.ep, iov(parts), pointer(options.context));
        let rma = fi_rma_iov { addr: at.offset, len: parts.iter().map(|part| part.bytes).sum(), key: at.key };
        let flags = if is_copied { FI_INJECT } else { 0 } | if data.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
        let message = fi_msg_rma {
            msg_iov: iov.as_ptr(),
            iov_count: iov.len(),
            addr: number(to),
            rma_iov: &raw const rma,
            rma_iov_count: 1,
            context,
            data: data.unwrap_or(0),
            ..Default::default()
        };
        // SAFETY: the caller's promise; an open endpoint.
        let status = unsafe { function!(ep, rma, writemsg)(ep, &raw const message, flags) };
        self.record(status, options.context, Operation::Write, to)
    }

    pub fn inject_write(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        bytes: &[u8],
        data: Option<u64>,
    ) -> Result<(), PostError> {
        let (ep, from, peer, RemoteAddress { key, offset }) = (self.objects.ep, bytes.as_ptr().cast(), number(to), at);
        // SAFETY: an open endpoint, and bytes that are borrowed during the call.
        posted(unsafe {
            match data {
                None => function!(ep, rma, inject)(ep, from, bytes.len(), peer, offset, key),
                Some(data) => function!(ep, rma, injectdata)(ep, from, bytes.len(), data, peer, offset, key),
            }
        })?;
        self.accesses += 1;
        Ok(())
    }

    /// # Safety
    /// As for [`receive`](Self::receive).
    pub unsafe fn read(
        &mut self,
        from: PeerId,
        at: RemoteAddress,
        parts: &[Part],
        options: SendOptions,
    ) -> Result<(), PostError> {
        let part = &parts[0];
        let (ep, to, context) = (self.objects.ep, part.address.cast(), pointer(options.context));
        // SAFETY: the caller's promise; an open endpoint.
        let status = unsafe {
            let none = ptr::null_mut();
            function!(ep, rma, read)(ep, to, part.bytes, none, number(from), at.offset, at.key, context)
        };
        self.record(status, options.context, Operation::Read, from)
    }

    /// Adds to 64 bits, the only operation and type of simulated programs.
    ///
    /// # Safety
    /// As for [`receive`](Self::receive).
    pub unsafe fn atomic(
        &mut self,
        to: PeerId,
        at: RemoteAddress,
        operation: AtomicOperation,
        kind: AtomicType,
        parts: AtomicParts<'_>,
        options: SendOptions,
    ) -> Result<(), PostError> {
        assert_eq!((operation, kind), (AtomicOperation::Sum, AtomicType::U64));
        let (ep, none, context) = (self.objects.ep, ptr::null_mut(), pointer(options.context));
        let (peer, RemoteAddress { key, offset }) = (number(to), at);
        let operand = parts.operand[0].address.cast_const().cast();
        // SAFETY: the caller's promise; an open endpoint.
        let (status, operation) = unsafe {
            match parts.result {
                [] => {
                    let add = function!(ep, atomic, write);
                    (add(ep, operand, 1, none, peer, offset, key, FI_UINT64, FI_SUM, context), Operation::Atomic)
                }
                [result, ..] => {
                    let (add, result) = (function!(ep, atomic, readwrite), result.address.cast());
                    let status = add(ep, operand, 1, none, result, none, peer, offset, key, FI_UINT64, FI_SUM, context);
                    (status, Operation::FetchAtomic)
                }
            }
        };
        self.record(status, options.context, operation, to)
    }

    pub fn has_unexpected(&self, selector: Selector) -> bool {
        self.objects.has_unexpected(selector)
    }

    pub fn unexpected_bytes(&self) -> usize {
        self.objects.unexpected_bytes()
    }

    pub fn inject_max(&self) -> usize {
        self.objects.inject_max()
    }

    pub fn inject_write_max(&self) -> usize {
        self.objects.inject_write_max()
    }

    pub fn settle(&mut self) -> Result<bool, EndpointError> {
        self.objects.settle()
    }

    pub fn is_rung(&self) -> bool {
        self.objects.is_rung()
    }

    pub fn progress_thread_sleeps(&self) -> Duration {
        self.objects.progress_thread_sleeps()
    }

    /// Runs the progress thread if it is due, or if a peer or a frame wakes it; returns for how long it sleeps then.
    pub fn run_progress_thread(&mut self, is_due: bool, has_frames: bool) -> Option<Duration> {
        let wakes = is_due || self.objects.is_rung() || (has_frames && self.objects.awaits_frames());
        wakes.then(|| self.objects.run_progress_thread())
    }

    /// The accesses that were posted, and those that the counter has counted, if there is one.
    pub fn accesses(&self) -> (u64, Option<u64>) {
        let cntr = self.objects.cntr;
        // SAFETY: an open counter.
        let counted = (!cntr.is_null())
            .then(|| unsafe { function!(cntr, ops, read)(cntr) + function!(cntr, ops, readerr)(cntr) });
        (self.accesses, counted)
    }

    pub fn prepare_to_sleep(&mut self, longest: Duration) -> Result<Option<Duration>, String> {
        self.objects.prepare_to_sleep(longest).map_err(|error| format!("fi_trywait: error {error}"))
    }
}
