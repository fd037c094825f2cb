#!/usr/bin/env bash
# Runs unmodified clients against the broker: confluent-kafka, kafka-python, kafkajs, Java, kcat; in both profiles,
# with independent partitions, over TLS with a login, in groups, in transactions, and while the broker is killed.
# Kafka's own tools are run where KAFKA_HOME names a distribution of them.
#
# The libraries are kept in ~/.cache/tidelog-clients. A tool that is missing is said and left out; whatever fails fails
# the run. TIDELOG_BROKER names a broker that is built already.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
# shellcheck source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
here="$root/broker/tests/clients"

# What makes a member of a group, by each library, and in which kinds of groups it can be.
declare -A members=() kinds=()

# What runs a client's transactions.
declare -A transactions=()

# What runs a client; each is called with its command line, and missing where its tool is.
declare -A clients=()
readers=()

prepare_python() {
    if ! has_python; then
        say "SKIPPED confluent-kafka and kafka-python: there is no python3 with venv"
        return
    fi
    local version
    for version in "${confluent_versions[@]}"; do
        python_with "confluent-kafka==$version"
        clients["confluent-$version"]="$python $here/confluent.py"
        readers+=("confluent-$version")
        members["confluent-$version"]="$python $here/member_confluent.py"
        kinds["confluent-$version"]="eager cooperative static"
        transactions["confluent-$version"]="$python $here/transactions_confluent.py"
    done
    python_with "${kafka_python[@]}"
    clients[kafka-python]="$python $here/kafka_python.py"
    watcher="$python $here/groups.py"
    members[kafka-python]="$python $here/member_kafka_python.py"
    kinds[kafka-python]="eager cooperative static"
    transactions[kafka-python]="$python $here/transactions_kafka_python.py"
    readers+=(kafka-python)
}

install_kafkajs() {
    local packages=("${@:1:$#-1}") directory="${*: -1}"
    npm install --silent --no-audit --no-fund --prefix "$directory" "${packages[@]}"
}

prepare_kafkajs() {
    if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
        say "SKIPPED kafkajs: there is no node or no npm"
        return
    fi
    local name
    name="$(named kafkajs "${kafkajs[@]}")"
    once "$name" install_kafkajs "${kafkajs[@]}"
    export NODE_PATH="$cache/$name/node_modules"
    clients[kafkajs]="node $here/kafkajs.js"
    members[kafkajs]="node $here/member_kafkajs.js"
    kinds[kafkajs]="eager"
    transactions[kafkajs]="node $here/transactions_kafkajs.js"
    readers+=(kafkajs)
}

prepare_java() {
    has_java || return 0
    java_classes
    export ROWS="$here/rows.txt"
    members[java]="$java Member"
    kinds[java]="eager cooperative static"
    transactions[java]="$java Transactions"
    clients[java]="$java Client"
    readers+=(java)
}

prepare_kcat() {
    if ! command -v kcat >/dev/null && [[ "$(id -u)" -eq 0 ]] && command -v apt-get >/dev/null; then
        say "installing kcat"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
            --no-install-recommends kcat; } >/dev/null 2>&1 || true
    fi
    has_kcat || say "SKIPPED kcat: it is not installed"
}

has_kcat() {
    command -v kcat >/dev/null
}

# client NAME WORD...: runs a client's program against the broker at $address.
client() {
    local words
    read -ra words <<<"${clients[$1]}"
    KAFKA_BOOTSTRAP="$address" timeout 100 "${words[@]}" "${@:2}"
}

# The codecs of a client, after which its topics are called.
codecs() {
    case "$1:$2" in
        event-broker:*) echo none ;;
        kafka:kafkajs) echo none gzip snappy ;;
        *) echo none gzip snappy lz4 zstd ;;
    esac
}

expect() {
    [[ "$2" == "$3" ]] || fail "$1: got $2, want $3"
    say "ok   $1"
}

