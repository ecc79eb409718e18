#!/usr/bin/env bash
# Runs budget-check, then shows its report; ends with the exit code of the check.
set -uo pipefail

check=(budget-check --budget "$BUDGET" --tier "$TIER" --out "$OUT")
if [ -n "$PIPELINE" ]; then check+=(--pipeline "$PIPELINE"); fi
if [ -n "$SAMPLES" ]; then check+=(--samples "$SAMPLES"); fi
if [ -n "$LEDGER" ]; then check+=(--ledger "$LEDGER"); fi
read -r -d "" -a more <<<"$ARGUMENTS" # Its code is 1 at the end of the text.
check+=(${more[@]+"${more[@]}"})
if [ -n "$MODEL" ]; then check+=("$MODEL"); fi
started=$(mktemp)
trap 'rm -f "$started"' EXIT
"${check[@]}"
code=$?

case $code in
  0) verdict=pass ;;
  1) verdict=fail ;;
  3) verdict=inconclusive ;;
  4) verdict=invalid ;;
  *) verdict="" ;;
esac
echo "verdict=$verdict" >>"$GITHUB_OUTPUT"
# An older report must not be shown where the check could not begin.
if [ -z "$verdict" ] || [ ! "$OUT/report.json" -nt "$started" ]; then exit "$code"; fi

show=(budget-check report "$OUT/report.json" --out "$OUT" --github --step-summary "$GITHUB_STEP_SUMMARY")
if [ -n "$BASE" ] && [ -f "$BASE" ]; then show+=(--base "$BASE"); fi
if [ -n "$HISTORY" ]; then show+=(--history "$HISTORY" --label "${GITHUB_SHA:0:9}"); fi
"${show[@]}" || exit $?
exit "$code"
