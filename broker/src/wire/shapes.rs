//! The shape of every request body that is served, by Kafka's message schemas.

use kafka_protocol::messages::ApiKey;

use super::shape::{Body, Field, Nullable, Shape, Struct, Tagged};

const LAST: i16 = i16::MAX;
const NEVER: Nullable = None;
const ALWAYS: Nullable = Some(0);

const I8: Shape = Shape::Fixed(1);
const BOOL: Shape = Shape::Fixed(1);
const I16: Shape = Shape::Fixed(2);
const I32: Shape = Shape::Fixed(4);
const I64: Shape = Shape::Fixed(8);
const UUID: Shape = Shape::Fixed(16);
const TEXT: Shape = Shape::Text(NEVER);
const TEXT_OR_NULL: Shape = Shape::Text(ALWAYS);

const fn field(shape: Shape) -> Field {
    Field { versions: (0, LAST), shape }
}

const fn since(first: i16, shape: Shape) -> Field {
    Field { versions: (first, LAST), shape }
}

const fn until(last: i16, shape: Shape) -> Field {
    Field { versions: (0, last), shape }
}

const fn between(first: i16, last: i16, shape: Shape) -> Field {
    Field { versions: (first, last), shape }
}

const fn plain(fields: &'static [Field]) -> Struct {
    Struct { fields, tagged: &[] }
}

const fn list(structure: &'static Struct) -> Shape {
    Shape::Structs(NEVER, structure)
}

const fn values(shape: &'static Shape) -> Shape {
    Shape::Values(NEVER, shape)
}

/// The shape of a request body of this API, where the API is served.
#[must_use]
pub fn of(api: ApiKey) -> Option<&'static Body> {
    Some(match api {
        ApiKey::Produce => &PRODUCE,
        ApiKey::Fetch => &FETCH,
        ApiKey::ListOffsets => &LIST_OFFSETS,
        ApiKey::Metadata => &METADATA,
        ApiKey::OffsetCommit => &OFFSET_COMMIT,
        ApiKey::OffsetFetch => &OFFSET_FETCH,
        ApiKey::FindCoordinator => &FIND_COORDINATOR,
        ApiKey::JoinGroup => &JOIN_GROUP,
        ApiKey::SyncGroup => &SYNC_GROUP,
        ApiKey::Heartbeat => &HEARTBEAT,
        ApiKey::LeaveGroup => &LEAVE_GROUP,
        ApiKey::DescribeGroups => &DESCRIBE_GROUPS,
        ApiKey::ListGroups => &LIST_GROUPS,
        ApiKey::DeleteGroups => &DELETE_GROUPS,
        ApiKey::OffsetDelete => &OFFSET_DELETE,
        ApiKey::SaslHandshake => &SASL_HANDSHAKE,
        ApiKey::SaslAuthenticate => &SASL_AUTHENTICATE,
        ApiKey::ApiVersions => &API_VERSIONS,
        ApiKey::CreateTopics => &CREATE_TOPICS,
        ApiKey::DeleteTopics => &DELETE_TOPICS,
        ApiKey::DeleteRecords => &DELETE_RECORDS,
        ApiKey::OffsetForLeaderEpoch => &OFFSET_FOR_LEADER_EPOCH,
        ApiKey::DescribeConfigs => &DESCRIBE_CONFIGS,
        ApiKey::DescribeLogDirs => &DESCRIBE_LOG_DIRS,
        ApiKey::AlterConfigs => &ALTER_CONFIGS,
        ApiKey::CreatePartitions => &CREATE_PARTITIONS,
        ApiKey::IncrementalAlterConfigs => &INCREMENTAL_ALTER_CONFIGS,
        ApiKey::DescribeCluster => &DESCRIBE_CLUSTER,
        ApiKey::InitProducerId => &INIT_PRODUCER_ID,
        ApiKey::AddPartitionsToTxn => &ADD_PARTITIONS_TO_TXN,
        ApiKey::AddOffsetsToTxn => &ADD_OFFSETS_TO_TXN,
        ApiKey::EndTxn => &END_TXN,
        ApiKey::TxnOffsetCommit => &TXN_OFFSET_COMMIT,
        ApiKey::DescribeProducers => &DESCRIBE_PRODUCERS,
        ApiKey::DescribeTransactions => &DESCRIBE_TRANSACTIONS,
        ApiKey::ListTransactions => &LIST_TRANSACTIONS,
        _ => return None,
    })
}

