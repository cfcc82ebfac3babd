"""Questions of what if: two updates of one moment, of which the second has changes that nobody made."""
