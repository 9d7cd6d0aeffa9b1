#!/usr/bin/env bash
# The tests of the Python package and of the examples, in the minicluster's Debian root, which has a recent Python
# with PyTorch. No Slurm runs.
set -euo pipefail

HERE=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
REPOSITORY=$(cd "$HERE/.." && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/infill
readonly HERE REPOSITORY CACHE

# The training frameworks that the tests use, and their dependencies that the root lacks.
readonly REQUIREMENTS=$HERE/python/frameworks.txt
# Python's version in the root.
readonly PYTHON=3.13

usage() {
    cat <<'END_OF_USAGE'
python.sh: the tests of contrib/python and of the examples

Usage: tests/python.sh [--all] [--jobs N] [PATTERN…]
       tests/python.sh --frameworks

  --all      also run the slow tests, and those of Lightning, Transformers and Keras; fetches these the first time
  --jobs N   run N files at a time (default 3)
  --frameworks
             only fetch the frameworks, if they are not there, and print their folder

With patterns, it runs only tests whose full names contain one of them: test_live.Losing, an_update.

Prints the output of each file when it ends, then the slowest tests, and a line `SKIPPED TEST: REASON` for each skipped
test. If only a few files fail, they run once more alone. INFILL_SKIPS names a file that also gets the lines of skipped
tests. INFILL_TEST_RECORD names a folder for the seconds of each test (python.tsv) and the files that passed only alone.
INFILL_TEST_SEED and INFILL_TEST_CHANGES are for test_train_ddp.py and test_train_live.py.

Needs root on Debian 12 or 13. The first use builds the Debian root (1–2 minutes, network).
Without a network, the tests of the frameworks are skipped.
Exit: 0 if all passed, 1 if not, 2 for wrong usage.
END_OF_USAGE
}

say() { printf 'python: %s\n' "$*" >&2; }

wrong_usage() {
    usage >&2
    exit 2
}

# The name depends on the list: a checkout with another list makes its own folder.
frameworks_path() {
    local stamp
    stamp=$(printf '%s\n' "$PYTHON" "$(uname -m)" | cat - "$REQUIREMENTS" | sha256sum | cut -c1-16)
    echo "$CACHE/python-frameworks-$stamp"
}

# The folder with the frameworks, made if missing. Its lock is held until the tests end.
ensure_frameworks() {
    local path
    path=$(frameworks_path)
    mkdir -p "$CACHE"
    exec 8>"$CACHE/python-frameworks.lock"
    flock -w 900 8 || return
    if [[ ! -d $path ]]; then
        remove_unused_frameworks
        install_frameworks "$path" || return
    fi
    exec 7>"$path.lock"
    flock -s 7
    exec 8>&-
}

# Removes interrupted installations and the frameworks of other lists, unless a process holds their lock.
remove_unused_frameworks() {
    local path
    for path in "$CACHE"/python-frameworks-*/; do
        path=${path%/}
        [[ -d $path ]] || continue
        flock -n "$path.lock" rm -rf --one-file-system "$path" && rm -f "$path.lock"
    done
}

# Only a complete folder gets its name.
install_frameworks() {
    local path=$1 building code=0
    building=$(mktemp -d "$CACHE/python-frameworks-building.XXXXXX")
    chmod 0755 "$building"
    say "installing the frameworks"
    { fetch_frameworks "$building" && compile_frameworks "$building"; } || code=$?
    ((code)) || mv "$building" "$path"
    rm -rf --one-file-system "$building"
    return "$code"
}

# Only wheels for the root's Python, and only listed packages: PyTorch and NumPy come from the root.
fetch_frameworks() {
    local target=$1 machine
    machine=$(uname -m)
    python3 -m pip install --quiet --no-input --retries 1 --no-deps --no-compile --root-user-action ignore \
        --only-binary :all: --python-version "$PYTHON" --platform "manylinux_2_28_$machine" \
        --platform "manylinux_2_27_$machine" --platform "manylinux2014_$machine" --target "$target" --requirement "$REQUIREMENTS"
}

# Compiled once, by the root's Python. Otherwise each test process would compile its imports. The many models of
# Transformers are not used.
compile_frameworks() {
    sandbox --bind "$1=/opt/frameworks:rw" -- \
        python3 -m compileall -q -j 0 -x /transformers/models/ /opt/frameworks
}

sandbox() { "$REPOSITORY/slurm/minicluster/minicluster" sandbox "$@"; }

main() {
    local all=no jobs=3 patterns=() options=() variables=() name
    while (($#)); do
        case $1 in
        --all) all=yes ;;
        --frameworks)
            sandbox -- true >&2 && ensure_frameworks >&2 || exit 1
            frameworks_path
            return
            ;;
        --jobs)
            [[ ${2-} =~ ^[1-9][0-9]?$ ]] || wrong_usage
            jobs=$2
            shift
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        -*) wrong_usage ;;
        *) patterns+=("$1") ;;
        esac
        shift
    done
    sandbox -- true || exit 1
    for name in INFILL_TEST_SEED INFILL_TEST_CHANGES; do
        [[ -z ${!name-} ]] || variables+=("$name=${!name}")
    done
    if [[ $all = yes ]]; then
        variables+=(INFILL_TEST_ALL=1)
        if ensure_frameworks; then
            variables+=(PYTHONPATH=/opt/frameworks)
            options+=(--bind "$(frameworks_path)=/opt/frameworks")
        else
            say "the frameworks could not be fetched; their tests are skipped"
            variables+=("INFILL_TEST_MISSING=pip could not fetch it")
        fi
    fi
    # These files are not visible in the sandbox, but their descriptors are.
    exec 3>>"${INFILL_SKIPS:-/dev/null}"
    local times=/dev/null flaky=/dev/null
    if [[ -n ${INFILL_TEST_RECORD-} ]]; then
        times=$INFILL_TEST_RECORD/python.tsv flaky=$INFILL_TEST_RECORD/python.flaky
    fi
    exec 4>>"$times" 5>>"$flaky"
    exec "$REPOSITORY/slurm/minicluster/minicluster" sandbox "${options[@]}" -- env "${variables[@]}" \
        python3 -B /opt/infill/tests/python/run.py --jobs "$jobs" --skips /dev/fd/3 --times /dev/fd/4 --flaky /dev/fd/5 -- "${patterns[@]}"
}

main "$@"
