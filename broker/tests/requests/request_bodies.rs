//! Request bodies: what the walk over a body lets through, the decoder reads to the same end.

use crate::common;

use bytes::{Buf, Bytes};
use common::bodies::{Dice, written};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Message};
use tidelog_broker::api::SERVED;
use tidelog_broker::wire::shape::{self, Body, MAX_ELEMENTS, Malformed};

/// What a request body of this API is made of.
fn shape_of(api: ApiKey) -> &'static Body {
    let served = SERVED.iter().find(|served| served.key == api);
    served.expect("every API of these tests is served").shape
}

/// Decodes, and returns how many bytes are left, where it can be decoded.
fn decoded<T: Decodable>(bytes: &[u8], version: i16) -> Option<usize> {
    let mut bytes = Bytes::copy_from_slice(bytes);
    T::decode(&mut bytes, version).ok().map(|_| bytes.remaining())
}

fn agree<T: Decodable + Message>(api: ApiKey) {
    let body = shape_of(api);
    let mut dice = Dice(api as u64 + 1);
    for version in T::VERSIONS.min.max(0)..=T::VERSIONS.max {
        for round in 0..40 {
            let bytes = written(body, version, &mut dice);
            let place = format!("{api:?} version={version} round={round} bytes={bytes:02x?}");
            assert_eq!(shape::walk(body, version, &bytes), Ok(0), "{place}");
            assert_eq!(decoded::<T>(&bytes, version), Some(0), "{place}");
            cut_anywhere::<T>(body, version, &bytes, &mut dice);
            changed_anywhere::<T>(body, version, &bytes, &mut dice);
        }
    }
}

fn cut_anywhere<T: Decodable>(body: &Body, version: i16, bytes: &[u8], dice: &mut Dice) {
    for _ in 0..20.min(bytes.len()) {
        let cut = dice.roll(bytes.len() as u64) as usize;
        assert!(shape::walk(body, version, &bytes[..cut]).is_err(), "{bytes:02x?} cut={cut}");
        assert_eq!(decoded::<T>(&bytes[..cut], version), None, "{bytes:02x?} cut={cut}");
    }
    let longer = [bytes, &[1, 2, 3]].concat();
    assert_eq!(shape::walk(body, version, &longer), Ok(3));
}

fn changed_anywhere<T: Decodable>(body: &Body, version: i16, bytes: &[u8], dice: &mut Dice) {
    for _ in 0..40.min(bytes.len()) {
        let mut changed = bytes.to_vec();
        let at = dice.roll(bytes.len() as u64) as usize;
        changed[at] ^= 1 << dice.roll(8);
        // Only what the walk lets through is ever decoded: then both must end at the same byte.
        if let Ok(left) = shape::walk(body, version, &changed)
            && let Some(decoded) = decoded::<T>(&changed, version)
        {
            assert_eq!(left, decoded, "{changed:02x?} at={at}");
        }
    }
}

