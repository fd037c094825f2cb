#!/usr/bin/env bash
# Runs an acceptance program against the broker, which is started as that program needs it.
#
#   acceptance.sh PROGRAM      produce_guide.py, atomic_produce.py or replay.py, with its path
#
# The client libraries are those of clients/run.sh. TIDELOG_BROKER names a broker that is built already.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
# shellcheck source=clients/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/clients/common.sh"

acceptance="$(realpath "${1:?the path of an acceptance program}")"

# The requests that the broker serves: a conversation that uses no others must not be skipped.
served='ApiVersions|Metadata|CreateTopics|DeleteTopics|DeleteRecords|CreatePartitions'
served+='|DescribeConfigs|DescribeLogDirs'
served+='|IncrementalAlterConfigs|AlterConfigs|Produce|Fetch|ListOffsets|OffsetForLeaderEpoch'
served+='|FindCoordinator|OffsetCommit|OffsetFetch|OffsetDelete|DescribeCluster|SaslHandshake|SaslAuthenticate'
served+='|JoinGroup|SyncGroup|Heartbeat|LeaveGroup|DescribeGroups|ListGroups|DeleteGroups'
served+='|InitProducerId|AddPartitionsToTxn|AddOffsetsToTxn|EndTxn|TxnOffsetCommit|DescribeProducers'
served+='|DescribeTransactions|ListTransactions'

# What librdkafka logs as an error where it is told to use producer ids and the broker has none, as in
# the profile event-broker.
meant='Required feature not supported|Transactions not supported'

# user NAME PASSWORD: adds a line to the file of users.
user() {
    printf '%s:%s\n' "$1" "$(printf '%s' "$2" | "$program" hash-password)" >>"$scratch/users"
}

write_users() {
    user admin admin-secret
    user other other-secret
    user nobody nobody-secret
    cat >"$scratch/grants" <<'GRANTS'
admin All *
other KafkaWrite writable-*
other KafkaRead readable-*
other Create creatable-*
other Delete deletable-*
other Describe visible-*
other AlterConfigs alterable-*
other GroupRead *
other GroupDelete *
GRANTS
    secured=(--users "$scratch/users" --grants "$scratch/grants")
}

# guide PYTHON OPTION...: the program must pass, and the client log no error besides.
#
# In the profile event-broker librdkafka may find out that the broker has no producer ids before the
# program hands it the first record, and then names the producer's error instead of its cause. Such
# a run, on a loaded machine, shows nothing, and is made again.
guide() {
    local try output outcome
    for try in 1 2 3; do
        outcome=0
        output="$(guide_once "$@" 2>&1)" || outcome=$?
        if ((outcome == 0)) || ! grep -qF "got ('_FATAL', False)" <<<"$output"; then
            break
        fi
        echo "try $try: the client was faster than the program"
    done
    printf '%s\n' "$output"
    return "$outcome"
}

guide_once() {
    local errors
    errors="$(mktemp -p "$scratch")"
    "$1" "$acceptance" "${@:2}" 2>"$errors" || { cat "$errors"; return 1; }
    if grep '^%[0-3]|' "$errors" | grep -vE "$meant"; then
        echo "the client logged these errors"
        return 1
    fi
}

# A user without a grant is refused with code 29 at the first step.
guide_without_grant() {
    local output
    if output="$("$1" "$acceptance" --profile event-broker 2>&1)"; then
        echo "a user without a grant was not refused"
        return 1
    fi
    grep 'TOPIC_AUTHORIZATION_FAILED' <<<"$output" || { echo "$output"; return 1; }
}

# begin NAME USER COMMAND...: runs a command in the background against the broker at $address.
begin() {
    local name="$1" user="$2"
    shift 2
    local variables=("KAFKA_BOOTSTRAP=$address")
    if [[ -n "$user" ]]; then
        variables+=("KAFKA_USERNAME=$user" "KAFKA_PASSWORD=$user-secret")
        variables+=("KAFKA_OTHER_USERNAME=other" "KAFKA_OTHER_PASSWORD=other-secret")
    fi
    in_background "$name" with_variables "${variables[@]}" -- "$@"
}

with_variables() {
    while [[ "$1" != -- ]]; do
        export "${1?}"
        shift
    done
    shift
    "$@"
}

