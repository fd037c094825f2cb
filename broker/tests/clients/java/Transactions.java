// Transactions over the Java client, which uses the second protocol (KIP-890) where the broker tells that it may: what
// is committed is read, what is aborted is not, and offsets come along.
//
// Transactions NAME    with topics and a transactional id of that name

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transactions {
    private static final String SERVER = System.getenv("KAFKA_BOOTSTRAP");
    private static int failed = 0;

    private static void check(String name, Object got, Object want) {
        boolean ok = Objects.equals(got, want);
        System.out.println(ok ? "ok   " + name : "FAIL " + name + ": got " + got + ", want " + want);
        failed += ok ? 0 : 1;
    }

    private static KafkaProducer<String, String> producer(String name) {
        Map<String, Object> config = Map.of("bootstrap.servers", SERVER, "transactional.id", name, "linger.ms", 5);
        KafkaProducer<String, String> made =
            new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    private static void send(KafkaProducer<String, String> sender, String topic, String value) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int partition = 0; partition < 2; partition++) {
            sent.add(sender.send(new ProducerRecord<>(topic, partition, null, value + partition)));
        }
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    private static List<List<String>> read(String topic, String isolation) {
        Map<String, Object> config = Map.of("bootstrap.servers", SERVER, "isolation.level", isolation,
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "fetch.max.wait.ms", 20);
        List<List<String>> found = List.of(new ArrayList<>(), new ArrayList<>());
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> places = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
            consumer.assign(places);
            consumer.seekToBeginning(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place))) {
                consumer.poll(Duration.ofMillis(200))
                    .forEach(record -> found.get(record.partition()).add(record.value()));
            }
        }
        return found;
    }

    private static long committed(Admin admin, String group, TopicPartition place) throws Exception {
        return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(place).offset();
    }

    private static void run(String name) throws Exception {
        String out = name + "-out";
        String group = name + "-group";
        TopicPartition place = new TopicPartition(name + "-in", 0);
        Map<String, Object> member = Map.of("bootstrap.servers", SERVER, "group.id", group);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", SERVER));
             KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(member, new StringDeserializer(), new StringDeserializer())) {
            admin.createTopics(Stream.of(out, place.topic()).map(topic -> new NewTopic(topic, 2, (short) 1)).toList())
                .all().get();
            KafkaProducer<String, String> sender = producer(name);
            for (String value : List.of("a", "b", "c")) {
                long offset = Map.of("a", 3L, "b", 7L, "c", 5L).get(value);
                sender.beginTransaction();
                send(sender, out, value);
                sender.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(offset)),
                    consumer.groupMetadata());
                if (value.equals("b")) {
                    check("an open transaction is described as such", admin.describeTransactions(List.of(name))
                        .description(name).get().state().toString(), "Ongoing");
                    check("nothing of an open transaction is read", read(out, "read_committed"),
                        List.of(List.of("a0"), List.of("a1")));
                    sender.abortTransaction();
                } else {
                    sender.commitTransaction();
                }
                check("offset behind " + value, committed(admin, group, place), value.equals("c") ? 5L : 3L);
            }
            check("what was committed is read", read(out, "read_committed"),
                List.of(List.of("a0", "c0"), List.of("a1", "c1")));
            check("all is there", read(out, "read_uncommitted"),
                List.of(List.of("a0", "b0", "c0"), List.of("a1", "b1", "c1")));
            check("every end has raised the epoch", admin.describeTransactions(List.of(name)).description(name).get()
                .producerEpoch(), 3);
            fence(name, out, sender);
        }
    }

    private static void fence(String name, String out, KafkaProducer<String, String> sender) throws Exception {
        sender.beginTransaction();
        send(sender, out, "d");
        try (KafkaProducer<String, String> second = producer(name)) {
            try {
                sender.commitTransaction();
                check("who was replaced is fenced", "committed", "fenced");
            } catch (KafkaException error) {
                check("who was replaced is fenced", error.getClass().getSimpleName(), "ProducerFencedException");
            }
            sender.close(Duration.ofSeconds(1));
            second.beginTransaction();
            send(second, out, "e");
            second.commitTransaction();
        }
        check("what the first had open is gone", read(out, "read_committed"),
            List.of(List.of("a0", "c0", "e0"), List.of("a1", "c1", "e1")));
    }

    public static void main(String[] arguments) throws Exception {
        run(arguments[0]);
        System.exit(failed == 0 ? 0 : 1);
    }
}
