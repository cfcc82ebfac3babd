"""The vector fair-share algorithm (hierarchical dominant resource fairness with guarantees), by numbers alone.

It knows nothing of messages, services or clocks. docs/reference/fair-share-algorithm.md describes it. In reading order:

    model               the input of an update, and its result
    tree_update         one update, step by step
    arrays, layout      amounts and shares as arrays, the shape of a tree
    input_arrays        pools and operations as arrays
    fixed_attributes    guarantees, limits, weights and orders, which stay while the configuration does
    strong_guarantees, weights, fifo, integral      their rules
    functions           the functions of every element: by fit factor, then by suggestion
    share_distribution  the way down: each element's share
    node_sets           operations that can run on some nodes only: what they have of these together
    tree_shares         what came out, by element
    incremental_input   only as much of the input is read again as has changed
    search              the largest double for which a condition holds
"""
