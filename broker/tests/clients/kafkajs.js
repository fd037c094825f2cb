// Rows over kafkajs, and one Produce request over several partitions. Its consumer only knows groups, so rows are read
// by the Fetch and the decoder below it; cleaned topics are read by the consumer.
//
// kafkajs.js write TOPIC-PREFIX CODEC...   makes a topic for each codec and writes the rows to its partition 1
// kafkajs.js read TOPIC...                 reads them from the start
// kafkajs.js cleaned FILE                  reads cleaned topics of codecs that it knows, and a record that it writes behind them
// kafkajs.js atomic atomic|independent     a request with one batch that is refused, by the broker's rule
'use strict'
const fs = require('fs')
const path = require('path')
const { isDeepStrictEqual } = require('util')
const { Kafka, CompressionTypes, CompressionCodecs, Partitioners, logLevel } = require('kafkajs')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }
const { KAFKA_BOOTSTRAP, KAFKA_CA, KAFKA_USERNAME: username, KAFKA_PASSWORD: password } = process.env
// Where a certificate is named, it uses TLS and logs in.
const secured = KAFKA_CA ? { ssl: { ca: [fs.readFileSync(KAFKA_CA)] }, sasl: { mechanism: 'plain', username, password } } : {}
const kafka = new Kafka({ brokers: [KAFKA_BOOTSTRAP], logLevel: logLevel.NOTHING, retry: { retries: 2 }, ...secured })
let failed = 0

function check(name, got, want) {
  const ok = isDeepStrictEqual(got, want)
  const short = value => JSON.stringify(value).slice(0, 1500)
  console.log(ok ? `ok   ${name}` : `FAIL ${name}: got ${short(got)}, want ${short(want)}`)
  failed += ok ? 0 : 1
}

function field(text) {
  const rest = text.slice(1)
  if (text[0] === '-') return null
  if (text[0] === '#') return Buffer.from(rest, 'hex')
  return Buffer.from(text[0] === '*' ? 'x'.repeat(Number(rest)) : rest)
}

// Headers of one name are a list under that name.
function headers(cells) {
  const found = {}
  for (const cell of cells) {
    const [name, value] = [cell.slice(0, cell.indexOf(':')), field(cell.slice(cell.indexOf(':') + 1))]
    if (!(name in found)) found[name] = value
    else found[name] = [].concat(found[name], [value])
  }
  return found
}

const rows = fs
  .readFileSync(path.join(__dirname, 'rows.txt'), 'ascii')
  .split('\n')
  .filter(line => line && !line.startsWith('# '))
  .map(line => line.split('\t'))
  .map(([unable, key, value, ...cells]) => {
    return { unable: unable.split(','), row: { key: field(key), value: field(value), headers: headers(cells) } }
  })

// The rows that the client in the topic's name can send.
function rowsOf(topic) {
  return rows.filter(({ unable }) => !unable.some(name => topic.includes(name))).map(({ row }) => row)
}

async function newTopic(admin, topic, numPartitions = 3, configs = {}) {
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
  await admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: 1, configEntries }] })
}

async function watermarks(admin, topic) {
  const found = (await admin.fetchTopicOffsets(topic)).sort((a, b) => a.partition - b.partition)
  return found.map(({ low, high }) => [Number(low), Number(high)])
}

// A producer that tries once, so that what the broker says is what is seen.
function newProducer() {
  return kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, idempotent: false, retry: { retries: 0 } })
}

async function write(admin, prefix, codecs) {
  const producer = newProducer()
  await producer.connect()
  for (const codec of codecs) {
    const topic = `${prefix}-${codec}`
    await newTopic(admin, topic)
    const mine = rowsOf(topic)
    const messages = mine.map(row => ({ ...row, partition: 1 }))
    const [placed] = await producer.send({ topic, acks: -1, compression: CODECS[codec], messages })
    check(`write ${topic}: first offset`, placed.baseOffset, '0')
    check(`write ${topic}: watermarks`, await watermarks(admin, topic), [[0, 0], [0, mine.length], [0, 0]])
  }
  await producer.disconnect()
}

// The cluster that consumers of this client would use; it is made by a method whose name is a symbol.
function cluster() {
  const symbol = Object.getOwnPropertySymbols(kafka).find(each => String(each).includes('createCluster'))
  return kafka[symbol]({ metadataMaxAge: 300000 })
}

