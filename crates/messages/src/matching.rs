// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which receive a message belongs to, as MPI orders it: a message matches the oldest receive that fits, a receive the
//! oldest message that fits.
//!
//! Programs use few kinds of pattern: which bits they ignore, and whether they name the source. Of each kind in use
//! there is a *view*: a hash by source and by the bits of the tag that count there. A receive stands in its own view, and
//! a message looks into all that are in use, unless the oldest receive of all fits it. A message is put into a view when
//! a receive of that kind looks for one: so one that was waited for costs nothing more.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::peers::PeerId;

/// What a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// From whom; `None`: from anybody.
    pub source: Option<PeerId>,
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
}

impl Pattern {
    /// One tag of one source.
    #[must_use]
    pub const fn exact(source: PeerId, tag: u64) -> Self {
        Self { source: Some(source), tag, ignore: 0 }
    }

    /// Whether a message fits.
    #[inline]
    #[must_use]
    pub fn fits(&self, source: PeerId, tag: u64) -> bool {
        (self.tag ^ tag) & !self.ignore == 0 && self.source.is_none_or(|wanted| wanted == source)
    }

    fn kind(&self) -> Kind {
        Kind { ignore: self.ignore, names_source: self.source.is_some() }
    }
}

/// Names what is in a matcher, until it is taken out.
pub type Ticket = u32;

/// Receives without a message, and messages without a receive.
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
    /// With nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self { receives: Receives::new(), messages: Messages::new() }
    }

    /// Adds a receive behind the others. The caller has seen that no message fits it.
    #[inline]
    pub fn post(&mut self, pattern: Pattern, receive: R) -> Ticket {
        self.receives.add(pattern, receive)
    }

    /// The receive that a message matches; it stays.
    #[inline(always)]
    pub fn receive_for(&self, source: PeerId, tag: u64) -> Option<(Ticket, R)> {
        let ticket = self.receives.oldest_for(source, tag)?;
        Some((ticket, self.receives.threads.at(ticket).value))
    }

    /// Takes a receive out.
    #[inline]
    pub fn remove_receive(&mut self, ticket: Ticket) -> R {
        self.receives.remove(ticket)
    }

    /// Adds a message behind the others. The caller has seen that no receive fits it.
    pub fn hold(&mut self, source: PeerId, tag: u64, message: M) -> Ticket {
        self.messages.add(source, tag, message)
    }

    /// The message that a receive matches; it stays.
    #[inline]
    pub fn message_for(&mut self, pattern: Pattern) -> Option<(Ticket, M)> {
        if self.messages.threads.is_empty() {
            return None;
        }
        let ticket = self.messages.oldest_for(&pattern)?;
        Some((ticket, self.messages.threads.at(ticket).value))
    }

    /// The newest message that a receive could match: what a test of the tests wants to be noticed.
    #[cfg(feature = "mutants")]
    pub fn newest_for(&self, pattern: Pattern) -> Option<(Ticket, M)> {
        let threads = &self.messages.threads;
        let mut next = self.messages.all.last;
        while next != NONE {
            let entry = threads.at(next);
            if entry.pattern.source.is_some_and(|source| pattern.fits(source, entry.pattern.tag)) {
                return Some((next, entry.value));
            }
            next = entry.links[ALL].before;
        }
        None
    }

    /// Takes a message out.
    pub fn remove_message(&mut self, ticket: Ticket) -> M {
        self.messages.remove(ticket)
    }
}

/// Which bits of a tag do not matter, and whether the source does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    ignore: u64,
    names_source: bool,
}

impl Kind {
    /// What all messages have in common that such a pattern fits; `view` is this kind's.
    #[inline]
    fn hashed(self, view: usize, source: Option<PeerId>, tag: u64) -> Hashed {
        let source = source.filter(|_| self.names_source).map_or(u32::MAX, PeerId::number);
        ((view as u64) << 32 | u64::from(source), tag & !self.ignore)
    }
}

/// View and source, and the bits of the tag that count.
type Hashed = (u64, u64);

/// Threads that a receive stands in: its view's, and the one of all.
const OF_VIEW: usize = 0;
const OF_ALL: usize = 1;

/// Posted receives: all in one thread, and each in the view of its kind.
struct Receives<R> {
    threads: Threads<R, 2>,
    all: Ends,
    /// Kinds, and how many receives there are of each; those without are used again.
    views: Vec<(Kind, usize)>,
}

impl<R: Copy> Receives<R> {
    fn new() -> Self {
        Self { threads: Threads::new(), all: EMPTY, views: Vec::new() }
    }

