//! Limits of the engine as data: name, bounds, default, reason; what is wrong with a set of them.

use std::fmt;

/// A limit of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// Its name, which ends with its unit.
    pub name: &'static str,
    /// Its default; `None` where it follows from others.
    pub default: Option<u64>,
    /// The least value that it takes.
    pub least: u64,
    /// The greatest value that it takes.
    pub greatest: u64,
    /// What it bounds, and why its default is what it is.
    pub reason: &'static str,
}

/// A configuration of the engine that is not taken, with every reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfigError {
    problems: Vec<LimitProblem>,
}

/// One reason why a configuration of the engine is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitProblem {
    /// A limit is outside of its bounds.
    OutOfBounds {
        /// The limit.
        limit: Limit,
        /// The value that it was given.
        value: u64,
    },
    /// A limit is above another that it must not exceed.
    Above {
        /// The limit that is too high.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The limit that bounds it.
        bound: &'static str,
        /// The value of that one.
        bound_value: u64,
    },
}

impl EngineConfigError {
    /// The error of these problems.
    pub(super) fn check(problems: Vec<LimitProblem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { problems }) }
    }

    /// What is wrong; never empty.
    #[must_use]
    pub fn problems(&self) -> &[LimitProblem] {
        &self.problems
    }
}

impl fmt::Display for LimitProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds { limit, value } => {
                let Limit { name, least, greatest, .. } = limit;
                write!(
                    f,
                    "{name} is out of bounds: {name}={value} least={least} greatest={greatest}"
                )
            }
            Self::Above { name, value, bound, bound_value } => {
                write!(f, "{name} must not be above {bound}: {name}={value} {bound}={bound_value}")
            }
        }
    }
}

impl fmt::Display for EngineConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for EngineConfigError {}
