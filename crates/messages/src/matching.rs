// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Message matching with MPI's ordering: a message matches the oldest receive that fits, a receive the oldest message
//! that fits.
//!
//! Programs use few kinds of pattern: which tag bits they ignore, and whether they name the source. Each kind in use
//! has a *view*: a hash table keyed by the source and the significant tag bits. A receive is in the view of its own
//! kind. A message is looked up in all views in use, unless the oldest receive of all fits. A message enters a view
//! only when a receive of that kind is posted, so an expected message costs no hashing.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::peers::PeerId;

/// The messages that a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The source; `None`: any.
    pub source: Option<PeerId>,
    /// The tag.
    pub tag: u64,
    /// Tag bits to ignore.
    pub ignore: u64,
}

impl Pattern {
    /// Exactly this source and tag.
    #[must_use]
    pub const fn exact(source: PeerId, tag: u64) -> Self {
        Self { source: Some(source), tag, ignore: 0 }
    }

    /// Whether a message matches.
    #[inline]
    #[must_use]
    pub fn fits(&self, source: PeerId, tag: u64) -> bool {
        (self.tag ^ tag) & !self.ignore == 0 && self.source.is_none_or(|wanted| wanted == source)
    }

    fn kind(&self) -> Kind {
        Kind { ignore: self.ignore, has_source: self.source.is_some() }
    }
}

/// Handle of an entry in a matcher, valid until the entry is removed.
pub type Ticket = u32;

/// Posted receives, and unexpected messages.
pub struct Matcher<R, M> {
    receives: Receives<R>,
    messages: Messages<M>,
}

impl<R: Copy, M: Copy> Default for Matcher<R, M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Copy, M: Copy> Matcher<R, M> {
    /// Creates an empty matcher.
    #[must_use]
    pub fn new() -> Self {
        Self { receives: Receives::new(), messages: Messages::new() }
    }

    /// Appends a receive. The caller has checked that no unexpected message fits it.
    #[inline]
    pub fn post(&mut self, pattern: Pattern, receive: R) -> Ticket {
        self.receives.add(pattern, receive)
    }

    /// The receive that a message matches; it is not removed.
    #[inline(always)]
    pub fn receive_for(&self, source: PeerId, tag: u64) -> Option<(Ticket, R)> {
        let ticket = self.receives.oldest_for(source, tag)?;
        Some((ticket, self.receives.lists.at(ticket).value))
    }

    /// Removes a receive.
    #[inline]
    pub fn remove_receive(&mut self, ticket: Ticket) -> R {
        self.receives.remove(ticket)
    }

    /// Appends an unexpected message. The caller has checked that no receive fits it.
    pub fn add_unexpected(&mut self, source: PeerId, tag: u64, message: M) -> Ticket {
        self.messages.add(source, tag, message)
    }

    /// The message that a receive matches; it is not removed.
    #[inline]
    pub fn message_for(&mut self, pattern: Pattern) -> Option<(Ticket, M)> {
        if self.messages.lists.is_empty() {
            return None;
        }
        let ticket = self.messages.oldest_for(&pattern)?;
        Some((ticket, self.messages.lists.at(ticket).value))
    }

    /// The newest message that fits, for [`Mutant::MatchesNewest`](crate::Mutant::MatchesNewest).
    #[cfg(feature = "mutants")]
    pub fn newest_for(&self, pattern: Pattern) -> Option<(Ticket, M)> {
        let lists = &self.messages.lists;
        let mut next = self.messages.all.last;
        while next != NONE {
            let entry = lists.at(next);
            if entry.pattern.source.is_some_and(|source| pattern.fits(source, entry.pattern.tag)) {
                return Some((next, entry.value));
            }
            next = entry.links[ALL_MESSAGES_SLOT].previous;
        }
        None
    }

    /// Removes a message.
    pub fn remove_message(&mut self, ticket: Ticket) -> M {
        self.messages.remove(ticket)
    }
}

/// Kind of pattern: which tag bits it ignores, and whether it names the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    ignore: u64,
    has_source: bool,
}

impl Kind {
    /// Hash key of a source and tag in this kind's view, which is number `view`.
    #[inline]
    fn hash_key(self, view: usize, source: Option<PeerId>, tag: u64) -> HashKey {
        let source = source.filter(|_| self.has_source).map_or(u32::MAX, PeerId::number);
        ((view as u64) << 32 | u64::from(source), tag & !self.ignore)
    }
}

