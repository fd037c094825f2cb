// Rows over the Java client, and one Produce request over several partitions.
//
// Client write TOPIC-PREFIX CODEC...   makes a topic for each codec and writes the rows to its partition 1
// Client read TOPIC...                 reads them from the start, and keeps an offset for a group
// Client cleaned FILE                 reads cleaned topics to their ends
// Client atomic atomic|independent     a request with one batch that is refused, by the broker's rule

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.security.plain.PlainLoginModule;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Client {
    private static final String SERVER = System.getenv("KAFKA_BOOTSTRAP");
    private static final byte[] KEY = {'k'};
    private static final byte[] GOOD = "good".getBytes(StandardCharsets.US_ASCII);
    private static int failed = 0;

    private record Row(byte[] key, byte[] value, List<Header> headers) {
        String text(long offset) {
            String named = headers.stream().map(header -> header.key() + ":" + shown(header.value()))
                .collect(Collectors.joining(","));
            return offset + " " + shown(key) + " " + shown(value) + " " + named;
        }
    }

    private static String shown(byte[] field) {
        return field == null ? "null" : "x" + HexFormat.of().formatHex(field);
    }

    private static void check(String name, Object got, Object want) {
        boolean ok = Objects.equals(got, want);
        System.out.println(ok ? "ok   " + name : "FAIL " + name + ": got " + cut(got) + ", want " + cut(want));
        failed += ok ? 0 : 1;
    }

    private static String cut(Object value) {
        String text = String.valueOf(value);
        return text.substring(0, Math.min(text.length(), 1500));
    }

    private static byte[] field(String text) {
        String rest = text.substring(1);
        return switch (text.charAt(0)) {
            case '-' -> null;
            case '#' -> HexFormat.of().parseHex(rest);
            case '*' -> "x".repeat(Integer.parseInt(rest)).getBytes(StandardCharsets.US_ASCII);
            default -> rest.getBytes(StandardCharsets.US_ASCII);
        };
    }

    private static Header header(String cell) {
        int colon = cell.indexOf(':');
        return new RecordHeader(cell.substring(0, colon), field(cell.substring(colon + 1)));
    }

    // The rows that the client in the topic's name can send.
    private static List<Row> rowsOf(String topic) throws Exception {
        return Files.readAllLines(Path.of(System.getenv("ROWS"))).stream()
            .filter(line -> !line.startsWith("# "))
            .map(line -> line.split("\t"))
            .filter(cells -> Stream.of(cells[0].split(",")).noneMatch(topic::contains))
            .map(cells -> new Row(field(cells[1]), field(cells[2]),
                Arrays.stream(cells).skip(3).map(Client::header).toList()))
            .toList();
    }

    // kafkajs has a map of headers, so it groups those of one name.
    private static Row grouped(Row row) {
        Map<String, List<Header>> groups = new LinkedHashMap<>();
        row.headers().forEach(header -> groups.computeIfAbsent(header.key(), key -> new ArrayList<>()).add(header));
        return new Row(row.key(), row.value(), groups.values().stream().flatMap(Collection::stream).toList());
    }

    // Where a certificate is named, it uses TLS and logs in.
    private static Map<String, Object> config(Map<String, Object> own) {
        Map<String, Object> config = new HashMap<>(own);
        config.put("bootstrap.servers", SERVER);
        String certificate = System.getenv("KAFKA_CA");
        if (certificate != null) {
            config.put("security.protocol", "SASL_SSL");
            config.put("ssl.truststore.type", "PEM");
            config.put("ssl.truststore.location", certificate);
            config.put("sasl.mechanism", "PLAIN");
            config.put("sasl.jaas.config", String.format("%s required username=\"%s\" password=\"%s\";",
                PlainLoginModule.class.getName(), System.getenv("KAFKA_USERNAME"), System.getenv("KAFKA_PASSWORD")));
        }
        return config;
    }

    private static Admin admin() {
        return Admin.create(config(Map.of()));
    }

    private static KafkaProducer<byte[], byte[]> producer(String codec) {
        Map<String, Object> config = config(Map.of("acks", "all", "enable.idempotence", false,
            "retries", 0, "linger.ms", 500, "batch.size", 1 << 18, "compression.type", codec));
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static KafkaConsumer<byte[], byte[]> consumer() {
        Map<String, Object> config = config(Map.of("group.id", "reader-java",
            "enable.auto.commit", false, "auto.offset.reset", "none", "fetch.max.wait.ms", 20));
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void newTopic(String name, int partitions, Map<String, String> configs) throws Exception {
        try (Admin admin = admin()) {
            NewTopic topic = new NewTopic(name, partitions, (short) 1).configs(configs);
            admin.createTopics(List.of(topic)).all().get();
        }
    }

    private static List<TopicPartition> partitions(String topic, int count) {
        return IntStream.range(0, count).mapToObj(index -> new TopicPartition(topic, index)).toList();
    }

    // The offset, or the error's name, of what was sent.
    private static Object outcome(Future<RecordMetadata> sent) throws InterruptedException {
        try {
            return sent.get().offset();
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    private static void write(String prefix, List<String> codecs) throws Exception {
        for (String codec : codecs) {
            String topic = prefix + "-" + codec;
            newTopic(topic, 3, Map.of());
            List<Row> rows = rowsOf(topic);
            List<Object> places = new ArrayList<>();
            try (KafkaProducer<byte[], byte[]> producer = producer(codec)) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (Row row : rows) {
                    sent.add(producer.send(new ProducerRecord<>(topic, 1, row.key(), row.value(), row.headers())));
                }
                producer.flush();
                for (Future<RecordMetadata> each : sent) {
                    places.add(outcome(each));
                }
            }
            List<Long> dense = IntStream.range(0, rows.size()).mapToObj(Long::valueOf).toList();
            check("write " + topic + ": offsets", places, dense);
            try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
                List<TopicPartition> all = partitions(topic, 3);
                Map<TopicPartition, Long> low = consumer.beginningOffsets(all);
                Map<TopicPartition, Long> high = consumer.endOffsets(all);
                List<Long> marks = all.stream().flatMap(each -> Stream.of(low.get(each), high.get(each))).toList();
                check("write " + topic + ": watermarks", marks, List.of(0L, 0L, 0L, (long) rows.size(), 0L, 0L));
            }
        }
    }

    private static void read(List<String> topics) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            for (String topic : topics) {
                TopicPartition place = new TopicPartition(topic, 1);
                List<String> want = new ArrayList<>();
                for (Row row : rowsOf(topic)) {
                    want.add((topic.contains("kafkajs") ? grouped(row) : row).text(want.size()));
                }
                check("read " + topic, readAll(consumer, place), want);
                OffsetAndMetadata seven = new OffsetAndMetadata(7, "seven");
                consumer.commitSync(Map.of(place, seven));
                Object kept = consumer.committed(Collections.singleton(place)).get(place);
                check("read " + topic + ": offset of the group", kept, seven);
            }
        }
    }

    private static void cleaned(String path) throws Exception {
        Map<String, List<String>> want = new LinkedHashMap<>();
        Map<String, Long> ends = new HashMap<>();
        for (String line : Files.readAllLines(Path.of(path))) {
            String[] cells = line.split("\t");
            ends.put(cells[0], Long.parseLong(cells[1]));
            Row row = new Row(field(cells[3]), field(cells[4]), List.of());
            want.computeIfAbsent(cells[0], topic -> new ArrayList<>()).add(row.text(Long.parseLong(cells[2])));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            for (String topic : want.keySet()) {
                TopicPartition place = new TopicPartition(topic, 0);
                check(topic + " to its end", readAll(consumer, place), want.get(topic));
                check(topic + ": the end is reached", consumer.position(place), ends.get(topic));
            }
        }
    }

    private static List<String> readAll(KafkaConsumer<byte[], byte[]> consumer, TopicPartition place) {
        consumer.assign(List.of(place));
        consumer.seekToBeginning(List.of(place));
        long end = consumer.endOffsets(List.of(place)).get(place);
        List<String> got = new ArrayList<>();
        // A poll may move on over a gap and bring nothing.
        for (int idle = 0; consumer.position(place) < end && idle < 20;) {
            List<ConsumerRecord<byte[], byte[]>> batch = consumer.poll(Duration.ofSeconds(1)).records(place);
            idle = batch.isEmpty() ? idle + 1 : 0;
            for (ConsumerRecord<byte[], byte[]> record : batch) {
                List<Header> headers = Arrays.asList(record.headers().toArray());
                got.add(new Row(record.key(), record.value(), headers).text(record.offset()));
            }
        }
        return got;
    }

    private static final String THREE = "atomic-three-java";
    private static final String SMALL = "atomic-small-java";
    private static final String KEYED = "atomic-keyed-java";

    private static List<ProducerRecord<byte[], byte[]>> good() {
        List<ProducerRecord<byte[], byte[]>> sends = new ArrayList<>();
        partitions(THREE, 3).forEach(each -> sends.add(new ProducerRecord<>(THREE, each.partition(), KEY, GOOD)));
        sends.add(new ProducerRecord<>(SMALL, 0, KEY, GOOD));
        sends.add(new ProducerRecord<>(KEYED, 0, KEY, GOOD));
        return sends;
    }

    // All of these lie in the buffer when it is flushed, so they go to their one broker in one request.
    private static List<Object> oneRequest(List<ProducerRecord<byte[], byte[]>> sends) throws Exception {
        List<Object> outcomes = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer("none")) {
            for (String topic : List.of(THREE, SMALL, KEYED)) {
                producer.partitionsFor(topic);
            }
            for (Future<RecordMetadata> sent : sends.stream().map(producer::send).toList()) {
                outcomes.add(outcome(sent));
            }
        }
        return outcomes;
    }

    private static List<Object> ends() {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            List<TopicPartition> all = new ArrayList<>(partitions(THREE, 3));
            all.add(new TopicPartition(SMALL, 0));
            all.add(new TopicPartition(KEYED, 0));
            Map<TopicPartition, Long> found = consumer.endOffsets(all);
            return all.stream().map(each -> (Object) found.get(each)).toList();
        }
    }

    private static void atomic(boolean allOrNone) throws Exception {
        newTopic(THREE, 3, Map.of());
        newTopic(SMALL, 1, Map.of("max.message.bytes", "4096"));
        newTopic(KEYED, 1, Map.of("cleanup.policy", "compact"));
        check("atomic: five partitions in one request", oneRequest(good()), Collections.nCopies(5, 0L));
        List<Object> want = new ArrayList<>(Collections.nCopies(5, 1L));
        Map<Integer, ProducerRecord<byte[], byte[]>> culprits = new LinkedHashMap<>();
        culprits.put(3, new ProducerRecord<>(SMALL, 0, KEY, new byte[8192]));
        culprits.put(4, new ProducerRecord<>(KEYED, 0, null, GOOD));
        Map<Integer, String> errors = Map.of(3, "RecordTooLargeException", 4, "InvalidRecordException");
        for (int at : culprits.keySet()) {
            List<ProducerRecord<byte[], byte[]>> sends = good();
            sends.set(at, culprits.get(at));
            String error = errors.get(at);
            List<Object> got = oneRequest(sends);
            if (allOrNone) {
                check("atomic: " + error + " refuses all", got, Collections.nCopies(5, error));
            } else {
                List<Object> told = new ArrayList<>(want);
                told.set(at, error);
                check("atomic: " + error + " refuses its partition", got, told);
                for (int index = 0; index < 5; index++) {
                    want.set(index, (Long) want.get(index) + (index == at ? 0 : 1));
                }
            }
            check("atomic: after " + error + " the ends are", ends(), want);
        }
        check("atomic: the offsets go on", oneRequest(good()), want);
    }

    public static void main(String[] words) throws Exception {
        List<String> rest = Arrays.asList(words).subList(1, words.length);
        switch (words[0]) {
            case "write" -> write(rest.get(0), rest.subList(1, rest.size()));
            case "read" -> read(rest);
            case "cleaned" -> cleaned(rest.get(0));
            default -> atomic(rest.get(0).equals("atomic"));
        }
        System.out.println(failed + " failed");
        System.exit(failed == 0 ? 0 : 1);
    }
}