# Each run has a broker of its own: the programs name their topics by the time alone.
run_guide() {
    local version
    write_users
    for version in "${confluent_versions[@]}"; do
        python_with "confluent-kafka==$version"
        start_broker "events-$version" --profile event-broker
        begin "event-broker, confluent-kafka $version" "" guide "$python" --profile event-broker
        start_broker "secured-$version" --profile event-broker "${secured[@]}"
        begin "event-broker with a login, confluent-kafka $version" admin \
            guide "$python" --profile event-broker
        begin "event-broker without a grant, confluent-kafka $version" nobody \
            guide_without_grant "$python"
        start_broker "kafka-$version" --profile kafka
        begin "kafka, confluent-kafka $version" "" \
            guide "$python" --profile kafka
    done
    finish
    guide_after_kill
}

# The same once more, on what is left of each broker of the profile kafka that was killed.
guide_after_kill() {
    local at version
    for at in "${brokers[@]}"; do
        kill_broker "$at"
    done
    brokers=()
    for version in "${confluent_versions[@]}"; do
        python_with "confluent-kafka==$version"
        start_broker "kafka-$version" --profile kafka
        begin "kafka after kill -9, confluent-kafka $version" "" guide "$python" --profile kafka
    done
    finish
}

run_atomic() {
    python_with "${kafka_python[@]}"
    start_broker kafka
    begin "kafka" "" "$python" "$acceptance" --rule atomic
    start_broker event-broker --profile event-broker
    begin "event-broker" "" "$python" "$acceptance" --rule atomic
    start_broker independent --independent-partitions
    begin "independent partitions" "" "$python" "$acceptance" --rule independent
    finish
}

# replay OPTION...: no case may fail, nor be skipped for want of a request that is served.
replay() {
    local output
    output="$("$python" "$acceptance" --slow --disputed "$root/broker/tests/disputed.txt" "$@")" ||
        { printf '%s\n' "$output"; return 1; }
    if grep -E "^skip .*: ($served) [0-9]+ is not offered" <<<"$output"; then
        echo "these were skipped"
        return 1
    fi
    printf '%s\n' "$output"
}

# What the conversations about groups were recorded with.
at_once=(--group-initial-rebalance-delay-ms 0)

# The conversations by each rule, and those about security with users and grants.
begin_replays() {
    start_broker atomic --profile kafka "${at_once[@]}"
    begin "kafka, atomic, $1" "" replay --profile kafka --rule atomic
    start_broker independent --profile kafka --independent-partitions "${at_once[@]}"
    begin "kafka, independent, $1" "" replay --profile kafka --rule independent
    start_broker events --profile event-broker "${at_once[@]}"
    begin "event-broker, $1" "" replay --profile event-broker
    start_broker atomic-secured --profile kafka "${secured[@]}"
    begin "security, kafka, $1" admin replay_security --profile kafka --rule atomic
    start_broker independent-secured --independent-partitions "${secured[@]}"
    begin "security, independent, $1" admin replay_security --profile kafka --rule independent
    start_broker events-secured --profile event-broker "${secured[@]}"
    begin "security, event-broker, $1" admin replay_security --profile event-broker
}

replay_security() {
    local output
    output="$(replay --only 'security/*' "$@")" || { printf '%s\n' "$output"; return 1; }
    printf '%s\n' "$output"
    ! grep 'needs KAFKA_' <<<"$output"
}

run_replay() {
    local pid
    python_with "${kafka_python[@]}"
    write_users
    begin_replays "first run"
    finish
    for pid in "${brokers[@]}"; do
        kill_broker "$pid"
    done
    brokers=()
    begin_replays "after kill -9"
    finish
}

has_python || { say "SKIPPED $1: there is no python3 with venv"; exit 0; }
build_broker
case "$(basename "$acceptance")" in
    produce_guide.py) run_guide ;;
    atomic_produce.py) run_atomic ;;
    replay.py) run_replay ;;
    *) fail "$1 is no program that this script knows how to start a broker for" ;;
esac
for log in "$scratch"/*.log; do
    assert_no_panic "$(basename "$log" .log)"
done
say "$(basename "$acceptance"): passed in $SECONDS s"
