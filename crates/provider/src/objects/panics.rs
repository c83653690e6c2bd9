// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of poisoned domains. They call the functions that libfabric calls, on a domain whose endpoint has no link.

use std::ptr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::simulation::opened;
use super::*;
use crate::address::Reach;
use crate::backoff::CoreSharing;
use crate::device::Device;
use crate::lock::Lock;
use crate::parameters::Parameters;
use crate::poison::Poison;
use crate::progress_request::ProgressRequest;
use crate::state::State;

const OTHER: isize = -(FI_EOTHER as isize);
const BAD_STATE: isize = -(FI_EOPBADSTATE as isize);

/// A program with one object of each kind. Its queue and its counter have descriptors.
struct Program {
    domain: *mut fid_domain,
    cq: *mut fid_cq,
    cntr: *mut fid_cntr,
    av: *mut fid_av,
    ep: *mut fid_ep,
    mr: *mut fid_mr,
    poll: *mut fid_poll,
    shared: Arc<Shared>,
    fabric: Arc<()>,
}

// SAFETY: libfabric's objects may be used by any thread.
unsafe impl Sync for Program {}
// SAFETY: as above.
unsafe impl Send for Program {}

impl Program {
    fn new() -> Self {
        let (progress_request, poison) =
            (Arc::new(ProgressRequest::new(false, CoreSharing::Unknown).unwrap()), Arc::new(Poison::new().unwrap()));
        let shared = Arc::new(Shared {
            state: Lock::shared(State::new(progress_request.clone(), poison.clone())),
            poison,
            device: Device { name: "none".to_owned(), mtu: 1500, mtu_max: 1500, reach: Reach::FRAMES },
            parameters: Parameters::default(),
            used: Arc::new(()),
            process: std::process::id(),
        });
        let (progress_thread, fabric) = (ProgressThread::start(&shared, progress_request).unwrap(), Arc::new(()));
        let domain = domain::new(shared.clone(), Some(progress_thread), fabric.clone(), ptr::null_mut());
        let mut queue = fi_cq_attr { wait_obj: FI_WAIT_FD, ..Default::default() };
        let mut counter = fi_cntr_attr { wait_obj: FI_WAIT_FD, ..Default::default() };
        let (mut vector, mut info, none) = (fi_av_attr::default(), fi_info::default(), ptr::null_mut());
        // SAFETY: an open domain, and valid attributes.
        unsafe {
            Self {
                cq: opened(|to| queue::open(domain, &raw mut queue, to, none)),
                cntr: opened(|to| counter::open(domain, &raw mut counter, to, none)),
                av: opened(|to| vector::open(domain, &raw mut vector, to, none)),
                ep: opened(|to| endpoint::open(domain, &raw mut info, to, none)),
                mr: Self::register(domain, 7).unwrap(),
                poll: opened(|to| poll::open(domain, ptr::null_mut(), to)),
                domain,
                shared,
                fabric,
            }
        }
    }

    fn register(domain: *mut fid_domain, key: u64) -> std::result::Result<*mut fid_mr, isize> {
        static MEMORY: [u8; 64] = [0; 64];
        let (mut region, access) = (ptr::null_mut(), FI_REMOTE_READ);
        let from = MEMORY.as_ptr().cast();
        // SAFETY: static memory, and an open domain.
        let status = unsafe {
            region::OPS.reg.unwrap()(domain.cast(), from, 64, access, 0, key, 0, &raw mut region, ptr::null_mut())
        };
        if status == 0 { Ok(region) } else { Err(status as isize) }
    }

    fn read(&self) -> isize {
        let mut entry = fi_cq_tagged_entry::default();
        // SAFETY: an open queue, and room for one entry.
        unsafe { (*(*self.cq).ops).read.unwrap()(self.cq, (&raw mut entry).cast(), 1) }
    }

