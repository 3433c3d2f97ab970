#compdef backoffice
# Completes the words of backoffice in Zsh. Load it after compinit: source <(backoffice completion zsh)
# `backoffice __complete` prints one candidate per line: the word, a tab, its description. Zsh quotes what it inserts;
# `_describe` reads a backslash before a colon, and before a backslash.
_backoffice() {
  local line word
  local -a candidates
  for line in "${(@f)$("${(Q)words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2> /dev/null)}"; do
    word="${line%%$'\t'*}"
    [[ -n "$line" ]] && candidates+=("${${word//\\/\\\\}//:/\\:}:${line#*$'\t'}")
  done
  if (( $#candidates )); then _describe -V command candidates; else _files; fi
}
compdef _backoffice backoffice
