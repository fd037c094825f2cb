//! A blocking client of raw requests: what is asked and answered is exactly what the protocol says.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest, RequestHeader, TopicName};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tidelog::Record;
use tidelog::record::BatchBuilder;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A stream that requests go over.
pub trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One connection.
pub struct Client {
    stream: Box<dyn Stream>,
    next_id: i32,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("the broker listens")
    }

    pub fn try_connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self::over(Box::new(stream)))
    }

    pub fn over(stream: Box<dyn Stream>) -> Self {
        Self { stream, next_id: 1 }
    }

    /// Sends a request and reads its answer.
    pub fn ask<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let id = self.send(version, request);
        self.receive::<R>(version, id)
    }

    /// As [`Client::ask`], where the broker may go away.
    pub fn try_ask<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> std::io::Result<R::Response> {
        let (id, frame) = self.frame(version, request);
        self.stream.write_all(&frame)?;
        Ok(decode::<R>(version, id, self.read_frame()?))
    }

    /// Sends a request; the answer is read later.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let (id, frame) = self.frame(version, request);
        self.stream.write_all(&frame).expect("the request goes out");
        id
    }

    /// Reads the answer of a request that was sent before.
    pub fn receive<R: Request>(&mut self, version: i16, id: i32) -> R::Response {
        decode::<R>(version, id, self.read_frame().expect("the request is answered"))
    }

    /// The bytes of a request, with its length in front.
    pub fn frame<R: Request>(&mut self, version: i16, request: &R) -> (i32, Bytes) {
        let id = self.next_id;
        self.next_id += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(id)
            .with_client_id(Some(StrBytes::from_static_str("raw")));
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        header.encode(&mut frame, R::header_version(version)).expect("the head is legal");
        request.encode(&mut frame, version).expect("the body is legal");
        let length = i32::try_from(frame.len() - 4).expect("a request of a test is small");
        frame[..4].copy_from_slice(&length.to_be_bytes());
        (id, frame.freeze())
    }

    /// Sends any bytes.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads one frame, without its length.
    pub fn read_frame(&mut self) -> std::io::Result<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut frame)?;
        Ok(Bytes::from(frame))
    }

    /// Whether the broker has closed the connection, and sent nothing before.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0; 1]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

fn decode<R: Request>(version: i16, id: i32, mut frame: Bytes) -> R::Response {
    assert_eq!(frame.get_i32(), id, "answers come in the order of the requests");
    if R::Response::header_version(version) >= 1 {
        assert_eq!(frame.get_u8(), 0, "an answer's head has no tags");
    }
    let answer = R::Response::decode(&mut frame, version).expect("the answer can be read");
    assert!(!frame.has_remaining(), "nothing is behind the answer");
    answer
}

/// A batch of these records.
pub fn batch_of(records: &[Record]) -> Bytes {
    let mut builder = BatchBuilder::new();
    for record in records {
        builder.push(record).expect("the record fits");
    }
    builder.finish().expect("a batch of records")
}

/// A batch of one record with this value.
pub fn batch(value: &str) -> Bytes {
    batch_of(&[Record::new("key", value.to_owned())])
}

/// The name of a topic, as messages want it.
pub fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// A Produce request: for each topic its partitions, each with a batch.
pub fn produce(acks: i16, topics: &[(&str, &[(i32, Bytes)])]) -> ProduceRequest {
    let topics = topics.iter().map(|(topic, partitions)| {
        let data = partitions.iter().map(|(index, records)| {
            PartitionProduceData::default().with_index(*index).with_records(Some(records.clone()))
        });
        TopicProduceData::default().with_name(name(topic)).with_partition_data(data.collect())
    });
    ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(10_000)
        .with_topic_data(topics.collect())
}
