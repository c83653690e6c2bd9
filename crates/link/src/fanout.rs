// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many sockets of one interface behind one hook: a fanout group whose program picks the socket by a byte of the frame,
//! so that a frame costs the same however many sockets there are (`docs/decisions/0009-one-hook-for-all-sockets.md`).
//!
//! The program knows places, and the kernel moves the last member to the place of one that leaves:
//!
//! ```text
//! place    0      1      2      3       4          anchor and spares refuse every frame
//!        │ live │ live │ live │ anchor │
//! leave  │ live │ live │ live │ anchor │ spare │   a spare joins, then the one in place 0 is closed:
//!        │ spare│ live │ live │ anchor │           the last takes its place, and the others stay in theirs
//! admit  │ spare│ live │ live │ anchor │ new  │    the new one joins, then the spare is closed
//!        │ new  │ live │ live │ anchor │
//! admit  │ live │ live │ live │ anchor │ new  │    without a spare the anchor leaves and joins again
//!        │ live │ live │ live │ new    │ anchor │
//! ```
//! So nobody else may make a member leave: the group holds every socket, and its ring, which the kernel lets nobody
//! change as long as it is mapped, so that nobody can make its socket leave and join again.
//!
//! An interface that goes down takes all members out, and when it is up again the kernel lets them in in the order of
//! its own list of sockets ([`FanoutGroup::recover`]).

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use crate::filter::instruction;
use crate::interface::system;
use crate::packet_socket::{Fanout, PACKET_FANOUT_DATA, bind, open_filtered};
use crate::restricted::Restricted;
use crate::ring::{ReceiveRing, RingGeometry};
use crate::socket::{self, get_option, set_option};
use crate::{Interface, LinkError};

/// Sockets of one interface and protocol, each for one value of the byte behind the Ethernet header. The group chooses
/// the socket; whether that takes the frame is for its own filter to say.
pub struct FanoutGroup {
    interface: Interface,
    protocol: u16,
    id: u16,
    /// Has an open filter, so that the group's program can be set through it. Behind all places, unless one is its own.
    anchor: OwnedFd,
    places: Vec<Member>,
    /// Whether members are where `places` says; else none is admitted any more, and those there are stay as they are.
    is_sound: bool,
}

enum Member {
    Live {
        value: u8,
        socket: OwnedFd,
        /// Mapped, so that nobody can change it.
        _ring: ReceiveRing,
    },
    Spare(OwnedFd),
    /// Where the anchor is since the interface was down.
    Anchor,
}

impl FanoutGroup {
    /// A group without sockets.
    ///
    /// # Errors
    /// What the system says, such as that it has no such groups.
    pub fn new(interface: &Interface, protocol: u16) -> Result<Self, LinkError> {
        let failed = |operation| move |source| system(operation, &interface.name, source);
        let anchor = refusing(interface, protocol)?;
        set_option(&anchor, libc::SOL_PACKET, libc::PACKET_FANOUT, &Fanout::FIRST).map_err(failed("PACKET_FANOUT"))?;
        let told: u32 = get_option(&anchor, libc::SOL_PACKET, libc::PACKET_FANOUT).map_err(failed("PACKET_FANOUT"))?;
        let group = Self {
            interface: interface.clone(),
            protocol,
            id: (told & 0xffff) as u16,
            anchor,
            places: vec![],
            is_sound: true,
        };
        group.choose()?;
        Ok(group)
    }

    /// The interface's number.
    #[must_use]
    pub fn index(&self) -> i32 {
        self.interface.index
    }

