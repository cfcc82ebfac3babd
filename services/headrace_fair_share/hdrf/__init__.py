"""The vector fair-share algorithm (hierarchical dominant resource fairness with guarantees), as a pure computation on numbers.

It knows nothing of messages, services or clocks. docs/reference/fair-share-algorithm.md describes it. In reading order:

    model               the input of an update, and the errors it reports
    tree_update         one update, step by step, and its results by element
    arrays              amounts and shares as arrays
    input_arrays        the shape of a tree, its pools and operations as arrays
    incremental_input   reads only the part of the input that changed; guarantees, limits, weights and orders
    strong_guarantees, weights, fifo, integral_shares    the rules for each of these
    functions           the functions of every element: by fit factor, then by suggestion
    share_distribution  the way down the tree: each element's share
    node_sets           keeps operations that can run on some nodes only within what these nodes have together
    search              the largest double for which a condition holds
"""
