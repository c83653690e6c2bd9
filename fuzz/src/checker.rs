// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What must hold of the data in one direction: tokens come back once and in order, information is delivered
//! once and in order, and what is reported as acknowledged was delivered.

/// The tokens are numbered in the order in which they are sent.
#[derive(Debug, Default)]
pub struct Checker {
    sent: u32,
    returned: u32,
    delivered: Vec<u32>,
}

impl Checker {
    /// The number that the next token carries.
    pub const fn next(&self) -> u32 {
        self.sent
    }

    /// The engine took it.
    pub const fn sent(&mut self) {
        self.sent += 1;
    }

    /// The receiver's user got an information field.
    pub fn delivered(&mut self, token: u32) {
        assert!(token < self.sent, "{token} was delivered, and never sent");
        assert!(self.delivered.last().is_none_or(|last| *last < token), "{token} again, or late");
        self.delivered.push(token);
    }

    /// The sender's user heard that the peer has it.
    pub fn acknowledged(&mut self, token: u32) {
        self.dropped(token);
        assert!(self.is_delivered(token), "{token} was acknowledged, not delivered");
    }

    /// The sender's user heard that it was given up.
    pub fn dropped(&mut self, token: u32) {
        assert!(token < self.sent && token == self.returned, "{token} came back, expected was {}", self.returned);
        self.returned += 1;
    }

    /// Whether the receiver's user got it.
    pub fn is_delivered(&self, token: u32) -> bool {
        self.delivered.binary_search(&token).is_ok()
    }

    /// Tokens that the engine holds.
    pub const fn held(&self) -> u32 {
        self.sent - self.returned
    }
}

#[cfg(test)]
mod tests {
    use super::Checker;

    /// Three tokens on their way.
    fn checker() -> Checker {
        let mut checker = Checker::default();
        (0..3).for_each(|_| checker.sent());
        checker
    }

    #[test]
    fn what_is_in_order_passes() {
        let mut checker = checker();
        checker.delivered(0);
        checker.acknowledged(0);
        checker.dropped(1);
        checker.delivered(2);
        checker.acknowledged(2);
        assert_eq!(checker.held(), 0);
    }

    #[test]
    #[should_panic(expected = "again, or late")]
    fn a_second_delivery_is_caught() {
        let mut checker = checker();
        checker.delivered(0);
        checker.delivered(0);
    }

    #[test]
    #[should_panic(expected = "again, or late")]
    fn a_swap_is_caught() {
        let mut checker = checker();
        checker.delivered(1);
        checker.delivered(0);
    }

    #[test]
    #[should_panic(expected = "never sent")]
    fn an_invention_is_caught() {
        checker().delivered(3);
    }

    #[test]
    #[should_panic(expected = "not delivered")]
    fn a_false_acknowledgement_is_caught() {
        checker().acknowledged(0);
    }

    #[test]
    #[should_panic(expected = "came back")]
    fn a_token_that_comes_back_twice_is_caught() {
        let mut checker = checker();
        checker.dropped(0);
        checker.dropped(0);
    }
}
