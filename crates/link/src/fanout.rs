// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fanout groups: many sockets of one interface behind one hook. The group's program selects the socket by a byte of
//! the frame, so that the cost of a frame is independent of the number of sockets
//! (`docs/decisions/0009-one-hook-for-all-sockets.md`).
//!
//! The program returns slots. When a member leaves, the kernel moves the last member to its slot:
//!
//! ```text
//! slot    0      1      2      3        4          anchor and spares refuse every frame
//!        │ live │ live │ live │ anchor │
//! leave  │ live │ live │ live │ anchor │ spare │   a spare joins, then the socket in slot 0 is closed:
//!        │ spare│ live │ live │ anchor │           the last member moves to its slot, the others stay
//! admit  │ spare│ live │ live │ anchor │ new  │    the new socket joins, then the spare is closed
//!        │ new  │ live │ live │ anchor │
//! admit  │ live │ live │ live │ anchor │ new  │    without a spare, the anchor leaves and joins again
//!        │ live │ live │ live │ new    │ anchor │
//! ```
//! No other process may make a member leave. The group therefore holds every socket and maps its ring: the kernel
//! refuses to change a mapped ring, so a holder cannot make its socket leave and join again.
//!
//! When the interface goes down, all members leave; when it comes up again, the kernel adds them in the order of
//! its own list of sockets ([`FanoutGroup::recover`]).
//!
//! A socket that another process keeps open after its release remains a member, which nobody can remove. Its slot stays
//! its own, and the spare of its release stays behind all others, to take the slot whenever that socket is closed:
//!
//! ```text
//! keep   │ kept │ live │ live │ anchor │ spare │   the group admits no more members
//! ```

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::filter::instruction;
use crate::interface::system;
use crate::packet_socket::{Fanout, Listed, PACKET_FANOUT_DATA, bind, list_sockets, open_filtered};
use crate::restricted::Restricted;
use crate::ring::{ReceiveRing, RingGeometry};
use crate::socket::{self, get_option, set_option};
use crate::{Interface, LinkError};

/// The list of sockets, in messages.
const SOCKETS: &str = "/proc/thread-self/net/packet";
/// The shortest and the longest interval of looks whether an interface that was down is up again.
const RECOVERY_INTERVALS: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// Sockets of one interface and protocol, each for one value of the byte after the Ethernet header. The group selects
/// the socket, whose own filter then accepts or refuses the frame.
pub struct FanoutGroup {
    interface: Interface,
    protocol: u16,
    id: u16,
    /// Its filter is not locked, so that the group's program can be set through it. It follows the last slot, unless
    /// `slots` contains [`Member::Anchor`].
    anchor: OwnedFd,
    slots: Vec<Member>,
    /// Inodes of released sockets that were still open elsewhere.
    kept: Vec<u64>,
    /// Whether more members may be admitted: not once a socket was kept or the interface was down.
    is_consistent: bool,
    /// Since when the interface was down, until the kernel has been seen to have added the members again.
    waits_since: Option<Instant>,
    /// The slots in the group's program, sorted by value; `None` before the first.
    programmed: Option<Vec<(u8, u32)>>,
}

enum Member {
    Live {
        value: u8,
        inode: u64,
        _socket: OwnedFd,
        /// Mapped, so that its holder cannot change it.
        _ring: ReceiveRing,
    },
    Spare(OwnedFd),
    /// A released socket that is open elsewhere, by its inode.
    Kept(u64),
    /// The anchor, once the group is inconsistent.
    Anchor,
}

