# shellcheck shell=bash
# Shared by the scripts here and acceptance.sh: the client libraries in a cache, and brokers on free ports.
# shellcheck disable=SC2034 # What is set here is used by the scripts that take this in.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/tidelog-clients"
scratch="$(mktemp -d)"
brokers=()
jobs=()

# The versions of confluent-kafka that are run; the first is what most commands use.
confluent_versions=(2.16.1 2.8.2 2.4.0)
kafka_python=(kafka-python==3.0.12 python-snappy==0.7.3 lz4==4.4.5 zstandard==0.25.0)
kafkajs=(kafkajs@2.2.4 kafkajs-snappy@1.1.0)

say() {
    printf '%s\n' "$*"
}

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

clean_up() {
    local status="$?" pid
    for pid in "${jobs[@]}" "${brokers[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    if [[ "$status" -ne 0 && -n "${TIDELOG_KEEP_LOGS:-}" ]]; then
        say "what the brokers wrote is in $scratch"
    else
        rm -rf "$scratch"
    fi
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Builds the broker, unless TIDELOG_BROKER names one, and sets `program`.
build_broker() {
    if [[ -n "${TIDELOG_BROKER:-}" ]]; then
        program="$TIDELOG_BROKER"
        return
    fi
    export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/tidelog-target}"
    bash "$root/.ci/rocksdb" with \
        cargo build --quiet --manifest-path "$root/Cargo.toml" --package tidelog-broker
    # A copy: another build may replace the file while brokers are started from it.
    program="$scratch/tidelog-broker"
    cp "$CARGO_TARGET_DIR/debug/tidelog-broker" "$program"
}

# start_broker NAME [OPTION...]: starts one on the data of that name, and waits until it serves. Sets
# `address` and `broker`, its process. Without a --listen the port is one that is free.
start_broker() {
    local name="$1" log="$scratch/$1.log" turn
    shift
    local listen=(--listen 127.0.0.1:0)
    [[ " $* " != *" --listen "* ]] || listen=()
    : >>"$log"
    local from
    from="$(($(wc -l <"$log") + 1))"
    "$program" --data-dir "$scratch/$name.data" "${listen[@]}" "$@" >>"$log" 2>&1 &
    broker="$!"
    brokers+=("$broker")
    for ((turn = 0; turn < 600; turn++)); do
        address="$(tail -n "+$from" "$log" | sed -n 's/.* serving listen=\([^ ]*\).*/\1/p')"
        [[ -z "$address" ]] || return 0
        kill -0 "$broker" 2>/dev/null || break
        sleep 0.05
    done
    cat "$log" >&2
    fail "the broker $name did not start"
}

# stop_broker NAME PID: ends it as an operator does. It must end cleanly, and have panicked nowhere.
stop_broker() {
    kill -TERM "$2"
    wait "$2" || fail "the broker $1 ended with status $?: $(tail -n 3 "$scratch/$1.log")"
    assert_no_panic "$1"
}

kill_broker() {
    kill -KILL "$1"
    wait "$1" 2>/dev/null || true
}

assert_no_panic() {
    if grep -n 'panicked' "$scratch/$1.log" >&2; then
        fail "the broker $1 panicked"
    fi
}

# in_background NAME COMMAND...: its output goes to a file, until `finish` shows it.
in_background() {
    local name="$1"
    shift
    "$@" >"$scratch/$name.out" 2>&1 &
    jobs+=("$!")
    job_names+=("$name")
}
job_names=()

# Waits for all that was begun, in order; shows what failed, and of the others the last line.
finish() {
    local at failed=0
    for at in "${!jobs[@]}"; do
        if wait "${jobs[$at]}"; then
            say "${job_names[$at]}: $(tail -n 1 "$scratch/${job_names[$at]}.out")"
        else
            failed=1
            say "${job_names[$at]} FAILED:"
            grep -v '^ok \|^skip ' "$scratch/${job_names[$at]}.out" || true
        fi
    done
    jobs=()
    job_names=()
    [[ "$failed" -eq 0 ]] || fail "see above"
}

# Runs a command that makes the directory $cache/NAME, once for each name.
once() {
    local directory="$cache/$1"
    shift
    [[ ! -e "$directory/.complete" ]] || return 0
    rm -rf "$directory"
    mkdir -p "$directory"
    "$@" "$directory"
    touch "$directory/.complete"
}

# A name that changes with what it stands for.
named() {
    printf '%s-%s' "$1" "$(printf '%s ' "${@:2}" | cksum | cut -d ' ' -f 1)"
}

make_venv() {
    local directory="${*: -1}" packages=("${@:1:$#-1}")
    python3 -m venv "$directory"
    "$directory/bin/python" -m pip --quiet --disable-pip-version-check install \
        --only-binary :all: "${packages[@]}"
}

# python_with PACKAGE...: sets `python` to an interpreter that has these packages.
python_with() {
    local name
    name="$(named python "$(python3 -V)" "$@")"
    once "$name" make_venv "$@"
    python="$cache/$name/bin/python"
}

# The jars, and our classes compiled against them.
install_java() {
    local sources="$root/broker/tests/clients/java"
    mvn --quiet --batch-mode -Dstyle.color=never --file "$sources/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$1"
    javac -d "$1" -cp "$1/*" "$sources"/*.java
}

has_java() {
    command -v javac >/dev/null && command -v mvn >/dev/null && return 0
    say "SKIPPED the Java client: there is no javac or no mvn"
    return 1
}

# Sets `java` to a command that runs our classes, of which it lacks the name.
java_classes() {
    local name sources="$root/broker/tests/clients/java"
    name="$(named java "$(cat "$sources/pom.xml" "$sources"/*.java)" "$(javac -version)")"
    once "$name" install_java
    java="java -Xshare:auto -XX:TieredStopAtLevel=1 -cp $cache/$name:$cache/$name/*"
}

has_python() {
    python3 -c 'import ensurepip, venv' 2>/dev/null
}
