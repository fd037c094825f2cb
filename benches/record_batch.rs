//! How fast a record batch is judged, read and built, in bytes and in records.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use tidelog::record::{
    AppendRules, BatchBuilder, Codec, Record, RecordBatch, TimestampType, validate_append,
};

const NOW: i64 = 1_700_000_000_000;
const BATCH_BYTES: usize = 64 * 1024;

/// A batch of about 64 KiB: its records, their name, the finished bytes.
struct Sample {
    name: String,
    records: Vec<Record>,
    batch: Bytes,
}

fn records(value_bytes: usize, header_count: usize) -> Vec<Record> {
    let record_count = BATCH_BYTES / (value_bytes + 16 + 24 * header_count);
    let make = |index: usize| {
        let value: Vec<u8> = (0..value_bytes).map(|at| (at * 7 + index) as u8).collect();
        let mut record = Record::new(format!("key-{index:06}"), value).timestamp(NOW);
        for header in 0..header_count {
            record = record.header(format!("header-{header}"), "a value");
        }
        record
    };
    (0..record_count).map(make).collect()
}

fn build(records: &[Record], codec: Codec) -> Bytes {
    let mut builder = BatchBuilder::new().codec(codec);
    records.iter().for_each(|record| builder.push(record).expect("below the limit"));
    builder.finish().expect("a batch")
}

fn samples(codec: Codec) -> Vec<Sample> {
    let shapes = [(100, 0), (100, 2), (1024, 0), (1024, 2)];
    let sample = |(value_bytes, header_count)| {
        let records = records(value_bytes, header_count);
        let batch = build(&records, codec);
        let name = format!("{value_bytes}B/{header_count}-headers");
        Sample { name, records, batch }
    };
    shapes.into_iter().map(sample).collect()
}

/// Measures once for the throughput in bytes, once in records.
fn both<M: criterion::measurement::Measurement>(
    group: &mut BenchmarkGroup<'_, M>,
    sample: &Sample,
    mut run: impl FnMut(&mut criterion::Bencher<'_, M>),
) {
    group.throughput(Throughput::ElementsAndBytes {
        elements: sample.records.len() as u64,
        bytes: sample.batch.len() as u64,
    });
    group.bench_function(&sample.name, |bencher| run(bencher));
}

fn judge(c: &mut Criterion) {
    let rules = AppendRules::new(NOW);
    let mut group = c.benchmark_group("validate");
    for sample in samples(Codec::None) {
        both(&mut group, &sample, |bencher| {
            bencher.iter(|| validate_append(black_box(sample.batch.clone()), &rules).is_ok());
        });
    }
    group.finish();

    // The part that is not ours to save: the checksum alone.
    let mut group = c.benchmark_group("checksum-alone");
    for sample in samples(Codec::None) {
        both(&mut group, &sample, |bencher| {
            bencher.iter(|| crc32c::crc32c(black_box(&sample.batch[21..])));
        });
    }
    group.finish();

    let mut group = c.benchmark_group("validate-compressed");
    for codec in &Codec::ALL[1..] {
        for mut sample in samples(*codec).into_iter().step_by(2) {
            sample.name = format!("{codec}/{}", sample.name);
            both(&mut group, &sample, |bencher| {
                bencher.iter(|| validate_append(black_box(sample.batch.clone()), &rules).is_ok());
            });
        }
    }
    group.finish();
}

fn store(c: &mut Criterion) {
    let mut rules = AppendRules::new(NOW);
    rules.timestamp_type = TimestampType::LogAppendTime;
    let mut group = c.benchmark_group("stored-with-append-time");
    for sample in samples(Codec::None).into_iter().take(1) {
        let validated = validate_append(sample.batch.clone(), &rules).expect("a good batch");
        both(&mut group, &sample, |bencher| bencher.iter(|| validated.stored(black_box(NOW)).crc));
    }
    group.finish();
}

fn read(c: &mut Criterion) {
    let mut group = c.benchmark_group("iterate");
    for sample in samples(Codec::None) {
        let batch = RecordBatch::parse(sample.batch.clone()).expect("a good batch");
        both(&mut group, &sample, |bencher| {
            bencher.iter(|| batch.records().map(|r| r.expect("a good record").offset).sum::<i64>());
        });
    }
    group.finish();

    let mut group = c.benchmark_group("iterate-with-headers");
    for sample in samples(Codec::None).into_iter().skip(1).step_by(2) {
        let batch = RecordBatch::parse(sample.batch.clone()).expect("a good batch");
        both(&mut group, &sample, |bencher| {
            bencher.iter(|| {
                let headers =
                    |record: &Record| record.headers.iter().map(|h| h.name.len()).sum::<usize>();
                batch.records().map(|r| headers(&r.expect("a good record"))).sum::<usize>()
            });
        });
    }
    group.finish();
}

fn write(c: &mut Criterion) {
    let mut group = c.benchmark_group("build");
    for sample in samples(Codec::None) {
        both(&mut group, &sample, |bencher| {
            bencher.iter(|| build(black_box(&sample.records), Codec::None));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500));
    targets = judge, store, read, write
}
criterion_main!(benches);
