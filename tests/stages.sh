# shellcheck shell=bash
# Stages of a test run. Each stage prints how long it took. Stages can run beside others, and a failing stage does not
# end the others. The records of stages and tests in $RECORD become the summary and target/times.tsv.

RECORD=target/tests
TIMES=target/times.tsv
# Tests that were flaky on this machine, over all runs: day, commit, test.
FLAKY_LOG=${XDG_CACHE_HOME:-$HOME/.cache}/infill/flaky.tsv
# Number of slowest tests that the summary lists.
readonly SLOWEST=15

declare -A LANE_PID=()

# Also from a lane, whose output waits until it is finished.
exec 3>&2
say() { printf 'tests: %s\n' "$*" >&3; }

# Seconds since the run began.
elapsed() { awk -v from="$RUN_START" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f", to - from }'; }

start_record() {
    RUN_START=$EPOCHREALTIME
    rm -rf --one-file-system "$RECORD"
    mkdir -p "$RECORD"
    RECORD=$(realpath "$RECORD")
    touch "$RECORD"/{stages.tsv,skips,flaky,clusters.tsv}
    export INFILL_TEST_RECORD=$RECORD INFILL_SKIPS=$RECORD/skips
    trap end_lanes EXIT
    trap 'exit 130' INT TERM
}

# stage NAME CMD…: runs it, and records its times and whether it passed.
stage() {
    local name=$1 start seconds result=passed code=0
    shift
    say "$name"
    start=$(elapsed)
    "$@" || code=$?
    seconds=$(awk -v from="$start" -v to="$(elapsed)" 'BEGIN { printf "%.1f", to - from }')
    ((code == 0)) || result=FAILED
    printf '%s\t%s\t%s\t%s\n' "$name" "$start" "$seconds" "$result" >>"$RECORD/stages.tsv"
    say "$name: $result in $seconds s"
    return "$code"
}

# begin LANE CMD…: runs stages beside the following ones. `finish LANE` waits for them and shows their output.
begin() {
    local lane=$1
    shift
    # In its own process group, which end_lanes can end as a whole.
    set -m
    run_lane "$@" >"$RECORD/$lane.log" 2>&1 </dev/null &
    LANE_PID[$lane]=$!
    set +m
}

run_lane() {
    trap - EXIT INT TERM
    "$@"
}

finish() {
    local lane=$1 code=0
    wait "${LANE_PID[$lane]}" || code=$?
    unset "LANE_PID[$lane]"
    cat "$RECORD/$lane.log"
    return "$code"
}

end_lanes() {
    local pid
    for pid in "${LANE_PID[@]}"; do
        kill -TERM -- "-$pid" 2>/dev/null || true
    done
}

# Both are for a lane, and affect everything that it starts from then on.
at_low_priority() {
    renice -n 19 -p "$BASHPID" >/dev/null && "$@"
}

at_idle_priority() {
    chrt --idle -p 0 "$BASHPID" && at_low_priority "$@"
}

# run_tests NAME BINARY ARG…: runs the tests of one binary and prints the seconds of each. Their names begin with
# $TEST_PREFIX. The flag for seconds is unstable, so the variable that allows it is set for this process alone.
run_tests() {
    local name=$1 binary=$2
    shift 2
    # cargo would report each test that waits for a cluster as slow.
    RUSTC_BOOTSTRAP=1 "$binary" -Z unstable-options --report-time "$@" 2>&1 |
        sed -u "/ has been running for over 60 seconds\$/d; s/^test \([A-Za-z0-9_:]* \.\.\.\)/test ${TEST_PREFIX-}\1/" |
        tee -a "$RECORD/$name.tests"
    return "${PIPESTATUS[0]}"
}

# Names of the tests that failed in a stage.
failed_tests() { sed -nE 's/^test ([A-Za-z0-9_:]+) \.\.\. FAILED.*$/\1/p' "$RECORD/$1.tests"; }

# note_flaky TEST…
note_flaky() {
    local test
    mkdir -p "${FLAKY_LOG%/*}"
    for test; do
        echo "$test" >>"$RECORD/flaky"
        printf '%s\t%s\t%s\n' "$(date +%F)" "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" "$test" >>"$FLAKY_LOG"
    done
}

# Rows of target/times.tsv: stages, and tests with their own seconds, without the time that they waited for a cluster.
write_times() {
    local file
    {
        printf 'kind\tname\tseconds\twaited\tcluster_made\tcluster_restored\tcommands\tresult\n'
        awk -F'\t' -v OFS='\t' '{ print "stage", $1, $3, "", "", "", "", $4 }' "$RECORD/stages.tsv"
        for file in "$RECORD"/*.tests; do
            [[ -e $file ]] || continue
            awk -v OFS='\t' -v kind="$(basename "$file" .tests)" '
                FILENAME ~ /clusters.tsv$/ { split($0, f, "\t"); waited[f[1]] = f[3]; rest[f[1]] = f[4] OFS f[5] OFS f[6]; next }
                /^test .* \.\.\. [A-Za-z]+ <[0-9.]+s>/ {
                    seconds = $NF
                    gsub(/[<>s]/, "", seconds)
                    name = $2
                    print kind, name, sprintf("%.2f", seconds - waited[name]), waited[name], (name in rest ? rest[name] : OFS OFS), $(NF - 1)
                }' "$RECORD/clusters.tsv" "$file"
        done
        [[ ! -e $RECORD/python.tsv ]] ||
            awk -F'\t' -v OFS='\t' '{ print "python", $1, $2, "", "", "", "", "" }' "$RECORD/python.tsv"
    } >"$TIMES"
}

show_times() {
    echo
    echo "Stages (second of the start, seconds, result)"
    sort -t$'\t' -k2,2n "$RECORD/stages.tsv" | awk -F'\t' '{ printf "  %7.1f %7.1f  %-8s %s\n", $2, $3, $4, $1 }'
    echo
    echo "Slowest tests (seconds, without the wait for a cluster, which the next column has; all tests: $TIMES)"
    # awk reads all of its input: a pipe that ends early would fail its writer.
    awk -F'\t' 'NR > 1 && $1 != "stage"' "$TIMES" | sort -t$'\t' -k3,3nr |
        awk -F'\t' -v most="$SLOWEST" 'NR <= most { printf "  %7.1f %s  %s %s\n", $3, ($4 == "" ? "         " : sprintf("(+%6.1f)", $4)), $1, $2 }'
    if [[ -s $RECORD/clusters.tsv ]]; then
        awk -F'\t' '{ held += $2; made += $4; restored += $5; commands += $6; n++ } END {
            printf "\nClusters: lent %d times for %.0f s in all (%.0f s to make and %.0f s to restore them); %d commands inside\n", n, held + made, made, restored, commands
        }' "$RECORD/clusters.tsv"
    fi
}

# The slowest main jobs of the cluster tests. tests/it/promptness.rs has the limit.
show_delays() {
    [[ -s $RECORD/delays.tsv ]] || return 0
    echo
    echo "Main jobs: $(wc -l <"$RECORD/delays.tsv"); the slowest to start (seconds, test)"
    sort -t$'\t' -k3,3nr "$RECORD/delays.tsv" | awk -F'\t' -v most=5 'NR <= most { printf "  %7.2f  %s\n", $3, $1 }'
}

# Counts how often each was flaky on this machine.
show_flaky() {
    [[ -s $RECORD/flaky ]] || return 0
    echo
    echo "FLAKY: failed beside others, passed alone (times on this machine so far; $FLAKY_LOG)"
    sort -u "$RECORD/flaky" | while read -r test; do
        printf '  %4d  %s\n' "$(awk -F'\t' -v test="$test" '$3 == test' "$FLAKY_LOG" | wc -l)" "$test"
    done
}

# What each failed test said first, also of those that passed when they ran again.
show_failures() {
    local file texts=()
    for file in "$RECORD"/*.tests; do
        [[ ! -e $file ]] || texts+=("$file")
    done
    ((${#texts[@]})) || return 0
    awk -v most=20 '
        /^---- .* stdout ----$/ { test = $2; left = 0 }
        test != "" && /^Error: / { if (++shown <= most) print "  " test "\n      " substr($0, 1, 300); test = "" }
        test != "" && /panicked at / { if (++shown <= most) { print "  " test; left = 2 }; test = ""; next }
        left > 0 { print "      " substr($0, 1, 300); left-- }
        END { if (shown > most) print "  and " shown - most " more" }' "${texts[@]}" >"$RECORD/failures"
    [[ -s $RECORD/failures ]] || return 0
    echo
    echo "Failures (test, what it said)"
    cat "$RECORD/failures"
}

show_skips() {
    [[ -s $RECORD/skips ]] || return 0
    echo
    echo "Skipped: $(sort -u "$RECORD/skips" | wc -l)"
    sort -u "$RECORD/skips" | sed 's/^/  /'
}

# Prints the record of the run; fails if a stage failed.
conclude() {
    local failed
    write_times
    show_times
    show_skips
    show_delays
    show_failures
    show_flaky
    echo
    failed=$(awk -F'\t' '$4 == "FAILED" { printf "%s%s", separator, $1; separator = ", " }' "$RECORD/stages.tsv")
    if [[ -n $failed ]]; then
        say "FAILED after $(elapsed) s: $failed"
        return 1
    fi
    say "all passed in $(elapsed) s"
}
