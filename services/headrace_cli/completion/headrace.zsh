#compdef headrace
# Completion of `headrace` in zsh.

_headrace() {
    local program=${commands[$words[1]]:-$words[1]} line mark value description
    local typed=$PREFIX
    # Inside of quotes the word is already without them.
    [[ -n ${compstate[quote]} ]] || typed=${(Q)PREFIX}
    local -a answer whole part
    answer=("${(@f)$($program complete zsh -- "${(@Q)words[2,CURRENT-1]}" "$typed" 2>/dev/null)}")
    for line in $answer; do
        mark=${line%%$'\t'*} line=${line#*$'\t'}
        value=${line%%$'\t'*} description=${line#*$'\t'}
        # _describe parts a candidate from the words about it at the first colon.
        value=${${value//\\/\\\\}//:/\\:}${description:+:$description}
        case $mark in
        w) whole+=("$value") ;;
        p) part+=("$value") ;;
        f)
            [[ $PREFIX == -*=* ]] && compset -P '*='
            _files
            return
            ;;
        c)
            shift $((${value%%:*} + 1)) words
            ((CURRENT -= ${value%%:*} + 1))
            _normal
            return
            ;;
        esac
    done
    _describe -V -t headrace headrace whole -- part -S ''
}

if [[ $funcstack[1] == _headrace ]]; then
    _headrace "$@" # loaded by its name from a folder of $fpath
else
    compdef _headrace headrace
fi
