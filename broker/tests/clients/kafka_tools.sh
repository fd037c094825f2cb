#!/usr/bin/env bash
# Runs Apache Kafka's own tools against the broker: those that its system tests verify idempotence and transactions with,
# while the broker and a copier are killed, and those of operators for transactions, groups, offsets and log directories.
#
# KAFKA_HOME names a Kafka distribution (4.0 or later), or a directory with its jars; without it nothing is run.
# TIDELOG_BROKER names a broker that is built already.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
# shellcheck source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

messages=12000

tool() {
    timeout 100 java -Xmx256m -Xshare:auto -XX:TieredStopAtLevel=1 -cp "$jars" "org.apache.kafka.tools.$1" "${@:2}" \
        2>>"$scratch/tools.log"
}

# said NAME PATTERN COMMAND...: what the command prints must match.
said() {
    local output
    output="$("${@:3}" || true)"
    if ! grep -Eq -- "$2" <<<"$output"; then
        printf '%s\n' "$output" | tail -n 20
        tail -n 20 "$scratch/tools.log"
        fail "$1: no line matches $2"
    fi
    say "ok   $1"
}

expect() {
    [[ "$2" == "$3" ]] || fail "$1: got $2, want $3"
    say "ok   $1"
}

# The committed values of a topic, a line each.
values() {
    tool consumer.ConsoleConsumer --bootstrap-server "$address" --topic "$1" --from-beginning --timeout-ms 4000 \
        --isolation-level read_committed
}

# each_once NAME TOPIC: every number that was sent is there exactly once.
each_once() {
    expect "$1" "$(values "$2" | sort -n | cksum)" "$(seq 0 "$((messages - 1))" | cksum)"
}

kill_and_restart() {
    kill_broker "$broker"
    start_broker tools --listen "$address" "${options[@]}"
}

# Waits until a file has so many lines.
wait_for_lines() {
    local turn
    for ((turn = 0; turn < 1200; turn++)); do
        [[ "$(wc -l <"$1")" -lt "$2" ]] || return 0
        sleep 0.05
    done
    fail "$1 has not got $2 lines within a minute"
}

verify_idempotence() {
    local pid
    printf 'enable.idempotence=true\nretries=1000000\ndelivery.timeout.ms=60000\nrequest.timeout.ms=10000\n' \
        >"$scratch/idempotent"
    : >"$scratch/producer"
    tool VerifiableProducer "${server[@]}" --topic in --max-messages "$messages" --acks -1 --repeating-keys 64 \
        --command-config "$scratch/idempotent" >"$scratch/producer" &
    pid="$!"
    wait_for_lines "$scratch/producer" 2000
    kill_and_restart
    wait "$pid" || fail "VerifiableProducer: $(tail -n 3 "$scratch/producer" "$scratch/tools.log")"
    said "VerifiableProducer: all is acknowledged" "\"sent\":$messages,\"acked\":$messages," \
        tail -n 1 "$scratch/producer"
    each_once "VerifiableProducer: each is there once, though the broker was killed" in
}

# copier PARTITION: copies a partition of one topic to another; its process becomes the caller's.
copier() {
    exec java -Xmx256m -Xshare:auto -XX:TieredStopAtLevel=1 -cp "$jars" \
        org.apache.kafka.tools.TransactionalMessageCopier --broker-list "$address" --input-topic in \
        --input-partition "$1" --output-topic out --transactional-id "copier-$1" --transaction-size 50 \
        --transaction-timeout 10000 --consumer-group copiers --use-group-metadata --enable-random-aborts \
        >>"$scratch/copier-$1" 2>>"$scratch/tools.log"
}

# The first copier is killed and begins again under its id, and the broker is killed under all.
verify_transactions() {
    local pids=() partition
    for partition in 0 1 2 3; do
        : >"$scratch/copier-$partition"
        copier "$partition" &
        pids+=("$!")
        jobs+=("$!")
    done
    wait_for_lines "$scratch/copier-0" 5
    kill -KILL "${pids[0]}"
    wait "${pids[0]}" 2>/dev/null || true
    copier 0 &
    pids[0]="$!"
    jobs+=("$!")
    kill_and_restart
    for partition in 0 1 2 3; do
        wait "${pids[$partition]}" || fail "copier $partition: $(tail -n 3 "$scratch/copier-$partition")"
    done
    jobs=()
    each_once "TransactionalMessageCopier: each is there once, though one and the broker were killed" out
    said "VerifiableConsumer: gets all" "\"count\":[0-9]+" \
        tool VerifiableConsumer "${server[@]}" --group-id verifiable --topic out --max-messages "$messages"
}

# A producer that is killed leaves its transaction open.
leave_open() {
    local pid turn
    java -Xmx256m -cp "$jars" org.apache.kafka.tools.ProducerPerformance "${server[@]}" --topic open \
        --num-records 100000 --record-size 100 --throughput 100 --transactional-id open \
        --transaction-duration-ms 60000 >"$scratch/open" 2>&1 &
    pid="$!"
    jobs+=("$pid")
    for ((turn = 0; turn < 60; turn++)); do
        ! tool GetOffsetShell "${server[@]}" --topic open | grep -q ':[1-9]' || break
    done
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || true
    jobs=()
}

