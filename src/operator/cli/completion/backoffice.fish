# Completes the words of backoffice in Fish. Load it: backoffice completion fish | source
# `backoffice __complete` prints one candidate per line: the word, a tab, its description. Fish quotes what it inserts,
# except ~ at the beginning of a word, which it would expand: a value with it is offered when its \~ has been typed.
function __backoffice_complete
    set -l words (commandline -opc)
    set -l current (string unescape -- (commandline -ct))
    set -l candidates ($words[1] __complete $words[2..-1] "$current" 2> /dev/null)
    test -z "$current"; and set candidates (string match --invert -- '~*' $candidates)
    if set -q candidates[1]
        printf '%s\n' $candidates
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c backoffice -f -a '(__backoffice_complete)'
