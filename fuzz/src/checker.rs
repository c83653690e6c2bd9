// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the data of one direction: tokens are returned once and in order, information is delivered once and in order,
//! and acknowledged information was delivered.

/// Tokens are numbered in the order of sending.
#[derive(Debug, Default)]
pub struct Checker {
    sent: u32,
    returned: u32,
    delivered: Vec<u32>,
}

impl Checker {
    /// Number of the next token.
    pub const fn next(&self) -> u32 {
        self.sent
    }

    /// The engine accepted the next token.
    pub const fn sent(&mut self) {
        self.sent += 1;
    }

    /// An information field was delivered to the receiver's user.
    pub fn delivered(&mut self, token: u32) {
        assert!(token < self.sent, "{token} was delivered, and never sent");
        assert!(self.delivered.last().is_none_or(|last| *last < token), "{token} was delivered twice or out of order");
        self.delivered.push(token);
    }

    /// The token was returned as acknowledged.
    pub fn acknowledged(&mut self, token: u32) {
        self.dropped(token);
        assert!(self.is_delivered(token), "{token} was acknowledged, not delivered");
    }

    /// The token was returned as dropped.
    pub fn dropped(&mut self, token: u32) {
        assert!(token < self.sent && token == self.returned, "{token} was returned, expected was {}", self.returned);
        self.returned += 1;
    }

    /// Whether the token's information was delivered.
    pub fn is_delivered(&self, token: u32) -> bool {
        self.delivered.binary_search(&token).is_ok()
    }

    /// Number of tokens that the engine holds.
    pub const fn held(&self) -> u32 {
        self.sent - self.returned
    }
}

#[cfg(test)]
mod tests {
    use super::Checker;

    /// Three tokens in flight.
    fn checker() -> Checker {
        let mut checker = Checker::default();
        (0..3).for_each(|_| checker.sent());
        checker
    }

    #[test]
    fn correct_order_passes() {
        let mut checker = checker();
        checker.delivered(0);
        checker.acknowledged(0);
        checker.dropped(1);
        checker.delivered(2);
        checker.acknowledged(2);
        assert_eq!(checker.held(), 0);
    }

    #[test]
    #[should_panic(expected = "twice or out of order")]
    fn a_second_delivery_is_caught() {
        let mut checker = checker();
        checker.delivered(0);
        checker.delivered(0);
    }

    #[test]
    #[should_panic(expected = "twice or out of order")]
    fn a_swap_is_caught() {
        let mut checker = checker();
        checker.delivered(1);
        checker.delivered(0);
    }

    #[test]
    #[should_panic(expected = "never sent")]
    fn a_delivery_of_data_never_sent_is_caught() {
        checker().delivered(3);
    }

    #[test]
    #[should_panic(expected = "not delivered")]
    fn a_false_acknowledgement_is_caught() {
        checker().acknowledged(0);
    }

    #[test]
    #[should_panic(expected = "was returned")]
    fn a_token_returned_twice_is_caught() {
        let mut checker = checker();
        checker.dropped(0);
        checker.dropped(0);
    }
}