    #[inline]
    fn add(&mut self, pattern: Pattern, receive: R) -> Ticket {
        let kind = pattern.kind();
        let place = self.views.iter().position(|view| view.0 == kind);
        let place = place.or_else(|| self.views.iter().position(|view| view.1 == 0)).unwrap_or_else(|| {
            self.views.push((kind, 0));
            self.views.len() - 1
        });
        let view = &mut self.views[place];
        *view = (kind, view.1 + 1);
        let ticket = self.threads.add(pattern, receive);
        self.threads.at_mut(ticket).view = place as u32;
        self.threads.link(OF_VIEW, ticket, kind.hashed(place, pattern.source, pattern.tag));
        self.all.append(&mut self.threads.entries, OF_ALL, ticket);
        ticket
    }

    #[inline(always)]
    fn oldest_for(&self, source: PeerId, tag: u64) -> Option<Ticket> {
        // Mostly it is the oldest of all: to see that takes no hash, on which all that follows would have to wait.
        let first = self.all.first;
        if first == NONE || self.threads.at(first).pattern.fits(source, tag) {
            return (first != NONE).then_some(first);
        }
        let mut oldest: Option<(u64, Ticket)> = None;
        for (place, (kind, count)) in self.views.iter().enumerate() {
            if *count > 0
                && let Some(first) = self.threads.first(kind.hashed(place, Some(source), tag))
            {
                let found = (self.threads.at(first).age, first);
                oldest = Some(oldest.map_or(found, |oldest| oldest.min(found)));
            }
        }
        oldest.map(|(_, ticket)| ticket)
    }

    #[inline]
    fn remove(&mut self, ticket: Ticket) -> R {
        let &Entry { value, view, links, .. } = self.threads.at(ticket);
        self.views[view as usize].1 -= 1;
        self.threads.unlink(OF_VIEW, links[OF_VIEW]);
        self.all.take_out(&mut self.threads.entries, OF_ALL, links[OF_ALL]);
        self.threads.remove(ticket);
        value
    }
}

/// Kinds of pattern for which messages are hashed; a pattern of any other is tried on one after the other. MPI libraries
/// use four: with and without a source, with and without a tag.
const VIEWS: usize = 6;
/// The thread that all messages stand in.
const ALL: usize = VIEWS;

/// Held messages: all in one thread, and in the views that were looked into since they came.
struct Messages<M> {
    threads: Threads<M, { VIEWS + 1 }>,
    all: Ends,
    /// Kinds that were looked for while there were messages, and the first message that is not in their view yet.
    views: Vec<(Kind, Ticket)>,
}

impl<M: Copy> Messages<M> {
    fn new() -> Self {
        Self { threads: Threads::new(), all: EMPTY, views: Vec::with_capacity(VIEWS) }
    }

    fn add(&mut self, source: PeerId, tag: u64, message: M) -> Ticket {
        let ticket = self.threads.add(Pattern::exact(source, tag), message);
        self.all.append(&mut self.threads.entries, ALL, ticket);
        for (_, next) in self.views.iter_mut().filter(|(_, next)| *next == NONE) {
            *next = ticket;
        }
        ticket
    }

    #[inline]
    fn oldest_for(&mut self, pattern: &Pattern) -> Option<Ticket> {
        let kind = pattern.kind();
        let place = self.views.iter().position(|view| view.0 == kind).or_else(|| self.add_view(kind));
        let Some(place) = place else { return self.search(pattern) };
        while self.views[place].1 != NONE {
            let ticket = self.views[place].1;
            let &Entry { pattern: Pattern { source, tag, .. }, links, .. } = self.threads.at(ticket);
            self.threads.link(place, ticket, kind.hashed(place, source, tag));
            self.threads.at_mut(ticket).view |= 1 << place;
            self.views[place].1 = links[ALL].behind;
        }
        self.threads.first(kind.hashed(place, pattern.source, pattern.tag))
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
            let entry = self.threads.at(next);
            if entry.pattern.source.is_some_and(|source| pattern.fits(source, entry.pattern.tag)) {
                return Some(next);
            }
            next = entry.links[ALL].behind;
        }
        None
    }

    fn remove(&mut self, ticket: Ticket) -> M {
        let &Entry { value, view, links, .. } = self.threads.at(ticket);
        for (place, (_, next)) in self.views.iter_mut().enumerate() {
            if view & 1 << place != 0 {
                self.threads.unlink(place, links[place]);
            } else if *next == ticket {
                *next = links[ALL].behind;
            }
        }
        self.all.take_out(&mut self.threads.entries, ALL, links[ALL]);
        self.threads.remove(ticket);
        if self.threads.is_empty() {
            // Other kinds may be looked for from now on.
            self.views.clear();
        }
        value
    }
}

const NONE: Ticket = Ticket::MAX;

/// The ends of a thread.
#[derive(Clone, Copy)]
struct Ends {
    first: Ticket,
    last: Ticket,
}

