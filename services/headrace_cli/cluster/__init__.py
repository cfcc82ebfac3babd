"""`headrace cluster`: credentials and settings of services that run on their own, in containers or on hosts."""
