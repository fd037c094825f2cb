//! Accepts connections, up to the limit; those above it are closed at once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::connection;
use crate::context::Context;

/// How long accepting rests where the system has no more sockets or memory for it.
const REST: Duration = Duration::from_millis(100);

/// Accepts until the task is dropped. A connection holds one of the slots until it has ended.
pub(super) async fn accept(
    context: Arc<Context>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    slots: Arc<Semaphore>,
) {
    let shares = Shares::default();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                let _ = timeout(REST, std::future::pending::<()>()).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            context.metrics.refused.up();
            tracing::debug!(%peer, limit = context.limits.max_connections, "too many connections");
            continue;
        };
        let Some(share) = shares.take(peer.ip(), context.limits.max_connections_per_address) else {
            context.metrics.refused.up();
            let limit = context.limits.max_connections_per_address;
            tracing::debug!(%peer, limit, "too many connections from this address");
            continue;
        };
        context.metrics.accepted.up();
        context.metrics.connections.up();
        let counted = Counted(Arc::clone(&context));
        let (context, tls) = (Arc::clone(&context), tls.clone());
        tokio::spawn(async move {
            let _counted = counted;
            let (_slot, _share) = (slot, share);
            tracing::debug!(%peer, "connected");
            serve(&context, stream, tls, peer).await;
            tracing::debug!(%peer, "disconnected");
        });
    }
}

/// How many connections each address has.
#[derive(Debug, Clone, Default)]
struct Shares(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One connection of an address, until it is dropped.
struct Share {
    shares: Shares,
    address: IpAddr,
}

impl Shares {
    /// One more connection of this address, where it has fewer than `most`.
    fn take(&self, address: IpAddr, most: usize) -> Option<Share> {
        let address = address.to_canonical();
        let mut counts = self.0.lock();
        if counts.get(&address).copied().unwrap_or(0) >= most {
            return None;
        }
        *counts.entry(address).or_default() += 1;
        Some(Share { shares: self.clone(), address })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = self.shares.0.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// Counts a connection until it is dropped, also by a panic.
struct Counted(Arc<Context>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.metrics.connections.down();
    }
}

async fn serve(
    context: &Arc<Context>,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    peer: std::net::SocketAddr,
) {
    // Answers are small and waited for; without it each could wait for an acknowledgement.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return connection::serve(context, stream, peer).await };
    match timeout(context.limits.login, tls.accept(stream)).await {
        Ok(Ok(stream)) => connection::serve(context, stream, peer).await,
        Ok(Err(error)) => {
            context.metrics.broken.up();
            tracing::info!(%peer, %error, "the TLS handshake failed");
        }
        Err(_) => {
            context.metrics.broken.up();
            tracing::info!(%peer, "the TLS handshake took too long");
        }
    }
}