const EMPTY: Ends = Ends { first: NONE, last: NONE };

/// Where an entry stands in a thread.
#[derive(Clone, Copy)]
struct Link {
    before: Ticket,
    behind: Ticket,
    /// Which thread it is, where there is more than one.
    thread: u32,
}

const UNLINKED: Link = Link { before: NONE, behind: NONE, thread: 0 };

/// Threads without entries that are kept at least.
const KEPT: usize = 64;

#[derive(Clone, Copy)]
struct Entry<T, const N: usize> {
    pattern: Pattern,
    value: T,
    /// Grows from entry to entry.
    age: u64,
    /// Of a receive: its view; of a message: a bit for each.
    view: u32,
    links: [Link; N],
}

/// Entries in order of their coming, each in up to `N` threads.
struct Threads<T, const N: usize> {
    entries: Vec<Option<Entry<T, N>>>,
    free: Vec<Ticket>,
    threads: Vec<Ends>,
    free_threads: Vec<u32>,
    /// Threads by what their entries have in common. Those without entries stay until there are many: programs repeat
    /// their patterns.
    by_hashed: HashMap<Hashed, u32, Seeded>,
    empty: usize,
    next_age: u64,
}

impl<T: Copy, const N: usize> Threads<T, N> {
    fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            threads: Vec::new(),
            free_threads: Vec::new(),
            by_hashed: HashMap::with_hasher(Seeded::new()),
            empty: 0,
            next_age: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    #[inline]
    fn at(&self, ticket: Ticket) -> &Entry<T, N> {
        self.entries[ticket as usize].as_ref().expect("a ticket names an entry until it is taken out")
    }

    #[inline]
    fn at_mut(&mut self, ticket: Ticket) -> &mut Entry<T, N> {
        entry(&mut self.entries, ticket)
    }

    #[inline]
    fn first(&self, hashed: Hashed) -> Option<Ticket> {
        self.by_hashed.get(&hashed).map(|thread| self.threads[*thread as usize].first).filter(|first| *first != NONE)
    }

    /// An entry in no thread.
    #[inline]
    fn add(&mut self, pattern: Pattern, value: T) -> Ticket {
        let ticket = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            (self.entries.len() - 1) as Ticket
        });
        let age = self.next_age;
        self.next_age += 1;
        self.entries[ticket as usize] = Some(Entry { pattern, value, age, view: 0, links: [UNLINKED; N] });
        ticket
    }

    /// Puts an entry at the end of a thread.
    #[inline]
    fn link(&mut self, list: usize, ticket: Ticket, hashed: Hashed) {
        let known = self.by_hashed.get(&hashed).copied();
        let thread = known.unwrap_or_else(|| self.add_thread(hashed));
        let ends = &mut self.threads[thread as usize];
        self.empty -= usize::from(ends.first == NONE);
        ends.append(&mut self.entries, list, ticket);
        self.at_mut(ticket).links[list].thread = thread;
    }

    /// A new thread without entries.
    fn add_thread(&mut self, hashed: Hashed) -> u32 {
        let thread = self.free_threads.pop().unwrap_or_else(|| {
            self.threads.push(EMPTY);
            (self.threads.len() - 1) as u32
        });
        self.by_hashed.insert(hashed, thread);
        self.empty += 1;
        thread
    }

    /// Takes the entry with this link out of its thread.
    #[inline]
    fn unlink(&mut self, list: usize, link: Link) {
        let ends = &mut self.threads[link.thread as usize];
        ends.take_out(&mut self.entries, list, link);
        if ends.first == NONE {
            self.empty += 1;
            if self.empty >= KEPT.max(self.by_hashed.capacity() / 2) {
                self.forget_empty_threads();
            }
        }
    }

    #[cold]
    fn forget_empty_threads(&mut self) {
        let Self { threads, free_threads, by_hashed, empty, .. } = self;
        by_hashed.retain(|_, thread| {
            let is_kept = threads[*thread as usize].first != NONE;
            if !is_kept {
                free_threads.push(*thread);
            }
            is_kept
        });
        *empty = 0;
    }

    /// Takes an entry out that is in no thread any more.
    #[inline]
    fn remove(&mut self, ticket: Ticket) {
        self.entries[ticket as usize] = None;
        self.free.push(ticket);
    }
}

#[inline]
fn entry<T, const N: usize>(entries: &mut [Option<Entry<T, N>>], ticket: Ticket) -> &mut Entry<T, N> {
    entries[ticket as usize].as_mut().expect("a ticket names an entry until it is taken out")
}

