// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages, tagged and not: `fi_tsend`, `fi_recvmsg` and their family.

use std::ffi::c_void;
use std::slice;

use barewire_messages::{CompletionLevel, Label, Part, Pattern, ReceiveOptions, Selector, SendOptions};

use super::{EndpointFid, of};
use crate::bindings::*;
use crate::edge::{Errno, Result, guard};
use crate::endpoint::{Endpoint, Many, OF_MANY, reliable};
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
    /// Tag, and bits of it that do not matter; `None` of an untagged one.
    tag: Option<(u64, u64)>,
    context: *mut c_void,
}

/// Which flags an operation has.
#[derive(Clone, Copy)]
pub(super) enum Flags {
    /// The endpoint's.
    Default,
    /// None: nobody is told.
    Injected,
    /// The call's own.
    Given(u64),
}

/// More than is injected.
const TOO_LONG: Errno = Errno(libc::EMSGSIZE as u32);
/// The address that means "from anybody".
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
        let flags = endpoint.flags_to_send(flags);
        let kind = if message.label.tag.is_some() { FI_SEND | FI_TAGGED } else { FI_SEND | FI_MSG };
        let options = SendOptions {
            context: message.context as u64,
            note: kind as u32,
            level: match flags {
                _ if flags & FI_DELIVERY_COMPLETE != 0 => CompletionLevel::Delivery,
                _ if flags & FI_TRANSMIT_COMPLETE != 0 => CompletionLevel::Transmit,
                _ => CompletionLevel::Inject,
            },
            is_silent: flags & FI_COMPLETION == 0,
        };
        let most = endpoint.inject_size;
        let wire = endpoint.wire()?;
        // SAFETY: the caller's promise.
        let posted = unsafe {
            if flags & FI_INJECT == 0 {
                wire.send(to, message.label, message.parts, options)
            } else {
                // The program may use its memory again at once, whatever becomes of the message.
                inject_parts(message.parts, most, |bytes| wire.send_copy(to, message.label, bytes, options))
            }
        };
        state.posted(self.number, posted)
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
        state.posted(self.number, posted)
    }

    /// # Safety
    /// The parts must be valid, and used by nothing else, until the operation has ended.
    #[inline]
    unsafe fn receive(&self, receive: &Incoming<'_>, flags: Flags) -> Result<isize> {
        let mut state = self.shared.lock()?;
        let State { endpoints, vectors, .. } = &mut *state;
        let endpoint = &mut endpoints[self.number];
        let source = match receive.from {
            UNSPECIFIED => None,
            from if endpoint.is_directed => Some(endpoint.peer(vectors, from)?),
            _ => None,
        };
        let (wanted, kind) = match receive.tag {
            Some((tag, ignore)) => (Selector::Tagged(Pattern { source, tag, ignore }), FI_RECV | FI_TAGGED),
            None => (Selector::Untagged(source), FI_RECV | FI_MSG),
        };
        let flags = endpoint.flags_to_receive(flags);
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
            let told = unsafe { endpoint.look_ahead(wanted, receive, flags, options, vectors) }?;
            if let (Some(entry), Some(bound)) = (told, endpoint.receive) {
                queues[bound.queue].push(entry);
            }
            return state.posted(self.number, Ok(()));
        }
        if flags & FI_MULTI_RECV == 0 {
            // SAFETY: the caller's promise.
            unsafe { endpoint.wire()?.receive(wanted, receive.parts, options) }?;
            return state.posted(self.number, Ok(()));
        }
        let [part] = receive.parts else { return Err(Errno::INVALID) };
        endpoint.many_numbered += 1;
        let number = OF_MANY | endpoint.many_numbered;
        let note = (kind | FI_MULTI_RECV) as u32;
        let options = ReceiveOptions { context: number, note, ..options };
        let least = endpoint.least as u64;
        // SAFETY: the caller's promise.
        unsafe { reliable(&mut endpoint.wire)?.receive_multi(wanted, receive.parts, least, options) }?;
        endpoint.many.push(Many { number, context: receive.context, base: part.address });
        state.posted(self.number, Ok(()))
    }
}

