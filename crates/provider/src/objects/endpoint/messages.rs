// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tagged and untagged messages: `fi_tsend`, `fi_recvmsg` and their families.

use std::ffi::c_void;
use std::slice;

use barewire_messages::{CompletionLevel, Label, Part, Pattern, ReceiveOptions, Selector, SendOptions};

use super::{EndpointFid, endpoint_of};
use crate::bindings::*;
use crate::edge::{Errno, Result, guard};
use crate::endpoint::{Endpoint, MULTI_RECEIVE_BIT, MultiReceive, reliable};
use crate::info::PARTS;
use crate::queue::Entry;
use crate::state::State;
use crate::table::Table;
use crate::vector::Vector;

pub(super) static TAGGED_OPS: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
    recv: Some(trecv),
    recvv: Some(trecvv),
    recvmsg: Some(trecvmsg),
    send: Some(tsend),
    sendv: Some(tsendv),
    sendmsg: Some(tsendmsg),
    inject: Some(tinject),
    senddata: Some(tsenddata),
    injectdata: Some(tinjectdata),
};
pub(super) static MESSAGE_OPS: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(send),
    sendv: Some(sendv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
};

/// A message to send.
struct Outgoing<'a> {
    parts: &'a [Part],
    to: fi_addr_t,
    label: Label,
    context: *mut c_void,
}

/// A receive to post.
struct Incoming<'a> {
    parts: &'a [Part],
    from: fi_addr_t,
    /// Tag and bits to ignore; `None` for an untagged receive.
    tag: Option<(u64, u64)>,
    context: *mut c_void,
}

/// The flags of an operation.
#[derive(Clone, Copy)]
pub(super) enum Flags {
    /// The endpoint's default flags.
    Default,
    /// None, so that there is no completion.
    Injected,
    /// The call's flags.
    Given(u64),
}

/// Error for an injected message beyond the limit.
const TOO_LONG: Errno = Errno(libc::EMSGSIZE as u32);
/// `FI_ADDR_UNSPEC`: any source.
const UNSPECIFIED: fi_addr_t = u64::MAX;

impl EndpointFid {
    /// # Safety
    /// The parts must be valid until the operation has ended.
    #[inline]
    unsafe fn send(&self, message: &Outgoing<'_>, flags: Flags) -> Result<isize> {
        let mut state = self.shared.lock()?;
        let State { endpoints, vectors, .. } = &mut *state;
        let endpoint = &mut endpoints[self.number];
        let to = endpoint.peer(vectors, message.to)?;
        let flags = endpoint.effective_transmit_flags(flags);
        let kind = if message.label.tag.is_some() { FI_SEND | FI_TAGGED } else { FI_SEND | FI_MSG };
        let options = SendOptions {
            context: message.context as u64,
            note: kind as u32,
            level: match flags {
                _ if flags & FI_MATCH_COMPLETE != 0 => CompletionLevel::Match,
                _ if flags & FI_DELIVERY_COMPLETE != 0 => CompletionLevel::Delivery,
                _ if flags & FI_TRANSMIT_COMPLETE != 0 => CompletionLevel::Transmit,
                _ => CompletionLevel::Inject,
            },
            is_silent: flags & FI_COMPLETION == 0,
        };
        let max_bytes = endpoint.inject_size;
        let wire = endpoint.wire()?;
        // SAFETY: the caller's promise.
        let posted = unsafe {
            if flags & FI_INJECT == 0 {
                wire.send(to, message.label, message.parts, options)
            } else {
                // The program may reuse its buffer at once.
                inject_parts(message.parts, max_bytes, |bytes| wire.send_copy(to, message.label, bytes, options))
            }
        };
        state.finish_post(self.number, posted)
    }

    #[inline(always)]
    fn inject(&self, bytes: &[u8], to: fi_addr_t, label: Label) -> Result<isize> {
        let mut state = self.shared.lock()?;
        let State { endpoints, vectors, .. } = &mut *state;
        let endpoint = &mut endpoints[self.number];
        let to = endpoint.peer(vectors, to)?;
        if bytes.len() > endpoint.inject_size {
            return Err(TOO_LONG);
        }
        let options = SendOptions { is_silent: true, ..SendOptions::default() };
        let posted = endpoint.wire()?.send_copy(to, label, bytes, options);
        state.finish_post(self.number, posted)
    }

