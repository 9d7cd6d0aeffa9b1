# shellcheck shell=bash
# Makes a site of the bare root: users, keys, configuration, accounts.

# Fixed ids, so that files and sockets look the same in every cluster. They are far from the ids that distributions
# assign.
readonly INFILL_ID=6100 ALICE_ID=6101 BOB_ID=6102

make_site() {
    [[ $BARE = yes ]] || make_infills_folders
    add_user alice "$ALICE_ID" /home/alice /bin/bash
    add_user bob "$BOB_ID" /home/bob /bin/bash
    write_hosts
    write_munge_key
    write_slurm_config
    make_database
}

make_infills_folders() {
    add_user infill "$INFILL_ID" /var/lib/infill /usr/sbin/nologin
    chown infill:infill /run/infill /etc/infill /var/lib/infill
    chmod 0755 /run/infill /etc/infill /var/lib/infill
}

add_user() {
    local name=$1 id=$2 home=$3 shell=$4
    ! getent passwd "$name" >/dev/null || die "user $name exists already in this root"
    echo "$name:x:$id:$id::$home:$shell" >>/etc/passwd
    echo "$name:x:$id:" >>/etc/group
    # No password, but a valid account: without this line `su` refuses.
    echo "$name:*:20000::::::" >>/etc/shadow
    install -d -o "$id" -g "$id" -m 0755 "$home"
}

# Every node's name resolves to this machine, so that a job may use it as a master address.
write_hosts() {
    local i
    {
        echo "127.0.0.1 localhost minicluster"
        echo "::1 localhost ip6-localhost"
        for ((i = 1; i <= NODES; i++)); do echo "127.0.0.1 n$i"; done
    } >/etc/hosts
}

write_munge_key() {
    install -d -o munge -g munge -m 0755 /run/munge
    install -d -o munge -g munge -m 0700 /etc/munge /var/lib/munge /var/log/munge
    rm -f /etc/munge/munge.key
    install -o munge -g munge -m 0400 <(head -c 128 /dev/urandom) /etc/munge/munge.key
}

write_slurm_config() {
    install -d -m 0755 /etc/slurm
    install -d -o slurm -g slurm -m 0755 /var/spool/minicluster /var/spool/minicluster/ctld
    install -d -m 0755 /var/spool/minicluster/slurmd
    # A separate folder for each daemon, as systemd makes them: from 26.05 on, slurmd refuses another daemon's folder
    # for its socket.
    install -d -m 0755 /run/slurm
    install -d -o slurm -g slurm -m 0755 /run/slurmctld /run/slurmdbd
    rm -f /etc/slurm/*.conf
    local file
    for file in slurm.conf slurmdbd.conf cgroup.conf; do fill_in "$MINI/etc/$file" >"/etc/slurm/$file"; done
    chown slurm:slurm /etc/slurm/slurmdbd.conf
    chmod 0600 /etc/slurm/slurmdbd.conf
    if [[ $BARE = yes ]]; then
        sed -i -e '/^include slurm.conf.infill$/d' -e 's/ DenyQos=infill$//' "$CONF"
    else
        link_files_of_infill
    fi
    install -o slurm -g slurm -m 0400 <(head -c 32 /dev/urandom) /etc/slurm/jwt_hs256.key
    apply_settings
    # slurmctld writes its log as slurm; slurmd runs as root.
    install -o slurm -g slurm -m 0644 /dev/null "$LOGS/slurmctld.log"
    install -o slurm -g slurm -m 0644 /dev/null "$LOGS/slurmdbd.log"
}

# Linked, not copied: slurmctld reads a changed plug-in by itself at the next submission.
link_files_of_infill() {
    ln -sfn "$SITE/job_submit.lua" /etc/slurm/job_submit.lua
    ln -sfn "$SITE/job_submit.lua" /etc/slurm/infill.lua
    ln -sfn "$SITE/slurm.conf.infill" /etc/slurm/slurm.conf.infill
}

fill_in() {
    sed -e "s/@NODES@/$NODES/g" \
        -e "s/@PORT_SLURMCTLD@/$PORT_SLURMCTLD/g" -e "s/@PORT_SLURMDBD@/$PORT_SLURMDBD/g" \
        -e "s/@SLURMD_FIRST@/$((PORT_SLURMD + 1))/g" -e "s/@SLURMD_LAST@/$((PORT_SLURMD + NODES))/g" "$1"
}

# A fresh database, never the root's own: with --release native that one belongs to the machine. The server's own
# tables may exist already (root.sh).
make_database() {
    install -d -o mysql -g mysql -m 0755 /run/mysqld
    # Where slurmdbd looks for the socket, in later releases of Debian.
    ln -sfn mysqld /run/mariadbd
    if [[ ! -d $MYSQL_DIR ]]; then
        install_database >"$LOGS/mariadb-install-db.out" 2>&1 || {
            say "mariadb-install-db failed:"
            tail -n 15 "$LOGS/mariadb-install-db.out" >&2
            return 1
        }
    fi
    # mariadbd reads this at its first start. slurmdbd comes as the system user slurm and needs no password.
    cat >/var/lib/minicluster/grants.sql <<'END'
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO slurm@localhost;
END
}

# sacctmgr would ask for confirmation; -i answers yes.
account() { timeout 20 sacctmgr -i -Q "$@" >>"$LOGS/accounting.out" 2>&1; }

make_own_accounts() {
    local line words
    for line in "${SACCTMGR[@]}"; do
        read -ra words <<<"$line"
        account "${words[@]}" || return 1
    done
}

allow_infill() {
    [[ $BARE = yes ]] ||
        bash "$SITE/accounting.sh" --cluster minicluster --main-qos main --account research >>"$LOGS/accounting.out" 2>&1
}

# Makes what a site has before infill (a QOS, an account, users), then runs the administrator's commands for infill.
make_accounts() {
    {
        account add cluster minicluster &&
            account add qos main priority=100 &&
            account add account research cluster=minicluster Description=tests Organization=tests &&
            account modify account research set qos=main defaultqos=main &&
            account add user alice,bob account=research &&
            allow_infill &&
            make_own_accounts
    } || {
        say "setting up the accounts failed:"
        tail -n 15 "$LOGS/accounting.out" >&2
        return 1
    }
}
