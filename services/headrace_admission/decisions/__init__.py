"""The decisions of admission, a module for each subject.

Each function gets a `Transaction`: it reads the state, and changes it only by recording events, so each sees the ones before it.
A replay of the events needs none of these rules. Everything here is pure.
"""