    /// Whether more sockets may be admitted.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.is_sound
    }

    /// Whether there is no socket but the group's own.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.places.iter().any(|member| matches!(member, Member::Live { .. }))
    }

    /// Whether the socket for a value is here.
    #[must_use]
    pub fn has(&self, wanted: u8) -> bool {
        self.place_of(wanted).is_some()
    }

    /// Takes a socket in for frames with that value; what comes back is to be handed over. The ring must not be set up
    /// anew by whoever gets it.
    ///
    /// # Errors
    /// What the system says; then the group may no longer be [sound](Self::is_sound).
    pub fn admit(&mut self, socket: Restricted, value: u8) -> Result<(OwnedFd, RingGeometry), LinkError> {
        if self.recover()? {
            return Err(LinkError::InterfaceDown(self.interface.name.clone()));
        }
        let Restricted { socket, ring: geometry, .. } = socket;
        let ring = ReceiveRing::map(&socket, geometry).map_err(|(operation, error)| self.failed(operation)(error))?;
        let handed = socket.try_clone().map_err(self.failed("dup"))?;
        self.join(&socket)?;
        let live = Member::Live { value, socket, _ring: ring };
        let placed = match self.places.iter().position(|member| matches!(member, Member::Spare(_))) {
            Some(place) => {
                // Closes the spare; the last, which is the new one, takes its place.
                self.places[place] = live;
                Ok(())
            }
            None => {
                self.places.push(live);
                rejoin(&self.anchor).map_err(self.failed("PACKET_RX_RING"))
            }
        };
        let went_down = placed.and_then(|()| self.choose()).and_then(|()| self.recover());
        let error = match went_down {
            Ok(false) => return Ok((handed, geometry)),
            Ok(true) => LinkError::InterfaceDown(self.interface.name.clone()),
            Err(error) => error,
        };
        self.distrust();
        self.release(value);
        Err(error)
    }

    /// What is in trouble (POLLERR) when the interface has gone down, until [`recover`](Self::recover).
    #[must_use]
    pub fn alarm(&self) -> BorrowedFd<'_> {
        self.anchor.as_fd()
    }

    /// If the interface has gone down since the last call, tells the kernel who will be where once it is up again, or
    /// is already. True if it has: then the group is [sound](Self::is_sound) no more, since the anchor is not the last.
    ///
    /// # Errors
    /// What the system says: then members may get each other's frames, and lose their own.
    pub fn recover(&mut self) -> Result<bool, LinkError> {
        match socket::check(&self.anchor, &self.interface.name) {
            Ok(()) => return Ok(false),
            Err(LinkError::InterfaceDown(_)) => {}
            Err(error) => return Err(error),
        }
        self.distrust();
        if !self.places.iter().any(|member| matches!(member, Member::Anchor)) {
            self.places.push(Member::Anchor);
        }
        let order = order_of_packet_sockets().map_err(self.failed("/proc/self/net/packet"))?;
        let mut places = Vec::with_capacity(self.places.len());
        for member in &self.places {
            let socket = match member {
                Member::Live { socket, .. } | Member::Spare(socket) => socket,
                Member::Anchor => &self.anchor,
            };
            let number = number_of(socket).map_err(self.failed("fstat"))?;
            places.push(order.iter().position(|one| *one == number));
        }
        let mut members: Vec<_> = places.into_iter().zip(std::mem::take(&mut self.places)).collect();
        members.sort_by_key(|(place, _)| *place);
        self.places = members.into_iter().map(|(_, member)| member).collect();
        self.choose()?;
        Ok(true)
    }

    /// Closes our own descriptor of the socket for a value; the others stay where they are.
    pub fn release(&mut self, value: u8) {
        // What goes wrong in it leaves the places as they are believed to be.
        let _ = self.recover();
        let Some(place) = self.place_of(value) else { return };
        match self.spare() {
            Ok(spare) => self.places[place] = Member::Spare(spare),
            Err(LinkError::InterfaceDown(_)) => {
                // Nobody is in the group; the others will be, in their order.
                self.places.remove(place);
                let _ = self.choose();
            }
            Err(_) => {
                // The anchor takes the place, and who comes next would be elsewhere.
                self.distrust();
                self.places.swap_remove(place);
            }
        }
    }

    /// To be called when a socket that was released is still open somewhere: it may leave its place at any time, or
    /// come back elsewhere. The spare of its release is behind all others, and moves when it does.
    pub fn distrust(&mut self) {
        self.is_sound = false;
    }

    /// For the time when nobody keeps this group: descriptors that keep the others where they are while they leave one
    /// by one, if those who have the others hold all of these.
    ///
    /// # Errors
    /// What the system says.
    pub fn bequeath(&mut self) -> Result<impl Iterator<Item = BorrowedFd<'_>>, LinkError> {
        self.distrust();
        let live = self.places.iter().filter(|member| matches!(member, Member::Live { .. })).count();
        for _ in 0..live {
            let spare = self.spare()?;
            self.places.push(Member::Spare(spare));
        }
        let spares = self.places.iter().filter_map(|member| match member {
            Member::Spare(socket) => Some(socket.as_fd()),
            Member::Live { .. } | Member::Anchor => None,
        });
        Ok(spares.chain([self.anchor.as_fd()]))
    }

    fn place_of(&self, wanted: u8) -> Option<usize> {
        self.places.iter().position(|member| matches!(member, Member::Live { value, .. } if *value == wanted))
    }

    /// A new last member that refuses every frame.
    fn spare(&self) -> Result<OwnedFd, LinkError> {
        let spare = refusing(&self.interface, self.protocol)?;
        self.join(&spare)?;
        Ok(spare)
    }

    fn join(&self, socket: &OwnedFd) -> Result<(), LinkError> {
        set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &Fanout::joining(self.id))
            .map_err(self.failed("PACKET_FANOUT"))
    }

    /// Tells the kernel who is where.
    fn choose(&self) -> Result<(), LinkError> {
        let mut values: Vec<(u8, u32)> = (0..)
            .zip(&self.places)
            .filter_map(|(place, member)| match member {
                Member::Live { value, .. } => Some((*value, place)),
                Member::Spare(_) | Member::Anchor => None,
            })
            .collect();
        values.sort_unstable();
        let mut program = program(&values);
        let program = libc::sock_fprog {
            len: u16::try_from(program.len()).expect("two instructions for each of 256 values"),
            filter: program.as_mut_ptr(),
        };
        set_option(&self.anchor, libc::SOL_PACKET, PACKET_FANOUT_DATA, &program)
            .map_err(self.failed("PACKET_FANOUT_DATA"))
    }

    fn failed(&self, operation: &'static str) -> impl Fn(io::Error) -> LinkError {
        let interface = self.interface.name.clone();
        move |source| system(operation, &interface, source)
    }
}

