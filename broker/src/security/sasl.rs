//! The SASL exchange of one connection, as a state machine, and the token of the PLAIN mechanism.

/// The only mechanism that is offered.
pub const PLAIN: &str = "PLAIN";

/// Where the exchange of a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaslState {
    /// The listener asks nobody to log in.
    Off,
    /// Nothing was said yet.
    Start,
    /// A mechanism was agreed upon; its token comes next.
    Shaken,
    /// The same by version 0: the token comes by itself, in a frame that is no request.
    ShakenForBareToken,
    /// Somebody has logged in.
    Done,
}

/// What becomes of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    /// The mechanism is offered; the token may come.
    Go,
    /// The mechanism is unknown: the answer lists those there are, then the connection is closed.
    UnknownMechanism,
    /// A handshake is not in its place; before the login the connection is closed then.
    IllegalState,
}

impl SaslState {
    /// What becomes of a handshake for this mechanism, and the state behind it.
    #[must_use]
    pub fn handshake(self, version: i16, mechanism: &str) -> (Handshake, Self) {
        match self {
            Self::Start if mechanism == PLAIN && version == 0 => {
                (Handshake::Go, Self::ShakenForBareToken)
            }
            Self::Start if mechanism == PLAIN => (Handshake::Go, Self::Shaken),
            Self::Start => (Handshake::UnknownMechanism, self),
            Self::Off | Self::Shaken | Self::ShakenForBareToken | Self::Done => {
                (Handshake::IllegalState, self)
            }
        }
    }

    /// Whether the connection may do anything else than log in.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Off | Self::Done)
    }
}

/// A name and a password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PlainToken<'a> {
    /// The user that logs in.
    pub user: &'a str,
    /// The password.
    pub password: &'a [u8],
}

/// Reads a token of PLAIN: `[for whom] NUL user NUL password`. To log in for somebody else is
/// refused.
#[must_use]
pub fn plain_token(bytes: &[u8]) -> Option<PlainToken<'_>> {
    let mut parts = bytes.split(|&byte| byte == 0);
    let (for_whom, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    let one_of_us = for_whom.is_empty() || for_whom == user;
    if parts.next().is_some() || !one_of_us || user.is_empty() || password.is_empty() {
        return None;
    }
    Some(PlainToken { user: std::str::from_utf8(user).ok()?, password })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_user_and_a_password_and_may_repeat_the_user() {
        for token in [&b"\0ann\0secret"[..], b"ann\0ann\0secret"] {
            let read = plain_token(token).unwrap();
            assert_eq!((read.user, read.password), ("ann", &b"secret"[..]));
        }
    }

    #[test]
    fn what_is_no_token_of_plain_is_refused() {
        let wrong: [&[u8]; 9] = [
            b"",
            b"garbage",
            b"\0ann",
            b"\0ann\0",
            b"\0\0secret",
            b"bob\0ann\0secret",
            b"\0ann\0secret\0",
            b"\0ann\0sec\0ret",
            b"\0\xff\xfe\0secret",
        ];
        for token in wrong {
            assert!(plain_token(token).is_none(), "{token:?}");
        }
    }

    #[test]
    fn a_handshake_has_its_place_only_at_the_start() {
        let shaken = (Handshake::Go, SaslState::Shaken);
        assert_eq!(SaslState::Start.handshake(1, "PLAIN"), shaken);
        let bare = (Handshake::Go, SaslState::ShakenForBareToken);
        assert_eq!(SaslState::Start.handshake(0, "PLAIN"), bare);
        let unknown = (Handshake::UnknownMechanism, SaslState::Start);
        assert_eq!(SaslState::Start.handshake(1, "SCRAM-SHA-256"), unknown);
        for state in [SaslState::Off, SaslState::Shaken, SaslState::Done] {
            assert_eq!(state.handshake(1, "PLAIN"), (Handshake::IllegalState, state));
        }
    }
}
