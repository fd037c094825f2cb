//! Frames: four bytes of length, then a request. A frame costs memory only as its bytes arrive.
//!
//! INVARIANT: the buffer never grows past what the budget has given, but for the first
//! `FIRST_BYTES` of a connection, so a length that a client merely claims costs nothing.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tidelog::clock::Clock;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use super::budget::{Held, MemoryBudget, STEP_BYTES};

/// What a connection reads at once while it waits for a frame.
const FIRST_BYTES: usize = 4096;
/// A buffer that has grown past this is given back once its frame is done.
const KEPT_BYTES: usize = 64 * 1024;
/// How long a request or an answer may be under way although others wait for its memory.
pub const UNHURRIED: Duration = Duration::from_secs(10);
/// How often one that does not go on is looked at.
pub const TICK: Duration = Duration::from_secs(1);
/// The bytes in front of a frame.
const LENGTH_BYTES: usize = 4;

/// What bounds the frames of a connection.
#[derive(Debug, Clone, Copy)]
pub struct FrameLimits {
    /// The largest frame that is read, without its length.
    pub max_frame_bytes: usize,
    /// How long a connection may be silent between two frames.
    pub idle: Duration,
    /// How long the next piece of a frame that has begun, or memory for it, may take to come.
    pub stall: Duration,
}

/// A request as it came, and the memory it holds.
#[derive(Debug)]
pub struct Frame {
    /// The bytes behind the length.
    pub bytes: Bytes,
    held: Held,
}

/// Why a connection ends here.
#[derive(Debug)]
#[non_exhaustive]
pub enum FrameError {
    /// The length is negative or above the limit.
    Length {
        /// What the frame claims.
        length_bytes: i32,
        /// The largest that is read.
        limit_bytes: usize,
    },
    /// Nothing came for too long between two frames.
    Idle,
    /// A frame began, and its next piece did not come in time.
    Stalled,
    /// A frame takes long, and holds memory that others wait for.
    Slow,
    /// All memory for requests is held by other connections for too long.
    NoMemory,
    /// The connection ended inside a frame.
    Cut,
    /// The connection failed.
    Io(io::Error),
}

/// Reads frames from one connection.
#[derive(Debug)]
pub struct FrameReader<R> {
    reader: R,
    buffer: BytesMut,
    limits: FrameLimits,
    budget: MemoryBudget,
    clock: Arc<dyn Clock>,
    ended: bool,
}

impl Frame {
    /// The memory that the frame holds, to be kept as long as its bytes are.
    #[must_use]
    pub fn into_parts(self) -> (Bytes, Held) {
        (self.bytes, self.held)
    }
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// A reader of frames within these limits.
    pub fn new(
        reader: R,
        limits: FrameLimits,
        budget: MemoryBudget,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { reader, buffer: BytesMut::new(), limits, budget, clock, ended: false }
    }

    /// Changes how large a frame may be.
    pub fn set_max_frame_bytes(&mut self, max_frame_bytes: usize) {
        self.limits.max_frame_bytes = max_frame_bytes;
    }

