#!/usr/bin/env bash
# The first process of a sandbox: makes the Debian root its own, read-only, and runs one command there.
# Arguments: REPOSITORY ROOT COUNT [SOURCE=TARGET…] CMD [ARG…]; COUNT is the number of folders to bind.
set -euo pipefail

repository=$1 lower=$2 root=$2 binds=("${@:4:$3}")
shift "$((3 + $3))"

# shellcheck source-path=SCRIPTDIR source=mounts.sh
. "$(dirname "${BASH_SOURCE[0]}")/mounts.sh"

# The writable folders are in memory, and end with the namespace.
mount_memory() {
    local folder
    for folder in opt root; do mount -t tmpfs -o mode=0755 tmpfs "$root/$folder"; done
    for folder in tmp var/tmp dev/shm; do mount -t tmpfs -o mode=1777 tmpfs "$root/$folder"; done
}

mount_folders() {
    local word options target
    for word in "${binds[@]}"; do
        options=ro target=${word#*=}
        [[ $target != *:rw ]] || options=rw
        bind "${word%%=*}" "${target%:rw}" "$options"
    done
}

# The machine's name resolves to itself, as in a cluster.
mount_hosts() {
    printf '%s localhost minicluster\n' 127.0.0.1 ::1 >"$root/run/hosts"
    mount --bind "$root/run/hosts" "$root/etc/hosts"
    hostname minicluster
}

hold_root
mount --bind "$lower" "$root"
mount -o remount,bind,ro "$root"
mount_system
mount_memory
bind "$repository" /opt/infill ro
mount_folders
mount_hosts
enter_root
ip link set lo up
# This shell stays: it reaps the command's orphans. (It was started in the background, where INT is ignored.)
code=0
env -i --default-signal=INT,QUIT PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    TERM="${TERM:-dumb}" "$@" 6>&- 7>&- || code=$?
exit "$code"
