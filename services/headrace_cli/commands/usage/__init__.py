"""The command `headrace usage`: its options, its table, its CSV and its report."""
