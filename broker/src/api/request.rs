//! What an API is, what a request of it is handed, and what becomes of that request.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};

use tokio::sync::watch;

use crate::context::{Context, Session};
use crate::profile::Profile;
use crate::security::sasl::SaslState;
use crate::wire::budget::Held;
use crate::wire::head::Start;
use crate::wire::presence::Presence;
use crate::wire::shape::{Body, Malformed};
use crate::wire::text::{MAX_TEXT_BYTES, cut};

/// One API: all that the way from a request to its answer wants to know of it.
pub(super) trait Api {
    /// What a request is decoded to.
    type Request: Decodable + Send;
    /// Which API it is.
    const KEY: ApiKey;
    /// The lowest and the highest version that are served.
    const VERSIONS: (i16, i16);
    /// What a body is made of: it is walked over by this before it is decoded.
    const SHAPE: &'static Body;
    /// The lowest version that clients are told of.
    const ADVERTISED: i16 = Self::VERSIONS.0;
    /// The highest version that has a layout of its own; those above it are written as it is.
    const DECODED_AS: i16 = Self::VERSIONS.1;
    /// Whether only the profile kafka has it.
    const KAFKA_ONLY: bool = false;
    /// Whether it is served before a login.
    const BEFORE_LOGIN: bool = false;
    /// Whether an answer is as long as there is something to tell: only
    /// [`crate::context::LISTS_AT_A_TIME`] of these are made together, where no connection waits.
    const IS_LIST: bool = false;
    /// What an element of a request costs in memory while it is answered, about.
    const ELEMENT_BYTES: usize = 512;

    /// Answers a request.
    fn reply(
        asked: Asked<'_>,
        request: Self::Request,
    ) -> impl Future<Output = Result<Reply, Closing>> + Send;
}

/// A request, and whom it came from.
pub(super) struct Asked<'a> {
    /// What every handler borrows.
    pub(super) context: &'a Arc<Context>,
    /// The connection.
    pub(super) peer: &'a mut Peer,
    /// How the request began.
    pub(super) start: Start,
    /// The memory of the request: its bytes, and what it is decoded to. Who waits for long gives
    /// back what it does not need.
    pub(super) held: Held,
    /// Every API.
    pub(super) apis: &'static [Served],
}

/// An API that is served: what its `Api` says.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    /// Which one.
    pub key: ApiKey,
    /// The lowest version that clients are told of.
    pub advertised: i16,
    /// The lowest version that is served.
    pub min: i16,
    /// The highest.
    pub max: i16,
    /// Whether only the profile kafka has it.
    pub kafka_only: bool,
    /// What a body is made of.
    pub shape: &'static Body,
    pub(super) before_login: bool,
    pub(super) is_list: bool,
    pub(super) element_bytes: usize,
    pub(super) reply: Handler,
}

/// What decodes the body of a request and answers it.
type Handler = for<'a> fn(Asked<'a>, Bytes) -> Answering<'a>;
/// An answer that is being made.
type Answering<'a> = Pin<Box<dyn Future<Output = Result<Reply, Closing>> + Send + 'a>>;

impl Served {
    /// What an API says of itself.
    pub(super) const fn of<A: Api>() -> Self {
        Self {
            key: A::KEY,
            advertised: A::ADVERTISED,
            min: A::VERSIONS.0,
            max: A::VERSIONS.1,
            kafka_only: A::KAFKA_ONLY,
            shape: A::SHAPE,
            before_login: A::BEFORE_LOGIN,
            is_list: A::IS_LIST,
            element_bytes: A::ELEMENT_BYTES,
            reply: decode_and_reply::<A>,
        }
    }

    /// Whether brokers of this profile serve it.
    #[must_use]
    pub fn is_in(&self, profile: Profile) -> bool {
        !self.kafka_only || profile == Profile::Kafka
    }
}

/// Decodes a body that was walked over before, and answers it.
fn decode_and_reply<A: Api>(asked: Asked<'_>, mut body: Bytes) -> Answering<'_> {
    Box::pin(async move {
        let start = asked.start;
        let request = A::Request::decode(&mut body, start.version.min(A::DECODED_AS))
            .map_err(|_| Closing::Malformed(start, Malformed::Field))?;
        // Else the whole frame stays for as long as the answer takes.
        drop(body);
        A::reply(asked, request).await
    })
}

impl Asked<'_> {
    /// What tells work that takes long whether it is still wanted.
    pub(super) fn wish(&self) -> Wish {
        Wish { presence: Arc::clone(&self.peer.presence), draining: self.context.draining.clone() }
    }
}