#[test]
fn the_walk_and_the_decoder_agree_on_every_version_of_every_request() {
    agree::<ProduceRequest>(ApiKey::Produce);
    agree::<FetchRequest>(ApiKey::Fetch);
    agree::<ListOffsetsRequest>(ApiKey::ListOffsets);
    agree::<MetadataRequest>(ApiKey::Metadata);
    agree::<OffsetCommitRequest>(ApiKey::OffsetCommit);
    agree::<OffsetFetchRequest>(ApiKey::OffsetFetch);
    agree::<FindCoordinatorRequest>(ApiKey::FindCoordinator);
    agree::<JoinGroupRequest>(ApiKey::JoinGroup);
    agree::<SyncGroupRequest>(ApiKey::SyncGroup);
    agree::<HeartbeatRequest>(ApiKey::Heartbeat);
    agree::<LeaveGroupRequest>(ApiKey::LeaveGroup);
    agree::<DescribeGroupsRequest>(ApiKey::DescribeGroups);
    agree::<ListGroupsRequest>(ApiKey::ListGroups);
    agree::<DeleteGroupsRequest>(ApiKey::DeleteGroups);
    agree::<OffsetDeleteRequest>(ApiKey::OffsetDelete);
    agree::<SaslHandshakeRequest>(ApiKey::SaslHandshake);
    agree::<SaslAuthenticateRequest>(ApiKey::SaslAuthenticate);
    agree::<ApiVersionsRequest>(ApiKey::ApiVersions);
    agree::<CreateTopicsRequest>(ApiKey::CreateTopics);
    agree::<DeleteTopicsRequest>(ApiKey::DeleteTopics);
    agree::<DeleteRecordsRequest>(ApiKey::DeleteRecords);
    agree::<OffsetForLeaderEpochRequest>(ApiKey::OffsetForLeaderEpoch);
    agree::<DescribeConfigsRequest>(ApiKey::DescribeConfigs);
    agree::<DescribeLogDirsRequest>(ApiKey::DescribeLogDirs);
    agree::<AlterConfigsRequest>(ApiKey::AlterConfigs);
    agree::<CreatePartitionsRequest>(ApiKey::CreatePartitions);
    agree::<IncrementalAlterConfigsRequest>(ApiKey::IncrementalAlterConfigs);
    agree::<DescribeClusterRequest>(ApiKey::DescribeCluster);
    agree::<InitProducerIdRequest>(ApiKey::InitProducerId);
    agree::<AddPartitionsToTxnRequest>(ApiKey::AddPartitionsToTxn);
    agree::<AddOffsetsToTxnRequest>(ApiKey::AddOffsetsToTxn);
    agree::<EndTxnRequest>(ApiKey::EndTxn);
    agree::<TxnOffsetCommitRequest>(ApiKey::TxnOffsetCommit);
    agree::<DescribeProducersRequest>(ApiKey::DescribeProducers);
    agree::<DescribeTransactionsRequest>(ApiKey::DescribeTransactions);
    agree::<ListTransactionsRequest>(ApiKey::ListTransactions);
}

#[test]
fn an_array_that_claims_more_than_the_frame_has_is_malformed() {
    let metadata = shape_of(ApiKey::Metadata);
    assert_eq!(shape::check(metadata, 1, &[0x7f, 0xff, 0xff, 0xff]), Err(Malformed::Short));
    assert_eq!(shape::check(metadata, 1, &[0xff, 0xff, 0xff, 0xfe]), Err(Malformed::Length));
    assert_eq!(shape::check(metadata, 1, &[0xff, 0xff, 0xff, 0xff]), Ok(0));
    let varint = [0xff, 0xff, 0xff, 0xff, 0x0f];
    assert_eq!(shape::check(metadata, 9, &varint), Err(Malformed::Short));
    let too_long = [0xff, 0xff, 0xff, 0xff, 0x1f];
    assert_eq!(shape::check(metadata, 9, &too_long), Err(Malformed::Varint));
}

#[test]
fn as_many_elements_as_the_limit_pass_and_one_more_does_not() {
    let metadata = shape_of(ApiKey::Metadata);
    let request = |count: usize| {
        let mut bytes = u32::try_from(count).unwrap().to_be_bytes().to_vec();
        bytes.extend(vec![0; 2 * count]);
        bytes
    };
    assert_eq!(shape::check(metadata, 1, &request(MAX_ELEMENTS)), Ok(MAX_ELEMENTS));
    let one_more = request(MAX_ELEMENTS + 1);
    assert_eq!(shape::check(metadata, 1, &one_more), Err(Malformed::Elements));
}

#[test]
fn the_longest_text_passes_and_one_byte_more_does_not_in_every_version() {
    let find = shape_of(ApiKey::FindCoordinator);
    let request = |bytes: u32| {
        // One more than the length, as a varint.
        let (length, mut out) = (bytes + 1, Vec::new());
        out.extend([length as u8 | 0x80, (length >> 7) as u8 | 0x80, (length >> 14) as u8]);
        out.extend(vec![b'x'; bytes as usize]);
        // The type of the key, and no tags.
        out.extend([0, 0]);
        out
    };
    assert_eq!(shape::check(find, 3, &request(32_767)), Ok(0));
    assert_eq!(shape::check(find, 3, &request(32_768)), Err(Malformed::Text));
    let longest = [&[0x7f, 0xff][..], &[b'x'; 32_767]].concat();
    assert_eq!(shape::check(find, 0, &longest), Ok(0));
}
