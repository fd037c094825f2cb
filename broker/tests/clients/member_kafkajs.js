// A member of a group over kafkajs, until it is told to end (SIGTERM) or killed. It knows eager groups only, and no
// instance ids.
//
// member_kafkajs.js GROUP TOPIC eager -
//
// Says what member_confluent.py says.
'use strict'
const { Kafka, logLevel } = require('kafkajs')

const [groupId, topic] = process.argv.slice(2)
const kafka = new Kafka({ brokers: [process.env.KAFKA_BOOTSTRAP], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50 } })
const consumer = kafka.consumer({ groupId, sessionTimeout: 4000, heartbeatInterval: 300, rebalanceTimeout: 10000, maxWaitTimeInMs: 50 })
const say = (...words) => console.log(words.join(' '))

async function main() {
  consumer.on(consumer.events.REBALANCING, () => say('revoked'))
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    const mine = payload.memberAssignment[topic] || []
    say('assigned', ...[...mine].sort())
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
      say('got', partition, message.offset)
    },
  })
  process.on('SIGTERM', () => consumer.disconnect().then(() => process.exit(0)))
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