static PRODUCE: Body = Body {
    flexible_since: 9,
    body: plain(&[field(TEXT_OR_NULL), field(I16), field(I32), field(list(&PRODUCE_TOPIC))]),
};
static PRODUCE_TOPIC: Struct =
    plain(&[until(12, TEXT), since(13, UUID), field(list(&PRODUCE_PARTITION))]);
static PRODUCE_PARTITION: Struct = plain(&[field(I32), field(Shape::Blob(ALWAYS))]);

static FETCH: Body = Body {
    flexible_since: 12,
    body: Struct {
        fields: &[
            until(14, I32),
            field(I32),
            field(I32),
            field(I32),
            field(I8),
            since(7, I32),
            since(7, I32),
            field(list(&FETCH_TOPIC)),
            since(7, list(&FORGOTTEN_TOPIC)),
            since(11, TEXT),
        ],
        tagged: &[
            Tagged { tag: 0, since: 12, fields: &[field(TEXT_OR_NULL)], is_struct: false },
            Tagged { tag: 1, since: 15, fields: &[field(I32), field(I64)], is_struct: true },
        ],
    },
};
static FETCH_TOPIC: Struct =
    plain(&[until(12, TEXT), since(13, UUID), field(list(&FETCH_PARTITION))]);
static FETCH_PARTITION: Struct = Struct {
    fields: &[field(I32), since(9, I32), field(I64), since(12, I32), since(5, I64), field(I32)],
    tagged: &[
        Tagged { tag: 0, since: 17, fields: &[field(UUID)], is_struct: false },
        Tagged { tag: 1, since: 18, fields: &[field(I64)], is_struct: false },
    ],
};
static FORGOTTEN_TOPIC: Struct = plain(&[until(12, TEXT), since(13, UUID), field(values(&I32))]);

static LIST_OFFSETS: Body = Body {
    flexible_since: 6,
    body: plain(&[field(I32), since(2, I8), field(list(&LIST_OFFSETS_TOPIC)), since(10, I32)]),
};
static LIST_OFFSETS_TOPIC: Struct = plain(&[field(TEXT), field(list(&LIST_OFFSETS_PARTITION))]);
static LIST_OFFSETS_PARTITION: Struct = plain(&[field(I32), since(4, I32), field(I64)]);

static METADATA: Body = Body {
    flexible_since: 9,
    body: plain(&[
        field(Shape::Structs(Some(1), &METADATA_TOPIC)),
        since(4, BOOL),
        between(8, 10, BOOL),
        since(8, BOOL),
    ]),
};
static METADATA_TOPIC: Struct = plain(&[since(10, UUID), field(Shape::Text(Some(10)))]);

static OFFSET_COMMIT: Body = Body {
    flexible_since: 8,
    body: plain(&[
        field(TEXT),
        field(I32),
        field(TEXT),
        since(7, TEXT_OR_NULL),
        between(2, 4, I64),
        field(list(&OFFSET_COMMIT_TOPIC)),
    ]),
};
static OFFSET_COMMIT_TOPIC: Struct = plain(&[field(TEXT), field(list(&OFFSET_COMMIT_PARTITION))]);
static OFFSET_COMMIT_PARTITION: Struct =
    plain(&[field(I32), field(I64), since(6, I32), field(TEXT_OR_NULL)]);

static OFFSET_FETCH: Body = Body {
    flexible_since: 6,
    body: plain(&[
        until(7, TEXT),
        until(7, Shape::Structs(Some(2), &OFFSET_FETCH_TOPIC)),
        since(8, list(&OFFSET_FETCH_GROUP)),
        since(7, BOOL),
    ]),
};
static OFFSET_FETCH_TOPIC: Struct = plain(&[field(TEXT), field(values(&I32))]);
static OFFSET_FETCH_GROUP: Struct = plain(&[
    field(TEXT),
    since(9, TEXT_OR_NULL),
    since(9, I32),
    field(Shape::Structs(ALWAYS, &OFFSET_FETCH_TOPIC)),
]);

static FIND_COORDINATOR: Body = Body {
    flexible_since: 3,
    body: plain(&[until(3, TEXT), since(1, I8), since(4, values(&TEXT))]),
};

static JOIN_GROUP: Body = Body {
    flexible_since: 6,
    body: plain(&[
        field(TEXT),
        field(I32),
        since(1, I32),
        field(TEXT),
        since(5, TEXT_OR_NULL),
        field(TEXT),
        field(list(&JOIN_GROUP_PROTOCOL)),
        since(8, TEXT_OR_NULL),
    ]),
};
static JOIN_GROUP_PROTOCOL: Struct = plain(&[field(TEXT), field(Shape::Blob(NEVER))]);

