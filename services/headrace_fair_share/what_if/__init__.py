"""What-if questions: two updates at one point in time, the second with changes that are not actually made."""