impl Ends {
    #[inline]
    fn append<T, const N: usize>(&mut self, entries: &mut [Option<Entry<T, N>>], list: usize, ticket: Ticket) {
        let before = std::mem::replace(&mut self.last, ticket);
        entry(entries, ticket).links[list] = Link { before, ..UNLINKED };
        if before == NONE {
            self.first = ticket;
        } else {
            entry(entries, before).links[list].behind = ticket;
        }
    }

    #[inline]
    fn take_out<T, const N: usize>(&mut self, entries: &mut [Option<Entry<T, N>>], list: usize, link: Link) {
        let Link { before, behind, .. } = link;
        if before == NONE {
            self.first = behind;
        } else {
            entry(entries, before).links[list].behind = behind;
        }
        if behind == NONE {
            self.last = before;
        } else {
            entry(entries, behind).links[list].before = before;
        }
    }
}

/// Multiplies and folds: tags need no more, and strangers do not know the seed.
#[derive(Clone)]
struct Seeded(u64);

impl Seeded {
    fn new() -> Self {
        Self(RandomState::new().hash_one(0) | 1)
    }
}

impl BuildHasher for Seeded {
    type Hasher = Folding;

    fn build_hasher(&self) -> Folding {
        Folding(self.0)
    }
}

struct Folding(u64);

impl Folding {
    /// An odd number without a pattern: the golden ratio's fraction.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
}

impl Hasher for Folding {
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

    /// The rule itself: two lists, searched from the front.
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
        /// Proves that the hashed lists choose as two plain lists do, whatever is posted, arrives or is taken back.
        #[test]
        fn the_oldest_that_fits_is_chosen(steps in prop::collection::vec(steps(), 0..120)) {
            let (mut matcher, mut naive) = (Matcher::<u32, u32>::new(), Naive::default());
            for (number, step) in (0..).zip(steps) {
                match step {
                    Step::Post(pattern) => {
                        let place = naive.messages.iter().position(|m| pattern.fits(m.0, m.1));
                        let found = matcher.message_for(pattern);
                        prop_assert_eq!(found.map(|found| found.1), place.map(|place| naive.messages[place].2));
                        if let (Some((ticket, _)), Some(place)) = (found, place) {
                            matcher.remove_message(ticket);
                            naive.messages.remove(place);
                        } else {
                            naive.receives.push((pattern, number, matcher.post(pattern, number)));
                        }
                    }
                    Step::Arrive(source, tag) => {
                        let place = naive.receives.iter().position(|r| r.0.fits(source, tag));
                        let found = matcher.receive_for(source, tag);
                        prop_assert_eq!(found.map(|found| found.1), place.map(|place| naive.receives[place].1));
                        if let (Some((ticket, _)), Some(place)) = (found, place) {
                            matcher.remove_receive(ticket);
                            naive.receives.remove(place);
                        } else {
                            naive.messages.push((source, tag, number, matcher.hold(source, tag, number)));
                        }
                    }
                    Step::Peek(pattern) => {
                        let expected = naive.messages.iter().find(|m| pattern.fits(m.0, m.1)).map(|m| m.2);
                        prop_assert_eq!(matcher.message_for(pattern).map(|found| found.1), expected);
                    }
                    Step::Cancel(place) if !naive.receives.is_empty() => {
                        let (_, receive, ticket) = naive.receives.remove(place % naive.receives.len());
                        prop_assert_eq!(matcher.remove_receive(ticket), receive);
                    }
                    Step::Drop(place) if !naive.messages.is_empty() => {
                        let (_, _, message, ticket) = naive.messages.remove(place % naive.messages.len());
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
            prop_assert!(matcher.receives.threads.are_empty() && matcher.messages.threads.are_empty());
            prop_assert!(matcher.receives.views.iter().all(|view| view.1 == 0) && matcher.messages.views.is_empty());
        }
    }

    impl<T: Copy, const N: usize> Threads<T, N> {
        fn are_empty(&mut self) -> bool {
            let is_counted = self.empty == self.by_hashed.len();
            self.forget_empty_threads();
            is_counted && self.by_hashed.is_empty() && self.free_threads.len() == self.threads.len()
        }
    }

    /// Programs that never repeat a tag.
    #[test]
    fn threads_without_entries_do_not_pile_up() {
        let mut matcher = Matcher::<u32, u32>::new();
        let source = PeerId::from_number(0);
        let kept = matcher.post(Pattern::exact(source, u64::MAX), 0);
        for tag in 0..100_000 {
            let ticket = matcher.post(Pattern::exact(source, tag), 1);
            assert_eq!(matcher.receive_for(source, tag), Some((ticket, 1)));
            matcher.remove_receive(ticket);
        }
        let threads = &matcher.receives.threads;
        assert!(threads.by_hashed.len() <= 2 * KEPT && threads.threads.len() <= 2 * KEPT);
        assert_eq!(matcher.receive_for(source, u64::MAX), Some((kept, 0)));
    }
}