    /// # Safety
    /// The parts must be valid, and used by nothing else, until the operation has ended.
    #[inline]
    unsafe fn receive(&self, receive: &Incoming<'_>, flags: Flags) -> Result<isize> {
        let mut state = self.shared.lock()?;
        let State { endpoints, vectors, .. } = &mut *state;
        let endpoint = &mut endpoints[self.number];
        let is_given = matches!(flags, Flags::Given(_));
        let flags = endpoint.effective_receive_flags(flags);
        // A claimed message has matched: its source may have been removed from the address vector since.
        let names_source = endpoint.is_directed && flags & (FI_PEEK | FI_CLAIM) != FI_CLAIM;
        let source = match receive.from {
            from if names_source && from != UNSPECIFIED => Some(endpoint.peer(vectors, from)?),
            _ => None,
        };
        let (wanted, kind) = match receive.tag {
            Some((tag, ignore)) => (Selector::Tagged(Pattern { source, tag, ignore }), FI_RECV | FI_TAGGED),
            None => (Selector::Untagged(source), FI_RECV | FI_MSG),
        };
        let options = ReceiveOptions {
            context: receive.context as u64,
            note: kind as u32,
            is_silent: flags & FI_COMPLETION == 0,
        };
        if flags & (FI_PEEK | FI_CLAIM | FI_DISCARD) != 0 {
            state.progress_of(self.number)?;
            let State { endpoints, vectors, queues, .. } = &mut *state;
            let endpoint = &mut endpoints[self.number];
            // SAFETY: the caller's promise.
            let entry = unsafe { endpoint.peek_or_claim(wanted, receive, flags, options, vectors) }?;
            if let (Some(entry), Some(bound)) = (entry, endpoint.receive) {
                queues[bound.queue].push(entry);
            }
            return state.finish_post(self.number, Ok(()));
        }
        // As a default the flag is meant for untagged receives.
        let is_multi = flags & FI_MULTI_RECV != 0 && (receive.tag.is_none() || is_given);
        if !is_multi {
            // SAFETY: the caller's promise.
            let posted = unsafe { endpoint.wire()?.receive(wanted, receive.parts, options) };
            return state.finish_post(self.number, posted);
        }
        let [part] = receive.parts else { return Err(Errno::INVALID) };
        endpoint.multi_receives_posted += 1;
        let number = MULTI_RECEIVE_BIT | endpoint.multi_receives_posted;
        let note = (kind | FI_MULTI_RECV) as u32;
        let options = ReceiveOptions { context: number, note, ..options };
        let min_room = endpoint.min_multi_recv as u64;
        // SAFETY: the caller's promise.
        let posted = unsafe { reliable(&mut endpoint.wire)?.receive_multi(wanted, receive.parts, min_room, options) };
        if posted.is_ok() {
            endpoint.multi_receives.push(MultiReceive { number, context: receive.context, base: part.address });
        }
        state.finish_post(self.number, posted.map_err(Errno::from))
    }
}

impl Endpoint {
    #[inline]
    pub(super) fn effective_transmit_flags(&self, flags: Flags) -> u64 {
        let always = self.transmit.map_or(0, |bound| if bound.is_selective { 0 } else { FI_COMPLETION });
        match flags {
            Flags::Default => always | self.transmit_flags,
            Flags::Injected => 0,
            Flags::Given(flags) => always | flags,
        }
    }

    #[inline]
    fn effective_receive_flags(&self, flags: Flags) -> u64 {
        let always = self.receive.map_or(0, |bound| if bound.is_selective { 0 } else { FI_COMPLETION });
        always | if let Flags::Given(flags) = flags { flags } else { self.receive_flags }
    }

    /// Searches for an unexpected message (`FI_PEEK`), claims it (`FI_CLAIM`) or discards it (`FI_DISCARD`). Returns an
    /// entry for an immediate completion, if any.
    ///
    /// # Safety
    /// As for [`EndpointFid::receive`].
    unsafe fn peek_or_claim(
        &mut self,
        wanted: Selector,
        receive: &Incoming<'_>,
        flags: u64,
        options: ReceiveOptions,
        vectors: &Table<Vector>,
    ) -> Result<Option<Entry>> {
        let messenger = reliable(&mut self.wire)?;
        let mut entry = Entry::new(receive.context, u64::from(options.note));
        let claim_context = receive.context as usize;
        if flags & FI_PEEK == 0 {
            let index = self.claims.iter().position(|(context, _)| *context == claim_context).ok_or(Errno::INVALID)?;
            let (_, claim) = self.claims.swap_remove(index);
            if flags & FI_DISCARD != 0 {
                let envelope = messenger.discard(claim)?;
                self.set_envelope(&mut entry, &envelope, vectors);
                return Ok(Some(entry));
            }
            // SAFETY: the caller's promise.
            unsafe { messenger.receive_claimed(claim, receive.parts, options) }?;
            return Ok(None);
        }
        let found = if flags & (FI_CLAIM | FI_DISCARD) == 0 {
            messenger.peek(wanted).map(|envelope| (None, envelope))
        } else {
            messenger.claim(wanted).map(|(claim, envelope)| (Some(claim), envelope))
        };
        let Some((claim, envelope)) = found else {
            entry.error = FI_ENOMSG;
            return Ok(Some(entry));
        };
        match claim {
            Some(claim) if flags & FI_DISCARD != 0 => {
                messenger.discard(claim)?;
            }
            Some(claim) => self.claims.push((claim_context, claim)),
            None => {}
        }
        self.set_envelope(&mut entry, &envelope, vectors);
        Ok(Some(entry))
    }
}

