#!/usr/bin/env bash
# The demo: a real Slurm cluster on this machine, a main queue that leaves gaps, and three malleable jobs that fill
# them.
set -euo pipefail

HERE=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
REPOSITORY=$(cd "$HERE/.." && pwd)
MINICLUSTER=$REPOSITORY/slurm/minicluster/minicluster
readonly HERE REPOSITORY MINICLUSTER

usage() {
    cat <<'END_OF_USAGE'
demo.sh: infill on a real Slurm cluster on this machine, in about five minutes

Usage: examples/demo.sh [OPTIONS]

Builds infill, starts a cluster of eight nodes, and submits three malleable jobs and a main queue of 18 jobs. It shows
what happens, and ends with a summary from Slurm's own accounting. The first time, it also runs the main queue without
infill, to compare.

Options:
  --headless             print a line every ten seconds instead of the live view (the default without a terminal)
  --json FILE            also write the summary to FILE
  --shared               use nodes that jobs share: main jobs of 1 to 8 GPUs on two nodes with four GPUs, and lent GPUs
  --baseline             only run the main queue without infill, and store how long its jobs waited
  --bin FILE             use this program, for example from a package, instead of building one
  --baseline-file FILE   store these waits in FILE (default: in ${XDG_CACHE_HOME:-~/.cache}/infill)
  --dir DIR              where the cluster lives (default /var/lib/infill-demo)
  --release R            trixie (Slurm 24.11, the default) or sid
  --keep                 leave the cluster and the daemon running at the end

Needs root on Debian 12 or 13, Rust, and a network the first time. It leaves nothing running, even after an error.
Exit: 0 success, 1 failure, 2 wrong usage.
END_OF_USAGE
}

HEADLESS=no
JSON=
SHARED=no
ONLY_BASELINE=no
BASELINE=
BIN=
DIR=/var/lib/infill-demo
RELEASE=trixie
KEEP=no
DRIVER=

# The driver's arguments.
SHARE=()

# Whether `finish` takes the cluster down, and the stage that it names if the demo broke off.
UP=no
STAGE="setting up"

# The search for the daemon's ports starts here, below the ports of the clusters.
readonly FIRST_PORT=6810 LAST_PORT=6999
readonly DAEMON_SECS=30
readonly BF_RESOLUTION=1

# When an epilog ends, slurmctld looks at its queue at once, as `infill doctor` advises.
readonly EPILOG=/bin/true

say() { printf 'demo: %s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

parse_options() {
    while (($#)); do
        case $1 in
        --headless) HEADLESS=yes ;;
        --shared) SHARED=yes ;;
        --baseline) ONLY_BASELINE=yes ;;
        --keep) KEEP=yes ;;
        --json | --bin | --baseline-file | --dir | --release)
            (($# >= 2)) || wrong_usage "$1 needs a value"
            set_option "$1" "$2"
            shift
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *) wrong_usage "unknown option: $1" ;;
        esac
        shift
    done
    [[ $RELEASE =~ ^(trixie|sid)$ ]] || wrong_usage "--release must be trixie or sid"
    DIR=$(readlink -m "$DIR")
    [[ $SHARED = no ]] || SHARE=(--shared)
    [[ -n $BASELINE ]] || BASELINE=${XDG_CACHE_HOME:-$HOME/.cache}/infill/demo-baseline-$(load_hash)-$RELEASE.json
    [[ -t 0 && -t 1 ]] || HEADLESS=yes
}

set_option() {
    case $1 in
    --json) JSON=$2 ;;
    --bin) BIN=$2 ;;
    --baseline-file) BASELINE=$2 ;;
    --dir) DIR=$2 ;;
    --release) RELEASE=$2 ;;
    esac
}

wrong_usage() {
    say "$1"
    say "see examples/demo.sh --help"
    exit 2
}

# A baseline is valid for one load on one configuration of Slurm.
load_hash() {
    {
        echo "$BF_RESOLUTION $EPILOG" "${SHARE[@]}"
        cat "$HERE/demo/load.tsv" "$REPOSITORY/slurm/minicluster/etc/slurm.conf" "$REPOSITORY/slurm/slurm.conf.infill"
    } | sha256sum | cut -c1-12
}

cluster() {
    local command=$1
    shift
    "$MINICLUSTER" "$command" --dir "$DIR" "$@"
}

up() {
    STAGE="starting the cluster"
    # A cluster of another run, or one that was kept, has its own jobs and accounting.
    cluster down 2>/dev/null || true
    UP=yes
    local size=(--nodes 8)
    [[ $SHARED = no ]] || size=(--nodes 2 --gpus 4)
    cluster up "${size[@]}" --release "$RELEASE" --bin "${BIN:-${CARGO_TARGET_DIR:-$REPOSITORY/target}/debug/infill}" --set "Epilog=$EPILOG"
    plan_by_the_second
}

# By default backfill rounds times to whole minutes. That is fine for jobs of hours, but these take less than a
# minute.
plan_by_the_second() {
    cluster exec -- sed -Ei "s/^(SchedulerParameters=.*bf_resolution=)[0-9]+/\1$BF_RESOLUTION/" /etc/slurm/slurm.conf
    cluster exec -- scontrol reconfigure
    cluster exec -- scontrol show config | grep -q "^SchedulerParameters.*bf_resolution=$BF_RESOLUTION\b" ||
        die "bf_resolution could not be set"
}