impl Endpoint {
    #[inline]
    pub(super) fn flags_to_send(&self, flags: Flags) -> u64 {
        let always = self.transmit.map_or(0, |bound| if bound.is_selective { 0 } else { FI_COMPLETION });
        match flags {
            Flags::Default => always | self.transmit_flags,
            Flags::Injected => 0,
            Flags::Given(flags) => always | flags,
        }
    }

    #[inline]
    fn flags_to_receive(&self, flags: Flags) -> u64 {
        let always = self.receive.map_or(0, |bound| if bound.is_selective { 0 } else { FI_COMPLETION });
        always | if let Flags::Given(flags) = flags { flags } else { self.receive_flags }
    }

    /// Looks for a message without a receive (`FI_PEEK`), takes it out of matching for later (`FI_CLAIM`), or away
    /// (`FI_DISCARD`); what to tell at once, if anything.
    ///
    /// # Safety
    /// As of [`EndpointFid::receive`].
    unsafe fn look_ahead(
        &mut self,
        wanted: Selector,
        receive: &Incoming<'_>,
        flags: u64,
        options: ReceiveOptions,
        vectors: &Table<Vector>,
    ) -> Result<Option<Entry>> {
        let messenger = reliable(&mut self.wire)?;
        let mut entry = Entry::new(receive.context, u64::from(options.note));
        let claimed_as = receive.context as usize;
        if flags & FI_PEEK == 0 {
            let place = self.claims.iter().position(|(context, _)| *context == claimed_as).ok_or(Errno::INVALID)?;
            let (_, claim) = self.claims.swap_remove(place);
            if flags & FI_DISCARD != 0 {
                let envelope = messenger.discard(claim)?;
                self.describe(&mut entry, &envelope, vectors);
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
            Some(claim) => self.claims.push((claimed_as, claim)),
            None => {}
        }
        self.describe(&mut entry, &envelope, vectors);
        Ok(Some(entry))
    }
}

/// Runs with the bytes of several parts, together, of which there may be so many.
///
/// # Safety
/// The parts must be valid to be read.
pub(super) unsafe fn inject_parts(parts: &[Part], most: usize, post: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
    if parts.iter().map(|part| part.bytes).sum::<usize>() > most {
        return Err(TOO_LONG);
    }
    // SAFETY: the caller's promise.
    let bytes = |part: &Part| unsafe { bytes(part.address.cast(), part.bytes) };
    match parts {
        [part] => post(bytes(part)),
        parts => post(&parts.iter().flat_map(bytes).copied().collect::<Vec<u8>>()),
    }
}

/// # Safety
/// `length` bytes at `address` must be valid to be read while the result is used.
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

/// Runs with a program's vector as parts.
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
    for (place, part) in parts.iter_mut().enumerate().take(count) {
        // SAFETY: the caller's promise.
        let entry = unsafe { &*iov.add(place) };
        *part = Part { address: entry.iov_base.cast(), bytes: entry.iov_len };
    }
    run(&parts[..count])
}

/// Of the calls with a structure: data only if they say so.
pub(super) fn data_if(flags: u64, data: u64) -> Option<u64> {
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
    // SAFETY: libfabric's promise: an endpoint that is open, memory that is valid until the operation ends.
    guard("fi_tsend", || unsafe { of(ep).send(&Outgoing { parts, to, label, context }, Flags::Default) })
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
    // SAFETY: as of `tsend`.
    guard("fi_tsenddata", || unsafe { of(ep).send(&Outgoing { parts, to, label, context }, Flags::Default) })
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
    // SAFETY: as of `tsend`.
    guard("fi_tsendv", || unsafe {
        with_parts(iov, count, |parts| of(ep).send(&Outgoing { parts, to, label, context }, Flags::Default))
    })
}

