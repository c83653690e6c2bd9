// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The grants: one owner for each service access point of an interface, until the owner's socket is closed.
//!
//! A socket cannot be revoked from its holder, who may have passed it on. An entry therefore lasts as long as
//! the socket is open anywhere, whether or not the connection is. No I/O: the caller passes the open sockets.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Interface index and service access point. The index stays when the interface is renamed.
pub type Key = (i32, u8);

/// A grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub interface: String,
    pub index: i32,
    pub sap: u8,
    pub user: u32,
    pub process: i32,
    /// The socket's inode number.
    pub inode: u64,
    /// The connection has ended (or was to a previous broker): only the kernel's list of sockets shows when the socket
    /// is closed.
    #[serde(skip, default = "default_orphaned")]
    is_orphaned: bool,
    /// The last sweep did not find the socket. The list can miss a socket while others are opened and closed.
    #[serde(skip)]
    was_missed: bool,
}

fn default_orphaned() -> bool {
    true
}

/// All grants.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<Key, Entry>,
}

impl Entry {
    pub fn new(interface: &str, key: Key, user: u32, process: i32, inode: u64) -> Self {
        let (index, sap) = key;
        Self {
            interface: interface.to_owned(),
            index,
            sap,
            user,
            process,
            inode,
            is_orphaned: false,
            was_missed: false,
        }
    }

    fn key(&self) -> Key {
        (self.index, self.sap)
    }
}

impl Ledger {
    /// Restores the grants of a previous broker.
    pub fn restored(entries: impl IntoIterator<Item = Entry>) -> Self {
        Self { entries: entries.into_iter().map(|entry| (entry.key(), entry)).collect() }
    }

    pub fn owner(&self, key: Key) -> Option<&Entry> {
        self.entries.get(&key)
    }

    /// Number of grants of a user.
    pub fn count(&self, user: u32) -> usize {
        self.entries.values().filter(|entry| entry.user == user).count()
    }

    /// Inserts a grant; false if the service access point has an owner.
    pub fn insert(&mut self, entry: Entry) -> bool {
        let key = entry.key();
        if self.entries.contains_key(&key) {
            return false;
        }
        self.entries.insert(key, entry);
        true
    }

    /// Removes a grant that was not handed over.
    pub fn remove(&mut self, key: Key) {
        self.entries.remove(&key);
    }

    /// Records that the connection of a grant has ended.
    pub fn orphan(&mut self, key: Key) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.is_orphaned = true;
        }
    }

    /// Whether there are grants that only a [`sweep`](Self::sweep) can end.
    pub fn has_orphans(&self) -> bool {
        self.entries.values().any(|entry| entry.is_orphaned)
    }

    /// Removes the orphans whose sockets were closed in this sweep and the last one. `open`: inodes of the open
    /// sockets.
    pub fn sweep(&mut self, open: &BTreeSet<u64>) -> Vec<Entry> {
        let mut gone = Vec::new();
        for entry in self.entries.values_mut().filter(|entry| entry.is_orphaned) {
            let missing = !open.contains(&entry.inode);
            if missing && entry.was_missed {
                gone.push(entry.clone());
            }
            entry.was_missed = missing;
        }
        for entry in &gone {
            self.entries.remove(&entry.key());
        }
        gone
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sap: u8, user: u32) -> Entry {
        Entry::new("eth0", (2, sap), user, 77, 1000 + u64::from(sap))
    }

    #[test]
    fn service_access_point_has_one_owner_per_interface() {
        let mut ledger = Ledger::default();
        assert!(ledger.insert(entry(0x20, 1)) && !ledger.insert(entry(0x20, 2)) && ledger.insert(entry(0x22, 1)));
        assert!(ledger.insert(Entry::new("eth1", (3, 0x20), 2, 78, 5)));
        assert_eq!((ledger.count(1), ledger.count(2), ledger.owner((2, 0x20)).unwrap().user), (2, 1, 1));
    }

    #[test]
    fn grant_ends_when_connection_and_socket_are_closed() {
        let mut ledger = Ledger::default();
        ledger.insert(entry(0x20, 1));
        let (open, closed) = (BTreeSet::from([1000 + 0x20]), BTreeSet::new());
        assert!(ledger.sweep(&closed).is_empty() && ledger.sweep(&closed).is_empty(), "its connection is open");
        ledger.orphan((2, 0x20));
        for open in [&open, &closed, &open, &closed] {
            assert!(ledger.sweep(open).is_empty(), "open, or missed only once");
        }
        assert_eq!(ledger.sweep(&closed).len(), 1);
        assert!(ledger.owner((2, 0x20)).is_none() && !ledger.has_orphans());
    }

    #[test]
    fn grant_can_be_removed_before_hand_over() {
        let mut ledger = Ledger::default();
        assert!(ledger.insert(entry(0x20, 1)) && ledger.insert(entry(0x22, 1)) && !ledger.has_orphans());
        ledger.remove((2, 0x20));
        assert_eq!(ledger.entries().map(Entry::key).collect::<Vec<_>>(), [(2, 0x22)]);
    }

    #[test]
    fn restored_grant_is_an_orphan() {
        let line = serde_json::to_string(&entry(0x20, 1)).unwrap();
        let ledger = Ledger::restored([serde_json::from_str(&line).unwrap()]);
        assert!(ledger.has_orphans() && ledger.owner((2, 0x20)).is_some());
    }
}
