"""`headrace plan`: computes the shares of a tree that a file describes.

The module `description` reads the file, `compute` runs the algorithm, and `binding` finds what limits each element.

`python -m headrace_fair_share.plan FILE` prints the result as JSON (`headrace.wire.plan`) and exits with status 0, or 2 if the file cannot
be used. The command line starts this process and displays the result, because services never import each other.
"""
