// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which receive a message belongs to, as MPI orders it: a message matches the oldest receive that fits, a receive the
//! oldest message that fits.
//!
//! Receives of one exact tag are found by a hash of source and tag (or of the tag, from any source); those with an
//! ignore mask stand in one list, as they must be tried one by one. Every message stands in three lists: of its source
//! and tag, of its tag, of all.

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

    fn place(&self) -> Place {
        if self.ignore == 0 { Place::Tag(self.source, self.tag) } else { Place::All }
    }
}

/// Names what is in a matcher, until it is taken out.
pub type Ticket = u32;

/// Receives without a message, and messages without a receive.
pub struct Matcher<R, M> {
    receives: Threaded<R, 1>,
    /// Of the receives, those of one tag from anybody: usually none, and then nobody looks for one.
    from_anybody: usize,
    messages: Threaded<M, 3>,
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
        Self { receives: Threaded::new(), from_anybody: 0, messages: Threaded::new() }
    }

    /// Adds a receive behind the others. The caller has seen that no message fits it.
    #[inline]
    pub fn post(&mut self, pattern: Pattern, receive: R) -> Ticket {
        self.from_anybody += usize::from(pattern.source.is_none() && pattern.ignore == 0);
        self.receives.add(pattern, receive, [pattern.place()])
    }

    /// The receive that a message matches; it stays.
    #[inline]
    pub fn receive_for(&self, source: PeerId, tag: u64) -> Option<(Ticket, R)> {
        let mut oldest = self.receives.first(Place::Tag(Some(source), tag));
        if self.from_anybody > 0 {
            oldest = self.receives.older(oldest, self.receives.first(Place::Tag(None, tag)));
        }
        let mut masked = self.receives.first(Place::All);
        while let Some(ticket) = masked {
            if self.receives.older(oldest, masked) == oldest && oldest.is_some() {
                break;
            }
            if self.receives.at(ticket).pattern.fits(source, tag) {
                oldest = masked;
                break;
            }
            masked = self.receives.next(ticket, 0);
        }
        oldest.map(|ticket| (ticket, self.receives.at(ticket).value))
    }

    /// Takes a receive out.
    #[inline]
    pub fn remove_receive(&mut self, ticket: Ticket) -> R {
        let (pattern, receive) = self.receives.remove(ticket);
        self.from_anybody -= usize::from(pattern.source.is_none() && pattern.ignore == 0);
        receive
    }

    /// Adds a message behind the others. The caller has seen that no receive fits it.
    pub fn hold(&mut self, source: PeerId, tag: u64, message: M) -> Ticket {
        let places = [Place::Tag(Some(source), tag), Place::Tag(None, tag), Place::All];
        self.messages.add(Pattern::exact(source, tag), message, places)
    }

    /// The message that a receive matches; it stays.
    #[inline]
    pub fn message_for(&self, pattern: Pattern) -> Option<(Ticket, M)> {
        if self.messages.is_empty() {
            return None;
        }
        let mut found = self.messages.first(pattern.place());
        if pattern.ignore != 0 {
            while let Some(ticket) = found {
                let message = &self.messages.at(ticket).pattern;
                if message.source.is_some_and(|source| pattern.fits(source, message.tag)) {
                    break;
                }
                found = self.messages.next(ticket, 2);
            }
        }
        found.map(|ticket| (ticket, self.messages.at(ticket).value))
    }

    /// Takes a message out.
    pub fn remove_message(&mut self, ticket: Ticket) -> M {
        self.messages.remove(ticket).1
    }
}

/// Which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Tag(Option<PeerId>, u64),
    All,
}

const NONE: Ticket = Ticket::MAX;

/// The ends of a list.
#[derive(Clone, Copy)]
struct Ends {
    first: Ticket,
    last: Ticket,
}

const EMPTY: Ends = Ends { first: NONE, last: NONE };

struct Entry<T, const N: usize> {
    pattern: Pattern,
    value: T,
    /// Grows from entry to entry.
    age: u64,
    places: [Place; N],
    /// In each list: who is before it and behind it.
    links: [(Ticket, Ticket); N],
}