# kcat writes three records to a partition that is empty, reads them, and reads what another client wrote.
run_kcat() {
    local topic="$1" last="$2" got
    printf 'a=1\nb=\n=3\n' | kcat -b "$address" -P -t "$topic" -p 0 -K = -Z -H source=kcat -X acks=all
    got="$(kcat -q -b "$address" -C -t "$topic" -p 0 -o beginning -e -Z -f '%o %k %s %h;')"
    expect "kcat reads what it wrote" "$got" '0 a 1 source=kcat;1 b NULL source=kcat;2 NULL 3 source=kcat;'
    got="$(kcat -b "$address" -Q -t "$topic:0:-2" -t "$topic:0:-1" 2>/dev/null | tr -d '\n')"
    expect "kcat sees the end" "${got##* offset }" 3
    got="$(kcat -q -b "$address" -C -t "$topic" -p 0 -o -1 -e -f '%o')"
    expect "kcat reads from the last record on" "$got" 2
    got="$(kcat -b "$address" -L -t "$topic" | grep -c 'leader 1')"
    expect "kcat lists the partitions" "$got" 3
    got="$(kcat -q -b "$address" -C -t "$topic" -p 1 -o beginning -e -f '%o %S\n' | tail -n 1)"
    expect "kcat reads the rows of another client" "$got" "$last"
}

# Every client writes the rows with each codec; then each reads what all have written.
run_profile() {
    local profile="$1" name prefix topics=() words
    start_broker "$profile" --profile "$profile"
    for name in "${readers[@]}"; do
        prefix="rows-$name"
        read -ra words <<<"$(codecs "$profile" "$name")"
        in_background "$profile, $name writes" client "$name" write "$prefix" "${words[@]}"
        topics+=("${words[@]/#/$prefix-}")
    done
    finish
    for name in "${readers[@]}"; do
        mapfile -t words < <(printf '%s\n' "${topics[@]}")
        # It has no decoder of its own for the others.
        [[ "$name" != kafkajs ]] || mapfile -t words < <(printf '%s\n' "${topics[@]}" | grep -v 'lz4\|zstd')
        in_background "$profile, $name reads" client "$name" read "${words[@]}"
        case "$profile:$name" in
            event-broker:confluent-*)
                in_background "$profile, $name is refused" client "$name" refused \
                    "refused-$name" gzip snappy lz4 zstd
                ;;
        esac
        case "$name" in
            confluent-*) ;;
            *) in_background "$profile, $name, atomic" client "$name" atomic atomic ;;
        esac
    done
    finish
    if has_kcat; then
        local last="rows-${readers[0]}-none" count
        count="$(grep -v '^# ' "$here/rows.txt" | cut -f 1 | grep -cvw "${readers[0]}")"
        run_kcat "$last" "$((count - 1)) 1"
    fi
    stop_broker "$profile" "$broker"
}

run_independent() {
    local name
    start_broker independent --independent-partitions
    for name in "${readers[@]}"; do
        case "$name" in
            confluent-*) ;;
            *) in_background "independent partitions, $name" client "$name" atomic independent ;;
        esac
    done
    finish
    stop_broker independent "$broker"
}

# The same over TLS with a login: what is granted works, and an unknown password does not.
run_secured() {
    if ! command -v openssl >/dev/null; then
        say "SKIPPED TLS and logins: there is no openssl"
        return
    fi
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=tidelog \
        -addext subjectAltName=IP:127.0.0.1 -keyout "$scratch/key.pem" -out "$scratch/ca.pem" \
        2>"$scratch/openssl.log" || fail "openssl: $(cat "$scratch/openssl.log")"
    printf 'writer:%s\n' "$(printf 'secret' | "$program" hash-password)" >"$scratch/users"
    printf 'writer All rows-*\nwriter GroupRead *\n' >"$scratch/grants"
    start_broker secured --users "$scratch/users" --grants "$scratch/grants" \
        --tls-cert "$scratch/ca.pem" --tls-key "$scratch/key.pem"
    export KAFKA_CA="$scratch/ca.pem" KAFKA_USERNAME=writer KAFKA_PASSWORD=secret
    local name topics=()
    for name in "${readers[@]}"; do
        in_background "TLS and login, $name writes" client "$name" write "rows-$name" none
        topics+=("rows-$name-none")
    done
    finish
    for name in "${readers[@]}"; do
        in_background "TLS and login, $name reads" client "$name" read "${topics[@]}"
    done
    finish
    if has_kcat; then
        local options=(-X security.protocol=sasl_ssl -X "ssl.ca.location=$KAFKA_CA" -b "$address"
            -X sasl.mechanism=PLAIN -X sasl.username=writer) output
        output="$(kcat "${options[@]}" -X sasl.password=secret -L | grep -c 'topic "rows-')"
        expect "kcat with a login sees the topics" "$output" "${#topics[@]}"
        output="$(kcat "${options[@]}" -X sasl.password=wrong -L -m 5 2>&1 || true)"
        grep -q 'uthentication' <<<"$output" || fail "kcat with a wrong password: $output"
        say "ok   kcat with a wrong password is told so"
    fi
    unset KAFKA_CA KAFKA_USERNAME KAFKA_PASSWORD
    stop_broker secured "$broker"
}

