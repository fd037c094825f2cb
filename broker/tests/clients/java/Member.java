// A member of a group over the Java client, until it is told to end (SIGTERM) or killed.
//
// Member GROUP TOPIC eager|cooperative INSTANCE|-
//
// Says what member_confluent.py says.

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Member {
    private static final TreeSet<Integer> MINE = new TreeSet<>();
    private static volatile boolean told = false;

    private static void say(String word, Object rest) {
        System.out.println(word + " " + rest);
    }

    private static String mine() {
        return MINE.stream().map(String::valueOf).collect(Collectors.joining(" "));
    }

    private record Listener(boolean cooperative) implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            if (!cooperative) {
                MINE.clear();
            }
            assigned.forEach(each -> MINE.add(each.partition()));
            say("assigned", mine());
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            revoked.forEach(each -> MINE.remove(each.partition()));
            say("revoked", mine());
        }
    }

    public static void main(String[] words) throws InterruptedException {
        boolean cooperative = words[2].equals("cooperative");
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP"),
            "group.id", words[0], "auto.offset.reset", "earliest", "enable.auto.commit", false,
            "session.timeout.ms", 4000, "heartbeat.interval.ms", 300, "fetch.max.wait.ms", 50,
            "max.poll.records", 20, "partition.assignment.strategy",
            (cooperative ? CooperativeStickyAssignor.class : RangeAssignor.class).getName()));
        if (!words[3].equals("-")) {
            config.put("group.instance.id", words[3]);
        }
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            told = true;
            try {
                main.join();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(words[1]), new Listener(cooperative));
            while (!told) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                try {
                    consumer.commitSync();
                } catch (CommitFailedException | RebalanceInProgressException error) {
                    continue; // Whoever has the partitions next gets the records again.
                }
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    say("got", record.partition() + " " + record.offset());
                }
            }
        }
    }
}