    /// Sleeps in `fi_cq_sread` until it returns.
    fn sread(&self) -> isize {
        let mut entry = fi_cq_tagged_entry::default();
        // SAFETY: as in `read`.
        unsafe { (*(*self.cq).ops).sread.unwrap()(self.cq, (&raw mut entry).cast(), 1, ptr::null(), -1) }
    }

    /// Sleeps in `fi_cntr_wait` until it returns.
    fn wait(&self) -> isize {
        // SAFETY: an open counter.
        unsafe { (*(*self.cntr).ops).wait.unwrap()(self.cntr, 100, -1) as isize }
    }

    fn counted(&self) -> (u64, u64) {
        // SAFETY: an open counter.
        unsafe {
            let ops = &*(*self.cntr).ops;
            (ops.read.unwrap()(self.cntr), ops.readerr.unwrap()(self.cntr))
        }
    }

    /// The results of calls on all objects.
    fn all_calls(&self) -> Vec<(&'static str, isize)> {
        let (mut error, mut number) = (fi_cq_err_entry::default(), 0);
        let (mut contexts, mut length) = ([ptr::null_mut(); 1], 64);
        let mut bytes = [0_u8; 64];
        let (to, none) = (bytes.as_mut_ptr(), ptr::null_mut::<c_void>());
        // SAFETY: open objects, and room for what each call writes.
        unsafe {
            let (cq, cntr, av) = (&*(*self.cq).ops, &*(*self.cntr).ops, &*(*self.av).ops);
            let (ep, tagged) = (&*(*self.ep).ops, &*(*self.ep).tagged);
            let fid = &raw mut (*self.ep).fid;
            let mut fids = [self.cq.cast::<fid>()];
            let set = &*(*self.poll).ops;
            assert_eq!(set.poll_add.unwrap()(self.poll, self.cq.cast(), 0), 0);
            let found = set.poll.unwrap()(self.poll, contexts.as_mut_ptr(), 1);
            assert_eq!(found, 1, "a poll set reports the queue, whose read returns the error");
            let trywait = fabric::OPS.trywait.unwrap()(ptr::null_mut(), fids.as_mut_ptr(), 1);
            vec![
                ("fi_cq_read", self.read()),
                ("fi_cq_readerr", cq.readerr.unwrap()(self.cq, &raw mut error, 0)),
                ("fi_cq_sread", self.sread()),
                ("fi_cq_signal", cq.signal.unwrap()(self.cq) as isize),
                ("fi_trywait", trywait as isize),
                ("fi_cntr_add", cntr.add.unwrap()(self.cntr, 1) as isize),
                ("fi_cntr_wait", self.wait()),
                ("fi_av_insert", av.insert.unwrap()(self.av, to.cast(), 1, &raw mut number, 0, none) as isize),
                ("fi_av_lookup", av.lookup.unwrap()(self.av, 0, to.cast(), &raw mut length) as isize),
                ("fi_ep_bind", (*(*fid).ops).bind.unwrap()(fid, self.cq.cast(), FI_RECV) as isize),
                ("fi_enable", (*(*fid).ops).control.unwrap()(fid, FI_ENABLE as c_int, none) as isize),
                ("fi_cancel", ep.cancel.unwrap()(fid, none)),
                ("fi_tsend", tagged.send.unwrap()(self.ep, to.cast(), 8, none, 0, 1, none)),
                ("fi_trecv", tagged.recv.unwrap()(self.ep, to.cast(), 8, none, 0, 1, 0, none)),
                ("fi_mr_reg", Self::register(self.domain, 8).err().unwrap_or(0)),
            ]
        }
    }

    /// Lets the next progress call panic.
    fn panic_next(&self) {
        self.shared.lock().unwrap().panics = true;
    }

