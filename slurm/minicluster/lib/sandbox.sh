# shellcheck shell=bash
# Runs a command in the Debian root without a cluster.

# When this process ends for any reason, so does `unshare`, and with it the namespace's init and all processes.
run_in_sandbox() {
    local pid code=0
    setpriv --pdeathsig KILL -- unshare --mount --pid --ipc --uts --net --kill-child --propagation private \
        bash "$HERE/lib/sandbox-init.sh" "$REPOSITORY" "$(root_path)" "${#BINDS[@]}" "${BINDS[@]}" "$@" &
    pid=$!
    trap 'kill -KILL "$pid"; exit 130' INT
    trap 'kill -KILL "$pid"; exit 143' TERM HUP
    wait "$pid" || code=$?
    return "$code"
}
