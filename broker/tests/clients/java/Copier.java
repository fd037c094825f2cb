// Read-process-write over the Java client: copies a topic to another exactly once, until it is told to end (SIGTERM) or
// killed.
//
// Copier GROUP INPUT OUTPUT TRANSACTIONAL-ID PARTITIONS
//
// Does and says what copier_confluent.py does and says.

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Copier {
    private static volatile boolean told = false;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final KafkaProducer<byte[], byte[]> producer;
    private final String target;
    private final int partitions;

    private Copier(KafkaConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer, String[] words) {
        this.consumer = consumer;
        this.producer = producer;
        this.target = words[2];
        this.partitions = Integer.parseInt(words[4]);
    }

    private static void say(String what) {
        System.out.println(what);
    }

    private static final class Listener implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            say("assigned");
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            // No transaction is open where partitions are taken away, in poll.
        }
    }

    /** Calls again what timed out, as the client's documentation tells. */
    private static void insist(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                say("late");
            }
        }
    }

    /** Goes back to what the group has committed. */
    private void rewind() {
        Map<TopicPartition, OffsetAndMetadata> kept = new HashMap<>();
        insist(() -> kept.putAll(consumer.committed(consumer.assignment())));
        for (TopicPartition place : consumer.assignment()) {
            OffsetAndMetadata found = kept.get(place);
            consumer.seek(place, found == null ? 0 : found.offset());
        }
    }

    /** Whether the transaction is committed. */
    private boolean copy(ConsumerRecords<byte[], byte[]> records) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            producer.send(new ProducerRecord<>(target, (record.partition() + 1) % partitions, null, record.value()));
            ends.put(new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
        }
        insist(() -> producer.sendOffsetsToTransaction(ends, consumer.groupMetadata()));
        if (ThreadLocalRandom.current().nextInt(10) == 0) {
            producer.flush();
            return false;
        }
        insist(producer::commitTransaction);
        return true;
    }

    private void step() {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
        if (records.isEmpty()) {
            return;
        }
        boolean committed = false;
        try {
            committed = copy(records);
        } catch (ApplicationRecoverableException error) {
            throw error;
        } catch (KafkaException error) {
            say("refused " + error.getClass().getSimpleName());
        }
        if (committed) {
            say("copied " + records.count());
            return;
        }
        insist(producer::abortTransaction);
        say("aborted");
        rewind();
    }

    private static void waitWhenTold() {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            told = true;
            try {
                main.join();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
    }

    private static void run(String[] words) {
        String server = System.getenv("KAFKA_BOOTSTRAP");
        int timeout = Integer.parseInt(System.getenv().getOrDefault("COPIER_TRANSACTION_MS", "5000"));
        Map<String, Object> reading = new HashMap<>(Map.of("bootstrap.servers", server, "group.id", words[0],
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "isolation.level", "read_committed",
            "session.timeout.ms", 3000, "heartbeat.interval.ms", 300, "fetch.max.wait.ms", 50,
            "max.poll.records", 80, "partition.assignment.strategy", RangeAssignor.class.getName()));
        Map<String, Object> writing = new HashMap<>(Map.of("bootstrap.servers", server, "transactional.id", words[3],
            "transaction.timeout.ms", timeout, "delivery.timeout.ms", timeout, "request.timeout.ms", timeout - 100,
            "linger.ms", 2, "reconnect.backoff.max.ms", 200));
        reading.put("reconnect.backoff.max.ms", 200);
        ByteArraySerializer out = new ByteArraySerializer();
        ByteArrayDeserializer in = new ByteArrayDeserializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(writing, out, out);
             KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reading, in, in)) {
            insist(producer::initTransactions);
            consumer.subscribe(List.of(words[1]), new Listener());
            Copier copier = new Copier(consumer, producer, words);
            while (!told) {
                copier.step();
            }
        }
    }

    public static void main(String[] words) {
        waitWhenTold();
        try {
            run(words);
        } catch (KafkaException error) {
            say("ended " + error);
            Runtime.getRuntime().halt(3);
        }
    }
}
