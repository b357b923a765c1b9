//! Which customer is meant (2.5.2.2, 2.6.2.2).

use std::ops::ControlFlow;

use super::{Failure, Scratch};
use crate::workload::generate::input::Who;
use crate::workload::ops::{Direction, Ops};
use crate::workload::schema::keys::{CustomerKey, CustomerNameKey};
use crate::workload::schema::tables::{Customer, CustomerByName};

/// By name, of all n customers so called, sorted by first name, number ceil(n/2) counted from 1.
#[inline]
pub fn find<O: Ops>(ops: &mut O, who: Who, scratch: &mut Scratch) -> Result<CustomerKey, Failure<O::Error>> {
    let (w, d, last) = match who {
        Who::Id(key) => return Ok(key),
        Who::Name(w, d, last) => (w, d, last),
    };
    let (from, to) = CustomerNameKey::everyone(w, d, last);
    let found = &mut scratch.customers;
    found.clear();
    ops.scan_index::<CustomerByName>(&from, &to, Direction::Up, |_, key| {
        found.push(*key);
        ControlFlow::Continue(())
    })?;
    match found.len() {
        0 => Err(nobody(from)),
        n => Ok(found[n.div_ceil(2) - 1]),
    }
}

#[cold]
fn nobody<E>(from: CustomerNameKey) -> Failure<E> {
    let name = String::from_utf8_lossy(&from.last).trim_end_matches('\0').to_owned();
    Failure::Missing {
        table: <Customer as crate::workload::schema::TableDef>::TABLE,
        key: format!("called {name} in warehouse {}, district {}", from.w, from.d),
    }
}
