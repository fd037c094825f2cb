//! How a failure is told: the promise that was broken, what had been done, and how to see it again.

use std::fmt;

use crate::random::Random;
use crate::world::World;

/// Names one crash in this variable, as a failure prints it, to run that one alone.
pub const CASE_VARIABLE: &str = "TIDELOG_CRASH_CASE";

/// One crash: the run, the call at which it is stopped, what the stop leaves, and the call at
/// which the recovery is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    pub seed: u64,
    pub call: u64,
    pub left: u64,
    pub nested: Option<u64>,
}

impl Case {
    /// What is random in it.
    pub fn random(&self) -> Random {
        Random::at(&[self.seed, self.call, self.left, self.nested.map_or(0, |nested| nested + 1)])
    }

    /// The case of these numbers.
    pub fn new(numbers: &[u64]) -> Self {
        match *numbers {
            [seed, call, left] => Self { seed, call, left, nested: None },
            [seed, call, left, nested] => Self { seed, call, left, nested: Some(nested) },
            _ => panic!("a case is seed.call.left or seed.call.left.nested: {numbers:?}"),
        }
    }
}

/// This variable makes every search so many times as long.
const SCALE_VARIABLE: &str = "TIDELOG_CRASH_SCALE";

/// How many times as long the searches are to be.
pub fn scale() -> u64 {
    let scale = std::env::var(SCALE_VARIABLE).ok();
    scale.map_or(1, |text| text.parse().expect("the scale is a number"))
}

/// What the environment asks of a kind of run: all of it, one case by its numbers, or nothing,
/// because the case is of another kind.
pub enum Asked {
    All,
    One(Vec<u64>),
    Nothing,
}

impl Asked {
    pub fn of(kind: &str) -> Self {
        let Ok(text) = std::env::var(CASE_VARIABLE) else { return Self::All };
        match text.split_once(':') {
            Some((named, numbers)) if named == kind => {
                let numbers = numbers.split('.').map(|part| part.parse().expect("a number"));
                Self::One(numbers.collect())
            }
            Some(_) => Self::Nothing,
            None => panic!("{CASE_VARIABLE} is a kind and numbers: {text}"),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sweep:{}.{}.{}", self.seed, self.call, self.left)?;
        self.nested.map_or(Ok(()), |nested| write!(f, ".{nested}"))
    }
}

#[derive(Debug)]
pub struct Failure {
    /// What the variable must be to see it again.
    case: String,
    what: String,
    trace: Vec<String>,
}

impl Failure {
    pub fn new(case: impl fmt::Display, what: String, world: &World) -> Self {
        Self { case: case.to_string(), what, trace: world.trace.clone() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        self.trace.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        write!(f, "again with {CASE_VARIABLE}={}", self.case)
    }
}
