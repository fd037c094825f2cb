//! The engine for readers: fetches, watermarks, lookups, waits, snapshots. Delegates only.

use std::time::Duration;

use super::Engine;
use crate::base::types::{Isolation, LeaderEpoch, Offset, Visibility, Watermarks};
use crate::read::fetch::{FetchError, FetchOptions, Fetched, fetch};
use crate::read::listen::{Listening, WaitFor, listen, wait_for_data};
use crate::read::offsets::{FoundOffset, ListOffsetError, OffsetQuery, list_offset};
use crate::read::scan::{Snapshot, snapshot};
use crate::state::catalog::Partition;
use crate::state::partition::EpochEnd;

impl Engine {
    /// Reads whole record batches from `offset` on.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-fetch-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Durability, Engine, EngineConfig, FetchOptions, Record, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// let partition = engine.create_topic("orders", TopicConfig::new(1))?.partition(0)?;
    /// let mut append = engine.append_transaction();
    /// append.records(&partition, ["a", "b", "c"].map(Record::keyless))?;
    /// append.commit(Durability::Buffered)?;
    ///
    /// let mut offset = 1;
    /// let fetched = engine.fetch(&partition, offset, FetchOptions::new())?;
    /// for record in fetched.records() {
    ///     assert_eq!(record?.offset, offset);
    ///     offset += 1;
    /// }
    /// assert_eq!((fetched.next_offset, fetched.watermarks.high_watermark), (3, 3));
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`FetchError`]: the topic is gone, the offset is out of range, or damage. Batches before a
    /// damaged one are returned; a fetch that begins with it fails with its offsets.
    pub fn fetch(
        &self,
        partition: &Partition,
        offset: Offset,
        options: FetchOptions,
    ) -> Result<Fetched, FetchError> {
        fetch(self.shared(), partition, offset, options)
    }

    /// The four offsets of a partition, as of what is applied.
    ///
    /// # Errors
    /// [`FetchError`] if the topic is gone or the engine is closed.
    pub fn watermarks(&self, partition: &Partition) -> Result<Watermarks, FetchError> {
        self.watermarks_of(partition, Visibility::Applied)
    }

    /// The four offsets of a partition, as a reader sees them who asks for this visibility.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-watermarks-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Durability, Engine, EngineConfig, Record, TopicConfig, Visibility};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// let partition = engine.create_topic("orders", TopicConfig::new(1))?.partition(0)?;
    /// let mut append = engine.append_transaction();
    /// append.records(&partition, [Record::keyless("v")])?;
    /// append.commit(Durability::Buffered)?;
    ///
    /// // A power loss could take it, so who reads synced data only does not see it yet.
    /// let synced = engine.watermarks_of(&partition, Visibility::Synced)?;
    /// assert_eq!((synced.high_watermark, synced.log_end), (0, 1));
    /// engine.sync()?;
    /// let synced = engine.watermarks_of(&partition, Visibility::Synced)?;
    /// assert_eq!(synced.high_watermark, 1);
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Engine::watermarks`].
    pub fn watermarks_of(
        &self,
        partition: &Partition,
        visibility: Visibility,
    ) -> Result<Watermarks, FetchError> {
        self.shared().check_open()?;
        if !self.shared().catalog.holds(partition.topic()) {
            return Err(FetchError::UnknownPartition { partition: partition.clone() });
        }
        Ok(self.shared().watermarks(partition, visibility))
    }

    /// Looks an offset up: earliest, latest, by timestamp, of the greatest timestamp. `None` if no
    /// record fits.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-list-offset-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Durability, Engine, EngineConfig, Isolation, OffsetQuery, Record, TopicConfig,
    ///             Visibility};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// let partition = engine.create_topic("readings", TopicConfig::new(1))?.partition(0)?;
    /// let mut append = engine.append_transaction();
    /// append.records(&partition, [10, 30, 20].map(|ms| Record::keyless("v").timestamp(ms)))?;
    /// append.commit(Durability::Buffered)?;
    ///
    /// let look_up = |query| {
    ///     engine.list_offset(&partition, query, Isolation::Committed, Visibility::Applied)
    /// };
    /// let first = look_up(OffsetQuery::Timestamp(15))?.expect("one is young enough");
    /// assert_eq!((first.offset, first.timestamp), (1, 30));
    /// assert!(look_up(OffsetQuery::Timestamp(31))?.is_none());
    /// let latest = look_up(OffsetQuery::Latest)?.expect("there always is one");
    /// assert_eq!(latest.offset, 3);
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ListOffsetError`]: the topic is gone, or damage.
    pub fn list_offset(
        &self,
        partition: &Partition,
        query: OffsetQuery,
        isolation: Isolation,
        visibility: Visibility,
    ) -> Result<Option<FoundOffset>, ListOffsetError> {
        list_offset(self.shared(), partition, query, isolation, visibility)
    }

    /// The leader epoch that is stamped into what is appended now.
    #[must_use]
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.shared().session.leader_epoch
    }

    /// Where a leader epoch ended in a partition: the greatest epoch at or below it that has
    /// records, and the first offset that is not of it. `None` where the epoch is not known
    /// (KIP-101, KIP-279). A client that kept an epoch with its offset learns here whether the
    /// records it read are still there.
    #[must_use]
    pub fn epoch_end(&self, partition: &Partition, epoch: LeaderEpoch) -> Option<EpochEnd> {
        let current = self.leader_epoch();
        partition.cell().read(|state| state.epoch_end(epoch, current))
    }

    /// Calls `listener` from now on after every commit to one of the partitions, after its sync,
    /// when a topic of theirs is deleted and when the engine is closed, until what is returned is
    /// dropped. It may be called once too often, never too seldom: look after registering, then
    /// wait.
    ///
    /// The listener runs on the thread that has published the commit, which does no other work
    /// until it returns. It must be short, and must not wait for a commit of its own: a listener
    /// that calls [`Ticket::wait`](crate::Ticket::wait) or
    /// [`AppendTransaction::commit`](crate::AppendTransaction::commit) waits for the thread that it
    /// holds up, for ever. [`submit`](crate::AppendTransaction::submit) without a wait is fine.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-listen-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Durability, Engine, EngineConfig, Record, TopicConfig};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// use std::sync::mpsc;
    ///
    /// let partition = engine.create_topic("orders", TopicConfig::new(1))?.partition(0)?;
    /// let (tell, told) = mpsc::channel();
    /// let listening = engine.listen(&[partition.clone()], move || {
    ///     // The receiver may be gone, and with it the interest.
    ///     let _ = tell.send(());
    /// });
    /// let mut append = engine.append_transaction();
    /// append.records(&partition, [Record::keyless("v")])?;
    /// append.commit(Durability::Buffered)?;
    /// told.recv()?;
    /// drop(listening);
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    pub fn listen(
        &self,
        partitions: &[Partition],
        listener: impl Fn() + Send + Sync + 'static,
    ) -> Listening {
        listen(self.shared(), partitions, listener)
    }

    /// Blocks until a fetch of one of what is wanted would return records, or would fail because
    /// its topic is gone or its offset below the log start; or the engine is closed, or the time is
    /// over. Returns whether it was one of the first two.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "rocksdb")] {
    /// # let name = format!("tidelog-doc-wait-{}", std::process::id());
    /// # let directory = std::env::temp_dir().join(name);
    /// use tidelog::{Durability, Engine, EngineConfig, Record, TopicConfig, WaitFor};
    ///
    /// # let engine = Engine::open(&directory, EngineConfig::default())?;
    /// use std::time::Duration;
    ///
    /// let partition = engine.create_topic("orders", TopicConfig::new(1))?.partition(0)?;
    /// let wanted = [WaitFor::new(&partition, 0)];
    /// assert!(!engine.wait_for_data(&wanted, Duration::from_millis(1)));
    ///
    /// let mut append = engine.append_transaction();
    /// append.records(&partition, [Record::keyless("v")])?;
    /// let ticket = append.submit(Durability::Buffered)?;
    /// assert!(engine.wait_for_data(&wanted, Duration::from_secs(60)));
    /// ticket.wait()?;
    /// # engine.close()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn wait_for_data(&self, wanted: &[WaitFor], timeout: Duration) -> bool {
        wait_for_data(self.shared(), wanted, timeout)
    }

    /// One instant over all partitions, to be scanned.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        snapshot(self.shared())
    }
}
