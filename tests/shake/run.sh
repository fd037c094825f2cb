#!/usr/bin/env bash
# Runs test programs again and again while naps.c shakes the order of their threads; what fails shows its output.
#
# shake/run.sh ROUNDS [TEST...]: each TEST is a program, such as `commit`, or a part of one, such as `space/reuse`: the
# tests of which the names begin so. Without any, all of the workspace. A name that two packages have is both. Linux
# only, and no test may then depend on how fast anything is.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
rounds="$1"
shift

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
cc -O1 -Wall -Wextra -Werror -shared -fPIC -o "$scratch/naps.so" "$here/naps.c" -ldl

# The directory of the package, the name, the program and the part, for each; the part is - where all is wanted.
programs() {
    cargo test --no-run --workspace --features tidelog/test-util --message-format json |
        python3 -c '
import json, os, sys
wanted = [(name + "/-").split("/")[:2] for name in sys.argv[1:]]
for line in sys.stdin:
    built = json.loads(line)
    if built.get("executable") and built["profile"]["test"]:
        name = built["target"]["name"]
        for part in [part for program, part in wanted or [(name, "-")] if program == name]:
            package = os.path.dirname(built["manifest_path"])
            print(package, name, built["executable"], part, sep="\t")
' "$@"
}

failed=0
count=0
found="$(programs "$@")"
if [[ -z "$found" ]]; then
    echo "shake: there is no test of that name: $*" >&2
    exit 2
fi
while IFS=$'\t' read -r package name program part; do
    part="${part#-}"
    if [[ -n "$part" ]] && ! "$program" "$part::" --list </dev/null | grep ': test$' >/dev/null; then
        echo "shake: $name has no tests of the name $part" >&2
        exit 2
    fi
    count=$((count + 1))
    for ((round = 1; round <= rounds; round++)); do
        if ! (cd "$package" &&
            LD_PRELOAD="$scratch/naps.so" timeout 1800 "$program" ${part:+"$part::"} </dev/null) \
            >"$scratch/output" 2>&1; then
            echo "shake: FAILED in round $round: $name${part:+/$part} ($package)"
            cat "$scratch/output"
            failed=$((failed + 1))
        fi
    done
done <<<"$found"
echo "shake: $count test programs, $rounds rounds each, $failed failures"
[[ "$failed" -eq 0 ]]