# Compacted topics with gaps, tombstones, compressed batches and a tail that is gone: each client reads them to their ends.
run_cleaned() {
    local name codec writer=""
    for name in "${readers[@]}"; do
        [[ "$name" != confluent-* || -n "$writer" ]] || writer="$name"
    done
    if [[ -z "$writer" ]]; then
        say "SKIPPED cleaned topics: confluent-kafka makes them"
        return
    fi
    start_broker cleaned --group-initial-rebalance-delay-ms 0
    for codec in none gzip snappy lz4 zstd; do
        in_background "cleaned, $codec" client "$writer" clean "$scratch/cleaned-$codec" "$codec"
    done
    finish
    cat "$scratch"/cleaned-{none,gzip,snappy,lz4,zstd} >"$scratch/cleaned"
    for name in "${readers[@]}"; do
        [[ "$name" == kafkajs ]] || in_background "cleaned, $name reads" client "$name" cleaned "$scratch/cleaned"
    done
    finish
    # It writes behind the ends.
    if [[ -n "${clients[kafkajs]:-}" ]]; then
        in_background "cleaned, kafkajs reads" client kafkajs cleaned "$scratch/cleaned"
        finish
    fi
    stop_broker cleaned "$broker"
}

# Three members of a group: one is killed, another comes, and static ones come back.
run_groups() {
    if [[ -z "${watcher:-}" ]]; then
        say "SKIPPED groups: kafka-python looks after their members"
        return
    fi
    local name words of member
    # Sessions are short, so that a killed member is missed soon.
    start_broker groups --group-initial-rebalance-delay-ms 500 --group-min-session-timeout-ms 1000
    for name in "${!members[@]}"; do
        read -ra words <<<"$watcher"
        read -ra of <<<"${kinds[$name]}"
        read -ra member <<<"${members[$name]}"
        in_background "groups, $name" env "KAFKA_BOOTSTRAP=$address" \
            timeout 150 "${words[@]}" "$name" "${of[@]}" -- "${member[@]}"
    done
    finish
    stop_broker groups "$broker"
}

# Commits, aborts, offsets inside them and a producer that takes over, by each library, under both rules.
run_transactions() {
    local name words rule options
    for rule in atomic independent; do
        options=()
        [[ "$rule" == atomic ]] || options=(--independent-partitions)
        start_broker "transactions-$rule" --group-initial-rebalance-delay-ms 0 "${options[@]}"
        for name in "${!transactions[@]}"; do
            read -ra words <<<"${transactions[$name]}"
            in_background "transactions, $rule, $name" env "KAFKA_BOOTSTRAP=$address" \
                timeout 100 "${words[@]}" "tx-$name"
        done
        finish
        stop_broker "transactions-$rule" "$broker"
    done
}

# Producers, a consumer and a group that live on while the broker is killed under them again and again.
run_restarts() {
    has_python || return 0
    python_with "confluent-kafka==${confluent_versions[0]}" "${kafka_python[@]}"
    "$python" "$here/restarts.py" "$program" "$scratch/restarts.data" 5 |
        tail -n 20
}

# Read-process-write of three libraries at once, disturbed a little; exactly_once.sh by itself disturbs it more.
run_exactly_once() {
    TIDELOG_BROKER="$program" INPUTS=2400 BROKER_KILLS=2 CLIENT_KILLS=2 bash "$here/exactly_once.sh"
}

build_broker
prepare_python
prepare_kafkajs
prepare_java
prepare_kcat
[[ "${#readers[@]}" -gt 0 ]] || fail "there is not one client to run"
run_profile kafka
run_profile event-broker
run_independent
run_secured
run_cleaned
run_groups
run_transactions
run_restarts
run_exactly_once
TIDELOG_BROKER="$program" bash "$here/kafka_tools.sh"
say "clients: all passed in $SECONDS s: ${readers[*]}"
