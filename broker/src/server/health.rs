//! What an operator is told at once: that the engine has halted, and that the disk is nearly full.

use std::sync::Arc;
use std::time::Duration;

use tidelog::Metrics;
use tokio::sync::watch;

use crate::context::{Context, off_the_loop};
use crate::fault::sentence;

/// How often the engine is asked.
const INTERVAL: Duration = Duration::from_secs(1);

/// Watches the engine until it has halted, says so, and tells it.
pub(super) async fn watch(context: Arc<Context>, halted: watch::Sender<bool>) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut was_full = false;
    loop {
        interval.tick().await;
        let metrics = off_the_loop(&context, |context| context.engine.metrics()).await;
        was_full = note_disk(&metrics, was_full);
        if metrics.halted {
            // A halted engine answers every call with its cause.
            let sync = off_the_loop(&context, |context| context.engine.sync()).await;
            let cause = sync.err().map_or_else(|| "unknown".to_owned(), |error| sentence(&error));
            tracing::error!(
                %cause,
                "the engine has halted and writes nothing more: look at the disk and the data \
                 folder, then start the broker again; what was acknowledged as synced is there"
            );
            halted.send_replace(true);
            return;
        }
    }
}

/// Says once that the disk has less left than is reserved, and once that it has more again.
fn note_disk(metrics: &Metrics, was_full: bool) -> bool {
    let reserve_bytes = metrics.disk_reserve_bytes;
    let Some(free_bytes) = metrics.disk_free_bytes else { return was_full };
    let is_full = free_bytes < reserve_bytes;
    if is_full && !was_full {
        tracing::error!(
            free_bytes,
            reserve_bytes,
            "the disk has less left than its reserve, and appends are refused: make room, or \
             lower the retention of topics"
        );
    } else if was_full && !is_full {
        tracing::info!(free_bytes, reserve_bytes, "the disk has room again");
    }
    is_full
}