/// Posts the concatenated bytes of the parts, at most `max_bytes`.
///
/// # Safety
/// The parts must be valid for reads.
pub(super) unsafe fn inject_parts(
    parts: &[Part],
    max_bytes: usize,
    post: impl FnOnce(&[u8]) -> Result<()>,
) -> Result<()> {
    if parts.iter().map(|part| part.bytes).sum::<usize>() > max_bytes {
        return Err(TOO_LONG);
    }
    // SAFETY: the caller's promise.
    let bytes = |part: &Part| unsafe { bytes(part.address.cast(), part.bytes) };
    match parts {
        [part] => post(bytes(part)),
        parts => post(&parts.iter().map(bytes).collect::<Vec<_>>().concat()),
    }
}

/// # Safety
/// `length` bytes at `address` must be valid for reads while the result is used.
pub(super) unsafe fn bytes<'a>(address: *const c_void, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(address.cast(), length) }
}

#[inline]
pub(super) fn part(address: *const c_void, bytes: usize) -> Part {
    Part { address: address.cast_mut().cast(), bytes }
}

/// Converts an I/O vector to parts and passes them to `run`.
///
/// # Safety
/// `iov` must have `count` entries.
#[inline]
pub(super) unsafe fn with_parts(
    iov: *const iovec,
    count: usize,
    run: impl FnOnce(&[Part]) -> Result<isize>,
) -> Result<isize> {
    if count > PARTS {
        return Err(Errno::INVALID);
    }
    let mut parts = [Part { address: std::ptr::null_mut(), bytes: 0 }; PARTS];
    for (index, part) in parts.iter_mut().enumerate().take(count) {
        // SAFETY: the caller's promise.
        let entry = unsafe { &*iov.add(index) };
        *part = Part { address: entry.iov_base.cast(), bytes: entry.iov_len };
    }
    run(&parts[..count])
}

/// The remote CQ data of a call with a message structure, if its flags announce any.
pub(super) fn remote_data(flags: u64, data: u64) -> Option<u64> {
    (flags & FI_REMOTE_CQ_DATA != 0).then_some(data)
}

unsafe extern "C" fn tsend(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let (parts, label) = (&[part(buf, len)], Label { tag: Some(tag), data: None });
    // SAFETY: libfabric's promise: an open endpoint, and memory that is valid until the operation ends.
    guard("fi_tsend", || unsafe { endpoint_of(ep).send(&Outgoing { parts, to, label, context }, Flags::Default) })
}

unsafe extern "C" fn tsenddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let (parts, label) = (&[part(buf, len)], Label { tag: Some(tag), data: Some(data) });
    // SAFETY: as in `tsend`.
    guard("fi_tsenddata", || unsafe { endpoint_of(ep).send(&Outgoing { parts, to, label, context }, Flags::Default) })
}

unsafe extern "C" fn tsendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let label = Label { tag: Some(tag), data: None };
    // SAFETY: as in `tsend`.
    guard("fi_tsendv", || unsafe {
        with_parts(iov, count, |parts| endpoint_of(ep).send(&Outgoing { parts, to, label, context }, Flags::Default))
    })
}

unsafe extern "C" fn tsendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: as in `tsend`, with a valid message structure.
    guard("fi_tsendmsg", || unsafe {
        let &fi_msg_tagged { msg_iov, iov_count, addr: to, tag, context, data, .. } = &*msg;
        let label = Label { tag: Some(tag), data: remote_data(flags, data) };
        with_parts(msg_iov, iov_count, |parts| {
            endpoint_of(ep).send(&Outgoing { parts, to, label, context }, Flags::Given(flags))
        })
    })
}

