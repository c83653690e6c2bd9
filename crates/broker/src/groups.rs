// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fanout groups: the sockets of each interface behind one hook, as far as the kernel supports it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use barewire_link::{FanoutGroup, Interface, LinkError, Restricted, RingGeometry};

use crate::ledger::Key;

/// For each interface, the group that admits members, and older ones that are inconsistent.
#[derive(Default)]
pub struct Groups {
    groups: Vec<FanoutGroup>,
}

impl Groups {
    /// Adds a socket to its interface's group, or to a new group if that is inconsistent.
    ///
    /// # Errors
    /// Why the socket could not join a group.
    pub fn admit(
        &mut self,
        interface: &Interface,
        protocol: u16,
        sap: u8,
        open: impl Fn() -> Result<Restricted, LinkError>,
    ) -> Result<(OwnedFd, RingGeometry), LinkError> {
        if let Some(group) =
            self.groups.iter_mut().find(|group| group.index() == interface.index && group.is_consistent())
        {
            let admitted = group.admit(open()?, sap);
            if admitted.is_ok() || group.is_consistent() {
                return admitted;
            }
        }
        let mut group = FanoutGroup::new(interface, protocol)?;
        let admitted = group.admit(open()?, sap)?;
        self.groups.push(group);
        Ok(admitted)
    }

    /// Whether a socket is in a group, which holds a descriptor of it.
    pub fn holds(&self, (index, sap): Key) -> bool {
        self.groups.iter().any(|group| group.index() == index && group.has(sap))
    }

    /// Closes the group's descriptor of a socket. Removes empty groups.
    pub fn release(&mut self, (index, sap): Key) {
        let Some(group) = self.groups.iter_mut().find(|group| group.index() == index && group.has(sap)) else { return };
        group.release(sap);
        self.groups.retain(|group| !group.is_empty());
    }

    /// When [`recover`](Self::recover) is to be called again, if an interface may come up.
    pub fn recovery_interval(&self) -> Option<Duration> {
        self.groups.iter().filter_map(FanoutGroup::recovery_interval).min()
    }

    /// Descriptors that report an error when the interface of a group has gone down, until [`recover`](Self::recover).
    pub fn error_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.groups.iter().map(FanoutGroup::error_descriptor)
    }

    /// Reprograms the groups whose interface has gone down. Returns the failures.
    pub fn recover(&mut self) -> Vec<LinkError> {
        self.groups.iter_mut().filter_map(|group| group.recover().err()).collect()
    }

    /// For each group: its members, and the placeholder sockets that all of them must hold when the broker ends.
    pub fn placeholders(&mut self) -> impl Iterator<Item = (GroupMembers, Result<Vec<BorrowedFd<'_>>, LinkError>)> {
        self.groups.iter_mut().map(|group| {
            let members =
                GroupMembers { index: group.index(), saps: (0..=0xfe).filter(|sap| group.has(*sap)).collect() };
            (members, group.placeholders().map(Iterator::collect))
        })
    }
}

/// The service access points whose sockets are in a group.
pub struct GroupMembers {
    index: i32,
    saps: Vec<u8>,
}

impl GroupMembers {
    pub fn include(&self, (index, sap): Key) -> bool {
        index == self.index && self.saps.contains(&sap)
    }
}