down() {
    keep_outputs
    cluster down 2>/dev/null || true
    UP=no
}

# The jobs' output lies in the cluster, which goes away.
keep_outputs() {
    [[ ! -d $DIR/scratch/demo ]] || cp -a "$DIR/scratch/demo" "$DIR/log/" || true
}

# Leaves its process id in DRIVER, because a shell that waits for a background process can be interrupted.
start_driver() {
    "$MINICLUSTER" exec --dir "$DIR" -- python3 -B /opt/infill/examples/demo/demo.py "$@" "${SHARE[@]}" </dev/null &
    DRIVER=$!
}

run_baseline() {
    up
    STAGE="running the main queue without infill"
    start_driver baseline --work /scratch/demo --out /scratch/demo/baseline.json
    wait "$DRIVER"
    mkdir -p "$(dirname "$BASELINE")"
    # Only a complete baseline gets the name.
    cp "$DIR/scratch/demo/baseline.json" "$BASELINE.new"
    mv "$BASELINE.new" "$BASELINE"
    say "kept $BASELINE"
    down
}

free_port() {
    local port
    for ((port = FIRST_PORT; port <= LAST_PORT; port++)); do
        (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null || {
            echo "$port"
            return
        }
    done
    die "no free port from $FIRST_PORT to $LAST_PORT"
}

start_daemon() {
    STAGE="starting the daemon"
    local port
    port=$(free_port)
    local lend=nodes
    [[ $SHARED = no ]] || lend=gpus
    sed "s/@PORT@/$port/g; s/@LEND@/$lend/" "$HERE/demo/infill.toml" >"$DIR/etc/infill.toml"
    "$MINICLUSTER" exec --dir "$DIR" --user infill -- infill serve </dev/null >"$DIR/log/infill.log" 2>&1 &
    await_daemon "$!" "$port"
    say "the daemon runs: http://127.0.0.1:$port, log $DIR/log/infill.log"
}

await_daemon() {
    local pid=$1 port=$2 end=$((SECONDS + DAEMON_SECS))
    until is_healthy "$port"; do
        kill -0 "$pid" 2>/dev/null || die "infill serve ended"
        ((SECONDS < end)) || die "infill serve does not answer after $DAEMON_SECS s"
        sleep 0.3
    done
}

# curl is in the cluster; this machine may lack it.
is_healthy() { cluster exec -- curl -sf --max-time 5 -o /dev/null "http://127.0.0.1:$1/healthz"; }

run_demo() {
    up
    start_daemon
    STAGE="filling the gaps"
    cp "$BASELINE" "$DIR/scratch/baseline.json"
    local arguments=(harvest --work /scratch/demo --out /scratch/demo/summary.json --baseline /scratch/baseline.json)
    local code=0
    if [[ $HEADLESS = yes ]]; then
        start_driver "${arguments[@]}"
    else
        start_driver "${arguments[@]}" >"$DIR/log/demo.log" 2>&1
        watch_driver "$DIR/log/demo.log"
    fi
    wait "$DRIVER" || code=$?
    [[ -z $JSON || ! -f $DIR/scratch/demo/summary.json ]] || cp "$DIR/scratch/demo/summary.json" "$JSON"
    ((code == 0)) || die "some checks of the demo failed"
}

# The live view, until the driver ends. After quitting the view one sees the driver's lines instead.
watch_driver() {
    local log=$1 view
    "$MINICLUSTER" exec --dir "$DIR" --user infill -- infill status --watch </dev/tty &
    view=$!
    wait -n "$DRIVER" "$view" || true
    if kill -0 "$DRIVER" 2>/dev/null; then
        wait "$view" || true
        tail -n +1 -f --pid="$DRIVER" "$log" &
        wait "$!"
    else
        kill "$view" 2>/dev/null || true
        wait "$view" 2>/dev/null || true
        cat "$log"
    fi
}

show_failure() {
    say "failed while $STAGE"
    local file
    for file in "$DIR"/log/infill.log "$DIR"/scratch/demo/*/*.out; do
        [[ -s $file ]] || continue
        say "the end of $file:"
        tail -n 15 "$file" >&2
    done
}

finish() {
    local code=$?
    trap - EXIT
    # A second Ctrl-C must not stop the cleanup.
    trap '' INT TERM
    if [[ $UP = yes ]]; then
        ((code == 0 || code == 130)) || show_failure
        if [[ $KEEP = yes && $code -ne 130 ]]; then
            say "the cluster still runs: slurm/minicluster/minicluster shell --dir $DIR; end it with … down --dir $DIR"
        else
            down
        fi
    fi
    exit "$code"
}

main() {
    parse_options "$@"
    ((EUID == 0)) || die "needs root: the cluster is made of namespaces and runs daemons as several users"
    [[ -z $JSON ]] || : >>"$JSON" || die "cannot write $JSON"
    [[ -z $BIN || -x $BIN ]] || die "no program: $BIN"
    "$REPOSITORY/tests/setup.sh" ${BIN:+--no-build}
    trap finish EXIT
    trap 'exit 130' INT TERM
    if [[ $ONLY_BASELINE = yes || ! -s $BASELINE ]]; then run_baseline; fi
    [[ $ONLY_BASELINE = yes ]] || run_demo
}

main "$@"