async function read(topics) {
  const nodes = cluster()
  await nodes.connect()
  for (const topic of topics) {
    await nodes.addTargetTopic(topic)
    const [nodeId] = Object.keys(nodes.findLeaderForPartitions(topic, [1]))
    const broker = await nodes.findBroker({ nodeId })
    const got = []
    for (let more = true; more; ) {
      const partitions = [{ partition: 1, fetchOffset: String(got.length), maxBytes: 1 << 20 }]
      const answer = await broker.fetch({ maxWaitTime: 20, minBytes: 1, maxBytes: 1 << 20, topics: [{ topic, partitions }] })
      const [{ partitions: [{ messages }] }] = answer.responses
      const fresh = messages.filter(message => Number(message.offset) >= got.length)
      got.push(...fresh)
      more = fresh.length > 0
    }
    const seen = got.map(({ offset, key, value, headers }) => ({ offset: Number(offset), key, value, headers: { ...headers } }))
    check(`read ${topic}`, seen, rowsOf(topic).map((row, offset) => ({ offset, ...row })))
  }
  await nodes.disconnect()
}

// The consumer does not tell of batches without records; a record that is written behind the end shows that it got there.
async function cleaned(admin, file) {
  const want = new Map()
  for (const line of fs.readFileSync(file, 'ascii').split('\n')) {
    const [topic, end, offset, key, value] = line.split('\t')
    if (!topic || /lz4|zstd/.test(topic)) continue
    if (!want.has(topic)) want.set(topic, { end: Number(end), records: [] })
    want.get(topic).records.push({ offset: Number(offset), key: field(key), value: field(value) })
  }
  const consumer = kafka.consumer({ groupId: `reader-of-cleaned-${process.pid}`, maxWaitTimeInMs: 50 })
  const got = new Map([...want.keys()].map(topic => [topic, []]))
  await consumer.connect()
  await consumer.subscribe({ topics: [...want.keys()], fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ topic, message: { offset, key, value } }) => {
      got.get(topic).push({ offset: Number(offset), key, value })
    },
  })
  const untilRead = async more => {
    const isRead = () => [...want].every(([topic, { records }]) => got.get(topic).length >= records.length + more)
    for (let turn = 0; turn < 300 && !isRead(); turn++) await new Promise(resolve => setTimeout(resolve, 100))
  }
  await untilRead(0)
  for (const [topic, { records }] of want) check(`${topic} to its end`, got.get(topic), records)
  const producer = newProducer()
  await producer.connect()
  for (const topic of want.keys()) await producer.send({ topic, acks: -1, messages: [{ key: 'behind', value: 'it' }] })
  await producer.disconnect()
  await untilRead(1)
  await consumer.disconnect()
  for (const [topic, { end, records }] of want) {
    const behind = got.get(topic).slice(records.length).map(({ offset, key }) => [offset, String(key)])
    check(`${topic}: behind its end`, behind, [[end, 'behind']])
  }
}

async function atomic(admin, rule) {
  const [three, small, keyed] = ['three', 'small', 'keyed'].map(name => `atomic-${name}-kafkajs`)
  await newTopic(admin, three)
  await newTopic(admin, small, 1, { 'max.message.bytes': '4096' })
  await newTopic(admin, keyed, 1, { 'cleanup.policy': 'compact' })
  const producer = newProducer()
  await producer.connect()
  const ends = async () => {
    const all = await Promise.all([three, small, keyed].map(topic => watermarks(admin, topic)))
    return all.flat().map(([, high]) => high)
  }
  const good = { key: 'k', value: 'good' }
  const request = async (inSmall, inKeyed) => {
    const topicMessages = [
      { topic: three, messages: [0, 1, 2].map(partition => ({ ...good, partition })) },
      { topic: small, messages: [inSmall] },
      { topic: keyed, messages: [inKeyed] },
    ]
    try {
      const placed = await producer.sendBatch({ acks: -1, topicMessages })
      return placed.map(each => Number(each.baseOffset))
    } catch (error) {
      return [error, error.cause, error.originalError].map(each => each && each.type).find(type => type)
    }
  }
  check('atomic: five partitions in one request', await request(good, good), [0, 0, 0, 0, 0])
  let want = [1, 1, 1, 1, 1]
  const culprits = [
    [{ key: 'k', value: 'y'.repeat(8192) }, good, 'MESSAGE_TOO_LARGE', 3],
    [good, { key: null, value: 'v' }, 'INVALID_RECORD', 4],
  ]
  for (const [inSmall, inKeyed, code, at] of culprits) {
    check(`atomic: ${code} is told`, await request(inSmall, inKeyed), code)
    if (rule === 'independent') want = want.map((end, index) => (index === at ? end : end + 1))
    check(`atomic: after ${code} the ends are`, await ends(), want)
  }
  check('atomic: the offsets go on', (await request(good, good)).sort(), [...want].sort())
  await producer.disconnect()
}

async function main() {
  const [command, ...words] = process.argv.slice(2)
  const admin = kafka.admin()
  await admin.connect()
  if (command === 'write') await write(admin, words[0], words.slice(1))
  else if (command === 'read') await read(words)
  else if (command === 'cleaned') await cleaned(admin, words[0])
  else await atomic(admin, words[0])
  await admin.disconnect()
  console.log(`${failed} failed`)
  process.exit(failed ? 1 : 0)
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
