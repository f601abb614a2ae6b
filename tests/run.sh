#!/usr/bin/env bash
# Runs the tests and ends with one line that counts them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

arguments=(test --release --locked --no-fail-fast)
if [[ ${1:-} == --faults ]]; then
  arguments+=(--package pilothouse-e2e --features faults --test faults)
else
  arguments+=(--workspace)
fi
status=0
cargo "${arguments[@]}" 2>&1 | tee "$log" || status=$?

# "test result: ok. 7 passed; 0 failed; …", one for each test binary.
read -r passed failed < <(awk '/^test result:/ { passed += $4; failed += $6 } END { print passed + 0, failed + 0 }' "$log")
# Names of failed tests once more, where they are seen.
sed -n '/^failures:$/,/^test result/p' "$log" | grep -E '^    [a-z_:]+' | sort -u | sed 's/^ */failed: /' || true
echo "$passed passed, $failed failed"
if ((passed == 0)); then status=1; fi
exit "$status"
