# Completes the words of backoffice in Bash. Load it: source <(backoffice completion bash)
# `backoffice __complete` prints one candidate per line: the word, a tab, its description. Bash inserts what a function
# offers as it is, so each candidate is quoted. Bash also splits words at @ and :, so this reads the line itself, and
# removes from the candidates what is before the last of these characters. `read` without -r removes backslashes.
_backoffice() {
  local words current before candidate quoted line="${COMP_LINE:0:COMP_POINT}"
  local plain='([^][:space:]\"'\''$`(){};&|<>*?![~]|\\.)*'
  [[ "$line" =~ ^(([^\\]|\\.)*[[:space:]])?($plain)$ && "${BASH_REMATCH[3]}" == *"$2" ]] || return
  current="${BASH_REMATCH[3]}"
  read -a words <<< "$line"
  [[ -n "$current" ]] || words+=("")
  IFS= read before <<< "${current%"$2"}"
  while IFS=$'\t' read -r candidate _; do
    printf -v quoted %q "${candidate#"$before"}"
    COMPREPLY+=("$quoted")
  done < <("${words[0]/#\~/$HOME}" __complete "${words[@]:1}" 2> /dev/null)
}
complete -o default -F _backoffice backoffice
