//! Walks over a request body before it is decoded, so that no length in it is believed unchecked.
//!
//! The decoder of kafka-protocol makes room for as many elements as an array claims to have. So
//! each body is first walked by the shape of its API: every length must fit what is
//! left, and all arrays together may have [`MAX_ELEMENTS`] elements.

use std::fmt;

use super::text::MAX_TEXT_BYTES;

/// The most array elements and tagged fields in one request, over all its arrays: room for every
/// partition of a large broker, and a bound of some ten MiB for what a decoded request costs.
pub const MAX_ELEMENTS: usize = 262_144;

/// What a field is made of.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// So many bytes.
    Fixed(usize),
    /// A string, which may be null where the second part says so (a version).
    Text(Nullable),
    /// Bytes, which may be null.
    Blob(Nullable),
    /// An array of structs.
    Structs(Nullable, &'static Struct),
    /// An array of plain values, which have no tags of their own.
    Values(Nullable, &'static Shape),
}

/// From which version on a field may be null; `None`: never.
pub type Nullable = Option<i16>;

/// A field of a struct.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The first and the last version that have it.
    pub versions: (i16, i16),
    /// What it is made of.
    pub shape: Shape,
}

/// A field that flexible versions carry behind the others, under a number.
#[derive(Debug, Clone, Copy)]
pub struct Tagged {
    /// Its number.
    pub tag: u32,
    /// The first version that knows it.
    pub since: i16,
    /// What it is made of.
    pub fields: &'static [Field],
    /// Whether its fields are a struct, with tags behind them.
    pub is_struct: bool,
}

/// A struct, and the body of a request.
#[derive(Debug)]
pub struct Struct {
    /// Its fields in order.
    pub fields: &'static [Field],
    /// Its known tagged fields.
    pub tagged: &'static [Tagged],
}

/// The body of a request.
#[derive(Debug)]
pub struct Body {
    /// The first flexible version: short lengths and tags.
    pub flexible_since: i16,
    /// What is in it.
    pub body: Struct,
}

/// Why bytes are no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The bytes end too early.
    Short,
    /// A length that cannot be: negative, or null where null is not allowed.
    Length,
    /// A text longer than [`MAX_TEXT_BYTES`], which a varint can claim.
    Text,
    /// A varint of more than 32 bits.
    Varint,
    /// More array elements than [`MAX_ELEMENTS`].
    Elements,
    /// A tagged field whose content is not as long as it says.
    Tag,
    /// Text that is no UTF-8, or another fault inside a field.
    Field,
}

/// Checks that `bytes` begin with a body of this shape, and counts the elements of its arrays.
/// Bytes behind it are passed over, as Kafka does.
///
/// # Errors
/// [`Malformed`] says what is wrong first.
pub fn check(body: &Body, version: i16, bytes: &[u8]) -> Result<usize, Malformed> {
    walked(body, version, bytes).map(|walk| walk.elements)
}

/// Checks the body, and returns how many bytes are behind it.
///
/// # Errors
/// [`Malformed`] says what is wrong first.
pub fn walk(body: &Body, version: i16, bytes: &[u8]) -> Result<usize, Malformed> {
    walked(body, version, bytes).map(|walk| walk.bytes.len())
}

fn walked<'a>(body: &Body, version: i16, bytes: &'a [u8]) -> Result<Walk<'a>, Malformed> {
    let flexible = version >= body.flexible_since;
    let mut walk = Walk { bytes, version, flexible, elements: 0 };
    walk.structure(&body.body)?;
    Ok(walk)
}

/// Passes over a section of tags, and returns how many bytes are behind it.
///
/// # Errors
/// [`Malformed`] where it ends too early.
pub fn skip_tags(bytes: &[u8]) -> Result<usize, Malformed> {
    let mut walk = Walk { bytes, version: 0, flexible: true, elements: 0 };
    walk.tags(&[])?;
    Ok(walk.bytes.len())
}

struct Walk<'a> {
    bytes: &'a [u8],
    version: i16,
    flexible: bool,
    elements: usize,
}

