"""What admission decides, a module for each subject; pure. Decisions read the state and change it only by recording events."""
