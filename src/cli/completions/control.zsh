# Names below DIR/.zarrfs are completed although no listing has .zarrfs itself.
zstyle ':completion:*:zarrfs*' accept-exact-dirs true

# Offers DIR/.zarrfs, which no listing shows.
_zarrfs_control() {
    local dir= place
    [[ $PREFIX == */* ]] && dir=${PREFIX%/*}/
    place=${(Q)dir}
    [[ $place == '~/'* ]] && place=$HOME/${place#'~/'}
    [[ -n $PREFIX && .zarrfs == ${(b)PREFIX##*/}* && -d ${place}.zarrfs ]] || return
    compadd -U -Q -S / -- ${dir}.zarrfs
}

_zarrfs() {
    _zarrfs_control
    _zarrfs_words "$@"
}

