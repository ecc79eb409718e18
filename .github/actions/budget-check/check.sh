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
told=$(mktemp)
trap 'rm -f "$started" "$told"' EXIT
{ "${check[@]}" 2>&1 >&3 3>&- | tee "$told" >&2; code=${PIPESTATUS[0]}; } 3>&1

case $code in
  0) verdict=pass ;;
  1) verdict=fail ;;
  3) verdict=inconclusive ;;
  4) verdict=invalid ;;
  *) verdict="" ;;
esac
echo "verdict=$verdict" >>"$GITHUB_OUTPUT"
# An older report must not be shown where the check could not begin.
if [ -z "$verdict" ] || [ ! "$OUT/report.json" -nt "$started" ]; then
  error=$(tail -n 1 "$told")
  error=${error//"%"/"%25"}
  if [ -n "$error" ]; then echo "::error title=framefit budget-check::${error//$'\r'/%0D}"; fi
  exit "$code"
fi

show=(budget-check report "$OUT/report.json" --out "$OUT" --github --step-summary "$GITHUB_STEP_SUMMARY")
if [ -n "$BASE" ] && [ -f "$BASE" ]; then show+=(--base "$BASE"); fi
if [ -n "$HISTORY" ]; then show+=(--history "$HISTORY" --label "${GITHUB_SHA:0:9}"); fi
"${show[@]}" || exit $?
exit "$code"
