//! Any bytes as keys and values of the index: refused, or what they would be written as.

use tidelog::internals::keyspace::{
    AbortedRow, BatchEntry, GroupRow, Identity, IndexEntry, MetaKey, PartitionRow,
    PendingOffsetKey, ProducerRow, ProducerTransactionRow, Session, TopicRow, batch_key,
    batch_key_offset, decode_aborted_key, decode_applied, decode_counter, decode_group_key,
    decode_partition_key, decode_producer_key, decode_producer_transaction_key, encode_applied,
    encode_counter, group_key, partition_key, producer_key, producer_transaction_key, topic_key,
};
use tidelog::internals::write_batch::{Operation, WriteBatch};
use tidelog::types::PartitionId;

/// Takes the first byte as the length of a key, and what is behind the key as its value, and shows
/// them to every decoder; and all behind the first byte to that of write batches.
///
/// # Panics
/// If something is decoded that is not encoded to the same bytes.
pub fn decode_store_value(data: &[u8]) {
    let Some((&length, rest)) = data.split_first() else { return };
    let (key, value) = rest.split_at(usize::from(length).min(rest.len()));
    check_keys(key);
    check_values(key, value);
    check_topic(key, value);
    check_write_batch(rest);
    check_write_batch(value);
}

fn check_keys(key: &[u8]) {
    if let Ok(offset) = batch_key_offset(key) {
        assert!(offset >= 0);
        let partition = PartitionId(u32::from_be_bytes([key[0], key[1], key[2], key[3]]));
        assert_eq!(batch_key(partition, offset), key);
    }
    if let Ok(partition) = decode_partition_key(key) {
        assert_eq!(partition_key(partition), key);
    }
    if let Ok((topic, partition)) = decode_group_key(key) {
        let name = &key[2..key.len() - 20];
        if let Ok(name) = std::str::from_utf8(name) {
            assert_eq!(group_key(name, topic, partition), key);
        }
    }
    if let Ok((partition, id)) = decode_producer_key(key) {
        assert_eq!(producer_key(partition, id), key);
    }
    if let Ok((partition, marker)) = decode_aborted_key(key) {
        assert_eq!(batch_key(partition, marker), key);
    }
    if let Ok(id) = decode_producer_transaction_key(key) {
        assert_eq!(producer_transaction_key(id), key);
    }
    if let Ok(pending) = PendingOffsetKey::decode(key) {
        assert_eq!(pending.encode(), key);
    }
}

fn check_values(key: &[u8], value: &[u8]) {
    if let Ok(entry) = BatchEntry::decode(key, value) {
        assert_eq!(entry.encode(), value);
        let location = BatchEntry::encode_location(entry.location.segment, entry.location.position);
        assert_eq!(value[BatchEntry::LOCATION_AT..][..location.len()], location);
    }
    if let Ok(entry) = IndexEntry::decode(key, value) {
        assert_eq!(entry.encode(), value);
    }
    if let Ok(row) = PartitionRow::decode(key, value) {
        assert!(0 <= row.log_start && row.log_start <= row.log_end);
        let mut encoded = vec![7; 3];
        row.encode(&mut encoded);
        assert_eq!(encoded, value);
    }
    if let Ok(row) = GroupRow::decode(key, value) {
        assert_eq!(row.encode(), value);
        assert_eq!(PendingOffsetKey::decode_value(key, value), Ok(row));
    }
    if let Ok(row) = ProducerRow::decode(key, value) {
        let mut encoded = vec![7; 3];
        row.encode(&mut encoded);
        assert_eq!(encoded, value);
    }
    if let Ok(row) = AbortedRow::decode(key, value) {
        assert_eq!(row.encode(), value);
    }
    if let Ok(row) = ProducerTransactionRow::decode(key, value) {
        assert_eq!(row.encode(), value);
    }
    if let Ok(identity) = Identity::decode(value) {
        assert_eq!(identity.encode(), value);
    }
    if let Ok(session) = Session::decode(value) {
        assert_eq!(session.encode(), value);
    }
    if let Ok(applied) = decode_applied(value) {
        assert_eq!(encode_applied(&applied), value);
    }
    if let Ok(next) = decode_counter(MetaKey::NextPartitionId, value) {
        assert_eq!(encode_counter(next), value);
    }
}

/// A topic may hold fields that are passed over, so it is what is decoded that must come back.
fn check_topic(key: &[u8], value: &[u8]) {
    let Ok((name, row)) = TopicRow::decode(key, value) else { return };
    assert_eq!(topic_key(&name), key);
    let again = TopicRow::decode(key, &row.encode()).expect("what was encoded can be decoded");
    assert_eq!(again, (name, row));
}

fn check_write_batch(encoded: &[u8]) {
    let Ok(batch) = WriteBatch::decode(encoded) else { return };
    assert_eq!(batch.encoded(), encoded);
    let mut built = WriteBatch::new();
    for operation in batch.operations() {
        match operation {
            Operation::Put { family, key, value } => drop(built.put(family, key, value)),
            Operation::Delete { family, key } => built.delete(family, key),
            Operation::DeleteRange { family, begin, end } => built.delete_range(family, begin, end),
        }
    }
    assert_eq!(built.encoded(), encoded, "the operations are all that there is");
    assert_eq!(built, batch, "they are counted alike");
}
