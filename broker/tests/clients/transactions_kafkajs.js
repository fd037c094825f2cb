// Transactions over kafkajs: what is committed is read, what is aborted is not, and offsets come along.
//
// transactions_kafkajs.js NAME    with topics and a transactional id of that name
'use strict'
const { isDeepStrictEqual } = require('util')
const { Kafka, Partitioners, logLevel } = require('kafkajs')

const [name] = process.argv.slice(2)
const [out, source, groupId] = [`${name}-out`, `${name}-in`, `${name}-group`]
const retry = { initialRetryTime: 50, retries: 8 }
const kafka = new Kafka({ brokers: [process.env.KAFKA_BOOTSTRAP], logLevel: logLevel.NOTHING, retry })
let failed = 0

function check(what, got, want) {
  const ok = isDeepStrictEqual(got, want)
  console.log(ok ? `ok   ${what}` : `FAIL ${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`)
  failed += ok ? 0 : 1
}

async function newProducer() {
  const createPartitioner = Partitioners.DefaultPartitioner
  const producer = kafka.producer({ createPartitioner, transactionalId: name, idempotent: true, maxInFlightRequests: 1, retry })
  await producer.connect()
  return producer
}

function send(transaction, value) {
  const messages = [0, 1].map(partition => ({ partition, value: `${value}${partition}` }))
  return transaction.send({ topic: out, acks: -1, messages })
}

// Its consumer only knows groups: a new one for each look, until it has seen the last values.
async function read(readUncommitted, count) {
  const consumer = kafka.consumer({ groupId: `${name}-${readUncommitted}-${Math.random()}`, readUncommitted, maxWaitTimeInMs: 20 })
  await consumer.connect()
  await consumer.subscribe({ topics: [out], fromBeginning: true })
  const found = [[], []]
  await new Promise(resolve =>
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        found[partition].push(String(message.value))
        if (found[0].length + found[1].length >= count) resolve()
      },
    })
  )
  await consumer.disconnect()
  return found
}

async function main() {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [out, source].map(topic => ({ topic, numPartitions: 2, replicationFactor: 1 })) })
  const producer = await newProducer()
  for (const [value, offset, commits] of [['a', '3', true], ['b', '7', false], ['c', '5', true]]) {
    const transaction = await producer.transaction()
    await send(transaction, value)
    const topics = [{ topic: source, partitions: [{ partition: 0, offset }] }]
    await transaction.sendOffsets({ consumerGroupId: groupId, topics })
    await (commits ? transaction.commit() : transaction.abort())
    const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [source] })
    check(`offset behind ${value}`, partitions.find(each => each.partition === 0).offset, value === 'c' ? '5' : '3')
  }
  check('what was committed is read', await read(false, 4), [['a0', 'c0'], ['a1', 'c1']])
  check('all is there', await read(true, 6), [['a0', 'b0', 'c0'], ['a1', 'b1', 'c1']])

  const open = await producer.transaction()
  await send(open, 'd')
  const second = await newProducer()
  const later = await second.transaction()
  await send(later, 'e')
  const commits = await open.commit().then(() => 'committed', error => error.type || error.name)
  check('who was replaced is fenced', ['PRODUCER_FENCED', 'INVALID_PRODUCER_EPOCH'].includes(commits) || commits, true)
  await later.commit()
  check('what the first had open is gone', await read(false, 6), [['a0', 'c0', 'e0'], ['a1', 'c1', 'e1']])
  for (const each of [producer, second, admin]) await each.disconnect()
}

main()
  .catch(error => {
    console.error(error)
    failed++
  })
  .finally(() => process.exit(failed ? 1 : 0))
