//! One connection: requests one by one, in order, each answered before the next is begun.
//!
//! While a request is worked on the connection is read ahead a little, so that a client that has
//! gone away is noticed and nothing waits for it.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, WriteHalf};
use tokio::time::timeout;

use crate::api::{self, Answer, Closing, Peer, Reply};
use crate::context::{Context, Session};
use crate::security::Access;
use crate::security::sasl::SaslState;
use crate::wire::budget::Held;
use crate::wire::frame::{Ahead, Frame, FrameError, FrameLimits, FrameReader, TICK, UNHURRIED};
use crate::wire::presence::Presence;

/// Serves a connection to its end.
pub(super) async fn serve<S>(context: &Arc<Context>, stream: S, address: SocketAddr)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (read, mut write) = tokio::io::split(stream);
    let limits = &context.limits;
    let frame_limits = FrameLimits {
        max_frame_bytes: limits.max_request_bytes,
        idle: limits.idle,
        stall: limits.stall,
    };
    let mut frames =
        FrameReader::new(read, frame_limits, context.budget.clone(), Arc::clone(&context.clock));
    let sasl = if context.security.users.is_some() { SaslState::Start } else { SaslState::Off };
    let access = Access::open().noted(&context.audit, address.ip());
    let mut peer = Peer {
        session: Session { access },
        sasl,
        presence: Arc::default(),
        address: address.ip(),
        host: format!("/{}", address.ip()),
        client_id: String::new(),
    };
    let login_by = context.clock.monotonic() + limits.login;
    loop {
        let is_open = peer.sasl.is_open();
        let most = if is_open { limits.max_request_bytes } else { limits.max_login_bytes };
        frames.set_max_frame_bytes(most.min(limits.max_request_bytes));
        let frame = match next(context, &mut frames, is_open, login_by).await {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(error) => {
                note(context, address, &error);
                break;
            }
        };
        let worked = work(context, &mut peer, &mut frames, frame, address).await;
        let Ok(answer) = worked else { break };
        let Some(Answer { bytes, then_close, held }) = answer else { continue };
        if let Err(error) = send(context, &mut write, bytes, &held).await {
            tracing::debug!(peer = %address, %error, "an answer could not be sent");
            break;
        }
        if then_close {
            break;
        }
    }
    // The other side may be gone already; there is nobody to tell.
    let _ = timeout(limits.stall, write.shutdown()).await;
}

/// The next request; `None` where the client has closed or the broker is to stop.
async fn next<R: AsyncRead + Unpin>(
    context: &Context,
    frames: &mut FrameReader<R>,
    open: bool,
    login_by: Duration,
) -> Result<Option<Frame>, FrameError> {
    let mut draining = context.draining.clone();
    let frame = async {
        if open {
            return frames.next().await;
        }
        let left = login_by.saturating_sub(context.clock.monotonic());
        timeout(left, frames.next()).await.unwrap_or(Err(FrameError::Idle))
    };
    tokio::select! {
        biased;
        _ = draining.wait_for(|&draining| draining) => Ok(None),
        frame = frame => frame,
    }
}

/// Works on one request. `Ok(None)`: it wants no answer; `Err`: the connection is closed.
async fn work<R: AsyncRead + Unpin>(
    context: &Arc<Context>,
    peer: &mut Peer,
    frames: &mut FrameReader<R>,
    frame: Frame,
    address: SocketAddr,
) -> Result<Option<Answer>, ()> {
    let (bytes, held) = frame.into_parts();
    let started = context.clock.monotonic();
    let api_key = bytes.get(..2).map_or(-1, |key| i16::from_be_bytes([key[0], key[1]]));
    context.metrics.bytes_in.add(bytes.len() as u64 + 4);
    // One for each request: who presses during one may be patient in the next.
    let is_open = peer.sasl.is_open();
    let presence = Arc::new(Presence::default());
    peer.presence = Arc::clone(&presence);
    let mut answering = pin!(api::answer(context, peer, bytes, held));
    let mut watching = true;
    let reply = loop {
        tokio::select! {
            biased;
            reply = &mut answering => break reply,
            ahead = frames.read_ahead(), if watching => {
                watching = false;
                match ahead {
                    Ok(Ahead::Full) => presence.press(),
                    Ok(Ahead::Ended) | Err(_) => presence.leave(),
                }
            }
        }
    };
    context.metrics.answered(api_key, context.clock.monotonic().saturating_sub(started));
    match reply {
        Reply::Answer(answer) => Ok(Some(answer)),
        Reply::Nothing => Ok(None),
        Reply::Close(closing) => {
            let is_fault = !matches!(
                closing,
                Closing::RefusedWithoutAnswer | Closing::Gone | Closing::Stopping
            );
            if is_fault {
                context.metrics.broken.up();
            }
            let reason = closing.reason();
            if is_open {
                tracing::info!(peer = %address, ?closing, reason, "a connection is closed");
            } else {
                tracing::info!(peer = %address, reason, "a connection is closed before its login");
            }
            Err(())
        }
    }
}

/// Sends an answer. Each piece of it must go within the stall limit; and once it has been under way
/// for longer than [`UNHURRIED`], it must not hold memory that others wait for.
async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    context: &Context,
    write: &mut WriteHalf<S>,
    mut bytes: Bytes,
    held: &Held,
) -> io::Result<()> {
    context.metrics.bytes_out.add(bytes.len() as u64);
    let stall: Duration = context.limits.stall;
    let clock = &context.clock;
    let started = clock.monotonic();
    let mut last = started;
    while bytes.has_remaining() {
        match timeout(TICK.min(stall), write.write_buf(&mut bytes)).await {
            Ok(written) => {
                if written? == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                last = clock.monotonic();
            }
            Err(_) if clock.monotonic().saturating_sub(last) >= stall => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(_) => {}
        }
        let is_slow = clock.monotonic().saturating_sub(started) > UNHURRIED;
        if is_slow && held.bytes() > 0 && context.budget.is_wanted() {
            tracing::info!("a client is slow to take an answer whose memory others wait for");
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    timeout(stall, write.flush()).await??;
    Ok(())
}

fn note(context: &Context, address: SocketAddr, error: &FrameError) {
    match error {
        FrameError::Idle | FrameError::Io(_) => {
            tracing::debug!(peer = %address, %error, "a connection ended");
        }
        _ => {
            context.metrics.broken.up();
            tracing::info!(peer = %address, %error, "a connection is closed");
        }
    }
}
