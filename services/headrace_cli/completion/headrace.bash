# Completion of `headrace` in bash 4.4 or newer.

_headrace() {
    local program line mark value description
    local -a described=()
    if [[ ${COMP_WORDS[COMP_CWORD - 1]} =~ ^[0-9]*[\<\>\&\|]+$ ]]; then
        compopt -o default -o bashdefault # the file of a redirection
        return
    fi
    program=$(type -P -- "$1") || program=$(type -P headrace) || return
    # Up to the cursor; what bash is going to replace of it stands in $2.
    line=${COMP_LINE:0:COMP_POINT}
    COMPREPLY=()
    while IFS=$'\t' read -r mark value description; do
        case $mark in
        w | p)
            [[ $mark == w ]] || compopt -o nospace
            COMPREPLY+=("$value")
            described+=("$value${description:+  ($description)}")
            ;;
        f) compopt -o default -o bashdefault ;;
        c) _headrace_command ;;
        esac
    done < <("$program" complete bash -- "${line%"$2"}" "$2" 2>/dev/null)
    # 63: bash lists and inserts nothing, so that words about each candidate can stand beside it.
    if ((COMP_TYPE == 63 && ${#COMPREPLY[@]} > 1)); then
        COMPREPLY=("${described[@]}")
    fi
}

# The command of a job, behind `--`, is completed as if it stood alone.
_headrace_command() {
    local at
    for ((at = 1; at < COMP_CWORD; at++)); do
        [[ ${COMP_WORDS[at]} == -- ]] && break
    done
    if ((at < COMP_CWORD)) && declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset $((at + 1))
    elif ((at < COMP_CWORD)) && declare -F _command_offset >/dev/null; then
        _command_offset $((at + 1))
    elif ((at + 1 == COMP_CWORD)); then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -A command -- "${COMP_WORDS[COMP_CWORD]}" | sort -u)
    else
        compopt -o default -o bashdefault
    fi
}

complete -o nosort -F _headrace headrace
