//! The rules that a database has to keep, and what was found against them.

/// A rule. The first twelve are the specification's consistency conditions (3.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Rule {
    C1,
    C2,
    C3,
    C4,
    C5,
    C6,
    C7,
    C8,
    C9,
    C10,
    C11,
    C12,
    RowCounts,
    OrdersDense,
    Payments,
    Deliveries,
    StockRange,
    StockSums,
    NameIndex,
    OrderIndex,
}

/// How many of the rules are conditions of the specification.
pub(crate) const CONDITIONS: usize = 12;

/// All rules.
pub(crate) const RULES: usize = Rule::OrderIndex as usize + 1;

impl Rule {
    /// Every rule, conditions first.
    pub(crate) const ALL: [Rule; RULES] = [
        Rule::C1,
        Rule::C2,
        Rule::C3,
        Rule::C4,
        Rule::C5,
        Rule::C6,
        Rule::C7,
        Rule::C8,
        Rule::C9,
        Rule::C10,
        Rule::C11,
        Rule::C12,
        Rule::RowCounts,
        Rule::OrdersDense,
        Rule::Payments,
        Rule::Deliveries,
        Rule::StockRange,
        Rule::StockSums,
        Rule::NameIndex,
        Rule::OrderIndex,
    ];

    /// Number of a condition; none for the others.
    pub(crate) fn condition(self) -> Option<u8> {
        ((self as usize) < CONDITIONS).then_some(self as u8 + 1)
    }

    /// As printed: "condition 2" or "rule stock-sums".
    pub(crate) fn name(self) -> String {
        match self.condition() {
            Some(number) => format!("condition {number}"),
            None => format!("rule {}", self.id()),
        }
    }

    /// Short name, for JSON.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Rule::C1 => "1",
            Rule::C2 => "2",
            Rule::C3 => "3",
            Rule::C4 => "4",
            Rule::C5 => "5",
            Rule::C6 => "6",
            Rule::C7 => "7",
            Rule::C8 => "8",
            Rule::C9 => "9",
            Rule::C10 => "10",
            Rule::C11 => "11",
            Rule::C12 => "12",
            Rule::RowCounts => "row-counts",
            Rule::OrdersDense => "orders-dense",
            Rule::Payments => "payments",
            Rule::Deliveries => "deliveries",
            Rule::StockRange => "stock-range",
            Rule::StockSums => "stock-sums",
            Rule::NameIndex => "name-index",
            Rule::OrderIndex => "order-index",
        }
    }

    /// What must hold.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Rule::C1 => "W_YTD = sum of D_YTD",
            Rule::C2 => "D_NEXT_O_ID - 1 = largest O_ID = largest NO_O_ID",
            Rule::C3 => "NO_O_ID has no gap",
            Rule::C4 => "sum of O_OL_CNT = number of lines, in each district",
            Rule::C5 => "an order has no carrier exactly when it is in NEW-ORDER",
            Rule::C6 => "O_OL_CNT = number of lines, for each order",
            Rule::C7 => "a line has no delivery date exactly when its order has no carrier",
            Rule::C8 => "W_YTD = sum of H_AMOUNT",
            Rule::C9 => "D_YTD = sum of H_AMOUNT",
            Rule::C10 => "C_BALANCE = delivered amounts - payments",
            Rule::C11 => "orders - new orders = orders with a carrier",
            Rule::C12 => "C_BALANCE + C_YTD_PAYMENT = delivered amounts",
            Rule::RowCounts => "tables of fixed size have their rows",
            Rule::OrdersDense => "order numbers have no gap",
            Rule::Payments => "C_PAYMENT_CNT = rows of HISTORY, for each customer",
            Rule::Deliveries => "C_DELIVERY_CNT = orders delivered since the load, for each customer",
            Rule::StockRange => "10 <= S_QUANTITY <= 100",
            Rule::StockSums => "S_YTD, S_ORDER_CNT, S_REMOTE_CNT = lines since the load, for each warehouse",
            Rule::NameIndex => "customer_by_name holds exactly the customers",
            Rule::OrderIndex => "order_by_customer holds exactly the orders",
        }
    }
}

/// Offending keys shown of each rule.
const SHOWN: usize = 10;

/// What was found against one rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Broken {
    /// How often.
    pub(crate) times: u64,
    /// The first of them, with key and values.
    pub(crate) first: Vec<String>,
}

/// What was found against every rule.
#[derive(Clone, Debug)]
pub(crate) struct Findings([Broken; RULES]);

impl Findings {
    pub(super) fn new() -> Findings {
        Findings(std::array::from_fn(|_| Broken::default()))
    }

    /// Notes that a rule does not hold; `text` names the key and the values.
    #[cold]
    pub(super) fn add(&mut self, rule: Rule, text: impl FnOnce() -> String) {
        let broken = &mut self.0[rule as usize];
        broken.times += 1;
        if broken.first.len() < SHOWN {
            broken.first.push(text());
        }
    }

    /// Appends what was found after this.
    pub(super) fn append(&mut self, later: Findings) {
        for (broken, later) in self.0.iter_mut().zip(later.0) {
            broken.times += later.times;
            let room = SHOWN - broken.first.len();
            broken.first.extend(later.first.into_iter().take(room));
        }
    }

    /// What was found against one rule.
    pub(crate) fn of(&self, rule: Rule) -> &Broken {
        &self.0[rule as usize]
    }
}