/// Entries in order of their coming, each in `N` lists.
struct Threaded<T, const N: usize> {
    entries: Vec<Option<Entry<T, N>>>,
    free: Vec<Ticket>,
    tags: HashMap<(u32, u64), Ends, Seeded>,
    all: Ends,
    next_age: u64,
}

impl<T, const N: usize> Threaded<T, N> {
    fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            tags: HashMap::with_hasher(Seeded::new()),
            all: EMPTY,
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

    fn at_mut(&mut self, ticket: Ticket) -> &mut Entry<T, N> {
        self.entries[ticket as usize].as_mut().expect("a ticket names an entry until it is taken out")
    }

    #[inline]
    fn first(&self, place: Place) -> Option<Ticket> {
        let ends = match place {
            Place::Tag(source, tag) => self.tags.get(&hashed(source, tag))?,
            Place::All => &self.all,
        };
        some(ends.first)
    }

    #[inline]
    fn next(&self, ticket: Ticket, list: usize) -> Option<Ticket> {
        some(self.at(ticket).links[list].1)
    }

    #[inline]
    fn older(&self, one: Option<Ticket>, other: Option<Ticket>) -> Option<Ticket> {
        match (one, other) {
            (Some(a), Some(b)) => Some(if self.at(a).age <= self.at(b).age { a } else { b }),
            (one, other) => one.or(other),
        }
    }

    #[inline]
    fn add(&mut self, pattern: Pattern, value: T, places: [Place; N]) -> Ticket {
        let ticket = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            (self.entries.len() - 1) as Ticket
        });
        let mut links = [(NONE, NONE); N];
        for (list, place) in places.iter().enumerate() {
            let ends = match *place {
                Place::Tag(source, tag) => self.tags.entry(hashed(source, tag)).or_insert(EMPTY),
                Place::All => &mut self.all,
            };
            let before = std::mem::replace(&mut ends.last, ticket);
            links[list].0 = before;
            if before == NONE {
                ends.first = ticket;
            } else {
                self.at_mut(before).links[list].1 = ticket;
            }
        }
        let age = self.next_age;
        self.next_age += 1;
        self.entries[ticket as usize] = Some(Entry { pattern, value, age, places, links });
        ticket
    }

    #[inline]
    fn remove(&mut self, ticket: Ticket) -> (Pattern, T) {
        let entry = self.entries[ticket as usize].take().expect("a ticket names an entry until it is taken out");
        self.free.push(ticket);
        for (list, (place, (before, behind))) in entry.places.into_iter().zip(entry.links).enumerate() {
            if before != NONE {
                self.at_mut(before).links[list].1 = behind;
            }
            if behind != NONE {
                self.at_mut(behind).links[list].0 = before;
            }
            match place {
                Place::Tag(source, tag) if before == NONE && behind == NONE => {
                    self.tags.remove(&hashed(source, tag));
                }
                Place::Tag(source, tag) if before == NONE || behind == NONE => {
                    let ends = self.tags.get_mut(&hashed(source, tag));
                    ends.expect("a list that has an entry exists").close(before, behind);
                }
                Place::Tag(..) => {}
                Place::All => self.all.close(before, behind),
            }
        }
        (entry.pattern, entry.value)
    }
}

impl Ends {
    /// An entry between these two is gone.
    fn close(&mut self, before: Ticket, behind: Ticket) {
        if before == NONE {
            self.first = behind;
        }
        if behind == NONE {
            self.last = before;
        }
    }
}

fn some(ticket: Ticket) -> Option<Ticket> {
    (ticket != NONE).then_some(ticket)
}

fn hashed(source: Option<PeerId>, tag: u64) -> (u32, u64) {
    (source.map_or(u32::MAX, PeerId::number), tag)
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
            prop_assert!(matcher.receives.tags.is_empty() && matcher.messages.tags.is_empty());
            prop_assert_eq!(matcher.from_anybody, 0);
        }
    }
}
