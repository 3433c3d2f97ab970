# Completes the words of backoffice in Bash. Load it: source <(backoffice completion bash)
# `backoffice __complete` prints one candidate per line: the word, a tab, its description. Bash splits words at @ and :,
# so this reads the line itself, and removes from the candidates what is before the last of these characters.
_backoffice() {
  local line="${COMP_LINE:0:COMP_POINT}" words candidates
  read -ra words <<< "$line"
  [[ "$line" == *[[:space:]] ]] && words+=("")
  local current="${words[${#words[@]}-1]}"
  local before="${current%"${COMP_WORDS[COMP_CWORD]}"}"
  mapfile -t candidates < <("${words[0]/#\~/$HOME}" __complete "${words[@]:1}" 2> /dev/null | cut -f 1)
  COMPREPLY=("${candidates[@]#"$before"}")
}
complete -o default -F _backoffice backoffice
