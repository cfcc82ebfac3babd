"""`headrace plan`: the shares of a tree in a file. `description` reads it, `compute` runs the algorithm, `binding` names the limits.

`python -m headrace_fair_share.plan FILE` prints the result as JSON (`headrace.wire.plan`) and exits with status 0, or 2 if the file cannot
be used. The command line starts this process and displays the result, because services never import each other.
"""