unsafe extern "C" fn tinject(ep: *mut fid_ep, buf: *const c_void, len: usize, to: fi_addr_t, tag: u64) -> isize {
    // SAFETY: as in `tsend`.
    guard("fi_tinject", || unsafe { endpoint_of(ep).inject(bytes(buf, len), to, Label { tag: Some(tag), data: None }) })
}

unsafe extern "C" fn tinjectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: as in `tsend`.
    guard("fi_tinjectdata", || unsafe {
        endpoint_of(ep).inject(bytes(buf, len), to, Label { tag: Some(tag), data: Some(data) })
    })
}

unsafe extern "C" fn trecv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let (parts, tag) = (&[part(buf, len)], Some((tag, ignore)));
    // SAFETY: as in `tsend`.
    guard("fi_trecv", || unsafe { endpoint_of(ep).receive(&Incoming { parts, from, tag, context }, Flags::Default) })
}

unsafe extern "C" fn trecvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let tag = Some((tag, ignore));
    // SAFETY: as in `tsend`.
    guard("fi_trecvv", || unsafe {
        with_parts(iov, count, |parts| endpoint_of(ep).receive(&Incoming { parts, from, tag, context }, Flags::Default))
    })
}

unsafe extern "C" fn trecvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: as in `tsendmsg`.
    guard("fi_trecvmsg", || unsafe {
        let &fi_msg_tagged { msg_iov, iov_count, addr: from, tag, ignore, context, .. } = &*msg;
        let tag = Some((tag, ignore));
        with_parts(msg_iov, iov_count, |parts| {
            endpoint_of(ep).receive(&Incoming { parts, from, tag, context }, Flags::Given(flags))
        })
    })
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let (parts, label) = (&[part(buf, len)], Label { tag: None, data: None });
    // SAFETY: as in `tsend`.
    guard("fi_send", || unsafe { endpoint_of(ep).send(&Outgoing { parts, to, label, context }, Flags::Default) })
}

unsafe extern "C" fn senddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let (parts, label) = (&[part(buf, len)], Label { tag: None, data: Some(data) });
    // SAFETY: as in `tsend`.
    guard("fi_senddata", || unsafe { endpoint_of(ep).send(&Outgoing { parts, to, label, context }, Flags::Default) })
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let label = Label { tag: None, data: None };
    // SAFETY: as in `tsend`.
    guard("fi_sendv", || unsafe {
        with_parts(iov, count, |parts| endpoint_of(ep).send(&Outgoing { parts, to, label, context }, Flags::Default))
    })
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: as in `tsendmsg`.
    guard("fi_sendmsg", || unsafe {
        let &fi_msg { msg_iov, iov_count, addr: to, context, data, .. } = &*msg;
        let label = Label { tag: None, data: remote_data(flags, data) };
        with_parts(msg_iov, iov_count, |parts| {
            endpoint_of(ep).send(&Outgoing { parts, to, label, context }, Flags::Given(flags))
        })
    })
}

unsafe extern "C" fn inject(ep: *mut fid_ep, buf: *const c_void, len: usize, to: fi_addr_t) -> isize {
    // SAFETY: as in `tsend`.
    guard("fi_inject", || unsafe { endpoint_of(ep).inject(bytes(buf, len), to, Label { tag: None, data: None }) })
}

unsafe extern "C" fn injectdata(ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, to: fi_addr_t) -> isize {
    // SAFETY: as in `tsend`.
    guard("fi_injectdata", || unsafe {
        endpoint_of(ep).inject(bytes(buf, len), to, Label { tag: None, data: Some(data) })
    })
}

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _: *mut c_void,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    let parts = &[part(buf, len)];
    // SAFETY: as in `tsend`.
    guard("fi_recv", || unsafe {
        endpoint_of(ep).receive(&Incoming { parts, from, tag: None, context }, Flags::Default)
    })
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: as in `tsend`.
    guard("fi_recvv", || unsafe {
        with_parts(iov, count, |parts| {
            endpoint_of(ep).receive(&Incoming { parts, from, tag: None, context }, Flags::Default)
        })
    })
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: as in `tsendmsg`.
    guard("fi_recvmsg", || unsafe {
        let &fi_msg { msg_iov, iov_count, addr: from, context, .. } = &*msg;
        with_parts(msg_iov, iov_count, |parts| {
            endpoint_of(ep).receive(&Incoming { parts, from, tag: None, context }, Flags::Given(flags))
        })
    })
}
