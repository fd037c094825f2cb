#!/usr/bin/env bash
# Exactly once with unmodified clients: confluent-kafka, Java and franz-go each copy a topic to another in transactions
# that carry the offsets of their group, while members and the broker are killed at random; debit and credit beside it.
#
#   exactly_once.sh [BROKER-OPTION...]
#
# INPUTS (20000), BROKER_KILLS (20), CLIENT_KILLS (20, of each library) and SEED say how much, and which kills. A library
# whose tools are missing is said and left out. TIDELOG_BROKER names a broker that is built already.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
# shellcheck source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
here="$root/broker/tests/clients"

build_go() {
    go build -C "$here/go" -o "$1/copier" .
}

# Whether there is a Go that is new enough; sets `go_version`.
has_go() {
    local want
    want="$(sed -n 's/^go //p' "$here/go/go.mod")"
    go_version=none
    ! command -v go >/dev/null || go_version="$(GOTOOLCHAIN=local go env GOVERSION)"
    [[ "$(printf '%s\n' "go$want" "$go_version" | sort -V | head -n 1)" != "go$want" || "$go_version" == none ]] ||
        return 0
    say "SKIPPED franz-go: it wants Go $want or newer, here is $go_version"
    return 1
}

# Sets `copier`.
go_copier() {
    local name
    name="$(named go "$(cat "$here"/go/*)" "$go_version")"
    once "$name" build_go
    copier="$cache/$name/copier"
}

if ! has_python; then
    say "SKIPPED exactly once: there is no python3 with venv"
    exit 0
fi
build_broker
python_with "confluent-kafka==${confluent_versions[0]}"
copiers=("confluent=$python $here/copier_confluent.py")
if has_java; then
    java_classes
    copiers+=("java=$java Copier")
fi
if has_go; then
    go_copier
    copiers+=("franz-go=$copier")
fi
BROKER_OPTIONS="$*" "$python" "$here/exactly_once.py" "$program" "$scratch/exactly-once.data" "${copiers[@]}"
say "exactly once: passed in $SECONDS s"
