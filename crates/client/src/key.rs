//! Keys as callers have them.

/// A key: bytes, or the number of a table whose keys are numbers.
///
/// ```no_run
/// # fn main() -> kelix::Result<()> {
/// # let mut session: kelix::Session = unimplemented!();
/// let orders = session.create_table_of(kelix::TableKind::Numbers, "orders")?;
/// session.put(orders, 42, b"two chairs")?;
/// let names = session.create_table("names")?;
/// session.put(names, "Ada", b"Countess of Lovelace")?;
/// # Ok(())
/// # }
/// ```
pub trait Key {
    /// What holds the bytes.
    type Bytes: AsRef<[u8]>;

    /// The bytes of the key. Those of a number are 8, the highest first, so that their order is that of the
    /// numbers.
    fn into_bytes(self) -> Self::Bytes;
}

impl<'k, K: AsRef<[u8]> + ?Sized> Key for &'k K {
    type Bytes = &'k [u8];

    #[inline(always)]
    fn into_bytes(self) -> &'k [u8] {
        self.as_ref()
    }
}

impl Key for u64 {
    type Bytes = [u8; 8];

    #[inline(always)]
    fn into_bytes(self) -> [u8; 8] {
        self.to_be_bytes()
    }
}
