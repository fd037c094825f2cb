//! The headers of a record: as they were read, decoded only when asked for, or as they were made.
//!
//! A header can be two bytes in a batch and many times that as a value, so readers keep bytes.

use std::fmt;
use std::hash::{Hash, Hasher};

use bytes::Bytes;

use super::data::Header;
use super::raw::take_header;

/// The headers of a record, in order; names may repeat. Equal if their headers are.
#[derive(Clone)]
pub struct Headers(Form);

#[derive(Clone)]
enum Form {
    Made(Vec<Header>),
    /// INVARIANT: `encoded` is exactly `count` headers in the one form that the decoder takes.
    Read {
        encoded: Bytes,
        count: u32,
    },
}

/// The headers of a record, one after the other. Cloning their bytes is cheap.
#[derive(Debug, Clone)]
pub struct HeadersIter<'a> {
    headers: &'a Headers,
    /// The next header's index, or its place in the encoding.
    at: usize,
    left: usize,
}

impl Headers {
    /// No headers.
    #[must_use]
    pub const fn new() -> Self {
        Self(Form::Made(Vec::new()))
    }

    /// Headers whose encoding was checked.
    pub(super) fn read(encoded: Bytes, count: u32) -> Self {
        Self(Form::Read { encoded, count })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Made(headers) => headers.len(),
            Form::Read { count, .. } => *count as usize,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The headers in their order.
    #[must_use]
    pub fn iter(&self) -> HeadersIter<'_> {
        HeadersIter { headers: self, at: 0, left: self.len() }
    }

    /// The first header with this name.
    #[must_use]
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<Header> {
        self.iter().find(|header| header.name == name.as_ref())
    }

    /// Adds a header behind the others.
    pub fn push(&mut self, header: Header) {
        if let Form::Read { .. } = self.0 {
            *self = self.iter().collect();
        }
        if let Form::Made(headers) = &mut self.0 {
            headers.push(header);
        }
    }

    /// The encoding where there is one already, else the headers as they were made.
    pub(super) fn encoded(&self) -> Result<&Bytes, &[Header]> {
        match &self.0 {
            Form::Made(headers) => Err(headers),
            Form::Read { encoded, .. } => Ok(encoded),
        }
    }
}

impl Default for Headers {
    fn default() -> Self {
        Self::new()
    }
}

impl Iterator for HeadersIter<'_> {
    type Item = Header;

    fn next(&mut self) -> Option<Header> {
        self.left = self.left.checked_sub(1)?;
        match &self.headers.0 {
            Form::Made(headers) => {
                self.at += 1;
                headers.get(self.at - 1).cloned()
            }
            Form::Read { encoded, .. } => {
                let raw = take_header(encoded, &mut self.at);
                let raw = raw.expect("the headers were checked when their record was read");
                Some(Header {
                    name: encoded.slice(raw.name),
                    value: raw.value.map(|range| encoded.slice(range)),
                })
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for HeadersIter<'_> {}

impl<'a> IntoIterator for &'a Headers {
    type Item = Header;
    type IntoIter = HeadersIter<'a>;

    fn into_iter(self) -> HeadersIter<'a> {
        self.iter()
    }
}

impl FromIterator<Header> for Headers {
    fn from_iter<I: IntoIterator<Item = Header>>(headers: I) -> Self {
        Self(Form::Made(headers.into_iter().collect()))
    }
}

impl From<Vec<Header>> for Headers {
    fn from(headers: Vec<Header>) -> Self {
        Self(Form::Made(headers))
    }
}

impl PartialEq for Headers {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other)
    }
}

impl Eq for Headers {}

impl Hash for Headers {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        self.iter().for_each(|header| header.hash(state));
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}
