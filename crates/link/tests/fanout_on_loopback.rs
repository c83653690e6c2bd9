// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `FanoutGroup` on the loopback interface: each socket receives its own frames while others join and leave. Needs
//! CAP_NET_RAW; `make test` provides it in a user namespace.

use std::io::{self, Write};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use barewire_link::{
    FanoutGroup, Field, Filter, Interface, Link, LinkError, Outgoing, PacketConfig, PacketLink, Restricted,
};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};

const ETHER_TYPE: u16 = 0x88b6;
const PROTOCOL: u16 = libc::ETH_P_ALL as u16;
const PACKET_FANOUT_DATA: libc::c_int = 22;

/// A group with its members, and a link that sends to them.
struct TestBed {
    lo: Interface,
    group: FanoutGroup,
    sender: PacketLink,
    members: Vec<Member>,
    /// Byte of this test after the value, so that tests do not receive each other's frames.
    test: u8,
    /// Number of the last frame.
    number: u32,
}

struct Member {
    value: u8,
    link: PacketLink,
}

impl TestBed {
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

    /// Adds a member. Returns a second descriptor of its socket.
    fn admit(&mut self, value: u8) -> OwnedFd {
        let filter = Filter::all_of(&[Field::word(12, ETHER_TYPE), Field::byte(14, value), Field::byte(15, self.test)]);
        let socket = Restricted::open(&self.lo, PROTOCOL, &filter, 7, 1).unwrap();
        let (socket, ring) = self.group.admit(socket, value).unwrap();
        let other = socket.try_clone().unwrap();
        self.members.push(Member { value, link: PacketLink::adopt(socket, "lo", ring, None).unwrap() });
        other
    }

    /// Sets the loopback interface up or down. Each link reports once that it was down.
    fn set_interface(&mut self, up: bool) {
        set_loopback(up);
        if !up {
            for link in self.members.iter_mut().map(|member| &mut member.link).chain([&mut self.sender]) {
                assert!(matches!(link.check(), Err(LinkError::InterfaceDown(_))));
            }
        }
    }

    /// Closes a member's link, then releases it from the group, as when a program ends.
    fn release(&mut self, value: u8) {
        self.members.retain(|member| member.value != value);
        self.group.release(value);
    }

    /// Sends a frame to each member and one to none; each member must receive its own frame and no other.
    fn check(&mut self) {
        self.number += 1;
        let number = self.number.to_be_bytes();
        let values: Vec<u8> = self.members.iter().map(|member| member.value).chain([0xfd]).collect();
        for value in values {
            let header = [&[0; 12][..], &ETHER_TYPE.to_be_bytes(), &[value, self.test]].concat();
            assert_eq!(self.sender.send(&[Outgoing { header: &header, payload: &number, label: 0 }]).unwrap(), 1);
        }
        for Member { value, link } in &mut self.members {
            assert!(link.wait_to_receive(Duration::from_secs(1)).unwrap(), "no frame for {value}");
            assert_eq!(link.receive().unwrap().bytes[14..], [&[*value, self.test][..], &number].concat());
            assert!(link.receive().is_none(), "{value} received another member's frame, or a duplicate");
        }
    }
}

/// Reports a skip, and records it where `make test` counts skips.
fn skip(reason: &str) {
    let line = format!("SKIPPED {}: {reason}\n", std::thread::current().name().unwrap_or("?"));
    eprint!("{line}");
    if let Some(path) = std::env::var_os("BAREWIRE_SKIP_LOG") {
        let log = std::fs::File::options().create(true).append(true).open(path);
        log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the skip log can be written");
    }
}

/// Moves this thread to a network namespace of its own, whose interface it may set down. Returns whether it may.
fn move_to_own_namespace() -> bool {
    match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => set_loopback(true),
        Err(Errno::EPERM) => {
            skip("a network namespace of its own needs CAP_SYS_ADMIN: run `make test`, or as root");
            return false;
        }
        Err(error) => panic!("{error}"),
    }
    true
}

fn set_loopback(up: bool) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // SAFETY: zeros are a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    let up = if up { libc::IFF_UP } else { 0 };
    request.ifr_ifru.ifru_flags = (up | libc::IFF_LOOPBACK) as libc::c_short;
    // SAFETY: the request is the kernel's structure and outlives the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &raw const request) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

/// Sets a socket option; returns the errno if the kernel refuses.
fn try_option<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> Option<i32> {
    let length = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: pointer and length describe `value`, which outlives the call.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value, length) };
    (done != 0).then(|| io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

fn no_ring() -> libc::tpacket_req {
    libc::tpacket_req { tp_block_size: 0, tp_block_nr: 0, tp_frame_size: 0, tp_frame_nr: 0 }
}

/// 100 joins and leaves in an order drawn from a fixed seed, with up to 20 members.
#[test]
fn members_receive_their_own_frames_while_others_join_and_leave() {
    let Some(mut bed) = TestBed::new(1) else { return };
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
        assert!(bed.group.is_consistent());
    }
    let values: Vec<u8> = bed.members.iter().map(|member| member.value).collect();
    for value in values {
        assert!(!bed.group.is_empty());
        bed.release(value);
    }
    assert!(bed.group.is_empty());
}

