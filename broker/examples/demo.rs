//! A broker on an embedded store in a temporary folder, one Produce request over three partitions,
//! and what came back.

#[path = "../tests/common/client.rs"]
#[expect(dead_code, reason = "the tests use the rest of it")]
mod client;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use client::{Client, batch_of, name, produce};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{CreateTopicsRequest, FetchRequest};
use tidelog::clock::{Clock, SystemClock};
use tidelog::record::Batches;
use tidelog::{Engine, Partitioner, Record};
use tidelog_broker::profile::{Profile, Rules};
use tidelog_broker::server::{Broker, Config};
use tokio::runtime::Runtime;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("tidelog-demo-{}", std::process::id()));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let engine = Engine::builder(&directory).clock(Arc::clone(&clock)).open()?;
    let runtime = Runtime::new()?;
    let broker = runtime.block_on(Broker::start(config(), engine, clock))?;
    println!("a broker on {}, its data in {}", broker.address(), directory.display());

    let outcome = talk(broker.address());
    runtime.block_on(broker.stop())?;
    std::fs::remove_dir_all(&directory)?;
    outcome
}

fn config() -> Config {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Config::new(listen, Rules::new(Profile::Kafka, false, None), "dGlkZWxvZy1kZW1vLTEyMw")
}

fn talk(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut client = Client::connect(address);
    let orders = CreatableTopic::default()
        .with_name(name("orders"))
        .with_num_partitions(3)
        .with_replication_factor(1);
    let made = client.ask(5, &CreateTopicsRequest::default().with_topics(vec![orders]));
    println!("made a topic of {} partitions", made.topics[0].num_partitions);

    // Where librdkafka's default partitioner would put the same keys.
    let parts = ["customer-0", "customer-1", "customer-3"].map(|customer| {
        let home = Partitioner::Crc32Random.partition(Some(customer.as_bytes()), 3);
        let order = Record::new(customer, "{\"item\":7}").header("source", "demo");
        (home, batch_of(&[order]))
    });
    println!("sending one request with a batch for each of three partitions, acks=all");
    let answer = client.ask(9, &produce(-1, &[("orders", &parts)]));
    for partition in &answer.responses[0].partition_responses {
        println!(
            "  orders-{}: code {}, stored at offset {}",
            partition.index, partition.error_code, partition.base_offset
        );
        assert_eq!((partition.error_code, partition.base_offset), (0, 0));
    }
    read_back(&mut client)
}

fn read_back(client: &mut Client) -> Result<(), Box<dyn Error>> {
    let partitions = (0..3).map(|index| {
        FetchPartition::default().with_partition(index).with_partition_max_bytes(1 << 20)
    });
    let topic =
        FetchTopic::default().with_topic(name("orders")).with_partitions(partitions.collect());
    let request = FetchRequest::default().with_max_bytes(1 << 20).with_topics(vec![topic]);
    let fetched = client.ask(12, &request);
    println!("reading the three partitions back:");
    let mut count = 0;
    for partition in &fetched.responses[0].partitions {
        for batch in Batches::new(partition.records.clone().unwrap_or_default()) {
            for record in batch?.records() {
                let record = record?;
                let text = |field: Option<bytes::Bytes>| {
                    field
                        .map_or("null".into(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
                };
                println!(
                    "  orders-{} offset {}: {} = {}",
                    partition.partition_index,
                    record.offset,
                    text(record.key),
                    text(record.value)
                );
                count += 1;
            }
        }
    }
    assert_eq!(count, 3, "all of the request is there");
    Ok(())
}
