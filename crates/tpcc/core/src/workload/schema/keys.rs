//! Keys of tables and indexes. The encoding of a key is the sequence of its columns, big-endian.

use super::Key;

/// A key column, with its encoding.
trait Part: Sized {
    const LEN: usize;
    fn put(&self, out: &mut [u8]);
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! integer_part {
    ($($t:ty)*) => {$(
        impl Part for $t {
            const LEN: usize = size_of::<$t>();
            #[inline(always)]
            fn put(&self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_be_bytes());
            }
            #[inline(always)]
            fn get(bytes: &[u8]) -> Self {
                let mut array = [0; size_of::<$t>()];
                array.copy_from_slice(bytes);
                <$t>::from_be_bytes(array)
            }
        }
    )*};
}
integer_part!(u8 u32 u64);

/// First or last name of a customer: sixteen characters, padded with zeros.
pub type Name = [u8; 16];

impl Part for Name {
    const LEN: usize = 16;
    #[inline(always)]
    fn put(&self, out: &mut [u8]) {
        out.copy_from_slice(self);
    }
    #[inline(always)]
    fn get(bytes: &[u8]) -> Self {
        let mut array = [0; 16];
        array.copy_from_slice(bytes);
        array
    }
}

macro_rules! key {
    ($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident : $t:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $t),*
        }

        impl Key for $name {
            const LEN: usize = 0 $(+ <$t as Part>::LEN)*;
            type Bytes = [u8; 0 $(+ <$t as Part>::LEN)*];

            #[inline(always)]
            fn encoded(&self) -> Self::Bytes {
                let mut bytes = [0; Self::LEN];
                self.write(&mut bytes);
                bytes
            }

            #[inline(always)]
            fn write(&self, out: &mut [u8]) {
                assert_eq!(out.len(), Self::LEN);
                let mut at = 0;
                $(
                    self.$field.put(&mut out[at..at + <$t as Part>::LEN]);
                    at += <$t as Part>::LEN;
                )*
                debug_assert_eq!(at, Self::LEN);
            }

            #[inline(always)]
            fn read(bytes: &[u8]) -> Self {
                assert_eq!(bytes.len(), Self::LEN);
                let mut at = 0;
                $(
                    let $field = <$t as Part>::get(&bytes[at..at + <$t as Part>::LEN]);
                    at += <$t as Part>::LEN;
                )*
                debug_assert_eq!(at, Self::LEN);
                Self { $($field),* }
            }
        }
    };
}

key! {
    /// W_ID.
    WarehouseKey {
        /// Number of the warehouse.
        w: u32,
    }
}
key! {
    /// (D_W_ID, D_ID).
    DistrictKey {
        /// Number of the warehouse.
        w: u32,
        /// Number of the district in its warehouse.
        d: u8,
    }
}
key! {
    /// (C_W_ID, C_D_ID, C_ID).
    CustomerKey {
        /// Number of the warehouse.
        w: u32,
        /// Number of the district in its warehouse.
        d: u8,
        /// Number of the customer in its district.
        c: u32,
    }
}
key! {
    /// Key of HISTORY, which has no key in the specification. The combination (run, terminal, sequence) is unique and needs
    /// no counter that terminals share. The loader is run 0, and its terminal number is the warehouse number.
    HistoryKey {
        /// Number of the run, from 1; 0 for the loader.
        run: u32,
        /// Number of the terminal in its run; for the loader, the number of the warehouse.
        terminal: u32,
        /// Number of the transaction at its terminal.
        sequence: u64,
    }
}
key! {
    /// (NO_W_ID, NO_D_ID, NO_O_ID).
    NewOrderKey {
        /// Number of the warehouse.
        w: u32,
        /// Number of the district in its warehouse.
        d: u8,
        /// Number of the order in its district.
        o: u32,
    }
}
key! {
    /// (O_W_ID, O_D_ID, O_ID).
    OrderKey {
        /// Number of the warehouse.
        w: u32,
        /// Number of the district in its warehouse.
        d: u8,
        /// Number of the order in its district.
        o: u32,
    }
}
key! {
    /// (OL_W_ID, OL_D_ID, OL_O_ID, OL_NUMBER).
    OrderLineKey {
        /// Number of the warehouse.
        w: u32,
        /// Number of the district in its warehouse.
        d: u8,
        /// Number of the order in its district.
        o: u32,
        /// Number of the line in its order, from 1.
        number: u8,
    }
}
key! {
    /// I_ID.
    ItemKey {
        /// Number of the item.
        i: u32,
    }
}
key! {
    /// (S_W_ID, S_I_ID).
    StockKey {
        /// Number of the supplying warehouse.
        w: u32,
        /// Number of the item.
        i: u32,
    }
}
key! {
    /// Key of the index of CUSTOMER by name: (C_W_ID, C_D_ID, C_LAST, C_FIRST, C_ID). C_ID makes the key unique.
    CustomerNameKey {
        /// Number of the warehouse.
        w: u32,
        /// Number of the district in its warehouse.
        d: u8,
        /// Last name, padded with zeros.
        last: Name,
        /// First name, padded with zeros.
        first: Name,
        /// Number of the customer in its district.
        c: u32,
    }
}
key! {
    /// Key of the index of ORDER by customer: (O_W_ID, O_D_ID, O_C_ID, O_ID).
    OrderCustomerKey {
        /// Number of the warehouse.
        w: u32,
        /// Number of the district in its warehouse.
        d: u8,
        /// Number of the customer in its district.
        c: u32,
        /// Number of the order in its district.
        o: u32,
    }
}
key! {
    /// Key of ACKNOWLEDGED: a terminal of a run.
    AckKey {
        /// Number of the run, from 1.
        run: u32,
        /// Number of the terminal in its run.
        terminal: u32,
    }
}
key! {
    /// Key of META: number of a fact about the database ([`crate::workload::loaded::Fact`]).
    MetaKey {
        /// Number of the fact.
        fact: u32,
    }
}