static SYNC_GROUP: Body = Body {
    flexible_since: 4,
    body: plain(&[
        field(TEXT),
        field(I32),
        field(TEXT),
        since(3, TEXT_OR_NULL),
        since(5, TEXT_OR_NULL),
        since(5, TEXT_OR_NULL),
        field(list(&SYNC_GROUP_ASSIGNMENT)),
    ]),
};
static SYNC_GROUP_ASSIGNMENT: Struct = plain(&[field(TEXT), field(Shape::Blob(NEVER))]);

static HEARTBEAT: Body = Body {
    flexible_since: 4,
    body: plain(&[field(TEXT), field(I32), field(TEXT), since(3, TEXT_OR_NULL)]),
};

static LEAVE_GROUP: Body = Body {
    flexible_since: 4,
    body: plain(&[field(TEXT), until(2, TEXT), since(3, list(&LEAVE_GROUP_MEMBER))]),
};
static LEAVE_GROUP_MEMBER: Struct =
    plain(&[field(TEXT), field(TEXT_OR_NULL), since(5, TEXT_OR_NULL)]);

static DESCRIBE_GROUPS: Body =
    Body { flexible_since: 5, body: plain(&[field(values(&TEXT)), since(3, BOOL)]) };

static LIST_GROUPS: Body =
    Body { flexible_since: 3, body: plain(&[since(4, values(&TEXT)), since(5, values(&TEXT))]) };

static DELETE_GROUPS: Body = Body { flexible_since: 2, body: plain(&[field(values(&TEXT))]) };

static OFFSET_DELETE: Body =
    Body { flexible_since: LAST, body: plain(&[field(TEXT), field(list(&OFFSET_DELETE_TOPIC))]) };
static OFFSET_DELETE_TOPIC: Struct = plain(&[field(TEXT), field(list(&OFFSET_DELETE_PARTITION))]);
static OFFSET_DELETE_PARTITION: Struct = plain(&[field(I32)]);

static SASL_HANDSHAKE: Body = Body { flexible_since: LAST, body: plain(&[field(TEXT)]) };
static SASL_AUTHENTICATE: Body =
    Body { flexible_since: 2, body: plain(&[field(Shape::Blob(NEVER))]) };

static API_VERSIONS: Body =
    Body { flexible_since: 3, body: plain(&[since(3, TEXT), since(3, TEXT)]) };

static CREATE_TOPICS: Body =
    Body { flexible_since: 5, body: plain(&[field(list(&CREATE_TOPIC)), field(I32), field(BOOL)]) };
static CREATE_TOPIC: Struct = plain(&[
    field(TEXT),
    field(I32),
    field(I16),
    field(list(&CREATE_TOPIC_ASSIGNMENT)),
    field(list(&CONFIG_ENTRY)),
]);
static CREATE_TOPIC_ASSIGNMENT: Struct = plain(&[field(I32), field(values(&I32))]);
static CONFIG_ENTRY: Struct = plain(&[field(TEXT), field(TEXT_OR_NULL)]);

static DELETE_TOPICS: Body = Body {
    flexible_since: 4,
    body: plain(&[since(6, list(&DELETE_TOPIC)), until(5, values(&TEXT)), field(I32)]),
};
static DELETE_TOPIC: Struct = plain(&[field(TEXT_OR_NULL), field(UUID)]);

static DELETE_RECORDS: Body =
    Body { flexible_since: 2, body: plain(&[field(list(&DELETE_RECORDS_TOPIC)), field(I32)]) };
static DELETE_RECORDS_TOPIC: Struct = plain(&[field(TEXT), field(list(&DELETE_RECORDS_PARTITION))]);
static DELETE_RECORDS_PARTITION: Struct = plain(&[field(I32), field(I64)]);

static OFFSET_FOR_LEADER_EPOCH: Body =
    Body { flexible_since: 4, body: plain(&[since(3, I32), field(list(&LEADER_EPOCH_TOPIC))]) };
static LEADER_EPOCH_TOPIC: Struct = plain(&[field(TEXT), field(list(&LEADER_EPOCH_PARTITION))]);
static LEADER_EPOCH_PARTITION: Struct = plain(&[field(I32), field(I32), field(I32)]);

