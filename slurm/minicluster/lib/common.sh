# shellcheck shell=bash
# Functions and settings for both sides: the host's command and the scripts inside the cluster.

readonly EXIT_USAGE=2
# shellcheck disable=SC2034
readonly EXIT_NOT_UP=3
# 64 slurmd fit the block of ports of one cluster (state.sh).
# shellcheck disable=SC2034
readonly MAX_NODES=64

MYSQL_DIR=/var/lib/minicluster/mysql
readonly MYSQL_DIR
# The database of a test needs no durability and little memory. Its only client is slurmdbd, over a Unix socket.
MARIADB_OPTIONS=(
    --no-defaults "--datadir=$MYSQL_DIR" --socket=/run/mysqld/mysqld.sock
    --pid-file=/run/mysqld/mysqld.pid --skip-networking --skip-log-bin --performance-schema=0
    --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 --innodb-log-file-size=16M
    --innodb-buffer-pool-size=64M --innodb-lock-wait-timeout=900
)
# shellcheck disable=SC2034
readonly MARIADB_OPTIONS

say() { printf 'minicluster: %s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

usage_error() {
    say "$*"
    say "see minicluster --help"
    exit "$EXIT_USAGE"
}

need_root() {
    ((EUID == 0)) || die "needs root: it makes namespaces and runs daemons as several users"
}

seconds_since() {
    awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'
}

# wait_until SECONDS CMD…: polls until CMD succeeds. CMD must itself be bounded.
wait_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}

# What the settings of this cluster mean for the daemons that it has.
uses_munge() { [[ " ${SETTINGS[*]-} " != *" AuthType=auth/slurm "* ]]; }

saves_power() { [[ " ${SETTINGS[*]-}" == *" SuspendProgram="* ]]; }

# Inside a root: the database server's own tables.
install_database() {
    install -d -m 0755 "${MYSQL_DIR%/*}" &&
        install -d -o mysql -g mysql -m 0700 "$MYSQL_DIR" &&
        mariadb-install-db "${MARIADB_OPTIONS[@]}" --user=mysql --skip-test-db --auth-root-authentication-method=socket
}
