#!/usr/bin/env bash
# The checks and tests, from a fresh clone: installs what is missing first.
set -euo pipefail

HERE=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
REPOSITORY=$(cd "$HERE/.." && pwd)
MINICLUSTER=$REPOSITORY/slurm/minicluster/minicluster
TOOLS=${XDG_CACHE_HOME:-$HOME/.cache}/infill
# The release of Slurm that cluster tests run on.
RELEASE=${INFILL_TEST_RELEASE:-trixie}
readonly HERE REPOSITORY MINICLUSTER TOOLS RELEASE
# axe-core checks the page in its tests.
export INFILL_AXE=$TOOLS/axe.min.js
# Ansible runs the role of contrib/ansible on a cluster.
export INFILL_ANSIBLE=$TOOLS/ansible

# shellcheck source-path=SCRIPTDIR source=stages.sh
. "$HERE/stages.sh"
# shellcheck source-path=SCRIPTDIR source=build_cache.sh
. "$HERE/build_cache.sh"
# shellcheck source-path=SCRIPTDIR source=neighbour.sh
. "$HERE/neighbour.sh"

usage() {
    cat <<'END_OF_USAGE'
run.sh: checks and tests

Usage: tests/run.sh             the core: what each change should pass
       tests/run.sh --quick     no cluster: format, clippy, unit tests, scenarios, tidy
       tests/run.sh --all       everything, as in continuous integration
       tests/run.sh --it NAME…  cluster tests whose names contain one of these
       tests/run.sh ARG…        cargo test --locked ARG…

Longer runs, each on generated sites or its own clusters:
       tests/run.sh --sites [NAME…]
       tests/run.sh --soak [MINUTES [NAME]]
       tests/run.sh --preemption [SECONDS [NAME]]
       tests/run.sh --delays
       tests/run.sh --controller
       tests/run.sh --pauses
       tests/run.sh --sweep [TRIALS]
       tests/run.sh --frameworks [NAME…]
       tests/run.sh --page
       tests/run.sh --guides

The core: rustfmt, shellcheck, promtool on the alerts, clippy, unit tests, scenarios, tidy, the quick tests of the Python package,
and the cluster tests in tests/core.txt. Cluster tests run on real Slurm clusters, which they start themselves.
--all runs every test, and the random tests with all their cases. It also covers the newest Slurm, the solver in pure Rust,
Lightning, Transformers and Keras, the packages, the documentation's site and its tutorial, the licences of all crates, and the
previous version (tests/neighbour.txt), which it builds. If a few tests fail, they run again alone; those that pass then are
listed as flaky. Both end with a table of times; target/times.tsv has the time of each test.

--it compiles and runs only cluster tests. With INFILL_TEST_REUSE=DIR they use the cluster that is up in DIR:
  slurm/minicluster/minicluster up --bin target/debug/infill --dir DIR

--sites: the sites of tests/sites, all or the named ones. Each has a main queue, four malleable jobs (the live sites: two that stay
alive) and random faults for five minutes. Ends with a table of the sites that kept their promises, and target/sites.json.
Runs as many at a time as INFILL_TEST_CLUSTERS says (2).
--soak: one site (plain) for 90 minutes, or MINUTES, with a fault every 15 s. The daemon's memory, descriptors and tables must
stay flat.
--preemption: the same main queue without infill, for SECONDS by itself and for SECONDS over plain jobs that end when asked to.
Measures how late Slurm alone makes it, and writes target/preemption.json.
--delays: how late a main job starts in each case of docs/evidence.md, on one cluster. Writes target/delays.json.
--controller: calls of slurmctld, Slurm jobs, rows of accounting, prologs and e-mails, with infill and without. Writes
target/controller.json.
INFILL_SEED repeats a run; each run prints its seed.
--pauses: how long PyTorch pauses over changes of each kind, with a restart and without. Ends with a table, and
target/pauses.json.
--sweep: a job array of 200 short trials with pruning, or TRIALS, and a study of Optuna with four drivers, beside a main queue.
How much of the idle time they use is in target/sweep.json. Fetches Optuna the first time.
--frameworks: the programs of examples/frameworks, all or the named ones, each on its own cluster; the first use fetches the
frameworks. Writes what it saw into docs/frameworks.md.
--page: how fast the page is with 10,000 nodes, in a browser, optimised.
--guides: follows the tutorial and the page about Lightning literally, each on its own cluster.

INFILL_TEST_RELEASE=sid runs cluster tests on the newest Slurm; tests/it/main.rs lists the other variables.

Needs root on Debian 12 or 13, Rust, and a network the first time.
Exit: 0 if all passed, 1 if not, 2 for wrong usage.
END_OF_USAGE
}

