"""Kills of real processes at named places, judged by what the jobs themselves saw."""
