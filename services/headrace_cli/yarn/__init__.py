"""Translate YARN's fair-scheduler.xml and yarn-site.xml into pools and options of a tree. Pure.

`elements` parses XML, `amounts` parses amounts of resources, `allocation_file` and `site_file` read the two files. `placement` translates
the placement rules, and `translation` makes the tree. `warnings` collects the differences from YARN, each with a code, its line and its
queue.
"""
