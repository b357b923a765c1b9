//! Load of WAREHOUSE and DISTRICT.

use zerocopy::little_endian::{I32, I64, U32};

use super::sink::{Append, BulkSink};
use super::{LoadEnd, Population, RowsDone};
use crate::workload::generate::Random;
use crate::workload::schema::keys::{DistrictKey, WarehouseKey};
use crate::workload::schema::rows::{Address, DistrictCold, DistrictHot, WarehouseCold, WarehouseHot};
use crate::workload::schema::tables::{District, Warehouse};
use crate::workload::schema::{Row, TableId};

/// Payment of each customer in the initial population, in cents.
pub(super) const FIRST_PAYMENT: i64 = 1_000;

pub(super) fn address(random: &mut Random) -> Address {
    Address {
        street_1: random.text(10, 20),
        street_2: random.text(10, 20),
        city: random.text(10, 20),
        state: random.state(),
        zip: random.zip(),
    }
}

/// Loads WAREHOUSE and DISTRICT.
pub(super) fn places<S: BulkSink>(plan: &Population, sink: &S, progress: &RowsDone) -> Result<LoadEnd, S::Error> {
    let mut warehouses = sink.table::<Warehouse>()?;
    let mut districts = sink.table::<District>()?;
    // D_YTD is 30,000.00 for 3,000 customers.
    let district_ytd = FIRST_PAYMENT * i64::from(plan.scale.customers);
    for w in 1..=plan.warehouses {
        let mut random = plan.stream(TableId::Warehouse, w);
        let cold = WarehouseCold {
            tax: I32::new(random.in_range(0, 2_000) as i32),
            name: random.text(6, 10),
            address: address(&mut random),
        };
        let hot = WarehouseHot { ytd: I64::new(district_ytd * i64::from(plan.scale.districts)) };
        warehouses.push(&WarehouseKey { w }, &Row { hot, cold })?;

        let mut random = plan.stream(TableId::District, w);
        for d in 1..=plan.scale.districts {
            let cold = DistrictCold {
                tax: I32::new(random.in_range(0, 2_000) as i32),
                name: random.text(6, 10),
                address: address(&mut random),
            };
            let hot = DistrictHot { next_o_id: U32::new(plan.scale.customers + 1), ytd: I64::new(district_ytd) };
            districts.push(&DistrictKey { w, d }, &Row { hot, cold })?;
        }
        if progress.add(1 + u64::from(plan.scale.districts)) {
            return Ok(LoadEnd::Cancelled);
        }
    }
    warehouses.finish()?;
    districts.finish()?;
    Ok(LoadEnd::Done)
}
