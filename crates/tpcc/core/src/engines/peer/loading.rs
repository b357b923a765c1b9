//! The initial population on its way into an engine of another crate: a table at a time, in key order.

use super::{Peer, PeerFailure, index_number, number};
use crate::engines::storage::codec::{KeyBytes, bytes_of};
use crate::workload::load::sink::{Append, AppendIndex, BulkSink};
use crate::workload::schema::{IndexDef, Key, RowOf, TableDef};

/// An engine that is being filled.
pub struct Loading<'p, P>(pub &'p P);

impl<P: Peer> BulkSink for Loading<'_, P> {
    type Error = PeerFailure<P::Error>;
    type Appender<'a, T: TableDef>
        = Collected<'a, P>
    where
        Self: 'a;
    type IndexAppender<'a, I: IndexDef>
        = Collected<'a, P>
    where
        Self: 'a;

    fn table<T: TableDef>(&self) -> Result<Collected<'_, P>, Self::Error> {
        Ok(Collected {
            peer: self.0,
            table: number::<T>(),
            key: T::Key::LEN,
            row: size_of::<RowOf<T>>(),
            bytes: vec![],
        })
    }

    fn index<I: IndexDef>(&self) -> Result<Collected<'_, P>, Self::Error> {
        Ok(Collected { peer: self.0, table: index_number::<I>(), key: I::Key::LEN, row: 0, bytes: vec![] })
    }
}

/// Rows of one table, which go to the engine together.
pub struct Collected<'a, P> {
    peer: &'a P,
    table: usize,
    /// Bytes of a key.
    key: usize,
    /// Bytes of a row.
    row: usize,
    bytes: Vec<u8>,
}

impl<P: Peer> Collected<'_, P> {
    fn load(self) -> Result<(), PeerFailure<P::Error>> {
        let mut rows = self.bytes.chunks_exact(self.key + self.row).map(|both| both.split_at(self.key));
        Ok(self.peer.load(self.table, &mut rows)?)
    }
}

impl<T: TableDef, P: Peer> Append<T> for Collected<'_, P> {
    type Error = PeerFailure<P::Error>;

    fn push(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), Self::Error> {
        self.bytes.extend_from_slice(KeyBytes::of(key).get::<T::Key>());
        self.bytes.extend_from_slice(bytes_of::<T>(row));
        Ok(())
    }

    fn finish(self) -> Result<(), Self::Error> {
        self.load()
    }
}

impl<I: IndexDef, P: Peer> AppendIndex<I> for Collected<'_, P> {
    type Error = PeerFailure<P::Error>;

    fn push(&mut self, key: &I::Key) -> Result<(), Self::Error> {
        self.bytes.extend_from_slice(KeyBytes::of(key).get::<I::Key>());
        Ok(())
    }

    fn finish(self) -> Result<(), Self::Error> {
        self.load()
    }
}
