//! `Arbitrary` for records and what describes batches, for fuzzers.

use arbitrary::{Arbitrary, Result, Unstructured};
use bytes::Bytes;

use super::attributes::{Attributes, Codec, TimestampType};
use super::control::{EndMarker, MarkerKind};
use super::data::{Header, Record};

fn nullable(u: &mut Unstructured<'_>) -> Result<Option<Bytes>> {
    Ok(Option::<Vec<u8>>::arbitrary(u)?.map(Bytes::from))
}

impl<'a> Arbitrary<'a> for Record {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self {
            offset: u.arbitrary()?,
            timestamp: u.arbitrary()?,
            attributes: u.arbitrary()?,
            key: nullable(u)?,
            value: nullable(u)?,
            headers: Vec::<Header>::arbitrary(u)?.into(),
        })
    }
}

impl<'a> Arbitrary<'a> for Header {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self { name: Vec::<u8>::arbitrary(u)?.into(), value: nullable(u)? })
    }
}

impl<'a> Arbitrary<'a> for Codec {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        u.choose(&Self::ALL).copied()
    }
}

impl<'a> Arbitrary<'a> for TimestampType {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        u.choose(&[Self::CreateTime, Self::LogAppendTime]).copied()
    }
}

impl<'a> Arbitrary<'a> for Attributes {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        u.arbitrary().map(Self::from_bits)
    }
}

impl<'a> Arbitrary<'a> for EndMarker {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let kind = *u.choose(&[MarkerKind::Abort, MarkerKind::Commit])?;
        Ok(Self { kind, coordinator_epoch: u.arbitrary()? })
    }
}
