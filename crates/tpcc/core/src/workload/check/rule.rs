//! Consistency rules of a database, and violations of these rules.

/// A consistency rule. The first twelve are the consistency conditions of the specification (3.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Invariant {
    /// `W_YTD` of a warehouse equals the sum of `D_YTD` of its districts.
    C1,
    /// `D_NEXT_O_ID` - 1 of a district equals its largest `O_ID` and its largest `NO_O_ID`.
    C2,
    /// `NO_O_ID` has no gap in a district.
    C3,
    /// Sum of `O_OL_CNT` in a district equals the number of its order lines.
    C4,
    /// `O_CARRIER_ID` is null exactly for the orders that have a row in NEW-ORDER.
    C5,
    /// `O_OL_CNT` of an order equals the number of its lines.
    C6,
    /// `OL_DELIVERY_D` of a line is null exactly when its order has no carrier.
    C7,
    /// `W_YTD` of a warehouse equals the sum of `H_AMOUNT` of the payments that the warehouse took.
    C8,
    /// `D_YTD` of a district equals the sum of `H_AMOUNT` of the payments that the district took.
    C9,
    /// `C_BALANCE` equals the customer's delivered amounts minus the payments.
    C10,
    /// Orders of a district minus its rows in NEW-ORDER equal its orders with a carrier.
    C11,
    /// `C_BALANCE` + `C_YTD_PAYMENT` equals the customer's delivered amounts.
    C12,
    /// Tables of fixed size have the expected number of rows.
    RowCounts,
    /// `O_ID` has no gap in a district.
    OrdersDense,
    /// `C_PAYMENT_CNT` equals the number of the customer's rows in HISTORY.
    Payments,
    /// `C_DELIVERY_CNT` equals the number of the customer's orders that were delivered since the load.
    Deliveries,
    /// `S_QUANTITY` is from 10 to 100.
    StockRange,
    /// `S_YTD`, `S_ORDER_CNT` and `S_REMOTE_CNT` of a warehouse agree with the order lines since the load.
    StockSums,
    /// Index `customer_by_name` holds exactly the customers.
    NameIndex,
    /// Index `order_by_customer` holds exactly the orders.
    OrderIndex,
}

/// Number of rules that are conditions of the specification.
pub const CONDITIONS: usize = 12;

/// Number of rules.
pub const RULES: usize = Invariant::OrderIndex as usize + 1;

impl Invariant {
    /// All rules, conditions first.
    pub const ALL: [Invariant; RULES] = [
        Invariant::C1,
        Invariant::C2,
        Invariant::C3,
        Invariant::C4,
        Invariant::C5,
        Invariant::C6,
        Invariant::C7,
        Invariant::C8,
        Invariant::C9,
        Invariant::C10,
        Invariant::C11,
        Invariant::C12,
        Invariant::RowCounts,
        Invariant::OrdersDense,
        Invariant::Payments,
        Invariant::Deliveries,
        Invariant::StockRange,
        Invariant::StockSums,
        Invariant::NameIndex,
        Invariant::OrderIndex,
    ];

    /// Rules that can be checked without a separate scan of an index.
    pub const WITHOUT_INDEXES: &[Invariant] = Self::ALL.split_at(Invariant::NameIndex as usize).0;

    /// Returns the number of the condition. `None` for rules that are not conditions.
    pub fn condition(self) -> Option<u8> {
        ((self as usize) < CONDITIONS).then_some(self as u8 + 1)
    }

    /// Returns the name for reports: "condition 2" or "rule stock-sums".
    pub fn name(self) -> String {
        match self.condition() {
            Some(number) => format!("condition {number}"),
            None => format!("rule {}", self.id()),
        }
    }