/// Whether an answer is still wanted.
#[derive(Clone)]
pub(super) struct Wish {
    presence: Arc<Presence>,
    draining: watch::Receiver<bool>,
}

impl Wish {
    /// Nothing while the answer is wanted.
    ///
    /// # Errors
    /// [`Closing::Gone`] and [`Closing::Stopping`].
    pub(super) fn check(&self) -> Result<(), Closing> {
        if self.presence.is_gone() {
            return Err(Closing::Gone);
        }
        if *self.draining.borrow() { Err(Closing::Stopping) } else { Ok(()) }
    }

    /// Waits until the answer is not wanted any more, and says why.
    pub(super) async fn end(&mut self) -> Closing {
        tokio::select! {
            () = self.presence.gone() => Closing::Gone,
            _ = self.draining.wait_for(|&draining| draining) => Closing::Stopping,
        }
    }
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Reply {
    /// It is answered.
    Answer(Answer),
    /// It wants no answer.
    Nothing,
    /// The connection is closed, for this reason.
    Close(Closing),
}

/// The bytes of an answer, with their length in front.
#[derive(Debug)]
pub struct Answer {
    /// What is sent.
    pub bytes: Bytes,
    /// Whether the connection is closed after it.
    pub then_close: bool,
    /// The memory that the answer holds until it is sent.
    pub held: Held,
}

/// Why a connection is closed without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// An API that is not served, or not in this version.
    NotServed(Start),
    /// The request cannot be read.
    Malformed(Start, Malformed),
    /// Others hold all memory for too long.
    NoMemory(Start),
    /// The answer would hold more than half of all memory.
    TooLarge(Start),
    /// The broker is told to stop, and the answer would still take long.
    Stopping,
    /// The client has gone away, and the answer would still take long.
    Gone,
    /// There are not even the eight bytes that every request begins with.
    NoHead,
    /// A request that has no place before the login.
    NotLoggedIn(Start),
    /// A token that came by itself is wrong.
    LoginFailed,
    /// A producer that wants no answer was refused, and is told so in the only way there is.
    RefusedWithoutAnswer,
}

impl Closing {
    /// Why, without a byte of what the client has sent: before a login that may be a password.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotServed(_) => "the API or its version is not served",
            Self::Malformed(..) => "the request cannot be read",
            Self::NoMemory(_) => "others hold all memory for too long",
            Self::TooLarge(_) => "the answer would hold more than half of all memory",
            Self::Stopping => "the broker is told to stop",
            Self::Gone => "the client has gone away",
            Self::NoHead => "the frame is shorter than the head of a request",
            Self::NotLoggedIn(_) => "the request has no place before the login",
            Self::LoginFailed => "the login failed",
            Self::RefusedWithoutAnswer => "a producer that wants no answer was refused",
        }
    }
}

/// One connection, as the APIs know it.
#[derive(Debug)]
pub struct Peer {
    /// What it may do.
    pub session: Session,
    /// Where its login stands.
    pub sasl: SaslState,
    /// Whether the client waits for its answer, so that nothing is done for nobody.
    pub presence: Arc<Presence>,
    /// Where the client is.
    pub address: IpAddr,
    /// The same, as Kafka writes it.
    pub host: String,
    /// What the client calls itself in the request under way.
    pub client_id: String,
}

/// Encodes an answer for which memory was taken.
pub(super) fn reply_with<T: Encodable + HeaderVersion>(
    start: Start,
    response: &T,
    held: Held,
) -> Reply {
    Reply::Answer(Answer { bytes: encode(start, response), then_close: false, held })
}

/// Encodes an answer.
pub(super) fn reply<T: Encodable + HeaderVersion>(start: Start, response: &T) -> Reply {
    Reply::Answer(Answer {
        bytes: encode(start, response),
        then_close: false,
        held: Held::default(),
    })
}

/// ```text
/// length i32 | correlation id i32 | [no tags: 0] | body
/// ```
pub(super) fn encode<T: Encodable + HeaderVersion>(start: Start, response: &T) -> Bytes {
    let version = start.version;
    let body_bytes = response.compute_size(version).unwrap_or(0);
    let mut bytes = BytesMut::with_capacity(9 + body_bytes);
    bytes.put_i32(0);
    bytes.put_i32(start.correlation_id);
    if T::header_version(version) >= 1 {
        bytes.put_u8(0);
    }
    response
        .encode(&mut bytes, version)
        .expect("an answer sets only the fields that its version has");
    let length = i32::try_from(bytes.len() - 4).expect("an answer is far below two GiB");
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes.freeze()
}

/// A string of an answer; no version can say one that is longer than texts may be.
pub(super) fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(cut(text.into(), MAX_TEXT_BYTES))
}
