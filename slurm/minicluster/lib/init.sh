#!/usr/bin/env bash
# The first process of a cluster's namespace: puts the file system together, moves into it and becomes its init.
# Arguments: DIR REPOSITORY ROOT DATABASE (a layer for on top of the root, or empty)
set -euo pipefail

dir=$1 repository=$2 lower=$3 database=$4
root=$dir/root

# Held as long as this process lives: root.sh removes no root that somebody holds.
hold_root() {
    [[ $lower != / ]] || return 0
    exec 6>"$database.lock" 7>"$lower.lock"
    if ! flock -sn 6 || ! flock -sn 7; then
        echo "$lower or $database is being removed"
        exit 1
    fi
}

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

# bind SOURCE TARGET [OPTIONS]
bind() {
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
    [[ -z ${3-} ]] || mount -o "remount,bind,$3" "$root$2"
}

mount_system() {
    mkdir -p "$root"/{proc,sys,dev,run,tmp}
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=0755 tmpfs "$root/run"
}

mount_cluster() {
    bind "$repository" /opt/infill ro
    bind "$dir/state" /run/minicluster
    bind "$dir/run" /run/infill
    bind "$dir/etc" /etc/infill
    bind "$dir/lib" /var/lib/infill
    bind "$dir/scratch" /scratch
    bind "$dir/log" /var/log/minicluster
    # shellcheck disable=SC1091
    . "$dir/state/env"
    if [[ -n $BIN ]]; then
        # A directory, not the file: a rebuilt binary is a new file, and the cluster should run that one.
        bind "$(dirname "$BIN")" /opt/infill-bin ro
        mkdir -p "$root/usr/local/bin"
        ln -sfn "/opt/infill-bin/$(basename "$BIN")" "$root/usr/local/bin/infill"
    fi
}

enter_root() {
    mkdir -p "$root/.host"
    cd "$root"
    pivot_root . .host
    umount -l /.host
    rmdir /.host 2>/dev/null || true
}

# /proc is still the host's here, so this is the pid by which the host knows us. (A subshell would see its own.)
read -r host_pid _ </proc/self/stat
hold_root
mount_root
mount_system
mount_cluster
hostname minicluster
enter_root
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin bash /opt/infill/slurm/minicluster/lib/guest.sh init "$host_pid"
