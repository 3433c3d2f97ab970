# Completes the words of backoffice in Fish. Load it: backoffice completion fish | source
# `backoffice __complete` prints one candidate per line: the word, a tab, its description.
function __backoffice_complete
    set -l words (commandline -opc)
    set -l candidates ($words[1] __complete $words[2..-1] (commandline -ct) 2> /dev/null)
    if set -q candidates[1]
        printf '%s\n' $candidates
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c backoffice -f -a '(__backoffice_complete)'
