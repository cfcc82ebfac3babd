"""YARN's fair-scheduler.xml and yarn-site.xml, read and made into pools and options of a tree. Pure.

`elements` parses XML, `amounts` the spellings of resources, `allocation_file` and `site_file` the two files. `placement` finds what
rules become here. `translation` makes the tree. `warnings` collects what differs here, each with its code, line and queue.
"""