/// A bound socket that no frame passes.
fn refusing(interface: &Interface, protocol: u16) -> Result<OwnedFd, LinkError> {
    let socket = open_filtered(&interface.name, vec![instruction(libc::BPF_RET | libc::BPF_K, 0)])?;
    bind(&socket, interface.index, protocol).map_err(|source| system("bind", &interface.name, source))?;
    socket::check(&socket, &interface.name)?;
    Ok(socket)
}

/// Leaves the group and joins it again, behind all others: what the kernel does for whoever changes its ring, also from
/// none to none.
fn rejoin(socket: &OwnedFd) -> io::Result<()> {
    let none = libc::tpacket_req { tp_block_size: 0, tp_block_nr: 0, tp_frame_size: 0, tp_frame_nr: 0 };
    set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &none)
}

/// The numbers of all AF_PACKET sockets of this network namespace, in the kernel's order.
fn order_of_packet_sockets() -> io::Result<Vec<u64>> {
    let text = fs::read_to_string("/proc/self/net/packet")?;
    let numbers = text.lines().skip(1).map(|line| line.split_ascii_whitespace().next_back()?.parse().ok());
    numbers.collect::<Option<_>>().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "has another form"))
}

fn number_of(socket: &OwnedFd) -> io::Result<u64> {
    Ok(File::from(socket.try_clone()?).metadata()?.ino())
}

/// The group's program: returns the place for the first byte behind the Ethernet header. One that has no place comes to
/// its neighbour's, whose filter refuses it.
fn program(values: &[(u8, u32)]) -> Vec<libc::sock_filter> {
    // Unlike a socket's filter, it is run when the Ethernet header has been taken off.
    let mut program = vec![instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0)];
    program.extend(decide(values));
    program
}

fn decide(values: &[(u8, u32)]) -> Vec<libc::sock_filter> {
    match values {
        [] => vec![instruction(libc::BPF_RET | libc::BPF_K, 0)],
        [(_, place)] => vec![instruction(libc::BPF_RET | libc::BPF_K, *place)],
        _ => {
            let (low, high) = values.split_at(values.len() / 2);
            let (below, above) = (decide(low), decide(high));
            let jt = u8::try_from(below.len()).expect("half of 256 values, two instructions each, less one");
            let split = instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, high[0].0.into());
            [vec![libc::sock_filter { jt, ..split }], below, above].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program behind its load as the kernel would.
    fn chosen(program: &[libc::sock_filter], value: u8) -> u32 {
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
    fn every_value_comes_to_its_place_in_few_steps() {
        for count in [1, 2, 3, 126, 256] {
            let values: Vec<(u8, u32)> = (0..count).map(|n| ((n * 256 / count) as u8, (count - n) as u32)).collect();
            let program = program(&values);
            assert!(program.len() <= 2 * count);
            for (value, place) in &values {
                assert_eq!(chosen(&program, *value), *place);
            }
            // Others' bytes come to somebody who is there.
            assert!((0..=255).all(|value| (1..=count as u32).contains(&chosen(&program, value))));
        }
        assert_eq!(chosen(&program(&[]), 7), 0);
    }
}
