# shellcheck shell=bash
# The program of the version before, for the tests of neighbouring versions. It is built once, in a working tree of its own,
# and kept below $TOOLS.

neighbour_commit() { grep -vE '^(#|$)' "$HERE/neighbour.txt"; }

neighbour_program() { echo "$TOOLS/neighbours/$(neighbour_commit)/infill"; }

# Whether this clone has its commit: a shallow one may not.
has_neighbour() { git cat-file -e "$(neighbour_commit)^{commit}" 2>/dev/null; }

# Lets the tests find it, if it was built.
use_neighbour() {
    local program
    program=$(neighbour_program)
    [[ ! -x $program ]] || export INFILL_OLD_BIN=${INFILL_OLD_BIN:-$program}
}

build_neighbour() {
    local program tree
    program=$(neighbour_program)
    [[ ! -x $program ]] || return 0
    has_neighbour || {
        say "this clone lacks commit $(neighbour_commit): tests of neighbouring versions are skipped (git fetch --unshallow)"
        return 0
    }
    tree=$(dirname "$program").tree
    remove_tree "$tree"
    git worktree add --quiet --detach "$tree" "$(neighbour_commit)" || return
    # Symbols of debugging are three quarters of it.
    if (build_tree "$tree") && mkdir -p "$(dirname "$program")" && strip -o "$program.new" "$tree/target/debug/infill"; then
        mv "$program.new" "$program"
    fi
    remove_tree "$tree"
    [[ -x $program ]]
}

# In a shell of its own: it goes elsewhere, and has a folder of builds of its own.
build_tree() {
    unset CARGO_TARGET_DIR CARGO_BUILD_BUILD_DIR
    cd "$1" && mkdir -p target && restore_build_cache && cargo build --locked --quiet --bin infill
}

remove_tree() {
    git worktree remove --force "$1" 2>/dev/null || rm -rf --one-file-system "$1"
    git worktree prune
}
