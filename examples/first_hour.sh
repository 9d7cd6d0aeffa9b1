#!/usr/bin/env bash
# A stranger's first hour on a real Slurm that knows nothing of infill: install, observe as nobody, act on two nodes by
# following `infill doctor --plan` alone, and go back.
set -euo pipefail

HERE=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
REPOSITORY=$(cd "$HERE/.." && pwd)
MINICLUSTER=$REPOSITORY/slurm/minicluster/minicluster
readonly HERE REPOSITORY MINICLUSTER

usage() {
    cat <<'END_OF_USAGE'
first_hour.sh: from a package to malleable jobs on two canary nodes, with the time that it takes

Usage: examples/first_hour.sh [--packages DIR | --bin FILE] [--observe SECS] [--release R] [--dir DIR] [-- DECISIONS]

Starts a cluster without any trace of infill, and installs infill there. Then it observes as user nobody until the first
figure, and executes the commands in the JSON of `infill doctor --plan`, and nothing else. It checks that malleable jobs ran
on the canary nodes alone, undoes all steps, and checks that Slurm's configuration and accounting are as before.

Options:
  --packages DIR   install infill_*.deb and infill-daemon_*.deb from there (contrib/packaging/build makes them)
  --bin FILE       use this program instead (default: target/debug/infill)
  --observe SECS   how long to observe (default 60)
  --release R      trixie (Slurm 24.11, the default) or sid
  --dir DIR        where the cluster lives (default /var/lib/infill-first-hour)
  DECISIONS        of the plan: --preempt partition, --own-account harvest, …

Needs root on Debian 12 or 13. It leaves nothing running.
Exit: 0 success, 1 failure, 2 wrong usage.
END_OF_USAGE
}

PACKAGES=
BIN=${CARGO_TARGET_DIR:-$REPOSITORY/target}/debug/infill
OBSERVE=60
RELEASE=trixie
DIR=/var/lib/infill-first-hour
DECISIONS=()

say() { printf 'first_hour: %s\n' "$*" >&2; }

wrong_usage() {
    say "$1"
    say "see examples/first_hour.sh --help"
    exit 2
}

parse_options() {
    while (($#)); do
        case $1 in
        --packages | --bin | --observe | --release | --dir)
            (($# >= 2)) || wrong_usage "$1 needs a value"
            set_option "$1" "$2"
            shift
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        --)
            shift
            DECISIONS=("$@")
            return
            ;;
        *) wrong_usage "unknown option: $1" ;;
        esac
        shift
    done
}

set_option() {
    case $1 in
    --packages) PACKAGES=$2 ;;
    --bin) BIN=$2 ;;
    --observe) OBSERVE=$2 ;;
    --release) RELEASE=$2 ;;
    --dir) DIR=$2 ;;
    esac
}

cluster() {
    local command=$1
    shift
    "$MINICLUSTER" "$command" --dir "$DIR" "$@"
}

# Installs the packages as an administrator would, without a network. Sets INSTALLED to the seconds that it took.
install_packages() {
    local started=$SECONDS
    mkdir "$DIR/scratch/packages"
    cp "$PACKAGES"/infill_*.deb "$PACKAGES"/infill-daemon_*.deb "$DIR/scratch/packages/"
    cluster exec -- sh -c 'dpkg --install /scratch/packages/*.deb' >&2
    INSTALLED=$((SECONDS - started))
}

main() {
    parse_options "$@"
    [[ $OBSERVE =~ ^[0-9]+$ ]] || wrong_usage "--observe must be a number of seconds"
    local program=(--bin "$BIN")
    [[ -z $PACKAGES ]] || program=()
    cluster down 2>/dev/null || true
    trap 'cluster down 2>/dev/null || true' EXIT
    cluster up --bare --release "$RELEASE" "${program[@]}"
    INSTALLED=0
    [[ -z $PACKAGES ]] || install_packages
    cluster exec -- python3 -B /opt/infill/examples/first_hour.py --observe "$OBSERVE" --installed-secs "$INSTALLED" -- "${DECISIONS[@]}"
}

main "$@"