    /// Returns the short name of the rule, for JSON.
    pub fn id(self) -> &'static str {
        match self {
            Invariant::C1 => "1",
            Invariant::C2 => "2",
            Invariant::C3 => "3",
            Invariant::C4 => "4",
            Invariant::C5 => "5",
            Invariant::C6 => "6",
            Invariant::C7 => "7",
            Invariant::C8 => "8",
            Invariant::C9 => "9",
            Invariant::C10 => "10",
            Invariant::C11 => "11",
            Invariant::C12 => "12",
            Invariant::RowCounts => "row-counts",
            Invariant::OrdersDense => "orders-dense",
            Invariant::Payments => "payments",
            Invariant::Deliveries => "deliveries",
            Invariant::StockRange => "stock-range",
            Invariant::StockSums => "stock-sums",
            Invariant::NameIndex => "name-index",
            Invariant::OrderIndex => "order-index",
        }
    }

    /// Returns the text of the rule.
    pub fn text(self) -> &'static str {
        match self {
            Invariant::C1 => "W_YTD = sum of D_YTD",
            Invariant::C2 => "D_NEXT_O_ID - 1 = largest O_ID = largest NO_O_ID",
            Invariant::C3 => "NO_O_ID has no gap",
            Invariant::C4 => "sum of O_OL_CNT = number of lines, in each district",
            Invariant::C5 => "an order has no carrier exactly when it is in NEW-ORDER",
            Invariant::C6 => "O_OL_CNT = number of lines, for each order",
            Invariant::C7 => "a line has no delivery date exactly when its order has no carrier",
            Invariant::C8 => "W_YTD = sum of H_AMOUNT",
            Invariant::C9 => "D_YTD = sum of H_AMOUNT",
            Invariant::C10 => "C_BALANCE = delivered amounts - payments",
            Invariant::C11 => "orders - new orders = orders with a carrier",
            Invariant::C12 => "C_BALANCE + C_YTD_PAYMENT = delivered amounts",
            Invariant::RowCounts => "tables of fixed size have their rows",
            Invariant::OrdersDense => "order numbers have no gap",
            Invariant::Payments => "C_PAYMENT_CNT = rows of HISTORY, for each customer",
            Invariant::Deliveries => "C_DELIVERY_CNT = orders delivered since the load, for each customer",
            Invariant::StockRange => "10 <= S_QUANTITY <= 100",
            Invariant::StockSums => "S_YTD, S_ORDER_CNT, S_REMOTE_CNT = lines since the load, for each warehouse",
            Invariant::NameIndex => "customer_by_name holds exactly the customers",
            Invariant::OrderIndex => "order_by_customer holds exactly the orders",
        }
    }
}

/// Maximum number of violations shown for each rule.
const SHOWN: usize = 10;

/// Violations of one rule.
#[derive(Clone, Debug, Default)]
pub struct RuleViolations {
    /// Number of violations.
    pub times: u64,
    /// Descriptions of the first violations, with key and values.
    pub first: Vec<String>,
}

/// Violations of every rule.
#[derive(Clone, Debug)]
pub struct Violations([RuleViolations; RULES]);

impl Default for Violations {
    fn default() -> Violations {
        Violations(std::array::from_fn(|_| RuleViolations::default()))
    }
}

impl Violations {
    /// Records a violation of a rule; `text` gives the key and the values.
    #[cold]
    pub(super) fn add(&mut self, rule: Invariant, text: impl FnOnce() -> String) {
        let violations = &mut self.0[rule as usize];
        violations.times += 1;
        if violations.first.len() < SHOWN {
            violations.first.push(text());
        }
    }

    /// Records `times` violations of a rule. `first` describes the first violations, with key and values.
    pub fn add_counted(&mut self, rule: Invariant, times: u64, first: Vec<String>) {
        let violations = &mut self.0[rule as usize];
        violations.times += times;
        let room = SHOWN - violations.first.len();
        violations.first.extend(first.into_iter().take(room));
    }

    /// Appends violations that were found later.
    pub(super) fn append(&mut self, later: Violations) {
        for (violations, later) in self.0.iter_mut().zip(later.0) {
            violations.times += later.times;
            let room = SHOWN - violations.first.len();
            violations.first.extend(later.first.into_iter().take(room));
        }
    }

    /// Returns the violations of one rule.
    pub fn of(&self, rule: Invariant) -> &RuleViolations {
        &self.0[rule as usize]
    }
}