/// View and source, and the significant tag bits.
type HashKey = (u64, u64);

/// Indices of a receive's links: in its view's list, and in the list of all receives.
const VIEW_SLOT: usize = 0;
const ALL_SLOT: usize = 1;

/// Posted receives: all in one list, and each in its kind's view.
struct Receives<R> {
    lists: Lists<R, 2>,
    all: List,
    /// Kinds, with the number of receives of each; slots with none are reused.
    views: Vec<(Kind, usize)>,
}

impl<R: Copy> Receives<R> {
    fn new() -> Self {
        Self { lists: Lists::new(), all: EMPTY_LIST, views: Vec::new() }
    }

    #[inline(always)]
    fn add(&mut self, pattern: Pattern, receive: R) -> Ticket {
        let kind = pattern.kind();
        let index = self.views.iter().position(|view| view.0 == kind);
        let index = index.or_else(|| self.views.iter().position(|view| view.1 == 0)).unwrap_or_else(|| {
            self.views.push((kind, 0));
            self.views.len() - 1
        });
        let view = &mut self.views[index];
        *view = (kind, view.1 + 1);
        let ticket = self.lists.add(pattern, receive);
        self.lists.at_mut(ticket).view = index as u32;
        self.lists.link(VIEW_SLOT, ticket, kind.hash_key(index, pattern.source, pattern.tag));
        self.all.append(&mut self.lists.entries, ALL_SLOT, ticket);
        ticket
    }

    #[inline(always)]
    fn oldest_for(&self, source: PeerId, tag: u64) -> Option<Ticket> {
        // Usually the oldest receive fits. Checking it first avoids the hash, on which everything after it would
        // depend.
        let first = self.all.first;
        if first == NONE || self.lists.at(first).pattern.fits(source, tag) {
            return (first != NONE).then_some(first);
        }
        let mut oldest: Option<(u64, Ticket)> = None;
        for (index, (kind, count)) in self.views.iter().enumerate() {
            if *count > 0
                && let Some(first) = self.lists.first(kind.hash_key(index, Some(source), tag))
            {
                let found = (self.lists.at(first).sequence, first);
                oldest = Some(oldest.map_or(found, |oldest| oldest.min(found)));
            }
        }
        oldest.map(|(_, ticket)| ticket)
    }

    #[inline]
    fn remove(&mut self, ticket: Ticket) -> R {
        let &Entry { value, view, links, .. } = self.lists.at(ticket);
        self.views[view as usize].1 -= 1;
        self.lists.unlink(VIEW_SLOT, links[VIEW_SLOT]);
        self.all.unlink(&mut self.lists.entries, ALL_SLOT, links[ALL_SLOT]);
        self.lists.remove(ticket);
        value
    }
}

/// Limit of views on unexpected messages; patterns of further kinds search linearly. MPI libraries use four kinds: with
/// and without a source, with and without a tag.
const VIEWS: usize = 6;
/// Index of a message's link in the list of all messages.
const ALL_MESSAGES_SLOT: usize = VIEWS;

/// Unexpected messages: all in one list, and in the views that were searched since they arrived.
struct Messages<M> {
    lists: Lists<M, { VIEWS + 1 }>,
    all: List,
    /// Kinds that were searched while there were messages, each with the first message that is not in its view yet.
    views: Vec<(Kind, Ticket)>,
}

impl<M: Copy> Messages<M> {
    fn new() -> Self {
        Self { lists: Lists::new(), all: EMPTY_LIST, views: Vec::with_capacity(VIEWS) }
    }

    fn add(&mut self, source: PeerId, tag: u64, message: M) -> Ticket {
        let ticket = self.lists.add(Pattern::exact(source, tag), message);
        self.all.append(&mut self.lists.entries, ALL_MESSAGES_SLOT, ticket);
        for (_, next) in self.views.iter_mut().filter(|(_, next)| *next == NONE) {
            *next = ticket;
        }
        ticket
    }

