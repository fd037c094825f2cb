//! The options of the process: one table, four sources, their checks, and their typed form.

pub mod kind;
pub mod open_files;
pub mod serve;
pub mod sources;
pub mod table;

pub use serve::{LogFormat, Serve, settle};
pub use sources::{Problems, Source, Task, Values, command, print, read, unknown_variables};
pub use table::{Row, table};
