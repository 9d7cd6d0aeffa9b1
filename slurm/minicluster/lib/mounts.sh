# shellcheck shell=bash
# Gives a namespace its root. The script that sources this sets `lower`, the root that all clusters share; `root`, the
# folder in which it builds its own root; and `database`, a layer on top of the shared root, if it needs one.
# shellcheck disable=SC2154

# The lock is held as long as this process lives: root.sh removes only roots that no process holds.
hold_root() {
    [[ $lower != / ]] || return 0
    exec 6>"${database:-$lower}.lock" 7>"$lower.lock"
    if ! flock -sn 6 || ! flock -sn 7; then
        echo "$lower or a layer for it is being removed"
        exit 1
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

# The old root needs a place for a moment. /run is new and writable.
enter_root() {
    mkdir "$root/run/host"
    cd "$root" || exit
    pivot_root . run/host
    umount -l /run/host
    rmdir /run/host
}
