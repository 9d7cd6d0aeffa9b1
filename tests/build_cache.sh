# shellcheck shell=bash
# Shares the compilation of other people's packages between all clones on a machine. Cargo's results are kept as hard
# links below the cache, and a clone that has compiled nothing yet starts with links to them.
#
# Cargo can share a whole folder of builds (`build.build-dir`), but then it takes one clone's programs for another's.
# Their files have the same names, and cargo only compares their age with the sources. So packages of this workspace
# are never shared.

BUILD_CACHES=${XDG_CACHE_HOME:-$HOME/.cache}/infill/builds
# Time for which results of other versions of Rust or Cargo.lock are kept.
readonly KEEP_DAYS=14

# One line of JSON that describes this workspace.
workspace() { cargo metadata --locked --format-version 1 --no-deps; }

# Cargo's folder of builds in this clone.
build_folder() {
    local about key
    about=$(workspace)
    # Older versions of cargo have only the second.
    for key in build_directory target_directory; do
        if [[ $about =~ \"$key\":\"([^\"]+)\" ]]; then
            echo "${BASH_REMATCH[1]}"
            return
        fi
    done
}

build_cache_path() { echo "$BUILD_CACHES/$({ rustc -vV && cat Cargo.lock; } | sha256sum | cut -c1-16)"; }

# A pattern that matches the outputs of this workspace's packages: their targets' names, each with a hash.
own_artifacts() {
    local names
    names=$(workspace | grep -oE '"crate_types":\["[a-z-]+"\],"name":"[^"]+"' | sed -E 's/.*"name":"([^"]+)"/\1/; s/-/[-_]/g' | sort -u | paste -sd '|')
    echo ".*/(lib)?($names)-[0-9a-f]{16}(\..*)?"
}

# link_artifacts FROM TO OWN FOLDER…: links files in FOLDERs of FROM that TO lacks, except those that match OWN.
link_artifacts() {
    local from=$1 to=$2 own=$3 folder
    shift 3
    for folder; do
        [[ -d $from/$folder ]] || continue
        mkdir -p "$to/$folder"
        find "$from/$folder" -mindepth 1 -maxdepth 1 -regextype posix-extended -not -regex "$own" -print0 |
            xargs -r0 cp -al --no-clobber -t "$to/$folder" || return
    done
}

# Cargo takes a unit as compiled if it has a fingerprint. So fingerprints are stored last and taken first.
save_build_cache() {
    local store build own profile
    store=$(build_cache_path) build=$(build_folder) own=$(own_artifacts)
    [[ -n $build ]] || return 0
    mkdir -p "$store"
    for profile in debug release; do
        link_artifacts "$build/$profile" "$store/$profile" "$own" deps build .fingerprint 2>/dev/null || return 0
    done
    touch "$store"
    find "$BUILD_CACHES" -mindepth 1 -maxdepth 1 -mtime "+$KEEP_DAYS" -exec rm -rf --one-file-system {} +
}

newest_build_cache() {
    local store newest=
    for store in "$BUILD_CACHES"/*/; do
        [[ ! -d $store || $store -ot $newest ]] || newest=$store
    done
    echo "$newest"
}

restore_build_cache() {
    local store build profile
    store=$(build_cache_path) build=$(build_folder)
    # Most packages stay the same when Cargo.lock changes.
    [[ -d $store ]] || store=$(newest_build_cache)
    [[ -n $build && -n $store && ! -d $build/debug/.fingerprint ]] || return 0
    for profile in debug release; do
        link_artifacts "$store/$profile" "$build/$profile" "-" .fingerprint build deps 2>/dev/null || {
            # Another file system, or an incomplete store: cargo compiles the missing parts.
            rm -rf --one-file-system "${build:?}/$profile"
            return 0
        }
    done
}
