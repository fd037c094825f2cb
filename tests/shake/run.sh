#!/usr/bin/env bash
# Runs test programs again and again while naps.c shakes the order of their threads; what fails shows its output.
#
# shake/run.sh ROUNDS [TEST...]: the tests by the names of their files; without any, all of the workspace. A name that
# two packages have, such as `transactions`, is both. Linux only, and no test may then depend on how fast anything is.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
rounds="$1"
shift

scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
cc -O1 -Wall -Wextra -Werror -shared -fPIC -o "$scratch/naps.so" "$here/naps.c" -ldl

# The directory of the package and the program, for each.
programs() {
    cargo test --no-run --workspace --features tidelog/test-util --message-format json |
        python3 -c '
import json, os, sys
for line in sys.stdin:
    built = json.loads(line)
    if built.get("executable") and built["profile"]["test"]:
        name = built["target"]["name"]
        if not sys.argv[1:] or name in sys.argv[1:]:
            print(os.path.dirname(built["manifest_path"]), name, built["executable"], sep="\t")
' "$@"
}

failed=0
count=0
found="$(programs "$@")"
if [[ -z "$found" ]]; then
    echo "shake: there is no test of that name: $*" >&2
    exit 2
fi
while IFS=$'\t' read -r package name program; do
    count=$((count + 1))
    for ((round = 1; round <= rounds; round++)); do
        if ! (cd "$package" && LD_PRELOAD="$scratch/naps.so" timeout 600 "$program" </dev/null) \
            >"$scratch/output" 2>&1; then
            echo "shake: FAILED in round $round: $name ($package)"
            cat "$scratch/output"
            failed=$((failed + 1))
        fi
    done
done <<<"$found"
echo "shake: $count test programs, $rounds rounds each, $failed failures"
[[ "$failed" -eq 0 ]]