static DESCRIBE_CONFIGS: Body = Body {
    flexible_since: 4,
    body: plain(&[field(list(&DESCRIBE_RESOURCE)), field(BOOL), since(3, BOOL)]),
};
static DESCRIBE_RESOURCE: Struct =
    plain(&[field(I8), field(TEXT), field(Shape::Values(ALWAYS, &TEXT))]);

static DESCRIBE_LOG_DIRS: Body = Body {
    flexible_since: 2,
    body: plain(&[field(Shape::Structs(ALWAYS, &DESCRIBE_LOG_DIRS_TOPIC))]),
};
static DESCRIBE_LOG_DIRS_TOPIC: Struct = plain(&[field(TEXT), field(values(&I32))]);

static ALTER_CONFIGS: Body =
    Body { flexible_since: 2, body: plain(&[field(list(&ALTER_RESOURCE)), field(BOOL)]) };
static ALTER_RESOURCE: Struct = plain(&[field(I8), field(TEXT), field(list(&CONFIG_ENTRY))]);

static CREATE_PARTITIONS: Body = Body {
    flexible_since: 2,
    body: plain(&[field(list(&MORE_PARTITIONS)), field(I32), field(BOOL)]),
};
static MORE_PARTITIONS: Struct =
    plain(&[field(TEXT), field(I32), field(Shape::Structs(ALWAYS, &MORE_ASSIGNMENT))]);
static MORE_ASSIGNMENT: Struct = plain(&[field(values(&I32))]);

static INCREMENTAL_ALTER_CONFIGS: Body =
    Body { flexible_since: 1, body: plain(&[field(list(&INCREMENTAL_RESOURCE)), field(BOOL)]) };
static INCREMENTAL_RESOURCE: Struct =
    plain(&[field(I8), field(TEXT), field(list(&INCREMENTAL_ENTRY))]);
static INCREMENTAL_ENTRY: Struct = plain(&[field(TEXT), field(I8), field(TEXT_OR_NULL)]);

static DESCRIBE_CLUSTER: Body =
    Body { flexible_since: 0, body: plain(&[field(BOOL), since(1, I8), since(2, BOOL)]) };

static INIT_PRODUCER_ID: Body = Body {
    flexible_since: 2,
    body: plain(&[field(TEXT_OR_NULL), field(I32), since(3, I64), since(3, I16)]),
};

static ADD_PARTITIONS_TO_TXN: Body = Body {
    flexible_since: 3,
    body: plain(&[
        since(4, list(&TXN_WITH_PARTITIONS)),
        until(3, TEXT),
        until(3, I64),
        until(3, I16),
        until(3, list(&NUMBERED_TOPIC)),
    ]),
};
static TXN_WITH_PARTITIONS: Struct =
    plain(&[field(TEXT), field(I64), field(I16), field(BOOL), field(list(&NUMBERED_TOPIC))]);
/// A topic's name and numbers of its partitions.
static NUMBERED_TOPIC: Struct = plain(&[field(TEXT), field(values(&I32))]);

static ADD_OFFSETS_TO_TXN: Body =
    Body { flexible_since: 3, body: plain(&[field(TEXT), field(I64), field(I16), field(TEXT)]) };

static END_TXN: Body =
    Body { flexible_since: 3, body: plain(&[field(TEXT), field(I64), field(I16), field(BOOL)]) };

static TXN_OFFSET_COMMIT: Body = Body {
    flexible_since: 3,
    body: plain(&[
        field(TEXT),
        field(TEXT),
        field(I64),
        field(I16),
        since(3, I32),
        since(3, TEXT),
        since(3, TEXT_OR_NULL),
        field(list(&TXN_OFFSET_TOPIC)),
    ]),
};
static TXN_OFFSET_TOPIC: Struct = plain(&[field(TEXT), field(list(&TXN_OFFSET_PARTITION))]);
static TXN_OFFSET_PARTITION: Struct =
    plain(&[field(I32), field(I64), since(2, I32), field(TEXT_OR_NULL)]);

static DESCRIBE_PRODUCERS: Body =
    Body { flexible_since: 0, body: plain(&[field(list(&NUMBERED_TOPIC))]) };

static DESCRIBE_TRANSACTIONS: Body =
    Body { flexible_since: 0, body: plain(&[field(values(&TEXT))]) };

static LIST_TRANSACTIONS: Body = Body {
    flexible_since: 0,
    body: plain(&[
        field(values(&TEXT)),
        field(values(&I64)),
        since(1, I64),
        since(2, TEXT_OR_NULL),
    ]),
};
