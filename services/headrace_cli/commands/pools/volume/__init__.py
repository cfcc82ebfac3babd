"""The command `headrace pool volume`: a pool over time, as figures and as a chart."""
