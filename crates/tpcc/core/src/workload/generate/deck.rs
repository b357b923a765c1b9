//! Selection of the kind of the next transaction: each terminal draws from a deck of cards (5.2.4.2), so that the share of
//! each kind is exact over a whole deck.

use super::Random;

/// Kind of transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Enter an order.
    NewOrder,
    /// Take a payment.
    Payment,
    /// Look an order up.
    OrderStatus,
    /// Deliver the oldest order of each district.
    Delivery,
    /// Count items of recent orders with low stock.
    StockLevel,
}

impl Kind {
    /// All kinds of transactions, in the order of reports.
    pub const ALL: [Kind; 5] = [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel];

    /// Returns true if the transaction changes the database.
    pub fn writes(self) -> bool {
        matches!(self, Kind::NewOrder | Kind::Payment | Kind::Delivery)
    }

    /// Returns the name of the kind, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NewOrder => "new-order",
            Kind::Payment => "payment",
            Kind::OrderStatus => "order-status",
            Kind::Delivery => "delivery",
            Kind::StockLevel => "stock-level",
        }
    }
}

/// Transaction mix: composition of a deck of cards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Mix {
    /// 45% new-order, 43% payment, 4% each of the others
    Standard,
    /// the standard mix without delivery
    NoDelivery,
    /// payment alone
    Payment,
    /// new-order alone
    NewOrder,
    /// delivery alone
    Delivery,
    /// stock-level alone
    StockLevel,
    /// order-status alone
    OrderStatus,
}

impl Mix {
    /// Returns the name of the mix, on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Mix::Standard => "standard",
            Mix::NoDelivery => "no-delivery",
            Mix::Payment => "payment",
            Mix::NewOrder => "new-order",
            Mix::Delivery => "delivery",
            Mix::StockLevel => "stock-level",
            Mix::OrderStatus => "order-status",
        }
    }

    /// Returns the kinds of transactions that the deck contains.
    pub fn kinds(self) -> Vec<Kind> {
        self.cards().into_iter().filter(|(_, cards)| *cards > 0).map(|(kind, _)| kind).collect()
    }

    /// Returns the number of cards of each kind in a deck. The standard deck of 200 cards has exact shares of 45, 43, 4, 4
    /// and 4 percent.
    fn cards(self) -> [(Kind, usize); 5] {
        let alone = |kind: Kind| Kind::ALL.map(|k| (k, usize::from(k == kind)));
        match self {
            Mix::Standard | Mix::NoDelivery => [
                (Kind::NewOrder, 90),
                (Kind::Payment, 86),
                (Kind::OrderStatus, 8),
                (Kind::Delivery, if self == Mix::Standard { 8 } else { 0 }),
                (Kind::StockLevel, 8),
            ],
            Mix::Payment => alone(Kind::Payment),
            Mix::NewOrder => alone(Kind::NewOrder),
            Mix::Delivery => alone(Kind::Delivery),
            Mix::StockLevel => alone(Kind::StockLevel),
            Mix::OrderStatus => alone(Kind::OrderStatus),
        }
    }
}

/// A shuffled deck of cards. All cards are dealt, then the deck is shuffled again.
#[derive(Debug)]
pub struct Deck {
    cards: Box<[Kind]>,
    next: usize,
}

impl Deck {
    /// Creates a deck of `mix`. The deck is shuffled at the first draw.
    pub fn new(mix: Mix) -> Deck {
        Deck::of(mix.cards())
    }

    /// Creates the smallest deck that gives every kind its minimum share (5.2.4.2).
    pub fn least() -> Deck {
        Deck::of(Deck::least_cards())
    }

    /// Returns the number of cards of each kind in the smallest deck.
    pub fn least_cards() -> [(Kind, usize); 5] {
        [(Kind::NewOrder, 10), (Kind::Payment, 10), (Kind::OrderStatus, 1), (Kind::Delivery, 1), (Kind::StockLevel, 1)]
    }

    fn of(cards: [(Kind, usize); 5]) -> Deck {
        let cards: Box<[Kind]> = cards.into_iter().flat_map(|(kind, n)| std::iter::repeat_n(kind, n)).collect();
        let next = cards.len();
        Deck { cards, next }
    }

    /// Returns the heap memory of the cards of a deck of `mix`, in bytes.
    pub fn heap_bytes(mix: Mix) -> usize {
        mix.cards().iter().map(|(_, cards)| cards).sum::<usize>() * size_of::<Kind>()
    }

    /// Draws the next card: the kind of the next transaction.
    #[inline]
    pub fn draw(&mut self, random: &mut Random) -> Kind {
        if self.next == self.cards.len() {
            random.shuffle(&mut self.cards);
            self.next = 0;
        }
        let card = self.cards[self.next];
        self.next += 1;
        card
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_deck_holds_the_exact_shares() {
        let mut random = Random::stream(5, 5);
        let mut deck = Deck::new(Mix::Standard);
        let mut orders = Vec::new();
        for _ in 0..3 {
            let dealt: Vec<Kind> = (0..200).map(|_| deck.draw(&mut random)).collect();
            let count = |k| dealt.iter().filter(|&&d| d == k).count();
            assert_eq!(Kind::ALL.map(count), [90, 86, 8, 8, 8]);
            orders.push(dealt);
        }
        assert!(orders[0] != orders[1] && orders[1] != orders[2]);
        let mut payments = Deck::new(Mix::Payment);
        assert!((0..10).all(|_| payments.draw(&mut random) == Kind::Payment));
        let mut four = Deck::new(Mix::NoDelivery);
        assert!((0..192).all(|_| four.draw(&mut random) != Kind::Delivery));
    }
}
