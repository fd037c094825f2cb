//! The words in which the shapes of request bodies are written, by Kafka's message schemas.

use super::shape::{Field, Nullable, Shape, Struct};

pub(crate) const LAST: i16 = i16::MAX;
pub(crate) const NEVER: Nullable = None;
pub(crate) const ALWAYS: Nullable = Some(0);

pub(crate) const I8: Shape = Shape::Fixed(1);
pub(crate) const BOOL: Shape = Shape::Fixed(1);
pub(crate) const I16: Shape = Shape::Fixed(2);
pub(crate) const I32: Shape = Shape::Fixed(4);
pub(crate) const I64: Shape = Shape::Fixed(8);
pub(crate) const UUID: Shape = Shape::Fixed(16);
pub(crate) const TEXT: Shape = Shape::Text(NEVER);
pub(crate) const TEXT_OR_NULL: Shape = Shape::Text(ALWAYS);

pub(crate) const fn field(shape: Shape) -> Field {
    Field { versions: (0, LAST), shape }
}

pub(crate) const fn since(first: i16, shape: Shape) -> Field {
    Field { versions: (first, LAST), shape }
}

pub(crate) const fn until(last: i16, shape: Shape) -> Field {
    Field { versions: (0, last), shape }
}

pub(crate) const fn between(first: i16, last: i16, shape: Shape) -> Field {
    Field { versions: (first, last), shape }
}

pub(crate) const fn plain(fields: &'static [Field]) -> Struct {
    Struct { fields, tagged: &[] }
}

pub(crate) const fn list(structure: &'static Struct) -> Shape {
    Shape::Structs(NEVER, structure)
}

pub(crate) const fn values(shape: &'static Shape) -> Shape {
    Shape::Values(NEVER, shape)
}

pub(crate) const CONFIG_ENTRY: Struct = plain(&[field(TEXT), field(TEXT_OR_NULL)]);
/// A topic's name and numbers of its partitions.
pub(crate) const NUMBERED_TOPIC: Struct = plain(&[field(TEXT), field(values(&I32))]);