look_at_transactions() {
    local transactions=(tool TransactionsCommand "${server[@]}")
    said "kafka-producer-perf-test: transactions" '^2000 records sent' tool ProducerPerformance "${server[@]}" \
        --topic perf --num-records 2000 --record-size 100 --throughput -1 --transactional-id perf \
        --transaction-duration-ms 20
    leave_open
    said "kafka-transactions: list" '^open\s+1\s+[0-9]+\s+Ongoing' "${transactions[@]}" list
    said "kafka-transactions: list, what has ended" '^perf\s+1\s+[0-9]+\s+CompleteCommit' "${transactions[@]}" list
    said "kafka-transactions: describe" '^1\s+open\s.*Ongoing\s.*open-0' \
        "${transactions[@]}" describe --transactional-id open
    said "kafka-transactions: describe-producers" '^[0-9]+\s+0\s+-1\s+[0-9]+\s+[0-9]+\s+0\s*$' \
        "${transactions[@]}" describe-producers --topic open --partition 0
    said "kafka-transactions: find-hanging finds none while the coordinator knows it" '^Topic\s+Partition[^0-9]*$' \
        "${transactions[@]}" find-hanging --topic open --partition 0 --max-transaction-timeout 0
    : >"$scratch/tools.log"
    "${transactions[@]}" abort --topic open --partition 0 --start-offset 0 || true
    said "kafka-transactions: abort is told that it is not offered" 'WRITE_TXN_MARKERS' cat "$scratch/tools.log"
    "${transactions[@]}" forceTerminateTransaction --transactionalId open
    said "kafka-transactions: forceTerminateTransaction" '^open\s+1\s+[0-9]+\s+(CompleteAbort|Empty)' \
        "${transactions[@]}" list
}

look_at_groups() {
    local groups=(tool consumer.group.ConsumerGroupCommand "${server[@]}")
    said "kafka-consumer-groups: list" '^copiers\s+Empty' "${groups[@]}" --list --state
    said "kafka-consumer-groups: describe" '^copiers\s+in\s+0\s+([0-9]+)\s+\1\s+0' "${groups[@]}" --describe --group copiers
    said "kafka-consumer-groups: reset-offsets" '^copiers\s+in\s+1\s+0' \
        "${groups[@]}" --group copiers --topic in:1 --reset-offsets --to-earliest --execute
    said "kafka-consumer-groups: delete-offsets" '^in\s+0\s+Successful' \
        "${groups[@]}" --group copiers --delete-offsets --topic in:0
    said "kafka-consumer-groups: delete" "groups \('copiers'\) was successful" "${groups[@]}" --group copiers --delete
}

look_at_offsets() {
    local offsets=(tool GetOffsetShell "${server[@]}" --topic in)
    said "kafka-get-offsets: earliest" '^in:3:0$' "${offsets[@]}" --time earliest
    expect "kafka-get-offsets: latest" "$("${offsets[@]}" --time latest | awk -F: '{ n += $3 } END { print n }')" \
        "$messages"
    expect "kafka-get-offsets: max-timestamp" "$("${offsets[@]}" --time max-timestamp | wc -l)" 4
    said "kafka-log-dirs: describe" '"partition":"in-3","size":[1-9]' \
        tool LogDirsCommand "${server[@]}" --describe --topic-list in
}

look_at_the_client_compatibility() {
    said "ClientCompatibilityTest: goes on to the configuration of brokers, of which there is none" \
        'Expected to see config entries, but got zero entries|SUCCESS' tool ClientCompatibilityTest "${server[@]}" \
        --topic compatible --offsets-for-times-supported true --cluster-id-supported true --num-cluster-nodes 1 \
        --expect-record-too-large-exception false --create-topics-supported true --describe-acls-supported false \
        --describe-configs-supported true --idempotent-producer-supported true
}

if [[ -z "${KAFKA_HOME:-}" ]]; then
    say "SKIPPED Kafka's own tools: KAFKA_HOME names no Kafka distribution"
    exit 0
fi
command -v java >/dev/null || fail "there is no java to run the tools of KAFKA_HOME with"
jars="$KAFKA_HOME/libs/*:$KAFKA_HOME/*"
options=(--group-initial-rebalance-delay-ms 0)
build_broker
start_broker tools "${options[@]}"
server=(--bootstrap-server "$address")
for topic in in out perf; do
    said "kafka-topics: create $topic" "^Created topic $topic" \
        tool TopicCommand "${server[@]}" --create --topic "$topic" --partitions 4
done
said "kafka-topics: create open" '^Created topic open' tool TopicCommand "${server[@]}" --create --topic open
verify_idempotence
verify_transactions
look_at_transactions
look_at_groups
look_at_offsets
look_at_the_client_compatibility
stop_broker tools "$broker"
say "Kafka's own tools: passed in $SECONDS s"
