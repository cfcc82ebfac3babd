"""`headrace plan`: what a tree in a file comes to. `description` reads it, `compute` asks the algorithm, `binding` says what binds.

`python -m headrace_fair_share.plan FILE` prints the result as JSON (`headrace.wire.plan`) and ends with status 0, or 2 if the file
cannot be used. The command line starts that, since services never import each other, and shows what came.
"""
