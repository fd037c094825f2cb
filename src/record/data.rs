//! Records and headers as values: what readers give and writers take.

use std::str::Utf8Error;

use bytes::Bytes;

use crate::base::types::{NO_TIMESTAMP, Offset, TimestampMs};

use super::headers::Headers;

/// One record. Key and value may each be null, which differs from empty.
///
/// ```
/// use tidelog::record::Record;
///
/// let record = Record::new("customer-7", "{}").header("source", "web").timestamp(1_700);
/// assert_eq!(record.key.as_deref(), Some(b"customer-7".as_slice()));
/// assert_eq!(Record::tombstone("customer-7").value, None);
/// assert_ne!(Record::keyless("{}"), Record::new("", "{}"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// Its place in the partition. What a record is built with is ignored: the log gives offsets.
    pub offset: Offset,
    /// Its timestamp, [`NO_TIMESTAMP`] for none.
    pub timestamp: TimestampMs,
    /// Its attribute bits, none of which has a meaning yet.
    pub attributes: u8,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value; null is a tombstone on a compacted topic.
    pub value: Option<Bytes>,
    /// Its headers, in order; names may repeat.
    pub headers: Headers,
}

/// A header of a record. Names are bytes: Kafka keeps them without a look, empty ones too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Header {
    /// The name.
    pub name: Bytes,
    /// The value, which may be null.
    pub value: Option<Bytes>,
}

/// What a key or a value can be made from; `None` is null.
pub trait IntoField {
    /// The bytes, or nothing for null.
    fn into_field(self) -> Option<Bytes>;
}

impl Record {
    /// A record with key and value.
    #[must_use]
    pub fn new(key: impl IntoField, value: impl IntoField) -> Self {
        Self {
            offset: 0,
            timestamp: NO_TIMESTAMP,
            attributes: 0,
            key: key.into_field(),
            value: value.into_field(),
            headers: Headers::new(),
        }
    }

    /// A record whose key is null.
    #[must_use]
    pub fn keyless(value: impl IntoField) -> Self {
        Self::new(None::<Bytes>, value)
    }

    /// A record whose value is null: on a compacted topic it deletes its key.
    #[must_use]
    pub fn tombstone(key: impl IntoField) -> Self {
        Self::new(key, None::<Bytes>)
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: impl AsRef<[u8]>, value: impl IntoField) -> Self {
        self.headers.push(Header::new(name, value));
        self
    }

    /// The same with a timestamp.
    #[must_use]
    pub fn timestamp(mut self, timestamp: TimestampMs) -> Self {
        self.timestamp = timestamp;
        self
    }
}

impl Header {
    /// A header with a name and a value.
    #[must_use]
    pub fn new(name: impl AsRef<[u8]>, value: impl IntoField) -> Self {
        Self { name: Bytes::copy_from_slice(name.as_ref()), value: value.into_field() }
    }

    /// The name as text.
    ///
    /// # Errors
    /// If the name is no UTF-8.
    pub fn name_str(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.name)
    }
}

impl IntoField for Bytes {
    fn into_field(self) -> Option<Bytes> {
        Some(self)
    }
}

impl IntoField for Vec<u8> {
    fn into_field(self) -> Option<Bytes> {
        Some(self.into())
    }
}

impl IntoField for String {
    fn into_field(self) -> Option<Bytes> {
        Some(self.into())
    }
}

impl IntoField for &str {
    fn into_field(self) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(self.as_bytes()))
    }
}

impl IntoField for &String {
    fn into_field(self) -> Option<Bytes> {
        self.as_str().into_field()
    }
}

impl IntoField for &[u8] {
    fn into_field(self) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(self))
    }
}

impl<const N: usize> IntoField for &[u8; N] {
    fn into_field(self) -> Option<Bytes> {
        self.as_slice().into_field()
    }
}

impl<T: IntoField> IntoField for Option<T> {
    fn into_field(self) -> Option<Bytes> {
        self.and_then(IntoField::into_field)
    }
}
