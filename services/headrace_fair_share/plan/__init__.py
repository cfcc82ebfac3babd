"""A tree from a file: read with places (`file`, `figures`), checked (`check`, `placing`), computed (`compute`).

`python -m headrace_fair_share.plan FILE` prints the result as JSON (`headrace.wire.plan`) and ends with status 0, or 2 where the file
cannot be used. `headrace plan` is what people call: it starts that, since services never import each other, and shows what came.
"""
