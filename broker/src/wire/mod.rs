//! Bytes on a connection: frames, the head of a request, and the shape of a body before it is
//! decoded.

pub mod budget;
pub mod fields;
pub mod frame;
pub mod head;
pub mod presence;
pub mod shape;
pub mod text;
