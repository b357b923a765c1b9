//! Search for the customer of a transaction (2.5.2.2, 2.6.2.2).

use std::ops::ControlFlow;

use super::{Failure, Scratch};
use crate::workload::generate::input::CustomerSelector;
use crate::workload::ops::{Direction, Ops};
use crate::workload::schema::keys::{CustomerKey, CustomerNameKey};
use crate::workload::schema::tables::{Customer, CustomerByName};

/// Finds the customer of a transaction. If n customers have the selected last name, returns number ceil(n/2) of them,
/// counted from 1 in the order of first names.
#[inline]
pub fn find<O: Ops>(
    ops: &mut O,
    selector: CustomerSelector,
    scratch: &mut Scratch,
) -> Result<CustomerKey, Failure<O::Error>> {
    let (w, d, last) = match selector {
        CustomerSelector::Id(key) => return Ok(key),
        CustomerSelector::Name(w, d, last) => (w, d, last),
    };
    let (from, to) = CustomerNameKey::range(w, d, last);
    let found = &mut scratch.customers;
    found.clear();
    ops.scan_index::<CustomerByName>(&from, &to, Direction::Up, |_, key| {
        found.push(*key);
        ControlFlow::Continue(())
    })?;
    match found.len() {
        0 => Err(missing_customer(from)),
        n => Ok(found[n.div_ceil(2) - 1]),
    }
}

#[cold]
fn missing_customer<E>(from: CustomerNameKey) -> Failure<E> {
    let name = String::from_utf8_lossy(&from.last).trim_end_matches('\0').to_owned();
    Failure::Missing {
        table: <Customer as crate::workload::schema::TableDef>::TABLE,
        key: format!("called {name} in warehouse {}, district {}", from.w, from.d),
    }
}
