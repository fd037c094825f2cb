//! What values an option takes: its kind, its bounds, and how a value is read and checked.

use std::net::SocketAddr;

use toml::Value;

/// The unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Ms,
    /// Minutes.
    Minutes,
    /// Percent.
    Percent,
    /// Whatever the name of the option says.
    Count,
}

/// The values that an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number.
    Integer {
        /// What it counts.
        unit: Unit,
        /// The least value.
        least: u64,
        /// The greatest value.
        greatest: u64,
    },
    /// On or off.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// The path of a file or a folder.
    Path,
    /// An IP address and a port.
    Address,
    /// A host and a port that clients can use.
    HostPort,
}

impl Kind {
    /// The value that a text says, as a command line or an environment has it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        let value = match self {
            Self::Integer { .. } => Value::Integer(text.parse().map_err(|_| self.expected())?),
            Self::Flag => Value::Boolean(text.parse().map_err(|_| self.expected())?),
            _ => Value::String(text.to_owned()),
        };
        self.check(&value)?;
        Ok(value)
    }

    /// Whether an option of this kind takes a value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(self, value: &Value) -> Result<(), String> {
        let is_valid = match (self, value) {
            (Self::Integer { least, greatest, .. }, Value::Integer(number)) => {
                u64::try_from(*number).is_ok_and(|number| (least..=greatest).contains(&number))
            }
            (Self::Flag, Value::Boolean(_)) => true,
            (Self::Word(words), Value::String(word)) => words.contains(&word.as_str()),
            (Self::Path, Value::String(path)) => !path.is_empty() && !path.contains('\0'),
            (Self::Address, Value::String(text)) => text.parse::<SocketAddr>().is_ok(),
            (Self::HostPort, Value::String(text)) => host_and_port(text).is_some(),
            _ => false,
        };
        if is_valid { Ok(()) } else { Err(self.expected()) }
    }

    fn expected(self) -> String {
        format!("must be {}", self.bounds())
    }

    /// The values in words.
    #[must_use]
    pub fn bounds(self) -> String {
        match self {
            Self::Integer { unit, least, greatest } => {
                let unit_of_both = match unit {
                    Unit::Bytes | Unit::Count => "",
                    Unit::Ms => " ms",
                    Unit::Minutes => " minutes",
                    Unit::Percent => " percent",
                };
                format!("from {} to {}{unit_of_both}", amount(unit, least), amount(unit, greatest))
            }
            Self::Flag => "true or false".to_owned(),
            Self::Word(words) => match words {
                [first @ .., last] if !first.is_empty() => {
                    format!("{} or {last}", first.join(", "))
                }
                _ => words.concat(),
            },
            Self::Path => "a path".to_owned(),
            Self::Address => "an IP address with a port".to_owned(),
            Self::HostPort => "HOST:PORT, an IPv6 address in brackets, a port above 0".to_owned(),
        }
    }

    /// What stands for a value in the help.
    #[must_use]
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Integer { unit: Unit::Bytes, .. } => "BYTES",
            Self::Integer { unit: Unit::Ms, .. } => "MS",
            Self::Integer { unit: Unit::Minutes, .. } => "MINUTES",
            Self::Integer { unit: Unit::Percent, .. } => "PERCENT",
            Self::Integer { unit: Unit::Count, .. } => "COUNT",
            Self::Flag => "true|false",
            Self::Word(_) => "WORD",
            Self::Path => "PATH",
            Self::Address => "IP:PORT",
            Self::HostPort => "HOST:PORT",
        }
    }

    /// A default or a bound as a document writes it.
    #[must_use]
    pub fn shown(self, value: &Value) -> String {
        match (self, value) {
            (Self::Integer { unit, .. }, Value::Integer(number)) => {
                amount(unit, number.unsigned_abs())
            }
            (Self::Flag, Value::Boolean(on)) => if *on { "on" } else { "off" }.to_owned(),
            (_, Value::String(text)) => format!("`{text}`"),
            _ => value.to_string(),
        }
    }
}

/// A number with its thousands set apart, or in the largest unit of bytes that it is whole in.
fn amount(unit: Unit, number: u64) -> String {
    if unit == Unit::Bytes {
        for (shift, name) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if number >= 1 << shift && number.is_multiple_of(1 << shift) {
                return format!("{} {name}", number >> shift);
            }
        }
        if number < 1 << 10 {
            return if number == 1 { "1 byte".to_owned() } else { format!("{number} bytes") };
        }
    }
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A host that clients can look up, and a port that they can connect to.
#[must_use]
pub fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|&port| port > 0)?;
    if let Some(inner) = host.strip_prefix('[') {
        let address = inner.strip_suffix(']')?.parse::<std::net::Ipv6Addr>().ok()?;
        return Some((address.to_string(), port));
    }
    let is_legal = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let is_host = !host.is_empty() && host.len() <= 253 && host.chars().all(is_legal);
    is_host.then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_taken_at_each_bound_and_refused_beside_it() {
        let kind = Kind::Integer { unit: Unit::Bytes, least: 16 << 10, greatest: 1 << 30 };
        for fine in ["16384", "1073741824"] {
            assert!(kind.parse(fine).is_ok(), "{fine}");
        }
        for wrong in ["16383", "1073741825", "-1", "", "abc", "1e9", "18446744073709551616"] {
            assert_eq!(kind.parse(wrong), Err("must be from 16 KiB to 1 GiB".to_owned()));
        }
    }

    #[test]
    fn an_advertised_address_is_a_host_and_a_port_that_clients_can_use() {
        let host = |text| host_and_port(text).map(|(host, port)| format!("{host} {port}"));
        assert_eq!(host("broker.example:9092").unwrap(), "broker.example 9092");
        assert_eq!(host("[::1]:9").unwrap(), "::1 9");
        let wrong = [
            "",
            "host",
            ":9092",
            "host:",
            "host:70000",
            "host:0",
            "a b:9",
            "http://h:9",
            "::1:9",
            "h:9:9",
            "[::1:9",
            "[x]:9",
        ];
        for wrong in wrong {
            assert_eq!(host_and_port(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn amounts_are_written_in_the_unit_that_they_are_whole_in() {
        let bytes = |number| amount(Unit::Bytes, number);
        let written = [1, 64, 1024, 1025, 100 << 20, 1 << 40].map(bytes);
        assert_eq!(written, ["1 byte", "64 bytes", "1 KiB", "1,025", "100 MiB", "1 TiB"]);
        assert_eq!(amount(Unit::Ms, 1_800_000), "1,800,000");
    }
}