impl Walk<'_> {
    fn structure(&mut self, structure: &Struct) -> Result<(), Malformed> {
        self.fields(structure.fields)?;
        if self.flexible { self.tags(structure.tagged) } else { Ok(()) }
    }

    fn fields(&mut self, fields: &[Field]) -> Result<(), Malformed> {
        for field in fields {
            let (first, last) = field.versions;
            if (first..=last).contains(&self.version) {
                self.field(&field.shape)?;
            }
        }
        Ok(())
    }

    fn field(&mut self, shape: &Shape) -> Result<(), Malformed> {
        match *shape {
            Shape::Fixed(length) => self.skip(length),
            Shape::Text(nullable) => {
                let length = self.length(2, nullable)?;
                if length > MAX_TEXT_BYTES {
                    return Err(Malformed::Text);
                }
                self.skip(length)
            }
            Shape::Blob(nullable) => {
                let length = self.length(4, nullable)?;
                self.skip(length)
            }
            Shape::Structs(nullable, structure) => {
                for _ in 0..self.count(nullable)? {
                    self.structure(structure)?;
                }
                Ok(())
            }
            Shape::Values(nullable, shape) => {
                for _ in 0..self.count(nullable)? {
                    self.field(shape)?;
                }
                Ok(())
            }
        }
    }

    /// The number of an array's elements. Each has at least a byte, so it cannot be more than is
    /// left.
    fn count(&mut self, nullable: Nullable) -> Result<usize, Malformed> {
        let count = self.length(4, nullable)?;
        if count > self.bytes.len() {
            return Err(Malformed::Short);
        }
        self.count_elements(count)?;
        Ok(count)
    }

    fn count_elements(&mut self, more: usize) -> Result<(), Malformed> {
        self.elements += more;
        if self.elements > MAX_ELEMENTS { Err(Malformed::Elements) } else { Ok(()) }
    }

    /// A length of two or four bytes, or a varint one above it where the version is flexible; null
    /// is 0.
    fn length(&mut self, width: usize, nullable: Nullable) -> Result<usize, Malformed> {
        let length = if self.flexible {
            i64::from(self.varint()?) - 1
        } else if width == 2 {
            i64::from(i16::from_be_bytes(self.take()?))
        } else {
            i64::from(i32::from_be_bytes(self.take()?))
        };
        match length {
            -1 if nullable.is_some_and(|since| self.version >= since) => Ok(0),
            _ => usize::try_from(length).map_err(|_| Malformed::Length),
        }
    }

    fn tags(&mut self, known: &[Tagged]) -> Result<(), Malformed> {
        let count = self.varint()? as usize;
        self.count_elements(count)?;
        for _ in 0..count {
            let tag = self.varint()?;
            let size = self.varint()? as usize;
            let content = self.bytes.get(..size).ok_or(Malformed::Short)?;
            self.bytes = &self.bytes[size..];
            let Some(field) = known.iter().find(|field| field.tag == tag) else { continue };
            if self.version < field.since {
                return Err(Malformed::Tag);
            }
            let mut inner = Walk { bytes: content, ..*self };
            inner.fields(field.fields)?;
            if field.is_struct {
                inner.tags(&[])?;
            }
            if !inner.bytes.is_empty() {
                return Err(Malformed::Tag);
            }
        }
        Ok(())
    }

    fn varint(&mut self) -> Result<u32, Malformed> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.take()?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && bits > 0xf {
                return Err(Malformed::Varint);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed::Varint)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(Malformed::Short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn skip(&mut self, length: usize) -> Result<(), Malformed> {
        self.bytes = self.bytes.get(length..).ok_or(Malformed::Short)?;
        Ok(())
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("a request ends too early"),
            Self::Length => f.write_str("a length in a request is negative"),
            Self::Text => {
                write!(f, "a text in a request is too long: limit={MAX_TEXT_BYTES}")
            }
            Self::Varint => f.write_str("a varint in a request has more than 32 bits"),
            Self::Elements => {
                write!(f, "a request has too many array elements: limit={MAX_ELEMENTS}")
            }
            Self::Tag => f.write_str("a tagged field of a request is not as long as it says"),
            Self::Field => f.write_str("a field of a request cannot be read"),
        }
    }
}

impl std::error::Error for Malformed {}
