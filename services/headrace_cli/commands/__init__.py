"""The commands of `headrace`: a module for each noun, or a folder for a noun with more than two modules."""