unsafe extern "C" fn tsendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: as of `tsend`; and a message that is valid.
    guard("fi_tsendmsg", || unsafe {
        let &fi_msg_tagged { msg_iov, iov_count, addr: to, tag, context, data, .. } = &*msg;
        let label = Label { tag: Some(tag), data: data_if(flags, data) };
        with_parts(msg_iov, iov_count, |parts| {
            of(ep).send(&Outgoing { parts, to, label, context }, Flags::Given(flags))
        })
    })
}

unsafe extern "C" fn tinject(ep: *mut fid_ep, buf: *const c_void, len: usize, to: fi_addr_t, tag: u64) -> isize {
    // SAFETY: as of `tsend`.
    guard("fi_tinject", || unsafe { of(ep).inject(bytes(buf, len), to, Label { tag: Some(tag), data: None }) })
}

unsafe extern "C" fn tinjectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: as of `tsend`.
    guard("fi_tinjectdata", || unsafe {
        of(ep).inject(bytes(buf, len), to, Label { tag: Some(tag), data: Some(data) })
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
    // SAFETY: as of `tsend`.
    guard("fi_trecv", || unsafe { of(ep).receive(&Incoming { parts, from, tag, context }, Flags::Default) })
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
    // SAFETY: as of `tsend`.
    guard("fi_trecvv", || unsafe {
        with_parts(iov, count, |parts| of(ep).receive(&Incoming { parts, from, tag, context }, Flags::Default))
    })
}

unsafe extern "C" fn trecvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: as of `tsendmsg`.
    guard("fi_trecvmsg", || unsafe {
        let &fi_msg_tagged { msg_iov, iov_count, addr: from, tag, ignore, context, .. } = &*msg;
        let tag = Some((tag, ignore));
        with_parts(msg_iov, iov_count, |parts| {
            of(ep).receive(&Incoming { parts, from, tag, context }, Flags::Given(flags))
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
    // SAFETY: as of `tsend`.
    guard("fi_send", || unsafe { of(ep).send(&Outgoing { parts, to, label, context }, Flags::Default) })
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
    // SAFETY: as of `tsend`.
    guard("fi_senddata", || unsafe { of(ep).send(&Outgoing { parts, to, label, context }, Flags::Default) })
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
    // SAFETY: as of `tsend`.
    guard("fi_sendv", || unsafe {
        with_parts(iov, count, |parts| of(ep).send(&Outgoing { parts, to, label, context }, Flags::Default))
    })
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: as of `tsendmsg`.
    guard("fi_sendmsg", || unsafe {
        let &fi_msg { msg_iov, iov_count, addr: to, context, data, .. } = &*msg;
        let label = Label { tag: None, data: data_if(flags, data) };
        with_parts(msg_iov, iov_count, |parts| {
            of(ep).send(&Outgoing { parts, to, label, context }, Flags::Given(flags))
        })
    })
}

unsafe extern "C" fn inject(ep: *mut fid_ep, buf: *const c_void, len: usize, to: fi_addr_t) -> isize {
    // SAFETY: as of `tsend`.
    guard("fi_inject", || unsafe { of(ep).inject(bytes(buf, len), to, Label { tag: None, data: None }) })
}

unsafe extern "C" fn injectdata(ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, to: fi_addr_t) -> isize {
    // SAFETY: as of `tsend`.
    guard("fi_injectdata", || unsafe { of(ep).inject(bytes(buf, len), to, Label { tag: None, data: Some(data) }) })
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
    // SAFETY: as of `tsend`.
    guard("fi_recv", || unsafe { of(ep).receive(&Incoming { parts, from, tag: None, context }, Flags::Default) })
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _: *mut *mut c_void,
    count: usize,
    from: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: as of `tsend`.
    guard("fi_recvv", || unsafe {
        with_parts(iov, count, |parts| of(ep).receive(&Incoming { parts, from, tag: None, context }, Flags::Default))
    })
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: as of `tsendmsg`.
    guard("fi_recvmsg", || unsafe {
        let &fi_msg { msg_iov, iov_count, addr: from, context, .. } = &*msg;
        with_parts(msg_iov, iov_count, |parts| {
            of(ep).receive(&Incoming { parts, from, tag: None, context }, Flags::Given(flags))
        })
    })
}
