"""The three functions of every element: share by fit factor, maximal fit factor by suggestion, share by suggestion.

In reading order: `curves` stores and looks up functions, `by_fit_factor` and `by_suggestion` compute them, `builder` goes through a tree in
batches, and `incremental` rebuilds only the functions that must change.
"""
