//! The head of a request, in front of its body.
//!
//! ```text
//! api key i16 | version i16 | correlation id i32 | client id | [tags]
//! client id: length i16 (-1: null), bytes
//! ```
//! The tags are there where the body is flexible (header version 2).

use bytes::{Buf, Bytes};

use super::shape::{Malformed, skip_tags};
use super::text::{MAX_TEXT_BYTES, cut};

/// The first eight bytes, which are the same for every API and version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Which API is asked.
    pub api_key: i16,
    /// In which version the body is written, and the answer wanted.
    pub version: i16,
    /// What the answer repeats.
    pub correlation_id: i32,
}

/// Takes the first eight bytes of a request.
///
/// # Errors
/// [`Malformed`] where there are fewer.
pub fn take_start(frame: &mut Bytes) -> Result<Start, Malformed> {
    if frame.len() < 8 {
        return Err(Malformed::Short);
    }
    Ok(Start {
        api_key: frame.get_i16(),
        version: frame.get_i16(),
        correlation_id: frame.get_i32(),
    })
}

/// Takes the rest of the head, and returns the client id. Bytes that are no UTF-8 become longer, so
/// that its end may be left out.
///
/// # Errors
/// [`Malformed`] where the head ends too early or a length cannot be.
pub fn take_client_id(frame: &mut Bytes, flexible: bool) -> Result<Option<String>, Malformed> {
    if frame.len() < 2 {
        return Err(Malformed::Short);
    }
    let client_id = match frame.get_i16() {
        -1 => None,
        length => {
            let length = usize::try_from(length).map_err(|_| Malformed::Length)?;
            if frame.len() < length {
                return Err(Malformed::Short);
            }
            let text = String::from_utf8_lossy(&frame.split_to(length)).into_owned();
            Some(cut(text, MAX_TEXT_BYTES))
        }
    };
    if flexible {
        let rest = skip_tags(frame)?;
        frame.advance(frame.len() - rest);
    }
    Ok(client_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(parts: &[&[u8]]) -> Bytes {
        Bytes::from(parts.concat())
    }

    #[test]
    fn a_client_id_may_be_null_or_empty_and_tags_behind_it_are_passed_over() {
        let mut frame = bytes(&[&[0, 3, 0, 9, 0, 0, 0, 7], &[0xff, 0xff], &[0], b"body"]);
        let start = take_start(&mut frame).unwrap();
        assert_eq!(start, Start { api_key: 3, version: 9, correlation_id: 7 });
        assert_eq!(take_client_id(&mut frame, true), Ok(None));
        assert_eq!(&frame[..], b"body");

        let mut frame = bytes(&[&[0, 0], &[1, 0x63, 2, 0xab, 0xcd], b"body"]);
        assert_eq!(take_client_id(&mut frame, true), Ok(Some(String::new())));
        assert_eq!(&frame[..], b"body");
    }

    #[test]
    fn a_head_cut_at_any_byte_is_malformed() {
        let whole = bytes(&[&[0, 3, 0, 9, 0, 0, 0, 7], &[0, 1, b'x'], &[1, 0x63, 2, 1, 2]]);
        for cut in 0..whole.len() {
            let mut frame = whole.slice(..cut);
            let read = take_start(&mut frame).and_then(|_| take_client_id(&mut frame, true));
            assert!(read.is_err(), "cut={cut}");
        }
    }

    #[test]
    fn a_client_id_longer_than_the_frame_or_of_negative_length_is_malformed() {
        assert_eq!(
            take_client_id(&mut bytes(&[&[0x01, 0xf4, b'x']]), false),
            Err(Malformed::Short)
        );
        assert_eq!(take_client_id(&mut bytes(&[&[0xff, 0xfe]]), false), Err(Malformed::Length));
    }
}
