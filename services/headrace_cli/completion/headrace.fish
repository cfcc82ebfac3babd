# Completion of `headrace` in fish 3.1 or newer.

function __headrace_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    # A quote that is open still cannot be taken away; then the word stands as it was typed.
    set -l typed (string unescape -- $word; or string trim --left --chars "'\"" -- $word)
    for line in (command $words[1] complete fish -- $words[2..] "$typed" 2>/dev/null)
        set -l columns (string split \t -- $line)
        switch $columns[1]
            case w p
                printf '%s\t%s\n' $columns[2] "$columns[3]"
            case f
                __fish_complete_path $word
            case c
                __fish_complete_subcommand --fcs-skip=(math $columns[2] + 1)
        end
    end
end

complete --command headrace --no-files --keep-order --arguments '(__headrace_complete)'
