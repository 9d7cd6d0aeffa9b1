#!/usr/bin/env bash
# The first process of a cluster's namespace. It assembles the file system, moves into it and becomes its init.
# Arguments: DIR REPOSITORY ROOT DATABASE (a layer on top of the root, or empty)
set -euo pipefail

dir=$1 repository=$2 lower=$3 database=$4
root=$dir/root

# shellcheck source-path=SCRIPTDIR source=mounts.sh
. "$(dirname "${BASH_SOURCE[0]}")/mounts.sh"

# The upper layer must not lie inside the lower one. For the machine's own root (native) it goes to a tmpfs.
mount_root() {
    if [[ $lower = / ]]; then
        mount -t tmpfs -o mode=0755 tmpfs "$dir/upper"
        mkdir "$dir/upper/u" "$dir/upper/w"
        mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/upper/u,workdir=$dir/upper/w" "$root"
    elif ! mount -t overlay overlay -o "lowerdir=$database:$lower,upperdir=$dir/upper,workdir=$dir/work" "$root" 2>/dev/null; then
        echo "no overlay file system here; copying $lower"
        cp -a --reflink=auto "$lower/." "$root/"
        cp -a --reflink=auto "$database/." "$root/"
        mount --bind "$root" "$root"
    fi
}

mount_cluster() {
    # shellcheck disable=SC1091
    . "$dir/state/env"
    bind "$repository" /opt/infill ro
    bind "$dir/state" /run/minicluster
    if [[ $BARE = no ]]; then
        bind "$dir/run" /run/infill
        bind "$dir/etc" /etc/infill
        bind "$dir/lib" /var/lib/infill
    fi
    bind "$dir/scratch" /scratch
    bind "$dir/log" /var/log/minicluster
    if [[ -n $BIN ]]; then
        # Binds the directory, not the file: a rebuilt binary is a new file, and the cluster should run that one.
        bind "$(dirname "$BIN")" /opt/infill-bin ro
        mkdir -p "$root/usr/local/bin"
        ln -sfn "/opt/infill-bin/$(basename "$BIN")" "$root/usr/local/bin/infill"
    fi
}

# /proc is still the host's here, so this is our pid as the host sees it. (A subshell would see its own.)
read -r host_pid _ </proc/self/stat
hold_root
mount_root
mount_system
mount_cluster
hostname minicluster
enter_root
# Slurm looks up names only for kinds of addresses that the host has besides loopback.
[[ $BARE = no ]] || { ip link set lo up && ip address add 192.0.2.1/32 dev lo; }
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin bash /opt/infill/slurm/minicluster/lib/guest.sh init "$host_pid"
