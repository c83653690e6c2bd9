// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who has what: one owner for each service access point of an interface, until the owner's socket is gone.
//!
//! The kernel cannot take a socket back from its holder, who may have given it on besides. So an entry lasts as long as
//! the socket is open anywhere, whatever became of the connection. Pure: what is open is told.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A service access point of an interface, by the interface's number: that stays when its name changes.
pub type Key = (i32, u8);

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub interface: String,
    pub index: i32,
    pub sap: u8,
    pub user: u32,
    pub process: i32,
    /// The socket's number in the kernel; it outlives us.
    pub inode: u64,
    /// The connection has ended (or was to a broker before us), so nothing tells when the socket goes.
    #[serde(skip, default = "yes")]
    orphaned: bool,
    /// The socket was not found the last time; one may be missed while others come and go.
    #[serde(skip)]
    missed: bool,
}

fn yes() -> bool {
    true
}

/// All entries.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<Key, Entry>,
}

impl Entry {
    pub fn new(interface: &str, key: Key, user: u32, process: i32, inode: u64) -> Self {
        let (index, sap) = key;
        Self { interface: interface.to_owned(), index, sap, user, process, inode, orphaned: false, missed: false }
    }

    fn key(&self) -> Key {
        (self.index, self.sap)
    }
}

impl Ledger {
    /// With what a broker before us wrote down.
    pub fn restored(entries: impl IntoIterator<Item = Entry>) -> Self {
        Self { entries: entries.into_iter().map(|entry| (entry.key(), entry)).collect() }
    }

    pub fn owner(&self, key: Key) -> Option<&Entry> {
        self.entries.get(&key)
    }

    /// How many the user has.
    pub fn count(&self, user: u32) -> usize {
        self.entries.values().filter(|entry| entry.user == user).count()
    }

    /// Enters what nobody owns; false if somebody does.
    pub fn enter(&mut self, entry: Entry) -> bool {
        let key = entry.key();
        if self.entries.contains_key(&key) {
            return false;
        }
        self.entries.insert(key, entry);
        true
    }

    /// Takes back what was entered and never handed over.
    pub fn strike(&mut self, key: Key) {
        self.entries.remove(&key);
    }

    /// The connection of an entry has ended.
    pub fn orphan(&mut self, key: Key) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.orphaned = true;
        }
    }

    /// Whether there are entries that only a look at the kernel's sockets can end.
    pub fn has_orphans(&self) -> bool {
        self.entries.values().any(|entry| entry.orphaned)
    }

    /// Ends the orphans whose sockets were not open the last two times; `open` is what is open now.
    pub fn sweep(&mut self, open: &BTreeSet<u64>) -> Vec<Entry> {
        let mut gone = Vec::new();
        for entry in self.entries.values_mut().filter(|entry| entry.orphaned) {
            let missing = !open.contains(&entry.inode);
            if missing && entry.missed {
                gone.push(entry.clone());
            }
            entry.missed = missing;
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
    fn a_service_access_point_has_one_owner_for_each_interface() {
        let mut ledger = Ledger::default();
        assert!(ledger.enter(entry(0x20, 1)) && !ledger.enter(entry(0x20, 2)) && ledger.enter(entry(0x22, 1)));
        assert!(ledger.enter(Entry::new("eth1", (3, 0x20), 2, 78, 5)));
        assert_eq!((ledger.count(1), ledger.count(2), ledger.owner((2, 0x20)).unwrap().user), (2, 1, 1));
    }

    #[test]
    fn it_is_free_when_connection_and_socket_are_gone_and_not_before() {
        let mut ledger = Ledger::default();
        ledger.enter(entry(0x20, 1));
        let (open, closed) = (BTreeSet::from([1000 + 0x20]), BTreeSet::new());
        assert!(ledger.sweep(&closed).is_empty() && ledger.sweep(&closed).is_empty(), "its connection lives");
        ledger.orphan((2, 0x20));
        for open in [&open, &closed, &open, &closed] {
            assert!(ledger.sweep(open).is_empty(), "open, or missed but once");
        }
        assert_eq!(ledger.sweep(&closed).len(), 1);
        assert!(ledger.owner((2, 0x20)).is_none() && !ledger.has_orphans());
    }

    #[test]
    fn what_was_never_handed_over_is_struck_out() {
        let mut ledger = Ledger::default();
        assert!(ledger.enter(entry(0x20, 1)) && ledger.enter(entry(0x22, 1)) && !ledger.has_orphans());
        ledger.strike((2, 0x20));
        assert_eq!(ledger.entries().map(Entry::key).collect::<Vec<_>>(), [(2, 0x22)]);
    }

    #[test]
    fn what_was_written_down_is_an_orphan_when_it_is_read() {
        let line = serde_json::to_string(&entry(0x20, 1)).unwrap();
        let ledger = Ledger::restored([serde_json::from_str(&line).unwrap()]);
        assert!(ledger.has_orphans() && ledger.owner((2, 0x20)).is_some());
    }
}
