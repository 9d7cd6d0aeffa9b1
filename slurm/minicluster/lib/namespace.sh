# shellcheck shell=bash
# The namespace that a cluster lives in. When its init dies, every process and mount of the cluster ends. So `down`
# leaves nothing behind.

readonly GUEST=/opt/infill/slurm/minicluster/lib/guest.sh

start_namespace() {
    rm -f "$DIR/state/init" "$DIR/state/ready"
    # Its daemon has the usual port, which may be taken on this machine.
    local network=()
    [[ $BARE = no ]] || network=(--net)
    setsid unshare --mount --pid --ipc --uts "${network[@]}" --fork --propagation private \
        bash "$HERE/lib/init.sh" "$DIR" "$REPOSITORY" "$(root_path)" "$(database_path)" </dev/null >"$DIR/log/init.log" 2>&1 9>&- &
    disown
    wait_until 30 test -s "$DIR/state/ready" || {
        say "the namespace did not start:"
        tail -n 20 "$DIR/log/init.log" >&2
        return 1
    }
    process_identity "$(<"$DIR/state/ready")" >"$DIR/state/init" || {
        say "the namespace's init died:"
        tail -n 20 "$DIR/log/init.log" >&2
        return 1
    }
}

enter() {
    nsenter --target "$(init_pid)" --mount --pid --ipc --uts --net --root --wd -- "$@"
}

in_guest() { enter env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash "$GUEST" "$@" 9>&-; }

# Replaces this process. When it is killed (a test's time-out), the command inside gets SIGTERM.
enter_as() {
    local user=$1 pid
    shift
    pid=$(init_pid)
    # The command's own shell expands these.
    # shellcheck disable=SC2016
    exec nsenter --target "$pid" --mount --pid --ipc --uts --net --root --wd -- \
        env -i TERM="${TERM:-dumb}" LANG=C.UTF-8 bash -c '
            id -u -- "$1" >/dev/null || exit 1
            cd "$(getent passwd "$1" | cut -d: -f6)" 2>/dev/null || cd /
            user=$1; shift
            exec setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups --reset-env --pdeathsig TERM -- \
                env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"' minicluster "$user" "$@"
}

# Ends the namespace in any state and forgets the cluster; keeps the logs.
take_down() {
    local pid
    if pid=$(init_pid); then
        kill -KILL "$pid" 2>/dev/null || true
    elif [[ -s $DIR/state/ready ]]; then
        # It failed before its identity was written. Its pid is minutes old at most.
        kill -KILL "$(<"$DIR/state/ready")" 2>/dev/null || true
    fi
    clean_dir keep-logs
}
