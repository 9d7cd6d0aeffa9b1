# shellcheck shell=bash
# The cached Debian root that all clusters of a release share, read-only.

# The end-to-end tests train with python3-torch. jq, curl and sqlite3 are for people who look around in a shell.
readonly PACKAGES=(
    slurm-wlm slurmctld slurmd slurmdbd slurmrestd slurm-client
    slurm-wlm-basic-plugins slurm-wlm-mysql-plugin slurm-wlm-jwt-plugin
    munge mariadb-server
    python3 python3-torch python3-numpy
    mount procps iproute2 less socat jq curl sqlite3 ca-certificates
)
# The oldest Slurm that infill works with. In older ones, a job that leaves within its grace time fails instead of
# waiting again.
readonly OLDEST_SLURM=24.05

root_cache() { printf '%s/infill/minicluster/%s' "${XDG_CACHE_HOME:-$HOME/.cache}" "$RELEASE"; }

# The name depends on the list of packages: a checkout with another list makes its own root, beside this one.
root_path() {
    if [[ $RELEASE = native ]]; then echo /; else echo "$(root_cache)/root-$(root_stamp)"; fi
}

root_stamp() { printf '%s\n' "$RELEASE" "${PACKAGES[@]}" | sha256sum | cut -c1-16; }

# A layer on top of the root with the database server's own tables. Making them takes longer than all other work that
# a cluster does with its database. Empty for native.
database_path() {
    [[ $RELEASE != native ]] || return 0
    printf '%s/database-%s' "$(root_cache)" "$(printf '%s\n' "$(root_stamp)" "${MARIADB_OPTIONS[@]}" | sha256sum | cut -c1-16)"
}

ensure_root() {
    if [[ $RELEASE = native ]]; then
        check_native
        return
    fi
    [[ -d $(root_path) && -d $(database_path) ]] || build_root
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
    remove_unused_roots
    if [[ ! -d $(root_path) ]]; then
        ensure_builder
        temporary=$(mktemp -d "$cache/building.XXXXXX")
        run_mmdebstrap "$temporary" "$cache/build.log" || {
            rm -rf --one-file-system "$temporary"
            tail -n 20 "$cache/build.log" >&2
            die "could not build the root of $RELEASE; the whole log is $cache/build.log"
        }
        chmod 0755 "$temporary"
        # Only a finished root gets its name.
        mv "$temporary" "$(root_path)"
    fi
    [[ -d $(database_path) ]] || build_database "$cache"
    exec 8>&-
}

# The root's own programs make the tables, in an overlay on it. The files that they write are the layer.
build_database() {
    local cache=$1 temporary
    temporary=$(mktemp -d "$cache/building.XXXXXX")
    mkdir "$temporary"/{upper,work,root}
    # The shells inside expand the text in single quotes.
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --propagation private bash -c '
        set -e
        mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
        mount -t proc proc "$2/root/proc"
        mount --rbind /dev "$2/root/dev"
        mount --bind "$3" "$2/root/mnt"
        chroot "$2/root" bash -ec ". /mnt/common.sh; install_database"
    ' bash "$(root_path)" "$temporary" "$HERE/lib" >"$cache/database.log" 2>&1 || {
        rm -rf --one-file-system "$temporary"
        tail -n 20 "$cache/database.log" >&2
        die "could not make the tables of the database; the whole log is $cache/database.log"
    }
    mkdir -p "$temporary/layer/${MYSQL_DIR%/*}"
    mv "$temporary/upper$MYSQL_DIR" "$temporary/layer$MYSQL_DIR"
    chmod 0755 "$temporary/layer"
    mv "$temporary/layer" "$(database_path)"
    rm -rf --one-file-system "$temporary"
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
    # A mirror's copy of sid may be older than the week for which its signature is valid.
    [[ $RELEASE = sid ]] && options+=(--aptopt='Acquire::Check-Valid-Until "false"')
    say "building the root of $RELEASE (1–2 minutes; log: $log)"
    local packages started=$EPOCHREALTIME
    packages=$(IFS=, && echo "${PACKAGES[*]}")
    mmdebstrap --variant=apt --include="$packages" --keyring="$KEYRING" "${options[@]}" \
        "$RELEASE" "$target" "$mirror" >"$log" 2>&1 || return 1
    say "built in $(seconds_since "$started") s"
}

# Removes the rest of interrupted builds, and roots and layers of other versions. A root that a cluster runs on stays:
# its init holds the lock.
remove_unused_roots() {
    local root
    for root in "$(root_cache)"/{root-*,database-*,building.*}/; do
        root=${root%/}
        [[ -d $root && $root != "$(root_path)" && $root != "$(database_path)" ]] || continue
        flock -n "$root.lock" rm -rf --one-file-system "$root" && rm -f "$root.lock"
    done
}
