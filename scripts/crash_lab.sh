#!/usr/bin/env bash
# Run one half of the crash lab, "stores" or "runs": scripts/crash_lab.sh HALF [--rest]
#
# A change of src/holdfast/runs needs only the second half again. Each half has its own ledger in build/. With --rest,
# tests that have passed stay in the ledger and are not repeated: see tests/crash/ledger.py.
set -euo pipefail
half=$1
ledger=$PWD/build/crash-lab-$half.jsonl
passed=build/crash-lab-$half-passed
mkdir -p build

if [ "${2:-}" = --rest ]; then
  if [ -e "$passed" ]; then exit 0; fi
else
  rm -f "$ledger" "$passed"
fi

# Every test that writes to the ledger takes part.
runs=(-e tests/crash/test_interrupts.py -e tests/runs/)
files=$({ ls tests/crash/test_*.py; grep -rl --include='test_*.py' 'tests\.crash.*ledger' tests; } | sort -u)
case $half in
  runs) files=$(grep "${runs[@]}" <<<"$files") ;;
  stores) files=$(grep -v "${runs[@]}" <<<"$files") ;;
  *) echo "There are two halves, stores and runs, not '$half'." >&2; exit 2 ;;
esac

# The time-out is long, because a sweep takes long without hanging.
# shellcheck disable=SC2086
HOLDFAST_STORES=all HOLDFAST_LAB=full HOLDFAST_SWEEP=full HOLDFAST_KILL_ROUNDS=1000 HOLDFAST_LAB_LEDGER=$ledger \
  .venv/bin/pytest -n 2 --dist worksteal -o faulthandler_timeout=7200 -p no:cacheprovider \
  -p tests.crash.ledger $files
.venv/bin/python -m tests.crash.report "$half" "$ledger"
touch "$passed"
