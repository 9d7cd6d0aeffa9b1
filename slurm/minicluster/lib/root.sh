# shellcheck shell=bash
# The cached Debian root that every cluster of a release shares, read-only.

# python3-torch: the end-to-end tests train with it. jq, curl, sqlite3: for whoever looks around in a shell.
readonly PACKAGES=(
    slurm-wlm slurmctld slurmd slurmdbd slurmrestd slurm-client
    slurm-wlm-basic-plugins slurm-wlm-mysql-plugin slurm-wlm-jwt-plugin
    munge mariadb-server
    python3 python3-torch python3-numpy
    mount procps iproute2 less socat jq curl sqlite3 ca-certificates
)
# The oldest Slurm that infill speaks to (REST v0.0.40).
readonly OLDEST_SLURM=23.11

root_cache() { printf '%s/infill/minicluster/%s' "${XDG_CACHE_HOME:-$HOME/.cache}" "$RELEASE"; }

root_path() {
    if [[ $RELEASE = native ]]; then echo /; else echo "$(root_cache)/root"; fi
}

# What a root was made from; a root with another stamp is built again.
root_stamp() { printf '%s\n' "$RELEASE" "${PACKAGES[@]}" | sha256sum | cut -c1-16; }

ensure_root() {
    if [[ $RELEASE = native ]]; then
        check_native
        return
    fi
    root_is_current || build_root
}

root_is_current() {
    [[ -f $(root_cache)/stamp && -d $(root_path) && $(<"$(root_cache)/stamp") = "$(root_stamp)" ]]
}

check_native() {
    local missing=() program version
    for program in slurmctld slurmd slurmdbd slurmrestd sacctmgr mariadbd munged socat curl; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || missing+=("$program")
    done
    ((${#missing[@]} == 0)) || die "--release native: not installed here: ${missing[*]}"
    version=$(slurmctld -V | awk '{ print $2 }')
    printf '%s\n%s\n' "$OLDEST_SLURM" "$version" | sort -VC ||
        die "--release native: this machine has Slurm $version; infill needs $OLDEST_SLURM or later"
}

build_root() {
    local cache temporary
    cache=$(root_cache)
    mkdir -p "$cache"
    exec 8>"$cache/lock"
    flock -n 8 || {
        say "another process builds the root of $RELEASE; waiting"
        flock -w 1800 8 || die "still being built after 30 minutes: $cache"
    }
    if ! root_is_current; then
        ensure_builder
        temporary=$(mktemp -d "$cache/building.XXXXXX")
        run_mmdebstrap "$temporary" "$cache/build.log" || {
            rm -rf --one-file-system "$temporary"
            tail -n 20 "$cache/build.log" >&2
            die "could not build the root of $RELEASE; the whole log is $cache/build.log"
        }
        publish_root "$temporary"
    fi
    exec 8>&-
}

ensure_builder() {
    command -v mmdebstrap >/dev/null && [[ -f $KEYRING ]] && return
    say "installing mmdebstrap"
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        mmdebstrap debian-archive-keyring >/dev/null || die "apt-get could not install mmdebstrap"
}
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# The archive that this machine's apt uses for Debian itself.
debian_mirror() {
    local codename
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    # The formats are apt's own variables, not the shell's.
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
        awk -v codename="$codename" '$1 == codename { print $2; exit }'
}

run_mmdebstrap() {
    local target=$1 log=$2 mirror options=()
    mirror=$(debian_mirror)
    [[ -n $mirror ]] || die "this machine's apt knows no Debian archive (has apt-get update been run?)"
    # A mirror's copy of sid may be older than the week for which its signature counts.
    [[ $RELEASE = sid ]] && options+=(--aptopt='Acquire::Check-Valid-Until "false"')
    say "building the root of $RELEASE (1–2 minutes; log: $log)"
    local packages started=$EPOCHREALTIME
    packages=$(IFS=, && echo "${PACKAGES[*]}")
    mmdebstrap --variant=apt --include="$packages" --keyring="$KEYRING" "${options[@]}" \
        "$RELEASE" "$target" "$mirror" >"$log" 2>&1 || return 1
    say "built in $(seconds_since "$started") s"
}

# The stamp is written last: a root without it does not count.
publish_root() {
    local cache
    cache=$(root_cache)
    chmod 0755 "$1"
    rm -f "$cache/stamp"
    rm -rf --one-file-system "$cache/root"
    mv "$1" "$cache/root"
    root_stamp >"$cache/stamp"
}
