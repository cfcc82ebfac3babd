"""What a shell offers when somebody presses Tab behind `headrace`: commands, options, words, and the names that a running one knows."""
