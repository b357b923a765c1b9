//! Loads the initial population into an engine of another crate, one table at a time, in key order.

use super::{Peer, PeerFailure, index_number, number};
use crate::engines::storage::codec::{KeyBytes, bytes_of};
use crate::workload::load::sink::{Append, AppendIndex, BulkSink};
use crate::workload::schema::{IndexDef, Key, RowOf, TableDef};

/// Loader of the population into the engine.
pub struct PeerLoader<'p, P>(pub &'p P);

impl<P: Peer> BulkSink for PeerLoader<'_, P> {
    type Error = PeerFailure<P::Error>;
    type Appender<'a, T: TableDef>
        = PeerRowBuffer<'a, P>
    where
        Self: 'a;
    type IndexAppender<'a, I: IndexDef>
        = PeerRowBuffer<'a, P>
    where
        Self: 'a;

    fn table<T: TableDef>(&self) -> Result<PeerRowBuffer<'_, P>, Self::Error> {
        Ok(PeerRowBuffer {
            peer: self.0,
            table: number::<T>(),
            key: T::Key::LEN,
            row: size_of::<RowOf<T>>(),
            bytes: vec![],
        })
    }

    fn index<I: IndexDef>(&self) -> Result<PeerRowBuffer<'_, P>, Self::Error> {
        Ok(PeerRowBuffer { peer: self.0, table: index_number::<I>(), key: I::Key::LEN, row: 0, bytes: vec![] })
    }
}

/// Buffer of the rows of one table. The engine receives all rows in one call.
pub struct PeerRowBuffer<'a, P> {
    peer: &'a P,
    table: usize,
    /// Length of a key in bytes.
    key: usize,
    /// Length of a row in bytes.
    row: usize,
    bytes: Vec<u8>,
}

impl<P: Peer> PeerRowBuffer<'_, P> {
    fn load(self) -> Result<(), PeerFailure<P::Error>> {
        let mut rows = self.bytes.chunks_exact(self.key + self.row).map(|both| both.split_at(self.key));
        Ok(self.peer.load(self.table, &mut rows)?)
    }
}

impl<T: TableDef, P: Peer> Append<T> for PeerRowBuffer<'_, P> {
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

impl<I: IndexDef, P: Peer> AppendIndex<I> for PeerRowBuffer<'_, P> {
    type Error = PeerFailure<P::Error>;

    fn push(&mut self, key: &I::Key) -> Result<(), Self::Error> {
        self.bytes.extend_from_slice(KeyBytes::of(key).get::<I::Key>());
        Ok(())
    }

    fn finish(self) -> Result<(), Self::Error> {
        self.load()
    }
}