impl FanoutGroup {
    /// A group without sockets.
    ///
    /// # Errors
    /// The system's error, such as that it does not support such groups.
    pub fn new(interface: &Interface, protocol: u16) -> Result<Self, LinkError> {
        let failed = |operation| move |source| system(operation, &interface.name, source);
        let anchor = open_rejecting(interface, protocol)?;
        set_option(&anchor, libc::SOL_PACKET, libc::PACKET_FANOUT, &Fanout::NEW).map_err(failed("PACKET_FANOUT"))?;
        let fanout: u32 =
            get_option(&anchor, libc::SOL_PACKET, libc::PACKET_FANOUT).map_err(failed("PACKET_FANOUT"))?;
        let mut group = Self {
            interface: interface.clone(),
            protocol,
            id: (fanout & 0xffff) as u16,
            anchor,
            slots: vec![],
            kept: vec![],
            is_consistent: true,
            waits_since: None,
            programmed: None,
        };
        group.set_program()?;
        Ok(group)
    }

    /// The interface's index.
    #[must_use]
    pub fn index(&self) -> i32 {
        self.interface.index
    }

    /// Whether more sockets may be admitted.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.is_consistent
    }

    /// Whether the group has no member besides anchor, spares, and sockets that others keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.slots.iter().any(|member| matches!(member, Member::Live { .. }))
    }

    /// Whether the group has a member for a value.
    #[must_use]
    pub fn has(&self, value: u8) -> bool {
        self.slot_of(value).is_some()
    }

    /// Adds a socket for frames with this value, and returns the descriptor to hand over. Its holder must not set up
    /// the ring again.
    ///
    /// # Errors
    /// The system's error; the group may then be [inconsistent](Self::is_consistent).
    pub fn admit(&mut self, socket: Restricted, value: u8) -> Result<(OwnedFd, RingGeometry), LinkError> {
        if self.recover()? {
            return Err(LinkError::InterfaceDown(self.interface.name.clone()));
        }
        let Restricted { socket, ring: geometry, .. } = socket;
        let ring = ReceiveRing::map(&socket, geometry).map_err(|(operation, error)| self.failed(operation)(error))?;
        let inode = inode_of(&socket).map_err(self.failed("fstat"))?;
        let handed = socket.try_clone().map_err(self.failed("dup"))?;
        self.join(&socket)?;
        let live = Member::Live { value, inode, _socket: socket, _ring: ring };
        let placed = match self.slots.iter().position(|member| matches!(member, Member::Spare(_))) {
            Some(slot) => {
                // Closes the spare; the last member, the new socket, moves to its slot.
                self.slots[slot] = live;
                Ok(())
            }
            None => {
                self.slots.push(live);
                rejoin(&self.anchor).map_err(self.failed("PACKET_RX_RING"))
            }
        };
        let went_down = placed.and_then(|()| self.set_program()).and_then(|()| self.recover());
        let error = match went_down {
            Ok(false) => return Ok((handed, geometry)),
            Ok(true) => LinkError::InterfaceDown(self.interface.name.clone()),
            Err(error) => error,
        };
        drop(handed);
        self.mark_inconsistent();
        self.release(value);
        Err(error)
    }

    /// A descriptor that reports POLLERR when the interface has gone down, until [`recover`](Self::recover).
    #[must_use]
    pub fn error_descriptor(&self) -> BorrowedFd<'_> {
        self.anchor.as_fd()
    }

    /// Whether [`recover`](Self::recover) is to be called again soon: the interface is down, or was at the last call,
    /// and the order of the members depends on whether a socket that another process keeps is closed before or after it
    /// comes up.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waits_since.is_some() && !self.kept.is_empty()
    }

    /// If [it is waiting](Self::is_waiting): when to call [`recover`](Self::recover) again. The longer the interface
    /// has been down, the later.
    #[must_use]
    pub fn recovery_interval(&self) -> Option<Duration> {
        self.waits_since.filter(|_| self.is_waiting()).map(|since| recovery_interval(since.elapsed()))
    }

    /// If the interface has gone down since the last call, sets the program for the order in which the kernel adds the
    /// members again, and does so with each further call until it has added them. Returns whether the interface has
    /// gone down since the last call; the group is then [inconsistent](Self::is_consistent), since the anchor is not
    /// the last.
    ///
    /// # Errors
    /// The system's error; members may then receive each other's frames, and lose their own.
    pub fn recover(&mut self) -> Result<bool, LinkError> {
        let went_down = match socket::check(&self.anchor, &self.interface.name) {
            Ok(()) => false,
            Err(LinkError::InterfaceDown(_)) => true,
            Err(error) => return Err(error),
        };
        if went_down {
            self.mark_inconsistent();
            self.waits_since = Some(Instant::now());
        }
        if self.waits_since.is_some() {
            self.sort()?;
        }
        Ok(went_down)
    }

    /// Closes the group's descriptor of the socket for a value; other members keep their slots. If the socket is still
    /// open elsewhere, it keeps its slot as well, and the group is [inconsistent](Self::is_consistent).
    pub fn release(&mut self, value: u8) {
        // After a failure `slots` stays as it is.
        let _ = self.recover();
        if !self.has(value) {
            return;
        }
        let mut spare = self.spare();
        if self.waits_since.is_some() {
            // The interface may have come up meanwhile.
            let _ = self.recover();
            if self.waits_since.is_none() && spare.is_err() {
                spare = self.spare();
            }
        }
        let Some(slot) = self.slot_of(value) else { return };
        let Member::Live { inode, .. } = self.slots[slot] else { return };
        self.slots[slot] = Member::Kept(inode);
        if is_open(inode) {
            self.mark_inconsistent();
            self.kept.push(inode);
            self.slots.extend(spare.ok().map(Member::Spare));
        } else if let Ok(spare) = spare {
            // The last member has moved to the slot.
            self.slots[slot] = Member::Spare(spare);
        } else if self.waits_since.is_some() {
            // The kernel's group is empty; the other members will join again in order.
            self.slots.remove(slot);
        } else {
            self.mark_inconsistent();
            self.slots.swap_remove(slot);
            let _ = self.set_program();
        }
        if self.waits_since.is_some() {
            let _ = self.sort();
        }
    }

    /// Marks the group inconsistent: it admits no more members.
    fn mark_inconsistent(&mut self) {
        if self.is_consistent {
            self.is_consistent = false;
            self.slots.push(Member::Anchor);
        }
    }

    /// Descriptors that keep the members at their slots once this process has ended: as long as every holder of a
    /// member keeps all of them open, members can leave one by one without moving others.
    ///
    /// # Errors
    /// The system's error.
    pub fn placeholders(&mut self) -> Result<impl Iterator<Item = BorrowedFd<'_>>, LinkError> {
        self.mark_inconsistent();
        let live = self.slots.iter().filter(|member| matches!(member, Member::Live { .. })).count();
        for _ in 0..live {
            let spare = self.spare()?;
            self.slots.push(Member::Spare(spare));
        }
        let spares = self.slots.iter().filter_map(|member| match member {
            Member::Spare(socket) => Some(socket.as_fd()),
            Member::Live { .. } | Member::Kept(_) | Member::Anchor => None,
        });
        Ok(spares.chain([self.anchor.as_fd()]))
    }

    fn slot_of(&self, wanted: u8) -> Option<usize> {
        self.slots.iter().position(|member| matches!(member, Member::Live { value, .. } if *value == wanted))
    }

    /// Adds a spare as the last member.
    fn spare(&self) -> Result<OwnedFd, LinkError> {
        let spare = open_rejecting(&self.interface, self.protocol)?;
        let listed = list_sockets().map_err(self.failed(SOCKETS))?;
        if !self.are_running(&listed)? {
            // It is coming up: the kernel is adding the members again, of which the spare might precede some.
            return Err(LinkError::InterfaceDown(self.interface.name.clone()));
        }
        self.join(&spare)?;
        Ok(spare)
    }

    /// Whether the members that the group holds are all running, according to the kernel's list.
    fn are_running(&self, listed: &[Listed]) -> Result<bool, LinkError> {
        let mut inodes = vec![inode_of(&self.anchor).map_err(self.failed("fstat"))?];
        for member in &self.slots {
            match member {
                Member::Live { inode, .. } => inodes.push(*inode),
                Member::Spare(socket) => inodes.push(inode_of(socket).map_err(self.failed("fstat"))?),
                Member::Kept(_) | Member::Anchor => {}
            }
        }
        let running: HashSet<u64> =
            listed.iter().filter(|socket| socket.is_running).map(|socket| socket.inode).collect();
        Ok(inodes.iter().all(|inode| running.contains(inode)))
    }

    fn join(&self, socket: &OwnedFd) -> Result<(), LinkError> {
        set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &Fanout::joining(self.id))
            .map_err(self.failed("PACKET_FANOUT"))
    }

    /// Puts the members into the order of the kernel's list of sockets, in which it adds them when the interface comes
    /// up, and sets the program. Once it has added them, their order is no longer that of the list.
    fn sort(&mut self) -> Result<(), LinkError> {
        let listed = list_sockets().map_err(self.failed(SOCKETS))?;
        let place = |inode| listed.iter().position(|socket| socket.inode == inode);
        let is_running = |inode| place(inode).is_some_and(|at| listed[at].is_running);
        self.kept.retain(|inode| place(*inode).is_some());
        // Checks all members, not only the first: those behind a kept socket show whether the kernel has reached it.
        let has_come_up = self.are_running(&listed)?;
        // The kernel adds no socket whose holder is changing its ring.
        let kept = self.kept.iter().filter(|inode| !has_come_up || is_running(**inode));
        self.slots.retain(|member| !matches!(member, Member::Kept(_)));
        self.slots.extend(kept.map(|inode| Member::Kept(*inode)));
        let mut places = Vec::with_capacity(self.slots.len());
        for member in &self.slots {
            let inode = match member {
                Member::Live { inode, .. } | Member::Kept(inode) => *inode,
                Member::Spare(socket) => inode_of(socket).map_err(self.failed("fstat"))?,
                Member::Anchor => inode_of(&self.anchor).map_err(self.failed("fstat"))?,
            };
            places.push(place(inode));
        }
        let mut members: Vec<_> = places.into_iter().zip(std::mem::take(&mut self.slots)).collect();
        members.sort_by_key(|(place, _)| *place);
        self.slots = members.into_iter().map(|(_, member)| member).collect();
        self.set_program()?;
        if has_come_up {
            self.waits_since = None;
            self.add_missing_spares()?;
        }
        Ok(())
    }

    /// Adds spares until there is one behind the other members for each kept socket, which may be closed at any time.
    fn add_missing_spares(&mut self) -> Result<(), LinkError> {
        let spares = self.slots.iter().rev().take_while(|member| matches!(member, Member::Spare(_))).count();
        for _ in spares..self.kept.len() {
            match self.spare() {
                Ok(spare) => self.slots.push(Member::Spare(spare)),
                // The next call of `recover` finds out.
                Err(LinkError::InterfaceDown(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sets the group's program according to `slots`.
    fn set_program(&mut self) -> Result<(), LinkError> {
        let mut values: Vec<(u8, u32)> = (0..)
            .zip(&self.slots)
            .filter_map(|(slot, member)| match member {
                Member::Live { value, .. } => Some((*value, slot)),
                Member::Spare(_) | Member::Kept(_) | Member::Anchor => None,
            })
            .collect();
        values.sort_unstable();
        if self.programmed.as_ref() == Some(&values) {
            return Ok(());
        }
        let mut program = program(&values);
        let program = libc::sock_fprog {
            len: u16::try_from(program.len()).expect("two instructions for each of 256 values"),
            filter: program.as_mut_ptr(),
        };
        set_option(&self.anchor, libc::SOL_PACKET, PACKET_FANOUT_DATA, &program)
            .map_err(self.failed("PACKET_FANOUT_DATA"))?;
        self.programmed = Some(values);
        Ok(())
    }

    fn failed(&self, operation: &'static str) -> impl Fn(io::Error) -> LinkError {
        let interface = self.interface.name.clone();
        move |source| system(operation, &interface, source)
    }
}

fn recovery_interval(down_for: Duration) -> Duration {
    let [shortest, longest] = RECOVERY_INTERVALS;
    (down_for / 16).clamp(shortest, longest)
}

/// Opens and binds a socket that refuses every frame.
fn open_rejecting(interface: &Interface, protocol: u16) -> Result<OwnedFd, LinkError> {
    let socket = open_filtered(&interface.name, vec![instruction(libc::BPF_RET | libc::BPF_K, 0)])?;
    bind(&socket, interface.index, protocol).map_err(|source| system("bind", &interface.name, source))?;
    socket::check(&socket, &interface.name)?;
    Ok(socket)
}

/// Makes a socket leave the group and join again as the last member: the kernel does so for any change of the ring,
/// also from none to none.
fn rejoin(socket: &OwnedFd) -> io::Result<()> {
    let none = libc::tpacket_req { tp_block_size: 0, tp_block_nr: 0, tp_frame_size: 0, tp_frame_nr: 0 };
    set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &none)
}

/// Whether a packet socket is open, or may be.
fn is_open(inode: u64) -> bool {
    list_sockets().map_or(true, |listed| listed.iter().any(|socket| socket.inode == inode))
}

fn inode_of(socket: &OwnedFd) -> io::Result<u64> {
    Ok(File::from(socket.try_clone()?).metadata()?.ino())
}

/// The group's program: returns the slot for the first byte after the Ethernet header. A byte without a slot yields the
/// slot of an adjacent value, whose filter refuses the frame. `values`: sorted by value.
fn program(values: &[(u8, u32)]) -> Vec<libc::sock_filter> {
    // Unlike a socket's filter, it sees the frame without its Ethernet header.
    let mut program = vec![instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0)];
    program.extend(search(values));
    program
}

/// Binary search for the byte in the accumulator.
fn search(values: &[(u8, u32)]) -> Vec<libc::sock_filter> {
    match values {
        [] => vec![instruction(libc::BPF_RET | libc::BPF_K, 0)],
        [(_, slot)] => vec![instruction(libc::BPF_RET | libc::BPF_K, *slot)],
        _ => {
            let (low, high) = values.split_at(values.len() / 2);
            let (below, above) = (search(low), search(high));
            let jt = u8::try_from(below.len()).expect("half of 256 values, two instructions each, less one");
            let split = instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, high[0].0.into());
            [vec![libc::sock_filter { jt, ..split }], below, above].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program after its first instruction, as the kernel would.
    fn selected(program: &[libc::sock_filter], value: u8) -> u32 {
        let mut at = 1;
        loop {
            let step = program[at];
            if u32::from(step.code) == libc::BPF_RET | libc::BPF_K {
                return step.k;
            }
            assert_eq!(u32::from(step.code), libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K);
            at += 1 + usize::from(if u32::from(value) >= step.k { step.jt } else { step.jf });
        }
    }

    #[test]
    fn every_value_selects_its_slot_in_few_steps() {
        for count in [1, 2, 3, 126, 256] {
            let values: Vec<(u8, u32)> = (0..count).map(|n| ((n * 256 / count) as u8, (count - n) as u32)).collect();
            let program = program(&values);
            assert!(program.len() <= 2 * count);
            for (value, slot) in &values {
                assert_eq!(selected(&program, *value), *slot);
            }
            // Other bytes select an existing slot.
            assert!((0..=255).all(|value| (1..=count as u32).contains(&selected(&program, value))));
        }
        assert_eq!(selected(&program(&[]), 7), 0);
    }

    #[test]
    fn an_interface_that_stays_down_is_looked_at_less_and_less_often() {
        let (mut down_for, mut looks) = (Duration::ZERO, 0);
        while down_for < Duration::from_secs(60) {
            down_for += recovery_interval(down_for);
            looks += 1;
        }
        assert_eq!(recovery_interval(Duration::from_millis(300)), Duration::from_millis(20));
        assert_eq!(recovery_interval(Duration::from_secs(60)), Duration::from_secs(1));
        assert!(looks < 150, "{looks}");
    }
}