    #[inline]
    fn oldest_for(&mut self, pattern: &Pattern) -> Option<Ticket> {
        let kind = pattern.kind();
        let index = self.views.iter().position(|view| view.0 == kind).or_else(|| self.add_view(kind));
        let Some(index) = index else { return self.search(pattern) };
        while self.views[index].1 != NONE {
            let ticket = self.views[index].1;
            let &Entry { pattern: Pattern { source, tag, .. }, links, .. } = self.lists.at(ticket);
            self.lists.link(index, ticket, kind.hash_key(index, source, tag));
            self.lists.at_mut(ticket).view |= 1 << index;
            self.views[index].1 = links[ALL_MESSAGES_SLOT].next;
        }
        self.lists.first(kind.hash_key(index, pattern.source, pattern.tag))
    }

    #[cold]
    fn add_view(&mut self, kind: Kind) -> Option<usize> {
        (self.views.len() < VIEWS).then(|| {
            self.views.push((kind, self.all.first));
            self.views.len() - 1
        })
    }

    fn search(&self, pattern: &Pattern) -> Option<Ticket> {
        let mut next = self.all.first;
        while next != NONE {
            let entry = self.lists.at(next);
            if entry.pattern.source.is_some_and(|source| pattern.fits(source, entry.pattern.tag)) {
                return Some(next);
            }
            next = entry.links[ALL_MESSAGES_SLOT].next;
        }
        None
    }

    fn remove(&mut self, ticket: Ticket) -> M {
        let &Entry { value, view, links, .. } = self.lists.at(ticket);
        for (index, (_, next)) in self.views.iter_mut().enumerate() {
            if view & 1 << index != 0 {
                self.lists.unlink(index, links[index]);
            } else if *next == ticket {
                *next = links[ALL_MESSAGES_SLOT].next;
            }
        }
        self.all.unlink(&mut self.lists.entries, ALL_MESSAGES_SLOT, links[ALL_MESSAGES_SLOT]);
        self.lists.remove(ticket);
        if self.lists.is_empty() {
            // Later receives may be of other kinds.
            self.views.clear();
        }
        value
    }
}

const NONE: Ticket = Ticket::MAX;

/// First and last entry of a list.
#[derive(Clone, Copy)]
struct List {
    first: Ticket,
    last: Ticket,
}

const EMPTY_LIST: List = List { first: NONE, last: NONE };

/// An entry's links in one list.
#[derive(Clone, Copy)]
struct Link {
    previous: Ticket,
    next: Ticket,
    /// The list's index, for lists that are hashed.
    list: u32,
}

const UNLINKED: Link = Link { previous: NONE, next: NONE, list: 0 };

/// Minimum number of empty lists to keep.
const EMPTY_LISTS_KEPT: usize = 64;

#[derive(Clone, Copy)]
struct Entry<T, const N: usize> {
    pattern: Pattern,
    value: T,
    /// Sequence number of the entry.
    sequence: u64,
    /// A receive's view, or a message's bit set of views.
    view: u32,
    links: [Link; N],
}

/// Entries in order of insertion, each in up to `N` lists.
struct Lists<T, const N: usize> {
    entries: Vec<Option<Entry<T, N>>>,
    free: Vec<Ticket>,
    lists: Vec<List>,
    free_lists: Vec<u32>,
    /// Lists by hash key. Programs repeat their patterns, so empty lists stay until there are many.
    by_key: HashMap<HashKey, u32, SeededHash>,
    empty: usize,
    next_sequence: u64,
}

impl<T: Copy, const N: usize> Lists<T, N> {
    fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            lists: Vec::new(),
            free_lists: Vec::new(),
            by_key: HashMap::with_hasher(SeededHash::new()),
            empty: 0,
            next_sequence: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    #[inline]
    fn at(&self, ticket: Ticket) -> &Entry<T, N> {
        self.entries[ticket as usize].as_ref().expect("a ticket is valid until its entry is removed")
    }

    #[inline]
    fn at_mut(&mut self, ticket: Ticket) -> &mut Entry<T, N> {
        entry(&mut self.entries, ticket)
    }

    #[inline]
    fn first(&self, key: HashKey) -> Option<Ticket> {
        self.by_key.get(&key).map(|list| self.lists[*list as usize].first).filter(|first| *first != NONE)
    }

