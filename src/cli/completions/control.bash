
# Offers DIR/.zarrfs, which no listing shows, beside the files of DIR.
_zarrfs_with_control() {
    _zarrfs "$@"
    (( ${#COMPREPLY[@]} )) && return
    local word dir="" place
    # Backslashes before signs of the shell are taken out.
    IFS= read word <<< "$2"
    [[ "$word" == */* ]] && dir="${word%/*}/"
    place="$dir"
    [[ "$place" == "~/"* ]] && place="$HOME/${place:2}"
    [[ .zarrfs == "${word##*/}"* && -d "${place}.zarrfs" ]] || return
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    COMPREPLY+=("${dir}.zarrfs")
    # Readline then adds the slash, and quotes what has to be quoted.
    compopt -o filenames 2>/dev/null
}

complete -F _zarrfs_with_control -o bashdefault -o default zarrfs