    /// The next frame; `None` where the connection ended between two frames.
    ///
    /// Dropping the future loses nothing: what came stays in the buffer.
    ///
    /// # Errors
    /// [`FrameError`]; the connection is of no use then.
    pub async fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        while self.buffer.len() < LENGTH_BYTES {
            let wait = if self.buffer.is_empty() { self.limits.idle } else { self.limits.stall };
            if self.ended || self.fill(FIRST_BYTES, wait).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(FrameError::Cut) };
            }
        }
        let claimed = i32::from_be_bytes(
            self.buffer[..LENGTH_BYTES].try_into().expect("a slice of four bytes"),
        );
        let limit_bytes = self.limits.max_frame_bytes;
        let length = usize::try_from(claimed)
            .ok()
            .filter(|&length| length <= limit_bytes)
            .ok_or(FrameError::Length { length_bytes: claimed, limit_bytes })?;
        let held = self.gather(length + LENGTH_BYTES).await?;
        let mut bytes = self.buffer.split_to(length + LENGTH_BYTES).freeze();
        let bytes = bytes.split_off(LENGTH_BYTES);
        if self.buffer.is_empty() && length > KEPT_BYTES {
            self.buffer = BytesMut::new();
        }
        Ok(Some(Frame { bytes, held }))
    }

    /// Reads until `wanted` bytes are there, taking memory for them step by step.
    async fn gather(&mut self, wanted: usize) -> Result<Held, FrameError> {
        let started = self.clock.monotonic();
        let mut held = Held::default();
        let mut room = 0;
        loop {
            let come = self.buffer.len();
            let next = wanted.min(come + (come * 3).clamp(KEPT_BYTES, STEP_BYTES));
            if next > room {
                let more = timeout(self.limits.stall, self.budget.take(next - room)).await;
                held.merge(more.map_err(|_| FrameError::NoMemory)?);
                room = next;
            }
            if come >= wanted {
                return Ok(held);
            }
            if self.ended || self.fill_frame(room - come, started).await? == 0 {
                return Err(FrameError::Cut);
            }
        }
    }

    /// Reads on inside a frame that has begun at this time. It must not hold memory that others
    /// wait for once it takes longer than [`UNHURRIED`].
    async fn fill_frame(&mut self, room: usize, started: Duration) -> Result<usize, FrameError> {
        let tick = TICK.min(self.limits.stall);
        let mut silent = Duration::ZERO;
        loop {
            let filled = self.fill(room, tick).await;
            let passed = self.clock.monotonic().saturating_sub(started);
            if passed > UNHURRIED && self.budget.is_wanted() {
                return Err(FrameError::Slow);
            }
            match filled {
                Err(FrameError::Stalled) if silent + tick < self.limits.stall => silent += tick,
                filled => return filled,
            }
        }
    }

    /// Reads ahead while a request is worked on; returns once the connection has ended or
    /// as much has been read as is kept for later.
    ///
    /// # Errors
    /// [`FrameError::Io`] where the connection failed.
    pub async fn read_ahead(&mut self) -> Result<Ahead, FrameError> {
        while !self.ended {
            if self.buffer.len() >= KEPT_BYTES {
                return Ok(Ahead::Full);
            }
            self.buffer.reserve(FIRST_BYTES);
            if self.reader.read_buf(&mut self.buffer).await.map_err(FrameError::Io)? == 0 {
                self.ended = true;
            }
        }
        Ok(Ahead::Ended)
    }

    async fn fill(&mut self, room: usize, wait: Duration) -> Result<usize, FrameError> {
        let idle = self.buffer.is_empty();
        self.buffer.reserve(room);
        match timeout(wait, self.reader.read_buf(&mut self.buffer)).await {
            Ok(Ok(read)) => {
                self.ended |= read == 0;
                Ok(read)
            }
            Ok(Err(error)) => Err(FrameError::Io(error)),
            Err(_) if idle => Err(FrameError::Idle),
            Err(_) => Err(FrameError::Stalled),
        }
    }
}

/// Why reading ahead ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// The client has closed its side.
    Ended,
    /// Enough has been read for now.
    Full,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { length_bytes, limit_bytes } => write!(
                f,
                "the length of a frame is negative or too large: length_bytes={length_bytes} \
                 limit={limit_bytes}"
            ),
            Self::Idle => f.write_str("the connection was idle for too long"),
            Self::Stalled => f.write_str("the rest of a frame did not come in time"),
            Self::Slow => f.write_str("a frame takes long, and others wait for its memory"),
            Self::NoMemory => f.write_str("other requests hold all memory for too long"),
            Self::Cut => f.write_str("the connection ended inside a frame"),
            Self::Io(_) => f.write_str("the connection failed"),
        }
    }
}