# Scripts are found by their first line, for any name.
check_shell() {
    local scripts
    mapfile -t scripts < <(git ls-files -- ':!*.md' | xargs -d '\n' grep -lIE -m1 '^#!.*\b(ba)?sh$|^# shellcheck shell=bash$')
    shellcheck -x "${scripts[@]}"
}

# The root from which all clusters start. It is built separately, so that no test has to wait minutes for it.
build_root() { "$MINICLUSTER" build --release "$1"; }

# Checks that each alert fires and clears.
check_alerts() {
    "$TOOLS/promtool" check rules contrib/prometheus/infill.rules.yml >/dev/null &&
        "$TOOLS/promtool" test rules contrib/prometheus/infill.test.yml
}

# Checks of the sources that need no build.
check_sources() {
    local code=0
    cargo fmt --check || code=1
    check_shell || code=1
    check_alerts || code=1
    return "$code"
}

# Options of setup.sh.
SET_UP=(--tests --tools "$TOOLS" --no-build)
set_up() { "$HERE/setup.sh" "${SET_UP[@]}"; }

# The test binaries that cargo made: those of tests/ by their first source, unit tests by their crate's name without
# `infill-`.
declare -A BINARIES=() UNITS=()

# build_tests OPTION…: compiles tests.
build_tests() {
    local kind source file crate
    restore_build_cache
    CARGO_TERM_COLOR=never cargo test --locked --no-run "$@" 2>&1 | tee "$RECORD/build.log" >&2 || return
    save_build_cache
    while read -r kind source file; do
        crate=${file##*/}
        crate=${crate%-*}
        case $kind in
        unittests) UNITS[${crate#infill_}]=$file ;;
        *) BINARIES[$source]=$file ;;
        esac
    done < <(sed -nE 's/^ *Executable (unittests )?([^ ]+) \((.*)\)$/\1 \2 \3/p' "$RECORD/build.log" | sed 's/^ /other /; s/  */ /g')
}

# Runners: RUNNER LOG ARG… runs tests. LOG is their name in the record, ARGs are the harness's.

# The tests of these crates take as long as those of all other crates.
readonly SLOW_UNITS=(planner store)

# The unit tests of all crates, two crates at a time; with `--exact CRATE::NAME…` only those.
unit_tests() {
    local log=$1 crate code=0 beside others
    shift
    if (($#)); then
        shift
        for crate in "${!UNITS[@]}"; do
            unit_tests_of "$log" "$crate" --exact "$@" || code=1
        done
        return "$code"
    fi
    mapfile -t others < <(printf '%s\n' "${!UNITS[@]}" | grep -vxF "$(printf '%s\n' "${SLOW_UNITS[@]}")")
    units_in_turn "$log" "${SLOW_UNITS[@]}" &
    beside=$!
    units_in_turn "$log" "${others[@]}" || code=1
    wait "$beside" || code=1
    return "$code"
}

# units_in_turn LOG CRATE…
units_in_turn() {
    local crate code=0
    for crate in "${@:2}"; do
        unit_tests_of "$1" "$crate" || code=1
    done
    return "$code"
}

# unit_tests_of LOG CRATE [--exact CRATE::NAME…]
unit_tests_of() {
    local log=$1 crate=$2 name names=()
    for name in "${@:4}"; do
        [[ $name != "$crate::"* ]] || names+=("${name#"$crate::"}")
    done
    (($# == 2 || ${#names[@]})) || return 0
    TEST_PREFIX=$crate:: run_tests "$log" "${UNITS[$crate]}" ${3+"$3"} "${names[@]}"
}

cluster_tests() {
    # All tests ask for a cluster at once, and the longest get one first.
    RUST_TEST_THREADS=${RUST_TEST_THREADS:-256} run_tests "$1" "${BINARIES[tests/it/main.rs]}" "${@:2}"
}

newest_tests() {
    mkdir -p "$RECORD/newest"
    INFILL_TEST_RECORD=$RECORD/newest INFILL_TEST_RELEASE=$NEWEST INFILL_TEST_CLUSTERS=1 cluster_tests "$@"
}

# Several clusters on two cores can make a test too late. So if only a few tests fail, they run once more, one at a
# time. Those that fail again have failed.
readonly MOST_RETRIED=4

# run_with_retry RUNNER LOG ARG…
run_with_retry() {
    local runner=$1 log=$2 failed
    "$runner" "$log" "${@:3}" && return
    mapfile -t failed < <(failed_tests "$log")
    ((${#failed[@]} >= 1 && ${#failed[@]} <= MOST_RETRIED)) || return 1
    say "failed beside others, running again alone: ${failed[*]}"
    RUST_TEST_THREADS=1 "$runner" "$log-again" --exact "${failed[@]}" || return
    note_flaky "${failed[@]}"
}

check_others() {
    local code=0
    # A package of its own: cargo names its source by the folder of the package.
    run_tests tidy "${BINARIES[main.rs]}" || code=1
    run_tests scenario "${BINARIES[tests/scenarios/main.rs]}" || code=1
    return "$code"
}

clippy() {
    cargo clippy --locked --quiet "$@" -- -D warnings || return
    save_build_cache
}

core_tests() { grep -vE '^(#|>|$)' "$HERE/core.txt"; }

# cluster_stages ARG…: the cluster tests, and the checks over all of them together.
cluster_stages() {
    stage "cluster tests" run_with_retry cluster_tests cluster "$@" || true
    stage "main jobs started promptly" "${BINARIES[tests/it/main.rs]}" --nocapture --ignored --exact \
        promptness::main_jobs_of_this_run_started_promptly || true
}

# What the run itself fetches. A test that lacks one of these was skipped because fetching failed.
readonly FETCHED=(axe optuna ansible frameworks)

is_fetched() { [[ " ${FETCHED[*]} " = *" $1 "* ]]; }

# Checks the skips: tests/skips.txt says which test may skip, and what the machine then lacks.
check_skips() {
    local test need line code=0
    while IFS= read -r line; do
        test=${line#SKIPPED }
        test=${test%%: *}
        need=$(awk -v test="$test" '!/^(#|$)/ && test ~ "^" $1 "$" { print $2; exit }' "$HERE/skips.txt")
        if [[ -z $need ]]; then
            say "skipped, but tests/skips.txt does not list it: $line"
            code=1
        elif is_fetched "$need"; then
            say "skipped, because $need could not be fetched: $line"
            code=1
        elif has "$need"; then
            say "skipped, although this machine has what it needs ($need): $line"
            code=1
        fi
    done < <(sort -u "$RECORD/skips")
    return "$code"
}

# Whether root may limit the memory of other users here. Tries it as the test does, and cleans up.
has_memcg() {
    local top=/sys/fs/cgroup dir code=1
    [[ ! -d $top/memory ]] || top=$top/memory
    dir=$top/infill-has-$$
    mkdir "$dir" 2>/dev/null || return 1
    [[ ! -w $dir/memory.max && ! -w $dir/memory.limit_in_bytes ]] || code=0
    rmdir "$dir"
    return "$code"
}

# Whether root may make cgroups in this folder.
makes_cgroups_in() { mkdir "$1/infill-has-$$" 2>/dev/null && rmdir "$1/infill-has-$$"; }

# has NEED: whether this machine has something that tests may skip without.
has() {
    case $1 in
    data) [[ -d ${INFILL_DATA:-../shared/data} ]] ;;
    gpu) [[ -e /dev/nvidia0 ]] ;;
    memcg) has_memcg ;;
    cgroup1) [[ -f /sys/fs/cgroup/devices/devices.list ]] && makes_cgroups_in /sys/fs/cgroup/devices ;;
    cgroup2)
        [[ ! -d /sys/fs/cgroup/devices ]] && grep -qw memory /sys/fs/cgroup/cgroup.controllers 2>/dev/null &&
            makes_cgroups_in /sys/fs/cgroup
        ;;
    neighbour) has_neighbour ;;
    *) false ;;
    esac
}

# Tests that also run on the newest Slurm: infill's requests to Slurm's interfaces, and the two promises.
readonly NEWEST=sid
readonly NEWEST_TESTS=(
    arrays::the_last_task_is_parked_without_the_others
    conformance::slurmrestd_over_its_unix_socket
    conformance::slurmrestd_over_http_with_tokens
    faults::slurmctld_is_killed_and_restarted
    gpus::the_first_script_trains_on_every_gpu
    life::a_job_grows_into_idle_nodes_shrinks_for_main_jobs_and_completes
    life::a_main_job_that_needs_all_nodes_runs_at_once
    life::infill_leaves_before_a_planned_start
    plugin::owners_cannot_change_what_infill_relies_on
    plugin::sizes_become_one_held_node_and_a_comment
    shares::gpus_beside_main_jobs_are_lent_one_by_one
    versions::older_agents_train_on_under_a_newer_daemon_and_are_asked_for_no_wings
)

# The planner's own tests, with the other solver.
check_microlp() {
    cargo test --locked --package infill-planner --no-default-features --features microlp
}

# Licences and sources of all crates, by deny.toml. Advisories need RustSec's database: `cargo deny check advisories`.
# Other people write the program, so it runs as the user `nobody`: it only reads two files.
check_dependencies() (
    dir=$(mktemp -d)
    trap 'rm -rf --one-file-system "$dir"' EXIT
    cargo metadata --locked --all-features --format-version 1 >"$dir/metadata.json" || return
    cp -L deny.toml "$TOOLS/cargo-deny" "$dir" || return
    chmod 755 "$dir" "$dir/cargo-deny"
    setpriv --reuid nobody --regid nogroup --clear-groups --no-new-privs env -i PATH=/usr/bin:/bin HOME="$dir" \
        "$dir/cargo-deny" --offline --log-level off --metadata-path "$dir/metadata.json" --config "$dir/deny.toml" \
        check bans licenses sources
)

check_packages() {
    local binary=${CARGO_TARGET_DIR:-$REPOSITORY/target}/debug/infill
    contrib/packaging/check --binary "$binary" || return
    # Everything that a release consists of, with the debug program.
    contrib/release --dry-run --binary "$binary" --out "$RECORD/release" "$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n1)"
}

# The site of the documents, with all links checked.
check_site() { python3 -B -m unittest discover -q -s contrib/site/tests && contrib/site/build; }

check_python() {
    local flaky
    "$HERE/python.sh" "$@" || return
    mapfile -t flaky <"$RECORD/python.flaky"
    note_flaky "${flaky[@]}"
}

# The stages that run beside the cluster tests, which leave half of the processors idle.
core_lane() {
    at_low_priority stage "unit tests" run_with_retry unit_tests unit
    at_low_priority stage "tidy, scenarios" check_others
    at_low_priority stage "python" check_python
    at_idle_priority stage "clippy" clippy --all-targets
    true
}

all_lane() {
    at_low_priority stage "unit tests" run_with_retry unit_tests unit
    at_low_priority stage "tidy, scenarios" check_others
    at_low_priority stage "newest Slurm" run_with_retry newest_tests newest --exact "${NEWEST_TESTS[@]}"
    at_low_priority stage "python, with frameworks" check_python --all
    at_idle_priority stage "clippy" clippy --all-targets
    at_idle_priority stage "pure-Rust solver" check_microlp
    at_idle_priority stage "packages" check_packages
    at_idle_priority stage "dependencies" check_dependencies
    at_idle_priority stage "site" check_site
    at_low_priority stage "tutorial" contrib/site/try tutorial
    true
}

core_roots() { stage "cluster root" build_root "$RELEASE"; }

all_roots() {
    core_roots && stage "cluster root, newest Slurm" build_root "$NEWEST" || return
    # Without the build the tests that need it are skipped, and its stage has failed.
    stage "version before" build_neighbour || true
}

run_quick() {
    stage "set-up" set_up || return
    begin "sources" stage "sources" check_sources
    stage "build" build_tests --lib --bins --test scenarios --test tidy || return
    # Builds a test too: dev-dependencies change the features of other packages. Without it a hundred would be
    # compiled again.
    begin "clippy" at_low_priority stage "clippy" clippy --lib --bins --test scenarios
    stage "unit tests" run_with_retry unit_tests unit || true
    stage "tidy, scenarios" check_others || true
    finish "clippy" || true
    finish "sources" || true
}

run_core() {
    local tests
    mapfile -t tests < <(core_tests)
    stage "set-up" set_up || return
    begin "roots" core_roots
    begin "sources" stage "sources" check_sources
    stage "build" build_tests || return
    finish "sources" || true
    finish "roots" || return
    begin "beside" core_lane
    cluster_stages --exact "${tests[@]}"
    finish "beside" || true
}

# Finds the best plan by the rates that a real program reaches. Beside other tests, these rates are not its own.
readonly MEASURES=plans::the_best_plan

run_all() {
    export INFILL_TEST_EFFORT=${INFILL_TEST_EFFORT:-1}
    SET_UP+=(--packages)
    stage "set-up" set_up || return
    begin "roots" all_roots
    begin "sources" stage "sources" check_sources
    stage "build" build_tests || return
    finish "sources" || true
    finish "roots" || return
    use_neighbour
    use_optuna
    begin "beside" all_lane
    cluster_stages --skip load:: --skip "$MEASURES" --skip frameworks::
    finish "beside" || true
    # These tests measure, so nothing runs beside them.
    stage "load, alone" run_with_retry cluster_tests load load:: "$MEASURES" || true
    # Four interpreters that import a framework take twenty minutes beside other tests, and one minute alone.
    RUST_TEST_THREADS=1 stage "frameworks, alone" run_with_retry cluster_tests frameworks frameworks:: || true
    stage "skips" check_skips || true
}

# driver NAME: a long run, which is an ignored test of the suite.
driver() { cargo test --locked --test it -- --ignored --nocapture --exact "$1"; }

# Optuna for the clusters' Python, in a folder of its own: only what a study in a file needs.
ensure_optuna() {
    local wanted building
    wanted=$(grep -E '^(optuna|colorlog|tqdm)==' "$HERE/python/frameworks.txt")
    [[ $(cat "$TOOLS/optuna/wanted" 2>/dev/null) = "$wanted" ]] && return
    building=$(mktemp -d "$TOOLS/optuna-building.XXXXXX")
    chmod 0755 "$building"
    # shellcheck disable=SC2086 # One word a package.
    python3 -m pip install --quiet --no-input --no-deps --root-user-action ignore --only-binary :all: --target "$building" $wanted || {
        rm -rf --one-file-system "$building"
        return 1
    }
    echo "$wanted" >"$building/wanted"
    rm -rf --one-file-system "$TOOLS/optuna"
    mv "$building" "$TOOLS/optuna"
}

# Lets the cluster tests use Optuna.
use_optuna() {
    ensure_optuna || echo "tests: pip could not fetch Optuna: the test that needs it is skipped, and --all will fail" >&2
    export INFILL_OPTUNA=$TOOLS/optuna
}

# number VALUE: refuses anything but a whole number.
number() {
    [[ $1 =~ ^[0-9]+$ ]] || wrong_usage
    echo "$1"
}

wrong_usage() {
    usage >&2
    exit 2
}

# The parts that need only one kind of test.
run_some() {
    case $1 in
    --it)
        (($# > 1)) || wrong_usage
        use_neighbour
        RUST_TEST_THREADS=${RUST_TEST_THREADS:-256} cargo test --locked --test it -- "${@:2}"
        ;;
    --sites)
        export INFILL_SITES="${*:2}" INFILL_TEST_CLUSTERS=${INFILL_TEST_CLUSTERS:-2}
        driver sites::every_site_keeps_its_promises
        ;;
    --soak)
        INFILL_SOAK_MINS=$(number "${2-90}") INFILL_SITES=${3-plain} driver sites::a_site_stays_as_it_is_for_long
        ;;
    --preemption)
        INFILL_SITES_SECS=$(number "${2-300}") INFILL_SITES=${3-plain} driver sites::what_preemption_takes_by_itself
        ;;
    --frameworks)
        local names=("${@:2}")
        ((${#names[@]})) || names=("")
        RUST_TEST_THREADS=${RUST_TEST_THREADS:-1} cargo test --locked --test it -- --include-ignored --nocapture \
            --skip the_table_of_the_document "${names[@]/#/frameworks::}"
        driver frameworks::the_table_of_the_document
        ;;
    --delays) driver delays::how_late_main_jobs_start ;;
    --controller) driver controller_load::what_infill_costs_the_controller ;;
    --pauses) driver pauses::how_long_changes_take ;;
    --sweep)
        use_optuna
        INFILL_SWEEP_TRIALS=$(number "${2-200}") driver sweep::two_hundred_trials_fill_the_gaps
        ;;
    --guides)
        cargo build --locked
        contrib/site/try tutorial
        contrib/site/try lightning
        ;;
    --page)
        cargo test --locked --release --test it -- --ignored --nocapture --exact page_speed::how_quick_the_page_is
        ;;
    -*) wrong_usage ;;
    *) cargo test --locked "$@" ;;
    esac
}

main() {
    cd "$REPOSITORY"
    PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    local run=
    case ${1-} in
    -h | --help)
        usage
        return
        ;;
    "") run=run_core ;;
    --quick) run=run_quick ;;
    --all) run=run_all ;;
    esac
    if [[ -z $run ]]; then
        set_up
        restore_build_cache
        build_root "$RELEASE"
        run_some "$@"
        return
    fi
    (($# <= 1)) || wrong_usage
    start_record
    # A stage that the others need has failed and ended the run.
    "$run" || true
    conclude
}

main "$@"
