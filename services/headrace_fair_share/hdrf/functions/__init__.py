"""The three functions of every element: kept in `curves`, made by `by_fit_factor` and `by_suggestion`, batch by batch in `builder`."""
