"""The three functions of every element: share by fit factor, maximal fit factor by suggestion, share by suggestion.

In reading order: `curves` keeps and looks up, `by_fit_factor` and `by_suggestion` make, `builder` goes through a tree in batches, and
`incremental` makes again only the functions that have to change.
"""
