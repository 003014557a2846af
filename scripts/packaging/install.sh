#!/bin/sh
# Installs zarrfs from the directory of this script, for one user, or as root for all users; or removes it.
#
#     ./install.sh [--prefix DIR]             to ~/.local, as root to /usr/local, or to DIR
#     ./install.sh --remove [--prefix DIR]    removes all installed files
#
# To remove zarrfs later, run the copy DIR/share/zarrfs/install.sh. The script overwrites only files that it has
# installed itself. It writes the list of files before it copies the first one. So you can remove or repeat an
# interrupted installation.

set -eu
here=$(cd "$(dirname "$0")" && pwd)
is_root=$([ "$(id -u)" -eq 0 ] && echo yes || echo)
prefix=$([ "$is_root" ] && echo /usr/local || echo "${HOME:?}/.local")
remove=
# Files that root installs are for all users.
[ -z "$is_root" ] || umask 022

fail() {
    echo "install: $*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
        --prefix)
            [ $# -gt 1 ] || fail "--prefix needs a directory"
            mkdir -p -- "$2" && prefix=$(cd -- "$2" && pwd)
            shift
            ;;
        --remove) remove=yes ;;
        *) fail "usage: $0 [--remove] [--prefix DIR]" ;;
    esac
    shift
done

own=$prefix/share/zarrfs
list=$own/installed

# Removes the files of the list, then the directories that were made for them, if they are empty.
remove_installed() {
    [ -f "$list" ] || fail "nothing was installed in $prefix"
    names=$(cat "$list")
    echo "$names" | sed -n 's/^file //p' | while IFS= read -r file; do rm -f -- "$file"; done
    echo "$names" | sed -n 's/^folder //p' | sort -r | while IFS= read -r folder; do
        rmdir -- "$folder" 2>/dev/null || true
    done
}

# note LINE: adds a line to the list.
note() {
    made="$made
$1"
}

# note_file FILE: adds a file and its missing directories to the list; fails if the file exists and is not ours.
note_file() {
    if [ -e "$1" ] || [ -h "$1" ]; then
        grep -qxF "file $1" "$list" 2>/dev/null || fail "$1 is there already, and not of install.sh"
    fi
    note "file $1"
    note_folder "$(dirname "$1")"
}

note_folder() {
    [ -d "$1" ] && return
    note "folder $1"
    note_folder "$(dirname "$1")"
}

# Prints the files to install, relative to the prefix. Only root needs the units of systemd and mount.zarrfs.
wanted() {
    cd "$here"
    find bin share ${is_root:+lib sbin} \( -type f -o -type l \) | sort
}

# Writes the list of files, and the copy of this script that removes them.
note_all() {
    made=$(cat "$list" 2>/dev/null || true)
    for file in $(wanted); do
        note_file "$prefix/$file"
    done
    helper=/usr/sbin/mount.zarrfs
    if [ "$is_root" ] && [ "$prefix" = /usr/local ] && [ ! -e "$helper" ]; then
        note_file "$helper"
    else
        helper=
    fi
    note_folder "$own"
    for file in install.sh new installed installed.new; do
        note "file $own/$file"
    done
    mkdir -p -- "$own"
    echo "$made" | sed '/^$/d' | sort -u >"$list.new"
    mv -f -- "$list.new" "$list"
    cp -- "$here/install.sh" "$own/install.sh"
}

install_all() {
    note_all
    for file in $(wanted); do
        mkdir -p -- "$(dirname "$prefix/$file")"
        # A file of an interrupted installation would keep its mode, and a link would lead elsewhere.
        rm -f -- "$own/new"
        cp -P -- "$here/$file" "$own/new"
        mv -f -- "$own/new" "$prefix/$file"
    done
    [ -z "$helper" ] || ln -sf "$prefix/bin/zarrfs" "$helper"
    if [ "$is_root" ]; then
        unit=$prefix/lib/systemd/system/zarrfs@.service
        rm -f -- "$own/new"
        sed "s|/usr/local/bin/|$prefix/bin/|" "$unit" >"$own/new"
        mv -f -- "$own/new" "$unit"
    fi
}

if [ "$remove" ]; then
    remove_installed
    echo "zarrfs was removed from $prefix"
    exit
fi
[ -d "$here/bin" ] || fail "run the install.sh of an unpacked archive"
install_all
echo "zarrfs $("$prefix/bin/zarrfs" --version | cut -d' ' -f2) is installed in $prefix"
echo "sh $own/install.sh --remove${HOME:+$([ "$prefix" = "${HOME:-}/.local" ] || [ "$prefix" = /usr/local ] || echo " --prefix $prefix")} removes it"
case :$PATH: in
    *":$prefix/bin:"*) ;;
    *) echo "Add $prefix/bin to PATH, and log in again" ;;
esac
if [ -z "$is_root" ] && ! command -v fusermount3 >/dev/null; then
    echo "Users other than root need fusermount3 for mounting: the package fuse3 of Debian, Fedora and others"
fi