    /// Adds an entry that is in no list.
    #[inline]
    fn add(&mut self, pattern: Pattern, value: T) -> Ticket {
        let ticket = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            (self.entries.len() - 1) as Ticket
        });
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.entries[ticket as usize] = Some(Entry { pattern, value, sequence, view: 0, links: [UNLINKED; N] });
        ticket
    }

    /// Appends an entry to a list.
    #[inline]
    fn link(&mut self, slot: usize, ticket: Ticket, key: HashKey) {
        let known = self.by_key.get(&key).copied();
        let index = known.unwrap_or_else(|| self.add_list(key));
        let list = &mut self.lists[index as usize];
        self.empty -= usize::from(list.first == NONE);
        list.append(&mut self.entries, slot, ticket);
        self.at_mut(ticket).links[slot].list = index;
    }

    /// Adds an empty list.
    fn add_list(&mut self, key: HashKey) -> u32 {
        let index = self.free_lists.pop().unwrap_or_else(|| {
            self.lists.push(EMPTY_LIST);
            (self.lists.len() - 1) as u32
        });
        self.by_key.insert(key, index);
        self.empty += 1;
        index
    }

    /// Removes the entry with this link from its list.
    #[inline]
    fn unlink(&mut self, slot: usize, link: Link) {
        let list = &mut self.lists[link.list as usize];
        list.unlink(&mut self.entries, slot, link);
        if list.first == NONE {
            self.empty += 1;
            if self.empty >= EMPTY_LISTS_KEPT.max(self.by_key.capacity() / 2) {
                self.remove_empty_lists();
            }
        }
    }

    #[cold]
    fn remove_empty_lists(&mut self) {
        let Self { lists, free_lists, by_key, empty, .. } = self;
        by_key.retain(|_, list| {
            let is_kept = lists[*list as usize].first != NONE;
            if !is_kept {
                free_lists.push(*list);
            }
            is_kept
        });
        *empty = 0;
    }

    /// Removes an entry that is in no list any more.
    #[inline]
    fn remove(&mut self, ticket: Ticket) {
        self.entries[ticket as usize] = None;
        self.free.push(ticket);
    }
}

#[inline]
fn entry<T, const N: usize>(entries: &mut [Option<Entry<T, N>>], ticket: Ticket) -> &mut Entry<T, N> {
    entries[ticket as usize].as_mut().expect("a ticket is valid until its entry is removed")
}

impl List {
    #[inline]
    fn append<T, const N: usize>(&mut self, entries: &mut [Option<Entry<T, N>>], slot: usize, ticket: Ticket) {
        let previous = std::mem::replace(&mut self.last, ticket);
        entry(entries, ticket).links[slot] = Link { previous, ..UNLINKED };
        if previous == NONE {
            self.first = ticket;
        } else {
            entry(entries, previous).links[slot].next = ticket;
        }
    }

    #[inline]
    fn unlink<T, const N: usize>(&mut self, entries: &mut [Option<Entry<T, N>>], slot: usize, link: Link) {
        let Link { previous, next, .. } = link;
        if previous == NONE {
            self.first = next;
        } else {
            entry(entries, previous).links[slot].next = next;
        }
        if next == NONE {
            self.last = previous;
        } else {
            entry(entries, next).links[slot].previous = previous;
        }
    }
}

/// Multiply-and-fold hash with a random seed: enough for tags, and peers do not know the seed.
#[derive(Clone)]
struct SeededHash(u64);

impl SeededHash {
    fn new() -> Self {
        Self(RandomState::new().hash_one(0) | 1)
    }
}

impl BuildHasher for SeededHash {
    type Hasher = FoldHasher;

    fn build_hasher(&self) -> FoldHasher {
        FoldHasher(self.0)
    }
}

struct FoldHasher(u64);

impl FoldHasher {
    /// Fraction of the golden ratio: odd, without a pattern.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
}