impl std::error::Error for FrameError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    const LIMIT: usize = 1 << 20;

    fn reader<R: AsyncRead + Unpin>(reader: R) -> FrameReader<R> {
        let limits = FrameLimits {
            max_frame_bytes: LIMIT,
            idle: Duration::from_secs(60),
            stall: Duration::from_secs(30),
        };
        FrameReader::new(reader, limits, MemoryBudget::new(4 << 20), clock())
    }

    fn clock() -> Arc<dyn Clock> {
        Arc::new(tidelog::clock::SystemClock::new())
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    #[tokio::test]
    async fn frames_come_one_by_one_however_the_bytes_are_cut() {
        let bytes = [framed(b"one"), framed(b""), framed(&[7; 300_000]), framed(b"four")].concat();
        for piece in [1, 3, 4, 5, 100_000, bytes.len()] {
            let (client, server) = tokio::io::duplex(64 * 1024);
            let sent = bytes.clone();
            let sender = tokio::spawn(async move {
                let mut client = client;
                for part in sent.chunks(if piece < 100 { piece * 777 } else { piece }) {
                    client.write_all(part).await.unwrap();
                }
            });
            let mut reader = reader(server);
            for expected in [&b"one"[..], b"", &[7; 300_000], b"four"] {
                let frame = reader.next().await.unwrap().unwrap();
                assert_eq!(&frame.bytes[..], expected);
            }
            assert!(reader.next().await.unwrap().is_none());
            sender.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_frame_at_the_limit_passes_and_one_byte_more_is_refused_before_it_comes() {
        let at_limit = framed(&vec![1; LIMIT]);
        let frame = reader(&at_limit[..]).next().await.unwrap().unwrap();
        assert_eq!(frame.bytes.len(), LIMIT);

        let above = u32::try_from(LIMIT + 1).unwrap().to_be_bytes();
        let refused = reader(&above[..]).next().await.unwrap_err();
        assert!(matches!(refused, FrameError::Length { limit_bytes: LIMIT, .. }), "{refused}");
        let refused = reader(&[0xff; 4][..]).next().await.unwrap_err();
        assert!(matches!(refused, FrameError::Length { length_bytes: -1, .. }), "{refused}");
    }

    #[tokio::test]
    async fn a_connection_that_ends_inside_a_frame_is_an_error_and_between_two_it_is_none() {
        let whole = framed(b"abcdef");
        for cut in 1..whole.len() {
            let refused = reader(&whole[..cut]).next().await.unwrap_err();
            assert!(matches!(refused, FrameError::Cut), "cut={cut}: {refused}");
        }
        assert!(reader(&[][..]).next().await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_idle_and_one_that_stops_inside_a_frame_has_stalled() {
        let (mut client, server) = tokio::io::duplex(64);
        assert!(matches!(reader(server).next().await, Err(FrameError::Idle)));
        let (_, server) = (client.shutdown().await, tokio::io::duplex(64));
        let (mut client, server) = server;
        client.write_all(&[0, 0, 0, 9, 1, 2]).await.unwrap();
        assert!(matches!(reader(server).next().await, Err(FrameError::Stalled)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_claimed_length_takes_no_memory_and_a_full_budget_closes_the_one_that_waits() {
        let (mut client, server) = tokio::io::duplex(64);
        client.write_all(&u32::try_from(LIMIT).unwrap().to_be_bytes()).await.unwrap();
        let mut waiting = reader(server);
        let budget = waiting.budget.clone();
        assert!(matches!(waiting.next().await, Err(FrameError::Stalled)));
        assert!(waiting.buffer.capacity() <= 2 * KEPT_BYTES);
        assert_eq!(budget.free_bytes(), budget.total_bytes());

        let (_all, _) = budget.take_up_to(budget.total_bytes());
        let bytes = framed(&[1; 100]);
        let mut starved = FrameReader::new(&bytes[..50], waiting.limits, budget, clock());
        assert!(matches!(starved.next().await, Err(FrameError::NoMemory)));
    }

    #[tokio::test]
    async fn memory_of_a_frame_is_held_until_the_frame_is_dropped() {
        let bytes = framed(&[1; 100_000]);
        let mut reader = reader(&bytes[..]);
        let budget = reader.budget.clone();
        let (bytes, held) = reader.next().await.unwrap().unwrap().into_parts();
        assert!(budget.free_bytes() <= budget.total_bytes() - bytes.len());
        drop(held);
        assert_eq!(budget.free_bytes(), budget.total_bytes());
    }
}
