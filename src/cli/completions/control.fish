
# Offers DIR/.zarrfs, which no listing shows.
function __fish_zarrfs_control
    set -l word (commandline -ct | string unescape)
    set -l dir (string replace -r '[^/]*$' '' -- "$word")
    set -l name (string replace -r '^.*/' '' -- "$word")
    set -l place (string replace -r '^~/' "$HOME/" -- "$dir")
    if test -n "$word" -a "$name" = (string sub -l (string length -- "$name") -- .zarrfs) -a -d "$place.zarrfs"
        echo "$dir.zarrfs/"
    end
end

complete -c zarrfs -a "(__fish_zarrfs_control)"
