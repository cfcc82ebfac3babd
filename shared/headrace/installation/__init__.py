"""What is installed here: extras of the package, and the operating system."""
