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
                set -l option (string match --regex '^--[^=]*=' -- $typed)
                for path in (__fish_complete_path (string replace -- "$option" '' $typed))
                    echo -- "$option$path"
                end
            case c
                set -e words[1..(math $columns[2] + 1)]
                complete --do-complete (string join ' ' -- (string escape -- $words) "$word")
        end
    end
end

complete --command headrace --no-files --keep-order --arguments '(__headrace_complete)'
