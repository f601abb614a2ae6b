#!/usr/bin/env bash
# Runs the tests and ends with one line that counts them. Usage: tests/run.sh [--faults]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

status=0
run() { cargo test --release --locked --no-fail-fast "$@" 2>&1 | tee -a "$log" || status=$?; }

# The whole workspace is named each time, so that dependencies keep the features that they were compiled with.
if [[ ${1:-} == --faults ]]; then
  run --workspace --features pilothouse-e2e/faults --test faults
else
  tests/languages.sh 2>&1 | tee -a "$log" || status=$?
  run --workspace --exclude pilothouse-e2e
  # These wait for the API server most of their time: more at once than there are processors.
  RUST_TEST_THREADS=${RUST_TEST_THREADS:-8} run --workspace --test e2e
fi

# "test result: ok. 7 passed; 0 failed; …", one for each test binary.
read -r passed failed < <(awk '/^test result:/ { passed += $4; failed += $6 } END { print passed + 0, failed + 0 }' "$log")
# Names of failed tests once more, where they are seen.
sed -n '/^failures:$/,/^test result/p' "$log" | grep -E '^    [a-z_:]+' | sort -u | sed 's/^ */failed: /' || true
echo "$passed passed, $failed failed"
if ((passed == 0)); then status=1; fi
exit "$status"
