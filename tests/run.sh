#!/usr/bin/env bash
# All checks and tests, from a fresh clone: installs what is missing first.
set -euo pipefail

HERE=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
REPOSITORY=$(cd "$HERE/.." && pwd)
MINICLUSTER=$REPOSITORY/slurm/minicluster/minicluster
TOOLS=${XDG_CACHE_HOME:-$HOME/.cache}/infill
readonly HERE REPOSITORY MINICLUSTER TOOLS
# The tests of the page have axe-core look at it.
export INFILL_AXE=$TOOLS/axe.min.js

usage() {
    cat <<'END_OF_USAGE'
run.sh: all checks and tests

Usage: tests/run.sh [ARG…]
       tests/run.sh --sites [NAME…]
       tests/run.sh --soak [MINUTES [NAME]]
       tests/run.sh --preemption [SECONDS [NAME]]
       tests/run.sh --pauses
       tests/run.sh --page

Without arguments: rustfmt, shellcheck, promtool on the alerts, clippy, the tests of the Python package and the
examples, unit tests, and the integration tests on a real Slurm cluster, which they start themselves. A few of these
that fail are tried again alone.
--sites: the made-up sites of tests/sites, all or these, each with a main queue, four malleable jobs (the live site:
two that stay alive) and random faults for five minutes; ends with a table of which kept their promises, and
target/sites.json. As many at a time as INFILL_TEST_CLUSTERS says (2). --soak: one of them (plain) with a fault every
15 s for so many minutes (90); the daemon's memory, descriptors and tables must stay flat. --preemption: the same main
queue without infill, over plain jobs that end when they are told to: how late Slurm alone makes it. What is random follows
from INFILL_SEED, which is printed. --pauses: how long PyTorch pauses over changes of each kind, with a restart and without;
ends with a table, and target/pauses.json. --page: how quick the page is on 10,000 nodes, in a browser, optimised.
Otherwise, with arguments: only `cargo test --locked ARG…`, so that tests/run.sh FILTER runs the tests whose names hold FILTER.

INFILL_TEST_RELEASE=sid runs the integration tests on the newest Slurm; tests/it/main.rs names the other variables.

Needs root on Debian 12 or 13, Rust, and a network the first time.
Exit: 0 if all passed.
END_OF_USAGE
}

STARTED=$SECONDS
readonly STARTED

say() { printf 'tests: %s\n' "$*" >&2; }

# check NAME CMD…: says what it does and how long it took; the first failure ends it all.
check() {
    local name=$1 started=$SECONDS
    shift
    say "$name"
    "$@" || {
        say "failed: $name"
        exit 1
    }
    say "$name: passed in $((SECONDS - started)) s"
}

# Scripts are found by their first line, whatever their names.
check_shell() {
    local scripts
    mapfile -t scripts < <(git ls-files | xargs -d '\n' grep -lIE -m1 '^#!.*\b(ba)?sh$|^# shellcheck shell=bash$')
    shellcheck -x "${scripts[@]}"
}

# The root from which all clusters start. Built here, so that its minutes are no test's.
build_root() { "$MINICLUSTER" build; }

# Each alert fires and clears.
check_alerts() {
    "$TOOLS/promtool" check rules contrib/prometheus/infill.rules.yml >/dev/null &&
        "$TOOLS/promtool" test rules contrib/prometheus/infill.test.yml
}

# In a small cluster: there, Python is recent and has PyTorch.
check_python() {
    local dir suite code=0
    dir=$(mktemp -d /tmp/infill-python.XXXXXX)
    "$MINICLUSTER" up --nodes 1 --dir "$dir" || code=$?
    for suite in examples/demo/tests examples/tests contrib/python/tests; do
        ((code)) || "$MINICLUSTER" exec --dir "$dir" -- \
            python3 -B -m unittest discover -v -s "/opt/infill/$suite" || code=$?
    done
    "$MINICLUSTER" down --dir "$dir"
    rm -rf --one-file-system "$dir"
    return "$code"
}

# Three clusters on two cores can make a test late by more than it bears. So integration tests that fail, if they are few,
# are tried once more, one at a time, and what fails then has failed. Who passes only then is named: it is worth a look.
readonly MOST_RETRIED=4

check_tests() {
    local log failed=() code=0
    log=$(mktemp)
    cargo test --locked --no-fail-fast --lib --bins --test scenarios || return
    cargo test --locked --no-fail-fast --test it 2>&1 | tee "$log" || code=$?
    mapfile -t failed < <(sed -nE 's/^test ([a-z0-9_:]+) \.\.\. FAILED$/\1/p' "$log")
    rm -f "$log"
    ((code)) || return 0
    ((${#failed[@]} >= 1 && ${#failed[@]} <= MOST_RETRIED)) || return "$code"
    say "failed beside others, and tried again alone: ${failed[*]}"
    RUST_TEST_THREADS=1 cargo test --locked --no-fail-fast --test it -- --exact "${failed[@]}" || return
    say "FLAKY, passed only alone: ${failed[*]}"
}

# The driver is an ignored test of the suite.
run_sites() {
    export INFILL_SITES="$*" INFILL_TEST_CLUSTERS=${INFILL_TEST_CLUSTERS:-2}
    check "sites" cargo test --locked --test it -- --ignored --nocapture --exact sites::every_site_keeps_its_promises
}

run_soak() {
    [[ ${1-90} =~ ^[0-9]+$ ]] || {
        usage >&2
        exit 2
    }
    export INFILL_SOAK_MINS=${1-90} INFILL_SITES=${2-plain}
    check "soak" cargo test --locked --test it -- --ignored --nocapture --exact sites::a_site_stays_as_it_is_for_long
}

run_preemption() {
    [[ ${1-300} =~ ^[0-9]+$ ]] || {
        usage >&2
        exit 2
    }
    export INFILL_SITES_SECS=${1-300} INFILL_SITES=${2-plain}
    check "preemption" cargo test --locked --test it -- --ignored --nocapture --exact sites::what_preemption_takes_by_itself
}

run_pauses() {
    check "pauses" cargo test --locked --test it -- --ignored --nocapture --exact pauses::how_long_changes_take
}

run_page() {
    check "page" cargo test --locked --release --test it -- --ignored --nocapture --exact page_speed::how_quick_the_page_is
}

main() {
    case ${1-} in
    -h | --help)
        usage
        exit 0
        ;;
    esac
    cd "$REPOSITORY"
    PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    check "set-up" "$HERE/setup.sh" --tests --tools "$TOOLS"
    if (($#)); then
        check "cluster root" build_root
        case $1 in
        --sites) run_sites "${@:2}" ;;
        --soak) run_soak "${@:2}" ;;
        --preemption) run_preemption "${@:2}" ;;
        --pauses) run_pauses ;;
        --page) run_page ;;
        *) check "cargo test $*" cargo test --locked "$@" ;;
        esac
        return
    fi
    check "rustfmt" cargo fmt --check
    check "shellcheck" check_shell
    check "alerts" check_alerts
    check "clippy" cargo clippy --locked --quiet --all-targets -- -D warnings
    check "cluster root" build_root
    check "python" check_python
    # The integration tests mostly wait: on two cores, three clusters at a time leave half of the processors idle.
    export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
    # One failure hides no other.
    check "cargo test" check_tests
    say "all passed in $((SECONDS - STARTED)) s"
}

main "$@"
