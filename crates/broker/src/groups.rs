// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sockets of each interface behind one hook, as long as the kernel can do that and everybody keeps to the rules.

use std::os::fd::{BorrowedFd, OwnedFd};

use barewire_link::{FanoutGroup, Interface, LinkError, Restricted, RingGeometry};

use crate::ledger::Key;

/// Of each interface one that takes members, and those that took some before.
#[derive(Default)]
pub struct Groups {
    groups: Vec<FanoutGroup>,
}

impl Groups {
    /// Lets a socket into its interface's group, or into a new one where that is no longer sound.
    ///
    /// # Errors
    /// Why there is no group for it.
    pub fn admit(
        &mut self,
        interface: &Interface,
        protocol: u16,
        sap: u8,
        open: impl Fn() -> Result<Restricted, LinkError>,
    ) -> Result<(OwnedFd, RingGeometry), LinkError> {
        if let Some(group) = self.groups.iter_mut().find(|group| group.index() == interface.index && group.is_sound()) {
            let admitted = group.admit(open()?, sap);
            if admitted.is_ok() || group.is_sound() {
                return admitted;
            }
        }
        let mut group = FanoutGroup::new(interface, protocol)?;
        let admitted = group.admit(open()?, sap)?;
        self.groups.push(group);
        Ok(admitted)
    }

    /// Whether a socket is in a group, so that nobody but us can end it.
    pub fn holds(&self, (index, sap): Key) -> bool {
        self.groups.iter().any(|group| group.index() == index && group.has(sap))
    }

    /// Gives up our hold of a socket; `is_gone` then looks whether it is closed everywhere. A group without sockets ends.
    pub fn release(&mut self, (index, sap): Key, is_gone: impl FnOnce() -> bool) {
        let Some(group) = self.groups.iter_mut().find(|group| group.index() == index && group.has(sap)) else { return };
        group.release(sap);
        if !is_gone() {
            group.distrust();
        }
        self.groups.retain(|group| !group.is_empty());
    }

    /// What is in trouble when the interface of a group has gone down, until [`recover`](Self::recover).
    pub fn alarms(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.groups.iter().map(FanoutGroup::alarm)
    }

    /// Brings frames to their sockets where an interface has gone down; what went wrong, of each group.
    pub fn recover(&mut self) -> Vec<LinkError> {
        self.groups.iter_mut().filter_map(|group| group.recover().err()).collect()
    }

    /// Of each group: what those who stay have to hold when we end, and who they are.
    pub fn bequeath(&mut self) -> impl Iterator<Item = (Heirs, Result<Vec<BorrowedFd<'_>>, LinkError>)> {
        self.groups.iter_mut().map(|group| {
            let heirs = Heirs { index: group.index(), saps: (0..=0xfe).filter(|sap| group.has(*sap)).collect() };
            (heirs, group.bequeath().map(Iterator::collect))
        })
    }
}

/// Whose sockets are in a group.
pub struct Heirs {
    index: i32,
    saps: Vec<u8>,
}

impl Heirs {
    pub fn include(&self, (index, sap): Key) -> bool {
        index == self.index && self.saps.contains(&sap)
    }
}
