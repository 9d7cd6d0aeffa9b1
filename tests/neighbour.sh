# shellcheck shell=bash
# The previous version of the program, for the tests of neighbouring versions. It is built once, in a separate working
# tree, and kept below $TOOLS.

neighbour_commit() { grep -vE '^(#|$)' "$HERE/neighbour.txt"; }

neighbour_program() { echo "$TOOLS/neighbours/$(neighbour_commit)/infill"; }

# Whether this clone has its commit. A shallow clone may lack it.
has_neighbour() { git cat-file -e "$(neighbour_commit)^{commit}" 2>/dev/null; }

# Shows the tests where it is, if it was built.
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
    # Debug symbols are three quarters of the file.
    if (build_tree "$tree") && mkdir -p "$(dirname "$program")" && strip -o "$program.new" "$tree/target/debug/infill"; then
        mv "$program.new" "$program"
    fi
    remove_tree "$tree"
    [[ -x $program ]]
}

# In a subshell, because it changes the directory and the folder of builds.
build_tree() {
    unset CARGO_TARGET_DIR CARGO_BUILD_BUILD_DIR
    cd "$1" && mkdir -p target && restore_build_cache && cargo build --locked --quiet --bin infill
}

remove_tree() {
    git worktree remove --force "$1" 2>/dev/null || rm -rf --one-file-system "$1"
    git worktree prune
}