impl Hasher for FoldHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * u128::from(Self::FACTOR);
        self.0 = (product as u64) ^ (product >> 64) as u64 ^ self.0.rotate_left(23);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The matching rule itself: two lists, searched from the front.
    #[derive(Default)]
    struct Naive {
        receives: Vec<(Pattern, u32, Ticket)>,
        messages: Vec<(PeerId, u64, u32, Ticket)>,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Post(Pattern),
        Arrive(PeerId, u64),
        Peek(Pattern),
        Cancel(usize),
        Drop(usize),
    }

    fn peers() -> impl Strategy<Value = PeerId> {
        (0u32..3).prop_map(PeerId::from_number)
    }

    fn patterns() -> impl Strategy<Value = Pattern> {
        let ignore = prop_oneof![3 => Just(0), 1 => 0u64..8, 1 => Just(u64::MAX)];
        (prop::option::weighted(0.7, peers()), 0u64..8, ignore).prop_map(|(source, tag, ignore)| Pattern {
            source,
            tag,
            ignore,
        })
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => patterns().prop_map(Step::Post),
            4 => (peers(), 0u64..8).prop_map(|(source, tag)| Step::Arrive(source, tag)),
            1 => patterns().prop_map(Step::Peek),
            1 => any::<usize>().prop_map(Step::Cancel),
            1 => any::<usize>().prop_map(Step::Drop),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        /// Proves that hashed lists select what plain lists select, whatever is posted, arrives or is cancelled.
        #[test]
        fn the_oldest_match_is_selected(steps in prop::collection::vec(steps(), 0..120)) {
            let (mut matcher, mut naive) = (Matcher::<u32, u32>::new(), Naive::default());
            for (number, step) in (0..).zip(steps) {
                match step {
                    Step::Post(pattern) => {
                        let index = naive.messages.iter().position(|m| pattern.fits(m.0, m.1));
                        let found = matcher.message_for(pattern);
                        prop_assert_eq!(found.map(|found| found.1), index.map(|index| naive.messages[index].2));
                        if let (Some((ticket, _)), Some(index)) = (found, index) {
                            matcher.remove_message(ticket);
                            naive.messages.remove(index);
                        } else {
                            naive.receives.push((pattern, number, matcher.post(pattern, number)));
                        }
                    }
                    Step::Arrive(source, tag) => {
                        let index = naive.receives.iter().position(|r| r.0.fits(source, tag));
                        let found = matcher.receive_for(source, tag);
                        prop_assert_eq!(found.map(|found| found.1), index.map(|index| naive.receives[index].1));
                        if let (Some((ticket, _)), Some(index)) = (found, index) {
                            matcher.remove_receive(ticket);
                            naive.receives.remove(index);
                        } else {
                            naive.messages.push((source, tag, number, matcher.add_unexpected(source, tag, number)));
                        }
                    }
                    Step::Peek(pattern) => {
                        let expected = naive.messages.iter().find(|m| pattern.fits(m.0, m.1)).map(|m| m.2);
                        prop_assert_eq!(matcher.message_for(pattern).map(|found| found.1), expected);
                    }
                    Step::Cancel(index) if !naive.receives.is_empty() => {
                        let (_, receive, ticket) = naive.receives.remove(index % naive.receives.len());
                        prop_assert_eq!(matcher.remove_receive(ticket), receive);
                    }
                    Step::Drop(index) if !naive.messages.is_empty() => {
                        let (_, _, message, ticket) = naive.messages.remove(index % naive.messages.len());
                        prop_assert_eq!(matcher.remove_message(ticket), message);
                    }
                    Step::Cancel(_) | Step::Drop(_) => {}
                }
            }
            for (_, _, ticket) in naive.receives {
                matcher.remove_receive(ticket);
            }
            for (_, _, _, ticket) in naive.messages {
                matcher.remove_message(ticket);
            }
            prop_assert!(matcher.receives.lists.are_empty() && matcher.messages.lists.are_empty());
            prop_assert!(matcher.receives.views.iter().all(|view| view.1 == 0) && matcher.messages.views.is_empty());
        }
    }

    impl<T: Copy, const N: usize> Lists<T, N> {
        fn are_empty(&mut self) -> bool {
            let is_counted = self.empty == self.by_key.len();
            self.remove_empty_lists();
            is_counted && self.by_key.is_empty() && self.free_lists.len() == self.lists.len()
        }
    }

    /// As in programs that never repeat a tag.
    #[test]
    fn empty_lists_do_not_accumulate() {
        let mut matcher = Matcher::<u32, u32>::new();
        let source = PeerId::from_number(0);
        let kept = matcher.post(Pattern::exact(source, u64::MAX), 0);
        for tag in 0..100_000 {
            let ticket = matcher.post(Pattern::exact(source, tag), 1);
            assert_eq!(matcher.receive_for(source, tag), Some((ticket, 1)));
            matcher.remove_receive(ticket);
        }
        let lists = &matcher.receives.lists;
        assert!(lists.by_key.len() <= 2 * EMPTY_LISTS_KEPT && lists.lists.len() <= 2 * EMPTY_LISTS_KEPT);
        assert_eq!(matcher.receive_for(source, u64::MAX), Some((kept, 0)));
    }
}