    fn close(self) {
        // SAFETY: open objects, none of which is used afterwards.
        unsafe {
            let close = |object: *mut fid| (*(*object).ops).close.unwrap()(object);
            let objects = [self.ep.cast(), self.poll.cast(), self.mr.cast(), self.cq.cast(), self.cntr.cast()];
            assert_eq!(objects.map(close), [0; 5]);
            assert_eq!([self.av.cast(), self.domain.cast()].map(close), [0; 2]);
        }
        assert_eq!((Arc::strong_count(&self.fabric), Arc::strong_count(&self.shared)), (1, 1), "a reference is left");
    }
}

/// Waits until `condition` holds, 20 s at most.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < until, "timeout: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn after_a_panic_every_call_fails_and_closing_succeeds() {
    let program = Program::new();
    assert_eq!((program.read(), program.counted()), (-(FI_EAGAIN as isize), (0, 0)));
    // SAFETY: an open counter.
    assert_eq!(unsafe { (*(*program.cntr).ops).add.unwrap()(program.cntr, 5) }, 0);
    assert_eq!(program.counted(), (5, 0));
    program.panic_next();
    assert_eq!(program.read(), OTHER, "the call that panics");
    for (call, status) in program.all_calls() {
        assert_eq!(status, OTHER, "{call}");
    }
    assert_eq!(program.counted(), (5, 1), "a counter reports it as an error");
    program.close();
}

/// Threads that sleep in `fi_cq_sread` and in `fi_cntr_wait` without a timeout.
fn sleepers(program: &Arc<Program>) -> [JoinHandle<isize>; 2] {
    let sleepers = [Program::sread, Program::wait].map(|call| {
        let program = program.clone();
        thread::spawn(move || call(&program))
    });
    wait_until("both sleep", || {
        let state = program.shared.lock().unwrap();
        state.queues.iter().all(|queue| queue.notifier.is_awaited())
            && state.counters.iter().all(|counter| counter.notifier.is_awaited())
    });
    sleepers
}

#[test]
fn a_panic_wakes_sleeping_threads_with_an_error() {
    let program = Arc::new(Program::new());
    let mut descriptor: c_int = -1;
    let fid = program.cq.cast::<fid>();
    let mut fids = [fid];
    // SAFETY: an open queue with a descriptor.
    unsafe {
        let control = (*(*fid).ops).control.unwrap();
        assert_eq!(control(fid, FI_GETWAIT as c_int, (&raw mut descriptor).cast()), 0);
        assert_eq!(fabric::OPS.trywait.unwrap()(ptr::null_mut(), fids.as_mut_ptr(), 1), 0);
    }
    // SAFETY: the descriptor is open as long as the queue.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
    let is_readable = || poll(&mut [PollFd::new(borrowed, PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() > 0;
    assert!(!is_readable());
    let sleepers = sleepers(&program);
    program.panic_next();
    assert_eq!(program.read(), OTHER);
    assert!(is_readable(), "poll(2) on the queue's descriptor returns");
    assert_eq!(sleepers.map(|sleeper| sleeper.join().unwrap()), [OTHER; 2]);
    Arc::into_inner(program).unwrap().close();
}

#[test]
fn a_panic_of_the_progress_thread_ends_it_and_poisons_the_domain() {
    let program = Program::new();
    program.panic_next();
    // As if a message were under way while the program computes.
    program.shared.lock().unwrap().progress_request.request(true);
    // SAFETY: an open domain.
    let domain = unsafe { &*program.domain.cast::<Domain>() };
    wait_until("the progress thread's end", || domain._progress_thread.as_ref().unwrap().has_ended());
    assert_eq!(program.read(), OTHER);
    program.close();
}

#[test]
fn calls_in_a_forked_child_fail_without_waking_its_parent() {
    let program = Program::new();
    program.shared.poison.in_child();
    assert_eq!(program.read(), BAD_STATE);
    let event = program.shared.poison.descriptor();
    // SAFETY: open as long as the domain.
    let event = unsafe { std::os::fd::BorrowedFd::borrow_raw(event) };
    let is_readable = poll(&mut [PollFd::new(event, PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() > 0;
    assert!(!is_readable, "the parent's sleepers share the event");
    program.close();
}
