// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `FanoutGroup` on the loopback interface: each socket gets its own frames whoever comes and goes beside it. Needs
//! CAP_NET_RAW; `make test` gives it in a namespace of its own.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use barewire_link::{
    FanoutGroup, Field, Filter, Interface, Link, LinkError, Outgoing, PacketConfig, PacketLink, Restricted,
};

const ETHER_TYPE: u16 = 0x88b6;
const PROTOCOL: u16 = libc::ETH_P_ALL as u16;
const PACKET_FANOUT_DATA: libc::c_int = 22;

/// A group, and somebody who sends to it; nothing where the system does not allow it.
struct Bed {
    lo: Interface,
    group: FanoutGroup,
    sender: PacketLink,
    members: Vec<Member>,
    /// Tests have a byte of their own behind the value, so that they do not hear each other.
    test: u8,
    /// Every frame has a number of its own.
    number: u32,
}

struct Member {
    value: u8,
    link: PacketLink,
}

impl Bed {
    fn new(test: u8) -> Option<Self> {
        let lo = Interface::by_name("lo").unwrap();
        let nothing =
            PacketConfig { interface: "lo".to_owned(), protocol: ETHER_TYPE, filter: Filter::default(), ring_bytes: 1 };
        match PacketLink::open(&nothing) {
            Ok(sender) => {
                let group = FanoutGroup::new(&lo, PROTOCOL).unwrap();
                Some(Self { lo, group, sender, members: vec![], test, number: 0 })
            }
            Err(LinkError::NotPermitted) => {
                skip("raw frames need CAP_NET_RAW: run `make test`, which gives it in a user namespace, or as root");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// A member's socket, besides its link.
    fn admit(&mut self, value: u8) -> OwnedFd {
        let filter = Filter::all_of(&[Field::word(12, ETHER_TYPE), Field::byte(14, value), Field::byte(15, self.test)]);
        let socket = Restricted::open(&self.lo, PROTOCOL, &filter, 7, 1).unwrap();
        let (socket, ring) = self.group.admit(socket, value).unwrap();
        let other = socket.try_clone().unwrap();
        self.members.push(Member { value, link: PacketLink::adopt(socket, "lo", ring, None).unwrap() });
        other
    }

    /// The link goes first, as a program's does.
    fn release(&mut self, value: u8) {
        self.members.retain(|member| member.value != value);
        self.group.release(value);
    }

    /// A frame for each, and one for nobody: everybody gets its own and nothing else.
    fn check(&mut self) {
        self.number += 1;
        let number = self.number.to_be_bytes();
        let values: Vec<u8> = self.members.iter().map(|member| member.value).chain([0xfd]).collect();
        for value in values {
            let header = [&[0; 12][..], &ETHER_TYPE.to_be_bytes(), &[value, self.test]].concat();
            assert_eq!(self.sender.send(&[Outgoing { header: &header, payload: &number }]).unwrap(), 1);
        }
        for Member { value, link } in &mut self.members {
            assert!(link.wait_to_receive(Duration::from_secs(1)).unwrap(), "nothing came for {value}");
            assert_eq!(link.receive().unwrap().bytes[14..], [&[*value, self.test][..], &number].concat());
            assert!(link.receive().is_none(), "{value} got another's frame, or one twice");
        }
    }
}

/// A skip is loud: it goes where `make test` counts it.
fn skip(reason: &str) {
    let line = format!("SKIPPED {}: {reason}\n", std::thread::current().name().unwrap_or("?"));
    eprint!("{line}");
    if let Some(path) = std::env::var_os("BAREWIRE_SKIP_LOG") {
        let log = std::fs::File::options().create(true).append(true).open(path);
        log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the skip log can be written");
    }
}

/// What the kernel says to an option of a socket's, by number.
fn attempt<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> Option<i32> {
    let length = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: pointer and length describe `value`, which outlives the call.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value, length) };
    (done != 0).then(|| io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

fn no_ring() -> libc::tpacket_req {
    libc::tpacket_req { tp_block_size: 0, tp_block_nr: 0, tp_frame_size: 0, tp_frame_nr: 0 }
}

/// 100 comings and goings in an order drawn by a fixed seed, up to 20 at once.
#[test]
fn everybody_gets_its_own_frames_whoever_comes_and_goes() {
    let Some(mut bed) = Bed::new(1) else { return };
    let mut drawn = 7_u32;
    for _ in 0..100 {
        drawn = drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let value = (drawn >> 24) as u8 % 20 * 12 + 2;
        if bed.group.has(value) {
            bed.release(value);
        } else {
            bed.admit(value);
        }
        bed.check();
        assert!(bed.group.is_sound());
    }
    let values: Vec<u8> = bed.members.iter().map(|member| member.value).collect();
    for value in values {
        assert!(!bed.group.is_empty());
        bed.release(value);
    }
    assert!(bed.group.is_empty());
}

/// What a holder could do to make its socket leave its place, or to choose for others, is refused; a program set
/// through a socket whose filter is open is what the first is compared with.
#[test]
fn who_holds_a_socket_can_neither_choose_for_the_group_nor_leave_its_place() {
    let Some(mut bed) = Bed::new(2) else { return };
    let socket = bed.admit(2);
    bed.admit(4);
    let mut all_to_the_first = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut all_to_the_first };
    assert_eq!(attempt(&socket, PACKET_FANOUT_DATA, &program), Some(libc::EPERM));
    bed.check();
    // The link unmapped, the ring is still mapped: by the group.
    bed.members.remove(0);
    for option in [libc::PACKET_RX_RING, libc::PACKET_TX_RING] {
        assert_eq!(attempt(&socket, option, &no_ring()), Some(libc::EBUSY));
    }
    bed.check();
    let open = bed.group.bequeath().unwrap().last().unwrap().try_clone_to_owned().unwrap();
    assert_eq!(attempt(&open, PACKET_FANOUT_DATA, &program), None);
}

/// A descriptor that was given on stays in the group after its release, and its end moves nobody; nor does what it can
/// do meanwhile.
#[test]
fn a_socket_that_is_closed_later_than_it_was_released_disturbs_nobody() {
    for leaves_its_place in [false, true] {
        let Some(mut bed) = Bed::new(3) else { return };
        let others: Vec<OwnedFd> = [2, 4, 6, 8, 10].map(|value| bed.admit(value)).into();
        bed.check();
        for value in [2, 6] {
            bed.release(value);
            bed.group.distrust();
            bed.check();
        }
        assert!(!bed.group.is_sound());
        for at in [0, 2] {
            let left = leaves_its_place.then(|| attempt(&others[at], libc::PACKET_RX_RING, &no_ring()));
            assert!(left.is_none_or(|refused| refused.is_none()), "{left:?}");
            bed.check();
        }
        let mut others = others.into_iter();
        for _ in 0..3 {
            drop(others.next());
            bed.check();
        }
        bed.release(4);
        bed.check();
    }
}

/// What the holder leaves keeps everybody in place while they end one by one in any order; without it somebody would
/// hear nothing any more.
#[test]
fn without_the_holder_everybody_stays_in_place_by_what_it_left() {
    for keeps in [true, false] {
        let Some(mut bed) = Bed::new(4) else { return };
        for value in [2, 4, 6, 8] {
            bed.admit(value);
        }
        bed.release(4);
        let left: Vec<OwnedFd> =
            bed.group.bequeath().unwrap().map(|socket| socket.try_clone_to_owned().unwrap()).collect();
        let other = FanoutGroup::new(&bed.lo, PROTOCOL).unwrap();
        drop(std::mem::replace(&mut bed.group, other));
        if keeps {
            bed.check();
            while !bed.members.is_empty() {
                bed.members.remove(0);
                bed.check();
            }
        } else {
            drop(left);
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bed.check())).is_err());
        }
    }
}