/// The kernel refuses a holder's attempts to replace the group's program or to leave its slot. For comparison, the
/// program can be set through a socket whose filter is not locked.
#[test]
fn holder_can_neither_set_the_program_nor_leave_its_slot() {
    let Some(mut bed) = TestBed::new(2) else { return };
    let socket = bed.admit(2);
    bed.admit(4);
    let mut select_first = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut select_first };
    assert_eq!(try_option(&socket, PACKET_FANOUT_DATA, &program), Some(libc::EPERM));
    bed.check();
    // The link is closed, but the group still maps the ring.
    bed.members.remove(0);
    for option in [libc::PACKET_RX_RING, libc::PACKET_TX_RING] {
        assert_eq!(try_option(&socket, option, &no_ring()), Some(libc::EBUSY));
    }
    bed.check();
    let open = bed.group.placeholders().unwrap().last().unwrap().try_clone_to_owned().unwrap();
    assert_eq!(try_option(&open, PACKET_FANOUT_DATA, &program), None);
}

/// A socket with another descriptor stays in the group after its release. Neither closing it nor leaving its slot
/// meanwhile moves other members.
#[test]
fn socket_closed_after_its_release_moves_no_other_member() {
    for leaves_slot in [false, true] {
        let Some(mut bed) = TestBed::new(3) else { return };
        let others: Vec<OwnedFd> = [2, 4, 6, 8, 10].map(|value| bed.admit(value)).into();
        bed.check();
        for value in [2, 6] {
            bed.release(value);
            bed.check();
        }
        assert!(!bed.group.is_consistent());
        for at in [0, 2] {
            let result = leaves_slot.then(|| try_option(&others[at], libc::PACKET_RX_RING, &no_ring()));
            assert!(result.is_none_or(|errno| errno.is_none()), "{result:?}");
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

/// When the interface comes up again, the kernel also adds sockets to the group that others kept after their release.
/// They are released and closed before, while and after it is down, or left open.
#[test]
fn kept_sockets_move_no_other_member_when_the_interface_was_down() {
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum When {
        Before,
        Meanwhile,
        After,
        Never,
    }
    use When::{After, Before, Meanwhile, Never};
    if !move_to_own_namespace() {
        return;
    }
    for (released, closed) in [
        (Before, Before),
        (Before, Meanwhile),
        (Before, After),
        (Before, Never),
        (Meanwhile, Meanwhile),
        (Meanwhile, After),
        (After, After),
    ] {
        let Some(mut bed) = TestBed::new(5) else { return };
        let mut kept: Vec<Option<OwnedFd>> = [2, 4, 6, 8, 10].map(|value| Some(bed.admit(value))).into();
        for unused in [1, 3, 4] {
            kept[unused] = None;
        }
        let mut now = |bed: &mut TestBed, now: When| {
            if released == now {
                bed.release(2);
                bed.release(6);
            }
            if now != Meanwhile {
                bed.check();
            }
            if closed == now {
                for at in [2, 0] {
                    kept[at] = None;
                    if now != Meanwhile {
                        bed.check();
                    }
                }
            }
        };
        now(&mut bed, Before);
        bed.set_interface(false);
        assert!(bed.group.recover().unwrap());
        now(&mut bed, Meanwhile);
        // As its owner does while it is waiting.
        assert!(!bed.group.recover().unwrap());
        assert_eq!(bed.group.is_waiting(), released < After && closed > Meanwhile);
        bed.set_interface(true);
        assert!(!bed.group.recover().unwrap());
        assert!(!bed.group.is_waiting());
        now(&mut bed, After);
        // Once more, with what is left.
        bed.set_interface(false);
        bed.set_interface(true);
        assert!(bed.group.recover().unwrap());
        bed.check();
        bed.release(8);
        bed.check();
    }
}

/// The placeholders keep the members at their slots while they end one by one; without them a member would
/// receive nothing any more.
#[test]
fn placeholders_keep_members_at_their_slots_without_the_group() {
    for keeps_placeholders in [true, false] {
        let Some(mut bed) = TestBed::new(4) else { return };
        for value in [2, 4, 6, 8] {
            bed.admit(value);
        }
        bed.release(4);
        let placeholders: Vec<OwnedFd> =
            bed.group.placeholders().unwrap().map(|socket| socket.try_clone_to_owned().unwrap()).collect();
        let other = FanoutGroup::new(&bed.lo, PROTOCOL).unwrap();
        drop(std::mem::replace(&mut bed.group, other));
        if keeps_placeholders {
            bed.check();
            while !bed.members.is_empty() {
                bed.members.remove(0);
                bed.check();
            }
        } else {
            drop(placeholders);
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bed.check())).is_err());
        }
    }
}