impl CustomerNameKey {
    /// Returns the key range of all customers of a district with the last name `last`.
    pub fn range(w: u32, d: u8, last: Name) -> (Self, Self) {
        (
            CustomerNameKey { w, d, last, first: [0; 16], c: 0 },
            CustomerNameKey { w, d, last, first: [0xff; 16], c: u32::MAX },
        )
    }
}

impl OrderCustomerKey {
    /// Returns the key range of all orders of a customer.
    pub fn range(w: u32, d: u8, c: u32) -> (Self, Self) {
        (OrderCustomerKey { w, d, c, o: 0 }, OrderCustomerKey { w, d, c, o: u32::MAX })
    }
}

impl OrderLineKey {
    /// Returns the key range of all lines of the orders `first..=last`.
    pub fn range(w: u32, d: u8, first: u32, last: u32) -> (Self, Self) {
        (OrderLineKey { w, d, o: first, number: 0 }, OrderLineKey { w, d, o: last, number: u8::MAX })
    }
}

impl NewOrderKey {
    /// Returns the key range of all undelivered orders of a district.
    pub fn range(w: u32, d: u8) -> (Self, Self) {
        (NewOrderKey { w, d, o: 0 }, NewOrderKey { w, d, o: u32::MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::schema::MAX_KEY;

    fn order_of_bytes_is_order_of_keys<K: Key>(keys: &[K]) {
        assert!(K::LEN <= MAX_KEY);
        let encode = |k: &K| {
            let mut bytes = vec![0; K::LEN];
            k.write(&mut bytes);
            assert_eq!(K::read(&bytes), *k);
            bytes
        };
        for a in keys {
            for b in keys {
                assert_eq!(a.cmp(b), encode(a).cmp(&encode(b)), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn keys_keep_their_order() {
        let mut lines = Vec::new();
        let mut names = Vec::new();
        for w in [1, 255, 256, u32::MAX] {
            for d in [1, 10, 255] {
                for o in [0, 3000, 65_536, u32::MAX] {
                    for number in [0, 1, 15, 150] {
                        lines.push(OrderLineKey { w, d, o, number });
                    }
                }
                for (last, first) in [
                    (*b"BARBARBAR\0\0\0\0\0\0\0", [0; 16]),
                    (*b"BARBARBAR\0\0\0\0\0\0\0", [0xff; 16]),
                    ([b'Z'; 16], [1; 16]),
                ] {
                    for c in [1, 3000] {
                        names.push(CustomerNameKey { w, d, last, first, c });
                    }
                }
            }
        }
        order_of_bytes_is_order_of_keys(&lines);
        order_of_bytes_is_order_of_keys(&names);
        order_of_bytes_is_order_of_keys(&[
            HistoryKey { run: 0, terminal: 7, sequence: u64::MAX },
            HistoryKey { run: 1, terminal: 0, sequence: 0 },
            HistoryKey { run: 1, terminal: 0, sequence: 256 },
        ]);
    }
}
